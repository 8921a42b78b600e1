//! Writes a delta as a git-format patch that `git apply` takes, binary files included.

use std::borrow::Cow;
use std::collections::HashMap;

use coldframe_core::{DeltaChange, Digest, Node, SourceSnapshot, Stored, WorkspaceDelta, WorkspacePath};
use similar::{DiffOp, DiffTag, group_diff_ops};

use crate::PatchError;
use crate::binary::{blob_id, is_binary, push_binary};
use crate::lines::{compare, lines};
use crate::quote::{is_refused_by_git, quoted};
use crate::view::{Value, View, check_fit, leaf};

const CONTEXT_LINES: usize = 3;

/// Hands out contents. Whoever implements it has checked them against their digest.
pub trait Contents {
    /// The bytes of a blob, or `None` where they are not at hand.
    fn bytes(&self, blob: Stored) -> Option<&[u8]>;
}

impl Contents for HashMap<Digest, Vec<u8>> {
    fn bytes(&self, blob: Stored) -> Option<&[u8]> {
        self.get(&blob.digest).map(Vec::as_slice)
    }
}

/// A patch and what it cannot say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// The patch: paths sorted, contents as they are, so it need not be UTF-8. Empty where there is nothing to say.
    pub bytes: Vec<u8>,
    /// Paths whose change cannot stand in a patch, sorted: empty directories that come or go, and names that
    /// Git refuses, such as `.git/config`.
    pub left_out: Vec<WorkspacePath>,
}

/// Writes the patch that turns `base` into the result of `delta`; see `docs/formats/patch.md`.
///
/// Needs the old and the new content of every file whose content changed; a change of the executable bit
/// alone needs none.
///
/// # Errors
///
/// [`PatchError::Fit`] where the delta does not belong to the base, [`PatchError::MissingContent`] where a
/// content is not at hand or has another size than the delta says.
pub fn patch(
    base: &SourceSnapshot,
    delta: &WorkspaceDelta,
    contents: &dyn Contents,
) -> Result<Patch, PatchError> {
    check_fit(base, delta)?;
    let result = View::changed(base, delta);
    let mut patch = Patch::default();
    for change in delta.changes() {
        let path = change.path();
        let (before, after) = leaves(base, change);
        let refused = [before, after].into_iter().flatten().any(|node| is_refused_by_git(path, node));
        if refused || directory_comes_or_goes(base, &result, change) {
            patch.left_out.push(path.clone());
        }
        if !refused {
            push_change(&mut patch.bytes, path, before, after, contents)?;
        }
    }
    Ok(patch)
}

/// What stands at the path of a change before and after it, directories aside.
pub(crate) fn leaves<'a>(
    base: &'a SourceSnapshot,
    change: &'a DeltaChange,
) -> (Option<&'a Node>, Option<&'a Node>) {
    let before = leaf(base.entry(change.path().as_str()));
    (before, change.node().filter(|node| **node != Node::Directory))
}

fn directory_comes_or_goes(base: &SourceSnapshot, result: &View<'_>, change: &DeltaChange) -> bool {
    match change.node() {
        Some(node) => *node == Node::Directory,
        None => {
            let path = change.path().as_str();
            let was_directory = base.entry(path).is_some_and(|entry| entry.node == Node::Directory);
            was_directory && result.value(path) == Value::Absent
        }
    }
}

fn push_change(
    patch: &mut Vec<u8>,
    path: &WorkspacePath,
    before: Option<&Node>,
    after: Option<&Node>,
    contents: &dyn Contents,
) -> Result<(), PatchError> {
    match (before, after) {
        (Some(before @ Node::Symlink { .. }), Some(after @ Node::File { .. }))
        | (Some(before @ Node::File { .. }), Some(after @ Node::Symlink { .. })) => {
            push_file(patch, path, Some(before), None, contents)?;
            push_file(patch, path, None, Some(after), contents)
        }
        _ => push_file(patch, path, before, after, contents),
    }
}

