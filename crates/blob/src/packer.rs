//! Answers for the pack that is being filled, and for its way to the store in the background.
//!
//! Memory is bounded by permits: a pack holds one from its first blob until it is stored, and there are two.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use coldframe_core::{Digest, ErrorKind, SourceError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::inner::Inner;
use crate::layout::{PACK_BYTES, PACK_RECORDS};
use crate::pack::Record;

const BUFFERS: usize = 2;

type Outcome = Option<Result<(), (ErrorKind, String)>>;

/// Tells when a pack is stored.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    number: u64,
    outcome: watch::Receiver<Outcome>,
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Why the pack was not stored, where that is known already.
    pub(crate) fn failure(&self) -> Option<SourceError> {
        let (kind, detail) = self.outcome.borrow().clone()?.err()?;
        Some(SourceError::new(kind, "write pack", detail))
    }

    /// Waits until the pack is stored, or says why it is not.
    pub(crate) async fn stored(&mut self) -> Result<(), SourceError> {
        let lost = || (ErrorKind::Cancelled, "the store was closed before the pack was written".to_owned());
        let outcome = match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(lost())),
            Err(_) => Err(lost()),
        };
        outcome.map_err(|(kind, detail)| SourceError::new(kind, "write pack", detail))
    }
}

struct OpenPack {
    content: Vec<u8>,
    records: Vec<Record>,
    sender: watch::Sender<Outcome>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl OpenPack {
    fn ticket(&self) -> Ticket {
        Ticket { number: self.number, outcome: self.sender.subscribe() }
    }

    fn has_room_for(&self, length: usize) -> bool {
        self.records.len() < PACK_RECORDS && self.content.len() + length <= PACK_BYTES
    }
}

/// Fills packs, one at a time.
pub(crate) struct Packer {
    open: tokio::sync::Mutex<Option<OpenPack>>,
    permits: Arc<Semaphore>,
    /// Blobs that were taken and are not stored yet.
    pending: Mutex<HashMap<Digest, Ticket>>,
    /// A buffer to fill again. Fresh ones of 16 MiB cost page faults, and the allocator keeps many of them.
    spare: Mutex<Option<Vec<u8>>>,
    /// Packs on their way.
    under_way: Mutex<HashMap<u64, Ticket>>,
    next: AtomicU64,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            open: tokio::sync::Mutex::default(),
            permits: Arc::new(Semaphore::new(BUFFERS)),
            pending: Mutex::default(),
            spare: Mutex::default(),
            under_way: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }
}

impl Packer {
    fn pending(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Ticket>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self) -> Vec<u8> {
        self.spare().take().unwrap_or_else(|| Vec::with_capacity(PACK_BYTES))
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Ticket>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes blobs into the open pack and answers with the tickets of the packs that hold them. Waits while too many
/// packs are on their way. Blobs of a call that is dropped may be stored; nothing refers to them then.
pub(crate) async fn add(
    inner: &Arc<Inner>,
    blobs: Vec<(Digest, Vec<u8>)>,
) -> Result<Vec<Ticket>, SourceError> {
    let packer = &inner.packer;
    let mut tickets: HashMap<u64, Ticket> = HashMap::new();
    let mut open = packer.open.lock().await;
    for (digest, content) in blobs {
        if let Some(ticket) = packer.pending().get(&digest) {
            tickets.entry(ticket.number).or_insert_with(|| ticket.clone());
            continue;
        }
        if open.as_ref().is_some_and(|pack| !pack.has_room_for(content.len()))
            && let Some(full) = open.take()
        {
            send(inner, full);
        }
        if open.is_none() {
            let permit = Arc::clone(&packer.permits).acquire_owned().await.map_err(|error| {
                SourceError::new(ErrorKind::Cancelled, "write pack", "the store is closed").with_source(error)
            })?;
            *open = Some(OpenPack {
                content: packer.buffer(),
                records: Vec::new(),
                sender: watch::Sender::new(None),
                number: packer.next.fetch_add(1, Ordering::Relaxed),
                _permit: permit,
            });
        }
        let Some(pack) = open.as_mut() else { continue };
        let length = u32::try_from(content.len()).map_err(|_| {
            SourceError::contract("write pack", "a blob of 4 GiB or more does not go into a pack")
        })?;
        pack.content.extend_from_slice(&content);
        pack.records.push(Record { digest, length });
        packer.pending().insert(digest, pack.ticket());
        if let Entry::Vacant(entry) = tickets.entry(pack.number) {
            entry.insert(pack.ticket());
        }
    }
    Ok(tickets.into_values().collect())
}

/// Sends the open pack on its way.
pub(crate) async fn send_open(inner: &Arc<Inner>) {
    if let Some(pack) = inner.packer.open.lock().await.take() {
        send(inner, pack);
    }
}

/// Sends the open pack on its way and waits until no pack is on its way.
pub(crate) async fn flush(inner: &Arc<Inner>) -> Result<(), SourceError> {
    send_open(inner).await;
    let waiting: Vec<Ticket> = inner.packer.under_way().values().cloned().collect();
    for mut ticket in waiting {
        ticket.stored().await?;
    }
    release_buffer(inner);
    Ok(())
}

/// Gives the memory of the spare buffer back.
pub(crate) fn release_buffer(inner: &Arc<Inner>) {
    inner.packer.spare().take();
}

fn send(inner: &Arc<Inner>, pack: OpenPack) {
    inner.packer.under_way().insert(pack.number, pack.ticket());
    let inner = Arc::clone(inner);
    // A task of its own: the call that filled the pack may be dropped, and others have blobs in it.
    tokio::spawn(async move {
        let OpenPack { content, records, sender, number, _permit } = pack;
        let digests: Vec<Digest> = records.iter().map(|record| record.digest).collect();
        let outcome = inner.put_pack(content, records).await.map(|buffer| {
            if let Some(mut buffer) = buffer {
                buffer.clear();
                *inner.packer.spare() = Some(buffer);
            }
        });
        {
            let mut pending = inner.packer.pending();
            for digest in &digests {
                if pending.get(digest).is_some_and(|ticket| ticket.number == number) {
                    pending.remove(digest);
                }
            }
        }
        inner.packer.under_way().remove(&number);
        let _ = sender.send(Some(outcome.map_err(|error| (error.kind(), error.to_string()))));
    });
}
