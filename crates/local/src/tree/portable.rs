//! The portable form on the standard library. It checks for links before it opens, which another process can
//! outrun; only the Linux form closes that gap.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::{Kind, Moment, Names, Stat};

/// A root, named by its path.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

/// One directory below a [`Tree`], named by its path.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

#[cfg_attr(test, allow(dead_code, reason = "on Linux only the tests use this form"))]
impl Tree {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        if !fs::metadata(root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(convert(&fs::metadata(&self.root)?))
    }

    pub(crate) fn stamps_are_local(&self) -> bool {
        true
    }

    pub(crate) fn directory(&self, path: &str) -> io::Result<Directory> {
        let path = self.checked(path)?;
        if !fs::symlink_metadata(&path)?.is_dir() && path != self.root {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Directory { path })
    }

    pub(crate) fn file(&self, path: &str) -> io::Result<File> {
        open_plain(&self.checked(path)?)
    }

    /// The path with every segment but the last known to be a real directory.
    fn checked(&self, path: &str) -> io::Result<PathBuf> {
        let mut full = self.root.clone();
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).peekable();
        while let Some(segment) = segments.next() {
            full.push(segment);
            if segments.peek().is_some() && !fs::symlink_metadata(&full)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(full)
    }
}

fn open_plain(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg_attr(test, allow(dead_code, reason = "on Linux only the tests use this form"))]
impl Directory {
    pub(crate) fn names(&self, names: &mut Names) -> io::Result<()> {
        names.clear();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let kind = entry.file_type().ok().and_then(kind_of);
            names.push(entry.file_name().as_encoded_bytes(), kind);
        }
        names.sort();
        Ok(())
    }

    pub(crate) fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(convert(&fs::symlink_metadata(self.path.join(name))?))
    }

    pub(crate) fn link(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(self.path.join(name))?.into_os_string().into_encoded_bytes())
    }

    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        open_plain(&self.path.join(name))
    }
}

pub(crate) fn stat_of(file: &File) -> io::Result<Stat> {
    Ok(convert(&file.metadata()?))
}

fn kind_of(kind: fs::FileType) -> Option<Kind> {
    if kind.is_file() {
        Some(Kind::File)
    } else if kind.is_dir() {
        Some(Kind::Directory)
    } else if kind.is_symlink() {
        Some(Kind::Symlink)
    } else {
        special(kind)
    }
}

#[cfg(unix)]
fn special(kind: fs::FileType) -> Option<Kind> {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_fifo() {
        Some(Kind::Fifo)
    } else if kind.is_socket() {
        Some(Kind::Socket)
    } else {
        Some(Kind::Device)
    }
}

#[cfg(not(unix))]
fn special(_kind: fs::FileType) -> Option<Kind> {
    Some(Kind::Device)
}

#[cfg(unix)]
fn convert(metadata: &Metadata) -> Stat {
    use std::os::unix::fs::MetadataExt as _;
    let kind = kind_of(metadata.file_type()).unwrap_or(Kind::Device);
    Stat {
        kind,
        executable: kind == Kind::File && metadata.mode() & 0o100 != 0,
        size: metadata.len(),
        modified: Moment { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 },
        changed: Moment { seconds: metadata.ctime(), nanoseconds: metadata.ctime_nsec() as u32 },
        inode: metadata.ino(),
        device: metadata.dev(),
    }
}

#[cfg(not(unix))]
fn convert(metadata: &Metadata) -> Stat {
    let kind = kind_of(metadata.file_type()).unwrap_or(Kind::Device);
    let since = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let since = since.unwrap_or_default();
    let modified = Moment { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() };
    Stat { kind, executable: false, size: metadata.len(), modified, changed: modified, inode: 0, device: 0 }
}
