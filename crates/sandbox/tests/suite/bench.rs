//! A snapshot made from a list of entries, and workspaces on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{
    BlobStore, CommandObservation, DeltaChange, Digest, EditParams, ListEntry, ListParams, Node,
    OpenWorkspace, ReadPage, ReadParams, RunParams, SnapshotEntry, SnapshotManifest, SourceRef,
    SourceSnapshot, ToolError, WorkspaceDelta, WorkspaceMutation, WorkspacePath, WriteParams,
};
use coldframe_sandbox::{Policy, Sandbox, SandboxWorkspace, Strategy};
use coldframe_testkit::MemoryStore;
use tempfile::TempDir;

/// Makes each named `async fn(Strategy)` two tests: over an overlay, and over a copy.
macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod overlay {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(coldframe_sandbox::Strategy::Overlay).await;
            })+
        }
        mod copy {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(coldframe_sandbox::Strategy::Copy).await;
            })+
        }
    };
}
pub(crate) use both;

/// What stands at a path of a snapshot.
pub(crate) enum Item {
    File(Vec<u8>),
    Program(Vec<u8>),
    Link(String),
    Folder,
}

pub(crate) fn file(content: impl Into<Vec<u8>>) -> Item {
    Item::File(content.into())
}

pub(crate) fn program(content: impl Into<Vec<u8>>) -> Item {
    Item::Program(content.into())
}

pub(crate) fn link(target: &str) -> Item {
    Item::Link(target.to_owned())
}

/// A node with one snapshot.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) store: MemoryStore,
    pub(crate) snapshot: SourceSnapshot,
    pub(crate) sandbox: Sandbox,
}

pub(crate) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

pub(crate) async fn snapshot<P: AsRef<str>>(
    store: &dyn BlobStore,
    items: impl IntoIterator<Item = (P, Item)>,
) -> SourceSnapshot {
    let mut entries = Vec::new();
    for (name, item) in items {
        let node = match item {
            Item::Folder => Node::Directory,
            Item::Link(target) => Node::Symlink { target },
            Item::File(content) => node_of(store, content, false).await,
            Item::Program(content) => node_of(store, content, true).await,
        };
        entries.push(SnapshotEntry { path: path(name.as_ref()), node });
    }
    let source = SourceRef::new("bench", "items", "").unwrap();
    SnapshotManifest { source, resolved_revision: String::new(), entries, omitted: vec![] }.seal().unwrap()
}

async fn node_of(store: &dyn BlobStore, content: Vec<u8>, executable: bool) -> Node {
    let stored = store.write_bytes(content).await.unwrap();
    Node::File { digest: stored.digest, size: stored.size, executable }
}

/// What tests run unless they say otherwise.
pub(crate) fn policy(strategy: Strategy) -> Policy {
    let programs = ["sh", "python3", "git", "cat", "true", "mkdir", "rm", "sleep", "touch"];
    Policy::allowing(programs).with_strategy(strategy).with_timeout(Duration::from_secs(50))
}

impl Bench {
    pub(crate) async fn new<P: AsRef<str>>(
        strategy: Strategy,
        items: impl IntoIterator<Item = (P, Item)>,
    ) -> Self {
        Self::with_policy(policy(strategy), items).await
    }

    pub(crate) async fn with_policy<P: AsRef<str>>(
        policy: Policy,
        items: impl IntoIterator<Item = (P, Item)>,
    ) -> Self {
        let store = MemoryStore::new();
        let snapshot = snapshot(&store, items).await;
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::open(&folder.path().join("cache"), Arc::new(store.clone()), policy).unwrap();
        Self { folder, store, snapshot, sandbox }
    }

    pub(crate) async fn open(&self) -> SandboxWorkspace {
        self.sandbox.open_workspace(OpenWorkspace { snapshot: &self.snapshot, delta: None }).await.unwrap()
    }

