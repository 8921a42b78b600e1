//! Answers for the store as its users see it: open, blobs, snapshots and deltas by id.

use std::path::Path;
use std::sync::Arc;

use coldframe_core::{
    BlobStore, BoxFuture, ByteStream, Digest, ErrorKind, SourceError, SourceSnapshot, Stored, WorkspaceDelta,
};
use futures_util::FutureExt as _;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::time::SystemTime;

use crate::check::Visit;
use crate::disk::Disk;
use crate::inner::Inner;
use crate::layout;
use crate::objects::{Objects, blocking, io_error, store_error};
use crate::packer;
use crate::write::{self, Received, Tickets, hash_all, keep};

const OPEN: &str = "open store";
/// The fewest digits by which a snapshot or a delta can be named.
const MIN_PREFIX_DIGITS: usize = 4;

/// A content-addressed store of blobs, snapshots and deltas. Clones share one store; several stores, also of
/// several processes, may use one folder at once.
///
/// Everything that a call wrote is complete when it returns, and absent where it failed or was dropped. The
/// store survives the end of the process at any point; it does not wait for the disk, so after a power loss
/// blobs may be damaged, which reads detect and the next capture heals.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("objects", &self.inner.objects).finish_non_exhaustive()
    }
}

/// What [`Store::verify_snapshot`] hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyReport {
    /// Distinct blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens the store in the folder `root`, and makes it, private to the user, where there is none.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the folder has another layout or holds something else; `Denied`, `NoSpace` or `Io`
    /// of the disk.
    pub async fn open_local(root: &Path) -> Result<Self, SourceError> {
        let name = root.display().to_string();
        let root = root.to_owned();
        let failed = |error| io_error(OPEN, &name, error);
        let (disk, fresh) = blocking(move || {
            let disk = Disk::create(&root)?;
            let fresh = disk.is_fresh()?;
            Ok((disk, fresh))
        })
        .await?
        .map_err(failed)?;
        let files = LocalFileSystem::new_with_prefix(disk.root());
        let files = files.map_err(|error| store_error(OPEN, &name, error))?;
        Self::open_objects(Objects::new(Arc::new(files), Some(disk)), fresh, &name).await
    }

    /// A store in memory, empty.
    pub async fn in_memory() -> Self {
        let objects = Objects::new(Arc::new(InMemory::new()), None);
        Self { inner: Arc::new(Inner::new(objects)) }
    }

    /// Opens the store in `objects`, and makes it where there is none.
    ///
    /// # Errors
    ///
    /// `Unsupported` where it has another layout; what the object store answers.
    pub async fn open(objects: Arc<dyn ObjectStore>) -> Result<Self, SourceError> {
        let name = objects.to_string();
        Self::open_objects(Objects::new(objects, None), true, &name).await
    }

    async fn open_objects(objects: Objects, fresh: bool, name: &str) -> Result<Self, SourceError> {
        let refuse =
            |detail: String| Err(SourceError::new(ErrorKind::Unsupported, OPEN, detail).with_subject(name));
        match objects.read(layout::FORMAT).await {
            Ok(text) if text == layout::FORMAT_TEXT.as_bytes() => {}
            Ok(text) => {
                let text: String = String::from_utf8_lossy(&text).chars().take(80).collect();
                return refuse(format!(
                    "the layout is {text:?}, this version knows {:?}; use the version that made the store",
                    layout::FORMAT_TEXT
                ));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && fresh => {
                objects.publish(layout::FORMAT.to_owned(), layout::FORMAT_TEXT.into()).await?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return refuse("the folder is not empty and not a store; name an empty one".to_owned());
            }
            Err(error) => return Err(error),
        }
        objects.sweep().await;
        Ok(Self { inner: Arc::new(Inner::new(objects)) })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Stores many small contents at once, in packs: a few writes instead of one for each.
    pub async fn write_many(&self, contents: Vec<Vec<u8>>) -> Result<Vec<Stored>, SourceError> {
        let (visit, tickets) = (Visit::new(), Tickets::default());
        let hashed = hash_all(contents).await?;
        let mut small = Vec::with_capacity(hashed.len());
        let stored = hashed.iter().map(|(stored, _)| *stored).collect();
        for (blob, content) in hashed {
            if content.len() < layout::LARGE_BYTES {
                small.push((blob, content));
            } else {
                self.write_stream(coldframe_core::once(content)).await?;
            }
        }
        keep(&self.inner, small, &visit, &tickets).await?;
        write::settle(&self.inner, &tickets).await?;
        Ok(stored)
    }

    async fn write_stream(&self, content: ByteStream<'_>) -> Result<Stored, SourceError> {
        let received = write::receive(&self.inner, content, SystemTime::now(), &mut |_| Ok(())).await?;
        match received {
            Received::Large(stored) => Ok(stored),
            Received::Small(content) => self.inner.write_small(content).await,
        }
    }

    /// Writes the pack that captures are filling, and waits for those on their way. A capture does so itself.
    pub async fn flush(&self) -> Result<(), SourceError> {
        packer::flush(&self.inner).await
    }

    /// Stores the manifest of a snapshot under its id.
    pub async fn save_snapshot(&self, snapshot: &SourceSnapshot) -> Result<(), SourceError> {
        self.save_record(layout::SNAPSHOTS, &snapshot.id(), snapshot.to_manifest().into()).await
    }

    /// Loads a snapshot.
    ///
    /// # Errors
    ///
    /// `NotFound` where it is not stored; `Integrity` where its text does not hash to `id` or breaks a rule;
    /// `Unsupported` for the format of another version.
    pub async fn load_snapshot(&self, id: &Digest) -> Result<SourceSnapshot, SourceError> {
        let bytes = self.read_record(layout::SNAPSHOTS, id).await?;
        let asked = *id;
        let read = blocking(move || match SourceSnapshot::from_manifest(&bytes) {
            // The id of what was read is the hash of the text, so the text is hashed once.
            Ok(snapshot) if snapshot.id() == asked => Ok(snapshot),
            Err(error) if Digest::of(&bytes) == asked => Err(error),
            _ => Err(forged(layout::SNAPSHOTS)),
        });
        read.await?.map_err(|error| error.with_subject(id))
    }

    /// Stores the text of a delta under its id.
    pub async fn save_delta(&self, delta: &WorkspaceDelta) -> Result<(), SourceError> {
        self.save_record(layout::DELTAS, &delta.id(), delta.to_text().into()).await
    }

    /// Loads a delta; errors as for [`Self::load_snapshot`].
    pub async fn load_delta(&self, id: &Digest) -> Result<WorkspaceDelta, SourceError> {
        let bytes = self.load_record(layout::DELTAS, id).await?;
        blocking(move || WorkspaceDelta::from_text(&bytes)).await?.map_err(|error| error.with_subject(id))
    }

    /// The ids of all snapshots, sorted.
    pub async fn snapshots(&self) -> Result<Vec<Digest>, SourceError> {
        self.records(layout::SNAPSHOTS).await
    }

    /// The ids of all deltas, sorted.
    pub async fn deltas(&self) -> Result<Vec<Digest>, SourceError> {
        self.records(layout::DELTAS).await
    }

    /// The one snapshot whose id starts with `prefix`, which has at least four digits.
    ///
    /// # Errors
    ///
    /// `NotFound` where none does; `Contract`, which lists them, where several do, and for a wrong prefix.
    pub async fn resolve_snapshot(&self, prefix: &str) -> Result<Digest, SourceError> {
        resolve("find snapshot", prefix, self.snapshots().await?)
    }

    /// The one delta whose id starts with `prefix`; errors as for [`Self::resolve_snapshot`].
    pub async fn resolve_delta(&self, prefix: &str) -> Result<Digest, SourceError> {
        resolve("find delta", prefix, self.deltas().await?)
    }

    /// Hashes every blob of the snapshot now, whatever was verified before.
    ///
    /// # Errors
    ///
    /// `Integrity` for the first path whose blob is missing or damaged; names path and digest.
    pub async fn verify_snapshot(&self, snapshot: &SourceSnapshot) -> Result<VerifyReport, SourceError> {
        const VERIFY: &str = "verify snapshot";
        let mut blobs: Vec<Stored> =
            snapshot.entries().iter().filter_map(|entry| entry.node.blob()).collect();
        blobs.sort_unstable_by_key(|blob| (blob.digest, blob.size));
        blobs.dedup();
        let wrong = self.inner.rehash(&blobs).await?;
        let is_wrong = |blob: &Stored| wrong.contains(&blob.digest);
        let bad = snapshot.entries().iter().find_map(|entry| {
            let blob = entry.node.blob().filter(is_wrong)?;
            Some((entry, blob))
        });
        if let Some((entry, blob)) = bad {
            let detail = format!(
                "missing or damaged, as one of {}; capture the source again to store it anew",
                wrong.len()
            );
            return Err(SourceError::corrupt_blob(VERIFY, &blob.digest, detail).with_subject(&entry.path));
        }
        let bytes = blobs.iter().map(|blob| blob.size).sum();
        Ok(VerifyReport { blobs: blobs.len() as u64, bytes })
    }

    pub(crate) async fn save_record(
        &self,
        folder: &str,
        id: &Digest,
        text: bytes::Bytes,
    ) -> Result<(), SourceError> {
        let name = layout::record(folder, id);
        if self.inner.objects.holds(&name, text.clone()).await? {
            return Ok(());
        }
        self.inner.objects.publish_shared(name, text).await
    }

    async fn read_record(&self, folder: &'static str, id: &Digest) -> Result<bytes::Bytes, SourceError> {
        let name = layout::record(folder, id);
        match self.inner.objects.read(&name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let detail = format!("nothing of that id is in the {folder} of this store");
                Err(SourceError::new(ErrorKind::NotFound, "load", detail).with_subject(id))
            }
            other => other,
        }
    }

    async fn load_record(&self, folder: &'static str, id: &Digest) -> Result<bytes::Bytes, SourceError> {
        let bytes = self.read_record(folder, id).await?;
        let (bytes, right) = {
            let id = *id;
            blocking(move || {
                let right = Digest::of(&bytes) == id;
                (bytes, right)
            })
            .await?
        };
        if right {
            return Ok(bytes);
        }
        Err(forged(folder).with_subject(id))
    }

    async fn records(&self, folder: &str) -> Result<Vec<Digest>, SourceError> {
        let listed = self.inner.objects.list(folder, "").await?;
        let mut ids: Vec<Digest> = listed.iter().filter_map(|object| object.name.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

fn forged(folder: &str) -> SourceError {
    SourceError::integrity("load", format!("the text in {folder} does not hash to its id"))
}

fn resolve(operation: &'static str, prefix: &str, ids: Vec<Digest>) -> Result<Digest, SourceError> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if prefix.len() < MIN_PREFIX_DIGITS || prefix.len() > 64 || !prefix.bytes().all(is_digit) {
        let detail = "an id is named by 4 to 64 of its lower-case hexadecimal digits";
        return Err(SourceError::contract(operation, detail).with_subject(prefix));
    }
    let mut found: Vec<Digest> = ids.into_iter().filter(|id| id.to_string().starts_with(prefix)).collect();
    match found.len() {
        0 => Err(SourceError::new(ErrorKind::NotFound, operation, "no id starts so").with_subject(prefix)),
        1 => Ok(found.remove(0)),
        count => {
            let listed: Vec<String> = found.iter().take(6).map(Digest::to_string).collect();
            let detail = format!("ambiguous, {count} ids start so: {}", listed.join(", "));
            Err(SourceError::contract(operation, detail).with_subject(prefix))
        }
    }
}

impl BlobStore for Store {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        self.write_stream(content).boxed()
    }

    fn read<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        self.inner.stream(blob).boxed()
    }

    fn contains<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        self.inner.has(blob).boxed()
    }

    fn read_bytes<'a>(&'a self, blob: Stored) -> BoxFuture<'a, Result<Vec<u8>, SourceError>> {
        self.inner.fetch(blob).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_names_one_id_or_says_why_not() {
        let ids: Vec<Digest> =
            ["abcd1", "abcd2", "ef012"].map(|start| format!("{start:0<64}").parse().unwrap()).to_vec();
        let kind = |prefix: &str| resolve("find", prefix, ids.clone()).map_err(|error| error.kind());
        assert_eq!(kind("abcd2"), Ok(ids[1]));
        assert_eq!(kind(&ids[2].to_string()), Ok(ids[2]));
        assert_eq!(kind("1234"), Err(ErrorKind::NotFound));
        for wrong in ["abc", "", "ABCD", "zzzz", &"a".repeat(65), "abcd"] {
            assert_eq!(kind(wrong), Err(ErrorKind::Contract), "{wrong}");
        }
        let error = resolve("find", "abcd", ids.clone()).unwrap_err().to_string();
        assert!(error.contains("ambiguous") && error.contains(&ids[0].to_string()), "{error}");
    }
}
