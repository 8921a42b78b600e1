//! The cache folder of this node: base trees, workspaces under way, and what killed processes left behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use coldframe_core::{SourceError, WorkspaceError};
use rustix::fs::{FlockOperation, flock};

use crate::remove::{remove_but_last, remove_tree};

/// What a sweep removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Workspaces whose process is gone.
    pub workspaces: u64,
    /// Base trees that were never finished, or that an earlier boot of this machine left.
    pub trees: u64,
}

/// The folders `trees`, `work` and `root` below one cache folder.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    directory: PathBuf,
}

/// A folder that belongs to this process until it is dropped; the next start removes it if it is not.
#[derive(Debug)]
pub(crate) struct OwnedDir {
    path: PathBuf,
    /// Held for the whole life: a lock that can be taken says that the owner is gone, whatever its pid was.
    _lock: File,
}

/// One sweep removes no more folders than this, since each is held by a descriptor.
const MOST_AT_ONCE: usize = 128;
const LOCK: &str = "lock";
const LOCK_NAME: &std::ffi::CStr = c"lock";

/// A full disk keeps its kind, so that a program can act on it.
pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> WorkspaceError {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SourceError::io(operation, error).into(),
        _ => WorkspaceError::System { operation, detail: error.to_string() },
    }
}

impl Node {
    pub(crate) fn open(directory: &Path) -> Result<Self, WorkspaceError> {
        let open = || -> io::Result<Self> {
            make_private(directory)?;
            let mode = directory.metadata()?.mode();
            if mode & 0o1002 == 0o002 {
                let detail =
                    format!("{}: every user may write there; give a private folder", directory.display());
                return Err(io::Error::other(detail));
            }
            let node = Self { directory: directory.canonicalize()? };
            for name in ["trees", "work", "root"] {
                make_own(&node.directory.join(name))?;
            }
            node.discard_earlier_boot()?;
            Ok(node)
        };
        open().map_err(system("open the cache folder"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// An empty folder over which roots are mounted, in namespaces that the host does not see.
    pub(crate) fn root_stage(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.directory.join("trees").join(name)
    }

    /// A new folder in `trees` or `work`, locked before a sweep can see it unlocked.
    pub(crate) fn new_dir(&self, parent: &str) -> io::Result<OwnedDir> {
        let gate = self.gate()?;
        flock(&gate, FlockOperation::LockShared)?;
        let path = self.directory.join(parent).join(unique_name());
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path.join(LOCK));
        match lock.and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        }) {
            Ok(lock) => Ok(OwnedDir { path, _lock: lock }),
            Err(error) => {
                let _ = remove_tree(&path);
                Err(error)
            }
        }
    }

    fn gate(&self) -> io::Result<File> {
        let path = self.directory.join("gate");
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
    }

    /// Removes the folders whose owner is gone. Does nothing while another process is making one.
    pub(crate) fn sweep(&self) -> io::Result<SweepReport> {
        let gate = self.gate()?;
        let mut report = SweepReport::default();
        if flock(&gate, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(report);
        }
        let abandoned = [self.abandoned("work")?, self.abandoned("trees")?];
        // What was found is locked, so it is removed without keeping others from opening workspaces.
        drop(gate);
        for (directories, count) in abandoned.iter().zip([&mut report.workspaces, &mut report.trees]) {
            for directory in directories {
                // One folder that cannot be removed must not keep the others, or this process, from their work.
                match directory.remove() {
                    Ok(()) => *count += 1,
                    Err(error) => {
                        tracing::warn!(path = %directory.path.display(), %error, "a folder that a killed process left stays");
                    }
                }
            }
        }
        Ok(report)
    }

    /// The folders in `parent` without an owner, now locked. The gate is held.
    fn abandoned(&self, parent: &str) -> io::Result<Vec<Abandoned>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.directory.join(parent))? {
            let entry = entry?;
            if found.len() == MOST_AT_ONCE {
                break;
            }
            // A finished tree has the name of its digest; only what is under way starts with a dot.
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            match OpenOptions::new().write(true).open(path.join(LOCK)) {
                Ok(lock) if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                    found.push(Abandoned { path, _lock: Some(lock) });
                }
                Ok(_) => {}
                // The gate is ours, so nobody is between making the folder and its lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    found.push(Abandoned { path, _lock: None });
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "a folder cannot be looked at"),
            }
        }
        Ok(found)
    }

    /// Puts aside the base trees of an earlier boot. They were never forced to the disk, so a loss of power may
    /// have left files of them empty. The gate keeps others out meanwhile.
    fn discard_earlier_boot(&self) -> io::Result<()> {
        let Ok(boot) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return Ok(()) };
        let mark = self.directory.join("boot");
        let is_current = || fs::read_to_string(&mark).is_ok_and(|known| known == boot);
        if is_current() {
            return Ok(());
        }
        let gate = self.gate()?;
        flock(&gate, FlockOperation::LockExclusive)?;
        if is_current() {
            return Ok(());
        }
        let trees = self.directory.join("trees");
        for entry in fs::read_dir(&trees)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                // The sweep removes it.
                fs::rename(entry.path(), trees.join(unique_name()))?;
            }
        }
        let written = self.directory.join(unique_name());
        fs::write(&written, boot)?;
        fs::rename(&written, &mark)
    }
}

/// A folder whose owner is gone.
struct Abandoned {
    path: PathBuf,
    _lock: Option<File>,
}

impl Abandoned {
    fn remove(&self) -> io::Result<()> {
        remove_but_last(&self.path, LOCK_NAME)
    }
}

fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!(".{:x}-{:x}-{}", std::process::id(), time.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn make_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Makes a folder of the cache, or checks that it is this user's and closes it to others.
fn make_own(directory: &Path) -> io::Result<()> {
    make_private(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        let detail =
            format!("{}: belongs to another user; give each user a cache folder", directory.display());
        return Err(io::Error::other(detail));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

impl OwnedDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives `name`, made in this folder, to `destination`. True where it is there now, by whomever.
    pub(crate) fn publish(&self, name: &str, destination: &Path) -> io::Result<()> {
        match fs::rename(self.path.join(name), destination) {
            Err(_) if destination.is_dir() => Ok(()),
            other => other,
        }
    }

    /// Removes the folder and says so where that fails.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // The lock goes last: a folder without one looks abandoned to others.
        remove_but_last(&self.path, LOCK_NAME)
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = self.remove()
        {
            tracing::warn!(path = %self.path.display(), %error, "a workspace folder stays until the next start");
        }
    }
}
