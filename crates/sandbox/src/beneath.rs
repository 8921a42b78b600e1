//! Opens paths below a handle so that no segment and no link leads out of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The longest path that the kernel takes in one call.
const MAX_CALL_BYTES: usize = 4095;

/// Whether a path may pass through symbolic links that stay inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Inside,
    Refused,
}

/// Opens `path` below `root`; the empty path is `root` itself. A path that is too long for one call goes in
/// several, and then passes through no link before its last part.
pub(crate) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let mut rest = if path.is_empty() { &b"."[..] } else { path };
    let mut held: Option<OwnedFd> = None;
    while rest.len() > MAX_CALL_BYTES {
        let cut = memchr::memrchr(b'/', &rest[..MAX_CALL_BYTES]).ok_or(Errno::NAMETOOLONG)?;
        let from = held.as_ref().map_or(root, AsFd::as_fd);
        held = Some(resolve(from, &rest[..cut], OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)?);
        rest = &rest[cut + 1..];
    }
    resolve(held.as_ref().map_or(root, AsFd::as_fd), rest, flags, links)
}

#[cfg(target_os = "linux")]
fn resolve(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, ResolveFlags, openat2};

    let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refused {
        how |= ResolveFlags::NO_SYMLINKS;
    }
    loop {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // A rename somewhere on the path made the kernel give up.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Segment by segment and through no link at all, where the kernel cannot keep a whole path inside.
#[cfg(not(target_os = "linux"))]
fn resolve(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, _links: Links) -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, openat};

    let inner = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut held: Option<OwnedFd> = None;
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." || segment.is_empty() {
            return Err(Errno::XDEV);
        }
        let flags =
            if segments.peek().is_some() { inner } else { flags | OFlags::NOFOLLOW | OFlags::CLOEXEC };
        held = Some(openat(held.as_ref().map_or(root, AsFd::as_fd), segment, flags, Mode::empty())?);
    }
    held.ok_or(Errno::INVAL)
}
