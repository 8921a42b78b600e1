//! The adapter: checks what it is asked for, walks, and hands everything to the writer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use coldframe_core::{
    Capabilities, Digest, ErrorKind, KnownFile, Resolved, SnapshotLimits, SnapshotWriter, SourceAdapter,
    SourceError, SourceRef, SourceSnapshot,
};
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};

use crate::error::{CAPTURE, root_error};
use crate::found::{Found, Fresh, Unchanged};
use crate::last::{Last, holds_the_files_of, rest_of_snapshot, rest_of_walk};
use crate::read::{blocking, plan, send};
use crate::rules::{Includes, Rules};
use crate::stat_cache::{CacheFile, Remembered, StatCache};
use crate::tree::{Tree, canonical};
use crate::walk::Walk;

/// More threads than this wait for the disk or for one another.
const MAX_WALKERS: usize = 4;
/// Batches in flight. More would only push one another out of the processor's caches between reading and hashing.
const MAX_IN_FLIGHT: usize = 4;
/// Files that are asked about at once.
const KNOWN_FILES: usize = 16_384;

/// Captures a directory of the local disk.
///
/// * The locator is the absolute path of a directory; the revision is empty. The snapshot's revision is its
///   tree digest.
/// * Links are kept as their text and never followed. Sockets, pipes, devices, names that are not UTF-8 and
///   paths that are too long are left out and reported.
/// * `.git` at any depth, whatever it is, and the directories `.hg`, `.svn`, `.jj` and `.bzr` are left out
///   and reported.
/// * What `.gitignore`, `.ignore` or `.git/info/exclude` ignore is left out; the snapshot says which rule
///   left out how many paths. An ignored directory is not entered and counts once. The user's global rules
///   are not read. Rules decide for tracked files too: the adapter does not read Git's index.
/// * A directory in which nothing is kept is an entry of its own.
/// * A file or directory that may not be read is an error that names it; so is a file that changes each time
///   it is read. Each file is what it was at one moment; two files may be from two moments.
///
/// It needs a tokio runtime.
#[derive(Debug, Clone, Default)]
pub struct LocalSource {
    cache: Option<PathBuf>,
    include_ignored: bool,
    include: Vec<String>,
    reserved: Vec<PathBuf>,
    written: Arc<Written>,
}

/// The cache that was written last, until its snapshot is known. Bound to its snapshot it is compared with it in any
/// case, so which capture it is from does not matter.
#[derive(Default)]
struct Written(Mutex<Option<(Digest, StatCache)>>);

impl Written {
    fn put(&self, key: Digest, cache: StatCache) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, cache));
    }

    fn take(&self, key: &Digest) -> Option<StatCache> {
        let (of, cache) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        (of == *key).then_some(cache)
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Written").finish_non_exhaustive()
    }
}

impl LocalSource {
    /// The provider name.
    pub const PROVIDER: &'static str = "local";

    /// An adapter that honours ignore rules and remembers nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers digests under `directory`, so that capturing again reads only what changed. The directory
    /// must be private to the user and outside the captured tree; it is made with mode 0700 where it does not
    /// exist. Trees on network file systems are read anew each time: their time stamps come from another clock.
    #[must_use]
    pub fn with_cache(mut self, directory: PathBuf) -> Self {
        self.cache = Some(directory);
        self
    }

    /// Keeps ignored files as well. Metadata of version control systems stays out.
    #[must_use]
    pub fn with_include_ignored(mut self, include_ignored: bool) -> Self {
        self.include_ignored = include_ignored;
        self
    }

    /// Keeps what these globs name, with everything below it, although a rule ignores it. A glob has the syntax
    /// of a `.gitignore` line: `.env` matches at any depth, `dist/app.js` from the root. An ignored directory
    /// is entered only where a glob with a `/` leads into it.
    #[must_use]
    pub fn with_include<I>(mut self, globs: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.include.extend(globs.into_iter().map(Into::into));
        self
    }

    /// Leaves out the folder at this canonical path wherever it lies in a captured tree, whatever the rules and
    /// globs of anybody say: for what the application itself keeps there.
    #[must_use]
    pub fn with_reserved(mut self, folder: impl Into<PathBuf>) -> Self {
        self.reserved.push(folder.into());
        self
    }

    fn check(&self, source: &SourceRef) -> Result<PathBuf, SourceError> {
        if source.provider != Self::PROVIDER {
            let detail = format!("the provider is {:?}, not {:?}", source.provider, Self::PROVIDER);
            return Err(SourceError::contract(CAPTURE, detail));
        }
        if !source.revision.is_empty() {
            let detail =
                "a directory has no revisions; leave it empty, or name the repository as a Git source";
            return Err(
                SourceError::new(ErrorKind::Unsupported, CAPTURE, detail).with_subject(&source.revision)
            );
        }
        let root = Path::new(&source.locator);
        if !root.is_absolute() {
            let detail = "the locator is a relative path; make it absolute";
            return Err(SourceError::contract(CAPTURE, detail).with_subject(&source.locator));
        }
        Ok(root.to_owned())
    }

