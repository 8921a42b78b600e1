//! Remembers the digest of each file with the marks it had, so that an unchanged file is not read again.
//!
//! The file format is described in `docs/formats/stat-cache.md`. A file that is cut, damaged, foreign or of
//! another version is no error: it counts as absent. Only entries that were provably still when they were read
//! are ever written, so what is in here can be trusted as long as the marks agree.
//!
//! A record is looked at where it lies in the bytes of the file: a tree in which nothing changed costs no
//! allocation for each of its files.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use coldframe_core::{Digest, KnownFile, WorkspacePath};

use crate::found::Unchanged;
use crate::private::{Fields, read_bounded, replace};
use crate::tree::{Kind, Moment, Stat};

const MAGIC: &[u8; 8] = b"CFSTAT02";
const DIGEST_BYTES: usize = 32;
/// The executable bit, size, two moments, inode: what must be the same for a file to be unchanged.
const MARK_BYTES: usize = 1 + 8 + 12 + 12 + 8;
/// A larger file is not ours: it would stand for more than a million paths.
const MAX_CACHE_BYTES: u64 = 512 << 20;

/// Where the cache of one root and configuration lies, and what it is bound to.
#[derive(Debug, Clone)]
pub(crate) struct CacheFile {
    directory: PathBuf,
    key: Digest,
    device: u64,
}

/// What must be the same for a file to be unchanged, as the cache holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks([u8; MARK_BYTES]);

impl Marks {
    pub(crate) fn of(stat: &Stat) -> Self {
        let mut bytes = [0; MARK_BYTES];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            if let Some((place, after)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) {
                place.copy_from_slice(field);
                rest = after;
            }
        };
        put(&[u8::from(stat.executable)]);
        put(&stat.size.to_le_bytes());
        for Moment { seconds, nanoseconds } in [stat.modified, stat.changed] {
            put(&seconds.to_le_bytes());
            put(&nanoseconds.to_le_bytes());
        }
        put(&stat.inode.to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn executable(&self) -> bool {
        self.0[0] != 0
    }

    pub(crate) fn size(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[1..9]);
        u64::from_le_bytes(bytes)
    }
}

/// A file that was read, with the marks under which that holds.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) path: WorkspacePath,
    pub(crate) device: u64,
    pub(crate) marks: Marks,
    pub(crate) digest: Digest,
}

/// The cache as it was read.
#[derive(Debug, Default)]
pub(crate) struct StatCache {
    bytes: Vec<u8>,
    /// Sorted by path.
    directories: Vec<DirectoryRecord>,
    files: usize,
    device: u64,
}

#[derive(Debug)]
struct DirectoryRecord {
    path: Range<u32>,
    records: Range<u32>,
    files: u32,
}

/// One file as the cache has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) name: &'a [u8],
    marks: &'a [u8],
    digest: &'a [u8],
}

impl Record<'_> {
    pub(crate) fn digest(&self) -> Option<Digest> {
        Some(Digest::from_bytes(self.digest.try_into().ok()?))
    }

    pub(crate) fn marks(&self) -> Option<Marks> {
        Some(Marks(self.marks.try_into().ok()?))
    }
}

/// Goes through the files of one directory in the order of their names.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    fields: Fields<'a>,
    current: Option<Record<'a>>,
    /// How many records came before the current one.
    position: u32,
    /// The number of the directory, and how many files it has; none where the cache does not have it.
    pub(crate) directory: Option<(u32, u32)>,
    device: u64,
}

impl CacheFile {
    /// The cache of the canonical `root` on `device` under the configuration that `configuration` spells out.
    pub(crate) fn new(directory: &Path, root: &Path, configuration: &str, device: u64) -> Self {
        let mut key = root.as_os_str().as_encoded_bytes().to_vec();
        key.push(0);
        key.extend_from_slice(configuration.as_bytes());
        Self { directory: directory.to_owned(), key: Digest::of(&key), device }
    }

    pub(crate) fn key(&self) -> &Digest {
        &self.key
    }

