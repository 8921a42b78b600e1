//! What a blob store promises, and the stream in which bytes travel.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{Digest, SourceError};

/// A boxed future, for traits that are used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes in chunks. An error ends the stream; what was read before it is not the content.
pub type ByteStream<'a> = Pin<Box<dyn Stream<Item = Result<Vec<u8>, SourceError>> + Send + 'a>>;

/// What was stored: the digest and the size of the bytes that really arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    /// BLAKE3 of the bytes.
    pub digest: Digest,
    /// The number of bytes.
    pub size: u64,
}

/// Keeps blobs under their digest.
///
/// For callers: a read gives the right bytes or an error of kind `Integrity` or `NotFound`, never other bytes.
/// For authors: a write is complete or absent, several writers are safe, and a blob is never changed in place.
pub trait BlobStore: Send + Sync {
    /// Stores bytes and returns their digest; storing what is there already is no error.
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>>;

    /// Reads a blob as a stream. The last item is an integrity error where size or hash differ.
    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>>;

    /// True where the blob is stored with this size and is not known to be damaged.
    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>>;

    /// Stores a few bytes.
    fn write_bytes<'a>(&'a self, content: Vec<u8>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        self.write(once(content))
    }

    /// Reads a whole blob, checked. The caller bounds its size.
    fn read_bytes<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<Vec<u8>, SourceError>> {
        Box::pin(async move { collect(self.read(blob).await?).await })
    }
}

/// A stream of one chunk.
pub fn once<'a>(content: Vec<u8>) -> ByteStream<'a> {
    Box::pin(Once(Some(content)))
}

struct Once(Option<Vec<u8>>);

impl Stream for Once {
    type Item = Result<Vec<u8>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// All bytes of a stream, or its error. The caller bounds the size.
pub async fn collect(mut content: ByteStream<'_>) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = std::future::poll_fn(|context| content.as_mut().poll_next(context)).await {
        let chunk = chunk?;
        if bytes.is_empty() {
            bytes = chunk;
        } else {
            bytes.extend_from_slice(&chunk);
        }
    }
    Ok(bytes)
}