    /// Opens the root and reads what a walk starts from. Blocks.
    fn prepare(&self, root: &Path, limits: SnapshotLimits) -> Result<(Walk, Option<CacheFile>), SourceError> {
        let locator = root.display().to_string();
        let refuse = |error| root_error(&locator, error);
        let tree = Tree::open(root).map_err(refuse)?;
        let canonical = canonical(root).map_err(refuse)?;
        let includes = if self.include_ignored { None } else { Some(Includes::new(&self.include)?) };
        let around = if self.include_ignored { Default::default() } else { Rules::around(&canonical)? };
        let file = match &self.cache {
            Some(directory) if tree.stamps_are_local() => {
                let device = tree.stat().map_err(refuse)?.device;
                Some(CacheFile::new(directory, &canonical, &self.configuration(), device))
            }
            _ => None,
        };
        let cache = file.as_ref().map_or_else(StatCache::default, CacheFile::load);
        let last = file.as_ref().and_then(CacheFile::load_last);
        let last = last.filter(|last| Some(last.cache) == cache.sum());
        let below = |folder: &PathBuf| Some(folder.strip_prefix(&canonical).ok()?.to_str()?.to_owned());
        let reserved = self.reserved.iter().filter_map(below).collect();
        Ok((Walk::new(tree, (cache, last), includes, around, limits).reserving(reserved), file))
    }

    /// The cache of the tree at `root`, where it has one. Blocks.
    fn cache_file(&self, root: &Path) -> Option<CacheFile> {
        let tree = Tree::open(root).ok().filter(Tree::stamps_are_local)?;
        let (canonical, device) = (canonical(root).ok()?, tree.stat().ok()?.device);
        Some(CacheFile::new(self.cache.as_ref()?, &canonical, &self.configuration(), device))
    }

    /// Writes the cache and keeps it at hand. One that cannot be written costs time later and nothing else, so it does
    /// not fail the capture.
    async fn save(
        &self,
        file: CacheFile,
        walk: Arc<Walk>,
        kept: Vec<Unchanged>,
        read: Vec<Remembered>,
    ) -> Result<(), SourceError> {
        let written = Arc::clone(&self.written);
        blocking(move || {
            match file.save(&walk.cache, &kept, read) {
                Ok(cache) => written.put(*file.key(), cache),
                Err(error) => {
                    tracing::warn!(%error, "the stat cache cannot be written; the next capture reads everything");
                }
            }
            Ok(())
        })
        .await
    }

    /// The cache of the tree at `root`, unless it is known already that it belongs to `snapshot`. Blocks.
    fn unbound_cache(&self, root: &Path, snapshot: Digest) -> Option<(CacheFile, StatCache)> {
        let file = self.cache_file(root)?;
        if let Some(cache) = self.written.take(file.key()) {
            return Some((file, cache));
        }
        let is_known = |last: Last| last.snapshot == snapshot && Some(last.cache) == file.claimed_sum();
        if file.load_last().is_some_and(is_known) {
            return None;
        }
        let cache = file.load();
        Some((file, cache))
    }

    /// Two adapters that may find different files keep different caches, so neither forgets for the other.
    fn configuration(&self) -> String {
        format!("{} {:?} {:?}", self.include_ignored, self.include, self.reserved)
    }
}

impl SourceAdapter for LocalSource {
    fn provider(&self) -> &str {
        Self::PROVIDER
    }

    fn capabilities(&self) -> Capabilities {
        let declared = Capabilities::new().with_executable_bits().with_symlinks();
        if self.cache.is_some() { declared.with_incremental_recapture() } else { declared }
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        let root = self.check(source)?;
        let (adapter, limits) = (self.clone(), writer.limits());
        let (walk, cache) = blocking(move || adapter.prepare(&root, limits)).await?;
        let walk = Arc::new(walk);
        let _cancel = CancelOnDrop(Arc::clone(&walk));
        let mut found = walk_in_threads(&walk).await?;
        let was_complete = found.fresh.is_empty() && found.unchanged_files == walk.cache.len();
        if let Some(last) = walk.last.as_ref().filter(|_| was_complete)
            && rest_of_walk(&mut found) == last.rest
            && writer.reuse(last.snapshot).await?
        {
            return Ok(Resolved::new(source.clone(), ""));
        }
        report(&mut found, writer)?;
        let missing = send_unchanged(&walk.cache, &mut found.unchanged, writer).await?;
        let nothing_new = was_complete && missing.is_empty();
        found.fresh.extend(missing);
        let in_flight = limits.concurrency.clamp(1, MAX_IN_FLIGHT);
        // Boxed one by one: the compiler cannot see through the borrow of the writer otherwise.
        let work = plan(found.fresh).into_iter().map(|work| {
            let sending: coldframe_core::BoxFuture<'_, _> = Box::pin(send(Arc::clone(&walk), work, writer));
            sending
        });
        let mut sent = stream::iter(work).buffer_unordered(in_flight);
        let mut read = Vec::new();
        while let Some(files) = sent.try_next().await? {
            read.extend(files);
        }
        drop(sent);
        if let Some(file) = cache.filter(|_| !nothing_new) {
            self.save(file, walk, found.unchanged, read).await?;
        }
        Ok(Resolved::new(source.clone(), ""))
    }

