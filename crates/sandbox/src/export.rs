//! Exports a delta from the upper layer: cost follows what changed, not what the tree holds.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use coldframe_core::{
    BlobStore, DeltaChange, Digest, ExcludedCount, LimitKind, Node, SnapshotEntry, SnapshotLimits,
    SourceError, WorkspaceDelta, WorkspacePath,
};
use rustix::fs::{FileType, Stat, readlinkat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::dir::escaped;
use crate::file_stream::file_stream;
use crate::layer::{Layer, is_opaque, is_whiteout, join, kind_of, open_file, stat_at};
use crate::read_tools::{Named, read_names};
use crate::twins::{self, FoldCache};

/// Files up to this size are read whole.
const WHOLE_BYTES: u64 = 4 << 20;
/// A file that changed this short a time before it was hashed may change again without a new time stamp.
const RACY_NS: i128 = 50_000_000;

const EXPORT: &str = "export delta";

/// What stood at a path when it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mode: rustix::fs::RawMode,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let ns = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mode: stat.st_mode,
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec as i64),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// What a file was when it was hashed; no node says that it equalled the base.
type Hashed = (Stamp, Option<Node>);

/// Remembers which files were hashed already, so that an export after each call costs what the call changed.
#[derive(Debug, Default)]
pub(crate) struct ExportCache {
    files: Mutex<HashMap<Vec<u8>, Hashed>>,
    folded: FoldCache,
}

/// Where the changes of a workspace are.
pub(crate) struct Layers {
    /// What the workspace wrote, or the whole copy.
    pub(crate) upper: Layer,
    /// The base tree.
    pub(crate) lower: Layer,
    /// Whether the upper layer holds everything that there is, so that what is missing was deleted.
    pub(crate) complete: bool,
}

/// What an export needs besides the layers.
pub(crate) struct Exporter<'a> {
    pub(crate) exclude: &'a [String],
    pub(crate) limits: SnapshotLimits,
    pub(crate) store: &'a dyn BlobStore,
    pub(crate) handle: &'a Handle,
    pub(crate) cache: &'a ExportCache,
}

struct Walk<'a> {
    exporter: &'a Exporter<'a>,
    layers: &'a Layers,
    changes: Vec<DeltaChange>,
    entries: u64,
    bytes: u64,
    excluded: BTreeMap<String, u64>,
    now_ns: i128,
    pending: Vec<Place<'a>>,
}

/// A folder that is to be compared.
struct Place<'a> {
    path: Vec<u8>,
    /// What the base has at this path.
    base: Option<FileType>,
    /// Whether nothing of the base shows below.
    hides_base: bool,
    /// The exclusion rule that a segment matched.
    rule: Option<&'a str>,
}

/// The open handles of a place.
struct Handles {
    upper: OwnedFd,
    lower: Option<OwnedFd>,
}

fn fail(path: &[u8]) -> impl Fn(Errno) -> SourceError + use<> {
    let path = escaped(path);
    move |errno| SourceError::io(EXPORT, io::Error::from(errno)).with_subject(&path)
}

fn legal(path: &[u8]) -> Option<WorkspacePath> {
    WorkspacePath::parse(std::str::from_utf8(path).ok()?).ok()
}

impl Exporter<'_> {
    /// The cumulative delta against the base snapshot, with every new content in the blob store.
    pub(crate) fn export(
        &self,
        base: Digest,
        parents: Vec<Digest>,
        layers: &Layers,
    ) -> Result<WorkspaceDelta, SourceError> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let root = Place { path: Vec::new(), base: Some(FileType::Directory), hides_base: false, rule: None };
        let mut walk = Walk {
            exporter: self,
            layers,
            changes: Vec::new(),
            entries: 0,
            bytes: 0,
            excluded: BTreeMap::new(),
            now_ns: now.as_nanos() as i128,
            pending: vec![root],
        };
        while let Some(place) = walk.pending.pop() {
            walk.folder(&place)?;
        }
        twins::check(EXPORT, &walk.changes, &layers.lower, &self.cache.folded)?;
        let excluded = walk.excluded.into_iter().map(|(rule, count)| ExcludedCount { rule, count }).collect();
        WorkspaceDelta::new(base, parents, walk.changes, excluded)
    }

    fn rule_for(&self, name: &[u8]) -> Option<&str> {
        self.exclude.iter().map(String::as_str).find(|rule| rule.as_bytes() == name)
    }
}

