//! Stored snapshots and deltas by the start of their ids, and a delta as a patch and as counts.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use coldframe_core::{BlobStore, DeltaChange, Digest, SourceSnapshot, Stored, WorkspaceDelta};
use coldframe_delta::{DeltaStat, Patch, patch, stat};
use futures_util::StreamExt;

use crate::session::blocking;
use crate::{Coldframe, Error, Kind};

/// The most bytes of contents that one patch is made from; they are all in memory at once.
const MAX_PATCH_BYTES: u64 = 512 << 20;

/// Larger files are counted by their bytes alone.
const MAX_COUNTED_BYTES: u64 = 4 << 20;

/// The most bytes of contents in which lines are counted.
const MAX_COUNTED_TOTAL: u64 = 64 << 20;

impl Coldframe {
    /// The stored snapshot whose id begins with `prefix`, at least four digits of it.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Contract` where several begin so, `Integrity` where it is damaged.
    pub async fn snapshot(&self, prefix: &str) -> Result<SourceSnapshot, Error> {
        let id = match prefix.parse() {
            Ok(id) => id,
            Err(_) => self.store().resolve_snapshot(prefix).await?,
        };
        Ok(self.store().load_snapshot(&id).await?)
    }

    /// The stored delta whose id begins with `prefix`, at least four digits of it.
    ///
    /// # Errors
    ///
    /// As [`Coldframe::snapshot`].
    pub async fn delta(&self, prefix: &str) -> Result<WorkspaceDelta, Error> {
        let id = match prefix.parse() {
            Ok(id) => id,
            Err(_) => self.store().resolve_delta(prefix).await?,
        };
        Ok(self.store().load_delta(&id).await?)
    }

    /// The delta as a patch that `git apply` takes.
    ///
    /// # Errors
    ///
    /// `Limit` where the changed files are too large for a patch, `Integrity` where a content is damaged.
    pub async fn patch(&self, delta: &WorkspaceDelta) -> Result<Patch, Error> {
        let base = Arc::new(self.store().load_snapshot(&delta.base()).await?);
        let blobs = contents_of(&base, delta);
        let total: u64 = blobs.iter().map(|blob| blob.size).sum();
        if total > MAX_PATCH_BYTES {
            let message = format!(
                "the changed files have {total} bytes, a patch takes at most {MAX_PATCH_BYTES}; use `delta apply`"
            );
            return Err(Error::new(Kind::Limit, message));
        }
        let contents = self.load(blobs).await?;
        let delta = delta.clone();
        blocking(move || Ok(patch(&base, &delta, &contents)?)).await
    }

    /// The counts of a delta: per file, what happened and how many lines. Large files have no line counts.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn stat(&self, delta: &WorkspaceDelta) -> Result<DeltaStat, Error> {
        let base = Arc::new(self.store().load_snapshot(&delta.base()).await?);
        self.stat_against(base, delta).await
    }

    /// As [`Coldframe::stat`], where the base is at hand.
    pub(crate) async fn stat_against(
        &self,
        base: Arc<SourceSnapshot>,
        delta: &WorkspaceDelta,
    ) -> Result<DeltaStat, Error> {
        let mut left = MAX_COUNTED_TOTAL;
        let counted = contents_of(&base, delta)
            .into_iter()
            .filter(|blob| blob.size <= MAX_COUNTED_BYTES)
            .take_while(|blob| {
                let fits = blob.size <= left;
                left = left.saturating_sub(blob.size);
                fits
            })
            .collect();
        let contents = self.load(counted).await?;
        let delta = delta.clone();
        blocking(move || Ok(stat(&base, &delta, &contents))).await
    }

    /// Writes a stored content to `sink`, checked. Where it turns out to be damaged, what was written before is not
    /// the content.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Integrity`, and those of the sink.
    pub async fn write_blob(&self, blob: Stored, sink: &mut (dyn Write + Send)) -> Result<(), Error> {
        let mut content = self.store().read(blob).await?;
        while let Some(chunk) = content.next().await {
            sink.write_all(&chunk?).map_err(|error| Error::io("write a content", &error))?;
        }
        sink.flush().map_err(|error| Error::io("write a content", &error))
    }

    async fn load(&self, blobs: Vec<Stored>) -> Result<HashMap<Digest, Vec<u8>>, Error> {
        let mut contents = HashMap::with_capacity(blobs.len());
        for blob in blobs {
            contents.insert(blob.digest, self.store().read_bytes(blob).await?);
        }
        Ok(contents)
    }
}

/// The contents on both sides of every changed file.
fn contents_of(base: &SourceSnapshot, delta: &WorkspaceDelta) -> Vec<Stored> {
    let sides = |change: &DeltaChange| {
        let before = base.entry(change.path().as_str()).and_then(|entry| entry.node.blob());
        let after = change.node().and_then(coldframe_core::Node::blob);
        if before == after { [None, None] } else { [before, after] }
    };
    let mut seen = std::collections::HashSet::new();
    delta.changes().iter().flat_map(sides).flatten().filter(|blob| seen.insert(blob.digest)).collect()
}
