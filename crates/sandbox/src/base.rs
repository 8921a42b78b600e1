//! Base trees: a snapshot as plain files, built once per node and never changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coldframe_core::{
    BlobStore, ErrorKind, Node as EntryNode, SnapshotEntry, SourceError, SourceSnapshot, Stored,
    WorkspaceError,
};
use futures_util::StreamExt;
use rustix::fs::{Mode, OFlags, fchmod, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::beneath::{Links, open_beneath};
use crate::node::{Node, system};

/// Blobs up to this size are read whole; larger ones stream.
const WHOLE_BYTES: u64 = 4 << 20;

const BUILD: &str = "build base tree";

/// A snapshot as plain files on this node.
#[derive(Debug, Clone)]
pub struct BaseTree {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) snapshot: coldframe_core::Digest,
}

/// Finds the base tree of `snapshot`, or builds it from verified blobs.
pub(crate) async fn prepare(
    node: &Node,
    store: &Arc<dyn BlobStore>,
    snapshot: &SourceSnapshot,
) -> Result<BaseTree, WorkspaceError> {
    let name = snapshot.tree().to_string();
    let tree = BaseTree { path: node.tree(&name), name, snapshot: snapshot.id() };
    if tree.path.is_dir() {
        return Ok(tree);
    }
    let (node, store, handle) = (node.clone(), Arc::clone(store), Handle::current());
    let entries: Arc<[SnapshotEntry]> = snapshot.entries().into();
    let built = tree.clone();
    let build = move || -> Result<(), WorkspaceError> {
        let staged = node.new_dir("trees").map_err(system("make a base tree"))?;
        let root = staged.path().join("tree");
        fs::create_dir(&root).map_err(system("make a base tree"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&root, flags, Mode::empty())
            .map_err(|error| SourceError::io(BUILD, error.into()))?;
        make_directories(&root, &entries)?;
        fill(&root, &entries, &store, &handle)?;
        staged.publish("tree", &built.path).map_err(system("publish a base tree"))
    };
    tokio::task::spawn_blocking(build).await.map_err(|error| WorkspaceError::System {
        operation: "build a base tree",
        detail: error.to_string(),
    })??;
    Ok(tree)
}

/// The folder that entries are put into; the last one stays open, since sorted entries come folder by folder.
struct Folders<'a> {
    root: &'a OwnedFd,
    open: Option<(String, OwnedFd)>,
}

impl Folders<'_> {
    fn of(&mut self, path: &str) -> Result<&OwnedFd, Errno> {
        let Some((parent, _)) = path.rsplit_once('/') else { return Ok(self.root) };
        let held = self.open.take().filter(|(open, _)| open == parent);
        let held = match held {
            Some(held) => held,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let folder = open_beneath(self.root.as_fd(), parent.as_bytes(), flags, Links::Refused)?;
                (parent.to_owned(), folder)
            }
        };
        Ok(&self.open.insert(held).1)
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn make_directories(root: &OwnedFd, entries: &[SnapshotEntry]) -> Result<(), SourceError> {
    let mut directories: BTreeSet<&str> = BTreeSet::new();
    for entry in entries {
        for ancestor in entry.path.ancestors() {
            if !directories.insert(ancestor) {
                break;
            }
        }
        if entry.node == EntryNode::Directory {
            directories.insert(entry.path.as_str());
        }
    }
    // Sorted, so that a parent comes before its children.
    let mut folders = Folders { root, open: None };
    directories.into_iter().try_for_each(|directory| {
        folders
            .of(directory)
            .and_then(|parent| mkdirat(parent, name_of(directory), Mode::from_raw_mode(0o755)))
            .map_err(|error| placed(error, directory))
    })
}

/// Why an entry could not be made. Names of a snapshot are unlike one another, so a name that is taken already
/// says that the file system takes two of them for one.
fn placed(error: Errno, path: &str) -> SourceError {
    let error = match error {
        Errno::EXIST => io::Error::other("another name meets it: this file system folds names"),
        other => other.into(),
    };
    SourceError::io(BUILD, error).with_subject(path)
}

/// Writes files and links from as many threads as there are processors.
fn fill(
    root: &OwnedFd,
    entries: &[SnapshotEntry],
    store: &Arc<dyn BlobStore>,
    handle: &Handle,
) -> Result<(), WorkspaceError> {
    const BATCH: usize = 64;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || -> Result<(), SourceError> {
            let mut folders = Folders { root, open: None };
            loop {
                let start = next.fetch_add(BATCH, Ordering::Relaxed);
                let Some(batch) = entries.get(start..entries.len().min(start + BATCH)) else { return Ok(()) };
                if batch.is_empty() {
                    return Ok(());
                }
                for entry in batch {
                    place(&mut folders, entry, store, handle).inspect_err(|_| {
                        // The other threads stop at their next batch.
                        next.store(entries.len(), Ordering::Relaxed);
                    })?;
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result.map_err(WorkspaceError::from),
            Err(_) => Err(WorkspaceError::System {
                operation: "build a base tree",
                detail: "a thread panicked".into(),
            }),
        })
    })
}

fn place(
    folders: &mut Folders<'_>,
    entry: &SnapshotEntry,
    store: &Arc<dyn BlobStore>,
    handle: &Handle,
) -> Result<(), SourceError> {
    let path = entry.path.as_str();
    let fail = |error: Errno| placed(error, path);
    match &entry.node {
        EntryNode::Directory => Ok(()),
        EntryNode::Symlink { target } => {
            symlinkat(target.as_str(), folders.of(path).map_err(fail)?, name_of(path)).map_err(fail)
        }
        EntryNode::File { digest, size, executable } => {
            // Given once more on the open file, since the process's own mask takes bits away.
            let mode = Mode::from_raw_mode(if *executable { 0o755 } else { 0o644 });
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(folders.of(path).map_err(fail)?, name_of(path), flags, mode).map_err(fail)?;
            fchmod(&file, mode).map_err(fail)?;
            let mut file = File::from(file);
            let blob = Stored { digest: *digest, size: *size };
            let write = |bytes: &[u8]| {
                file.write_all(bytes).map_err(|error| SourceError::io(BUILD, error).with_subject(path))
            };
            handle.block_on(hydrate(&**store, blob, write)).map_err(|error| named(error, entry))
        }
    }
}

/// An error of a blob says which path it was for, and keeps its kind.
fn named(error: SourceError, entry: &SnapshotEntry) -> SourceError {
    if !error.subject().is_empty() {
        return error;
    }
    let kind = if error.kind() == ErrorKind::NotFound { ErrorKind::Integrity } else { error.kind() };
    SourceError::new(kind, "hydrate", error.to_string()).with_subject(&entry.path).with_source(error)
}

/// Hands the verified bytes of `blob` to `write`.
pub(crate) async fn hydrate(
    store: &dyn BlobStore,
    blob: Stored,
    mut write: impl FnMut(&[u8]) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    if blob.size <= WHOLE_BYTES {
        return write(&store.read_bytes(blob).await?);
    }
    let mut chunks = store.read(blob).await?;
    while let Some(chunk) = chunks.next().await {
        write(&chunk?)?;
    }
    Ok(())
}
