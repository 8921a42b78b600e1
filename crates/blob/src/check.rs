//! Answers for whether stored blobs are right: by a container's remembered state, or by hashing it again.

use std::collections::{BTreeMap, HashSet};
use std::error::Error as _;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use coldframe_core::{Digest, DigestWriter, ErrorKind, SourceError, Stored};
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::inner::Inner;
use crate::layout;
use crate::state::{ObjectState, Verified};

/// How many bytes of a large blob are read at once.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// How many packs are hashed at once.
const PACKS_AT_ONCE: usize = 2;

/// A time in which one look at a container is enough: a capture, or one call.
pub(crate) struct Visit {
    since: SystemTime,
    looked_at: Mutex<HashSet<u32>>,
}

impl Visit {
    pub(crate) fn new() -> Self {
        Self::since(SystemTime::now())
    }

    /// A visit that looks at everything once more, and trusts what was hashed or written after `since`.
    pub(crate) fn since(since: SystemTime) -> Self {
        Self { since, looked_at: Mutex::default() }
    }

    /// The same capture, seen afresh.
    pub(crate) fn again(&self) -> Self {
        Self::since(self.since)
    }

    fn looked_at(&self) -> std::sync::MutexGuard<'_, HashSet<u32>> {
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A blob of a pack as bytes of it.
#[derive(Debug, Clone)]
struct Part {
    digest: Digest,
    range: Range<u64>,
}

impl Inner {
    /// Which of the blobs are stored with their size and right. A container whose state is not the remembered
    /// one is hashed first, and what is wrong in it counts as absent from then on. With `probe` blobs that no
    /// pack holds are also looked for alone.
    pub(crate) async fn present(
        &self,
        blobs: &[Stored],
        visit: &Visit,
        probe: bool,
    ) -> Result<Vec<bool>, SourceError> {
        self.load_index().await?;
        let mut answers = loop {
            let (answers, unseen) = self.look_up(blobs, visit);
            if unseen.is_empty() {
                break answers;
            }
            self.look_at_packs(&unseen, visit).await?;
            visit.looked_at().extend(unseen);
        };
        let mut alone = Vec::new();
        if probe {
            let missing = answers.iter().enumerate().filter(|(_, found)| !**found);
            alone.extend(missing.map(|(position, _)| position));
        }
        let names = alone.iter().map(|position| layout::loose(&blobs[*position].digest)).collect();
        for (position, state) in alone.iter().zip(self.objects.states(names).await?) {
            if let Some(state) = state {
                answers[*position] = self.loose_is_right(blobs[*position], state, visit).await?;
            }
        }
        Ok(answers)
    }

    /// Which blobs lie in packs, and which of these packs the visit has not looked at.
    fn look_up(&self, blobs: &[Stored], visit: &Visit) -> (Vec<bool>, Vec<u32>) {
        let index = self.index();
        let looked_at = visit.looked_at();
        let mut unseen: Vec<u32> = Vec::new();
        let mut last_seen = None;
        let mut is_packed = |blob: &Stored| {
            let Some(place) = index.place(&blob.digest) else { return false };
            if last_seen != Some(place.pack) && unseen.last() != Some(&place.pack) {
                if looked_at.contains(&place.pack) {
                    last_seen = Some(place.pack);
                } else {
                    unseen.push(place.pack);
                }
            }
            u64::from(place.length) == blob.size
        };
        let answers = blobs.iter().map(&mut is_packed).collect();
        unseen.sort_unstable();
        unseen.dedup();
        (answers, unseen)
    }

