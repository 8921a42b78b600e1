//! The workspace as one directory handle that no path and no link can escape.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use coldframe_core::{PathError, ToolError, ToolStatus, WorkspacePath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, mkdirat, statat};
use rustix::io::Errno;

pub(crate) use crate::beneath::Links;
use crate::beneath::open_beneath;

/// The handle that all tools share. The kernel resolves every path below it.
#[derive(Debug)]
pub(crate) struct WorkspaceDir {
    root: OwnedFd,
}

/// Reads what a caller gave as a path; `None` is the root.
pub(crate) fn parse_path(text: &str) -> Result<Option<WorkspacePath>, ToolError> {
    WorkspacePath::parse_lenient(text).map_err(|error| {
        let status = match error {
            PathError::Absolute | PathError::Parent => ToolStatus::Refused,
            _ => ToolStatus::Invalid,
        };
        ToolError::new(status, format!("path {text:?}: {error}"))
    })
}

/// Reads a path that must name something below the root.
pub(crate) fn parse_file_path(text: &str) -> Result<WorkspacePath, ToolError> {
    parse_path(text)?.ok_or_else(|| {
        ToolError::new(ToolStatus::Invalid, "the path names the workspace itself; name a file")
    })
}

/// An error of the system as a tool's answer. It never names a path of the host.
pub(crate) fn tool_error(path: &str, error: Errno) -> ToolError {
    let (status, text) = match error {
        Errno::NOENT | Errno::NOTDIR => (ToolStatus::NotFound, "does not exist".to_owned()),
        Errno::XDEV => (ToolStatus::Refused, "leads out of the workspace".to_owned()),
        Errno::LOOP => (ToolStatus::Refused, "passes through a symbolic link; name the real path".to_owned()),
        Errno::ACCESS | Errno::PERM => (ToolStatus::Refused, "its permissions forbid it".to_owned()),
        Errno::NOSPC | Errno::DQUOT => (ToolStatus::Failed, "no space is left".to_owned()),
        Errno::NAMETOOLONG => (ToolStatus::Invalid, "the name is too long".to_owned()),
        Errno::ISDIR => (ToolStatus::Invalid, "is a directory".to_owned()),
        other => (ToolStatus::Failed, std::io::Error::from(other).to_string()),
    };
    ToolError::new(status, format!("{path:?}: {text}"))
}

pub(crate) fn io_error(path: &str, error: &std::io::Error) -> ToolError {
    tool_error(path, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

impl WorkspaceDir {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn open(&self, path: &str, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        open_beneath(self.root.as_fd(), path.as_bytes(), flags, links)
    }

    /// Opens a directory for reading; `.` is the root.
    pub(crate) fn open_dir(&self, path: &str, links: Links) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, links)
    }

    /// Opens a regular file for reading; anything else is `invalid`. It never waits for a pipe.
    pub(crate) fn open_file(&self, path: &WorkspacePath, links: Links) -> Result<(File, Stat), ToolError> {
        let text = path.as_str();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.open(text, flags, links).map_err(|error| tool_error(text, error))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| tool_error(text, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(fd), stat)),
            FileType::Directory => Err(tool_error(text, Errno::ISDIR)),
            _ => Err(ToolError::new(ToolStatus::Invalid, format!("{text:?}: is a pipe, socket or device"))),
        }
    }

    /// What stands at a path itself, not followed; `None` where nothing does.
    pub(crate) fn stat(&self, directory: &OwnedFd, name: &str) -> Result<Option<Stat>, Errno> {
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the directory that holds `path`, making what is missing, through no link.
    pub(crate) fn open_parent(&self, path: &WorkspacePath, make: bool) -> Result<OwnedFd, Errno> {
        let Some(parent) = path.parent() else { return self.open_dir(".", Links::Refused) };
        match self.open_dir(parent.as_str(), Links::Refused) {
            Err(Errno::NOENT) if make => {}
            other => return other,
        }
        let mut prefix = String::new();
        let mut directory = self.open_dir(".", Links::Refused)?;
        for segment in parent.segments() {
            match mkdirat(&directory, segment, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            if !prefix.is_empty() {
                prefix.push('/');
            }
            prefix.push_str(segment);
            directory = self.open_dir(&prefix, Links::Refused)?;
        }
        Ok(directory)
    }
}

/// Bytes as text: what is not UTF-8 as `\xNN`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}
