//! A reference snapshot writer: checks what the contract says it checks, and keeps what it took.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coldframe_core::{
    BlobStore, BoxFuture, ByteStream, Digest, DynSourceAdapter, InlineFile, KnownFile, LimitKind, NewFile,
    Node, Omission, Resolved, SnapshotEntry, SnapshotLimits, SnapshotManifest, SnapshotWriter, SourceError,
    SourceRef, SourceSnapshot, Stored, WorkspacePath,
};
use futures_util::StreamExt as _;

use crate::MemoryStore;

const OPERATION: &str = "capture";

/// A path is in here from the moment a call names it; `None` until the call has succeeded.
#[derive(Default)]
struct Taken {
    nodes: BTreeMap<WorkspacePath, Option<Node>>,
    bytes: u64,
    omitted: Vec<Omission>,
}

/// A snapshot writer over any blob store, for tests of adapters.
pub struct MemoryWriter<S = MemoryStore> {
    store: S,
    limits: SnapshotLimits,
    taken: Mutex<Taken>,
    bytes_received: AtomicU64,
    known_answered: AtomicU64,
    earlier: Vec<SourceSnapshot>,
    was_reused: AtomicBool,
}

impl<S: BlobStore> MemoryWriter<S> {
    /// A writer into `store` that enforces `limits`.
    pub fn new(store: S, limits: SnapshotLimits) -> Self {
        let (bytes_received, known_answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let (earlier, was_reused) = (Vec::new(), AtomicBool::new(false));
        Self { store, limits, taken: Mutex::default(), bytes_received, known_answered, earlier, was_reused }
    }

    /// Lets the adapter reuse `snapshot`, an earlier one of the same source, as long as the store holds its blobs.
    #[must_use]
    pub fn with_earlier(mut self, snapshot: SourceSnapshot) -> Self {
        self.earlier.push(snapshot);
        self
    }

    /// True where an earlier snapshot was taken as a whole.
    pub fn was_reused(&self) -> bool {
        self.was_reused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content bytes that adapters have sent, also those of calls that failed.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Ordering::Relaxed)
    }

    /// How many files were taken by digest alone.
    pub fn known_answered(&self) -> u64 {
        self.known_answered.load(Ordering::Relaxed)
    }

    /// How many calls have named a path and neither succeeded nor failed yet.
    pub fn pending(&self) -> usize {
        self.lock().nodes.values().filter(|node| node.is_none()).count()
    }

    /// Seals what was taken into a snapshot.
    ///
    /// # Errors
    /// Of kind `Contract` where a call is still pending or the entries break a rule.
    pub fn finish(self, resolved: Resolved) -> Result<SourceSnapshot, SourceError> {
        let taken = self.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut entries = Vec::with_capacity(taken.nodes.len());
        for (path, node) in taken.nodes {
            let node = node.ok_or_else(|| {
                SourceError::contract(OPERATION, "a call is still under way").with_subject(&path)
            })?;
            entries.push(SnapshotEntry { path, node });
        }
        let (source, resolved_revision) = (resolved.source, resolved.revision);
        SnapshotManifest { source, resolved_revision, entries, omitted: taken.omitted }.seal()
    }

