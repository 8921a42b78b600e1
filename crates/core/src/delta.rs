//! Deltas: what a workspace changed against its snapshot, with the canonical form that gives a delta its id.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::canonical::{Lines, push_entry, push_line};
use crate::snapshot::check_tree;
use crate::{Digest, Node, SnapshotEntry, SourceError, SourceSnapshot, WorkspacePath};

/// How many paths one exclusion rule kept out of a delta.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ExcludedCount {
    /// The rule, such as `target`.
    pub rule: String,
    /// How many files, links and empty directories it kept out.
    pub count: u64,
}

/// What happened to one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum DeltaChange {
    /// The path was not in the base.
    Added {
        /// What stands there now.
        #[serde(flatten)]
        entry: SnapshotEntry,
    },
    /// The path was in the base with another content, mode or kind.
    Modified {
        /// What stands there now.
        #[serde(flatten)]
        entry: SnapshotEntry,
    },
    /// The path was in the base and is gone.
    Deleted {
        /// The path.
        path: WorkspacePath,
    },
}

impl DeltaChange {
    /// The path that changed.
    pub fn path(&self) -> &WorkspacePath {
        match self {
            Self::Added { entry } | Self::Modified { entry } => &entry.path,
            Self::Deleted { path } => path,
        }
    }

    /// What stands at the path now, unless it was deleted.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Added { entry } | Self::Modified { entry } => Some(&entry.node),
            Self::Deleted { .. } => None,
        }
    }
}

/// What a workspace changed against its base snapshot: cumulative, immutable, named by its canonical form.
///
/// An entry for an empty directory of the base that has entries in the result is not listed as deleted; the
/// result of [`WorkspaceDelta::apply_to`] drops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceDelta {
    id: Digest,
    base: Digest,
    parents: Vec<Digest>,
    changes: Vec<DeltaChange>,
    excluded: Vec<ExcludedCount>,
}

const READ: &str = "read delta";

impl WorkspaceDelta {
    /// Sorts and checks the changes and computes the id. `base` is the id of a snapshot, `parents` are the ids
    /// of the deltas that the workspace started from.
    pub fn new(
        base: Digest,
        parents: Vec<Digest>,
        mut changes: Vec<DeltaChange>,
        mut excluded: Vec<ExcludedCount>,
    ) -> Result<Self, SourceError> {
        changes.sort_unstable_by(|a, b| a.path().cmp(b.path()));
        excluded.sort_unstable();
        if let Some(pair) = changes.windows(2).find(|pair| pair[0].path() == pair[1].path()) {
            return Err(
                SourceError::contract("check delta", "the path appears twice").with_subject(pair[0].path())
            );
        }
        check_tree(changes.iter().filter_map(|change| Some((change.path(), change.node()?))))?;
        let mut delta = Self { id: Digest::from_bytes([0; 32]), base, parents, changes, excluded };
        delta.id = Digest::of(delta.to_text().as_bytes());
        Ok(delta)
    }

    /// BLAKE3 of the canonical text.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// The id of the snapshot that the changes are against.
    pub fn base(&self) -> Digest {
        self.base
    }

    /// The deltas that the workspace started from.
    pub fn parents(&self) -> &[Digest] {
        &self.parents
    }

    /// The changes, sorted by path.
    pub fn changes(&self) -> &[DeltaChange] {
        &self.changes
    }

    /// How many paths each exclusion rule kept out.
    pub fn excluded(&self) -> &[ExcludedCount] {
        &self.excluded
    }

    /// True where nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The change of `path`.
    pub fn change(&self, path: &str) -> Option<&DeltaChange> {
        self.changes
            .binary_search_by(|change| change.path().as_str().cmp(path))
            .ok()
            .map(|index| &self.changes[index])
    }

    /// Names base and changes alone, without parents and exclusions: equal workspace states have equal digests.
    pub fn state(&self) -> Digest {
        let mut text = String::new();
        push_line(&mut text, &["coldframe-state", "1"]);
        push_line(&mut text, &["base", &self.base.to_string()]);
        self.push_changes(&mut text);
        Digest::of(text.as_bytes())
    }

    fn push_changes(&self, text: &mut String) {
        for change in &self.changes {
            match change {
                DeltaChange::Added { entry } => {
                    text.push_str("a\t");
                    push_entry(text, &entry.path, &entry.node);
                }
                DeltaChange::Modified { entry } => {
                    text.push_str("m\t");
                    push_entry(text, &entry.path, &entry.node);
                }
                DeltaChange::Deleted { path } => push_line(text, &["r", path.as_str()]),
            }
        }
    }