    pub(crate) async fn open_with(&self, delta: &WorkspaceDelta) -> SandboxWorkspace {
        let request = OpenWorkspace { snapshot: &self.snapshot, delta: Some(delta) };
        self.sandbox.open_workspace(request).await.unwrap()
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The stored bytes behind a digest.
    pub(crate) fn blob(&self, digest: Option<Digest>) -> Vec<u8> {
        digest.map_or(Vec::new(), |digest| self.store.content(&digest).unwrap().to_vec())
    }

    /// The folders of workspaces that are open or were left behind.
    pub(crate) fn work_folders(&self) -> Vec<PathBuf> {
        names(&self.cache().join("work"))
    }

    /// Opens the snapshot with `delta`: the tree must equal that of `workspace`, and so must a further export.
    pub(crate) async fn assert_reapplies(&self, workspace: &SandboxWorkspace, delta: &WorkspaceDelta) {
        let again = self.open_with(delta).await;
        assert_eq!(tree(&again).await, tree(workspace).await, "the tree after the delta was applied");
        let second = again.export().await.unwrap();
        assert_eq!(second.changes(), delta.changes(), "the changes of a second export");
        assert_eq!(
            workspace.export().await.unwrap(),
            *delta,
            "the same workspace exports the same delta twice"
        );
        delta.apply_to(&self.snapshot).unwrap();
    }
}

pub(crate) fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

pub(crate) fn words(command: &[&str]) -> RunParams {
    RunParams { command: command.iter().map(|word| (*word).to_owned()).collect(), cwd: ".".to_owned() }
}

pub(crate) async fn run(workspace: &SandboxWorkspace, command: &[&str]) -> CommandObservation {
    workspace.run(words(command)).await.unwrap()
}

/// Runs a shell script that must succeed, and gives what it printed.
pub(crate) async fn shell(workspace: &SandboxWorkspace, script: &str) -> String {
    let observed = run(workspace, &["sh", "-c", script]).await;
    assert_eq!(observed.exit_code, Some(0), "{script}\n{}\n{}", observed.stdout.text, observed.stderr.text);
    observed.stdout.text
}

/// Runs a Python program that must succeed, and gives what it printed.
pub(crate) async fn python(workspace: &SandboxWorkspace, code: &str) -> String {
    let observed = run(workspace, &["python3", "-c", code]).await;
    assert_eq!(observed.exit_code, Some(0), "{code}\n{}\n{}", observed.stdout.text, observed.stderr.text);
    observed.stdout.text
}

pub(crate) async fn read(workspace: &SandboxWorkspace, path: &str) -> Result<ReadPage, ToolError> {
    workspace.read(ReadParams { path: path.to_owned(), start_line: 1, end_line: 1_000_000 }).await
}

pub(crate) async fn text(workspace: &SandboxWorkspace, path: &str) -> String {
    read(workspace, path).await.unwrap().content
}

pub(crate) async fn write(
    workspace: &SandboxWorkspace,
    path: &str,
    content: &str,
) -> Result<WorkspaceMutation, ToolError> {
    let params = WriteParams { path: path.to_owned(), content: content.to_owned(), executable: None };
    workspace.write(params).await
}

/// Edits lines of a file with the hash that a read gives now.
pub(crate) async fn edit(
    workspace: &SandboxWorkspace,
    path: &str,
    lines: (u64, u64),
    replacement: &str,
) -> Result<WorkspaceMutation, ToolError> {
    let expected_sha256 = read(workspace, path).await?.sha256;
    let (path, replacement) = (path.to_owned(), replacement.to_owned());
    let (start_line, end_line) = lines;
    workspace.edit(EditParams { path, start_line, end_line, replacement, expected_sha256 }).await
}

pub(crate) async fn list(workspace: &SandboxWorkspace) -> Vec<ListEntry> {
    let params = ListParams { path: ".".to_owned(), recursive: true, limit: 5000 };
    let page = workspace.list(params).await.unwrap();
    assert!(!page.truncated);
    page.entries
}

/// Every path with its kind, mode and content.
pub(crate) async fn tree(workspace: &SandboxWorkspace) -> BTreeMap<String, String> {
    let mut tree = BTreeMap::new();
    for entry in list(workspace).await {
        let content = match (entry.size, &entry.target) {
            (Some(_), _) => match read(workspace, &entry.path).await {
                Ok(page) => page.sha256,
                Err(error) => error.observed_sha256.unwrap_or(error.message),
            },
            (None, Some(target)) => target.clone(),
            (None, None) => String::new(),
        };
        let executable = entry.executable;
        tree.insert(entry.path, format!("{:?} {executable} {content}", entry.kind));
    }
    tree
}

/// `+path`, `~path` and `-path`.
pub(crate) fn changes(delta: &WorkspaceDelta) -> Vec<String> {
    let sign = |change: &DeltaChange| match change {
        DeltaChange::Added { .. } => '+',
        DeltaChange::Modified { .. } => '~',
        DeltaChange::Deleted { .. } => '-',
    };
    delta.changes().iter().map(|change| format!("{}{}", sign(change), change.path())).collect()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this is the process that runs the rest of `test` alone, with `wrapper` before its command line. In the
/// process of the suite it runs that one to its good end, and answers no.
pub(crate) fn alone(test: &str, wrapper: &[&str]) -> bool {
    const INSIDE: &str = "COLDFRAME_TEST_ALONE";
    if std::env::var(INSIDE).as_deref() == Ok(test) {
        return true;
    }
    let executable = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let words: Vec<&str> = wrapper
        .iter()
        .copied()
        .chain([&*executable, "--exact", test, "--nocapture", "--test-threads=1"])
        .collect();
    let output = std::process::Command::new(words[0]).args(&words[1..]).env(INSIDE, test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    false
}