    /// A file of this cache beside others.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.key))
    }

    fn path(&self) -> PathBuf {
        self.beside("stat")
    }

    /// Reads the cache; anything but a whole file of this version, root and device is an empty cache.
    pub(crate) fn load(&self) -> StatCache {
        let bytes = match read_bounded(&self.path(), MAX_CACHE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return StatCache::default(),
            Err(error) => {
                tracing::warn!(path = %self.path().display(), %error, "the stat cache cannot be read");
                return StatCache::default();
            }
        };
        match parse(bytes, self) {
            Some(cache) => cache,
            None => {
                tracing::debug!(path = %self.path().display(), "the stat cache is damaged, foreign or old");
                StatCache::default()
            }
        }
    }

    /// The checksum that the file says it has; it is checked by [`Self::load`] alone.
    pub(crate) fn claimed_sum(&self) -> Option<Digest> {
        use std::io::{Read as _, Seek as _};
        let mut file = fs::File::open(self.path()).ok()?;
        file.seek(io::SeekFrom::End(-(DIGEST_BYTES as i64))).ok()?;
        let mut sum = [0; DIGEST_BYTES];
        file.read_exact(&mut sum).ok()?;
        Some(Digest::from_bytes(sum))
    }

    /// Writes the cache beside its place and renames it there: what `kept` names of the `old` one, and `files`, which
    /// need no order. Answers with the cache as it was written.
    pub(crate) fn save(
        &self,
        old: &StatCache,
        kept: &[Unchanged],
        files: Vec<Remembered>,
    ) -> io::Result<StatCache> {
        let (bytes, directories) = self.encode(old, kept, files);
        replace(&self.directory, &self.path(), &bytes)?;
        let files = directories.iter().map(|directory| directory.files as usize).sum();
        Ok(StatCache { bytes, directories, files, device: self.device })
    }

    fn encode(
        &self,
        old: &StatCache,
        kept: &[Unchanged],
        mut files: Vec<Remembered>,
    ) -> (Vec<u8>, Vec<DirectoryRecord>) {
        files.retain(|file| file.device == self.device);
        files.sort_by(|a, b| split(a.path.as_str()).cmp(&split(b.path.as_str())));
        let mut bytes =
            Vec::with_capacity(old.bytes.len() + files.len() * (MARK_BYTES + DIGEST_BYTES + 32) + 256);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.extend_from_slice(&self.device.to_le_bytes());
        let count_at = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        let mut kept: Vec<&Unchanged> = kept.iter().collect();
        kept.sort_unstable_by_key(|unchanged| unchanged.directory);
        let mut kept = kept.into_iter().peekable();
        let folder = |file: &Remembered| split(file.path.as_str()).0.to_owned();
        let mut fresh =
            files.chunk_by(|a, b| split(a.path.as_str()).0 == split(b.path.as_str()).0).peekable();
        let mut directories = Vec::new();
        loop {
            let old_path = kept.peek().map(|unchanged| old.directory_path(unchanged.directory));
            let new_path = fresh.peek().and_then(|files| files.first()).map(folder);
            let path = match (old_path, &new_path) {
                (None, None) => break,
                (Some(old_path), Some(new_path)) => old_path.min(new_path),
                (Some(path), None) => path,
                (None, Some(path)) => path,
            };
            let unchanged = kept.next_if(|_| old_path == Some(path));
            let files = fresh.next_if(|_| new_path.as_deref() == Some(path)).unwrap_or_default();
            directories.push(push_directory(&mut bytes, path, (old, unchanged), files));
        }
        bytes[count_at..count_at + 4].copy_from_slice(&(directories.len() as u32).to_le_bytes());
        let sum = Digest::of(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        (bytes, directories)
    }
}

