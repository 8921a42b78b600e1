//! What a walk found: unchanged files by their place in the stat cache, everything else by path.

use std::collections::{BTreeMap, HashSet};

use coldframe_core::{Omission, OmissionReason, WorkspacePath};

use crate::rules::RuleCounts;
use crate::stat_cache::{Record, StatCache};

/// A file whose bytes must be read.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) path: WorkspacePath,
    pub(crate) size: u64,
}

/// Files of one directory that are as the stat cache has them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unchanged {
    /// The number of the directory in the cache.
    pub(crate) directory: u32,
    /// The numbers of the files, ascending; `None` for all that the cache has there.
    pub(crate) files: Option<Vec<u32>>,
}

impl Unchanged {
    /// The records of these files, with their numbers.
    pub(crate) fn records<'a>(&'a self, cache: &'a StatCache) -> impl Iterator<Item = (u32, Record<'a>)> {
        let is_meant =
            |number: &u32| self.files.as_ref().is_none_or(|files| files.binary_search(number).is_ok());
        (0u32..).zip(cache.records(self.directory)).filter(move |(number, _)| is_meant(number))
    }

    /// Takes files out, whose numbers are sorted.
    pub(crate) fn remove(&mut self, cache: &StatCache, lost: &[u32]) {
        let left = self
            .records(cache)
            .map(|(number, _)| number)
            .filter(|number| lost.binary_search(number).is_err());
        self.files = Some(left.collect());
    }
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) unchanged: Vec<Unchanged>,
    /// How many files these are.
    pub(crate) unchanged_files: usize,
    pub(crate) fresh: Vec<Fresh>,
    pub(crate) links: Vec<(WorkspacePath, String)>,
    pub(crate) empty: Vec<WorkspacePath>,
    pub(crate) omitted: Vec<Omission>,
    pub(crate) ignored: RuleCounts,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    /// Whether something was kept inside a directory that is ignored itself.
    pub(crate) kept_inside_ignored: bool,
}

impl Found {
    pub(crate) fn append(&mut self, mut other: Self) {
        self.unchanged.append(&mut other.unchanged);
        self.unchanged_files += other.unchanged_files;
        self.fresh.append(&mut other.fresh);
        self.links.append(&mut other.links);
        self.empty.append(&mut other.empty);
        self.omitted.append(&mut other.omitted);
        for (rule, count) in other.ignored {
            *self.ignored.entry(rule).or_default() += count;
        }
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.kept_inside_ignored |= other.kept_inside_ignored;
    }

    pub(crate) fn omit(&mut self, reason: OmissionReason, subject: String) {
        self.omitted.push(Omission { reason, subject, count: 1 });
    }

    /// Everything that is left out, each reason and subject once, sorted: as a snapshot has it.
    pub(crate) fn omissions(&self) -> Vec<Omission> {
        let mut sums: BTreeMap<(OmissionReason, &str), u64> = BTreeMap::new();
        for Omission { reason, subject, count } in &self.omitted {
            *sums.entry((*reason, subject)).or_default() += count;
        }
        for (rule, count) in &self.ignored {
            *sums.entry((OmissionReason::Ignored, rule)).or_default() += count;
        }
        let omission = |((reason, subject), count): ((_, &str), _)| Omission {
            reason,
            subject: subject.to_owned(),
            count,
        };
        sums.into_iter().map(omission).collect()
    }

    /// Takes back a directory that seemed empty but holds something that an include glob kept further down.
    pub(crate) fn settle(&mut self, cache: &StatCache) {
        if !self.kept_inside_ignored || self.empty.is_empty() {
            return;
        }
        let kept = self.fresh.iter().map(|file| &file.path);
        let kept = kept.chain(self.links.iter().map(|(path, _)| path)).chain(&self.empty);
        let mut parents: HashSet<&str> = kept.flat_map(WorkspacePath::ancestors).collect();
        for Unchanged { directory, .. } in &self.unchanged {
            let path = cache.directory_path(*directory);
            parents.insert(path);
            parents.extend(path.rmatch_indices('/').map(|(end, _)| &path[..end]));
        }
        let is_empty: Vec<bool> = self.empty.iter().map(|path| !parents.contains(path.as_str())).collect();
        let mut is_empty = is_empty.into_iter();
        self.empty.retain(|_| is_empty.next().unwrap_or(true));
    }
}
