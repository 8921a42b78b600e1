//! Keeps runs in folders: `<root>/<run>/` with `state.json`, `workflow.toml` and a lock. See
//! `docs/formats/run-state.md`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coldframe_core::{BoxFuture, Digest, Id};

use crate::store::{Durability, OpenedRun, RunHandle, RunStore};
use crate::workflow::MAX_WORKFLOW_BYTES;
use crate::{MeshError, MeshErrorKind, RunState};

const STATE: &str = "state.json";
const PREVIOUS: &str = "state.previous.json";
const WORKFLOW: &str = "workflow.toml";
const LOCK: &str = "lock";
const FORMAT: &str = "1";
const MAX_STATE_BYTES: u64 = 1 << 30;

/// Runs in a folder of this machine.
///
/// The lock is `flock(2)`: it ends with the process that has it, also after `kill -9`.
#[derive(Debug, Clone)]
pub struct FileRunStore {
    root: PathBuf,
    lock_wait: Duration,
}

impl FileRunStore {
    /// Keeps runs under `root`, which is made, for this user alone, when the first run is.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), lock_wait: Duration::from_secs(1) }
    }

    /// How long to wait for the lock of a run; one second unless said otherwise. A process that was killed may
    /// leave a child that has the lock for a moment longer.
    #[must_use]
    pub fn with_lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// The folder of a run.
    pub fn folder(&self, run: &Id) -> PathBuf {
        self.root.join(run.as_str())
    }

    /// The ids of all runs, sorted. Folders without a state are none.
    pub fn runs(&self) -> Result<Vec<Id>, MeshError> {
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(MeshError::io("list runs", error)),
        };
        let mut runs = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| MeshError::io("list runs", error))?.file_name();
            let id = name.to_str().and_then(|name| Id::parse(name).ok());
            runs.extend(id.filter(|id| self.folder(id).join(STATE).is_file()));
        }
        runs.sort_unstable();
        Ok(runs)
    }

    fn create_now(&self, workflow: &str, state: &RunState) -> Result<LockedFolder, MeshError> {
        let folder = self.folder(&state.run);
        let failed = |error| MeshError::io(format_args!("create run {}", state.run), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let mut locked = self.lock(&state.run)?;
        if folder.join(STATE).symlink_metadata().is_ok() {
            let message = format!("run {} exists; resume it or take another id", state.run);
            return Err(MeshError::new(MeshErrorKind::Exists, message));
        }
        replace(&folder, WORKFLOW, workflow.as_bytes(), Durability::Machine).map_err(failed)?;
        locked.write(&state.run, &encode(state)?, Durability::Machine)?;
        sync_folder(&self.root).map_err(failed)?;
        Ok(locked)
    }

    fn open_now(&self, run: &Id) -> Result<(LockedFolder, RunState, String), MeshError> {
        if self.folder(run).join(STATE).symlink_metadata().is_err() {
            return Err(not_found(run));
        }
        let mut locked = self.lock(run)?;
        let (workflow, state) = self.load_now(run)?;
        locked.written = Some(
            Stamp::of(&self.folder(run).join(STATE))
                .map_err(|error| MeshError::io(format_args!("open run {run}"), error))?,
        );
        Ok((locked, state, workflow))
    }

    fn load_now(&self, run: &Id) -> Result<(String, RunState), MeshError> {
        let folder = self.folder(run);
        let read = |name: &str, limit| match read_file(&folder.join(name), limit) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(MeshError::io(format_args!("read {name} of run {run}"), error)),
            Ok(bytes) => Ok(Some(bytes)),
        };
        let bytes = read(STATE, MAX_STATE_BYTES)?.ok_or_else(|| not_found(run))?;
        let state = decode(&bytes).map_err(|problem| problem.into_error(run, &folder))?;
        let workflow = read(WORKFLOW, MAX_WORKFLOW_BYTES as u64)?.unwrap_or_default();
        if state.run != *run || Digest::of(&workflow) != state.workflow_digest {
            let what = if state.run == *run { "workflow.toml was changed" } else { "it is another run's" };
            return Err(Problem::Damaged(what.to_owned()).into_error(run, &folder));
        }
        let workflow = String::from_utf8(workflow)
            .map_err(|_| Problem::Damaged("workflow.toml is no text".to_owned()).into_error(run, &folder))?;
        Ok((workflow, state))
    }

    fn lock(&self, run: &Id) -> Result<LockedFolder, MeshError> {
        let folder = self.folder(run);
        let failed = |error| MeshError::io(format_args!("lock run {run}"), error);
        let mut options = private();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(LOCK))
            .map_err(failed)?;
        let end = Instant::now() + self.lock_wait;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    let _ = (&file).take(32).read_to_string(&mut owner);
                    let owner: String = owner.chars().filter(char::is_ascii_digit).collect();
                    let who = if owner.is_empty() {
                        "another process".to_owned()
                    } else {
                        format!("process {owner}")
                    };
                    let message =
                        format!("{who} works on run {run}; wait until it ends, or stop it and resume");
                    return Err(MeshError::new(MeshErrorKind::Busy, message));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        // The number is for the message above alone; the lock itself is the kernel's.
        let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        note.map_err(failed)?;
        Ok(LockedFolder { folder, _lock: file, written: None })
    }
}