/// Writes a directory with what is kept of it and new files, merged by name.
fn push_directory(
    bytes: &mut Vec<u8>,
    path: &str,
    (old, kept): (&StatCache, Option<&Unchanged>),
    files: &[Remembered],
) -> DirectoryRecord {
    bytes.extend_from_slice(&(path.len() as u16).to_le_bytes());
    let path_at = bytes.len() as u32;
    bytes.extend_from_slice(path.as_bytes());
    let counts_at = bytes.len();
    bytes.extend_from_slice(&[0; 8]);
    let records_at = bytes.len() as u32;
    let mut count = 0u32;
    let mut push = |name: &[u8], marks: &[u8], digest: &[u8]| {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(marks);
        bytes.extend_from_slice(digest);
        count += 1;
    };
    let mut files = files.iter().peekable();
    let name = |file: &Remembered| split(file.path.as_str()).1.as_bytes().to_vec();
    for (_, record) in kept.into_iter().flat_map(|kept| kept.records(old)) {
        while let Some(file) = files.next_if(|file| *name(file) < *record.name) {
            push(&name(file), &file.marks.0, file.digest.as_bytes());
        }
        // What was read just now is newer than what the old cache says.
        if files.peek().is_none_or(|file| *name(file) != *record.name) {
            push(record.name, record.marks, record.digest);
        }
    }
    files.for_each(|file| push(&name(file), &file.marks.0, file.digest.as_bytes()));
    let end = bytes.len() as u32;
    bytes[counts_at..counts_at + 4].copy_from_slice(&count.to_le_bytes());
    bytes[counts_at + 4..counts_at + 8].copy_from_slice(&(end - records_at).to_le_bytes());
    DirectoryRecord { path: path_at..path_at + path.len() as u32, records: records_at..end, files: count }
}

/// Directory and name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn parse(bytes: Vec<u8>, file: &CacheFile) -> Option<StatCache> {
    let body = bytes.len().checked_sub(DIGEST_BYTES)?;
    if Digest::of(&bytes[..body]).as_bytes() != &bytes[body..] {
        return None;
    }
    let mut fields = Fields::new(&bytes[..body]);
    let is_ours = fields.take(MAGIC.len())? == MAGIC
        && fields.take(DIGEST_BYTES)? == file.key.as_bytes()
        && u64::from_le_bytes(fields.array()?) == file.device;
    if !is_ours {
        return None;
    }
    let count = u32::from_le_bytes(fields.array()?);
    let mut directories = Vec::with_capacity((count as usize).min(body / 16));
    let mut files = 0;
    for _ in 0..count {
        let length = u16::from_le_bytes(fields.array()?);
        let path = fields.span(usize::from(length))?;
        let in_directory = u32::from_le_bytes(fields.array()?);
        let length = u32::from_le_bytes(fields.array()?);
        let records = fields.span(length as usize)?;
        files += in_directory as usize;
        directories.push(DirectoryRecord { path, records, files: in_directory });
    }
    let slice = |range: &Range<u32>| &bytes[range.start as usize..range.end as usize];
    let is_sorted = directories.is_sorted_by(|a, b| slice(&a.path) < slice(&b.path));
    if !fields.is_at_end() || !is_sorted {
        return None;
    }
    Some(StatCache { directories, files, device: file.device, bytes })
}

impl StatCache {
    /// How many files are remembered.
    pub(crate) fn len(&self) -> usize {
        self.files
    }

    /// The checksum of the file, or `None` where there is none.
    pub(crate) fn sum(&self) -> Option<Digest> {
        let sum = self.bytes.last_chunk::<DIGEST_BYTES>()?;
        Some(Digest::from_bytes(*sum))
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        self.bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// What is remembered of the directory `path`; the root is the empty path. `last` is the number of the directory
    /// that came before: a search compares long paths, and mostly the next is the one after it.
    pub(crate) fn directory(&self, path: &str, last: u32) -> Cursor<'_> {
        let next = last as usize + 1;
        let is_next =
            self.directories.get(next).is_some_and(|record| self.slice(&record.path) == path.as_bytes());
        let found = if is_next {
            Ok(next)
        } else {
            self.directories.binary_search_by(|record| self.slice(&record.path).cmp(path.as_bytes()))
        };
        match found {
            Ok(number) => self.cursor(number),
            Err(_) => Cursor {
                fields: Fields::new(&[]),
                current: None,
                position: 0,
                directory: None,
                device: self.device,
            },
        }
    }

