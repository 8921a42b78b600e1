//! Counts what a delta changes, file by file, and shows it as `git diff --stat` does.

use std::fmt;

use coldframe_core::{DeltaChange, Node, SourceSnapshot, WorkspaceDelta, WorkspacePath};
use serde::Serialize;
use similar::DiffTag;

use crate::binary::is_binary;
use crate::lines::{compare, lines};
use crate::patch::{Contents, content, leaves};
use crate::quote::quoted;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileChange {
    /// It is new.
    Added,
    /// It has another content or another link target.
    Modified,
    /// Only its executable bit changed.
    Mode,
    /// It became another kind of thing: a file, a link or an empty directory.
    Kind,
    /// It is gone.
    Deleted,
}

/// The counts of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileStat {
    /// The path.
    pub path: WorkspacePath,
    /// What happened.
    pub change: FileChange,
    /// Added lines; `None` for binary files and where a content is not at hand.
    pub added_lines: Option<u64>,
    /// Deleted lines; `None` for binary files and where a content is not at hand.
    pub deleted_lines: Option<u64>,
    /// Whether a NUL among the first 8,000 bytes of a side makes the file binary.
    pub binary: bool,
    /// Bytes before; 0 for nothing, a link or a directory.
    pub bytes_before: u64,
    /// Bytes after; 0 for nothing, a link or a directory.
    pub bytes_after: u64,
}

/// The counts of a whole delta.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeltaStat {
    /// One record for each change, sorted by path.
    pub files: Vec<FileStat>,
}

impl DeltaStat {
    /// All added lines that could be counted.
    pub fn added_lines(&self) -> u64 {
        self.files.iter().filter_map(|file| file.added_lines).sum()
    }

    /// All deleted lines that could be counted.
    pub fn deleted_lines(&self) -> u64 {
        self.files.iter().filter_map(|file| file.deleted_lines).sum()
    }
}

/// Counts the lines that `delta` adds and deletes against `base`, the snapshot it names. A content that is not
/// at hand leaves its file without counts.
pub fn stat(base: &SourceSnapshot, delta: &WorkspaceDelta, contents: &dyn Contents) -> DeltaStat {
    DeltaStat { files: delta.changes().iter().map(|change| file_stat(base, change, contents)).collect() }
}

fn file_stat(base: &SourceSnapshot, change: &DeltaChange, contents: &dyn Contents) -> FileStat {
    let path = change.path();
    let (before, after) = leaves(base, change);
    let mut stat = FileStat {
        path: path.clone(),
        change: kind_of(base, change),
        added_lines: None,
        deleted_lines: None,
        binary: false,
        bytes_before: before.map_or(0, Node::size),
        bytes_after: after.map_or(0, Node::size),
    };
    if stat.change == FileChange::Mode {
        (stat.added_lines, stat.deleted_lines) = (Some(0), Some(0));
        return stat;
    }
    let (Ok(old), Ok(new)) = (content(path, before, contents), content(path, after, contents)) else {
        return stat;
    };
    if is_binary(&old) || is_binary(&new) {
        stat.binary = true;
        return stat;
    }
    let (mut added, mut deleted) = (0, 0);
    for operation in compare(&lines(&old), &lines(&new)) {
        if operation.tag() != DiffTag::Equal {
            added += operation.new_range().len() as u64;
            deleted += operation.old_range().len() as u64;
        }
    }
    (stat.added_lines, stat.deleted_lines) = (Some(added), Some(deleted));
    stat
}

fn kind_of(base: &SourceSnapshot, change: &DeltaChange) -> FileChange {
    let before = base.entry(change.path().as_str()).map(|entry| &entry.node);
    match (before, change.node()) {
        (_, None) => FileChange::Deleted,
        (None, Some(_)) => FileChange::Added,
        (Some(Node::File { digest: old, .. }), Some(Node::File { digest: new, .. })) if old == new => {
            FileChange::Mode
        }
        (Some(Node::File { .. }), Some(Node::File { .. }))
        | (Some(Node::Symlink { .. }), Some(Node::Symlink { .. })) => FileChange::Modified,
        _ => FileChange::Kind,
    }
}

/// The columns of a line.
const WIDTH: usize = 80;
/// The most columns that a name takes before its start is cut.
const NAME_WIDTH: usize = 50;

impl fmt::Display for DeltaStat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<(String, &FileStat)> =
            self.files.iter().map(|file| (shown_name(&file.path), file)).collect();
        let name_width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let total = |file: &FileStat| file.added_lines.unwrap_or(0) + file.deleted_lines.unwrap_or(0);
        let largest = self.files.iter().map(total).max().unwrap_or(0);
        let has_words = self.files.iter().any(|file| file.added_lines.is_none());
        let number_width = largest.to_string().len().max(if has_words { 3 } else { 1 });
        let graph_width = WIDTH.saturating_sub(name_width + number_width + 6).max(10) as u64;
        for (name, file) in &rows {
            write!(formatter, " {name:name_width$} | ")?;
            match (file.added_lines, file.deleted_lines) {
                (Some(added), Some(deleted)) => {
                    write!(formatter, "{:>number_width$}", added + deleted)?;
                    let (plus, minus) = scaled(added, deleted, largest, graph_width);
                    if plus + minus > 0 {
                        write!(formatter, " {}{}", "+".repeat(plus), "-".repeat(minus))?;
                    }
                    writeln!(formatter)?;
                }
                _ if file.binary => {
                    let (before, after) = (file.bytes_before, file.bytes_after);
                    writeln!(formatter, "{:>number_width$} {before} -> {after} bytes", "Bin")?;
                }
                _ => writeln!(formatter, "{:>number_width$} content not at hand", "?")?,
            }
        }
        write!(formatter, "{}", self.summary())
    }
}

impl DeltaStat {
    /// The closing line, such as ` 2 files changed, 3 insertions(+), 1 deletion(-)`.
    fn summary(&self) -> String {
        let (added, deleted) = (self.added_lines(), self.deleted_lines());
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let files = self.files.len() as u64;
        let mut text = format!(" {files} file{} changed", plural(files));
        if added > 0 || deleted == 0 {
            text.push_str(&format!(", {added} insertion{}(+)", plural(added)));
        }
        if deleted > 0 || added == 0 {
            text.push_str(&format!(", {deleted} deletion{}(-)", plural(deleted)));
        }
        text
    }
}

/// The name as Git quotes it, which also keeps control characters from the terminal, cut at its start.
fn shown_name(path: &WorkspacePath) -> String {
    let name = quoted("", path.as_str());
    let length = name.chars().count();
    if length <= NAME_WIDTH {
        return name;
    }
    let kept: String = name.chars().skip(length - (NAME_WIDTH - 3)).collect();
    format!("...{kept}")
}

/// How many `+` and `-` a file gets: all of them where they fit, a share of the width otherwise, and at least
/// one for what is there.
fn scaled(added: u64, deleted: u64, largest: u64, width: u64) -> (usize, usize) {
    let share = |count: u64| {
        let signs =
            if largest <= width { count } else { (count * width / largest).max(u64::from(count > 0)) };
        usize::try_from(signs).unwrap_or(usize::MAX)
    };
    (share(added), share(deleted))
}