fn not_found(run: &Id) -> MeshError {
    MeshError::new(MeshErrorKind::NotFound, format!("there is no run {run}; check the id"))
}

impl RunStore for FileRunStore {
    fn create<'a>(
        &'a self,
        workflow: &'a str,
        state: &'a RunState,
    ) -> BoxFuture<'a, Result<Box<dyn RunHandle>, MeshError>> {
        let (store, workflow, state) = (self.clone(), workflow.to_owned(), state.clone());
        Box::pin(async move {
            let run = state.run.clone();
            let locked = blocking(move || store.create_now(&workflow, &state)).await?;
            Ok(Box::new(FileRunHandle { run, locked: Some(locked) }) as Box<dyn RunHandle>)
        })
    }

    fn open<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<OpenedRun, MeshError>> {
        let (store, run) = (self.clone(), run.clone());
        Box::pin(async move {
            let id = run.clone();
            let (locked, state, workflow) = blocking(move || store.open_now(&id)).await?;
            let handle = Box::new(FileRunHandle { run, locked: Some(locked) });
            Ok(OpenedRun { handle, state, workflow })
        })
    }

    fn load<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<(String, RunState), MeshError>> {
        let (store, run) = (self.clone(), run.clone());
        Box::pin(async move { blocking(move || store.load_now(&run)).await })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MeshError> + Send + 'static,
) -> Result<T, MeshError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(MeshError::new(MeshErrorKind::Io, format!("the work on the state was cut short: {error}")))
        }
    }
}

/// Writes one run. The folder moves into the thread that writes and back, so the lock outlives every write,
/// also one whose future was dropped.
struct FileRunHandle {
    run: Id,
    locked: Option<LockedFolder>,
}

impl RunHandle for FileRunHandle {
    fn save<'a>(
        &'a mut self,
        state: &'a RunState,
        durability: Durability,
    ) -> BoxFuture<'a, Result<(), MeshError>> {
        Box::pin(async move {
            let lost = || {
                let message = format!("an earlier write of run {} did not end; resume the run", self.run);
                MeshError::new(MeshErrorKind::Fenced, message)
            };
            let bytes = encode(state)?;
            let mut locked = self.locked.take().ok_or_else(lost)?;
            let run = self.run.clone();
            let written = blocking(move || {
                let result = locked.write(&run, &bytes, durability);
                Ok((locked, result))
            });
            let (locked, result) = written.await?;
            self.locked = Some(locked);
            result
        })
    }
}

/// What identifies one written file: any other writer changes it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let data = path.symlink_metadata()?;
        Ok(Self {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            changed: (data.mtime(), data.mtime_nsec()),
        })
    }
}

struct LockedFolder {
    folder: PathBuf,
    _lock: File,
    /// The state file as this process last saw it; None before the first write of a new run.
    written: Option<Stamp>,
}