    async fn captured(&self, source: &SourceRef, snapshot: &SourceSnapshot) {
        let (adapter, root, id) = (self.clone(), PathBuf::from(&source.locator), snapshot.id());
        if self.cache.is_none() || snapshot.source() != source {
            return;
        }
        let Ok(Some((file, cache))) = blocking(move || Ok(adapter.unbound_cache(&root, id))).await else {
            return;
        };
        let Some(sum) = cache.sum() else { return };
        if !holds_the_files_of(&cache, snapshot).await {
            return;
        }
        let last = Last { snapshot: id, cache: sum, rest: rest_of_snapshot(snapshot) };
        let saved = blocking(move || Ok(file.save_last(&last))).await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "the last snapshot cannot be remembered; the next capture takes longer");
        }
    }
}

/// Ends the threads of a capture that was dropped.
struct CancelOnDrop(Arc<Walk>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn walk_in_threads(walk: &Arc<Walk>) -> Result<Found, SourceError> {
    let walkers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MAX_WALKERS);
    let threads = (0..walkers).map(|_| {
        let walk = Arc::clone(walk);
        blocking(move || {
            walk.work();
            Ok(())
        })
    });
    future::try_join_all(threads).await?;
    walk.outcome()
}

/// Hands on everything that has no bytes.
fn report(found: &mut Found, writer: &dyn SnapshotWriter) -> Result<(), SourceError> {
    found.omissions().into_iter().for_each(|omission| writer.omit(omission));
    for path in std::mem::take(&mut found.empty) {
        writer.directory(path)?;
    }
    for (path, target) in std::mem::take(&mut found.links) {
        writer.symlink(path, target)?;
    }
    Ok(())
}

/// Hands on unchanged files by digest. Those that the store has lost are taken out, and are the answer.
async fn send_unchanged(
    cache: &StatCache,
    unchanged: &mut [Unchanged],
    writer: &dyn SnapshotWriter,
) -> Result<Vec<Fresh>, SourceError> {
    unchanged.sort_unstable_by_key(|unchanged| unchanged.directory);
    let mut lost = BTreeMap::<usize, Vec<u32>>::new();
    let records = unchanged.iter().enumerate().flat_map(|(index, unchanged)| {
        let records = unchanged.records(cache);
        records.map(move |(number, record)| (index, number, cache.known(unchanged.directory, &record)))
    });
    // Boxed: the compiler cannot see through the borrows of the closures otherwise.
    let mut rest: Box<dyn Iterator<Item = (usize, u32, Option<KnownFile>)> + Send> = Box::new(records);
    loop {
        let (mut files, mut places) = (Vec::new(), Vec::new());
        for (index, number, known) in rest.by_ref().take(KNOWN_FILES) {
            files.push(known.ok_or_else(foreign_cache)?);
            places.push((index, number));
        }
        if files.is_empty() {
            break;
        }
        let answers = writer.known(files).await?;
        if answers.len() != places.len() {
            let detail = format!("asked about {} files, {} answers came", places.len(), answers.len());
            return Err(SourceError::contract(CAPTURE, detail));
        }
        for ((index, number), _) in places.into_iter().zip(answers).filter(|(_, held)| !held) {
            lost.entry(index).or_default().push(number);
        }
    }
    drop(rest);
    let mut missing = Vec::new();
    for (index, numbers) in lost {
        let unchanged = &mut unchanged[index];
        for (_, record) in
            unchanged.records(cache).filter(|(number, _)| numbers.binary_search(number).is_ok())
        {
            let file = cache.known(unchanged.directory, &record).ok_or_else(foreign_cache)?;
            missing.push(Fresh { path: file.path, size: file.size });
        }
        unchanged.remove(cache, &numbers);
    }
    Ok(missing)
}

fn foreign_cache() -> SourceError {
    SourceError::integrity(CAPTURE, "the stat cache was written by something else; remove its directory")
}
