//! Puts the changes of a delta into a fresh workspace.

use std::fs::File;
use std::io::Write;

use coldframe_core::{
    BlobStore, DeltaChange, Node as EntryNode, SourceError, SourceSnapshot, Stored, WorkspaceDelta,
    WorkspacePath,
};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, symlinkat, unlinkat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::base::hydrate;
use crate::dir::WorkspaceDir;

const APPLY: &str = "apply delta";

/// Refuses a delta that does not fit the snapshot. It costs what the delta holds, not what the snapshot holds.
pub(crate) fn check(snapshot: &SourceSnapshot, delta: &WorkspaceDelta) -> Result<(), SourceError> {
    if delta.base() != snapshot.id() {
        let detail = format!("the delta is against snapshot {}, not {}", delta.base(), snapshot.id());
        return Err(SourceError::contract(APPLY, detail));
    }
    let refuse = |path: &WorkspacePath, detail: &str| {
        Err(SourceError::contract(APPLY, detail.to_owned()).with_subject(path))
    };
    for change in delta.changes() {
        let path = change.path();
        let in_base = snapshot.entry(path.as_str()).is_some();
        match change {
            DeltaChange::Added { .. } if in_base => return refuse(path, "added, but the base has it"),
            DeltaChange::Modified { .. } | DeltaChange::Deleted { .. } if !in_base => {
                return refuse(path, "changed or deleted, but the base does not have it");
            }
            _ => {}
        }
        if change.node().is_none() {
            continue;
        }
        let is_in_the_way = |ancestor: &str| {
            snapshot.entry(ancestor).is_some_and(|entry| entry.node != EntryNode::Directory)
                && delta.change(ancestor).is_none_or(|change| change.node().is_some())
        };
        let goes =
            |path: &WorkspacePath| matches!(delta.change(path.as_str()), Some(DeltaChange::Deleted { .. }));
        if snapshot.entries_below(path.as_str()).iter().any(|entry| !goes(&entry.path)) {
            return refuse(path, "replaces a folder of the base that has entries that stay");
        }
        if path.ancestors().any(is_in_the_way) {
            return refuse(path, "lies under a file or a link of the base that stays");
        }
    }
    Ok(())
}

/// Where a delta goes.
pub(crate) struct Applier<'a> {
    pub(crate) dir: &'a WorkspaceDir,
    pub(crate) store: &'a dyn BlobStore,
    pub(crate) handle: &'a Handle,
}

fn fail(path: &WorkspacePath) -> impl Fn(Errno) -> SourceError + '_ {
    move |errno| SourceError::io(APPLY, errno.into()).with_subject(path)
}

impl Applier<'_> {
    /// Applies a delta that [`check`] let pass.
    pub(crate) fn apply(&self, delta: &WorkspaceDelta) -> Result<(), SourceError> {
        // Deepest first, so that a file that becomes a directory, and the reverse, finds its place free.
        for change in delta.changes().iter().rev() {
            self.clear(change).map_err(fail(change.path()))?;
        }
        for change in delta.changes() {
            self.put(change)?;
        }
        Ok(())
    }

    /// Removes what stands at a path, unless it is a directory that has entries, and the directories that lose
    /// their last entry with it, since no entry is left that would name them.
    fn clear(&self, change: &DeltaChange) -> Result<(), Errno> {
        let path = change.path();
        let parent = match self.dir.open_parent(path, false) {
            Ok(parent) => parent,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error),
        };
        match unlinkat(&parent, path.name(), AtFlags::empty()) {
            Err(Errno::ISDIR) => match unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOTEMPTY) => {}
                Err(error) => return Err(error),
            },
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        if change.node().is_some() {
            return Ok(());
        }
        for ancestor in path.ancestors().filter_map(|ancestor| WorkspacePath::parse(ancestor).ok()) {
            let parent = self.dir.open_parent(&ancestor, false)?;
            match unlinkat(&parent, ancestor.name(), AtFlags::REMOVEDIR) {
                Ok(()) => {}
                Err(Errno::NOTEMPTY | Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn put(&self, change: &DeltaChange) -> Result<(), SourceError> {
        let path = change.path();
        let Some(node) = change.node() else { return Ok(()) };
        let parent = self.dir.open_parent(path, true).map_err(fail(path))?;
        match node {
            EntryNode::Directory => match mkdirat(&parent, path.name(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(fail(path)(error)),
            },
            EntryNode::Symlink { target } => {
                symlinkat(target.as_str(), &parent, path.name()).map_err(fail(path))
            }
            EntryNode::File { digest, size, executable } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(if *executable { 0o755 } else { 0o644 });
                let file = openat(&parent, path.name(), flags, mode).map_err(fail(path))?;
                fchmod(&file, mode).map_err(fail(path))?;
                let mut file = File::from(file);
                let blob = Stored { digest: *digest, size: *size };
                let write = |bytes: &[u8]| {
                    file.write_all(bytes).map_err(|error| SourceError::io(APPLY, error).with_subject(path))
                };
                self.handle.block_on(hydrate(self.store, blob, write)).map_err(|error| {
                    match error.subject() {
                        "" => error.with_subject(path),
                        _ => error,
                    }
                })
            }
        }
    }
}