    /// The canonical text, format 1: see `docs/formats/delta.md`.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.changes.len() * 120 + 256);
        push_line(&mut text, &["coldframe-delta", "1"]);
        push_line(&mut text, &["base", &self.base.to_string()]);
        for parent in &self.parents {
            push_line(&mut text, &["parent", &parent.to_string()]);
        }
        self.push_changes(&mut text);
        for excluded in &self.excluded {
            push_line(&mut text, &["e", &excluded.count.to_string(), &excluded.rule]);
        }
        let records = self.parents.len() + self.changes.len() + self.excluded.len();
        push_line(&mut text, &["end", &records.to_string()]);
        text
    }

    /// Reads a canonical text; everything else is an integrity error.
    pub fn from_text(bytes: &[u8]) -> Result<Self, SourceError> {
        let mut lines = Lines::new(READ, bytes)?;
        let [version] = lines.named("coldframe-delta")?;
        if version != "1" {
            let detail = format!("format {version:?} is not known to this version; it reads format 1");
            return Err(SourceError::new(crate::ErrorKind::Unsupported, READ, detail));
        }
        let [base] = lines.named("base")?;
        let base = lines.digest(base)?;
        let (mut parents, mut changes, mut excluded) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let fields = lines.next()?;
            match fields.first().copied() {
                Some("parent") => {
                    let [parent] = lines.expect(&fields, "parent")?;
                    parents.push(lines.digest(parent)?);
                }
                Some(letter @ ("a" | "m")) => {
                    let entry = lines.entry(&fields[1..])?.ok_or_else(|| lines.wrong("expected an entry"))?;
                    let added = letter == "a";
                    changes.push(if added {
                        DeltaChange::Added { entry }
                    } else {
                        DeltaChange::Modified { entry }
                    });
                }
                Some("r") => {
                    let [path] = lines.expect(&fields, "r")?;
                    changes.push(DeltaChange::Deleted { path: lines.path(path)? });
                }
                Some("e") => {
                    let [count, rule] = lines.expect(&fields, "e")?;
                    excluded.push(ExcludedCount { rule: lines.text(rule)?, count: lines.number(count)? });
                }
                _ => {
                    lines.end(&fields, parents.len() + changes.len() + excluded.len())?;
                    break;
                }
            }
        }
        let delta = Self::new(base, parents, changes, excluded).map_err(|error| {
            SourceError::integrity(READ, "the delta breaks the contract").with_source(error)
        })?;
        if delta.id != Digest::of(bytes) {
            return Err(SourceError::integrity(READ, "the delta is not in its canonical form"));
        }
        Ok(delta)
    }

    /// The entries that base and delta give together, sorted. Refuses a foreign base, a change that does not
    /// fit it, an entry under a non-directory, and an added path that meets a remaining base path in all but
    /// letter case or Unicode form.
    pub fn apply_to(&self, base: &SourceSnapshot) -> Result<Vec<SnapshotEntry>, SourceError> {
        const APPLY: &str = "apply delta";
        if base.id() != self.base {
            let detail = format!("the delta is against snapshot {}, not {}", self.base, base.id());
            return Err(SourceError::contract(APPLY, detail));
        }
        let mut result: BTreeMap<&str, (&WorkspacePath, &Node)> =
            base.entries().iter().map(|entry| (entry.path.as_str(), (&entry.path, &entry.node))).collect();
        let refuse = |path: &WorkspacePath, detail: &str| {
            Err(SourceError::contract(APPLY, detail.to_owned()).with_subject(path))
        };
        for change in &self.changes {
            let before = result.remove(change.path().as_str());
            match change {
                DeltaChange::Added { .. } if before.is_some() => {
                    return refuse(change.path(), "added, but the base has it");
                }
                DeltaChange::Modified { .. } | DeltaChange::Deleted { .. } if before.is_none() => {
                    return refuse(change.path(), "changed or deleted, but the base does not have it");
                }
                _ => {}
            }
        }
        self.check_twins(&result)?;
        for change in &self.changes {
            let Some(node) = change.node() else { continue };
            for ancestor in change.path().ancestors() {
                if result.get(ancestor).is_some_and(|(_, node)| **node == Node::Directory) {
                    result.remove(ancestor);
                }
            }
            result.insert(change.path().as_str(), (change.path(), node));
        }
        check_tree(result.values().copied())?;
        Ok(result
            .into_values()
            .map(|(path, node)| SnapshotEntry { path: path.clone(), node: node.clone() })
            .collect())
    }

    fn check_twins(&self, remaining: &BTreeMap<&str, (&WorkspacePath, &Node)>) -> Result<(), SourceError> {
        let mut added: HashMap<String, &WorkspacePath> = HashMap::new();
        for change in &self.changes {
            if let DeltaChange::Added { entry } = change
                && let Some(other) = added.insert(entry.path.fold_key(), &entry.path)
            {
                return Err(twin_error(&entry.path, other));
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        let modified = self.changes.iter().filter(|change| matches!(change, DeltaChange::Modified { .. }));
        let mut kept = remaining.values().map(|(path, _)| *path).chain(modified.map(DeltaChange::path));
        match kept.find_map(|path| added.get(&path.fold_key()).map(|added| (*added, path))) {
            Some((added, base)) => Err(twin_error(added, base)),
            None => Ok(()),
        }
    }
}

fn twin_error(added: &WorkspacePath, other: &WorkspacePath) -> SourceError {
    let detail =
        format!("the added path equals {other:?} but for letter case or Unicode form; rename one of them");
    SourceError::contract("apply delta", detail).with_subject(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SnapshotManifest, SourceRef};

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text).unwrap()
    }

    fn file(text: &str, content: &[u8]) -> SnapshotEntry {
        let node = Node::File { digest: Digest::of(content), size: content.len() as u64, executable: false };
        SnapshotEntry { path: path(text), node }
    }

    fn directory(text: &str) -> SnapshotEntry {
        SnapshotEntry { path: path(text), node: Node::Directory }
    }

    fn base(entries: Vec<SnapshotEntry>) -> SourceSnapshot {
        let source = SourceRef::new("fixture", "x", "").unwrap();
        SnapshotManifest { source, resolved_revision: String::new(), entries, omitted: vec![] }
            .seal()
            .unwrap()
    }

    fn apply(base: &SourceSnapshot, changes: Vec<DeltaChange>) -> Result<Vec<String>, SourceError> {
        let delta = WorkspaceDelta::new(base.id(), vec![], changes, vec![])?;
        assert_eq!(WorkspaceDelta::from_text(delta.to_text().as_bytes()).unwrap(), delta);
        Ok(delta.apply_to(base)?.into_iter().map(|entry| entry.path.to_string()).collect())
    }

    fn added(entry: SnapshotEntry) -> DeltaChange {
        DeltaChange::Added { entry }
    }

    fn deleted(text: &str) -> DeltaChange {
        DeltaChange::Deleted { path: path(text) }
    }

    #[test]
    fn a_file_becomes_a_folder_and_a_folder_a_file() {
        let base = base(vec![file("a", b""), file("b/x.txt", b""), file("b/y/z.txt", b"")]);
        let changes = vec![
            deleted("a"),
            added(file("a/inner", b"")),
            deleted("b/x.txt"),
            deleted("b/y/z.txt"),
            added(file("b", b"")),
        ];
        assert_eq!(apply(&base, changes).unwrap(), ["a/inner", "b"]);
    }

    #[test]
    fn an_entry_below_an_empty_directory_replaces_it() {
        let base = base(vec![directory("d/e")]);
        assert_eq!(apply(&base, vec![added(file("d/e/f", b""))]).unwrap(), ["d/e/f"]);
    }

    #[test]
    fn what_does_not_fit_the_base_is_refused() {
        let base = base(vec![file("a", b"1"), file("README", b"")]);
        assert!(apply(&base, vec![added(file("a", b"2"))]).is_err());
        assert!(apply(&base, vec![deleted("b")]).is_err());
        assert!(apply(&base, vec![DeltaChange::Modified { entry: file("b", b"") }]).is_err());
        assert!(apply(&base, vec![added(file("a/b", b""))]).is_err());
        assert!(apply(&base, vec![added(file("x", b"")), added(file("x/y", b""))]).is_err());
        let foreign = WorkspaceDelta::new(Digest::of(b"other"), vec![], vec![], vec![]).unwrap();
        assert!(foreign.apply_to(&base).is_err());
    }

    #[test]
    fn a_twin_is_refused_and_a_case_only_rename_is_not() {
        let base = base(vec![file("README", b"")]);
        assert!(apply(&base, vec![added(file("readme", b""))]).is_err());
        assert!(apply(&base, vec![added(file("x", b"")), added(file("X", b""))]).is_err());
        let modified = DeltaChange::Modified { entry: file("README", b"2") };
        assert!(apply(&base, vec![modified, added(file("readme", b""))]).is_err());
        assert_eq!(apply(&base, vec![deleted("README"), added(file("readme", b""))]).unwrap(), ["readme"]);
    }

    #[test]
    fn the_state_ignores_lineage_and_exclusions_and_every_cut_is_refused() {
        let change = || vec![added(file("n\n", b"1")), deleted("o")];
        let base = Digest::of(b"base");
        let one = WorkspaceDelta::new(base, vec![], change(), vec![]).unwrap();
        let excluded = vec![ExcludedCount { rule: "target".to_owned(), count: 3 }];
        let two = WorkspaceDelta::new(base, vec![one.id()], change(), excluded).unwrap();
        assert_eq!(one.state(), two.state());
        assert_ne!(one.id(), two.id());
        let text = two.to_text();
        assert_eq!(WorkspaceDelta::from_text(text.as_bytes()).unwrap(), two);
        for end in 0..text.len() {
            assert!(WorkspaceDelta::from_text(&text.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }
}