impl<'a> Walk<'a> {
    /// Compares one folder; those below it wait their turn.
    fn folder(&mut self, place: &Place<'a>) -> Result<(), SourceError> {
        let error = fail(&place.path);
        let upper = self.layers.upper.directory(&place.path).map_err(&error)?;
        let lower = match place.base {
            Some(FileType::Directory) => Some(self.layers.lower.directory(&place.path).map_err(&error)?),
            _ => None,
        };
        let names = read_names(&upper).map_err(&error)?;
        // The overlay marks only the topmost folder that hides the base; those below it hide it as well.
        let hides_base = place.hides_base || self.layers.complete || is_opaque(&upper);
        let handles = Handles { upper, lower };
        let mut occupied = false;
        for named in &names {
            occupied |= self.name(place, &handles, &named.name, hides_base)?;
        }
        let hidden = self.hidden(&handles, &names, occupied, hides_base).map_err(&error)?;
        if hides_base {
            for name in &hidden {
                self.delete(place, &handles, name)?;
            }
        }
        if !occupied && (hides_base || hidden.is_empty()) {
            self.bare(place, &handles)
        } else {
            if place.base.is_some_and(|kind| kind != FileType::Directory) {
                self.push_deleted(&place.path);
            }
            Ok(())
        }
    }

    /// The names that only the base has, where the answer depends on them.
    fn hidden(
        &self,
        handles: &Handles,
        names: &[Named],
        occupied: bool,
        hides_base: bool,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let Some(lower) = handles.lower.as_ref().filter(|_| hides_base || !occupied) else {
            return Ok(Vec::new());
        };
        let in_upper = |name: &[u8]| names.binary_search_by(|named| named.name.as_slice().cmp(name)).is_ok();
        Ok(read_names(lower)?.into_iter().map(|named| named.name).filter(|name| !in_upper(name)).collect())
    }

    /// A folder without any entry is an entry of its own.
    fn bare(&mut self, place: &Place<'a>, handles: &Handles) -> Result<(), SourceError> {
        let Some(path) = legal(&place.path) else { return Ok(()) };
        let lower_is_empty = match &handles.lower {
            Some(lower) => read_names(lower).map_err(fail(&place.path))?.is_empty(),
            None => false,
        };
        let entry = SnapshotEntry { path, node: Node::Directory };
        match place.base {
            Some(FileType::Directory) if lower_is_empty => Ok(()),
            Some(FileType::Directory) | None => self.push(DeltaChange::Added { entry }),
            Some(_) => self.push(DeltaChange::Modified { entry }),
        }
    }

    /// One name of the upper layer. True where it is an entry of the merged folder.
    fn name(
        &mut self,
        place: &Place<'a>,
        handles: &Handles,
        name: &[u8],
        hides_base: bool,
    ) -> Result<bool, SourceError> {
        let path = join(&place.path, name);
        let Some(stat) = stat_at(&handles.upper, name).map_err(fail(&path))? else { return Ok(false) };
        if is_whiteout(&stat) && !self.layers.complete {
            self.delete(place, handles, name)?;
            return Ok(false);
        }
        let lower = match &handles.lower {
            Some(lower) => stat_at(lower, name).map_err(fail(&path))?,
            None => None,
        };
        let rule = place.rule.or_else(|| self.exporter.rule_for(name));
        let rule_here = if lower.is_none() { rule } else { None };
        let target = match (rule_here, legal(&path)) {
            (None, Some(target)) => target,
            (rule, _) => {
                let count = self.layers.upper.count(&place.path, name).map_err(fail(&path))?;
                *self.excluded.entry(rule.unwrap_or("illegal name").to_owned()).or_default() += count;
                return Ok(true);
            }
        };
        let kind = kind_of(&stat);
        if kind == FileType::Directory {
            self.pending.push(Place { path, base: lower.as_ref().map(kind_of), hides_base, rule });
            return Ok(true);
        }
        if lower.as_ref().map(kind_of) == Some(FileType::Directory) {
            // What lay below the folder is gone. An empty one was an entry: it is replaced, unless nothing can be.
            self.delete_below(&path, false)?;
        }
        match kind {
            FileType::RegularFile => self.file(handles, name, target, &stat, lower.as_ref())?,
            FileType::Symlink => self.link(handles, name, target, lower.as_ref())?,
            _ => self.leave_out("special file", &target, lower.as_ref())?,
        }
        Ok(true)
    }

