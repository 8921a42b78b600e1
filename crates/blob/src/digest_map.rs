//! Answers for maps and sets with digests as keys, at the cost of two multiplications a look-up.
//!
//! A digest is spread evenly already. The secret factor is there for contents that somebody chose so that many
//! of their digests begin with the same bits.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use coldframe_core::Digest;

/// A map with digests as keys.
pub(crate) type DigestMap<V> = HashMap<Digest, V, DigestState>;
/// A set of digests.
pub(crate) type DigestSet = HashSet<Digest, DigestState>;

/// What every hasher of one map starts from.
#[derive(Debug, Clone)]
pub(crate) struct DigestState {
    secret: u64,
    factor: u64,
}

impl Default for DigestState {
    fn default() -> Self {
        let random = RandomState::new();
        Self { secret: random.hash_one(0u8), factor: random.hash_one(1u8) | 1 }
    }
}

impl BuildHasher for DigestState {
    type Hasher = DigestHasher;

    fn build_hasher(&self) -> DigestHasher {
        DigestHasher { state: self.secret, factor: self.factor }
    }
}

/// Folds the first bytes of a digest.
#[derive(Debug)]
pub(crate) struct DigestHasher {
    state: u64,
    factor: u64,
}

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some((first, _)) = bytes.split_first_chunk::<8>() {
            let mixed = folded(self.state ^ u64::from_le_bytes(*first), self.factor);
            self.state = folded(mixed, GOLDEN);
        }
    }

    // The length, which is the same for every digest.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.state
    }
}

/// 2⁶⁴ divided by the golden ratio, whose multiples are spread most evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn folded(value: u64, factor: u64) -> u64 {
    let product = u128::from(value) * u128::from(factor);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_that_share_their_first_bits_are_spread() {
        let mut map = DigestMap::default();
        let mut buckets = HashSet::new();
        for number in 0..1000u16 {
            let mut bytes = [0; 32];
            bytes[6..8].copy_from_slice(&number.to_le_bytes());
            let digest = Digest::from_bytes(bytes);
            buckets.insert(map.hasher().hash_one(digest) % 1024);
            map.insert(digest, number);
        }
        assert_eq!(map.len(), 1000);
        assert!(buckets.len() > 400, "{}", buckets.len());
    }
}
