//! Answers for reading blobs: size and hash are checked on every read, and damage is remembered.

use coldframe_core::{ByteStream, Digest, DigestWriter, ErrorKind, SourceError, Stored};

use crate::check::PIECE_BYTES;
use crate::index::Place;
use crate::inner::Inner;
use crate::layout::{self, LARGE_BYTES};
use crate::objects::{INLINE_BYTES, blocking};

const READ: &str = "read blob";

impl Inner {
    /// The whole blob from the first place that holds it right. Where none does, indexes that other processes
    /// added are looked at before the answer is an error.
    pub(crate) async fn fetch(&self, blob: Stored) -> Result<Vec<u8>, SourceError> {
        self.load_index().await?;
        let mut damage = match self.fetch_known(blob).await? {
            Ok(content) => return Ok(content),
            Err(damage) => damage,
        };
        self.refresh_index().await?;
        match self.fetch_known(blob).await? {
            Ok(content) => return Ok(content),
            Err(again) => damage = damage.or(again),
        }
        Err(self.unreadable(&blob.digest, damage))
    }

    /// The blob from a place that is known; otherwise what was wrong, where anything was there.
    async fn fetch_known(&self, blob: Stored) -> Result<Result<Vec<u8>, Option<String>>, SourceError> {
        let mut damage = None;
        loop {
            let known = {
                let index = self.index();
                index.place(&blob.digest).map(|place| (place, index.pack(place.pack).id))
            };
            let Some((place, id)) = known else { break };
            if u64::from(place.length) != blob.size {
                damage = Some(wrong_size(u64::from(place.length), blob.size));
                break;
            }
            match self.fetch_packed(&blob.digest, &id, place).await? {
                Ok(content) => return Ok(Ok(content)),
                Err(reason) => damage = Some(reason),
            }
            let state = self.objects.state(layout::pack(&id)).await?;
            let mut index = self.index_mut();
            match state {
                Some(state) => index.blob_is_damaged(&blob.digest, place.pack, Some(state)),
                None => index.pack_is_gone(place.pack),
            }
        }
        match self.fetch_loose(blob).await? {
            Ok(content) => Ok(Ok(content)),
            Err(reason) => Ok(Err(reason.or(damage))),
        }
    }

    /// The blob from its pack, or what is wrong. Reads through a file that was open before are tried once more
    /// with the file that stands there now, since another process may have written it again.
    pub(crate) async fn fetch_packed(
        &self,
        digest: &Digest,
        id: &Digest,
        place: Place,
    ) -> Result<Result<Vec<u8>, String>, SourceError> {
        if place.length == 0 {
            return Ok(Ok(Vec::new()));
        }
        let name = layout::pack(id);
        let mut damage = String::new();
        for _ in 0..2 {
            let read = self.objects.read_range(&name, u64::from(place.offset), place.length as usize).await;
            match read {
                Ok(content) => match hash_matches(*digest, content).await? {
                    Some(content) => return Ok(Ok(content)),
                    None => damage = format!("the bytes in pack {id} do not hash to it"),
                },
                Err(error) => {
                    let end = u64::from(place.offset) + u64::from(place.length);
                    let size = self.objects.state(name.clone()).await?.map_or(0, |state| state.size);
                    if size >= end && !self.is_damage(&error) {
                        return Err(error);
                    }
                    damage = match size {
                        0 => format!("pack {id} is gone or empty"),
                        size if size < end => format!("pack {id} is cut to {size} bytes"),
                        _ => format!("pack {id} cannot be read: {error}"),
                    };
                }
            }
            match self.objects.disk() {
                Some(disk) => disk.forget(&name),
                None => break,
            }
        }
        Ok(Err(damage))
    }

    /// Whether a place that is known holds the blob right, as a read just now tells.
    pub(crate) async fn holds_right(&self, blob: Stored) -> Result<bool, SourceError> {
        self.load_index().await?;
        Ok(self.fetch_known(blob).await?.is_ok())
    }

    /// The blob where it stands alone; otherwise what is wrong, or nothing where it does not stand alone.
    async fn fetch_loose(&self, blob: Stored) -> Result<Result<Vec<u8>, Option<String>>, SourceError> {
        let name = layout::loose(&blob.digest);
        let Some(state) = self.objects.state(name.clone()).await? else { return Ok(Err(None)) };
        if state.size != blob.size {
            return Ok(Err(Some(wrong_size(state.size, blob.size))));
        }
        let content = match self.objects.read(&name).await {
            Ok(content) => Vec::from(content),
            Err(error) if self.is_damage(&error) => return Ok(Err(Some(error.to_string()))),
            Err(error) => return Err(error),
        };
        match hash_matches(blob.digest, content).await? {
            Some(content) => Ok(Ok(content)),
            None => {
                self.index_mut().loose_is_checked(blob.digest, None);
                Ok(Err(Some("its bytes do not hash to it".to_owned())))
            }
        }
    }

