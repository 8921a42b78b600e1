//! `workspace_list` and `workspace_read`.

use std::os::fd::{AsFd, OwnedFd};

use coldframe_core::{
    ListEntry, ListPage, ListParams, ListedKind, ReadPage, ReadParams, ToolError, ToolStatus,
};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, readlinkat, statat};
use rustix::io::Errno;

use crate::beneath::open_beneath;
use crate::dir::{Links, WorkspaceDir, escaped, io_error, parse_file_path, parse_path, tool_error};
use crate::layer::join;
use crate::lines;

/// The most bytes of text in one answer.
const MAX_CONTENT_BYTES: usize = 256 << 10;
/// A read goes through the whole file for its hash, so a file of any size that a command claims is refused.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// The most entries that a recursive listing counts before it stops to descend.
const MAX_COUNTED: u64 = 500_000;

/// A name in a directory that was read.
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FileType,
}

/// The entries of a directory without `.` and `..`, sorted by the bytes of their names.
pub(crate) fn read_names(directory: &OwnedFd) -> Result<Vec<Named>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        names.push(Named { name: name.to_vec(), kind });
    }
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

/// What a listing found, as paths below the folder that was asked for.
struct Found {
    entries: Vec<(Vec<u8>, FileType)>,
    total: u64,
    /// Whether a folder was not entered.
    cut: bool,
}

pub(crate) fn list(root: &WorkspaceDir, params: &ListParams) -> Result<ListPage, ToolError> {
    if !(1..=5000).contains(&params.limit) {
        return Err(ToolError::new(ToolStatus::Invalid, "limit is 1 to 5,000"));
    }
    let path = parse_path(&params.path)?;
    let shown = path.as_ref().map_or(".", |path| path.as_str());
    let fail = |error| tool_error(shown, error);
    let start = root.open_dir(shown, Links::Inside).map_err(fail)?;
    let mut found = find(&start, params).map_err(fail)?;
    found.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let truncated = found.cut || found.total > params.limit as u64;
    found.entries.truncate(params.limit);
    let prefix = path.as_ref().map_or(&b""[..], |path| path.as_str().as_bytes());
    let mut describer = Describer { start: &start, prefix, folder: None };
    let entries = found.entries.iter().filter_map(|(path, kind)| describer.describe(path, *kind)).collect();
    Ok(ListPage { path: shown.to_owned(), entries, truncated, total: found.total })
}

/// Opens folders one at a time, so that no breadth and no depth holds descriptors.
fn find(start: &OwnedFd, params: &ListParams) -> Result<Found, Errno> {
    let mut found = Found { entries: Vec::new(), total: 0, cut: false };
    let mut pending = vec![Vec::new()];
    while let Some(folder) = pending.pop() {
        let names = open_beneath(start.as_fd(), &folder, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)
            .and_then(|handle| read_names(&handle));
        let names = match names {
            Ok(names) => names,
            Err(error) if folder.is_empty() => return Err(error),
            // It was removed meanwhile, so it has no entries.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(_) => {
                found.cut = true;
                continue;
            }
        };
        for named in names {
            let path = join(&folder, &named.name);
            found.total += 1;
            if params.recursive && named.kind == FileType::Directory {
                if found.total < MAX_COUNTED { pending.push(path.clone()) } else { found.cut = true }
            }
            found.entries.push((path, named.kind));
        }
        // Only the first ones are shown, so no others need to be held.
        if found.entries.len() > params.limit * 2 + 1000 {
            found.entries.select_nth_unstable_by(params.limit, |a, b| a.0.cmp(&b.0));
            found.entries.truncate(params.limit);
        }
    }
    Ok(found)
}

/// Describes paths in order, keeping the folder of the last one open.
struct Describer<'a> {
    start: &'a OwnedFd,
    prefix: &'a [u8],
    folder: Option<(Vec<u8>, OwnedFd)>,
}

impl Describer<'_> {
    /// One line of the listing; `None` where the path went away meanwhile. A link that takes the place of a
    /// folder meanwhile is never followed.
    fn describe(&mut self, path: &[u8], kind: FileType) -> Option<ListEntry> {
        let (parent, name) = match memchr::memrchr(b'/', path) {
            Some(index) => (&path[..index], &path[index + 1..]),
            None => (&b""[..], path),
        };
        if self.folder.as_ref().is_none_or(|(open, _)| open != parent) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            self.folder = Some((
                parent.to_vec(),
                open_beneath(self.start.as_fd(), parent, flags, Links::Refused).ok()?,
            ));
        }
        let (_, folder) = self.folder.as_ref()?;
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let listed = match kind {
            FileType::RegularFile => ListedKind::File,
            FileType::Directory => ListedKind::Directory,
            FileType::Symlink => ListedKind::Symlink,
            _ => ListedKind::Other,
        };
        let is_file = listed == ListedKind::File;
        let target = (listed == ListedKind::Symlink)
            .then(|| readlinkat(folder, name, Vec::new()).ok().map(|target| escaped(target.to_bytes())))
            .flatten();
        Some(ListEntry {
            path: escaped(&join(self.prefix, path)),
            kind: listed,
            size: is_file.then_some(stat.st_size as u64),
            executable: is_file && stat.st_mode & 0o100 != 0,
            target,
        })
    }
}

pub(crate) fn read(root: &WorkspaceDir, params: &ReadParams) -> Result<ReadPage, ToolError> {
    let path = parse_file_path(&params.path)?;
    if params.start_line == 0 || params.end_line < params.start_line {
        return Err(ToolError::new(
            ToolStatus::Invalid,
            "lines count from 1, and end_line is not before start_line",
        ));
    }
    let (mut file, stat) = root.open_file(&path, Links::Inside)?;
    let size = stat.st_size as u64;
    if size > MAX_FILE_BYTES {
        let message = format!(
            "{:?}: has {size} bytes, of which at most {MAX_FILE_BYTES} are read through; run a command that takes a part",
            path.as_str()
        );
        return Err(ToolError {
            status: ToolStatus::Limit,
            message,
            observed_sha256: None,
            size: Some(size),
        });
    }
    let picked = lines::pick(&mut file, params.start_line..=params.end_line, MAX_CONTENT_BYTES)
        .map_err(|error| io_error(path.as_str(), &error))?;
    let facts = picked.facts;
    let content = String::from_utf8(picked.content).ok().filter(|_| facts.utf8);
    let Some(content) = content else { return Err(not_text(path.as_str(), facts.sha256, facts.size)) };
    Ok(ReadPage {
        path: path.to_string(),
        content,
        start_line: params.start_line,
        end_line: picked.last_line,
        total_lines: facts.total_lines,
        sha256: facts.sha256,
        size: facts.size,
        newline: facts.newline,
        truncated: picked.cut,
    })
}

/// A file that is not UTF-8 text: its hash and size instead of its content.
pub(crate) fn not_text(path: &str, sha256: String, size: u64) -> ToolError {
    let message = format!("{path:?}: is not UTF-8 text ({size} bytes, SHA-256 {sha256})");
    ToolError { status: ToolStatus::Invalid, message, observed_sha256: Some(sha256), size: Some(size) }
}
