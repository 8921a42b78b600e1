//! Answers for where each packed blob lies, in memory. Of several places of a blob the newest good one is used.

use std::time::SystemTime;

use coldframe_core::Digest;

use crate::digest_map::{DigestMap, DigestSet};
use crate::ledger::{Container, Finding, Findings};
use crate::pack::Record;
use crate::state::{ObjectState, Verified};

/// Where a blob lies in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the pack in this index.
    pub(crate) pack: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// A pack that was found through its index.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) id: Digest,
    pub(crate) verified: Option<Verified>,
    /// Blobs that were wrong, and the state of the pack then; no state where the pack was gone.
    pub(crate) damaged: Vec<Digest>,
    pub(crate) damaged_at: Option<ObjectState>,
    pub(crate) gone: bool,
}

/// All places that are known and not known to be damaged.
#[derive(Debug, Default)]
pub(crate) struct Index {
    places: DigestMap<Place>,
    /// Older places of blobs that lie in several packs.
    older: DigestMap<Vec<Place>>,
    packs: Vec<Pack>,
    numbers: DigestMap<u32>,
    loose: DigestMap<Verified>,
    /// Indexes that are there and do not read; errors about missing blobs name them.
    pub(crate) unreadable: Vec<Digest>,
    /// Whether the findings differ from what the ledger on the disk says.
    pub(crate) findings_changed: bool,
}

impl Index {
    pub(crate) fn place(&self, digest: &Digest) -> Option<Place> {
        self.places.get(digest).copied()
    }

    pub(crate) fn pack(&self, number: u32) -> &Pack {
        &self.packs[number as usize]
    }

    /// How many packs are known; their numbers are below.
    pub(crate) fn packs(&self) -> usize {
        self.packs.len()
    }

    pub(crate) fn number_of(&self, id: &Digest) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The packs in which something was wrong.
    pub(crate) fn damaged_packs(&self) -> Vec<u32> {
        let wrong = |pack: &&Pack| pack.gone || !pack.damaged.is_empty();
        self.packs.iter().filter(wrong).filter_map(|pack| self.number_of(&pack.id)).collect()
    }

    /// Makes room for so many blobs more.
    pub(crate) fn expect_blobs(&mut self, blobs: usize) {
        self.places.reserve(blobs);
    }

    /// Enters a pack, or enters it again after it was written again. Blobs in `damaged` get no place.
    pub(crate) fn add_pack(
        &mut self,
        id: Digest,
        records: &[Record],
        verified: Option<Verified>,
        damaged: Vec<Digest>,
    ) -> u32 {
        let next = u32::try_from(self.packs.len()).expect("a disk holds fewer than 2^32 packs");
        let number = *self.numbers.entry(id).or_insert(next);
        let damaged_at =
            verified.as_ref().filter(|_| !damaged.is_empty()).map(|verified| verified.state.clone());
        let skip: DigestSet = damaged.iter().copied().collect();
        let pack = Pack { id, verified, damaged, damaged_at, gone: false };
        if number == next {
            self.packs.push(pack);
        } else {
            self.packs[number as usize] = pack;
        }
        let mut offset = 0;
        for record in records {
            let place = Place { pack: number, offset, length: record.length };
            offset += record.length;
            if skip.is_empty() || !skip.contains(&record.digest) {
                self.put(record.digest, place);
            }
        }
        number
    }

    fn put(&mut self, digest: Digest, place: Place) {
        let Some(old) = self.places.insert(digest, place) else { return };
        let older = self.older.entry(digest).or_default();
        older.push(old);
        older.retain(|old| old.pack != place.pack);
        if older.is_empty() {
            self.older.remove(&digest);
        }
    }

    /// Forgets that the blob lies in the pack, so that an older place or none is used.
    fn drop_place(&mut self, digest: &Digest, pack: u32) {
        if let Some(older) = self.older.get_mut(digest) {
            older.retain(|place| place.pack != pack);
        }
        if self.places.get(digest).is_some_and(|place| place.pack == pack) {
            match self.older.get_mut(digest).and_then(Vec::pop) {
                Some(place) => self.places.insert(*digest, place),
                None => self.places.remove(digest),
            };
        }
        if self.older.get(digest).is_some_and(Vec::is_empty) {
            self.older.remove(digest);
        }
    }

    /// Notes that one blob was wrong when it was read.
    pub(crate) fn blob_is_damaged(&mut self, digest: &Digest, pack: u32, state: Option<ObjectState>) {
        self.drop_place(digest, pack);
        let pack = &mut self.packs[pack as usize];
        if !pack.damaged.contains(digest) {
            pack.damaged.push(*digest);
        }
        pack.damaged_at = state;
        pack.verified = None;
        self.findings_changed = true;
    }

