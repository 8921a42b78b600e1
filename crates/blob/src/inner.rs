//! Answers for the state that all clones of a store share, and for loading the pack indexes into it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use bytes::Bytes;
use coldframe_core::{Digest, SourceError};
use tokio::sync::Mutex;

use crate::digest_map::DigestSet;
use crate::index::{Index, settled};
use crate::layout;
use crate::ledger::{self, Container, Findings};
use crate::objects::{Objects, blocking};
use crate::pack::{self, Record};
use crate::packer::Packer;
use crate::state::{ObjectState, Verified};

/// What all clones of a store share.
pub(crate) struct Inner {
    pub(crate) objects: Objects,
    index: RwLock<Index>,
    loaded: AtomicBool,
    /// The state of the folder of packs at the last load, where an equal one proves that nothing was added.
    loading: Mutex<Option<ObjectState>>,
    /// Held while containers are hashed, so that several callers do not hash the same one.
    pub(crate) checking: Mutex<()>,
    pub(crate) packer: Packer,
}

impl Inner {
    pub(crate) fn new(objects: Objects) -> Self {
        Self {
            objects,
            index: RwLock::default(),
            loaded: AtomicBool::new(false),
            loading: Mutex::default(),
            checking: Mutex::default(),
            packer: Packer::default(),
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the indexes once; what other processes add later is found by [`Self::refresh_index`].
    pub(crate) async fn load_index(&self) -> Result<(), SourceError> {
        if self.loaded.load(Ordering::Acquire) { Ok(()) } else { self.refresh_index().await }
    }

    /// Loads the indexes that were added since the last load. Costs one look at a folder where none were.
    pub(crate) async fn refresh_index(&self) -> Result<(), SourceError> {
        let mut last = self.loading.lock().await;
        let now = SystemTime::now();
        let folder = match self.objects.disk() {
            Some(_) => self.objects.state(layout::PACKS.to_owned()).await?,
            None => None,
        };
        if folder.is_some() && *last == folder {
            return Ok(());
        }
        let first = !self.loaded.load(Ordering::Acquire);
        let findings = if first { self.read_ledger().await } else { Findings::new() };
        let written_again = self.packs_written_again().await?;
        let new = self.new_packs(&written_again).await?;
        let loaded = self.read_indexes(new).await?;
        let blobs = loaded.iter().filter_map(|(_, records)| Some(records.as_ref()?.len())).sum();
        {
            let mut index = self.index_mut();
            index.unreadable.clear();
            index.expect_blobs(blobs);
        }
        for (id, records) in loaded {
            match records {
                Some(records) => self.enter(id, &records, &findings).await?,
                None => self.index_mut().unreadable.push(id),
            }
        }
        self.index_mut().take_loose_findings(&findings);
        self.loaded.store(true, Ordering::Release);
        *last = folder.filter(|state| state.is_settled(now));
        Ok(())
    }

    /// The packs on the store that the memory does not have, oldest first, so that the newest place wins.
    async fn new_packs(&self, written_again: &DigestSet) -> Result<Vec<Digest>, SourceError> {
        let mut found = Vec::new();
        for object in self.objects.list(layout::PACKS, ".idx").await? {
            let name = object.name.strip_suffix(".idx");
            if let Some(id) = name.and_then(|name| name.parse::<Digest>().ok()) {
                found.push((object.modified, id));
            }
        }
        found.sort_unstable();
        let index = self.index();
        let is_new = |id: &Digest| written_again.contains(id) || index.number_of(id).is_none();
        Ok(found.into_iter().map(|(_, id)| id).filter(is_new).collect())
    }

    /// Packs in which something was wrong and whose file is another one now.
    async fn packs_written_again(&self) -> Result<DigestSet, SourceError> {
        let damaged: Vec<(Digest, Option<ObjectState>)> = {
            let index = self.index();
            let packs = index.damaged_packs().into_iter().map(|number| index.pack(number));
            packs.map(|pack| (pack.id, pack.damaged_at.clone().filter(|_| !pack.gone))).collect()
        };
        let names = damaged.iter().map(|(id, _)| layout::pack(id)).collect();
        let states = self.objects.states(names).await?;
        let changed = damaged.into_iter().zip(states).filter(|((_, then), now)| now.is_some() && then != now);
        Ok(changed.map(|((id, _), _)| id).collect())
    }

    async fn enter(&self, id: Digest, records: &[Record], findings: &Findings) -> Result<(), SourceError> {
        let finding = findings.get(&Container::Pack(id));
        let mut damaged = Vec::new();
        if let Some(finding) = finding
            && !finding.damaged.is_empty()
            && self.objects.state(layout::pack(&id)).await?.as_ref() == Some(&finding.state)
        {
            damaged.clone_from(&finding.damaged);
        }
        let unusable = finding.is_some_and(|finding| finding.damaged.len() != damaged.len());
        let verified = finding.filter(|_| !unusable).map(|finding| settled(finding.state.clone()));
        self.index_mut().add_pack(id, records, verified, damaged);
        Ok(())
    }

    /// The records of a pack, or `None` where its index is gone or damaged.
    pub(crate) async fn read_index(&self, id: &Digest) -> Result<Option<Vec<Record>>, SourceError> {
        Ok(self.read_indexes(vec![*id]).await?.pop().and_then(|(_, records)| records))
    }

    /// [`Self::read_index`] for many packs, in their order.
    async fn read_indexes(
        &self,
        ids: Vec<Digest>,
    ) -> Result<Vec<(Digest, Option<Vec<Record>>)>, SourceError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.objects.read_many(ids.iter().map(layout::pack_index).collect()).await?;
        blocking(move || {
            let decode = |id: &Digest, bytes: Option<Bytes>| {
                let decoded = pack::decode(id, &bytes?);
                decoded.inspect_err(|reason| tracing::warn!(%id, reason, "a pack index is damaged")).ok()
            };
            ids.into_iter().zip(read).map(|(id, bytes)| (id, decode(&id, bytes))).collect()
        })
        .await
    }

    /// Writes a pack, then the index through which others find it, and enters it. Gives the buffer back where it
    /// is free again.
    pub(crate) async fn put_pack(
        &self,
        content: Vec<u8>,
        records: Vec<Record>,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        let index = pack::encode(&records);
        let id = Digest::of(&index);
        let length = content.len() as u64;
        let name = layout::pack(&id);
        let buffer = self.objects.publish(name.clone(), content).await?;
        let seen = SystemTime::now();
        let state = self.objects.state(name.clone()).await?.filter(|state| state.size == length);
        let state = state.ok_or_else(|| {
            SourceError::integrity("write pack", "the pack is not there as it was written")
                .with_subject(&name)
        })?;
        self.objects.publish(layout::pack_index(&id), index).await?;
        self.index_mut().add_pack(id, &records, Some(Verified::new(state, seen)), Vec::new());
        Ok(buffer)
    }

    async fn read_ledger(&self) -> Findings {
        match self.objects.read(layout::LEDGER).await {
            Ok(bytes) => ledger::parse(&String::from_utf8_lossy(&bytes)),
            Err(_) => Findings::new(),
        }
    }

    /// Adds what was found to the ledger. A ledger that cannot be written costs the next capture time, no more.
    pub(crate) async fn save_ledger(&self) {
        if !std::mem::take(&mut self.index_mut().findings_changed) {
            return;
        }
        let mut all = self.read_ledger().await;
        let ours = self.index().findings();
        {
            let index = self.index();
            all.retain(|container, _| match container {
                Container::Pack(id) => index.number_of(id).is_none(),
                Container::Loose(_) => true,
            });
        }
        all.extend(ours);
        let text = ledger::format(&all);
        if let Err(error) = self.objects.publish(layout::LEDGER.to_owned(), text.into_bytes()).await {
            tracing::warn!(%error, "the record of verified packs was not written");
        }
    }
}
