//! Stores that fail in one way each: full, lying, late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coldframe_core::{BlobStore, BoxFuture, ByteStream, ErrorKind, SourceError, Stored};
use futures_util::StreamExt as _;

/// A store whose n-th write finds no room left; writes before and after it succeed.
#[derive(Debug)]
pub struct FullStore<S> {
    inner: S,
    fails_at: u64,
    writes: AtomicU64,
}

impl<S> FullStore<S> {
    /// Fails the write number `fails_at`, counted from 1.
    pub fn new(inner: S, fails_at: u64) -> Self {
        Self { inner, fails_at, writes: AtomicU64::new(0) }
    }
}

impl<S: BlobStore> BlobStore for FullStore<S> {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == self.fails_at {
            let error =
                SourceError::new(ErrorKind::NoSpace, "write blob", "no space left; make room and retry");
            return Box::pin(async move { Err(error) });
        }
        self.inner.write(content)
    }

    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        self.inner.read(blob)
    }

    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        self.inner.contains(blob)
    }
}

/// A store that reads wrong bytes without saying so; a reader that hashes must notice.
#[derive(Debug)]
pub struct LyingStore<S> {
    inner: S,
}

impl<S> LyingStore<S> {
    /// Writes go to `inner`; reads come back with each first byte of a chunk flipped.
    pub fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S: BlobStore> BlobStore for LyingStore<S> {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        self.inner.write(content)
    }

    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        Box::pin(async move {
            let stream = self.inner.read(blob).await?;
            let flipped = stream.map(|chunk| {
                chunk.map(|mut bytes| {
                    if let Some(first) = bytes.first_mut() {
                        *first ^= 1;
                    }
                    bytes
                })
            });
            Ok(Box::pin(flipped) as ByteStream<'a>)
        })
    }

    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        self.inner.contains(blob)
    }
}

/// A store that answers every call after a delay. It needs a tokio runtime with time.
#[derive(Debug)]
pub struct LateStore<S> {
    inner: S,
    delay: Duration,
}

impl<S> LateStore<S> {
    /// Waits `delay` before each call reaches `inner`.
    pub fn new(inner: S, delay: Duration) -> Self {
        Self { inner, delay }
    }
}

impl<S: BlobStore> BlobStore for LateStore<S> {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            self.inner.write(content).await
        })
    }

    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            self.inner.read(blob).await
        })
    }

    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            self.inner.contains(blob).await
        })
    }
}
