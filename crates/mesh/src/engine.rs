//! The engine: drives a workflow through a host, several steps at a time, and goes on after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use coldframe_core::{Digest, Id};
use tokio::task::{JoinError, JoinSet};

use crate::active::ActiveRun;
use crate::store::{OpenedRun, RunHandle, RunStore};
use crate::worker::{StepEnd, fail_step, lacking, run_step};
use crate::workflow::DEFAULT_CAPABILITIES;
use crate::{
    Cancellation, MeshError, MeshErrorKind, Observer, PlannedStep, RunEvent, RunReport, RunState, StepHost,
    StepStatus, Workflow,
};

/// What trusted configuration gives an engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// How many steps run at a time, at least 1.
    pub parallel: usize,
    /// What steps may ask for.
    pub offered: BTreeSet<String>,
    /// How often a step is begun before it counts as failed; a resume after that counts from the beginning.
    pub max_epochs: u64,
    /// Who claims the steps.
    pub owner: Id,
    /// Ends the work early; the run stays in progress.
    pub cancellation: Cancellation,
}

impl Default for EngineOptions {
    /// Four steps at a time, `read`, `write` and `run`, eight epochs, owned by `process-<number>`.
    fn default() -> Self {
        let owner = Id::parse(format!("process-{}", std::process::id()));
        Self {
            parallel: 4,
            offered: DEFAULT_CAPABILITIES.map(str::to_owned).into(),
            max_epochs: 8,
            owner: owner.expect("letters, a dash and digits make an id"),
            cancellation: Cancellation::new(),
        }
    }
}

/// Runs workflows.
#[derive(Clone)]
pub struct Engine {
    host: Arc<dyn StepHost>,
    store: Arc<dyn RunStore>,
    observer: Arc<dyn Observer>,
    options: EngineOptions,
}

impl Engine {
    /// An engine on a host, a store for its state and someone who listens.
    pub fn new(
        host: Arc<dyn StepHost>,
        store: Arc<dyn RunStore>,
        observer: Arc<dyn Observer>,
        options: EngineOptions,
    ) -> Self {
        Self { host, store, observer, options }
    }

