//! BLAKE3 digests: the names of blobs, manifests, trees and deltas.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A BLAKE3 hash of 32 bytes, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Takes 32 bytes that are a digest already.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Writes the 64 digits behind `text`, without the cost of the formatting machinery.
    pub(crate) fn push_hex(&self, text: &mut String) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for byte in self.0 {
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }

    /// The first twelve digits, for people; never use it as a key.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(64);
        self.push_hex(&mut text);
        formatter.pad(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits, got {0:?}")]
pub struct ParseDigestError(String);

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseDigestError(text.chars().take(80).collect());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refuse());
        }
        let mut bytes = [0u8; 32];
        let mut wrong = 0;
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
            wrong |= high | low;
            *byte = high << 4 | low;
        }
        if wrong & NO_NIBBLE == 0 { Ok(Self(bytes)) } else { Err(refuse()) }
    }
}

/// Stands for a byte that is no digit; the value of no digit has this bit.
const NO_NIBBLE: u8 = 0x80;

/// The value of each digit. A manifest has a digest a line, and a table has no branches to guess.
const NIBBLES: [u8; 256] = {
    let mut values = [NO_NIBBLE; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Hashes what is written to it.
#[derive(Default, Clone)]
pub struct DigestWriter {
    hasher: blake3::Hasher,
    written: u64,
}

impl DigestWriter {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
    }

    /// The digest of all bytes so far and their count.
    pub fn finish(&self) -> (Digest, u64) {
        (Digest(*self.hasher.finalize().as_bytes()), self.written)
    }
}

impl io::Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_blake3_of_the_bytes() {
        // The published test vector of BLAKE3 for the empty input.
        let expected = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of(b"").to_string(), expected);
        let mut writer = DigestWriter::default();
        writer.update(b"ab");
        writer.update(b"c");
        assert_eq!(writer.finish(), (Digest::of(b"abc"), 3));
    }

    #[test]
    fn only_64_lower_case_digits_parse() {
        let text = Digest::of(b"x").to_string();
        assert_eq!(text.parse::<Digest>(), Ok(Digest::of(b"x")));
        for bad in ["", &text[1..], &text.to_uppercase(), &text.replace(&text[..1], "g")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
