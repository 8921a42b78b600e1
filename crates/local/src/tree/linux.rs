//! The Linux form: directory handles, `openat2` that refuses links, and raw directory entries.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::{Kind, Moment, Names, Stat};

/// The kernel takes paths below 4,096 bytes; longer ones are opened in several steps.
const STEP_BYTES: usize = 4000;
const LISTING_BYTES: usize = 32 << 10;

/// A root. It holds one handle; everything else is opened when it is needed.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// Set where the kernel or a sandbox around this process refuses `openat2`.
    step_by_step: AtomicBool,
}

/// One open directory below a [`Tree`].
#[derive(Debug)]
pub(crate) struct Directory {
    handle: OwnedFd,
}

impl Tree {
    /// Opens a root; a link to a directory is followed here and nowhere else.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        Ok(Self { root, step_by_step: AtomicBool::new(false) })
    }

    /// What the root itself is.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(convert(&rustix::fs::fstat(&self.root)?))
    }

    /// Whether time stamps come from this machine's clock. Those of a server, or of a process that plays file
    /// system, cannot be compared with it.
    pub(crate) fn stamps_are_local(&self) -> bool {
        const REMOTE: [u32; 8] = [
            0x6969,      // NFS
            0x517b,      // SMB
            0xff53_4d42, // CIFS
            0xfe53_4d42, // SMB2
            0x6573_5546, // FUSE
            0x0102_1997, // 9P
            0x00c3_6400, // Ceph
            0x5346_414f, // AFS
        ];
        rustix::fs::fstatfs(&self.root).is_ok_and(|system| !REMOTE.contains(&(system.f_type as u32)))
    }

    /// Opens the directory at `path`; the empty path is the root.
    pub(crate) fn directory(&self, path: &str) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Directory { handle: self.open_below(path, flags)? })
    }

    /// Opens what stands at `path` for reading and never waits for it; the caller checks that it is a file.
    pub(crate) fn file(&self, path: &str) -> io::Result<File> {
        self.open_below(path, FILE_FLAGS).map(File::from)
    }

    fn open_below(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let mut held: Option<OwnedFd> = None;
        let mut rest = path;
        while let Some(cut) =
            rest.as_bytes().get(..STEP_BYTES).and_then(|head| head.iter().rposition(is_slash))
        {
            let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            held = Some(self.open_step(from(&held, &self.root), &rest[..cut], through)?);
            rest = &rest[cut + 1..];
        }
        let rest = if rest.is_empty() { "." } else { rest };
        self.open_step(from(&held, &self.root), rest, flags)
    }

    fn open_step(&self, base: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        if !self.step_by_step.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(base, path, flags, Mode::empty(), resolve) {
                Err(Errno::NOSYS | Errno::PERM) => self.step_by_step.store(true, Ordering::Relaxed),
                outcome => return outcome.map_err(refused),
            }
        }
        open_segments(base, path, flags)
    }
}

const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

fn from<'a>(held: &'a Option<OwnedFd>, root: &'a OwnedFd) -> BorrowedFd<'a> {
    held.as_ref().unwrap_or(root).as_fd()
}

/// What the kernel says where a link stands, where a way would lead out, or where a rename came in between: the
/// name is not what it was when it was listed. The standard library has no stable word for the first.
fn refused(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::XDEV | Errno::AGAIN => io::ErrorKind::NotADirectory.into(),
        other => other.into(),
    }
}

/// Opens a path one segment at a time, refusing a link at each.
fn open_segments(base: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let mut held: Option<OwnedFd> = None;
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let from = held.as_ref().map_or(base, AsFd::as_fd);
        if segments.peek().is_none() {
            return rustix::fs::openat(from, segment, flags, Mode::empty()).map_err(refused);
        }
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        held = Some(rustix::fs::openat(from, segment, through, Mode::empty()).map_err(refused)?);
    }
    Err(Errno::NOENT.into())
}

impl Directory {
    /// Lists the names, without `.` and `..`.
    pub(crate) fn names(&self, names: &mut Names) -> io::Result<()> {
        names.clear();
        let mut buffer = std::mem::take(&mut names.listing);
        buffer.reserve(LISTING_BYTES);
        let mut listing = RawDir::new(&self.handle, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name, kind_of(entry.file_type()));
            }
        }
        names.listing = buffer;
        names.sort();
        Ok(())
    }

    /// What stands at `name`; a link is not followed.
    pub(crate) fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(convert(&rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// The target of the link `name`, as its bytes.
    pub(crate) fn link(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.handle, name, Vec::new())?.into_bytes())
    }

    /// Opens `name` for reading and never waits for it.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        rustix::fs::openat(&self.handle, name, FILE_FLAGS, Mode::empty()).map(File::from).map_err(refused)
    }
}

/// What an open file is at this moment.
pub(crate) fn stat_of(file: &File) -> io::Result<Stat> {
    Ok(convert(&rustix::fs::fstat(file)?))
}

fn kind_of(kind: FileType) -> Option<Kind> {
    match kind {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Symlink),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::CharacterDevice | FileType::BlockDevice => Some(Kind::Device),
        FileType::Unknown => None,
    }
}

#[allow(clippy::unnecessary_cast, reason = "the widths of these fields differ between architectures")]
fn convert(stat: &rustix::fs::Stat) -> Stat {
    let kind = kind_of(FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::Device);
    Stat {
        kind,
        executable: kind == Kind::File && stat.st_mode & 0o100 != 0,
        size: stat.st_size as u64,
        modified: Moment { seconds: stat.st_mtime as i64, nanoseconds: stat.st_mtime_nsec as u32 },
        changed: Moment { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino as u64,
        device: stat.st_dev as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_the_same_paths_open_and_links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        for step_by_step in [false, true] {
            tree.step_by_step.store(step_by_step, Ordering::Relaxed);
            assert!(
                tree.directory("").is_ok() && tree.directory("a/b").is_ok() && tree.file("a/b/c").is_ok()
            );
            for path in ["link/b/c", "link", "a/missing"] {
                assert!(super::super::is_gone(&tree.file(path).unwrap_err()), "{path} {step_by_step}");
            }
        }
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_opened_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let mut path = String::new();
        for _ in 0..20 {
            let handle = tree.directory(&path).unwrap().handle;
            let name = "d".repeat(250);
            rustix::fs::mkdirat(&handle, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
            path = if path.is_empty() { name } else { format!("{path}/{name}") };
        }
        assert!(path.len() > 5000);
        let mut names = Names::default();
        tree.directory(&path).unwrap().names(&mut names).unwrap();
        assert_eq!(names.iter().count(), 0);
    }
}
