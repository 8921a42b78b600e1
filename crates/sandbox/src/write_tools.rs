//! `workspace_write` and `workspace_edit`: atomic, guarded by a hash, through no symbolic link.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use coldframe_core::{
    Digest, EditParams, ToolError, ToolStatus, WorkspaceMutation, WorkspacePath, WriteParams,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, renameat, unlinkat};

use crate::dir::{Links, WorkspaceDir, io_error, parse_file_path, tool_error};
use crate::lines::{self, BadRange};
use crate::policy::Policy;
use crate::read_tools::not_text;

pub(crate) fn now() -> String {
    // Microseconds are enough to order calls, and keep the text short.
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now).to_string()
}

fn too_large(path: &WorkspacePath, size: u64, limit: u64) -> ToolError {
    let message =
        format!("{:?}: {size} bytes are more than the {limit} that one write may have", path.as_str());
    ToolError { status: ToolStatus::Limit, message, observed_sha256: None, size: Some(size) }
}

pub(crate) fn write(
    root: &WorkspaceDir,
    policy: &Policy,
    params: &WriteParams,
) -> Result<WorkspaceMutation, ToolError> {
    let path = parse_file_path(&params.path)?;
    if params.content.len() as u64 > policy.max_write_bytes {
        return Err(too_large(&path, params.content.len() as u64, policy.max_write_bytes));
    }
    replace_file(root, &path, params.content.as_bytes(), params.executable)
}

pub(crate) fn edit(
    root: &WorkspaceDir,
    policy: &Policy,
    params: &EditParams,
) -> Result<WorkspaceMutation, ToolError> {
    let path = parse_file_path(&params.path)?;
    let text = path.as_str();
    let (file, stat) = root.open_file(&path, Links::Refused)?;
    let size = stat.st_size as u64;
    if size > policy.max_write_bytes {
        return Err(too_large(&path, size, policy.max_write_bytes));
    }
    let mut content = Vec::new();
    file.take(policy.max_write_bytes + 1)
        .read_to_end(&mut content)
        .map_err(|error| io_error(text, &error))?;
    let observed = lines::sha256(&content);
    if !observed.eq_ignore_ascii_case(&params.expected_sha256) {
        let message =
            format!("{text:?} is not what was read: its SHA-256 is {observed}; read it again, then edit");
        return Err(ToolError {
            status: ToolStatus::Conflict,
            message,
            observed_sha256: Some(observed),
            size: None,
        });
    }
    if std::str::from_utf8(&content).is_err() {
        return Err(not_text(text, observed, content.len() as u64));
    }
    let edited = lines::replace(&content, params.start_line, params.end_line, &params.replacement).map_err(
        |BadRange { total_lines }| {
            let message = format!(
                "lines {} to {} are not a range of {text:?}, which has {total_lines}; end_line = start_line - 1 inserts",
                params.start_line, params.end_line
            );
            ToolError::new(ToolStatus::Invalid, message)
        },
    )?;
    if edited.len() as u64 > policy.max_write_bytes {
        return Err(too_large(&path, edited.len() as u64, policy.max_write_bytes));
    }
    replace_file(root, &path, &edited, None)
}

/// Puts `content` at `path` in one step. The mode of a file that is there is kept but for `executable`.
pub(crate) fn replace_file(
    root: &WorkspaceDir,
    path: &WorkspacePath,
    content: &[u8],
    executable: Option<bool>,
) -> Result<WorkspaceMutation, ToolError> {
    let text = path.as_str();
    let fail = |error| tool_error(text, error);
    let directory = root.open_parent(path, true).map_err(fail)?;
    let before = match root.stat(&directory, path.name()).map_err(fail)? {
        None => None,
        Some(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(stat.st_mode & 0o777),
            FileType::Directory => return Err(tool_error(text, rustix::io::Errno::ISDIR)),
            FileType::Symlink => {
                let message =
                    format!("{text:?}: is a symbolic link; write to the file it names, or remove it first");
                return Err(ToolError::new(ToolStatus::Refused, message));
            }
            _ => {
                return Err(ToolError::new(
                    ToolStatus::Refused,
                    format!("{text:?}: is a pipe, socket or device"),
                ));
            }
        },
    };
    let mode = mode_for(before, executable);
    let temporary = temporary_name();
    let written = fill(&directory, &temporary, content, mode)
        .and_then(|()| renameat(&directory, &*temporary, &directory, path.name()));
    if let Err(error) = written {
        let _ = unlinkat(&directory, &*temporary, AtFlags::empty());
        return Err(fail(error));
    }
    Ok(WorkspaceMutation {
        tool_receipt_id: None,
        path: path.to_string(),
        sha256: lines::sha256(content),
        digest: Digest::of(content),
        size: content.len() as u64,
        executable: mode & 0o100 != 0,
        observed_at: now(),
    })
}

fn mode_for(before: Option<u32>, executable: Option<bool>) -> u32 {
    let mode = before.unwrap_or(0o644);
    match executable {
        None => mode,
        // Whoever may read may execute.
        Some(true) => mode | 0o100 | (mode & 0o444) >> 2,
        Some(false) => mode & !0o111,
    }
}

fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(".coldframe-{:x}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn fill(directory: &OwnedFd, name: &str, content: &[u8], mode: u32) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(file);
    file.write_all(content)
        .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))?;
    fchmod(&file, Mode::from_raw_mode(mode))
}