    /// The error of a blob that no place holds.
    pub(crate) fn unreadable(&self, digest: &Digest, damage: Option<String>) -> SourceError {
        let advice = "capture the source again to store it anew";
        if let Some(damage) = damage {
            return SourceError::corrupt_blob(READ, digest, format_args!("{damage}; {advice}"));
        }
        if let Some(id) = self.index().unreadable.first() {
            let detail = format_args!("no index names it, and the index of pack {id} is damaged; {advice}");
            return SourceError::corrupt_blob(READ, digest, detail);
        }
        let index = self.index();
        if let Some(number) = index.damaged_packs().first() {
            let id = index.pack(*number).id;
            let detail = format_args!("no intact place holds it, and pack {id} is damaged; {advice}");
            return SourceError::corrupt_blob(READ, digest, detail);
        }
        SourceError::new(ErrorKind::NotFound, READ, format!("blob {digest} is not in this store"))
    }

    /// Whether the blob is stored with its size and not known to be damaged.
    pub(crate) async fn has(&self, blob: Stored) -> Result<bool, SourceError> {
        self.load_index().await?;
        if self.has_known(blob).await? {
            return Ok(true);
        }
        self.refresh_index().await?;
        self.has_known(blob).await
    }

    async fn has_known(&self, blob: Stored) -> Result<bool, SourceError> {
        loop {
            let known = {
                let index = self.index();
                index.place(&blob.digest).map(|place| (place, index.pack(place.pack).id))
            };
            let Some((place, id)) = known else { break };
            if u64::from(place.length) != blob.size {
                return Ok(false);
            }
            let end = u64::from(place.offset) + blob.size;
            match self.objects.state(layout::pack(&id)).await? {
                Some(state) if state.size >= end => return Ok(true),
                Some(state) => {
                    self.index_mut().blob_is_damaged(&blob.digest, place.pack, Some(state));
                }
                None => self.index_mut().pack_is_gone(place.pack),
            }
        }
        let loose = self.objects.state(layout::loose(&blob.digest)).await?;
        Ok(loose.is_some_and(|state| state.size == blob.size))
    }

    /// The blob as a stream. What stands alone is read piece by piece, so memory does not grow with its size.
    pub(crate) async fn stream<'a>(&'a self, blob: Stored) -> Result<ByteStream<'a>, SourceError> {
        self.load_index().await?;
        let stands_alone = blob.size >= LARGE_BYTES as u64 && self.index().place(&blob.digest).is_none();
        let state = match stands_alone {
            true => self.objects.state(layout::loose(&blob.digest)).await?,
            false => None,
        };
        if let Some(state) = state {
            if state.size != blob.size {
                let damage = wrong_size(state.size, blob.size);
                return Err(self.unreadable(&blob.digest, Some(damage)));
            }
            let start = Some((0, DigestWriter::default()));
            return Ok(Box::pin(futures_util::stream::unfold(start, move |progress| async move {
                let (offset, hash) = progress?;
                match self.next_piece(blob, offset, hash).await {
                    Ok(None) => None,
                    Ok(Some((piece, hash))) => {
                        let next = offset + piece.len() as u64;
                        Some((Ok(piece), Some((next, hash))))
                    }
                    Err(error) => Some((Err(error), None)),
                }
            })));
        }
        Ok(coldframe_core::once(self.fetch(blob).await?))
    }

    async fn next_piece(
        &self,
        blob: Stored,
        offset: u64,
        hash: DigestWriter,
    ) -> Result<Option<(Vec<u8>, DigestWriter)>, SourceError> {
        let damaged = |reason: &str| {
            self.index_mut().loose_is_checked(blob.digest, None);
            self.unreadable(&blob.digest, Some(reason.to_owned()))
        };
        if offset == blob.size {
            let right = hash.finish() == (blob.digest, blob.size);
            return if right { Ok(None) } else { Err(damaged("its bytes do not hash to it")) };
        }
        let end = blob.size.min(offset + PIECE_BYTES);
        let name = layout::loose(&blob.digest);
        match self.objects.read_piece(&name, offset..end, hash).await {
            Ok((piece, _)) if piece.len() as u64 != end - offset => Err(damaged("it was cut")),
            Ok(next) => Ok(Some(next)),
            Err(error) if self.is_damage(&error) => Err(damaged("it was cut or removed")),
            Err(error) => Err(error),
        }
    }
}

fn wrong_size(stored: u64, asked: u64) -> String {
    format!("it is stored with {stored} bytes, not {asked}")
}

async fn hash_matches(digest: Digest, content: Vec<u8>) -> Result<Option<Vec<u8>>, SourceError> {
    let is_short = content.len() <= INLINE_BYTES;
    let check = move || (Digest::of(&content) == digest).then_some(content);
    if is_short { Ok(check()) } else { blocking(check).await }
}
