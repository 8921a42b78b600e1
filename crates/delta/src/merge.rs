//! Joins the deltas of several steps into one, or lists every path on which they disagree.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use coldframe_core::{DeltaChange, Digest, Id, Node, SnapshotEntry, SourceSnapshot, WorkspaceDelta};

use crate::MergeError;
use crate::conflict::{ConflictKind, ConflictSide, PathConflict, WorkspaceDeltaConflict};
use crate::lineage::{History, Lineage};
use crate::resolve::{Clash, Outcome, Resolver};
use crate::view::{Value, View, path_of};

/// The merged cumulative delta of `heads`, the steps that a step directly depends on. Its parents are the
/// heads' delta ids, sorted; it counts no exclusions, because its parents do. The order of heads is of no
/// account, and heads that are ancestors of other heads drop out.
///
/// Each path is merged three-way against the state of the common ancestors of any two heads, which are merged
/// first in the same way; without common ancestors it is the base snapshot. Equal results merge, and a side
/// that changed nothing yields to the one that did, also where that one went back to what the base holds.
///
/// A directory counts as one thing, apart from what is in it:
///
/// * A folder that one side deletes while another adds a file in it: the result holds the new file and none
///   of the deleted ones.
/// * A folder that is still there on every side, but whose last files were deleted by different sides, stays
///   as an empty directory.
/// * An empty directory gives way to entries that another side puts in it.
///
/// # Errors
///
/// [`MergeError::Conflict`] with all conflicting paths at once; the other kinds where lineage, deltas and base
/// do not belong together.
pub fn merge_heads(
    base: &SourceSnapshot,
    lineage: &Lineage<'_>,
    heads: &[Id],
) -> Result<WorkspaceDelta, MergeError> {
    let history = History::new(base, lineage, heads)?;
    let resolver = Resolver::new(View::of_base(base), &history);
    let outcomes = resolver.touched().map(|path| (path, resolver.outcome(path))).collect();
    let mut merge = Merge { base, history: &history, resolver: &resolver, outcomes };
    merge.keep_emptied_directories();
    let conflicts = merge.conflicts();
    if !conflicts.is_empty() {
        return Err(MergeError::Conflict(WorkspaceDeltaConflict { paths: conflicts }));
    }
    let parents: BTreeSet<Digest> = resolver
        .heads()
        .iter()
        .filter_map(|head| history.views[*head].delta)
        .map(WorkspaceDelta::id)
        .collect();
    Ok(WorkspaceDelta::new(base.id(), parents.into_iter().collect(), merge.changes(), vec![])?)
}

struct Merge<'a, 'h> {
    base: &'a SourceSnapshot,
    history: &'h History<'a>,
    resolver: &'h Resolver<'a, 'h>,
    outcomes: BTreeMap<&'a str, Outcome<'a>>,
}

