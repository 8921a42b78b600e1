//! A directory of the user's, reached through its handle alone: no symbolic link in it is ever followed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use coldframe_core::WorkspacePath;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// What stands at a path, itself not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Symlink,
    Directory,
    Other,
}

/// What stands at a path, with enough of its identity to notice that it was exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// The permission bits.
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    /// Device, inode and modification time. A rename leaves them alone.
    pub(super) identity: (u64, u64, i64, i64),
}

impl Found {
    fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Symlink,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        };
        Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            identity: (stat.st_dev, stat.st_ino, stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
        }
    }

    pub(super) const fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// A handle of a directory.
#[derive(Debug)]
pub(super) struct Directory {
    handle: OwnedFd,
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Directory {
    /// Opens a directory by its canonical path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { handle: rustix::fs::open(path, OPEN_DIRECTORY, Mode::empty())? })
    }

    /// Opens the directory `name` in this one.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        Ok(Self { handle: rustix::fs::openat(&self.handle, name, OPEN_DIRECTORY, Mode::empty())? })
    }

    /// The directory that holds `path`, and the last name of it. Each directory on the way is opened by itself,
    /// so that a link among them is an error.
    pub(super) fn parent<'p>(&self, path: &'p WorkspacePath) -> io::Result<(Self, &'p str)> {
        let mut current = Self { handle: self.handle.try_clone()? };
        let mut names = path.segments().peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Ok((current, name));
            }
            current = current.child(name)?;
        }
        Err(io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// What stands at `path`; nothing also where a part of the way is missing or no directory.
    pub(super) fn look(&self, path: &WorkspacePath) -> io::Result<Option<Found>> {
        match self.parent(path) {
            Ok((parent, name)) => parent.look_here(name),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What stands at `name` in this directory.
    pub(super) fn look_here(&self, name: &str) -> io::Result<Option<Found>> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::of(&stat))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading; never waits for the other end of a pipe.
    pub(super) fn open_file(&self, path: &WorkspacePath) -> io::Result<File> {
        let (parent, name) = self.parent(path)?;
        parent.open_file_here(name)
    }

    pub(super) fn open_file_here(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.handle, name, flags, Mode::empty())?))
    }

    /// Makes a file that was not there.
    pub(super) fn create_file(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, name, flags, Mode::from_raw_mode(mode))?;
        Ok(File::from(handle))
    }

    pub(super) fn make_directory(&self, name: &str, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(mode))?)
    }

    pub(super) fn make_symlink(&self, target: &str, name: &str) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.handle, name)?)
    }

    pub(super) fn target_of(&self, path: &WorkspacePath) -> io::Result<Vec<u8>> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::readlinkat(&parent.handle, name, Vec::new())?.into_bytes())
    }

    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::REMOVEDIR)?)
    }

    /// Moves `name` to `other` in `to`, in the place of what stands there.
    pub(super) fn rename(&self, name: &str, to: &Self, other: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, name, &to.handle, other)?)
    }

    /// Moves `name` to `other` in `to` where nothing stands yet.
    pub(super) fn rename_new(&self, name: &str, to: &Self, other: &str) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.handle, name, &to.handle, other, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag; there a look has to do.
            Err(Errno::INVAL | Errno::NOSYS) => match to.look_here(other)? {
                Some(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                None => self.rename(name, to, other),
            },
            other => Ok(other?),
        }
    }

    /// Gives `name` a second name, `other` in `to`.
    pub(super) fn link(&self, name: &str, to: &Self, other: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.handle, name, &to.handle, other, AtFlags::empty())?)
    }

    /// The names in the directory at `path`.
    pub(super) fn names(&self, path: &WorkspacePath) -> io::Result<Vec<OsString>> {
        let (parent, name) = self.parent(path)?;
        parent.child(name)?.names_here()
    }

    pub(super) fn names_here(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Errors that say that a part of the way is missing, no directory, or a link.
pub(super) fn is_absence(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw_os_error)
        .is_some_and(|errno| matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
