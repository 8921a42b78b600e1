//! A reference blob store that keeps every blob in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coldframe_core::{
    BlobStore, BoxFuture, ByteStream, Digest, ErrorKind, SourceError, Stored, collect, once,
};

type Blobs = HashMap<Digest, Arc<Vec<u8>>>;

/// Keeps blobs in memory. Clones share the blobs.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    blobs: Arc<Mutex<Blobs>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Blobs> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many blobs are stored.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True where nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The bytes of all blobs together.
    pub fn total_bytes(&self) -> u64 {
        self.lock().values().map(|content| content.len() as u64).sum()
    }

    /// The bytes under `digest`, unchecked.
    pub fn content(&self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        self.lock().get(digest).cloned()
    }

    /// Puts other bytes under `digest`, as a failing disk would.
    pub fn damage(&self, digest: Digest, content: Vec<u8>) {
        self.lock().insert(digest, Arc::new(content));
    }

    /// Takes a blob away, as a careless clean-up would. True where it was there.
    pub fn remove(&self, digest: &Digest) -> bool {
        self.lock().remove(digest).is_some()
    }
}

impl BlobStore for MemoryStore {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        Box::pin(async move {
            let content = collect(content).await?;
            let stored = Stored { digest: Digest::of(&content), size: content.len() as u64 };
            self.lock().insert(stored.digest, Arc::new(content));
            Ok(stored)
        })
    }

    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        Box::pin(async move {
            let content = self.content(&blob.digest).ok_or_else(|| {
                SourceError::new(
                    ErrorKind::NotFound,
                    "read blob",
                    format!("blob {} is not stored", blob.digest),
                )
            })?;
            if content.len() as u64 != blob.size {
                let detail = format!("{} bytes expected, {} stored", blob.size, content.len());
                return Err(SourceError::corrupt_blob("read blob", &blob.digest, detail));
            }
            if Digest::of(&content) != blob.digest {
                return Err(SourceError::corrupt_blob("read blob", &blob.digest, "the hash differs"));
            }
            Ok(once(content.to_vec()))
        })
    }

    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        let held = self.content(&blob.digest).is_some_and(|content| content.len() as u64 == blob.size);
        Box::pin(async move { Ok(held) })
    }
}
