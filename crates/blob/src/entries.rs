//! Answers for the entries of one capture: path rules, collisions and limits, checked at every call. Pure.
//!
//! Paths are kept sorted with `/` before every other byte, so that all that lies below an entry follows it at
//! once. A new path then collides with its two neighbours or with none, however deep it is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use coldframe_core::{
    KnownFile, LimitKind, Node, Omission, OmissionReason, SnapshotEntry, SnapshotLimits, SourceError,
    WorkspacePath,
};

use crate::reuse::Reused;

const CHECK: &str = "capture";

/// The entries that were taken and the claims of calls that run.
pub(crate) struct Entries {
    limits: SnapshotLimits,
    /// A node is absent while the call that claims the path runs.
    slots: BTreeMap<Key, Option<Node>>,
    bytes: u64,
    omitted: HashMap<(OmissionReason, String), u64>,
    /// A snapshot whose entries are all taken, not put into slots as long as nothing else comes.
    reused: Option<Reused>,
}

/// What a capture took.
pub(crate) enum Taken {
    Entries(Vec<SnapshotEntry>, Vec<Omission>),
    Snapshot(Box<Reused>),
}

/// A path that sorts with `/` before every other byte. A path has no NUL byte, which would sort before it.
#[derive(Debug, PartialEq, Eq)]
struct Key(WorkspacePath);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        const STEP: usize = 16;
        let (mine, theirs) = (self.0.as_str().as_bytes(), other.0.as_str().as_bytes());
        // Neighbours share most of their bytes, so many are passed over at once.
        let steps = mine.as_chunks::<STEP>().0.iter().zip(theirs.as_chunks::<STEP>().0);
        let shared = steps.take_while(|(one, two)| one == two).count() * STEP;
        let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        mine[shared..].iter().map(rank).cmp(theirs[shared..].iter().map(rank))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
            self.slots.insert(Key(entry.path.clone()), Some(entry.node.clone()));
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
        self.insert(Key(path.clone()), node)
    }

    /// Takes those files that `present` says are stored, all of them or none.
    pub(crate) fn claim_known(&mut self, files: Vec<KnownFile>, present: &[bool]) -> Result<(), SourceError> {
        self.unfold();
        let bytes_before = self.bytes;
        let stored = || files.iter().zip(present).filter(|(_, present)| **present).map(|(file, _)| file);
        for (taken, file) in stored().enumerate() {
            if let Err(error) = self.claim_file(file) {
                stored().take(taken).for_each(|file| self.release(file.path.clone()));
                self.bytes = bytes_before;
                return Err(error);
            }
        }
        Ok(())
    }

    fn claim_file(&mut self, file: &KnownFile) -> Result<(), SourceError> {
        let KnownFile { path, executable, digest, size } = file;
        self.check_file(path, *size)?;
        self.take_bytes(*size).map_err(|error| error.with_subject(path))?;
        let node = Node::File { digest: *digest, size: *size, executable: *executable };
        self.insert(Key(path.clone()), Some(node))
    }

    fn insert(&mut self, key: Key, node: Option<Node>) -> Result<(), SourceError> {
        let entries = self.slots.len() as u64;
        if entries >= self.limits.max_files {
            let error = SourceError::limit(LimitKind::MaxFiles, self.limits.max_files, entries + 1);
            return Err(error.with_subject(&key.0));
        }
        let collides = |detail: String| Err(SourceError::contract(CHECK, detail).with_subject(&key.0));
        if let Some((before, _)) = self.slots.range(..=&key).next_back() {
            if *before == key {
                return collides("the path appears twice".to_owned());
            }
            if key.0.is_below(&before.0) {
                let above = &before.0;
                return collides(format!(
                    "the path lies below {above:?}, which is not a folder with entries"
                ));
            }
        }
        if let Some((after, _)) = self.slots.range(&key..).next()
            && after.0.is_below(&key.0)
        {
            return collides(format!("entries lie below the path, such as {:?}", after.0));
        }
        self.slots.insert(key, node);
        Ok(())
    }

    /// Fills a claim.
    pub(crate) fn fill(&mut self, path: WorkspacePath, node: Node) {
        if let Some(slot) = self.slots.get_mut(&Key(path)) {
            *slot = Some(node);
        }
    }

    /// Gives a claim back.
    pub(crate) fn release(&mut self, path: WorkspacePath) {
        self.slots.remove(&Key(path));
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
            Some(reused) => Taken::Snapshot(Box::new(reused)),
            None => {
                let (entries, omitted) = self.into_sorted();
                Taken::Entries(entries, omitted)
            }
        }
    }

    /// Everything that was taken as entries, sorted.
    pub(crate) fn into_sorted(self) -> (Vec<SnapshotEntry>, Vec<Omission>) {
        let filled = |(key, node): (Key, Option<Node>)| Some(SnapshotEntry { path: key.0, node: node? });
        let mut entries: Vec<SnapshotEntry> = Vec::with_capacity(self.slots.len());
        entries.extend(self.slots.into_iter().filter_map(filled));
        // Nearly sorted already, which a stable sort makes use of.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let omitted = self.omitted.into_iter();
        let omitted = omitted.map(|((reason, subject), count)| Omission { reason, subject, count });
        (entries, omitted.collect())
    }
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
        entries.release(path("a/b"));
        entries.claim(&path("a"), Some(Node::Directory)).unwrap();
        entries.take_bytes(100 << 20).unwrap();
        assert!(entries.take_bytes(1).is_err());
        entries.return_bytes(1);
        entries.take_bytes(1).unwrap();
        assert_eq!(entries.into_sorted().0.len(), 1);
    }

    #[test]
    fn files_that_are_known_are_taken_together_or_not_at_all() {
        let file = |text: &str, size| KnownFile {
            path: path(text),
            executable: false,
            digest: coldframe_core::Digest::of(b""),
            size,
        };
        let mut entries = Entries::new(SnapshotLimits { max_files: 3, ..SnapshotLimits::default() });
        entries.claim_known(vec![file("a", 5), file("gone", 1)], &[true, false]).unwrap();
        for second in [file("a/below", 1), file("b", u64::MAX), file("b", 1)] {
            assert!(entries.claim_known(vec![file("b", 7), second], &[true, true]).is_err());
            assert_eq!((entries.slots.len(), entries.bytes), (1, 5));
        }
        let three = ["b", "c", "d"].map(|text| file(text, 1)).to_vec();
        assert!(entries.claim_known(three, &[true; 3]).is_err());
        entries.claim_known(vec![file("b", 1), file("gone", 2)], &[true, true]).unwrap();
        assert_eq!((entries.slots.len(), entries.bytes), (3, 8));
    }

    proptest! {
        #[test]
        fn keys_sort_by_segments(one in "[a/.-]{0,40}b", two in "[a/.-]{0,40}b") {
            if let (Ok(one), Ok(two)) = (WorkspacePath::parse(one), WorkspacePath::parse(two)) {
                let expected = one.segments().cmp(two.segments());
                prop_assert_eq!(Key(one).cmp(&Key(two)), expected);
            }
        }

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