    /// Runs a workflow on a snapshot under a run id of the caller's choice.
    ///
    /// Where the run exists, with the same workflow and snapshot, it goes on as with [`Self::resume`]; with
    /// another one it is refused ([`MeshErrorKind::Mismatch`]). A step that fails is no error of this call but
    /// part of the report. Must be called within a tokio runtime. Dropping the future stops all work as soon as
    /// the runtime drops its tasks, as a crash would; a cancellation lets the host clean up first.
    pub async fn run(&self, workflow: &Workflow, snapshot: Digest, run: &Id) -> Result<RunReport, MeshError> {
        self.check_capabilities(workflow)?;
        let state = RunState::new(run.clone(), workflow, snapshot);
        match self.store.create(workflow.text(), &state).await {
            Ok(handle) => self.drive(workflow.clone(), state, handle).await,
            Err(error) if error.kind() == MeshErrorKind::Exists => {
                let opened = self.store.open(run).await?;
                let differs = if opened.state.workflow_digest != workflow.digest() {
                    Some("another workflow text")
                } else if opened.state.snapshot != snapshot {
                    Some("another snapshot of the source")
                } else {
                    None
                };
                match differs {
                    None => self.go_on(opened).await,
                    Some(what) => {
                        let message = format!(
                            "run {run} exists with {what}; resume it as it is, or take another run id"
                        );
                        Err(MeshError::new(MeshErrorKind::Mismatch, message))
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Goes on with a run: completed steps stay, steps in progress go on from their checkpoints, failed and
    /// blocked ones are tried afresh. A completed run answers its report.
    pub async fn resume(&self, run: &Id) -> Result<RunReport, MeshError> {
        let opened = self.store.open(run).await?;
        self.go_on(opened).await
    }

    /// The report of a run as it stands; nothing is run.
    pub async fn report(&self, run: &Id) -> Result<RunReport, MeshError> {
        let (text, state) = self.store.load(run).await?;
        let workflow = Workflow::parse(text)?;
        state.check(&workflow)?;
        Ok(RunReport::new(&workflow, &state))
    }

    async fn go_on(&self, opened: OpenedRun) -> Result<RunReport, MeshError> {
        let OpenedRun { handle, mut state, workflow } = opened;
        let workflow = Workflow::parse(workflow)?;
        state.check(&workflow)?;
        self.check_capabilities(&workflow)?;
        state.reopen();
        self.drive(workflow, state, handle).await
    }

    fn check_capabilities(&self, workflow: &Workflow) -> Result<(), MeshError> {
        for step in workflow.steps() {
            let lacking = lacking(step, &self.options.offered);
            if !lacking.is_empty() {
                let message = format!(
                    "step {} needs {}, which this worker does not offer; it offers {}",
                    step.id,
                    lacking.join(", "),
                    self.options.offered.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                );
                return Err(MeshError::new(MeshErrorKind::Capability, message));
            }
        }
        Ok(())
    }

    async fn drive(
        &self,
        workflow: Workflow,
        state: RunState,
        handle: Box<dyn RunHandle>,
    ) -> Result<RunReport, MeshError> {
        let started = Instant::now();
        let run = state.run.clone();
        let mut schedule = Schedule::new(&workflow, &state);
        let limits = (self.options.owner.clone(), self.options.max_epochs.max(1));
        self.observer.event(&RunEvent::RunStarted {
            run: run.clone(),
            plan: plan(&workflow, &state),
            ignored: workflow.ignored().to_vec(),
        });
        let (host, observer) = (Arc::clone(&self.host), Arc::clone(&self.observer));
        let active = Arc::new(ActiveRun::new(workflow, state, handle, host, observer, limits));
        self.work(&active, &mut schedule).await?;
        let (report, status) =
            active.read(|state| (RunReport::new(&active.workflow, state), state.status)).await;
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.observer.event(&RunEvent::RunEnded { run, status, duration_ms });
        Ok(report)
    }

    /// Runs steps until none is left that can run.
    async fn work(&self, active: &Arc<ActiveRun>, schedule: &mut Schedule) -> Result<(), MeshError> {
        let mut tasks: JoinSet<StepEnd> = JoinSet::new();
        let mut running = BTreeMap::new();
        let mut stopped = None;
        loop {
            while tasks.len() < self.options.parallel.max(1) && !active.halt.is_cancelled() {
                let Some(index) = schedule.ready.pop_first() else { break };
                let task_run = Arc::clone(active);
                let task = tasks.spawn(async move { run_step(&task_run, index).await });
                running.insert(task.id(), index);
            }
            let joined = tokio::select! {
                joined = tasks.join_next_with_id() => joined,
                () = self.options.cancellation.cancelled(), if !active.halt.is_cancelled() => {
                    active.halt.cancel();
                    continue;
                }
            };
            let (index, end) = match joined {
                None => break,
                Some(Ok((task, end))) => (running.remove(&task), end),
                Some(Err(error)) => {
                    let index = running.remove(&error.id());
                    match index {
                        Some(at) => (index, fail_step(active, at, breakdown(error)).await),
                        None => continue,
                    }
                }
            };
            match (end, index) {
                (StepEnd::Completed, Some(index)) => schedule.completed(&active.workflow, index),
                (StepEnd::Stopped(error), _) => {
                    active.halt.cancel();
                    stopped.get_or_insert(error);
                }
                _ => {}
            }
        }
        stopped.map_or(Ok(()), Err)
    }
}

/// What to say of a task that did not return.
fn breakdown(error: JoinError) -> String {
    let detail = error.try_into_panic().ok().and_then(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
    });
    format!("the step's task broke down: {}", detail.unwrap_or_else(|| "without a message".to_owned()))
}

fn plan(workflow: &Workflow, state: &RunState) -> Vec<PlannedStep> {
    let steps = workflow.steps().iter().map(|step| PlannedStep {
        step: step.id.clone(),
        title: step.title.clone(),
        kind: step.kind,
        depends_on: step.depends_on.clone(),
        status: state.steps[&step.id].status,
    });
    steps.collect()
}

/// Which steps can run. Each end costs what the step's dependants cost.
struct Schedule {
    /// For each step, how many of its dependencies are not completed.
    unmet: Vec<usize>,
    ready: BTreeSet<usize>,
}

impl Schedule {
    fn new(workflow: &Workflow, state: &RunState) -> Self {
        let is = |index: usize, status| state.steps[&workflow.steps()[index].id].status == status;
        let unmet: Vec<usize> = (0..workflow.steps().len())
            .map(|index| {
                let dependencies = workflow.graph.dependencies(index).iter();
                dependencies.filter(|at| !is(**at, StepStatus::Completed)).count()
            })
            .collect();
        let is_open = |index: &usize| is(*index, StepStatus::Pending) || is(*index, StepStatus::Claimed);
        let ready = (0..unmet.len()).filter(|index| unmet[*index] == 0).filter(is_open).collect();
        Self { unmet, ready }
    }

    fn completed(&mut self, workflow: &Workflow, index: usize) {
        for dependent in workflow.graph.dependents(index) {
            self.unmet[*dependent] -= 1;
            if self.unmet[*dependent] == 0 {
                self.ready.insert(*dependent);
            }
        }
    }
}