impl<'a> Merge<'a, '_> {
    /// Finds directories that no side removed and in which nothing is left.
    fn keep_emptied_directories(&mut self) {
        let mut seen: HashSet<&'a str> = HashSet::new();
        let mut emptied: Vec<&'a str> = Vec::new();
        for (path, outcome) in &self.outcomes {
            if !matches!(outcome, Outcome::Settled(Value::Absent)) {
                continue;
            }
            let mut directory: &'a str = path;
            while let Some((parent, _)) = directory.rsplit_once('/') {
                directory = parent;
                if !seen.insert(parent) || self.holds_below(parent) {
                    break;
                }
                if !self.outcomes.contains_key(parent) {
                    emptied.push(parent);
                }
            }
        }
        emptied.sort_unstable_by_key(|directory| std::cmp::Reverse(directory.len()));
        for directory in emptied {
            // A deeper directory that stays may have filled this one in the meantime.
            if self.holds_below(directory) {
                continue;
            }
            let outcome = self.resolver.outcome(directory);
            if matches!(outcome, Outcome::Settled(Value::Directory)) {
                self.outcomes.insert(directory, outcome);
            }
        }
    }

    /// True where the merged tree has something below `directory`, conflicts included.
    fn holds_below(&self, directory: &str) -> bool {
        let prefix = format!("{directory}/");
        let mut of_base = 0;
        for (path, outcome) in
            self.outcomes.range(prefix.as_str()..).take_while(|(path, _)| path.starts_with(&prefix))
        {
            if is_present(outcome) {
                return true;
            }
            of_base += usize::from(self.base.entry(path).is_some());
        }
        self.base.entries_below(directory).len() > of_base
    }

    fn changes(&self) -> Vec<DeltaChange> {
        let mut changes = Vec::new();
        for (path, outcome) in &self.outcomes {
            let Outcome::Settled(value) = outcome else { continue };
            let before = self.base.entry(path).map(|entry| &entry.node);
            let after = match value {
                Value::Node(node) => Some((*node).clone()),
                _ if self.holds_below(path) => {
                    // What stands below says that the directory is there; an entry of its own would be wrong.
                    if before.is_some_and(|node| *node != Node::Directory) {
                        changes.push(DeltaChange::Deleted { path: path_of(path) });
                    }
                    continue;
                }
                Value::Directory => Some(Node::Directory),
                Value::Absent => None,
            };
            if after.as_ref() == before {
                continue;
            }
            let path = path_of(path);
            changes.push(match (before, after) {
                (_, None) => DeltaChange::Deleted { path },
                (None, Some(node)) => DeltaChange::Added { entry: SnapshotEntry { path, node } },
                (Some(_), Some(node)) => DeltaChange::Modified { entry: SnapshotEntry { path, node } },
            });
        }
        changes
    }

    fn conflicts(&self) -> Vec<PathConflict> {
        let mut found: BTreeMap<&'a str, (ConflictKind, BTreeSet<usize>)> = BTreeMap::new();
        for (path, outcome) in &self.outcomes {
            if let Outcome::Clash(clash) = outcome {
                let heads = clash.contenders.iter().map(|(head, _)| *head).collect();
                found.insert(path, (kind_of(clash), heads));
            }
        }
        self.find_twins(&mut found);
        self.find_entries_under_leaves(&mut found);
        found.into_iter().map(|(path, (kind, heads))| self.told(path, kind, &heads)).collect()
    }

    /// An entry under a file or a link: `a` from one side, `a/b` from another.
    fn find_entries_under_leaves(&self, found: &mut BTreeMap<&'a str, (ConflictKind, BTreeSet<usize>)>) {
        let mut free: HashSet<&'a str> = HashSet::new();
        let mut leaves: HashMap<&'a str, BTreeSet<usize>> = HashMap::new();
        for (path, outcome) in &self.outcomes {
            if !is_present(outcome) {
                continue;
            }
            let mut passed = Vec::new();
            let mut directory: &'a str = path;
            let leaf = loop {
                let Some((parent, _)) = directory.rsplit_once('/') else { break None };
                if free.contains(parent) {
                    break None;
                }
                if self.outcomes.get(parent).is_some_and(may_be_leaf) {
                    break Some(parent);
                }
                passed.push(parent);
                directory = parent;
            };
            let Some(leaf) = leaf else {
                free.extend(passed);
                continue;
            };
            let leaf_heads = leaves.entry(leaf).or_insert_with(|| self.involved(leaf)).clone();
            let entry_heads = self.involved(path);
            for (path, heads) in [(leaf, &entry_heads), (path, &leaf_heads)] {
                let conflict = found
                    .entry(path)
                    .or_insert_with(|| (ConflictKind::FileAgainstDirectory, self.involved(path)));
                conflict.0 = ConflictKind::FileAgainstDirectory;
                conflict.1.extend(heads);
            }
        }
    }

    /// Paths that meet in all but letter case or Unicode form, at least one of them not from the base.
    fn find_twins(&self, found: &mut BTreeMap<&'a str, (ConflictKind, BTreeSet<usize>)>) {
        let mut groups: HashMap<String, Vec<&'a str>> = HashMap::new();
        for (path, outcome) in &self.outcomes {
            if is_present(outcome) {
                groups.entry(path_of(path).fold_key()).or_default().push(path);
            }
        }
        for group in groups.into_values() {
            if group.len() < 2 || group.iter().all(|path| self.base.entry(path).is_some()) {
                continue;
            }
            let heads: BTreeSet<usize> = group.iter().flat_map(|path| self.involved(path)).collect();
            for path in group {
                found
                    .entry(path)
                    .or_insert_with(|| (ConflictKind::TwinNames, BTreeSet::new()))
                    .1
                    .extend(&heads);
            }
        }
    }

    /// The heads that changed a path.
    fn involved(&self, path: &str) -> BTreeSet<usize> {
        if let Some(Outcome::Clash(clash)) = self.outcomes.get(path) {
            return clash.contenders.iter().map(|(head, _)| *head).collect();
        }
        let ancestor = self.resolver.ancestor_value(path);
        let changed = |head: &&usize| self.history.views[**head].value(path) != ancestor;
        self.resolver.heads().iter().filter(changed).copied().collect()
    }

    fn told(&self, path: &str, kind: ConflictKind, heads: &BTreeSet<usize>) -> PathConflict {
        let base = match self.outcomes.get(path) {
            Some(Outcome::Clash(clash)) => clash.base,
            _ => self.resolver.ancestor_value(path),
        };
        let sides: BTreeMap<&Id, Value<'a>> = heads
            .iter()
            .map(|head| {
                let value = self.history.views[*head].value(path);
                (self.history.ids[self.writer(*head, path, value)], value)
            })
            .collect();
        let sides = sides
            .into_iter()
            .map(|(step, value)| ConflictSide { step: step.clone(), node: value.to_node() })
            .collect();
        PathConflict { path: path_of(path), kind, base: base.to_node(), sides }
    }

    /// Follows an unchanged value down to the step that wrote it.
    fn writer(&self, head: usize, path: &str, value: Value<'a>) -> usize {
        let base = View::of_base(self.base).value(path);
        let mut step = head;
        loop {
            let dependencies = &self.history.dependencies[step];
            let holds = |dependency: &&usize| self.history.views[**dependency].value(path) == value;
            // What equals the base may come from a dependency that never looked at the path.
            if value == base && !dependencies.iter().all(|dependency| holds(&dependency)) {
                return step;
            }
            let Some(next) =
                dependencies.iter().filter(holds).min_by_key(|number| self.history.ids[**number])
            else {
                // A value that nobody wrote is told by the head itself.
                return if value == base && dependencies.is_empty() { head } else { step };
            };
            step = *next;
        }
    }
}

