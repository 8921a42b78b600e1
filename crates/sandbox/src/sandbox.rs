//! Opens workspaces on this node: chooses strategy and isolation, builds base trees, cleans up.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use coldframe_core::{
    BlobStore, BoxFuture, OpenWorkspace, SourceSnapshot, Workspace, WorkspaceError, WorkspaceProvider,
};
use tokio::runtime::Handle;

use crate::apply::{self, Applier};
use crate::base::{self, BaseTree};
use crate::copy::copy_tree;
use crate::dir::WorkspaceDir;
use crate::minimal_root;
use crate::node::{Node, OwnedDir, SweepReport, system};
use crate::policy::{Access, Isolation, Policy, Strategy};
use crate::sys::{Container, OverlayLayers, WorkspaceSpace};
use crate::workspace::{Inner, SandboxWorkspace, StoreHandle, plain_dir};

/// Opens workspaces on this node. Cheap to clone; clones share the namespaces.
#[derive(Debug, Clone)]
pub struct Sandbox {
    node: Node,
    store: StoreHandle,
    policy: Arc<Policy>,
    container: Arc<Mutex<Option<Arc<Container>>>>,
    contained: Arc<Mutex<Option<Contained>>>,
}

/// A container with the minimal root of one policy.
#[derive(Debug, Clone)]
pub(crate) struct Contained {
    container: Arc<Container>,
    root: Arc<OwnedFd>,
    hidden: Arc<[Hidden]>,
}

/// A hidden part of a grant as it was when it was covered. A file that is replaced by a rename, as programs do
/// when they save, takes the cover with it.
#[derive(Debug)]
struct Hidden {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Contained {
    fn is_current(&self) -> bool {
        self.hidden.iter().all(|hidden| identity(&hidden.path) == hidden.identity)
    }

    /// Whether both have the very same root.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    pub(crate) fn space(
        &self,
        workspace: BorrowedFd<'_>,
        previous: Option<&WorkspaceSpace>,
        policy: &Policy,
    ) -> io::Result<WorkspaceSpace> {
        self.container.space(self.root.as_fd(), workspace, previous, policy.max_temporary_bytes)
    }
}

impl Sandbox {
    /// Opens the cache folder, made if need be with mode 0700, checks the policy and removes what killed
    /// processes left behind. `store` holds the blobs of every snapshot that will be opened.
    pub fn open(cache_dir: &Path, store: Arc<dyn BlobStore>, policy: Policy) -> Result<Self, WorkspaceError> {
        policy.check()?;
        let node = Node::open(cache_dir)?;
        check_grants(&node, &policy)?;
        let sandbox = Self {
            node,
            store: StoreHandle(store),
            policy: Arc::new(policy),
            container: Arc::default(),
            contained: Arc::default(),
        };
        sandbox.sweep()?;
        Ok(sandbox)
    }

    /// The policy of the workspaces that this sandbox opens.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The same node under another policy.
    pub fn with_policy(&self, policy: Policy) -> Result<Self, WorkspaceError> {
        policy.check()?;
        check_grants(&self.node, &policy)?;
        Ok(Self { policy: Arc::new(policy), contained: Arc::default(), ..self.clone() })
    }

    /// Removes workspaces whose process is gone and base trees that were never finished.
    pub fn sweep(&self) -> Result<SweepReport, WorkspaceError> {
        self.node.sweep().map_err(system("sweep the cache folder"))
    }

    /// Builds the base tree of a snapshot, or finds it. Opening a workspace does so itself.
    pub async fn prepare(&self, snapshot: &SourceSnapshot) -> Result<BaseTree, WorkspaceError> {
        base::prepare(&self.node, &self.store.0, snapshot).await
    }