    /// Whether the snapshot has an entry at a path where the base tree has `lower`.
    fn is_base_entry(&self, path: &WorkspacePath, lower: Option<&Stat>) -> Result<bool, SourceError> {
        match lower.map(kind_of) {
            None => Ok(false),
            Some(FileType::Directory) => {
                let path = path.as_str().as_bytes();
                Ok(self.layers.lower.names(path).map_err(fail(path))?.is_empty())
            }
            Some(_) => Ok(true),
        }
    }

    /// What no delta can hold is counted, and what it replaced is gone.
    fn leave_out(
        &mut self,
        rule: &str,
        path: &WorkspacePath,
        lower: Option<&Stat>,
    ) -> Result<(), SourceError> {
        *self.excluded.entry(rule.to_owned()).or_default() += 1;
        if self.is_base_entry(path, lower)? {
            self.push_deleted(path.as_str().as_bytes());
        }
        Ok(())
    }

    /// Reports a base path, and all below it, as deleted.
    fn delete(&mut self, place: &Place<'a>, handles: &Handles, name: &[u8]) -> Result<(), SourceError> {
        let Some(lower) = &handles.lower else { return Ok(()) };
        let path = join(&place.path, name);
        match stat_at(lower, name).map_err(fail(&path))?.as_ref().map(kind_of) {
            None => {}
            Some(FileType::Directory) => self.delete_below(&path, true)?,
            Some(_) => self.push_deleted(&path),
        }
        Ok(())
    }

    fn push_deleted(&mut self, path: &[u8]) {
        // Every path of the base is legal.
        self.changes.extend(legal(path).map(|path| DeltaChange::Deleted { path }));
    }

