//! Captures of real directories: every test makes its own tree and says which situation it pins.

mod changing;
mod conformance;
mod hosts;
mod ignored;
mod kinds;
mod limits;
mod recapture;
mod refused;
mod unchanged;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use coldframe_core::{
    ErrorKind, Node, OmissionReason, SnapshotLimits, SourceError, SourceRef, SourceSnapshot,
};
use coldframe_local::LocalSource;
use coldframe_testkit::{FixtureNode, MemoryStore, block_on, capture_into_memory};
use tempfile::TempDir;

/// A tree in a temporary directory, below a folder that keeps it apart from caches and outsiders.
struct Tree {
    folder: TempDir,
}

impl Tree {
    fn new(nodes: &[FixtureNode]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        let tree = Self { folder };
        nodes.iter().for_each(|node| tree.put(node));
        tree
    }

    /// A tree of plain files, each holding its own path.
    fn of(paths: &[&str]) -> Self {
        Self::new(&paths.iter().map(|path| FixtureNode::file(path, *path)).collect::<Vec<_>>())
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("tree")
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        self.put(&FixtureNode::file(path, content));
    }

    fn put(&self, node: &FixtureNode) {
        let path = self.path(node.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match node {
            FixtureNode::Directory { .. } => fs::create_dir_all(path).unwrap(),
            FixtureNode::Symlink { target, .. } => symlink(target, path).unwrap(),
            FixtureNode::File { content, executable, .. } => {
                fs::write(&path, content).unwrap();
                let mode = if *executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }

    fn capture(&self) -> SourceSnapshot {
        self.capture_with(&LocalSource::new())
    }

    fn capture_with(&self, adapter: &LocalSource) -> SourceSnapshot {
        capture(adapter, &self.root(), SnapshotLimits::default()).unwrap().0
    }

    fn refusal(&self) -> SourceError {
        capture(&LocalSource::new(), &self.root(), SnapshotLimits::default()).unwrap_err()
    }
}

fn reference(root: &Path) -> SourceRef {
    SourceRef::new(LocalSource::PROVIDER, root.to_str().unwrap(), "").unwrap()
}

fn capture(
    adapter: &LocalSource,
    root: &Path,
    limits: SnapshotLimits,
) -> Result<(SourceSnapshot, MemoryStore), SourceError> {
    block_on(capture_into_memory(adapter, &reference(root), limits))
}

fn paths(snapshot: &SourceSnapshot) -> Vec<&str> {
    snapshot.entries().iter().map(|entry| entry.path.as_str()).collect()
}

/// What was left out, as `reason subject count`.
fn omitted(snapshot: &SourceSnapshot) -> Vec<String> {
    snapshot.omitted().iter().map(|left| format!("{} {} {}", left.reason, left.subject, left.count)).collect()
}