    fn cursor(&self, number: usize) -> Cursor<'_> {
        let record = &self.directories[number];
        let mut fields = Fields::new(self.slice(&record.records));
        let current = next_record(&mut fields);
        let directory = Some((number as u32, record.files));
        Cursor { fields, current, position: 0, directory, device: self.device }
    }

    /// How many directories have a file that is remembered.
    pub(crate) fn directories(&self) -> u32 {
        self.directories.len() as u32
    }

    /// The path of a directory by its number.
    pub(crate) fn directory_path(&self, number: u32) -> &str {
        let path = self.directories.get(number as usize).map(|record| self.slice(&record.path));
        path.and_then(|path| std::str::from_utf8(path).ok()).unwrap_or_default()
    }

    /// The files of a directory by its number, in the order of their names.
    pub(crate) fn records(&self, number: u32) -> impl Iterator<Item = Record<'_>> {
        let range = self.directories.get(number as usize).map_or(0..0, |record| record.records.clone());
        let mut fields = Fields::new(self.slice(&range));
        std::iter::from_fn(move || next_record(&mut fields))
    }

    /// A file of the directory `number` as a store is asked for it; `None` where the record is none of ours.
    pub(crate) fn known(&self, number: u32, record: &Record<'_>) -> Option<KnownFile> {
        let (directory, name) = (self.directory_path(number), std::str::from_utf8(record.name).ok()?);
        let mut path = String::with_capacity(directory.len() + 1 + name.len());
        path.push_str(directory);
        if !directory.is_empty() {
            path.push('/');
        }
        path.push_str(name);
        let (path, marks) = (WorkspacePath::parse(path).ok()?, record.marks()?);
        let (executable, size) = (marks.executable(), marks.size());
        Some(KnownFile { path, executable, digest: record.digest()?, size })
    }
}

fn next_record<'a>(fields: &mut Fields<'a>) -> Option<Record<'a>> {
    let [length] = fields.array()?;
    let name = fields.take(usize::from(length))?;
    let (marks, digest) = (fields.take(MARK_BYTES)?, fields.take(DIGEST_BYTES)?);
    Some(Record { name, marks, digest })
}

