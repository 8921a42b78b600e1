//! Answers for what an adapter streams into: checks and limits first, then bytes, then the entry.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use coldframe_core::{
    BoxFuture, ByteStream, Digest, InlineFile, KnownFile, LimitKind, NewFile, Node, Omission, SnapshotLimits,
    SnapshotWriter, SourceError, SourceRef, Stored, WorkspacePath,
};
use tokio::sync::Semaphore;

use crate::check::Visit;
use crate::entries::{Entries, Taken};
use crate::reuse;
use crate::store::Store;
use crate::write::{self, Received, Tickets, hash_all, hash_one, keep};

/// The longest target of a symbolic link that Linux takes.
const MAX_TARGET_BYTES: usize = 4095;

/// The writer of one capture into one store.
pub(crate) struct CaptureWriter<'a> {
    store: &'a Store,
    source: &'a SourceRef,
    limits: SnapshotLimits,
    entries: Mutex<Entries>,
    streams: Semaphore,
    started: SystemTime,
    visit: Visit,
    tickets: Tickets,
}

impl<'a> CaptureWriter<'a> {
    pub(crate) fn new(store: &'a Store, source: &'a SourceRef, limits: SnapshotLimits) -> Self {
        let started = SystemTime::now();
        Self {
            store,
            source,
            limits,
            entries: Mutex::new(Entries::new(limits)),
            streams: Semaphore::new(limits.concurrency.clamp(1, Semaphore::MAX_PERMITS)),
            started,
            visit: Visit::since(started),
            tickets: Tickets::default(),
        }
    }

    /// Waits until all that was taken is stored, and gives it out.
    pub(crate) async fn finish(self) -> Result<(Taken, Visit), SourceError> {
        write::settle(self.store.inner(), &self.tickets).await?;
        let entries = self.entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((entries.finish(), self.visit.again()))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_stream(&self, file: NewFile, content: ByteStream<'_>) -> Result<Stored, SourceError> {
        let declared = file.size.unwrap_or(0);
        let mut claim = Claim::new(self);
        claim.add(&file.path, declared)?;
        let _stream =
            self.streams.acquire().await.map_err(|error| {
                SourceError::contract("capture", "the writer is closed").with_source(error)
            })?;
        let mut arrived = 0u64;
        let mut meter = |length: u64| {
            arrived = arrived.saturating_add(length);
            self.check_arrived(&file, arrived)?;
            claim.grow_to(arrived)
        };
        let received = write::receive(self.store.inner(), content, self.started, &mut meter).await?;
        if file.size.is_some_and(|size| size != arrived) {
            return Err(wrong_declaration(&file, arrived));
        }
        let stored = match received {
            Received::Large(stored) => stored,
            Received::Small(content) => {
                let (stored, content) = hash_one(content).await?;
                let blobs = vec![(stored, content)];
                keep(self.store.inner(), blobs, &self.visit, &self.tickets).await?;
                stored
            }
        };
        let node = Node::File { digest: stored.digest, size: stored.size, executable: file.executable };
        claim.fill(vec![node]);
        Ok(stored)
    }

    fn check_arrived(&self, file: &NewFile, arrived: u64) -> Result<(), SourceError> {
        if arrived > self.limits.max_file_bytes {
            let error = SourceError::limit(LimitKind::MaxFileBytes, self.limits.max_file_bytes, arrived);
            return Err(error.with_subject(&file.path));
        }
        if file.size.is_some_and(|size| arrived > size) {
            return Err(wrong_declaration(file, arrived));
        }
        Ok(())
    }

    async fn take_files(&self, files: Vec<InlineFile>) -> Result<Vec<Stored>, SourceError> {
        let mut claim = Claim::new(self);
        for file in &files {
            claim.add(&file.path, file.content.len() as u64)?;
        }
        let modes: Vec<bool> = files.iter().map(|file| file.executable).collect();
        let contents: Vec<Vec<u8>> = files.into_iter().map(|file| file.content).collect();
        let hashed = hash_all(contents).await?;
        let (large, small): (Vec<_>, Vec<_>) =
            hashed.into_iter().enumerate().partition(|(_, (stored, _))| stored.size >= LARGE);
        let mut all: Vec<Stored> = vec![Stored { digest: Digest::from_bytes([0; 32]), size: 0 }; modes.len()];
        for (position, (_, content)) in large {
            let content = coldframe_core::once(content);
            let received = write::receive(self.store.inner(), content, self.started, &mut |_| Ok(())).await?;
            if let Received::Large(stored) = received {
                all[position] = stored;
            }
        }
        let (positions, small): (Vec<usize>, Vec<_>) = small.into_iter().unzip();
        let kept = keep(self.store.inner(), small, &self.visit, &self.tickets).await?;
        for (position, stored) in positions.into_iter().zip(kept) {
            all[position] = stored;
        }
        let nodes = all.iter().zip(modes);
        let nodes = nodes.map(|(stored, executable)| Node::File {
            digest: stored.digest,
            size: stored.size,
            executable,
        });
        claim.fill(nodes.collect());
        Ok(all)
    }

    async fn take_snapshot(&self, id: Digest) -> Result<bool, SourceError> {
        if !self.entries().is_empty() {
            return Ok(false);
        }
        let found = reuse::find(self.store, &id, &self.visit).await?;
        let found = found.filter(|found| found.snapshot.source() == self.source);
        Ok(found.is_some_and(|found| self.entries().reuse(found)))
    }

    async fn take_known(&self, files: Vec<KnownFile>) -> Result<Vec<bool>, SourceError> {
        let blobs: Vec<Stored> =
            files.iter().map(|file| Stored { digest: file.digest, size: file.size }).collect();
        let present = self.store.inner().present(&blobs, &self.visit, true).await?;
        drop(blobs);
        self.entries().claim_known(files, &present)?;
        Ok(present)
    }
}

const LARGE: u64 = crate::layout::LARGE_BYTES as u64;

fn wrong_declaration(file: &NewFile, arrived: u64) -> SourceError {
    let declared = file.size.unwrap_or(0);
    let comparison = if arrived > declared { "at least " } else { "" };
    let detail = format!("the file was declared with {declared} bytes and has {comparison}{arrived}");
    SourceError::contract("capture", detail).with_subject(&file.path)
}

/// Paths and bytes that a call has taken; given back unless the call ends well.
struct Claim<'a> {
    writer: &'a CaptureWriter<'a>,
    paths: Vec<WorkspacePath>,
    bytes: u64,
}

