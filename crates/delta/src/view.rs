//! The tree that a snapshot and a delta give together, asked path by path and never built as a whole.

use coldframe_core::{DeltaChange, Node, SnapshotEntry, SourceSnapshot, WorkspaceDelta, WorkspacePath};

use crate::FitError;

/// What stands at a path, directories with entries included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Value<'a> {
    /// Nothing.
    Absent,
    /// A directory, empty or not.
    Directory,
    /// A file or a symbolic link; never [`Node::Directory`].
    Node(&'a Node),
}

impl<'a> Value<'a> {
    pub(crate) fn of(node: &'a Node) -> Self {
        if *node == Node::Directory { Self::Directory } else { Self::Node(node) }
    }

    pub(crate) fn to_node(self) -> Option<Node> {
        match self {
            Self::Absent => None,
            Self::Directory => Some(Node::Directory),
            Self::Node(node) => Some(node.clone()),
        }
    }
}

/// A snapshot, or a snapshot changed by a delta that passed [`check_fit`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) base: &'a SourceSnapshot,
    pub(crate) delta: Option<&'a WorkspaceDelta>,
}

impl<'a> View<'a> {
    pub(crate) fn of_base(base: &'a SourceSnapshot) -> Self {
        Self { base, delta: None }
    }

    pub(crate) fn changed(base: &'a SourceSnapshot, delta: &'a WorkspaceDelta) -> Self {
        Self { base, delta: Some(delta) }
    }

    fn changes(&self) -> &'a [DeltaChange] {
        self.delta.map_or(&[], WorkspaceDelta::changes)
    }

    pub(crate) fn value(&self, path: &str) -> Value<'a> {
        let change = self.delta.and_then(|delta| delta.change(path));
        let node = match change {
            Some(change) => change.node(),
            None => self.base.entry(path).map(|entry| &entry.node),
        };
        match node {
            Some(node) => Value::of(node),
            None if self.holds_below(path) => Value::Directory,
            None => Value::Absent,
        }
    }

    /// True where something stands below `path`.
    pub(crate) fn holds_below(&self, path: &str) -> bool {
        let changes = changes_below(self.changes(), path);
        // A fitting delta deletes only what the base has, so what is left over was not touched.
        changes.iter().any(|change| change.node().is_some())
            || self.base.entries_below(path).len() > changes.len()
    }
}

/// The changes below the directory `path`.
pub(crate) fn changes_below<'a>(changes: &'a [DeltaChange], path: &str) -> &'a [DeltaChange] {
    if changes.is_empty() {
        return changes;
    }
    let prefix = format!("{path}/");
    let start = changes.partition_point(|change| change.path().as_str() < prefix.as_str());
    let length = changes[start..].partition_point(|change| change.path().as_str().starts_with(&prefix));
    &changes[start..start + length]
}

/// Checks that every change can be made to the base and that the result is a tree. It costs what the delta
/// costs; twins in letter case are left to the one who exports or applies.
pub(crate) fn check_fit(base: &SourceSnapshot, delta: &WorkspaceDelta) -> Result<(), FitError> {
    if delta.base() != base.id() {
        return Err(FitError::ForeignBase { expected: base.id(), found: delta.base() });
    }
    let mut checked_parent: Option<&str> = None;
    for change in delta.changes() {
        let path = change.path();
        let misfit = |detail| Err(FitError::Misfit { path: path.clone(), detail });
        match (change, base.entry(path.as_str())) {
            (DeltaChange::Added { .. }, Some(_)) => return misfit("it is added, but the base has it"),
            (DeltaChange::Modified { .. } | DeltaChange::Deleted { .. }, None) => {
                return misfit("it is changed or deleted, but the base does not have it");
            }
            _ => {}
        }
        if change.node().is_none() {
            continue;
        }
        if base.entries_below(path.as_str()).len() > changes_below(delta.changes(), path.as_str()).len() {
            return misfit("entries of the base remain below it");
        }
        let parent = path.ancestors().next();
        if parent != checked_parent {
            if path.ancestors().any(|ancestor| is_remaining_leaf(base, delta, ancestor)) {
                return misfit("a file or a link of the base remains above it");
            }
            checked_parent = parent;
        }
    }
    Ok(())
}

fn is_remaining_leaf(base: &SourceSnapshot, delta: &WorkspaceDelta, path: &str) -> bool {
    base.entry(path).is_some_and(|entry| entry.node != Node::Directory) && delta.change(path).is_none()
}

/// What the base has at `path`, unless it is a directory.
pub(crate) fn leaf(entry: Option<&SnapshotEntry>) -> Option<&Node> {
    entry.map(|entry| &entry.node).filter(|node| **node != Node::Directory)
}

/// Turns a text that is a path, or the directory part of one, back into a path.
pub(crate) fn path_of(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).expect("a directory above a legal path is a legal path")
}