    /// Claims `path` and `size` bytes, or says which rule forbids it.
    fn reserve(&self, path: &WorkspacePath, size: u64) -> Result<Reservation<'_, S>, SourceError> {
        let mut taken = self.lock();
        let refuse = |detail: &str| Err(SourceError::contract(OPERATION, detail).with_subject(path));
        if taken.nodes.contains_key(path) {
            return refuse("the path appears twice");
        }
        if path.ancestors().any(|ancestor| taken.nodes.contains_key(ancestor)) {
            return refuse("the path lies under an entry that is a file, a link or an empty directory");
        }
        let below = format!("{path}/");
        let next = taken.nodes.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded)).next();
        if next.is_some_and(|(next, _)| next.as_str().starts_with(&below)) {
            return refuse("entries lie under this path");
        }
        let met = taken.nodes.len() as u64 + 1;
        if met > self.limits.max_files {
            return Err(
                SourceError::limit(LimitKind::MaxFiles, self.limits.max_files, met).with_subject(path)
            );
        }
        self.check_bytes(path, &mut taken, size, size)?;
        taken.nodes.insert(path.clone(), None);
        Ok(Reservation { writer: self, path: Some(path.clone()), bytes: size })
    }

    fn check_bytes(
        &self,
        path: &WorkspacePath,
        taken: &mut Taken,
        file: u64,
        more: u64,
    ) -> Result<(), SourceError> {
        let limits = &self.limits;
        if file > limits.max_file_bytes {
            let error = SourceError::limit(LimitKind::MaxFileBytes, limits.max_file_bytes, file);
            return Err(error.with_subject(path));
        }
        let total = taken.bytes.saturating_add(more);
        if total > limits.max_total_bytes {
            let error = SourceError::limit(LimitKind::MaxTotalBytes, limits.max_total_bytes, total);
            return Err(error.with_subject(path));
        }
        taken.bytes = total;
        Ok(())
    }

    async fn take_stream(&self, file: NewFile, mut content: ByteStream<'_>) -> Result<Stored, SourceError> {
        let mut reservation = self.reserve(&file.path, file.size.unwrap_or(0))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = content.next().await {
            let chunk = chunk?;
            self.bytes_received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            bytes.extend_from_slice(&chunk);
            reservation.grow(bytes.len() as u64)?;
        }
        if file.size.is_some_and(|size| size != bytes.len() as u64) {
            let detail = format!("{:?} bytes were declared, {} arrived", file.size, bytes.len());
            return Err(SourceError::contract(OPERATION, detail).with_subject(&file.path));
        }
        let stored = self.store.write_bytes(bytes).await?;
        reservation.commit(node_of(stored, file.executable));
        Ok(stored)
    }

    async fn take_inline(&self, files: Vec<InlineFile>) -> Result<Vec<Stored>, SourceError> {
        let mut reservations = Vec::with_capacity(files.len());
        for file in &files {
            self.bytes_received.fetch_add(file.content.len() as u64, Ordering::Relaxed);
            reservations.push(self.reserve(&file.path, file.content.len() as u64)?);
        }
        let mut answers = Vec::with_capacity(files.len());
        let mut nodes = Vec::with_capacity(files.len());
        for file in files {
            let stored = self.store.write_bytes(file.content).await?;
            answers.push(stored);
            nodes.push(node_of(stored, file.executable));
        }
        for (reservation, node) in reservations.into_iter().zip(nodes) {
            reservation.commit(node);
        }
        Ok(answers)
    }

    async fn take_snapshot(&self, id: Digest) -> Result<bool, SourceError> {
        let Some(snapshot) = self.earlier.iter().find(|snapshot| snapshot.id() == id) else {
            return Ok(false);
        };
        for blob in snapshot.entries().iter().filter_map(|entry| entry.node.blob()) {
            if !self.store.contains(blob).await? {
                return Ok(false);
            }
        }
        let mut taken = self.lock();
        let SnapshotLimits { max_files, max_total_bytes, max_file_bytes, .. } = self.limits;
        let sizes = || snapshot.entries().iter().map(|entry| entry.node.size());
        let fits = snapshot.entries().len() as u64 <= max_files
            && sizes().fold(0, u64::saturating_add) <= max_total_bytes
            && sizes().all(|size| size <= max_file_bytes);
        if !fits || !taken.nodes.is_empty() || !taken.omitted.is_empty() {
            return Ok(false);
        }
        taken.bytes = snapshot.total_bytes();
        taken.omitted = snapshot.omitted().to_vec();
        let entries = snapshot.entries().iter().cloned();
        taken.nodes = entries.map(|entry| (entry.path, Some(entry.node))).collect();
        self.was_reused.store(true, Ordering::Relaxed);
        Ok(true)
    }

    async fn take_known(&self, files: Vec<KnownFile>) -> Result<Vec<bool>, SourceError> {
        let mut answers = Vec::with_capacity(files.len());
        let mut accepted = Vec::new();
        for file in files {
            let stored = Stored { digest: file.digest, size: file.size };
            let held = self.store.contains(stored).await?;
            answers.push(held);
            if held {
                accepted.push((self.reserve(&file.path, file.size)?, node_of(stored, file.executable)));
            }
        }
        self.known_answered.fetch_add(accepted.len() as u64, Ordering::Relaxed);
        for (reservation, node) in accepted {
            reservation.commit(node);
        }
        Ok(answers)
    }
}

