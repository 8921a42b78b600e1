//! What a run came to, for those who print or use it.

use coldframe_core::{Digest, Id, ReceiptId};
use serde::Serialize;
use serde_json::Value;

use crate::{CallRecord, RunState, RunStatus, StepError, StepKind, StepStatus, Workflow};

/// One step of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepReport {
    /// The step.
    pub step: Id,
    /// For people.
    pub title: String,
    /// What it does.
    pub kind: StepKind,
    /// What it waits for.
    pub depends_on: Vec<Id>,
    /// How it stands.
    pub status: StepStatus,
    /// The last epoch, 0 where it never began.
    pub epoch: u64,
    /// How long its epochs worked.
    pub duration_ms: u64,
    /// The calls that it did.
    pub calls: Vec<CallRecord>,
    /// The cumulative delta of a completed workspace step, or what a failed one left.
    pub delta: Option<Digest>,
    /// The head of its journal, where it is completed.
    pub receipts_head: Option<Digest>,
    /// The receipts that it made, where it is completed.
    pub receipts: Vec<ReceiptId>,
    /// The output with its evidence, or the final response, where it is completed.
    pub output: Option<Value>,
    /// Why it failed.
    pub failure: Option<StepError>,
    /// The failed step that it waits for.
    pub blocked_by: Option<Id>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// The run.
    pub run: Id,
    /// The workflow.
    pub workflow: Id,
    /// What the workflow is for.
    pub goal: String,
    /// The snapshot that every step started from.
    pub snapshot: Digest,
    /// How the run stands: `in_progress` where it was cancelled and can go on.
    pub status: RunStatus,
    /// The keys of the workflow that tried to carry authority and have no effect.
    pub ignored: Vec<String>,
    /// The steps in the order of the file.
    pub steps: Vec<StepReport>,
}

impl RunReport {
    /// Puts workflow and state together.
    pub fn new(workflow: &Workflow, state: &RunState) -> Self {
        let steps = workflow.steps.iter().filter_map(|step| {
            let record = state.steps.get(&step.id)?;
            let completed = record.completed.as_ref();
            Some(StepReport {
                step: step.id.clone(),
                title: step.title.clone(),
                kind: step.kind,
                depends_on: step.depends_on.clone(),
                status: record.status,
                epoch: record.epoch,
                duration_ms: record.duration_ms,
                calls: record.calls.clone(),
                delta: completed.map(|completed| completed.delta).or(record.partial_delta),
                receipts_head: completed.map(|completed| completed.receipts_head),
                receipts: completed.map(|completed| completed.receipts.clone()).unwrap_or_default(),
                output: completed
                    .map(|completed| completed.output.clone())
                    .or_else(|| record.response.clone()),
                failure: record.failure.clone(),
                blocked_by: record.blocked_by.clone(),
            })
        });
        Self {
            run: state.run.clone(),
            workflow: workflow.id.clone(),
            goal: workflow.goal.clone(),
            snapshot: state.snapshot,
            status: state.status,
            ignored: workflow.ignored.clone(),
            steps: steps.collect(),
        }
    }

    /// The step with that id.
    pub fn step(&self, id: &str) -> Option<&StepReport> {
        self.steps.iter().find(|step| step.step.as_str() == id)
    }

    /// The final responses that are composed.
    pub fn responses(&self) -> impl Iterator<Item = (&Id, &Value)> {
        let finals = self.steps.iter().filter(|step| step.kind == StepKind::FinalResponse);
        finals.filter_map(|step| Some((&step.step, step.output.as_ref()?)))
    }

    /// The completed workspace steps that no other workspace step builds on: their deltas are what the run
    /// changed.
    pub fn leaves(&self) -> impl Iterator<Item = &StepReport> {
        let workspaces = || self.steps.iter().filter(|step| step.kind == StepKind::Workspace);
        let built_on: std::collections::BTreeSet<&Id> =
            workspaces().flat_map(|step| step.depends_on.iter()).collect();
        workspaces()
            .filter(move |step| step.status == StepStatus::Completed && !built_on.contains(&step.step))
    }
}
