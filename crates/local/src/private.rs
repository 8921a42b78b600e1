//! Reads and replaces small private files, whole or not at all, and takes fields from their bytes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a file; one that is longer than `limit` reads as empty.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > limit {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file under another name in `directory`, which is made where it is not there, and renames it.
pub(crate) fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    create_private(directory)?;
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let staged = path.with_extension(format!("{}.{serial}.tmp", std::process::id()));
    let outcome = write_private(&staged, bytes).and_then(|()| fs::rename(&staged, path));
    if outcome.is_err() {
        // What could not be put in place must not pile up; that it may be gone already is no news.
        let _ = fs::remove_file(&staged);
    }
    outcome
}

fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// Takes fields from the front of a buffer and says `None` where it ends too early.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let field = self.bytes.get(self.position..self.position.checked_add(length)?)?;
        self.position += length;
        Some(field)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Passes over a field and says where it lies.
    pub(crate) fn span(&mut self, length: usize) -> Option<Range<u32>> {
        let start = u32::try_from(self.position).ok()?;
        self.take(length)?;
        Some(start..u32::try_from(self.position).ok()?)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.position == self.bytes.len()
    }
}