    /// Notes that the pack's file is not there.
    pub(crate) fn pack_is_gone(&mut self, number: u32) {
        let lost: Vec<Digest> =
            self.places.iter().filter(|(_, place)| place.pack == number).map(|(digest, _)| *digest).collect();
        for digest in &lost {
            self.drop_place(digest, number);
        }
        let mut older = std::mem::take(&mut self.older);
        older.retain(|_, places| {
            places.retain(|place| place.pack != number);
            !places.is_empty()
        });
        self.older = older;
        let pack = &mut self.packs[number as usize];
        pack.gone = true;
        pack.verified = None;
        self.findings_changed = true;
    }

    /// Notes what a hash of the whole pack found.
    pub(crate) fn pack_is_checked(&mut self, number: u32, verified: Verified, damaged: Vec<Digest>) {
        for digest in &damaged {
            self.drop_place(digest, number);
        }
        let pack = &mut self.packs[number as usize];
        pack.damaged_at = (!damaged.is_empty()).then(|| verified.state.clone());
        pack.damaged = damaged;
        pack.verified = Some(verified);
        self.findings_changed = true;
    }

    /// True where the pack's blobs need no new hash; notes that the state was seen.
    pub(crate) fn see_pack(
        &mut self,
        number: u32,
        state: &ObjectState,
        since: SystemTime,
        now: SystemTime,
    ) -> bool {
        see(self.packs[number as usize].verified.as_mut(), state, since, now, &mut self.findings_changed)
    }

    /// True where the loose blob needs no new hash; notes that the state was seen.
    pub(crate) fn see_loose(
        &mut self,
        digest: &Digest,
        state: &ObjectState,
        since: SystemTime,
        now: SystemTime,
    ) -> bool {
        see(self.loose.get_mut(digest), state, since, now, &mut self.findings_changed)
    }

    /// Notes that the loose blob is right, or not.
    pub(crate) fn loose_is_checked(&mut self, digest: Digest, verified: Option<Verified>) {
        self.findings_changed = true;
        match verified {
            Some(verified) => self.loose.insert(digest, verified),
            None => self.loose.remove(&digest),
        };
    }

    /// Takes over what the ledger says about loose blobs.
    pub(crate) fn take_loose_findings(&mut self, findings: &Findings) {
        for (container, finding) in findings {
            if let Container::Loose(digest) = container {
                let verified = settled(finding.state.clone());
                self.loose.entry(*digest).or_insert(verified);
            }
        }
    }

    /// What the ledger may say: findings that hold as long as the state does.
    pub(crate) fn findings(&self) -> Findings {
        let keep = |verified: &Verified, damaged: &[Digest]| {
            let finding = || Finding { state: verified.state.clone(), damaged: damaged.to_vec() };
            verified.settled.then(finding)
        };
        let packs = self.packs.iter().filter_map(|pack| {
            Some((Container::Pack(pack.id), keep(pack.verified.as_ref()?, &pack.damaged)?))
        });
        let loose = self
            .loose
            .iter()
            .filter_map(|(digest, verified)| Some((Container::Loose(*digest), keep(verified, &[])?)));
        packs.chain(loose).collect()
    }
}

/// A verification that the ledger remembers; it was settled when it was written down.
pub(crate) fn settled(state: ObjectState) -> Verified {
    Verified { state, seen: SystemTime::UNIX_EPOCH, settled: true }
}

fn see(
    verified: Option<&mut Verified>,
    state: &ObjectState,
    since: SystemTime,
    now: SystemTime,
    changed: &mut bool,
) -> bool {
    let Some(verified) = verified else { return false };
    if !verified.covers(state, since) {
        return false;
    }
    let was_settled = verified.settled;
    verified.see(now);
    *changed |= verified.settled != was_settled;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(contents: &[&[u8]]) -> Vec<Record> {
        contents.iter().map(|c| Record { digest: Digest::of(c), length: c.len() as u32 }).collect()
    }

    #[test]
    fn the_newest_good_place_wins_and_an_older_one_stands_in() {
        let mut index = Index::default();
        let one = index.add_pack(Digest::of(b"one"), &records(&[b"a", b"bb"]), None, vec![]);
        let two = index.add_pack(Digest::of(b"two"), &records(&[b"bb", b"c"]), None, vec![]);
        let place =
            |index: &Index, content: &[u8]| index.place(&Digest::of(content)).map(|p| (p.pack, p.offset));
        assert_eq!(place(&index, b"bb"), Some((two, 0)));
        index.blob_is_damaged(&Digest::of(b"bb"), two, None);
        assert_eq!(place(&index, b"bb"), Some((one, 1)));
        assert_eq!(index.damaged_packs(), [two]);
        index.pack_is_gone(one);
        assert_eq!(place(&index, b"bb"), None);
        assert_eq!(place(&index, b"a"), None);
        assert_eq!(place(&index, b"c"), Some((two, 2)));
        assert_eq!(index.add_pack(Digest::of(b"one"), &records(&[b"a", b"bb"]), None, vec![]), one);
        assert_eq!(place(&index, b"a"), Some((one, 0)));
    }
}