impl<'a> Claim<'a> {
    fn new(writer: &'a CaptureWriter<'a>) -> Self {
        Self { writer, paths: Vec::new(), bytes: 0 }
    }

    /// Takes a path and bytes.
    fn add(&mut self, path: &WorkspacePath, bytes: u64) -> Result<(), SourceError> {
        let mut entries = self.writer.entries();
        entries.check_file(path, bytes)?;
        entries.claim(path, None)?;
        self.paths.push(path.clone());
        entries.take_bytes(bytes).map_err(|error| error.with_subject(path))?;
        self.bytes += bytes;
        Ok(())
    }

    fn grow_to(&mut self, bytes: u64) -> Result<(), SourceError> {
        if bytes > self.bytes {
            self.writer.entries().take_bytes(bytes - self.bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Makes entries of the claims, in their order.
    fn fill(mut self, nodes: Vec<Node>) {
        let mut entries = self.writer.entries();
        for (path, node) in std::mem::take(&mut self.paths).into_iter().zip(nodes) {
            entries.fill(path, node);
        }
        drop(entries);
        self.keep();
    }

    /// Keeps what was taken.
    fn keep(mut self) {
        self.paths.clear();
        self.bytes = 0;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.paths.is_empty() && self.bytes == 0 {
            return;
        }
        let mut entries = self.writer.entries();
        for path in std::mem::take(&mut self.paths) {
            entries.release(path);
        }
        entries.return_bytes(self.bytes);
    }
}

impl SnapshotWriter for CaptureWriter<'_> {
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
        Box::pin(self.take_files(files))
    }

    fn known<'a>(&'a self, files: Vec<KnownFile>) -> BoxFuture<'a, Result<Vec<bool>, SourceError>> {
        Box::pin(self.take_known(files))
    }

    fn reuse<'a>(&'a self, snapshot: Digest) -> BoxFuture<'a, Result<bool, SourceError>> {
        Box::pin(self.take_snapshot(snapshot))
    }

    fn symlink(&self, path: WorkspacePath, target: String) -> Result<(), SourceError> {
        if target.is_empty() || target.len() > MAX_TARGET_BYTES || target.contains('\0') {
            let detail = "the target of a link is 1 to 4,095 bytes without a NUL";
            return Err(SourceError::contract("capture", detail).with_subject(path));
        }
        self.entries().claim(&path, Some(Node::Symlink { target }))
    }

    fn directory(&self, path: WorkspacePath) -> Result<(), SourceError> {
        self.entries().claim(&path, Some(Node::Directory))
    }

    fn omit(&self, omission: Omission) {
        self.entries().omit(omission);
    }
}
