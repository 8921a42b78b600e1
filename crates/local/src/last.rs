//! Remembers which snapshot the files of a stat cache became, so that an unchanged tree is that snapshot again.
//!
//! The stat cache stands for the files alone. What else makes a snapshot (links, empty directories, and what was
//! left out) is short, so it is found anew by each walk and compared as one digest.

use std::io;

use coldframe_core::{Digest, DigestWriter, Node, Omission, SourceSnapshot};

use crate::found::Found;
use crate::private::{Fields, read_bounded, replace};
use crate::stat_cache::{CacheFile, StatCache};

const MAGIC: &[u8; 8] = b"CFLAST01";
const DIGEST_BYTES: usize = 32;
const FILE_BYTES: usize = MAGIC.len() + 5 * DIGEST_BYTES;
/// After so many directories other tasks of the runtime get a turn.
const DIRECTORIES_AT_ONCE: u32 = 256;

/// The snapshot that a capture became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) snapshot: Digest,
    /// The checksum of the stat cache that holds exactly the files of the snapshot.
    pub(crate) cache: Digest,
    /// What else the snapshot holds, as [`rest_of_walk`] would have it.
    pub(crate) rest: Digest,
}

impl CacheFile {
    /// The snapshot that was remembered last; `None` for anything but a whole file of this version and root.
    pub(crate) fn load_last(&self) -> Option<Last> {
        let bytes = read_bounded(&self.beside("last"), FILE_BYTES as u64).ok()?;
        let (body, sum) = bytes.split_last_chunk::<DIGEST_BYTES>()?;
        if bytes.len() != FILE_BYTES || Digest::of(body).as_bytes() != sum {
            return None;
        }
        let mut fields = Fields::new(body);
        let is_ours =
            fields.take(MAGIC.len())? == MAGIC && fields.take(DIGEST_BYTES)? == self.key().as_bytes();
        let mut digest = || Some(Digest::from_bytes(fields.array()?));
        let last = Last { snapshot: digest()?, cache: digest()?, rest: digest()? };
        is_ours.then_some(last)
    }

    /// Remembers a snapshot. The cache it belongs to must be in place already.
    pub(crate) fn save_last(&self, last: &Last) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        bytes.extend_from_slice(MAGIC);
        for digest in [self.key(), &last.snapshot, &last.cache, &last.rest] {
            bytes.extend_from_slice(digest.as_bytes());
        }
        let sum = Digest::of(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        let path = self.beside("last");
        replace(path.parent().unwrap_or(&path), &path, &bytes)
    }
}

/// Whether the cache holds exactly the files of the snapshot.
pub(crate) async fn holds_the_files_of(cache: &StatCache, snapshot: &SourceSnapshot) -> bool {
    let files = snapshot.entries().iter().filter(|entry| entry.node.blob().is_some()).count();
    if files != cache.len() {
        return false;
    }
    let mut next = 0;
    for number in 0..cache.directories() {
        if !directory_is_in(cache, number, snapshot, &mut next) {
            return false;
        }
        if number % DIRECTORIES_AT_ONCE == DIRECTORIES_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    true
}

/// Whether the files of one directory are in the snapshot as they are in the cache. `next` is where the search
/// goes on: mostly the next file is the next entry.
fn directory_is_in(cache: &StatCache, number: u32, snapshot: &SourceSnapshot, next: &mut usize) -> bool {
    let entries = snapshot.entries();
    let mut path = String::from(cache.directory_path(number));
    if !path.is_empty() {
        path.push('/');
    }
    let prefix = path.len();
    cache.records(number).all(|record| {
        let Ok(name) = std::str::from_utf8(record.name) else { return false };
        path.truncate(prefix);
        path.push_str(name);
        if entries.get(*next).is_none_or(|entry| entry.path.as_str() != path) {
            let found = entries.binary_search_by(|entry| entry.path.as_str().cmp(&path));
            let Ok(found) = found else { return false };
            *next = found;
        }
        let Node::File { digest, size, executable } = &entries[*next].node else { return false };
        *next += 1;
        record.digest() == Some(*digest)
            && record.marks().is_some_and(|marks| marks.size() == *size && marks.executable() == *executable)
    })
}

/// What a snapshot holds beside its files.
pub(crate) fn rest_of_snapshot(snapshot: &SourceSnapshot) -> Digest {
    let entries = || snapshot.entries().iter();
    let links = entries().filter_map(|entry| match &entry.node {
        Node::Symlink { target } => Some((entry.path.as_str(), target.as_str())),
        _ => None,
    });
    let empty = entries().filter(|entry| entry.node == Node::Directory).map(|entry| entry.path.as_str());
    rest(links, empty, snapshot.omitted().iter())
}

/// What a walk found beside files. Sorts what it looks at.
pub(crate) fn rest_of_walk(found: &mut Found) -> Digest {
    found.links.sort_unstable();
    found.empty.sort_unstable();
    let omitted = found.omissions();
    let links = found.links.iter().map(|(path, target)| (path.as_str(), target.as_str()));
    rest(links, found.empty.iter().map(AsRef::as_ref), omitted.iter())
}

fn rest<'a>(
    links: impl Iterator<Item = (&'a str, &'a str)>,
    empty: impl Iterator<Item = &'a str>,
    omitted: impl Iterator<Item = &'a Omission>,
) -> Digest {
    let mut hash = DigestWriter::default();
    let mut record = |kind: u8, count: u64, texts: [&str; 2]| {
        hash.update(&[kind]);
        hash.update(&count.to_le_bytes());
        for text in texts {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
    };
    links.for_each(|(path, target)| record(b'l', 1, [path, target]));
    empty.for_each(|path| record(b'd', 1, [path, ""]));
    omitted.for_each(|omission| record(b'o', omission.count, [omission.reason.as_str(), &omission.subject]));
    hash.finish().0
}