impl LockedFolder {
    fn write(&mut self, run: &Id, bytes: &[u8], durability: Durability) -> Result<(), MeshError> {
        let path = self.folder.join(STATE);
        // A lock file that somebody removed, or a disk without locks, must not let two writers in.
        if self.written.is_some() && Stamp::of(&path).ok() != self.written {
            let message = format!(
                "another process has written the state of run {run}; this one stops and writes nothing"
            );
            return Err(MeshError::new(MeshErrorKind::Fenced, message));
        }
        let failed = |error| MeshError::io(format_args!("save the state of run {run}"), error);
        replace(&self.folder, STATE, bytes, durability).map_err(failed)?;
        if durability == Durability::Machine {
            let staged = self.folder.join(format!("{PREVIOUS}.new"));
            let _ = std::fs::remove_file(&staged);
            std::fs::hard_link(&path, &staged).map_err(failed)?;
            std::fs::rename(&staged, self.folder.join(PREVIOUS)).map_err(failed)?;
            sync_folder(&self.folder).map_err(failed)?;
        }
        self.written = Some(Stamp::of(&path).map_err(failed)?);
        Ok(())
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Writes beside the file and renames, so that a reader sees the old bytes or the new ones.
fn replace(folder: &Path, name: &str, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let staged = folder.join(format!("{name}.new"));
    // Removed first: it may be a leftover, and a link in its place must not be followed.
    match std::fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(&staged)?;
    let written = file.write_all(bytes).and_then(|()| match durability {
        Durability::Process => Ok(()),
        Durability::Machine => file.sync_data(),
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&staged);
        return Err(error);
    }
    std::fs::rename(&staged, folder.join(name))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than it can be"));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why bytes are no state.
enum Problem {
    Damaged(String),
    Format(String),
}

impl Problem {
    fn into_error(self, run: &Id, folder: &Path) -> MeshError {
        match self {
            Self::Format(format) => {
                let message = format!(
                    "the state of run {run} has format {format:?}; this version reads format {FORMAT}, take the one that wrote it"
                );
                MeshError::new(MeshErrorKind::Unsupported, message)
            }
            Self::Damaged(what) => {
                let way = if folder.join(PREVIOUS).is_file() {
                    format!(
                        "copy {PREVIOUS} over {STATE} in the run's folder to go on from the last ended step"
                    )
                } else {
                    "start a new run with another id".to_owned()
                };
                let message = format!("the state of run {run} is damaged ({what}); {way}");
                MeshError::new(MeshErrorKind::Corrupt, message)
            }
        }
    }
}

const HEAD: &str = "{\"format\":";
const CHECKSUM: &str = ",\"checksum\":\"";
const BODY: &str = "\",\"state\":";
const TAIL: &str = "}\n";

fn encode(state: &RunState) -> Result<Vec<u8>, MeshError> {
    let body = serde_json::to_string(state)
        .map_err(|error| MeshError::new(MeshErrorKind::Io, format!("write the state as JSON: {error}")))?;
    if body.len() as u64 > MAX_STATE_BYTES / 2 {
        let message =
            format!("the outputs of run {} are too large to be kept; cite what is large instead", state.run);
        return Err(MeshError::new(MeshErrorKind::NoSpace, message));
    }
    let checksum = Digest::of(body.as_bytes());
    Ok(format!("{HEAD}{FORMAT}{CHECKSUM}{checksum}{BODY}{body}{TAIL}").into_bytes())
}

fn decode(bytes: &[u8]) -> Result<RunState, Problem> {
    let damaged = |what: &str| Problem::Damaged(what.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    let rest = text.strip_prefix(HEAD).ok_or_else(|| damaged("its beginning is missing"))?;
    let (format, rest) = rest.split_once(CHECKSUM).ok_or_else(|| damaged("its beginning is cut"))?;
    if format != FORMAT {
        let is_number = !format.is_empty() && format.bytes().all(|byte| byte.is_ascii_digit());
        let shown: String = format.chars().take(20).collect();
        return Err(if is_number { Problem::Format(shown) } else { damaged("its format is no number") });
    }
    let (checksum, rest) = rest.split_once(BODY).ok_or_else(|| damaged("its checksum is cut"))?;
    let body = rest.strip_suffix(TAIL).ok_or_else(|| damaged("its end is missing"))?;
    if checksum.parse() != Ok(Digest::of(body.as_bytes())) {
        return Err(damaged("its checksum does not fit"));
    }
    serde_json::from_str(body).map_err(|error| Problem::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests;