impl Cursor<'_> {
    /// The number of `name` in its directory, where it is remembered with exactly these marks. Names must be
    /// asked for in their order.
    pub(crate) fn unchanged(&mut self, name: &[u8], stat: &Stat) -> Option<u32> {
        while let Some(record) = self.current {
            match record.name.cmp(name) {
                std::cmp::Ordering::Less => {
                    self.current = next_record(&mut self.fields);
                    self.position += 1;
                }
                std::cmp::Ordering::Equal => {
                    let same = stat.kind == Kind::File
                        && stat.device == self.device
                        && Marks::of(stat).0 == *record.marks;
                    return same.then_some(self.position);
                }
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(size: u64) -> Stat {
        let moment = |seconds| Moment { seconds, nanoseconds: 7 };
        let (modified, changed) = (moment(-5), moment(1_700_000_000));
        Stat { kind: Kind::File, executable: false, size, modified, changed, inode: 42, device: 3 }
    }

    fn remembered(path: &str, size: u64) -> Remembered {
        let path = WorkspacePath::parse(path).unwrap();
        let marks = Marks::of(&stat(size));
        Remembered { digest: Digest::of(path.as_str().as_bytes()), path, device: 3, marks }
    }

    fn cache_file(folder: &Path) -> CacheFile {
        CacheFile::new(&folder.join("cache"), Path::new("/root"), "default", 3)
    }

    fn number(cache: &StatCache, directory: &str, name: &str, stat: &Stat) -> Option<u32> {
        cache.directory(directory, 0).unchanged(name.as_bytes(), stat)
    }

    #[test]
    fn what_is_saved_is_found_under_the_same_marks_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(folder.path());
        assert_eq!(file.load().len(), 0);
        let elsewhere = Remembered { device: 4, ..remembered("other-disk", 1) };
        let files = ["b", "a/z", "a-b/c", "a/y", "top"].map(|path| remembered(path, 9));
        let files = files.into_iter().chain([elsewhere]).collect();
        let written = file.save(&StatCache::default(), &[], files).unwrap();
        let cache = file.load();
        assert_eq!((written.sum(), written.len()), (cache.sum(), cache.len()));
        assert_eq!(cache.len(), 5, "a file on another device is not remembered");
        assert_eq!(number(&cache, "a", "y", &stat(9)), Some(0));
        assert_eq!(number(&cache, "a", "z", &stat(9)), Some(1));
        assert_eq!(number(&cache, "", "top", &stat(9)), Some(1));
        assert_eq!(names(&cache), ["b", "top", "a/y", "a/z", "a-b/c"]);
        let known: Vec<KnownFile> = cache.records(1).filter_map(|record| cache.known(1, &record)).collect();
        let path = WorkspacePath::parse("a/y").unwrap();
        assert_eq!(known[0], KnownFile { digest: Digest::of(b"a/y"), path, executable: false, size: 9 });
        let original = stat(9);
        let other_moment = Moment { nanoseconds: 8, ..original.changed };
        for wrong in [
            stat(8),
            Stat { executable: true, ..original },
            Stat { kind: Kind::Directory, ..original },
            Stat { inode: 43, ..original },
            Stat { device: 5, ..original },
            Stat { modified: other_moment, ..original },
            Stat { changed: other_moment, ..original },
        ] {
            assert_eq!(number(&cache, "a", "y", &wrong), None, "{wrong:?}");
        }
        assert_eq!(number(&cache, "a", "x", &original), None);
        assert_eq!(number(&cache, "missing", "y", &original), None);
        let files: Vec<_> = fs::read_dir(folder.path().join("cache")).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing staged is left");
    }

    fn names(cache: &StatCache) -> Vec<String> {
        let records = |number| cache.records(number).filter_map(move |record| cache.known(number, &record));
        (0..cache.directories()).flat_map(records).map(|file| file.path.into()).collect()
    }

    #[test]
    fn what_is_kept_and_what_is_new_are_merged_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(folder.path());
        let paths = ["a/1", "a/3", "a/5", "b/1", "top"].map(|path| remembered(path, 1));
        let old = file.save(&StatCache::default(), &[], paths.to_vec()).unwrap();
        let kept =
            [Unchanged { directory: 1, files: Some(vec![0, 2]) }, Unchanged { directory: 0, files: None }];
        let new = ["a/2", "a/5", "a/9", "a/b/c", "z"].map(|path| remembered(path, 2));
        let written = file.save(&old, &kept, new.to_vec()).unwrap();
        let cache = file.load();
        let expected = ["top", "z", "a/1", "a/2", "a/5", "a/9", "a/b/c"];
        assert_eq!((names(&cache), names(&written)), (expected.map(String::from).to_vec(), names(&cache)));
        assert_eq!(number(&cache, "a", "1", &stat(1)), Some(0));
        assert_eq!(number(&cache, "a", "5", &stat(2)), Some(2), "the new marks stand");
        assert_eq!(number(&cache, "", "top", &stat(1)), Some(0));
        assert_eq!(number(&written, "a/b", "c", &stat(2)), Some(0));
        let nothing = file.save(&cache, &[], Vec::new()).unwrap();
        assert_eq!((nothing.len(), file.load().sum()), (0, nothing.sum()));
    }

    #[test]
    fn a_cursor_passes_over_names_that_are_new_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(folder.path());
        let files = ["b", "d", "f", "h"].map(|path| remembered(path, 1)).to_vec();
        file.save(&StatCache::default(), &[], files).unwrap();
        let cache = file.load();
        let mut cursor = cache.directory("", 0);
        let asked = ["a", "b", "c", "f", "g", "z"];
        let answers = asked.map(|name| cursor.unchanged(name.as_bytes(), &stat(1)));
        assert_eq!(answers, [None, Some(0), None, Some(2), None, None]);
    }

    #[test]
    fn a_cut_a_changed_byte_and_a_foreign_file_are_an_empty_cache() {
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(folder.path());
        file.save(&StatCache::default(), &[], vec![remembered("a/b", 1), remembered("c", 2)]).unwrap();
        let whole = fs::read(file.path()).unwrap();
        for end in 0..whole.len() {
            assert!(parse(whole[..end].to_vec(), &file).is_none(), "cut at {end}");
        }
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x20;
            assert!(parse(damaged, &file).is_none(), "changed at {position}");
        }
        let other_root = CacheFile::new(&folder.path().join("cache"), Path::new("/other"), "default", 3);
        fs::copy(file.path(), other_root.path()).unwrap();
        assert_eq!(other_root.load().len(), 0);
        let other_device = CacheFile { device: 4, ..file.clone() };
        assert_eq!(other_device.load().len(), 0);
        assert_eq!(file.load().len(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn the_cache_is_private_to_its_user() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(folder.path());
        file.save(&StatCache::default(), &[], vec![remembered("a", 1)]).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder.path().join("cache")).unwrap().mode() & 0o777, 0o700);
    }
}