    /// Opens a workspace on `request.snapshot` with the changes of `request.delta` in it.
    pub async fn open_workspace(
        &self,
        request: OpenWorkspace<'_>,
    ) -> Result<SandboxWorkspace, WorkspaceError> {
        if let Some(delta) = request.delta {
            apply::check(request.snapshot, delta)?;
        }
        let tree = self.prepare(request.snapshot).await?;
        let (sandbox, delta, handle) = (self.clone(), request.delta.cloned(), Handle::current());
        let open = move || -> Result<SandboxWorkspace, WorkspaceError> {
            let mut inner = sandbox.materialize(&tree)?;
            if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
                Applier { dir: &inner.dir, store: &*inner.store.0, handle: &handle }.apply(&delta)?;
                inner.parents = vec![delta.id()];
            }
            Ok(SandboxWorkspace::new(inner))
        };
        tokio::task::spawn_blocking(open).await.map_err(|error| WorkspaceError::System {
            operation: "open workspace",
            detail: error.to_string(),
        })?
    }

    fn container(&self) -> Result<Arc<Container>, String> {
        let mut container = self.container.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(container) = &*container {
            return Ok(Arc::clone(container));
        }
        // A failure is not kept: it may have been a lack of descriptors that has passed.
        let made = Container::new().map_err(|error| error.to_string())?;
        Ok(Arc::clone(container.insert(Arc::new(made))))
    }

    /// The container of this policy, or why there is none.
    pub(crate) fn contained(&self) -> Result<Contained, String> {
        let container = self.container()?;
        let mut contained = self.contained.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(contained) = contained.as_ref().filter(|contained| contained.is_current()) {
            return Ok(contained.clone());
        }
        let hidden = self.policy.grants.iter().flat_map(|grant| &grant.hidden);
        let hidden = hidden.map(|path| Hidden { path: path.clone(), identity: identity(path) }).collect();
        let root = minimal_root::plan(&self.policy)
            .and_then(|steps| container.root(&self.node.root_stage(), &steps))
            .map_err(|error| error.to_string())?;
        Ok(contained.insert(Contained { container, root: Arc::new(root), hidden }).clone())
    }

    fn materialize(&self, tree: &BaseTree) -> Result<Inner, WorkspaceError> {
        let contained = match self.contained() {
            Ok(contained) => Some(contained),
            Err(detail) if self.policy.required_isolation == Isolation::Full => {
                let detail = format!("{detail}; run `coldframe doctor` to see what is missing");
                return Err(WorkspaceError::Isolation(detail));
            }
            Err(detail) => {
                tracing::warn!(%detail, "commands are refused: this host cannot contain them");
                None
            }
        };
        let owned = self.node.new_dir("work").map_err(system("make the workspace folder"))?;
        let (root, strategy, written) = self.mount(tree, contained.as_ref(), &owned)?;
        Ok(Inner {
            space: Mutex::default(),
            dir: WorkspaceDir::new(root),
            sandbox: self.clone(),
            is_contained: contained.is_some(),
            cache: crate::export::ExportCache::default(),
            policy: Arc::clone(&self.policy),
            store: self.store.clone(),
            base: tree.snapshot,
            parents: Vec::new(),
            lower: tree.path.clone(),
            written,
            strategy,
            effects: Arc::default(),
            owned,
        })
    }

    fn mount(
        &self,
        tree: &BaseTree,
        contained: Option<&Contained>,
        owned: &OwnedDir,
    ) -> Result<(OwnedFd, Strategy, &'static str), WorkspaceError> {
        let overlay = match (self.policy.strategy, contained) {
            (Strategy::Copy, _) => None,
            (_, None) => Some(Err(io::Error::other("user namespaces are refused"))),
            (_, Some(contained)) => Some(mount_overlay(&contained.container, tree, owned)),
        };
        match overlay {
            Some(Ok(root)) => return Ok((root, Strategy::Overlay, "upper")),
            Some(Err(error)) if self.policy.strategy == Strategy::Overlay => {
                return Err(system("mount the overlay")(error));
            }
            Some(Err(error)) => tracing::warn!(%error, "no overlay here; the base tree is copied"),
            None => {}
        }
        let copy = owned.path().join("copy");
        copy_tree(&tree.path, &copy).map_err(system("copy the base tree"))?;
        let root = match contained {
            Some(contained) => contained.container.plain(&copy),
            None => plain_dir(&copy),
        };
        Ok((root.map_err(system("open the copy"))?, Strategy::Copy, "copy"))
    }
}

/// Commands that could write into the cache folder could change what other workspaces start from.
fn check_grants(node: &Node, policy: &Policy) -> Result<(), WorkspaceError> {
    let cache = node.directory();
    let opens = |path: &Path| {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        cache.starts_with(&path) || path.starts_with(cache)
    };
    match policy.grants.iter().find(|grant| grant.access == Access::ReadWrite && opens(&grant.path)) {
        Some(grant) => Err(WorkspaceError::Configuration(format!(
            "grant {:?} would let commands write into the cache folder {}; grant less, or move the cache folder",
            grant.path,
            cache.display()
        ))),
        None => Ok(()),
    }
}

fn mount_overlay(container: &Container, tree: &BaseTree, owned: &OwnedDir) -> io::Result<OwnedFd> {
    for name in ["upper", "work"] {
        fs::create_dir(owned.path().join(name))?;
    }
    // Relative, so that no character of the cache folder's path means something to the kernel's parser.
    let lower = format!("../../trees/{}", tree.name);
    container.overlay(&OverlayLayers { directory: owned.path(), lower: &lower, upper: "upper", work: "work" })
}

impl WorkspaceProvider for Sandbox {
    fn open<'a>(
        &'a self,
        request: OpenWorkspace<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Workspace>, WorkspaceError>> {
        Box::pin(async move { Ok(Box::new(self.open_workspace(request).await?) as Box<dyn Workspace>) })
    }
}
