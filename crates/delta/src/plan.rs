//! What must stand in a directory, and what to do there in which order, so that a delta is applied or undone.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::{Node, SnapshotEntry, SourceSnapshot, WorkspaceDelta, WorkspacePath};
use serde::Serialize;

use crate::FitError;
use crate::view::{Value, View, check_fit, path_of};

/// What must stand at a path before the first step is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "expected", rename_all = "snake_case")]
pub enum Expected {
    /// Nothing. A path under a file holds nothing either.
    Nothing,
    /// Nothing, or a directory, which then stays as it is: the steps need a directory here.
    NothingOrDirectory,
    /// Exactly this file (content and executable bit) or this symbolic link, itself not followed.
    Leaf {
        /// The file or the link.
        node: Node,
    },
    /// A directory, not a link to one, with whatever it holds.
    Directory,
    /// A directory that makes room for a file or a link: it may hold nothing but paths that have a check of
    /// their own.
    DirectoryHoldingOnlyChecked,
}

/// One path and what must stand there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathCheck {
    /// The path.
    pub path: WorkspacePath,
    /// What must stand there.
    #[serde(flatten)]
    pub expected: Expected,
}

/// One thing to do. Everything it relies on was checked or done by a step before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum ApplyStep {
    /// Removes a file or a symbolic link.
    RemoveFile {
        /// The path.
        path: WorkspacePath,
    },
    /// Removes a directory; one that still holds something, which the delta knows nothing of, stays.
    RemoveDirectoryIfEmpty {
        /// The path.
        path: WorkspacePath,
    },
    /// Makes a directory, unless there is one.
    MakeDirectory {
        /// The path.
        path: WorkspacePath,
    },
    /// Writes a file with its executable bit: a new one, or in the place of an old one.
    WriteFile {
        /// The file; its node is always [`Node::File`].
        entry: SnapshotEntry,
    },
    /// Makes a symbolic link where nothing stands.
    MakeSymlink {
        /// The path.
        path: WorkspacePath,
        /// The text of the link.
        target: String,
    },
    /// Sets or clears the executable bit and leaves the content alone.
    SetExecutable {
        /// The path.
        path: WorkspacePath,
        /// Whether the owner may execute the file.
        executable: bool,
    },
}

/// How to turn a directory from one tree into another, as data.
///
/// Where every check holds, doing the steps in order gives the other tree and touches nothing else. Checks
/// come parents first. The steps remove from the inside out, then make from the outside in, so files can
/// become directories and directories files.
///
/// To undo a plan that was done as a whole, do the one of [`plan_revert`]. To undo one that stopped half
/// way, go backwards through the steps that were done: what stood at the path of each of them is in its
/// [`Expected::Leaf`] check, and a directory that a step made had [`Expected::NothingOrDirectory`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ApplyPlan {
    /// What must stand at every path that is touched and at every directory above it, sorted by path.
    pub checks: Vec<PathCheck>,
    /// What to do, in this order.
    pub steps: Vec<ApplyStep>,
}

/// The plan that turns a directory that equals `base` into `delta`'s result. It costs what the delta costs.
///
/// A directory may hold more than the base, such as ignored files: only what the delta touches is checked.
/// Names that differ only in letter case are not compared here; on a file system that folds them, the check
/// for [`Expected::Nothing`] fails.
///
/// # Errors
///
/// [`FitError`] where the delta is against another snapshot or cannot be made to this one.
pub fn plan_apply(base: &SourceSnapshot, delta: &WorkspaceDelta) -> Result<ApplyPlan, FitError> {
    check_fit(base, delta)?;
    Ok(plan(View::of_base(base), View::changed(base, delta), delta))
}

/// The plan that turns a directory that equals `delta`'s result back into `base`.
///
/// # Errors
///
/// As [`plan_apply`].
pub fn plan_revert(base: &SourceSnapshot, delta: &WorkspaceDelta) -> Result<ApplyPlan, FitError> {
    check_fit(base, delta)?;
    Ok(plan(View::changed(base, delta), View::of_base(base), delta))
}

fn plan(before: View<'_>, after: View<'_>, delta: &WorkspaceDelta) -> ApplyPlan {
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    for change in delta.changes() {
        paths.insert(change.path().as_str());
        for ancestor in change.path().ancestors() {
            if !paths.insert(ancestor) {
                break;
            }
        }
    }
    let values: BTreeMap<&str, (Value<'_>, Value<'_>)> =
        paths.into_iter().map(|path| (path, (before.value(path), after.value(path)))).collect();
    let mut steps: Vec<ApplyStep> =
        values.iter().rev().filter_map(|(path, values)| removal(path, *values)).collect();
    steps.extend(values.iter().filter_map(|(path, values)| creation(path, *values)));
    ApplyPlan { checks: checks(&values), steps }
}

fn checks(values: &BTreeMap<&str, (Value<'_>, Value<'_>)>) -> Vec<PathCheck> {
    // Directories that go because a file takes the place of one of them.
    let mut making_room: BTreeSet<&str> = BTreeSet::new();
    let mut checks = Vec::with_capacity(values.len());
    for (path, value) in values {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        let expected = match value {
            (Value::Absent, Value::Directory) => Expected::NothingOrDirectory,
            (Value::Absent, _) => Expected::Nothing,
            (Value::Node(node), _) => Expected::Leaf { node: (*node).clone() },
            (Value::Directory, Value::Node(_)) => Expected::DirectoryHoldingOnlyChecked,
            (Value::Directory, _) if parent.is_some_and(|parent| making_room.contains(parent)) => {
                Expected::DirectoryHoldingOnlyChecked
            }
            (Value::Directory, _) => Expected::Directory,
        };
        if expected == Expected::DirectoryHoldingOnlyChecked {
            making_room.insert(path);
        }
        checks.push(PathCheck { path: path_of(path), expected });
    }
    checks
}

fn removal(path: &str, values: (Value<'_>, Value<'_>)) -> Option<ApplyStep> {
    match values {
        (Value::Directory, Value::Absent | Value::Node(_)) => {
            Some(ApplyStep::RemoveDirectoryIfEmpty { path: path_of(path) })
        }
        // A file takes the place of a file in one rename.
        (Value::Node(Node::File { .. }), Value::Node(Node::File { .. })) => None,
        (Value::Node(one), Value::Node(two)) if one == two => None,
        (Value::Node(_), _) => Some(ApplyStep::RemoveFile { path: path_of(path) }),
        (Value::Absent | Value::Directory, _) => None,
    }
}

fn creation(path: &str, values: (Value<'_>, Value<'_>)) -> Option<ApplyStep> {
    let Value::Node(node) = values.1 else {
        let makes = values.1 == Value::Directory && values.0 != Value::Directory;
        return makes.then(|| ApplyStep::MakeDirectory { path: path_of(path) });
    };
    if values.0 == values.1 {
        return None;
    }
    let path = path_of(path);
    match (values.0, node) {
        (Value::Node(Node::File { digest: old, .. }), Node::File { digest: new, executable, .. })
            if old == new =>
        {
            Some(ApplyStep::SetExecutable { path, executable: *executable })
        }
        (_, Node::Symlink { target }) => Some(ApplyStep::MakeSymlink { path, target: target.clone() }),
        _ => Some(ApplyStep::WriteFile { entry: SnapshotEntry { path, node: node.clone() } }),
    }
}