impl MemoryWriter<MemoryStore> {
    /// The bytes of the file at `path`, where it was taken.
    pub fn content(&self, path: &str) -> Option<Arc<Vec<u8>>> {
        let blob = self.lock().nodes.get(path)?.as_ref()?.blob()?;
        self.store.content(&blob.digest)
    }
}

fn node_of(stored: Stored, executable: bool) -> Node {
    Node::File { digest: stored.digest, size: stored.size, executable }
}

/// A claim that is given back unless it is committed, so that a failed or dropped call leaves no entry.
struct Reservation<'a, S: BlobStore> {
    writer: &'a MemoryWriter<S>,
    path: Option<WorkspacePath>,
    bytes: u64,
}

impl<S: BlobStore> Reservation<'_, S> {
    fn grow(&mut self, size: u64) -> Result<(), SourceError> {
        if let Some(path) = &self.path
            && size > self.bytes
        {
            self.writer.check_bytes(path, &mut self.writer.lock(), size, size - self.bytes)?;
            self.bytes = size;
        }
        Ok(())
    }

    fn commit(mut self, node: Node) {
        if let Some(path) = self.path.take() {
            self.writer.lock().nodes.insert(path, Some(node));
        }
    }
}

impl<S: BlobStore> Drop for Reservation<'_, S> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let mut taken = self.writer.lock();
            taken.nodes.remove(&path);
            taken.bytes -= self.bytes;
        }
    }
}

impl<S: BlobStore> SnapshotWriter for MemoryWriter<S> {
    fn limits(&self) -> SnapshotLimits {
        self.limits
    }

    fn file<'a>(
        &'a self,
        file: NewFile,
        content: ByteStream<'a>,
    ) -> BoxFuture<'a, Result<Stored, SourceError>> {
        Box::pin(self.take_stream(file, content))
    }

    fn files<'a>(&'a self, files: Vec<InlineFile>) -> BoxFuture<'a, Result<Vec<Stored>, SourceError>> {
        Box::pin(self.take_inline(files))
    }

    fn known<'a>(&'a self, files: Vec<KnownFile>) -> BoxFuture<'a, Result<Vec<bool>, SourceError>> {
        Box::pin(self.take_known(files))
    }

    fn reuse<'a>(&'a self, snapshot: Digest) -> BoxFuture<'a, Result<bool, SourceError>> {
        Box::pin(self.take_snapshot(snapshot))
    }

    fn symlink(&self, path: WorkspacePath, target: String) -> Result<(), SourceError> {
        self.reserve(&path, 0)?.commit(Node::Symlink { target });
        Ok(())
    }

    fn directory(&self, path: WorkspacePath) -> Result<(), SourceError> {
        self.reserve(&path, 0)?.commit(Node::Directory);
        Ok(())
    }

    fn omit(&self, omission: Omission) {
        self.lock().omitted.push(omission);
    }
}

/// Captures `source` into memory and checks that its identity is unchanged and that every blob is stored.
///
/// # Errors
/// Those of the adapter and the writer; of kind `Contract` where the adapter changed the source's identity, of
/// kind `Integrity` where a blob is missing.
pub async fn capture_into_memory(
    adapter: &dyn DynSourceAdapter,
    source: &SourceRef,
    limits: SnapshotLimits,
) -> Result<(SourceSnapshot, MemoryStore), SourceError> {
    let store = MemoryStore::new();
    let writer = MemoryWriter::new(store.clone(), limits);
    let resolved = adapter.capture(source, &writer).await?;
    if resolved.source != *source {
        let detail = format!("asked for {source}, the adapter answered for {}", resolved.source);
        return Err(SourceError::contract(OPERATION, detail));
    }
    let snapshot = writer.finish(resolved)?;
    for entry in snapshot.entries() {
        if let Some(blob) = entry.node.blob() {
            store.read_bytes(blob).await.map_err(|error| {
                SourceError::integrity(OPERATION, "the content is missing or damaged")
                    .with_subject(&entry.path)
                    .with_source(error)
            })?;
        }
    }
    Ok((snapshot, store))
}