fn is_present(outcome: &Outcome<'_>) -> bool {
    match outcome {
        Outcome::Settled(value) => *value != Value::Absent,
        Outcome::Clash(clash) => clash.contenders.iter().any(|(_, value)| *value != Value::Absent),
    }
}

fn may_be_leaf(outcome: &Outcome<'_>) -> bool {
    match outcome {
        Outcome::Settled(value) => matches!(value, Value::Node(_)),
        Outcome::Clash(clash) => clash.contenders.iter().any(|(_, value)| matches!(value, Value::Node(_))),
    }
}

fn kind_of(clash: &Clash<'_>) -> ConflictKind {
    let holds = |wanted: fn(&Value<'_>) -> bool| clash.contenders.iter().any(|(_, value)| wanted(value));
    if holds(|value| *value == Value::Directory) {
        return ConflictKind::FileAgainstDirectory;
    }
    if holds(|value| *value == Value::Absent) {
        return ConflictKind::DeleteAgainstModify;
    }
    let is_link = |value: &Value<'_>| matches!(value, Value::Node(Node::Symlink { .. }));
    if holds(is_link) && !clash.contenders.iter().all(|(_, value)| is_link(value)) {
        return ConflictKind::LinkAgainstFile;
    }
    let digest = |value: &Value<'_>| match value {
        Value::Node(node) => node.blob().map(|blob| blob.digest),
        _ => None,
    };
    let digests: HashSet<Option<Digest>> = clash.contenders.iter().map(|(_, value)| digest(value)).collect();
    let before = digest(&clash.base);
    if !digests.contains(&None) && (digests.len() == 1 || (before.is_some() && digests.contains(&before))) {
        return ConflictKind::Mode;
    }
    if clash.base == Value::Absent { ConflictKind::AddedDifferently } else { ConflictKind::Content }
}