    /// Looks at packs, hashes those that are not as they were, and says whether there were none of these.
    pub(crate) async fn look_at_packs(&self, packs: &[u32], visit: &Visit) -> Result<bool, SourceError> {
        let ids: Vec<Digest> = packs.iter().map(|number| self.index().pack(*number).id).collect();
        let names = ids.iter().map(layout::pack).collect();
        let now = SystemTime::now();
        let states = self.objects.states(names).await?;
        let mut unknown = Vec::new();
        let mut all_are_there = true;
        {
            let mut index = self.index_mut();
            for ((number, id), state) in packs.iter().zip(ids).zip(states) {
                match state {
                    None => {
                        index.pack_is_gone(*number);
                        all_are_there = false;
                    }
                    Some(state) if index.see_pack(*number, &state, visit.since, now) => {}
                    Some(_) => unknown.push((*number, id)),
                }
            }
        }
        if unknown.is_empty() {
            return Ok(all_are_there);
        }
        let _checking = self.checking.lock().await;
        let checks = futures_util::stream::iter(unknown)
            .map(|(number, id)| self.check_whole_pack(number, id, visit.since));
        checks.buffer_unordered(PACKS_AT_ONCE).try_collect::<()>().await?;
        Ok(false)
    }

    async fn check_whole_pack(&self, number: u32, id: Digest, since: SystemTime) -> Result<(), SourceError> {
        let seen = SystemTime::now();
        let Some(state) = self.objects.state(layout::pack(&id)).await? else {
            self.index_mut().pack_is_gone(number);
            return Ok(());
        };
        if self.index_mut().see_pack(number, &state, since, seen) {
            return Ok(());
        }
        let Some(records) = self.read_index(&id).await? else {
            self.index_mut().pack_is_gone(number);
            return Ok(());
        };
        let mut offset = 0;
        let mut parts = Vec::with_capacity(records.len());
        for record in records {
            let end = offset + u64::from(record.length);
            parts.push(Part { digest: record.digest, range: offset..end });
            offset = end;
        }
        let damaged = self.check_parts(&id, parts).await?;
        if !damaged.is_empty() {
            tracing::warn!(pack = %id, blobs = damaged.len(), "a pack is damaged");
        }
        // The state from before the hash: a write during it shows as another state at the next look.
        self.index_mut().pack_is_checked(number, Verified::new(state, seen), damaged);
        Ok(())
    }

