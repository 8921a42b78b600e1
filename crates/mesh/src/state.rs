//! The state of a run and every transition of a step: claims, epochs, checkpoints, results.
//!
//! Whatever a step publishes names its claim, and is refused where the epoch is no longer its own.

use std::collections::BTreeMap;

use coldframe_core::{Digest, Id, ReceiptId, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Checkpoint, CompletedStep, MeshError, MeshErrorKind, StepError, StepErrorKind, StepKind, Workflow,
};

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Some step is not done; the run goes on with a resume.
    InProgress,
    /// Every step is completed.
    Completed,
    /// A step failed and nothing is left to do. A resume tries the failed and blocked steps again.
    Failed,
}

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// It waits for others, or for a free place.
    Pending,
    /// A worker has it, or had it when its process ended.
    Claimed,
    /// It is done.
    Completed,
    /// It failed.
    Failed,
    /// A step that it waits for failed.
    Blocked,
}

/// One call of a step, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    /// The call.
    pub call: Id,
    /// The tool.
    pub tool: String,
    /// The epoch that ran it.
    pub epoch: u64,
    /// How it ended.
    pub status: ToolStatus,
    /// The exit code of a command that ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The receipt of an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptId>,
    /// How long it took.
    pub duration_ms: u64,
}

/// The state of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRecord {
    /// How it stands.
    pub status: StepStatus,
    /// The last epoch, 0 before the first claim. It never goes back.
    pub epoch: u64,
    /// How many epochs were begun since the step was last tried afresh.
    pub attempts: u64,
    /// Who has claimed it, while it is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Id>,
    /// What the last effect of a step in progress left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The calls done so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// The result of a completed workspace step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<CompletedStep>,
    /// The result of a completed final response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StepError>,
    /// The delta that a failed step left, so that one can look at it; nothing is built on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_delta: Option<Digest>,
    /// The failed step that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<Id>,
    /// How long its epochs worked, those cut short by a kill not counted.
    pub duration_ms: u64,
}

impl StepRecord {
    const fn new() -> Self {
        Self {
            status: StepStatus::Pending,
            epoch: 0,
            attempts: 0,
            owner: None,
            checkpoint: None,
            calls: Vec::new(),
            completed: None,
            response: None,
            failure: None,
            partial_delta: None,
            blocked_by: None,
            duration_ms: 0,
        }
    }
}

/// The right to publish for a step: good as long as the epoch is the step's last one and it is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The step.
    pub step: Id,
    /// The fencing token.
    pub epoch: u64,
    /// Who has it.
    pub owner: Id,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// The step is the caller's; go on from the checkpoint where there is one.
    Work(Claim, Option<Checkpoint>),
    /// The step has been begun too often and failed now.
    Exhausted(StepError),
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    /// A workspace step is done.
    Workspace(CompletedStep),
    /// A final response is composed.
    Response(Value),
    /// The step failed.
    Failed {
        /// Why.
        failure: StepError,
        /// The last delta that the step had stored.
        partial_delta: Option<Digest>,
    },
}

/// The state of a run: everything that a resume needs besides the workflow's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The run.
    pub run: Id,
    /// The workflow.
    pub workflow: Id,
    /// BLAKE3 of the workflow's text.
    pub workflow_digest: Digest,
    /// The snapshot that every step starts from.
    pub snapshot: Digest,
    /// How the run stands.
    pub status: RunStatus,
    /// How often the state was written; each write has one more.
    pub revision: u64,
    /// The steps.
    pub steps: BTreeMap<Id, StepRecord>,
}

impl RunState {
    /// A run in which nothing has happened yet.
    pub fn new(run: Id, workflow: &Workflow, snapshot: Digest) -> Self {
        Self {
            run,
            workflow: workflow.id.clone(),
            workflow_digest: workflow.digest,
            snapshot,
            status: RunStatus::InProgress,
            revision: 0,
            steps: workflow.steps.iter().map(|step| (step.id.clone(), StepRecord::new())).collect(),
        }
    }