    /// Reports what the base has below the folder `path`, and the folder where it was an entry and `itself` is set.
    fn delete_below(&mut self, path: &[u8], itself: bool) -> Result<(), SourceError> {
        let mut pending = vec![path.to_vec()];
        while let Some(folder) = pending.pop() {
            let names = self.layers.lower.names(&folder).map_err(fail(&folder))?;
            if names.is_empty() && (itself || folder != path) {
                self.push_deleted(&folder);
            }
            for named in names {
                let below = join(&folder, &named.name);
                if named.kind == FileType::Directory {
                    pending.push(below)
                } else {
                    self.push_deleted(&below)
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, change: DeltaChange) -> Result<(), SourceError> {
        let (limits, size) = (self.exporter.limits, change.node().map_or(0, Node::size));
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(size);
        let bounds = [
            (LimitKind::MaxFiles, limits.max_files, self.entries),
            (LimitKind::MaxFileBytes, limits.max_file_bytes, size),
            (LimitKind::MaxTotalBytes, limits.max_total_bytes, self.bytes),
        ];
        if let Some((kind, limit, met)) = bounds.into_iter().find(|(_, limit, met)| met > limit) {
            return Err(over(kind, limit, met, change.path()));
        }
        self.changes.push(change);
        Ok(())
    }

    fn file(
        &mut self,
        handles: &Handles,
        name: &[u8],
        target: WorkspacePath,
        stat: &Stat,
        lower: Option<&Stat>,
    ) -> Result<(), SourceError> {
        let (key, stamp) = (target.as_str().as_bytes(), Stamp::of(stat));
        let cache = &self.exporter.cache.files;
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(key).filter(|(known, _)| *known == stamp).map(|(_, node)| node.clone());
        let node = match known {
            Some(node) => node,
            None => {
                let node = self.hash(handles, name, &target, stat, lower)?;
                if self.now_ns - stamp.changed_ns > RACY_NS {
                    lock().insert(key.to_vec(), (stamp, node.clone()));
                }
                node
            }
        };
        let Some(node) = node else { return Ok(()) };
        let is_base_entry = self.is_base_entry(&target, lower)?;
        let entry = SnapshotEntry { path: target, node };
        self.push(if is_base_entry { DeltaChange::Modified { entry } } else { DeltaChange::Added { entry } })
    }

    /// What stands there now, stored; `None` where it equals the base.
    fn hash(
        &self,
        handles: &Handles,
        name: &[u8],
        target: &WorkspacePath,
        stat: &Stat,
        lower: Option<&Stat>,
    ) -> Result<Option<Node>, SourceError> {
        let open = |directory: &OwnedFd| open_file(directory, name).map_err(fail(target.as_str().as_bytes()));
        let io = |error: io::Error| SourceError::io(EXPORT, error).with_subject(target);
        let (executable, size) = (stat.st_mode & 0o100 != 0, stat.st_size as u64);
        if let (Some(lower), Some(directory)) = (lower, &handles.lower)
            && kind_of(lower) == FileType::RegularFile
            && (lower.st_mode & 0o100 != 0) == executable
            && lower.st_size == stat.st_size
            && same_content(open(&handles.upper)?, open(directory)?).map_err(io)?
        {
            return Ok(None);
        }
        // Before the bytes are read: a sparse file may claim any size.
        for (kind, limit, met) in [
            (LimitKind::MaxFileBytes, self.exporter.limits.max_file_bytes, size),
            (LimitKind::MaxTotalBytes, self.exporter.limits.max_total_bytes, self.bytes.saturating_add(size)),
        ] {
            if met > limit {
                return Err(over(kind, limit, met, target));
            }
        }
        let mut file = open(&handles.upper)?;
        let (store, handle) = (self.exporter.store, self.exporter.handle);
        let stored = if size <= WHOLE_BYTES {
            let mut content = Vec::with_capacity(stat.st_size as usize);
            file.read_to_end(&mut content).map_err(io)?;
            handle.block_on(store.write_bytes(content))
        } else {
            handle.block_on(store.write(file_stream(file, EXPORT)))
        };
        let stored = stored.map_err(|error| match error.subject() {
            "" => error.with_subject(target),
            _ => error,
        })?;
        Ok(Some(Node::File { digest: stored.digest, size: stored.size, executable }))
    }

    fn link(
        &mut self,
        handles: &Handles,
        name: &[u8],
        target: WorkspacePath,
        lower: Option<&Stat>,
    ) -> Result<(), SourceError> {
        let error = fail(target.as_str().as_bytes());
        let read = |directory: &OwnedFd| readlinkat(directory, name, Vec::new()).map_err(&error);
        let Ok(text) = read(&handles.upper)?.into_string() else {
            return self.leave_out("link target that is not UTF-8", &target, lower);
        };
        if let (Some(directory), Some(FileType::Symlink)) = (&handles.lower, lower.map(kind_of))
            && read(directory)?.to_bytes() == text.as_bytes()
        {
            return Ok(());
        }
        let is_base_entry = self.is_base_entry(&target, lower)?;
        let entry = SnapshotEntry { path: target, node: Node::Symlink { target: text } };
        self.push(if is_base_entry { DeltaChange::Modified { entry } } else { DeltaChange::Added { entry } })
    }
}

fn over(kind: LimitKind, limit: u64, met: u64, path: &WorkspacePath) -> SourceError {
    let detail = format!(
        "{kind} of a delta is {limit}, the workspace has at least {met}; remove what is not wanted, or raise the limit"
    );
    SourceError::new(coldframe_core::ErrorKind::LimitExceeded(kind), EXPORT, detail).with_subject(path)
}

fn same_content(mut one: File, mut two: File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let read = read_full(&mut one, &mut left)?;
        if read != read_full(&mut two, &mut right)? || left[..read] != right[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
