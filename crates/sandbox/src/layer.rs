//! One layer of a workspace as plain files: its names, the marks of the overlay, and folders that were closed.
//!
//! Folders are opened by path when their turn comes, so that no depth and no breadth holds descriptors.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, chmod, chmodat, fchmod, openat, statat};
use rustix::io::Errno;

use crate::beneath::{Links, open_beneath};
use crate::read_tools::{Named, read_names};

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A layer. Nothing but this process may use it meanwhile.
#[derive(Debug)]
pub(crate) struct Layer {
    root: OwnedFd,
    /// Folders that their owner had closed to himself, with the modes that they get back at the end.
    opened: RefCell<Vec<(Vec<u8>, Mode)>>,
}

/// The path of `name` in `directory`; the empty path is the root.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b'/', path) {
        Some(index) => (&path[..index], &path[index + 1..]),
        None => (b"", path),
    }
}

/// What stands at `name` itself; `None` where nothing does.
pub(crate) fn stat_at(directory: &impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether the overlay keeps this to say that the name of a lower layer is gone.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    kind_of(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Whether the overlay hides everything below this folder in lower layers.
#[cfg(target_os = "linux")]
pub(crate) fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0u8; 4];
    matches!(rustix::fs::fgetxattr(directory, "user.overlay.opaque", &mut value), Ok(1) if value[0] == b'y')
}

/// Without an overlay there is no such mark.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_opaque(_directory: &OwnedFd) -> bool {
    false
}

impl Layer {
    /// Opens the layer whose root is `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OPEN | OFlags::DIRECTORY;
        let opened = RefCell::new(Vec::new());
        let mode = Mode::from_raw_mode(rustix::fs::stat(path)?.st_mode & 0o7777);
        if !mode.contains(Mode::RWXU) {
            chmod(path, mode | Mode::RWXU)?;
            opened.borrow_mut().push((Vec::new(), mode));
        }
        Ok(Self { root: rustix::fs::open(path, flags, Mode::empty())?, opened })
    }

    /// Opens a folder. One that its owner closed stays open until the layer is dropped.
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let open =
            || open_beneath(self.root.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused);
        let (parent, name) = split(path);
        if name.is_empty() {
            return open();
        }
        let directory = match open() {
            Err(Errno::ACCESS) => {
                self.open_up(parent, name)?;
                open()?
            }
            other => other?,
        };
        // Readable is not enough: names are looked up in it, too.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
        if !mode.contains(Mode::RWXU) {
            self.open_up(parent, name)?;
        }
        Ok(directory)
    }

    fn open_up(&self, parent: &[u8], name: &[u8]) -> Result<(), Errno> {
        let parent_handle =
            open_beneath(self.root.as_fd(), parent, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)?;
        let stat = stat_at(&parent_handle, name)?.ok_or(Errno::NOENT)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        chmodat(&parent_handle, name, mode | Mode::RWXU, AtFlags::empty())?;
        self.opened.borrow_mut().push((join(parent, name), mode));
        Ok(())
    }

    /// The sorted names of a folder.
    pub(crate) fn names(&self, path: &[u8]) -> Result<Vec<Named>, Errno> {
        read_names(&self.directory(path)?)
    }

    /// Counts the files, links and empty folders at and below `name` of the folder `path`, however deep they lie.
    pub(crate) fn count(&self, path: &[u8], name: &[u8]) -> Result<u64, Errno> {
        let mut here = self.directory(path)?;
        if stat_at(&here, name)?.is_none_or(|stat| kind_of(&stat) != FileType::Directory) {
            return Ok(1);
        }
        let mut count = 0;
        let mut above: Vec<Level> = Vec::new();
        let mut next = Some(name.to_vec());
        loop {
            if let Some(name) = next.take() {
                let (below, closed) = enter(&here, &name)?;
                let names = read_names(&below)?;
                count += names.iter().filter(|named| named.kind != FileType::Directory).count() as u64;
                count += u64::from(names.is_empty());
                let folders = names.into_iter().filter(|named| named.kind == FileType::Directory);
                above.push(Level { name, closed, folders: folders.map(|named| named.name).collect() });
                here = below;
            }
            let Some(level) = above.last_mut() else { return Ok(count) };
            next = level.folders.pop();
            if next.is_none() {
                let level = above.pop().ok_or(Errno::INVAL)?;
                here = openat(&here, c"..", OPEN | OFlags::DIRECTORY, Mode::empty())?;
                if let Some(mode) = level.closed {
                    chmodat(&here, &*level.name, mode, AtFlags::empty())?;
                }
            }
        }
    }
}

/// A folder on the way down, and what is left to do in it.
struct Level {
    name: Vec<u8>,
    closed: Option<Mode>,
    folders: Vec<Vec<u8>>,
}

/// Opens a folder and says which mode it must get back, where its owner had closed it.
fn enter(directory: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let stat = stat_at(directory, name)?.ok_or(Errno::NOENT)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let closed = (!mode.contains(Mode::RWXU)).then_some(mode);
    if closed.is_some() {
        chmodat(directory, name, mode | Mode::RWXU, AtFlags::empty())?;
    }
    Ok((openat(directory, name, OPEN | OFlags::DIRECTORY, Mode::empty())?, closed))
}

/// Opens a file for reading, also one that its owner closed to himself; its mode stays as it is.
pub(crate) fn open_file(directory: &OwnedFd, name: &[u8]) -> Result<File, Errno> {
    match openat(directory, name, OPEN, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return other.map(File::from),
    }
    let stat = stat_at(directory, name)?.ok_or(Errno::NOENT)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    chmodat(directory, name, mode | Mode::RUSR, AtFlags::empty())?;
    let opened = openat(directory, name, OPEN, Mode::empty());
    chmodat(directory, name, mode, AtFlags::empty())?;
    opened.map(File::from)
}

impl Drop for Layer {
    fn drop(&mut self) {
        for (path, mode) in self.opened.take().into_iter().rev() {
            let (parent, name) = split(&path);
            let closed = if name.is_empty() {
                fchmod(&self.root, mode)
            } else {
                open_beneath(self.root.as_fd(), parent, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)
                    .and_then(|parent| chmodat(&parent, name, mode, AtFlags::empty()))
            };
            if let Err(error) = closed {
                tracing::warn!(%error, "a folder of a workspace stays open to its owner");
            }
        }
    }
}
