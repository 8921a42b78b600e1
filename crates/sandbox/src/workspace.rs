//! An open workspace: the tools, the order of effects, export and clean-up.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coldframe_core::{
    BlobStore, BoxFuture, CommandObservation, Digest, EditParams, ListPage, ListParams, ReadPage, ReadParams,
    RunParams, SearchPage, SearchParams, SourceError, ToolAnswer, ToolCall, ToolError, ToolStatus, Workspace,
    WorkspaceDelta, WorkspaceError, WorkspaceMutation, WriteParams,
};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::runtime::Handle;

use crate::command;
use crate::dir::WorkspaceDir;
use crate::export::{ExportCache, Exporter, Layers};
use crate::layer::Layer;
use crate::node::{OwnedDir, system};
use crate::policy::{Isolation, Policy, Strategy};
use crate::read_tools;
use crate::sandbox::{Contained, Sandbox};
use crate::search_tool;
use crate::sys::WorkspaceSpace;
use crate::write_tools;

/// An isolated copy-on-write workspace. Effects run one at a time in call order; reads do not wait for them.
/// Dropping it leaves nothing behind.
#[derive(Debug, Clone)]
pub struct SandboxWorkspace {
    inner: Arc<Inner>,
}

/// The namespaces of a workspace with the root that they were made from.
#[derive(Debug)]
pub(crate) struct Space {
    contained: Contained,
    made: Arc<WorkspaceSpace>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    // Fields are dropped in this order: the mounts go before the folder that they show.
    pub(crate) space: Mutex<Option<Space>>,
    pub(crate) dir: WorkspaceDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) is_contained: bool,
    pub(crate) cache: ExportCache,
    pub(crate) policy: Arc<Policy>,
    pub(crate) store: StoreHandle,
    pub(crate) base: Digest,
    pub(crate) parents: Vec<Digest>,
    pub(crate) lower: PathBuf,
    /// The folder that holds what was written: the upper layer, or the copy.
    pub(crate) written: &'static str,
    pub(crate) strategy: Strategy,
    pub(crate) effects: Arc<tokio::sync::Mutex<()>>,
    pub(crate) owned: OwnedDir,
}

/// A blob store in a structure that can be printed.
#[derive(Clone)]
pub(crate) struct StoreHandle(pub(crate) Arc<dyn BlobStore>);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StoreHandle")
    }
}

fn lost(error: &tokio::task::JoinError) -> ToolError {
    ToolError::new(ToolStatus::Failed, format!("the tool ended unexpectedly: {error}"))
}

impl SandboxWorkspace {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// What commands of this workspace run under.
    pub fn isolation(&self) -> Isolation {
        if self.inner.is_contained { Isolation::Full } else { Isolation::None }
    }

    /// What this workspace was materialized with: overlay or copy.
    pub fn strategy(&self) -> Strategy {
        self.inner.strategy
    }

    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.map_err(|error| lost(&error))?
    }

    async fn changing<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        // The guard travels with the work, so that a dropped caller does not let the next effect overtake it.
        let guard = Arc::clone(&self.inner.effects).lock_owned().await;
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let _guard = guard;
            work(&inner)
        });
        done.await.map_err(|error| lost(&error))?
    }

    /// `workspace_list`: sorted entries with kind, size and executable bit.
    pub async fn list(&self, params: ListParams) -> Result<ListPage, ToolError> {
        self.reading(move |inner| read_tools::list(&inner.dir, &params)).await
    }

    /// `workspace_read`: lines of a text with the SHA-256 of the whole file.
    pub async fn read(&self, params: ReadParams) -> Result<ReadPage, ToolError> {
        self.reading(move |inner| read_tools::read(&inner.dir, &params)).await
    }

    /// `workspace_search`: matching lines, and what was not searched.
    pub async fn search(&self, params: SearchParams) -> Result<SearchPage, ToolError> {
        self.reading(move |inner| search_tool::search(&inner.dir, &params)).await
    }

    /// `workspace_write`: creates or replaces a file in one step.
    pub async fn write(&self, params: WriteParams) -> Result<WorkspaceMutation, ToolError> {
        self.changing(move |inner| write_tools::write(&inner.dir, &inner.policy, &params)).await
    }

    /// `workspace_edit`: replaces lines of a file that is still what the caller read.
    pub async fn edit(&self, params: EditParams) -> Result<WorkspaceMutation, ToolError> {
        self.changing(move |inner| write_tools::edit(&inner.dir, &inner.policy, &params)).await
    }

    /// `workspace_run`: runs a program to its end or its time-out; afterwards no process of it is left. Dropping
    /// the future ends the command.
    pub async fn run(&self, params: RunParams) -> Result<CommandObservation, ToolError> {
        let failed =
            |error: Errno| ToolError::new(ToolStatus::Failed, format!("a pipe could not be made: {error}"));
        let (cancelled, waiting) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let handle = Handle::current();
        let observed = self.changing(move |inner| inner.run(&params, &cancelled, &handle)).await;
        // Dropped with this future when nobody waits any more, which ends the command.
        drop(waiting);
        observed
    }

    /// The cumulative changes against the snapshot, with every new content in the blob store.
    pub async fn export(&self) -> Result<WorkspaceDelta, WorkspaceError> {
        let guard = Arc::clone(&self.inner.effects).lock_owned().await;
        let (inner, handle) = (Arc::clone(&self.inner), Handle::current());
        let export = move || {
            let _guard = guard;
            inner.export(&handle)
        };
        tokio::task::spawn_blocking(export)
            .await
            .map_err(|error| WorkspaceError::System { operation: "export", detail: error.to_string() })?
    }

    /// Takes everything away once the call in flight has ended, and says so where that fails.
    pub async fn close(self) -> Result<(), WorkspaceError> {
        let guard = Arc::clone(&self.inner.effects).lock_owned().await;
        let inner = self.inner;
        let close = move || {
            let _guard = guard;
            match Arc::try_unwrap(inner) {
                Ok(Inner { space, dir, owned, .. }) => {
                    drop((space, dir));
                    owned.remove().map_err(system("remove the workspace"))
                }
                // A clone is still in use; its end removes the folder.
                Err(_) => Ok(()),
            }
        };
        tokio::task::spawn_blocking(close)
            .await
            .map_err(|error| WorkspaceError::System { operation: "close", detail: error.to_string() })?
    }
}

