//! Git's binary patches: zlib in base 85, with the blob ids that they need.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
const BYTES_A_LINE: usize = 52;

/// The id that Git gives a blob, as 40 hexadecimal digits.
pub(crate) fn blob_id(content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Binary as Git sees it: a NUL among the first 8,000 bytes.
pub(crate) fn is_binary(content: &[u8]) -> bool {
    content.iter().take(8000).any(|byte| *byte == 0)
}

/// The new content, then the old one, so that the patch can be reversed.
pub(crate) fn push_binary(patch: &mut Vec<u8>, old: &[u8], new: &[u8]) {
    patch.extend_from_slice(b"GIT binary patch\n");
    push_literal(patch, new);
    push_literal(patch, old);
}

fn push_literal(patch: &mut Vec<u8>, content: &[u8]) {
    patch.extend_from_slice(format!("literal {}\n", content.len()).as_bytes());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed =
        encoder.write_all(content).and_then(|()| encoder.finish()).expect("writing to memory does not fail");
    for line in packed.chunks(BYTES_A_LINE) {
        let length = u8::try_from(line.len()).unwrap_or(u8::MAX);
        patch.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(bytes);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[(value % 85) as usize];
                value /= 85;
            }
            patch.extend_from_slice(&digits);
        }
        patch.push(b'\n');
    }
    patch.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_are_those_of_git() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn a_literal_has_its_size_its_lines_and_an_empty_line() {
        let mut patch = Vec::new();
        push_literal(&mut patch, b"");
        assert_eq!(patch, b"literal 0\nHc$@<O00001\n\n");
    }

    #[test]
    fn only_the_first_bytes_decide() {
        let mut content = vec![b'x'; 9000];
        content[8000] = 0;
        assert!(!is_binary(&content));
        content[7999] = 0;
        assert!(is_binary(&content));
    }
}
