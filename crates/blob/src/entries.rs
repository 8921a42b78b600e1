//! Answers for the entries of one capture: path rules, collisions and limits, checked at every call. Pure.
//!
//! Paths are kept sorted with `/` before every other byte, so that all that lies below an entry follows it at
//! once. A new path then collides with its two neighbours or with none, however deep it is.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use coldframe_core::{
    LimitKind, Node, Omission, OmissionReason, SnapshotEntry, SnapshotLimits, SourceError, WorkspacePath,
};

use crate::reuse::Reused;

const CHECK: &str = "capture";

/// The entries that were taken and the claims of calls that run.
pub(crate) struct Entries {
    limits: SnapshotLimits,
    slots: BTreeMap<Box<[u8]>, Slot>,
    bytes: u64,
    omitted: HashMap<(OmissionReason, String), u64>,
    /// A snapshot whose entries are all taken, not put into slots as long as nothing else comes.
    reused: Option<Reused>,
}

/// What a capture took.
pub(crate) enum Taken {
    Entries(Vec<SnapshotEntry>, Vec<Omission>),
    Snapshot(Reused),
}

struct Slot {
    path: WorkspacePath,
    /// Absent while the call that claims the path runs.
    node: Option<Node>,
}

fn key(path: &WorkspacePath) -> Box<[u8]> {
    // A path has no NUL byte, and NUL sorts before every other.
    path.as_str().bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

impl Entries {
    pub(crate) fn new(limits: SnapshotLimits) -> Self {
        Self { limits, slots: BTreeMap::new(), bytes: 0, omitted: HashMap::new(), reused: None }
    }

    /// Takes a whole snapshot where nothing was taken yet and no limit forbids it.
    pub(crate) fn reuse(&mut self, reused: Reused) -> bool {
        let SnapshotLimits { max_files, max_total_bytes, max_file_bytes, .. } = self.limits;
        let entries = reused.snapshot.entries();
        let sizes = || entries.iter().map(|entry| entry.node.size());
        let total = sizes().fold(0, u64::saturating_add);
        let fits = entries.len() as u64 <= max_files
            && total <= max_total_bytes
            && sizes().all(|size| size <= max_file_bytes);
        if !fits || !self.is_empty() {
            return false;
        }
        self.bytes = total;
        self.reused = Some(reused);
        true
    }

    /// True where nothing was taken or left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.omitted.is_empty() && self.bytes == 0 && self.reused.is_none()
    }

    /// Puts the entries of a snapshot that was taken whole into slots, where something else comes.
    fn unfold(&mut self) {
        let Some(Reused { snapshot, .. }) = self.reused.take() else { return };
        for entry in snapshot.entries() {
            let (path, node) = (entry.path.clone(), Some(entry.node.clone()));
            self.slots.insert(key(&path), Slot { path, node });
        }
        snapshot.omitted().iter().for_each(|omission| self.omit(omission.clone()));
    }

    /// Refuses a file of `size` bytes that is too large alone.
    pub(crate) fn check_file(&self, path: &WorkspacePath, size: u64) -> Result<(), SourceError> {
        if size <= self.limits.max_file_bytes {
            return Ok(());
        }
        let error = SourceError::limit(LimitKind::MaxFileBytes, self.limits.max_file_bytes, size);
        Err(error.with_subject(path))
    }

    /// Takes `path` if it collides with nothing and an entry more is allowed.
    pub(crate) fn claim(&mut self, path: &WorkspacePath, node: Option<Node>) -> Result<(), SourceError> {
        self.unfold();
        let entries = self.slots.len() as u64;
        if entries >= self.limits.max_files {
            let error = SourceError::limit(LimitKind::MaxFiles, self.limits.max_files, entries + 1);
            return Err(error.with_subject(path));
        }
        let key = key(path);
        let collides = |detail: String| Err(SourceError::contract(CHECK, detail).with_subject(path));
        let before = self.slots.range::<[u8], _>((Bound::Unbounded, Bound::Included(&*key))).next_back();
        if let Some((before, slot)) = before {
            if before.len() == key.len() && *before == key {
                return collides("the path appears twice".to_owned());
            }
            if is_below(&key, before) {
                let above = &slot.path;
                return collides(format!(
                    "the path lies below {above:?}, which is not a folder with entries"
                ));
            }
        }
        let after = self.slots.range::<[u8], _>((Bound::Excluded(&*key), Bound::Unbounded)).next();
        if let Some((after, slot)) = after
            && is_below(after, &key)
        {
            return collides(format!("entries lie below the path, such as {:?}", slot.path));
        }
        self.slots.insert(key, Slot { path: path.clone(), node });
        Ok(())
    }

    /// Fills a claim.
    pub(crate) fn fill(&mut self, path: &WorkspacePath, node: Node) {
        if let Some(slot) = self.slots.get_mut(&*key(path)) {
            slot.node = Some(node);
        }
    }

    /// Gives a claim back.
    pub(crate) fn release(&mut self, path: &WorkspacePath) {
        self.slots.remove(&*key(path));
    }

    /// Takes bytes if that many more are allowed.
    pub(crate) fn take_bytes(&mut self, bytes: u64) -> Result<(), SourceError> {
        let met = self.bytes.saturating_add(bytes);
        if met > self.limits.max_total_bytes {
            return Err(SourceError::limit(LimitKind::MaxTotalBytes, self.limits.max_total_bytes, met));
        }
        self.bytes = met;
        Ok(())
    }

    /// Gives bytes back.
    pub(crate) fn return_bytes(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// Adds to the count of what is left out.
    pub(crate) fn omit(&mut self, omission: Omission) {
        self.unfold();
        let count = self.omitted.entry((omission.reason, omission.subject)).or_default();
        *count = count.saturating_add(omission.count);
    }

    /// Everything that was taken: the snapshot that was taken whole, or entries, sorted.
    pub(crate) fn finish(mut self) -> Taken {
        match self.reused.take() {
            Some(reused) => Taken::Snapshot(reused),
            None => {
                let (entries, omitted) = self.into_sorted();
                Taken::Entries(entries, omitted)
            }
        }
    }

    /// Everything that was taken as entries, sorted.
    pub(crate) fn into_sorted(self) -> (Vec<SnapshotEntry>, Vec<Omission>) {
        let filled = |slot: Slot| Some(SnapshotEntry { path: slot.path, node: slot.node? });
        let mut entries: Vec<SnapshotEntry> = self.slots.into_values().filter_map(filled).collect();
        // Nearly sorted already, which a stable sort makes use of.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let omitted = self.omitted.into_iter();
        let omitted = omitted.map(|((reason, subject), count)| Omission { reason, subject, count });
        (entries, omitted.collect())
    }
}

fn is_below(key: &[u8], above: &[u8]) -> bool {
    key.get(above.len()) == Some(&0) && key.starts_with(above)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text).unwrap()
    }

    fn entries(max_files: u64) -> Entries {
        Entries::new(SnapshotLimits { max_files, ..SnapshotLimits::default() })
    }

    #[test]
    fn a_claim_that_is_given_back_leaves_room_and_path() {
        let mut entries = entries(1);
        entries.claim(&path("a/b"), None).unwrap();
        assert!(entries.claim(&path("c"), None).is_err());
        entries.release(&path("a/b"));
        entries.claim(&path("a"), Some(Node::Directory)).unwrap();
        entries.take_bytes(100 << 20).unwrap();
        assert!(entries.take_bytes(1).is_err());
        entries.return_bytes(1);
        entries.take_bytes(1).unwrap();
        assert_eq!(entries.into_sorted().0.len(), 1);
    }

    proptest! {
        #[test]
        fn a_claim_is_refused_exactly_where_two_paths_collide(
            texts in proptest::collection::vec("[ab-]{1,2}(/[ab-]{1,2}){0,3}", 1..30)
        ) {
            let mut entries = entries(1000);
            let mut taken: Vec<WorkspacePath> = Vec::new();
            for text in texts {
                let path = path(&text);
                let collides = taken.iter().any(|other| {
                    *other == path || other.is_below(&path) || path.is_below(other)
                });
                prop_assert_eq!(entries.claim(&path, Some(Node::Directory)).is_err(), collides, "{}", text);
                if !collides {
                    taken.push(path);
                }
            }
            taken.sort();
            let kept: Vec<WorkspacePath> = entries.into_sorted().0.into_iter().map(|entry| entry.path).collect();
            prop_assert_eq!(kept, taken);
        }
    }
}