    /// Checks that the state belongs to the workflow and is whole, so that nothing later meets a gap.
    pub fn check(&self, workflow: &Workflow) -> Result<(), MeshError> {
        let corrupt = |what: String| {
            let message =
                format!("the state of run {} is damaged: {what}; start a new run with another id", self.run);
            Err(MeshError::new(MeshErrorKind::Corrupt, message))
        };
        if self.workflow_digest != workflow.digest || self.workflow != workflow.id {
            return corrupt("its workflow is another one".to_owned());
        }
        if self.steps.len() != workflow.steps.len() {
            return corrupt("it has other steps than its workflow".to_owned());
        }
        for step in &workflow.steps {
            let Some(record) = self.steps.get(&step.id) else {
                return corrupt(format!("step {} is missing", step.id));
            };
            let has_result = match step.kind {
                StepKind::Workspace => record.completed.is_some(),
                StepKind::FinalResponse => record.response.is_some(),
            };
            let calls_done = record.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.calls_done);
            if has_result != (record.status == StepStatus::Completed) || calls_done > step.calls.len() {
                return corrupt(format!("step {} contradicts itself", step.id));
            }
        }
        Ok(())
    }

    fn record(&mut self, step: &Id) -> Result<&mut StepRecord, MeshError> {
        let run = &self.run;
        self.steps
            .get_mut(step)
            .ok_or_else(|| MeshError::new(MeshErrorKind::NotFound, format!("run {run} has no step {step}")))
    }

    /// Claims a step that is pending, or that an owner who is gone had claimed. The caller has the run to
    /// itself: the lock of the run is the lease of every claim.
    pub fn claim(
        &mut self,
        workflow: &Workflow,
        step: &Id,
        owner: &Id,
        max_epochs: u64,
    ) -> Result<Claimed, MeshError> {
        let record = self.record(step)?;
        if !matches!(record.status, StepStatus::Pending | StepStatus::Claimed) {
            let message = format!("step {step} is {:?} and cannot be claimed", record.status);
            return Err(MeshError::new(MeshErrorKind::Fenced, message));
        }
        if record.attempts >= max_epochs {
            let message = format!(
                "the step was begun {} times without an end; find out what stops it, then resume the run to try it afresh",
                record.attempts
            );
            let failure = StepError::new(StepErrorKind::Refused, message);
            record.status = StepStatus::Failed;
            record.owner = None;
            record.failure = Some(failure.clone());
            record.partial_delta = record.checkpoint.take().and_then(|checkpoint| checkpoint.delta);
            self.settle(workflow, step);
            return Ok(Claimed::Exhausted(failure));
        }
        record.status = StepStatus::Claimed;
        record.epoch += 1;
        record.attempts += 1;
        record.owner = Some(owner.clone());
        let done = record.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.calls_done);
        record.calls.truncate(done);
        let claim = Claim { step: step.clone(), epoch: record.epoch, owner: owner.clone() };
        Ok(Claimed::Work(claim, record.checkpoint.clone()))
    }

    /// The record of a claim that still holds; else an error of the kind [`MeshErrorKind::Fenced`].
    fn held(&mut self, claim: &Claim) -> Result<&mut StepRecord, MeshError> {
        let record = self.record(&claim.step)?;
        let holds = record.status == StepStatus::Claimed
            && record.epoch == claim.epoch
            && record.owner.as_ref() == Some(&claim.owner);
        if holds {
            return Ok(record);
        }
        let message = format!(
            "epoch {} of step {} is over (the step is {:?} in epoch {}); nothing of it was published",
            claim.epoch, claim.step, record.status, record.epoch
        );
        Err(MeshError::new(MeshErrorKind::Fenced, message))
    }

    /// Publishes a checkpoint with the calls done since the last one.
    pub fn checkpoint(
        &mut self,
        claim: &Claim,
        checkpoint: Checkpoint,
        calls: impl IntoIterator<Item = CallRecord>,
    ) -> Result<(), MeshError> {
        let record = self.held(claim)?;
        record.calls.extend(calls);
        record.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Publishes the end of a step, and in the same change what follows: after a failure every step that
    /// waits for it is blocked, after the last step the run is over.
    pub fn end(
        &mut self,
        workflow: &Workflow,
        claim: &Claim,
        result: StepResult,
        calls: impl IntoIterator<Item = CallRecord>,
        duration_ms: u64,
    ) -> Result<(), MeshError> {
        let record = self.held(claim)?;
        record.calls.extend(calls);
        record.owner = None;
        record.duration_ms = record.duration_ms.saturating_add(duration_ms);
        record.status = StepStatus::Completed;
        match result {
            StepResult::Workspace(completed) => record.completed = Some(completed),
            StepResult::Response(response) => record.response = Some(response),
            StepResult::Failed { failure, partial_delta } => {
                record.status = StepStatus::Failed;
                record.failure = Some(failure);
                record.partial_delta = partial_delta;
            }
        }
        record.checkpoint = None;
        self.settle(workflow, &claim.step);
        Ok(())
    }

    /// Draws the consequences of an ended step for its dependants and for the run.
    fn settle(&mut self, workflow: &Workflow, ended: &Id) {
        let failed = self.steps.get(ended).is_some_and(|record| record.status == StepStatus::Failed);
        if let (true, Some(index)) = (failed, workflow.graph.index_of(ended)) {
            for dependent in workflow.graph.descendants(index) {
                let record = self.steps.get_mut(&workflow.steps[dependent].id);
                if let Some(record) = record.filter(|record| record.status == StepStatus::Pending) {
                    record.status = StepStatus::Blocked;
                    record.blocked_by = Some(ended.clone());
                }
            }
        }
        let is_open =
            |record: &StepRecord| matches!(record.status, StepStatus::Pending | StepStatus::Claimed);
        if !self.steps.values().any(is_open) {
            let is_completed = |record: &StepRecord| record.status == StepStatus::Completed;
            let all = self.steps.values().all(is_completed);
            self.status = if all { RunStatus::Completed } else { RunStatus::Failed };
        }
    }

    /// Makes a run that is over, and not completed, ready to try its failed and blocked steps again: afresh
    /// from their dependencies, under new epochs. Steps in progress keep their checkpoints.
    pub fn reopen(&mut self) {
        for record in self.steps.values_mut() {
            if matches!(record.status, StepStatus::Failed | StepStatus::Blocked) {
                *record = StepRecord { epoch: record.epoch, ..StepRecord::new() };
                self.status = RunStatus::InProgress;
            }
        }
    }
}

#[cfg(test)]
mod tests;
