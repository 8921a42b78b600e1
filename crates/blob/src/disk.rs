//! Answers for what a store on a local disk does past `object_store`: atomic publication, reads, file states.
//!
//! Unfinished files stand in a folder of this process below `staging/`, whose lock file it holds as long as it
//! lives. A folder whose lock is free belongs to a process that is gone, in whatever PID namespace it was.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use coldframe_core::Digest;

use crate::layout;
use crate::objects::Listed;
use crate::state::ObjectState;

const LOCK: &str = "lock";
/// The name of the lock file until its process holds it.
const STARTING: &str = "new";
/// So often a folder of this process may be swept away while it starts.
const STARTS: u32 = 16;
const OPEN_FILES: usize = 128;
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder that holds a store.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    session: Mutex<Option<Arc<Session>>>,
    /// Packs that were read lately: a base tree reads tens of thousands of blobs from a few packs.
    open_files: Mutex<HashMap<String, Arc<File>>>,
}

impl Disk {
    /// The folder `root`, made with mode 0700 where it is not there.
    pub(crate) fn create(root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let root = root.canonicalize()?;
        Ok(Self { root, session: Mutex::default(), open_files: Mutex::default() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// True where nothing but staging stands in the folder.
    pub(crate) fn is_fresh(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.root)? {
            if entry?.file_name() != layout::STAGING {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a file so that it is there whole or not at all. A file of that name is replaced: names follow
    /// from contents, so this can only heal it.
    pub(crate) fn publish(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let staged = self.root.join(self.staged_name()?);
        let written = File::create_new(&staged).and_then(|mut file| file.write_all(content));
        let published = written.and_then(|()| self.rename(&staged, name));
        if published.is_err() {
            let _ = fs::remove_file(&staged);
        }
        published
    }

    /// Moves a staged file to its final name, replacing what stands there.
    pub(crate) fn rename(&self, staged: &Path, name: &str) -> io::Result<()> {
        let target = self.root.join(name);
        match fs::rename(staged, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && staged.exists() => {
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::rename(staged, &target)?;
            }
            other => other?,
        }
        self.forget(name);
        Ok(())
    }

    /// A new name for an unfinished object.
    pub(crate) fn staged_name(&self) -> io::Result<String> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = match &*session {
            Some(session) => session,
            None => session.insert(Arc::new(Session::start(&self.root.join(layout::STAGING))?)),
        };
        let number = session.next.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{}/{}/{number}", layout::STAGING, session.name))
    }

    /// Reads exactly `length` bytes, which the caller knows to be few.
    pub(crate) fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = self.open_file(name)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Reads exactly `length` bytes of the file that stands under the name now.
    pub(crate) fn read_anew(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        File::open(self.root.join(name))?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Whether the file that stands under the name now holds exactly these bytes.
    pub(crate) fn holds(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        const PIECE_BYTES: usize = 64 << 10;
        let mut file = File::open(self.root.join(name))?;
        if file.metadata()?.len() != content.len() as u64 {
            return Ok(false);
        }
        let mut buffer = vec![0; PIECE_BYTES.min(content.len())];
        for piece in content.chunks(PIECE_BYTES) {
            let read = &mut buffer[..piece.len()];
            match file.read_exact(read) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                other => other?,
            }
            if read != piece {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hashes ranges of the file that stands under the name now, in one buffer as large as the longest of them.
    pub(crate) fn hash_ranges(
        &self,
        name: &str,
        ranges: &[Range<u64>],
    ) -> io::Result<Vec<io::Result<Digest>>> {
        let file = File::open(self.root.join(name))?;
        let mut buffer = Vec::new();
        let mut hash = |range: &Range<u64>| {
            let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
            if buffer.len() < length {
                buffer = vec![0; length];
            }
            file.read_exact_at(&mut buffer[..length], range.start)?;
            Ok(Digest::of(&buffer[..length]))
        };
        Ok(ranges.iter().map(&mut hash).collect())
    }

    fn open_file(&self, name: &str) -> io::Result<Arc<File>> {
        let mut open = self.open_files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(self.root.join(name))?);
        if open.len() >= OPEN_FILES {
            open.clear();
        }
        open.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    /// Closes the file, so that the next read sees what stands under the name then.
    pub(crate) fn forget(&self, name: &str) {
        self.open_files.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The state of a file or folder, or `None` where it is not there.
    pub(crate) fn state(&self, name: &str) -> io::Result<Option<ObjectState>> {
        match fs::metadata(self.root.join(name)) {
            Ok(metadata) => Ok(Some(ObjectState::of_file(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The files in a folder whose names end so; none where the folder is not there.
    pub(crate) fn list(&self, folder: &str, end: &str) -> io::Result<Vec<Listed>> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.ends_with(end) {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    listed.push(Listed { name, modified: metadata.modified()? });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    /// Removes what processes that are gone left in staging. Failures leave it for the next time.
    pub(crate) fn sweep(&self) {
        let Ok(sessions) = fs::read_dir(self.root.join(layout::STAGING)) else { return };
        for session in sessions.flatten() {
            let session = session.path();
            match File::open(session.join(LOCK)).or_else(|_| File::open(session.join(STARTING))) {
                // The lock is held until the folder is gone, so that a process that starts there notices.
                Ok(lock) if lock.try_lock().is_ok() => {
                    let _ = fs::remove_dir_all(&session);
                }
                Ok(_) => {}
                Err(_) if is_old(&session) => {
                    let _ = fs::remove_dir_all(&session);
                }
                Err(_) => {}
            }
        }
    }
}

fn is_old(session: &Path) -> bool {
    let modified = fs::metadata(session).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > STALE))
}

/// The staging folder of this process, removed when the last user of the store is gone.
#[derive(Debug)]
struct Session {
    folder: PathBuf,
    name: String,
    next: AtomicU64,
    _lock: File,
}

impl Session {
    fn start(staging: &Path) -> io::Result<Self> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        for _ in 0..STARTS {
            fs::create_dir_all(staging)?;
            let time =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            let number = STARTED.fetch_add(1, Ordering::Relaxed);
            let name = format!("{:x}-{time:x}-{number:x}", std::process::id());
            let folder = staging.join(&name);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            // The lock is taken before the file has the name that a sweep looks for.
            let unnamed = folder.join(STARTING);
            let lock = File::create_new(&unnamed)?;
            lock.lock()?;
            match fs::rename(&unnamed, folder.join(LOCK)) {
                // Another process held the lock first and took the folder for one that is left over.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            }
            return Ok(Self { folder, name, next: AtomicU64::new(0), _lock: lock });
        }
        Err(io::Error::other("the staging folder of this process is removed again and again"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
