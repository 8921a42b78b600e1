//! Answers for the index of a pack: which blobs it holds, in order. Pure; the bytes are in `docs/formats/store.md`.
//!
//! A pack's id is the hash of its index, not of its bytes. The index names every blob by digest and length, so
//! it commits to the bytes, and packs that cut the same bytes in other places have other ids.

use coldframe_core::Digest;

const MAGIC: &[u8; 16] = b"coldframe-idx 1\n";
const HEADER_BYTES: usize = MAGIC.len() + 4 + 8;
const RECORD_BYTES: usize = 32 + 4;

/// One blob of a pack. Its offset is the sum of the lengths before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) digest: Digest,
    pub(crate) length: u32,
}

/// Writes the index.
pub(crate) fn encode(records: &[Record]) -> Vec<u8> {
    let count = u32::try_from(records.len()).expect("a pack is closed long before it holds 2^32 blobs");
    let length: u64 = records.iter().map(|record| u64::from(record.length)).sum();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + records.len() * RECORD_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    for record in records {
        bytes.extend_from_slice(record.digest.as_bytes());
        bytes.extend_from_slice(&record.length.to_le_bytes());
    }
    bytes
}

/// Reads the index of the pack `id`; the reason where the bytes are not exactly that.
pub(crate) fn decode(id: &Digest, bytes: &[u8]) -> Result<Vec<Record>, &'static str> {
    if Digest::of(bytes) != *id {
        return Err("the bytes do not hash to the name");
    }
    let (magic, rest) = bytes.split_first_chunk::<16>().ok_or("the header is cut")?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or("the header is cut")?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or("the header is cut")?;
    if magic != MAGIC {
        return Err("the first line is not that of an index, format 1");
    }
    let (chunks, tail) = rest.as_chunks::<RECORD_BYTES>();
    if !tail.is_empty() || chunks.len() as u64 != u64::from(u32::from_le_bytes(*count)) {
        return Err("the count does not fit the size");
    }
    let records: Vec<Record> = chunks.iter().map(read_record).collect();
    let sum: u64 = records.iter().map(|record| u64::from(record.length)).sum();
    if sum != u64::from_le_bytes(*length) || sum > u64::from(u32::MAX) {
        return Err("the lengths do not add up");
    }
    Ok(records)
}

fn read_record(chunk: &[u8; RECORD_BYTES]) -> Record {
    let mut digest = [0; 32];
    let mut length = [0; 4];
    digest.copy_from_slice(&chunk[..32]);
    length.copy_from_slice(&chunk[32..]);
    Record { digest: Digest::from_bytes(digest), length: u32::from_le_bytes(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        [&b"hello\n"[..], b"", b"a\0b"]
            .iter()
            .map(|content| Record { digest: Digest::of(content), length: content.len() as u32 })
            .collect()
    }

    #[test]
    fn the_index_of_the_golden_store_reads_and_writes_as_it_stands() {
        let golden = include_bytes!("../tests/golden/store/v1/pack.idx");
        let id = include_str!("../tests/golden/store/v1/pack.id").trim().parse().unwrap();
        assert_eq!(encode(&records()), golden);
        assert_eq!(decode(&id, golden), Ok(records()));
    }

    #[test]
    fn every_other_text_is_refused_even_under_its_own_hash() {
        let good = encode(&records());
        assert!(decode(&Digest::of(b"other"), &good).is_err());
        let mut bad = vec![good[..good.len() - 1].to_vec(), good[..10].to_vec(), Vec::new()];
        bad.push([&good[..], b"x"].concat());
        for position in [0, 16, 20, good.len() - 4] {
            let mut changed = good.clone();
            changed[position] ^= 1;
            bad.push(changed);
        }
        for bytes in bad {
            assert!(decode(&Digest::of(&bytes), &bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn packs_that_cut_equal_bytes_in_other_places_have_other_ids() {
        let cut = |parts: [&[u8]; 2]| {
            Digest::of(&encode(
                &parts.map(|part| Record { digest: Digest::of(part), length: part.len() as u32 }),
            ))
        };
        assert_ne!(cut([b"ab", b"c"]), cut([b"a", b"bc"]));
    }
}
