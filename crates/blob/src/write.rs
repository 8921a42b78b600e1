//! Answers for taking bytes in: small blobs whole, large ones piece by piece past the memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use coldframe_core::{ByteStream, Digest, DigestWriter, ErrorKind, SourceError, Stored};
use futures_util::StreamExt as _;
use object_store::MultipartUpload;
use tokio::task::JoinHandle;

use crate::check::Visit;
use crate::inner::Inner;
use crate::layout::{self, LARGE_BYTES};
use crate::objects::{INLINE_BYTES, Staged, blocking, store_error};
use crate::packer::{self, Ticket};
use crate::state::Verified;

/// How much of a large blob goes to a local disk at once.
const LOCAL_PART_BYTES: usize = 1 << 20;
/// How much of a large blob goes to a remote store in one request; several refuse parts below 5 MiB.
const REMOTE_PART_BYTES: usize = 8 << 20;

/// What came in.
pub(crate) enum Received {
    /// A small blob, in memory.
    Small(Vec<u8>),
    /// A large blob, stored already.
    Large(Stored),
}

/// Reads a stream to its end. `meter` is told of each chunk before it is taken and can refuse it.
pub(crate) async fn receive(
    inner: &Inner,
    mut content: ByteStream<'_>,
    since: SystemTime,
    meter: &mut (dyn FnMut(u64) -> Result<(), SourceError> + Send),
) -> Result<Received, SourceError> {
    let mut buffer = Vec::new();
    while buffer.len() < LARGE_BYTES {
        let Some(chunk) = content.next().await else { return Ok(Received::Small(buffer)) };
        let chunk = chunk?;
        meter(chunk.len() as u64)?;
        append(&mut buffer, chunk);
    }
    let mut upload = Upload::start(inner).await?;
    upload.push(buffer).await?;
    while let Some(chunk) = content.next().await {
        let chunk = chunk?;
        meter(chunk.len() as u64)?;
        upload.push(chunk).await?;
    }
    upload.finish(since).await.map(Received::Large)
}

fn append(buffer: &mut Vec<u8>, chunk: Vec<u8>) {
    if buffer.is_empty() {
        *buffer = chunk;
    } else {
        buffer.extend_from_slice(&chunk);
    }
}

/// A large blob on its way into staging. Dropped before its end it leaves nothing.
struct Upload<'a> {
    inner: &'a Inner,
    staged: Option<Staged>,
    upload: Option<Box<dyn MultipartUpload>>,
    buffer: Vec<u8>,
    hash: DigestWriter,
    part_bytes: usize,
    under_way: Option<JoinHandle<object_store::Result<()>>>,
}

impl<'a> Upload<'a> {
    async fn start(inner: &'a Inner) -> Result<Self, SourceError> {
        let (staged, upload) = inner.objects.stage().await?;
        let local = inner.objects.disk().is_some();
        Ok(Self {
            inner,
            staged: Some(staged),
            upload: Some(upload),
            buffer: Vec::new(),
            hash: DigestWriter::default(),
            part_bytes: if local { LOCAL_PART_BYTES } else { REMOTE_PART_BYTES },
            under_way: None,
        })
    }

    async fn push(&mut self, chunk: Vec<u8>) -> Result<(), SourceError> {
        append(&mut self.buffer, chunk);
        if self.buffer.len() < self.part_bytes {
            return Ok(());
        }
        let mut ready = Bytes::from(std::mem::take(&mut self.buffer));
        while ready.len() >= self.part_bytes {
            let part = ready.split_to(self.part_bytes);
            self.send(part).await?;
        }
        self.buffer = ready.to_vec();
        Ok(())
    }

