//! An opened Coldframe: one home with its store, its adapters and its trusted configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coldframe_blob::Store;
use coldframe_core::{BlobStore, Id, OpenWorkspace, SourceRef, SourceSnapshot, WorkspaceDelta};
use coldframe_evidence::Restored;
use coldframe_sandbox::{Policy, Sandbox};

use crate::config::ToolchainMode;
use crate::runs::{create_run, journal_file};
use crate::session::{JournalPlace, Opened, Parts};
use crate::toolchain::{Surroundings, Toolchains};
use crate::{Config, Error, Home, Registry, Workspace};

/// One home with its store, adapters and configuration. [`crate::Runner`] opens it.
#[derive(Clone)]
pub struct Coldframe {
    home: Home,
    config: Config,
    store: Store,
    registry: Registry,
    surroundings: Surroundings,
}

impl std::fmt::Debug for Coldframe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Coldframe").field("home", &self.home).finish_non_exhaustive()
    }
}

/// A workspace that was just opened, and how long that took.
#[derive(Debug)]
pub struct OpenedWorkspace {
    /// The run whose receipts it makes.
    pub run: Id,
    /// The workspace.
    pub workspace: Workspace,
    /// The time for the base tree, which is nothing where it was there already.
    pub prepare_time: Duration,
    /// The time for the workspace itself.
    pub open_time: Duration,
}

impl Coldframe {
    pub(crate) fn assemble(
        home: Home,
        config: Config,
        store: Store,
        registry: Registry,
        surroundings: Surroundings,
    ) -> Self {
        Self { home, config, store, registry, surroundings }
    }

    /// The state folder.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The trusted configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The store of contents, snapshots and deltas.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The adapters.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Reads a source as a user writes it, relative to the current directory.
    ///
    /// # Errors
    ///
    /// Those of [`Registry::parse`].
    pub fn source(&self, text: &str) -> Result<SourceRef, Error> {
        let directory =
            std::env::current_dir().map_err(|error| Error::io("find the current directory", &error))?;
        self.registry.parse(text, &directory)
    }

    /// The toolchains that commands on `source` see, as the configuration has it.
    pub fn toolchains(&self, source: Option<&SourceRef>) -> Toolchains {
        if self.config.toolchains == ToolchainMode::Off {
            return Toolchains::system();
        }
        let mut surroundings = self.surroundings.clone().with_off_limits(self.home.root());
        surroundings.project = source.and_then(local_path).map(Path::to_path_buf);
        let toolchains = Toolchains::discover(&surroundings);
        for note in &toolchains.notes {
            tracing::debug!(entry = ?note.entry, verdict = note.verdict, "entry of PATH");
        }
        toolchains
    }

    /// The policy for tools on `source` that models and workflow files call.
    ///
    /// # Errors
    ///
    /// Those of [`Config::policy`], and where the search path leads into the source.
    pub fn policy(&self, source: Option<&SourceRef>) -> Result<Policy, Error> {
        if let Some(path) = source.and_then(local_path) {
            self.config.check_against_source(path)?;
        }
        self.config.policy(&self.toolchains(source))
    }

    /// Opens the sandbox of this home under `policy`.
    ///
    /// # Errors
    ///
    /// Those of the sandbox: a policy that contradicts itself, a host that cannot isolate.
    pub fn sandbox(&self, policy: Policy) -> Result<Sandbox, Error> {
        let store: Arc<dyn BlobStore> = Arc::new(self.store.clone());
        Ok(Sandbox::open(&self.sandbox_cache(), store, policy)?)
    }

    pub(crate) fn sandbox_cache(&self) -> PathBuf {
        self.home.cache().join("sandbox")
    }

    /// Opens a workspace on a snapshot, with a journal of its own under the home's `runs/`.
    ///
    /// # Errors
    ///
    /// Those of the sandbox, the store and the journal.
    pub async fn open_workspace(
        &self,
        snapshot: &SourceSnapshot,
        policy: Policy,
    ) -> Result<Workspace, Error> {
        let step = Id::parse("work")?;
        Ok(self.open_step(snapshot, None, policy, ("w", step)).await?.workspace)
    }

    /// As [`Coldframe::open_workspace`], going on from `delta`.
    ///
    /// # Errors
    ///
    /// As there; also where the delta is against another snapshot.
    pub async fn reopen_workspace(
        &self,
        snapshot: &SourceSnapshot,
        delta: &WorkspaceDelta,
        policy: Policy,
    ) -> Result<Workspace, Error> {
        let step = Id::parse("work")?;
        Ok(self.open_step(snapshot, Some(delta.clone()), policy, ("w", step)).await?.workspace)
    }

    pub(crate) async fn open_step(
        &self,
        snapshot: &SourceSnapshot,
        delta: Option<WorkspaceDelta>,
        policy: Policy,
        (prefix, step): (&str, Id),
    ) -> Result<OpenedWorkspace, Error> {
        let sandbox = self.sandbox(policy)?;
        let began = Instant::now();
        sandbox.prepare(snapshot).await?;
        let prepared = Instant::now();
        let inner = sandbox.open_workspace(OpenWorkspace { snapshot, delta: delta.as_ref() }).await?;
        let open_time = prepared.elapsed();
        let opened =
            Opened { isolation: inner.isolation().to_string(), strategy: inner.strategy().to_string() };
        let run = create_run(&self.home.runs(), prefix)?;
        tracing::debug!(%run, ?opened, ?open_time, "opened a workspace");
        let workspace = Workspace::begin(Parts {
            inner: Box::new(inner),
            opened,
            store: self.store.clone(),
            policy: sandbox.policy(),
            base: snapshot.id(),
            delta,
            journal: JournalPlace {
                file: &journal_file(&self.home.runs(), &run, &step),
                run: &run,
                step: &step,
                epoch: 1,
                restored: Restored::Nothing,
            },
        })?;
        Ok(OpenedWorkspace { run, workspace, prepare_time: prepared - began, open_time })
    }
}

/// The folder of a source that is one on this host.
pub(crate) fn local_path(source: &SourceRef) -> Option<&Path> {
    (source.provider == "local").then(|| Path::new(&source.locator))
}
