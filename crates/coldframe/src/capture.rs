//! Captures sources into the home's store, with what the user chose to include.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coldframe_blob::capture_source;
use coldframe_core::{SourceRef, SourceSnapshot};
use coldframe_local::LocalSource;

use crate::node::local_path;
use crate::{Coldframe, Error, Home, Kind};

/// What of a source is captured beyond the adapter's rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Takes files that ignore rules leave out.
    pub include_ignored: bool,
    /// Globs of ignored files that are taken all the same, such as `.env`.
    pub include: Vec<String>,
}

impl Selection {
    /// Whether the adapter's own rules decide alone.
    pub fn is_default(&self) -> bool {
        !self.include_ignored && self.include.is_empty()
    }
}

/// A snapshot that was just captured.
#[derive(Debug, Clone)]
pub struct Captured {
    /// The snapshot, stored.
    pub snapshot: SourceSnapshot,
    /// How long it took.
    pub time: Duration,
}

/// How much a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SnapshotSize {
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Empty directories.
    pub directories: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// Paths that were left out, each rule's count added up.
    pub omitted: u64,
}

impl SnapshotSize {
    /// Counts the entries of a snapshot.
    pub fn of(snapshot: &SourceSnapshot) -> Self {
        let mut size = Self::default();
        for entry in snapshot.entries() {
            match &entry.node {
                coldframe_core::Node::File { size: bytes, .. } => {
                    size.files += 1;
                    size.bytes += bytes;
                }
                coldframe_core::Node::Symlink { .. } => size.symlinks += 1,
                coldframe_core::Node::Directory => size.directories += 1,
            }
        }
        size.omitted = snapshot.omitted().iter().map(|omission| omission.count).sum();
        size
    }
}

pub(crate) fn stat_cache(home: &Home) -> PathBuf {
    home.cache().join("stat")
}

impl Coldframe {
    /// Captures a source within the configured limits, checks it and stores the snapshot.
    ///
    /// # Errors
    ///
    /// Those of the adapter and of the store; `Contract` for a selection that the adapter does not know.
    pub async fn capture(&self, source: &SourceRef, selection: &Selection) -> Result<Captured, Error> {
        let began = Instant::now();
        let limits = self.config().limits;
        let snapshot = if selection.is_default() {
            let adapter = self.registry().adapter(source)?;
            capture_source(adapter.as_ref(), source, self.store(), limits).await?
        } else {
            Self::check_selection(source)?;
            let adapter = LocalSource::new()
                .with_cache(stat_cache(self.home()))
                .with_reserved(self.home().root())
                .with_include_ignored(selection.include_ignored)
                .with_include(selection.include.clone());
            capture_source(&adapter, source, self.store(), limits).await?
        };
        let time = began.elapsed();
        tracing::debug!(source = %source, snapshot = %snapshot.id(), ?time, "captured");
        Ok(Captured { snapshot, time })
    }

    fn check_selection(source: &SourceRef) -> Result<(), Error> {
        if local_path(source).is_none() {
            let message =
                format!("{} sources have no ignore rules; leave the include options out", source.provider);
            return Err(Error::new(Kind::Contract, message));
        }
        Ok(())
    }
}
