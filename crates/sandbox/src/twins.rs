//! Finds added paths that meet another path in all but letter case or Unicode form.
//!
//! A file system that folds names could not hold both, so the delta is refused here, not where it is applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use coldframe_core::{DeltaChange, SourceError, WorkspacePath};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::layer::{Layer, join};

/// The names of one folder of the base by their folded form.
type Folded = HashMap<String, Vec<(Vec<u8>, bool)>>;

/// The folders of a base tree that were looked at; it never changes, so they are read once.
#[derive(Debug, Default)]
pub(crate) struct FoldCache {
    folders: Mutex<HashMap<Vec<u8>, Arc<Folded>>>,
}

fn fold(name: &[u8]) -> Option<String> {
    Some(WorkspacePath::parse(std::str::from_utf8(name).ok()?).ok()?.fold_key())
}

impl FoldCache {
    fn folder(&self, base: &Layer, path: &[u8]) -> Result<Arc<Folded>, Errno> {
        if let Some(folder) = self.folders.lock().unwrap_or_else(PoisonError::into_inner).get(path) {
            return Ok(Arc::clone(folder));
        }
        let mut folder = Folded::new();
        for named in base.names(path)? {
            let Some(key) = fold(&named.name) else { continue };
            folder.entry(key).or_default().push((named.name, named.kind == FileType::Directory));
        }
        let folder = Arc::new(folder);
        self.folders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_vec(), Arc::clone(&folder));
        Ok(folder)
    }

    /// The entries of the base whose paths fold to that of `path`: files, links and empty folders.
    fn entries(&self, base: &Layer, path: &WorkspacePath) -> Result<Vec<Vec<u8>>, Errno> {
        let mut found: Vec<(Vec<u8>, bool)> = vec![(Vec::new(), true)];
        for segment in path.segments() {
            let Some(key) = fold(segment.as_bytes()) else { return Ok(Vec::new()) };
            let mut next = Vec::new();
            for (folder, _) in found.iter().filter(|(_, is_folder)| *is_folder) {
                let names = self.folder(base, folder)?;
                next.extend(
                    names.get(&key).into_iter().flatten().map(|(name, is)| (join(folder, name), *is)),
                );
            }
            found = next;
        }
        let mut entries = Vec::new();
        for (path, is_folder) in found {
            if !is_folder || self.folder(base, &path)?.is_empty() {
                entries.push(path);
            }
        }
        Ok(entries)
    }
}

/// Refuses changes with an added path that meets another added path or a path of the base that stays.
pub(crate) fn check(
    operation: &'static str,
    changes: &[DeltaChange],
    base: &Layer,
    cache: &FoldCache,
) -> Result<(), SourceError> {
    let gone: BTreeSet<&[u8]> = changes
        .iter()
        .filter(|change| change.node().is_none())
        .map(|change| change.path().as_str().as_bytes())
        .collect();
    let mut added: BTreeMap<String, &WorkspacePath> = BTreeMap::new();
    for change in changes {
        let DeltaChange::Added { entry } = change else { continue };
        let path = &entry.path;
        if let Some(other) = added.insert(path.fold_key(), path) {
            return Err(twins(operation, path, other.as_str().as_bytes()));
        }
        let met = cache.entries(base, path).map_err(|errno| SourceError::io(operation, errno.into()))?;
        let stays = |other: &&Vec<u8>| !gone.contains(other.as_slice()) && *other != path.as_str().as_bytes();
        if let Some(other) = met.iter().find(stays) {
            return Err(twins(operation, path, other));
        }
    }
    Ok(())
}

fn twins(operation: &'static str, path: &WorkspacePath, other: &[u8]) -> SourceError {
    let other = String::from_utf8_lossy(other);
    let detail =
        format!("the added path equals {other:?} but for letter case or Unicode form; rename one of them");
    SourceError::contract(operation, detail).with_subject(path)
}