fn push_file(
    patch: &mut Vec<u8>,
    path: &WorkspacePath,
    before: Option<&Node>,
    after: Option<&Node>,
    contents: &dyn Contents,
) -> Result<(), PatchError> {
    if before == after {
        return Ok(());
    }
    let (old_name, new_name) = (quoted("a/", path.as_str()), quoted("b/", path.as_str()));
    let mut header = format!("diff --git {old_name} {new_name}\n");
    let (old_mode, new_mode) = (before.map(mode), after.map(mode));
    match (old_mode, new_mode) {
        (None, Some(mode)) => header.push_str(&format!("new file mode {mode}\n")),
        (Some(mode), None) => header.push_str(&format!("deleted file mode {mode}\n")),
        (Some(old), Some(new)) if old != new => {
            header.push_str(&format!("old mode {old}\nnew mode {new}\n"));
        }
        _ => {}
    }
    patch.extend_from_slice(header.as_bytes());
    if before.is_some() && before.and_then(Node::blob) == after.and_then(Node::blob) && is_file(after) {
        return Ok(());
    }
    let old = content(path, before, contents)?;
    let new = content(path, after, contents)?;
    let id = |node: Option<&Node>, content: &[u8]| match node {
        Some(_) => blob_id(content),
        None => "0".repeat(40),
    };
    patch.extend_from_slice(format!("index {}..{}", id(before, &old), id(after, &new)).as_bytes());
    if let (Some(old), Some(new)) = (old_mode, new_mode)
        && old == new
    {
        patch.extend_from_slice(format!(" {old}").as_bytes());
    }
    patch.push(b'\n');
    if is_binary(&old) || is_binary(&new) {
        push_binary(patch, &old, &new);
        return Ok(());
    }
    if old == new {
        return Ok(());
    }
    // A tab tells where a name with spaces ends.
    let tab = if path.as_str().contains(' ') { "\t" } else { "" };
    let side = |name: String, node: Option<&Node>| match node {
        Some(_) => format!("{name}{tab}"),
        None => "/dev/null".to_owned(),
    };
    let names = format!("--- {}\n+++ {}\n", side(old_name, before), side(new_name, after));
    patch.extend_from_slice(names.as_bytes());
    push_hunks(patch, &lines(&old), &lines(&new));
    Ok(())
}

fn is_file(node: Option<&Node>) -> bool {
    matches!(node, Some(Node::File { .. }))
}

fn mode(node: &Node) -> &'static str {
    match node {
        Node::File { executable: false, .. } => "100644",
        Node::File { executable: true, .. } => "100755",
        Node::Symlink { .. } => "120000",
        Node::Directory => "040000",
    }
}

/// What Git keeps as the blob of a file or a link; no bytes for nothing.
pub(crate) fn content<'a>(
    path: &WorkspacePath,
    node: Option<&'a Node>,
    contents: &'a dyn Contents,
) -> Result<Cow<'a, [u8]>, PatchError> {
    match node {
        Some(Node::Symlink { target }) => Ok(Cow::Borrowed(target.as_bytes())),
        None | Some(Node::Directory) => Ok(Cow::Borrowed(&[])),
        Some(Node::File { digest, size: 0, .. }) if *digest == Digest::of(b"") => Ok(Cow::Borrowed(&[])),
        Some(Node::File { digest, size, .. }) => {
            let blob = Stored { digest: *digest, size: *size };
            contents
                .bytes(blob)
                .filter(|bytes| bytes.len() as u64 == *size)
                .map(Cow::Borrowed)
                .ok_or_else(|| PatchError::MissingContent { path: path.clone(), digest: *digest })
        }
    }
}

fn push_hunks(patch: &mut Vec<u8>, old: &[&[u8]], new: &[&[u8]]) {
    for group in group_diff_ops(compare(old, new), CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let header = format!("@@ -{} +{} @@\n", position(&old_range), position(&new_range));
        patch.extend_from_slice(header.as_bytes());
        for operation in &group {
            push_operation(patch, operation, old, new);
        }
    }
}

/// Start and length as in `@@ -1,3 +0,0 @@`: counted from 1, an empty range names the line before it, and a
/// length of 1 is not written.
fn position(range: &std::ops::Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

fn push_operation(patch: &mut Vec<u8>, operation: &DiffOp, old: &[&[u8]], new: &[&[u8]]) {
    let mut push_lines = |sign: u8, lines: &[&[u8]]| {
        for line in lines {
            patch.push(sign);
            patch.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                patch.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    };
    if operation.tag() == DiffTag::Equal {
        push_lines(b' ', &old[operation.old_range()]);
    } else {
        push_lines(b'-', &old[operation.old_range()]);
        push_lines(b'+', &new[operation.new_range()]);
    }
}
