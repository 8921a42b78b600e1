//! Runs a workflow file: source, engine, merged result and verified receipts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{Digest, Id, SourceRef, WorkspaceDelta};
use coldframe_mesh::{
    Cancellation, CompletedStep, Engine, EngineOptions, FileRunStore, MAX_WORKFLOW_BYTES, Observer,
    RunReport, RunStore, Workflow, WorkflowSource,
};

use crate::capture::SnapshotSize;
use crate::host::Host;
use crate::merge::merged_delta;
use crate::runs::fresh_id;
use crate::{Coldframe, Error, Kind, Selection, StepReceipts};

/// What to run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The workflow file.
    pub workflow: PathBuf,
    /// The source, in place of the one that the file names.
    pub source: Option<SourceRef>,
    /// The run's id, in place of a fresh one.
    pub id: Option<Id>,
}

/// A run that is about to begin.
#[derive(Debug, Clone)]
pub struct PreparedRun {
    /// Its id.
    pub run: Id,
    /// The workflow.
    pub workflow: Workflow,
    /// The source that was captured.
    pub source: SourceRef,
    /// The snapshot.
    pub snapshot: Digest,
    /// What the snapshot holds.
    pub size: SnapshotSize,
    /// The time of the capture.
    pub capture_time: Duration,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// The steps and what they left.
    pub report: RunReport,
    /// What the run changed, all its last steps merged and stored; absent where no step is completed.
    pub delta: Option<WorkspaceDelta>,
    /// The receipts of each step, verified against the heads that the run recorded.
    pub receipts: Vec<StepReceipts>,
}

impl Coldframe {
    /// Reads the workflow and captures its source. Nothing is run yet.
    ///
    /// # Errors
    ///
    /// `Contract` where the file is wrong or no source is named; those of the capture.
    pub async fn prepare_run(&self, request: &RunRequest) -> Result<PreparedRun, Error> {
        let workflow = Workflow::parse(read_workflow(&request.workflow)?)?;
        let source = match (&request.source, workflow.source()) {
            (Some(source), _) => source.clone(),
            (None, Some(source)) => self.workflow_source(source, &request.workflow)?,
            (None, None) => {
                let message =
                    format!("workflow {} names no source; add [source] or give --source", workflow.id());
                return Err(Error::new(Kind::Contract, message));
            }
        };
        let run = match &request.id {
            Some(id) => id.clone(),
            None => fresh_id(&format!("{}-", shortened(workflow.id().as_str())))?,
        };
        let captured = self.capture(&source, &Selection::default()).await?;
        Ok(PreparedRun {
            run,
            workflow,
            source,
            snapshot: captured.snapshot.id(),
            size: SnapshotSize::of(&captured.snapshot),
            capture_time: captured.time,
        })
    }

    /// Runs a prepared run to its end, or until `cancellation`. A step that fails is part of the report.
    ///
    /// # Errors
    ///
    /// `Conflict` where the run exists with another workflow or source, or somebody works on it; those of the
    /// store and the sandbox.
    pub async fn run(
        &self,
        prepared: &PreparedRun,
        observer: Arc<dyn Observer>,
        cancellation: Cancellation,
    ) -> Result<RunResult, Error> {
        let engine = self.engine(Some(&prepared.source), observer, cancellation)?;
        let report = engine.run(&prepared.workflow, prepared.snapshot, &prepared.run).await?;
        self.result(report).await
    }

    /// Goes on with a run that was stopped or has failed.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such run, `Conflict` where somebody works on it, `Integrity` where its state
    /// is damaged.
    pub async fn resume(
        &self,
        run: &Id,
        observer: Arc<dyn Observer>,
        cancellation: Cancellation,
    ) -> Result<RunResult, Error> {
        let (_, state) = self.run_store().load(run).await?;
        let source = self.store().load_snapshot(&state.snapshot).await?.source().clone();
        let engine = self.engine(Some(&source), observer, cancellation)?;
        let report = engine.resume(run).await?;
        self.result(report).await
    }

    fn engine(
        &self,
        source: Option<&SourceRef>,
        observer: Arc<dyn Observer>,
        cancellation: Cancellation,
    ) -> Result<Engine, Error> {
        let sandbox = self.sandbox(self.policy(source)?)?;
        let host = Host::new(self.store().clone(), sandbox, self.home().runs());
        let mut options = EngineOptions::default();
        options.parallel = self.config().parallel_steps;
        options.cancellation = cancellation;
        Ok(Engine::new(Arc::new(host), Arc::new(self.run_store()), observer, options))
    }

    fn run_store(&self) -> FileRunStore {
        FileRunStore::new(self.home().runs())
    }

    async fn result(&self, report: RunReport) -> Result<RunResult, Error> {
        let heads: Vec<Id> = report.leaves().map(|step| step.step.clone()).collect();
        let delta = if heads.is_empty() {
            None
        } else {
            let snapshot = Arc::new(self.store().load_snapshot(&report.snapshot).await?);
            let (_, state) = self.run_store().load(&report.run).await?;
            let steps: BTreeMap<Id, CompletedStep> = state
                .steps
                .into_iter()
                .filter_map(|(step, record)| Some((step, record.completed?)))
                .collect();
            Some(merged_delta(self.store(), &snapshot, &steps, heads).await?)
        };
        let receipts = self.receipts(&report.run).await?;
        Ok(RunResult { report, delta, receipts })
    }

    /// A path in a workflow file is relative to the file.
    fn workflow_source(&self, source: &WorkflowSource, file: &Path) -> Result<SourceRef, Error> {
        match source {
            WorkflowSource::Path(path) => {
                let folder = file
                    .canonicalize()
                    .map_err(|error| Error::io(format!("open the workflow {file:?}"), &error))?;
                let folder = folder.parent().unwrap_or(Path::new("/"));
                self.registry().parse(&format!("local:{path}"), folder)
            }
            WorkflowSource::Reference(source) if source.provider == "local" => {
                self.registry().parse(&format!("local:{}", source.locator), Path::new("/"))
            }
            WorkflowSource::Reference(source) => Ok(source.clone()),
            _ => {
                Err(Error::new(Kind::Contract, "the workflow names a source that this version does not know"))
            }
        }
    }
}

fn read_workflow(path: &Path) -> Result<String, Error> {
    use std::io::Read;
    let failed = |error: std::io::Error| Error::io(format!("read the workflow {path:?}"), &error);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_WORKFLOW_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_WORKFLOW_BYTES {
        let message = format!("the workflow {path:?} is larger than {MAX_WORKFLOW_BYTES} bytes");
        return Err(Error::new(Kind::Limit, message));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::new(Kind::Contract, format!("the workflow {path:?} is not UTF-8 text")))
}

/// Leaves room for the digits that make a run's id unique.
fn shortened(id: &str) -> &str {
    &id[..id.len().min(100)]
}
