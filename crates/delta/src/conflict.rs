//! How a conflict between steps is told: every path, what stood there, and what each side made of it.

use std::fmt;

use coldframe_core::{Id, Node, WorkspacePath};
use serde::Serialize;

/// Why the sides cannot be joined at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConflictKind {
    /// Two sides gave one file or one link two contents.
    Content,
    /// One side changed the executable bit, another one the content or the bit otherwise.
    Mode,
    /// One side deleted what another one changed.
    DeleteAgainstModify,
    /// Two sides added different things under one name.
    AddedDifferently,
    /// A symbolic link on one side, a file on another.
    LinkAgainstFile,
    /// A file or a link on one side, a directory or something inside it on another.
    FileAgainstDirectory,
    /// Two names that differ only in letter case or Unicode form.
    TwinNames,
}

impl ConflictKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Content => "changed differently",
            Self::Mode => "mode changed against another change",
            Self::DeleteAgainstModify => "deleted against changed",
            Self::AddedDifferently => "added differently",
            Self::LinkAgainstFile => "link against file",
            Self::FileAgainstDirectory => "file against directory",
            Self::TwinNames => "names that differ only in letter case or Unicode form",
        }
    }
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// What one side holds at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConflictSide {
    /// The step that wrote it: a head, or the ancestor from which the head has it unchanged.
    pub step: Id,
    /// What stands there; `None` for nothing. [`Node::Directory`] stands for a directory with entries too.
    pub node: Option<Node>,
}

/// One path on which steps disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathConflict {
    /// The path.
    pub path: WorkspacePath,
    /// Why it cannot be joined.
    pub kind: ConflictKind,
    /// What the common ancestors hold, or the source snapshot where they have no one state. `None` for
    /// nothing; [`Node::Directory`] stands for a directory with entries too.
    pub base: Option<Node>,
    /// The sides, sorted by step. Steps that changed nothing here are not listed, unless they are the other
    /// side of [`ConflictKind::FileAgainstDirectory`] or [`ConflictKind::TwinNames`].
    pub sides: Vec<ConflictSide>,
}

/// Every path on which the deltas of steps disagree. Nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceDeltaConflict {
    /// The conflicts, sorted by path; never empty.
    pub paths: Vec<PathConflict>,
}

impl std::error::Error for WorkspaceDeltaConflict {}

/// The most paths that the readable text lists; the rest is counted, and stands in the value itself.
const SHOWN_PATHS: usize = 50;

impl fmt::Display for WorkspaceDeltaConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.paths.len();
        let paths = if count == 1 { "path is" } else { "paths are" };
        write!(
            formatter,
            "{count} {paths} in conflict; change one of the steps named, or add one that decides"
        )?;
        for conflict in self.paths.iter().take(SHOWN_PATHS) {
            write!(formatter, "\n  {:?}: {} (base: ", conflict.path, conflict.kind)?;
            write_node(formatter, conflict.base.as_ref())?;
            for side in &conflict.sides {
                write!(formatter, "; {}: ", side.step)?;
                write_node(formatter, side.node.as_ref())?;
            }
            formatter.write_str(")")?;
        }
        match count.checked_sub(SHOWN_PATHS) {
            Some(more @ 1..) => write!(formatter, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

fn write_node(formatter: &mut fmt::Formatter<'_>, node: Option<&Node>) -> fmt::Result {
    match node {
        None => formatter.write_str("nothing"),
        Some(Node::Directory) => formatter.write_str("directory"),
        Some(Node::Symlink { target }) => write!(formatter, "link to {target:?}"),
        Some(Node::File { digest, size, executable }) => {
            let kind = if *executable { "executable" } else { "file" };
            write!(formatter, "{kind} {}, {size} bytes", digest.short())
        }
    }
}