    /// Hashes a part while the one before it is written.
    async fn send(&mut self, part: Bytes) -> Result<(), SourceError> {
        let (mut hash, piece) = (std::mem::take(&mut self.hash), part.clone());
        self.hash = blocking(move || {
            hash.update(&piece);
            hash
        })
        .await?;
        self.wait().await?;
        if let Some(upload) = &mut self.upload {
            self.under_way = Some(tokio::spawn(upload.put_part(part.into())));
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), SourceError> {
        let Some(under_way) = self.under_way.take() else { return Ok(()) };
        let written = under_way.await.map_err(|error| {
            SourceError::new(ErrorKind::Cancelled, "write blob", "the write did not end").with_source(error)
        })?;
        written.map_err(|error| store_error("write blob", layout::STAGING, error))
    }

    /// Gives the blob its name, or drops it where a right one stands there.
    async fn finish(mut self, since: SystemTime) -> Result<Stored, SourceError> {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.send(rest.into()).await?;
        }
        self.wait().await?;
        let (digest, size) = self.hash.finish();
        let stored = Stored { digest, size };
        let name = layout::loose(&digest);
        self.inner.load_index().await?;
        if let Some(state) = self.inner.objects.state(name.clone()).await?
            && state.size == size
            && self.inner.index_mut().see_loose(&digest, &state, since, SystemTime::now())
        {
            return Ok(stored);
        }
        if let (Some(mut upload), Some(staged)) = (self.upload.take(), self.staged.take()) {
            let target = name.clone();
            // A task of its own: a caller who goes away between the two steps leaves nothing in staging.
            let publish = tokio::spawn(async move {
                let complete = upload.complete().await;
                complete.map_err(|error| store_error("write blob", layout::STAGING, error))?;
                staged.publish(target).await
            });
            publish.await.map_err(|error| {
                SourceError::new(ErrorKind::Cancelled, "write blob", "the write did not end")
                    .with_source(error)
            })??;
        }
        let seen = SystemTime::now();
        let state = self.inner.objects.state(name).await?.filter(|state| state.size == size);
        let state = state.ok_or_else(|| {
            SourceError::corrupt_blob("write blob", &digest, "it is not there as it was written")
        })?;
        self.inner.index_mut().loose_is_checked(digest, Some(Verified::new(state, seen)));
        Ok(stored)
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        // A local upload removes its file when it is dropped; a remote one has to be told.
        if self.inner.objects.disk().is_none()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { upload.abort().await });
        }
    }
}

/// Hashes contents on the pool for blocking work.
pub(crate) async fn hash_all(contents: Vec<Vec<u8>>) -> Result<Vec<(Stored, Vec<u8>)>, SourceError> {
    let hash = |content: Vec<u8>| {
        let stored = Stored { digest: Digest::of(&content), size: content.len() as u64 };
        (stored, content)
    };
    blocking(move || contents.into_iter().map(hash).collect()).await
}

/// Hashes one content, on the caller's thread where it is short.
pub(crate) async fn hash_one(content: Vec<u8>) -> Result<(Stored, Vec<u8>), SourceError> {
    let is_short = content.len() <= INLINE_BYTES;
    let hash = move || {
        let stored = Stored { digest: Digest::of(&content), size: content.len() as u64 };
        (stored, content)
    };
    if is_short { Ok(hash()) } else { blocking(hash).await }
}

/// Tickets of the packs that a caller has blobs in.
pub(crate) type Tickets = Mutex<HashMap<u64, Ticket>>;

/// Takes small blobs into packs where the store does not hold them. They are stored when the tickets say so.
pub(crate) async fn keep(
    inner: &Arc<Inner>,
    blobs: Vec<(Stored, Vec<u8>)>,
    visit: &Visit,
    tickets: &Tickets,
) -> Result<Vec<Stored>, SourceError> {
    let failure = {
        let tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.values().find_map(Ticket::failure)
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    let stored: Vec<Stored> = blobs.iter().map(|(stored, _)| *stored).collect();
    // A remote store would need one request for each small blob to find those that stand alone.
    let probe = inner.objects.disk().is_some();
    let present = inner.present(&stored, visit, probe).await?;
    let new = blobs.into_iter().zip(present).filter(|(_, present)| !present);
    let new: Vec<(Digest, Vec<u8>)> = new.map(|((stored, content), _)| (stored.digest, content)).collect();
    let added = packer::add(inner, new).await?;
    let mut tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
    tickets.extend(added.into_iter().map(|ticket| (ticket.number(), ticket)));
    Ok(stored)
}

/// Waits until all packs of the tickets are stored.
pub(crate) async fn settle(inner: &Arc<Inner>, tickets: &Tickets) -> Result<(), SourceError> {
    packer::send_open(inner).await;
    let waiting = std::mem::take(&mut *tickets.lock().unwrap_or_else(PoisonError::into_inner));
    for mut ticket in waiting.into_values() {
        ticket.stored().await?;
    }
    packer::release_buffer(inner);
    Ok(())
}

impl Inner {
    /// Stores a small blob at once, alone. Where a right one is stored, nothing is written.
    pub(crate) async fn write_small(&self, content: Vec<u8>) -> Result<Stored, SourceError> {
        let (stored, content) = hash_one(content).await?;
        if self.holds_right(stored).await? {
            return Ok(stored);
        }
        self.objects.publish(layout::loose(&stored.digest), content).await.map(drop)?;
        Ok(stored)
    }
}
