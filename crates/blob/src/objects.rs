//! Answers for single objects of a store, on a local disk and elsewhere alike: publish, read, list, stage.

use std::error::Error as _;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use coldframe_core::{Digest, DigestWriter, ErrorKind, SourceError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutPayload};

use crate::disk::Disk;
use crate::layout;
use crate::state::ObjectState;

/// How many requests run at once where one call needs many.
pub(crate) const REQUESTS: usize = 16;
/// Up to this many bytes are read from a disk or hashed on the caller's thread: it costs less than to hand them over.
pub(crate) const INLINE_BYTES: usize = 64 << 10;
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// An object that stands in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name in the folder.
    pub(crate) name: String,
    pub(crate) modified: SystemTime,
}

/// The objects of one store.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    disk: Option<Arc<Disk>>,
}

impl Objects {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, disk: Option<Disk>) -> Self {
        Self { store, disk: disk.map(Arc::new) }
    }

    /// The folder, where the store lies on a local disk.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref()
    }

    /// Writes an object so that it is there whole or not at all, replacing what stands under the name. Gives the
    /// buffer back where it is free again.
    pub(crate) async fn publish(
        &self,
        name: String,
        content: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        if let Some(disk) = self.disk.clone() {
            return blocking(move || {
                let written = disk.publish(&name, &content);
                written.map_err(|error| io_error("write store", &name, error))?;
                Ok(Some(content))
            })
            .await?;
        }
        let put = self.store.put(&Path::from(name.as_str()), PutPayload::from(content)).await;
        put.map(|_| None).map_err(|error| store_error("write store", &name, error))
    }

    /// [`Self::publish`] for bytes that others hold as well.
    pub(crate) async fn publish_shared(&self, name: String, content: Bytes) -> Result<(), SourceError> {
        if let Some(disk) = self.disk.clone() {
            return blocking(move || {
                disk.publish(&name, &content).map_err(|error| io_error("write store", &name, error))
            })
            .await?;
        }
        let put = self.store.put(&Path::from(name.as_str()), PutPayload::from(content)).await;
        put.map(drop).map_err(|error| store_error("write store", &name, error))
    }

    /// Whether the object is there and holds exactly these bytes.
    pub(crate) async fn holds(&self, name: &str, content: Bytes) -> Result<bool, SourceError> {
        let Some(disk) = self.disk.clone() else {
            return match self.read(name).await {
                Ok(bytes) => Ok(bytes == content),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            };
        };
        let name = name.to_owned();
        blocking(move || match disk.holds(&name, &content) {
            Ok(holds) => Ok(holds),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error("read store", &name, error)),
        })
        .await?
    }

    /// The whole object, which the caller knows to be small.
    pub(crate) async fn read(&self, name: &str) -> Result<Bytes, SourceError> {
        if let Some(disk) = self.disk.clone() {
            let name = name.to_owned();
            let read = move || {
                let content = std::fs::read(disk.root().join(&name));
                content.map(Bytes::from).map_err(|error| io_error("read store", &name, error))
            };
            return blocking(read).await?;
        }
        let wrong = |error| store_error("read store", name, error);
        self.store.get(&Path::from(name)).await.map_err(wrong)?.bytes().await.map_err(wrong)
    }

    /// Whole objects, each of which the caller knows to be small; `None` where one is not there.
    pub(crate) async fn read_many(&self, names: Vec<String>) -> Result<Vec<Option<Bytes>>, SourceError> {
        let Some(disk) = self.disk.clone() else {
            let reads = futures_util::stream::iter(names).map(|name| async move {
                match self.read(&name).await {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            });
            return reads.buffered(REQUESTS).try_collect().await;
        };
        let read = move |name: &String| match std::fs::read(disk.root().join(name)) {
            Ok(content) => Ok(Some(Bytes::from(content))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read store", name, error)),
        };
        // One thread for all: to start more takes longer than to read files that the disk holds in memory.
        blocking(move || names.iter().map(read).collect()).await?
    }

    /// Exactly `length` bytes from `offset`.
    pub(crate) async fn read_range(
        &self,
        name: &str,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, SourceError> {
        let Some(disk) = self.disk.clone() else {
            let range = offset..offset + length as u64;
            let read = self.store.get_range(&Path::from(name), range).await;
            return read.map(Vec::from).map_err(|error| store_error("read store", name, error));
        };
        let wrong = |name: &str, error| io_error("read store", name, error);
        if length <= INLINE_BYTES {
            return disk.read_at(name, offset, length).map_err(|error| wrong(name, error));
        }
        let name = name.to_owned();
        blocking(move || disk.read_at(&name, offset, length).map_err(|error| wrong(&name, error))).await?
    }

    /// The next piece of an object that is read and hashed piece by piece; the object is opened anew.
    pub(crate) async fn read_piece(
        &self,
        name: &str,
        range: Range<u64>,
        mut hash: DigestWriter,
    ) -> Result<(Vec<u8>, DigestWriter), SourceError> {
        let length = (range.end - range.start) as usize;
        if let Some(disk) = self.disk.clone() {
            let name = name.to_owned();
            return blocking(move || {
                let piece = disk.read_anew(&name, range.start, length);
                let piece = piece.map_err(|error| io_error("read store", &name, error))?;
                hash.update(&piece);
                Ok((piece, hash))
            })
            .await?;
        }
        let piece = self.read_range(name, range.start, length).await?;
        blocking(move || {
            hash.update(&piece);
            (piece, hash)
        })
        .await
    }

    /// The hashes of ranges of one object, which is opened anew. An error stands for all ranges or for one.
    pub(crate) async fn hash_ranges(
        &self,
        name: &str,
        ranges: Vec<Range<u64>>,
    ) -> Result<Vec<Result<Digest, SourceError>>, SourceError> {
        let name = name.to_owned();
        if let Some(disk) = self.disk.clone() {
            return blocking(move || {
                let wrong = |error| io_error("read store", &name, error);
                let hashes = disk.hash_ranges(&name, &ranges).map_err(wrong)?;
                Ok(hashes.into_iter().map(|hash| hash.map_err(wrong)).collect())
            })
            .await?;
        }
        let read = self.store.get_ranges(&Path::from(name.as_str()), &ranges).await;
        let contents = read.map_err(|error| store_error("read store", &name, error))?;
        blocking(move || contents.iter().map(|content| Ok(Digest::of(content))).collect()).await
    }

    /// The states of objects, `None` where they are not there.
    pub(crate) async fn states(&self, names: Vec<String>) -> Result<Vec<Option<ObjectState>>, SourceError> {
        let Some(disk) = self.disk.clone() else {
            let states = futures_util::stream::iter(names).map(|name| async move {
                match self.store.head(&Path::from(name.as_str())).await {
                    Ok(meta) => Ok(Some(ObjectState::of_object(&meta))),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(store_error("look up", &name, error)),
                }
            });
            return states.buffered(REQUESTS).try_collect().await;
        };
        let look_up = move |name: &String| disk.state(name).map_err(|error| io_error("look up", name, error));
        if names.len() <= 8 {
            return names.iter().map(look_up).collect();
        }
        blocking(move || names.iter().map(look_up).collect()).await?
    }

    /// The state of one object, `None` where it is not there.
    pub(crate) async fn state(&self, name: String) -> Result<Option<ObjectState>, SourceError> {
        Ok(self.states(vec![name]).await?.pop().flatten())
    }

    /// What stands in a folder under names that end so.
    pub(crate) async fn list(&self, folder: &str, end: &'static str) -> Result<Vec<Listed>, SourceError> {
        if let Some(disk) = self.disk.clone() {
            let folder = folder.to_owned();
            let list = move || {
                let listed = disk.list(&folder, end);
                listed.map_err(|error| io_error("list store", &folder, error))
            };
            return blocking(list).await?;
        }
        let objects = self.list_objects(folder).await?;
        let listed = objects.into_iter().filter_map(|object| {
            let name = object.location.filename().filter(|name| name.ends_with(end))?.to_owned();
            Some(Listed { name, modified: object.last_modified.into() })
        });
        Ok(listed.collect())
    }

    async fn list_objects(&self, folder: &str) -> Result<Vec<ObjectMeta>, SourceError> {
        let list = self.store.list(Some(&Path::from(folder))).try_collect().await;
        list.map_err(|error| store_error("list store", folder, error))
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), SourceError> {
        match self.store.delete(&Path::from(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error("delete", name, error)),
        }
    }

    /// Starts an object whose name is not known yet.
    pub(crate) async fn stage(&self) -> Result<(Staged, Box<dyn MultipartUpload>), SourceError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = match self.disk.clone() {
            Some(disk) => blocking(move || disk.staged_name())
                .await?
                .map_err(|error| io_error("write store", layout::STAGING, error))?,
            None => {
                let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                format!("{}/{:x}-{:x}-{number:x}", layout::STAGING, std::process::id(), time.as_nanos())
            }
        };
        let upload = self.store.put_multipart(&Path::from(name.as_str())).await;
        let upload = upload.map_err(|error| store_error("write store", &name, error))?;
        Ok((Staged { objects: self.clone(), name: Some(name) }, upload))
    }

    /// Removes what earlier processes left unfinished. Failures leave it for the next time.
    pub(crate) async fn sweep(&self) {
        if let Some(disk) = self.disk.clone() {
            let _ = blocking(move || disk.sweep()).await;
            return;
        }
        let now = SystemTime::now();
        for object in self.list_objects(layout::STAGING).await.unwrap_or_default() {
            if now.duration_since(object.last_modified.into()).is_ok_and(|age| age > STALE) {
                let _ = self.delete(object.location.as_ref()).await;
            }
        }
    }
}

/// A finished object in staging, deleted unless it is published.
pub(crate) struct Staged {
    objects: Objects,
    name: Option<String>,
}

impl Staged {
    /// Gives the object its name, replacing what stands there.
    pub(crate) async fn publish(mut self, target: String) -> Result<(), SourceError> {
        let Some(name) = &self.name else { return Ok(()) };
        if let Some(disk) = self.objects.disk.clone() {
            let staged = disk.root().join(name);
            blocking(move || {
                disk.rename(&staged, &target).map_err(|error| io_error("write store", &target, error))
            })
            .await??;
        } else {
            let (from, to) = (Path::from(name.as_str()), Path::from(target.as_str()));
            let renamed = self.objects.store.rename(&from, &to).await;
            renamed.map_err(|error| store_error("write store", &target, error))?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        if let Some(disk) = &self.objects.disk {
            let _ = std::fs::remove_file(disk.root().join(name));
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let objects = self.objects.clone();
            runtime.spawn(async move { objects.delete(&name).await });
        }
    }
}

/// Runs long work on the pool for blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let kind = if error.is_cancelled() { ErrorKind::Cancelled } else { ErrorKind::Io };
        SourceError::new(kind, "run blocking work", "the work did not end").with_source(error)
    })
}

/// The error of a file of the store, which names it.
pub(crate) fn io_error(operation: &'static str, name: &str, error: io::Error) -> SourceError {
    SourceError::io(operation, error).with_subject(name)
}

/// The error of an object, with the kind of the operating system's error where one is the cause.
pub(crate) fn store_error(operation: &'static str, name: &str, error: object_store::Error) -> SourceError {
    let kind = match &error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            ErrorKind::Denied
        }
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Io,
    };
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(system) = inner.downcast_ref::<io::Error>()
            && matches!(kind, ErrorKind::Io)
        {
            let copy = match system.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(system.kind(), system.to_string()),
            };
            return io_error(operation, name, copy);
        }
        cause = inner.source();
    }
    SourceError::new(kind, operation, error.to_string()).with_subject(name)
}
