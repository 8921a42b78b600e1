//! Answers for a capture that found nothing new: an earlier snapshot, as long as the store holds all of it.

use coldframe_core::{Digest, ErrorKind, SourceError, SourceSnapshot, Stored};

use crate::check::Visit;
use crate::inner::Inner;
use crate::store::Store;

/// A pack that changes each time it is looked at is given up.
const LOOKS: u32 = 4;

/// What holds the blobs of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    packs: Vec<u32>,
    alone: Vec<Stored>,
}

/// A snapshot that stands for a whole capture, and where its blobs were found.
#[derive(Debug)]
pub(crate) struct Reused {
    pub(crate) snapshot: SourceSnapshot,
    pub(crate) holders: Holders,
}

/// The stored snapshot with all its blobs, or `None` where any of it is missing or damaged.
pub(crate) async fn find(store: &Store, id: &Digest, visit: &Visit) -> Result<Option<Reused>, SourceError> {
    let snapshot = match store.load_snapshot(id).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::Integrity | ErrorKind::Unsupported => Ok(None),
                _ => Err(error),
            };
        }
    };
    let holders = store.inner().holders(&snapshot, visit).await?;
    Ok(holders.map(|holders| Reused { snapshot, holders }))
}

impl Inner {
    /// Where the blobs of the snapshot lie, or `None` where one is missing or damaged. Containers are looked at,
    /// and hashed where they are not as they were.
    async fn holders(
        &self,
        snapshot: &SourceSnapshot,
        visit: &Visit,
    ) -> Result<Option<Holders>, SourceError> {
        self.load_index().await?;
        for _ in 0..LOOKS {
            let holders = self.find_holders(snapshot);
            if self.look_at_packs(&holders.packs, visit).await? {
                let present = self.present(&holders.alone, visit, true).await?;
                return Ok(present.into_iter().all(|present| present).then_some(holders));
            }
        }
        Ok(None)
    }

    fn find_holders(&self, snapshot: &SourceSnapshot) -> Holders {
        let index = self.index();
        let mut holders = Holders::default();
        let mut is_noted = vec![false; index.packs()];
        for blob in snapshot.entries().iter().filter_map(|entry| entry.node.blob()) {
            match index.place(&blob.digest) {
                Some(place) if u64::from(place.length) == blob.size => {
                    is_noted[place.pack as usize] = true;
                }
                _ => holders.alone.push(blob),
            }
        }
        let numbers = (0u32..).zip(is_noted);
        holders.packs.extend(numbers.filter_map(|(number, is_noted)| is_noted.then_some(number)));
        holders
    }

    /// Whether every holder is still what it was when it was found.
    pub(crate) async fn still_hold(&self, holders: &Holders, visit: &Visit) -> Result<bool, SourceError> {
        Ok(self.look_at_packs(&holders.packs, visit).await?
            && self.present(&holders.alone, visit, true).await?.into_iter().all(|present| present))
    }
}