impl Inner {
    /// The namespaces of this workspace's commands. They are made at the first command, and again where a hidden
    /// part of a grant was replaced on the host, since the cover of the old one is gone then.
    fn space(&self) -> Result<Arc<WorkspaceSpace>, ToolError> {
        if !self.is_contained {
            let message = "this host cannot contain commands and the configuration does not ask for containment; \
                           commands are refused";
            return Err(ToolError::new(ToolStatus::Refused, message));
        }
        let failed = |error: &dyn std::fmt::Display| {
            ToolError::new(ToolStatus::Failed, format!("the container could not be made: {error}"))
        };
        let contained = self.sandbox.contained().map_err(|error| failed(&error))?;
        let mut held = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = held.as_ref().filter(|space| space.contained.is_same(&contained)) {
            return Ok(Arc::clone(&space.made));
        }
        let previous = held.as_ref().map(|space| &*space.made);
        let made =
            contained.space(self.dir.root(), previous, &self.policy).map_err(|error| failed(&error))?;
        let made = Arc::new(made);
        *held = Some(Space { contained, made: Arc::clone(&made) });
        Ok(made)
    }

    fn run(
        &self,
        params: &RunParams,
        cancelled: &OwnedFd,
        handle: &Handle,
    ) -> Result<CommandObservation, ToolError> {
        let admitted = command::admit(&self.policy, &self.dir, params)?;
        let space = self.space()?;
        let observed_at = write_tools::now();
        let finished = command::run(&self.policy, &space, &admitted, self.owned.path(), cancelled)?;
        let store = |error: SourceError| {
            ToolError::new(ToolStatus::Failed, format!("the output could not be stored: {error}"))
        };
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Ok(CommandObservation {
            tool_receipt_id: None,
            command: params.command.clone(),
            cwd: admitted.cwd,
            exit_code: finished.exit_code,
            signal: finished.signal,
            timed_out: finished.timed_out,
            timeout_ms: millis(self.policy.timeout),
            duration_ms: millis(finished.duration),
            stdout: handle.block_on(finished.stdout.finish(&*self.store.0)).map_err(store)?,
            stderr: handle.block_on(finished.stderr.finish(&*self.store.0)).map_err(store)?,
            observed_at,
            isolation: Isolation::Full.to_string(),
        })
    }

    fn export(&self, handle: &Handle) -> Result<WorkspaceDelta, WorkspaceError> {
        let layer =
            |path: &Path| Layer::open(path).map_err(|error| SourceError::io("export delta", error.into()));
        let layers = Layers {
            upper: layer(&self.owned.path().join(self.written))?,
            lower: layer(&self.lower)?,
            complete: self.strategy == Strategy::Copy,
        };
        let exporter = Exporter {
            exclude: &self.policy.exclude,
            limits: self.policy.delta_limits,
            store: &*self.store.0,
            handle,
            cache: &self.cache,
        };
        Ok(exporter.export(self.base, self.parents.clone(), &layers)?)
    }
}

impl Workspace for SandboxWorkspace {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        Box::pin(async move {
            match call.clone() {
                ToolCall::List(params) => self.list(params).await.map(ToolAnswer::List),
                ToolCall::Read(params) => self.read(params).await.map(ToolAnswer::Read),
                ToolCall::Search(params) => self.search(params).await.map(ToolAnswer::Search),
                ToolCall::Write(params) => self.write(params).await.map(ToolAnswer::Mutation),
                ToolCall::Edit(params) => self.edit(params).await.map(ToolAnswer::Mutation),
                ToolCall::Run(params) => self.run(params).await.map(ToolAnswer::Command),
            }
        })
    }

    fn export<'a>(&'a self) -> BoxFuture<'a, Result<WorkspaceDelta, WorkspaceError>> {
        Box::pin(Self::export(self))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(Self::close(*self))
    }
}

/// The handle of a plain folder, for hosts without namespaces.
pub(crate) fn plain_dir(path: &std::path::Path) -> std::io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(std::io::Error::from)
}