    /// Hashes parts of a pack, opened anew, and answers with those that are wrong.
    async fn check_parts(&self, id: &Digest, parts: Vec<Part>) -> Result<Vec<Digest>, SourceError> {
        let name = layout::pack(id);
        let size = self.objects.state(name.clone()).await?.map_or(0, |state| state.size);
        // Stores refuse to read nothing, and an empty blob is right wherever its pack is.
        let parts = parts.into_iter().filter(|part| !part.range.is_empty());
        let (inside, outside): (Vec<Part>, Vec<Part>) = parts.partition(|part| part.range.end <= size);
        let mut damaged: Vec<Digest> = outside.iter().map(|part| part.digest).collect();
        let ranges = inside.iter().map(|part| part.range.clone()).collect();
        let hashes = match self.objects.hash_ranges(&name, ranges).await {
            Ok(hashes) => hashes,
            Err(error) if self.is_damage(&error) => {
                damaged.extend(inside.iter().map(|part| part.digest));
                return Ok(damaged);
            }
            Err(error) => return Err(error),
        };
        for (part, hash) in inside.iter().zip(hashes) {
            match hash {
                Ok(digest) if digest == part.digest => {}
                Ok(_) => damaged.push(part.digest),
                Err(error) if self.is_damage(&error) => damaged.push(part.digest),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    /// Whether an error of a read means that the bytes are lost: on a local disk a bad sector does, a lack of
    /// memory or of file handles does not.
    pub(crate) fn is_damage(&self, error: &SourceError) -> bool {
        const EIO: i32 = 5;
        const EBADMSG: i32 = 74;
        const EUCLEAN: i32 = 117;
        if error.kind() == ErrorKind::NotFound {
            return true;
        }
        let local = self.objects.disk().is_some() && error.kind() == ErrorKind::Io;
        local
            && match error.source() {
                None => true,
                Some(cause) => cause.downcast_ref::<std::io::Error>().is_some_and(|system| {
                    system.kind() == std::io::ErrorKind::UnexpectedEof
                        || matches!(system.raw_os_error(), Some(EIO | EBADMSG | EUCLEAN))
                }),
            }
    }

    async fn loose_is_right(
        &self,
        blob: Stored,
        state: ObjectState,
        visit: &Visit,
    ) -> Result<bool, SourceError> {
        if state.size != blob.size {
            return Ok(false);
        }
        let seen = SystemTime::now();
        if self.index_mut().see_loose(&blob.digest, &state, visit.since, seen) {
            return Ok(true);
        }
        let right = self.loose_hashes(blob).await?;
        let verified = right.then(|| Verified::new(state, seen));
        self.index_mut().loose_is_checked(blob.digest, verified);
        Ok(right)
    }

    /// Hashes a blob that stands alone and has the right size.
    async fn loose_hashes(&self, blob: Stored) -> Result<bool, SourceError> {
        let name = layout::loose(&blob.digest);
        let mut hash = DigestWriter::default();
        let mut offset = 0;
        while offset < blob.size {
            let end = blob.size.min(offset + PIECE_BYTES);
            hash = match self.objects.read_piece(&name, offset..end, hash).await {
                Ok((_, hash)) => hash,
                Err(error) if self.is_damage(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            offset = end;
        }
        Ok(hash.finish() == (blob.digest, blob.size))
    }

    /// Hashes every blob now, wherever it lies, and answers with those that no place holds right.
    pub(crate) async fn rehash(&self, blobs: &[Stored]) -> Result<HashSet<Digest>, SourceError> {
        self.refresh_index().await?;
        let mut packs: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
        let mut left = Vec::new();
        {
            let index = self.index();
            for blob in blobs {
                match index.place(&blob.digest) {
                    Some(place) if u64::from(place.length) == blob.size => {
                        let start = u64::from(place.offset);
                        let part = Part { digest: blob.digest, range: start..start + blob.size };
                        packs.entry(place.pack).or_default().push(part);
                    }
                    _ => left.push(*blob),
                }
            }
        }
        let wrong = Arc::new(Mutex::new(HashSet::new()));
        let checks = futures_util::stream::iter(packs).map(|(number, mut parts)| {
            let wrong = Arc::clone(&wrong);
            async move {
                parts.sort_unstable_by_key(|part| part.range.start);
                let id = self.index().pack(number).id;
                let damaged = self.check_parts(&id, parts).await?;
                if !damaged.is_empty() {
                    let state = self.objects.state(layout::pack(&id)).await?;
                    self.forget_damaged(number, &id, &damaged, state);
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).extend(damaged);
                }
                Ok::<(), SourceError>(())
            }
        });
        checks.buffer_unordered(PACKS_AT_ONCE).try_collect::<()>().await?;
        let mut wrong = std::mem::take(&mut *wrong.lock().unwrap_or_else(PoisonError::into_inner));
        left.extend(blobs.iter().filter(|blob| wrong.contains(&blob.digest)));
        wrong.clear();
        for blob in left {
            if !self.is_right_elsewhere(blob).await? {
                wrong.insert(blob.digest);
            }
        }
        Ok(wrong)
    }

    fn forget_damaged(&self, number: u32, id: &Digest, damaged: &[Digest], state: Option<ObjectState>) {
        if let Some(disk) = self.objects.disk() {
            disk.forget(&layout::pack(id));
        }
        let mut index = self.index_mut();
        for digest in damaged {
            index.blob_is_damaged(digest, number, state.clone());
        }
    }

    async fn is_right_elsewhere(&self, blob: Stored) -> Result<bool, SourceError> {
        if let Some(state) = self.objects.state(layout::loose(&blob.digest)).await?
            && state.size == blob.size
            && self.loose_hashes(blob).await?
        {
            return Ok(true);
        }
        match self.index().place(&blob.digest) {
            Some(place) if u64::from(place.length) == blob.size => {}
            _ => return Ok(false),
        }
        match self.fetch(blob).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Integrity | ErrorKind::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
