//! What a run tells while it goes on.

use coldframe_core::Id;
use serde::Serialize;

use crate::{CallRecord, RunStatus, StepError, StepKind, StepStatus};

/// One step of the plan, as the run finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// The step.
    pub step: Id,
    /// For people.
    pub title: String,
    /// What it does.
    pub kind: StepKind,
    /// What it waits for.
    pub depends_on: Vec<Id>,
    /// How it stands: `completed` where an earlier process has done it.
    pub status: StepStatus,
}

/// One event of a run. An event tells what is already written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// The run begins or goes on.
    RunStarted {
        /// The run.
        run: Id,
        /// Its steps in the order of the file.
        plan: Vec<PlannedStep>,
        /// The keys of the workflow that tried to carry authority and have no effect.
        ignored: Vec<String>,
    },
    /// A step begins or goes on under a new epoch.
    StepClaimed {
        /// The step.
        step: Id,
        /// The epoch, from 1.
        epoch: u64,
        /// How many of its calls an earlier epoch has done.
        calls_done: usize,
    },
    /// A call begins.
    CallStarted {
        /// The step.
        step: Id,
        /// The call.
        call: Id,
        /// The tool.
        tool: String,
    },
    /// A call has answered.
    CallEnded {
        /// The step.
        step: Id,
        /// What it did, and how long it took.
        record: CallRecord,
    },
    /// A step is over.
    StepEnded {
        /// The step.
        step: Id,
        /// The epoch.
        epoch: u64,
        /// `completed`, `failed`, or `claimed` where the work was cancelled and can go on.
        status: StepStatus,
        /// How long this epoch took, in milliseconds.
        duration_ms: u64,
        /// Why it failed.
        failure: Option<StepError>,
        /// The steps that cannot run now.
        blocked: Vec<Id>,
    },
    /// Nothing is left to do, or the run was cancelled (`in_progress`).
    RunEnded {
        /// The run.
        run: Id,
        /// How it stands.
        status: RunStatus,
        /// How long this process worked on it, in milliseconds.
        duration_ms: u64,
    },
}

/// Hears the events of a run, in order for each step. It must return soon, since the step waits for it.
pub trait Observer: Send + Sync {
    /// Takes one event.
    fn event(&self, event: &RunEvent);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn event(&self, _: &RunEvent) {}
}
