//! The ports of the mesh: what a host must do for a step. The mesh knows no workspace, store or journal.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::{BoxFuture, Digest, Id, ReceiptId, ToolAnswer, ToolCall, ToolError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::StepError;

/// What a completed workspace step left for the steps after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletedStep {
    /// The cumulative delta against the snapshot.
    pub delta: Digest,
    /// The steps that it depends on directly.
    pub depends_on: Vec<Id>,
    /// The head of the step's journal.
    pub receipts_head: Digest,
    /// The receipts that the step made, in order.
    pub receipts: Vec<ReceiptId>,
    /// The output with its evidence filled in.
    pub output: Value,
}

/// The answer of one call, kept for the templates that name it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallAnswer {
    /// The call.
    pub call: Id,
    /// The answer's fields, or those of its error, and `status`.
    pub value: Value,
    /// The receipt of an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptId>,
}

/// What an epoch that did not end left behind after its last effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The epoch that wrote it.
    pub epoch: u64,
    /// The cumulative delta after the last effect. It holds what the dependencies changed and what the step
    /// reverted, so it alone restores the workspace. None where no effect has left one: start from the
    /// dependencies.
    pub delta: Option<Digest>,
    /// How many calls of the step are done; the next epoch starts after them.
    pub calls_done: usize,
    /// The answers that later calls or the output still name.
    pub answers: Vec<CallAnswer>,
}

/// The request to open a step.
#[derive(Debug, Clone, Copy)]
pub struct OpenStep<'a> {
    /// The run.
    pub run: &'a Id,
    /// The workflow that it runs.
    pub workflow: &'a Id,
    /// The step.
    pub step: &'a Id,
    /// The epoch, from 1; it never repeats within a step. Later ones go on with the receipt numbers.
    pub epoch: u64,
    /// The snapshot at the bottom.
    pub snapshot: Digest,
    /// The direct dependencies.
    pub depends_on: &'a [Id],
    /// Every step that this one depends on, directly or not.
    pub lineage: &'a BTreeMap<Id, CompletedStep>,
    /// What an earlier epoch left; None for a fresh start from the dependencies.
    pub checkpoint: Option<&'a Checkpoint>,
    /// What the step may do: `read`, `write`, `run` and what the worker offers besides.
    pub capabilities: &'a BTreeSet<String>,
}

/// The request to compose a final response.
#[derive(Debug, Clone, Copy)]
pub struct Compose<'a> {
    /// The run.
    pub run: &'a Id,
    /// The workflow that it runs.
    pub workflow: &'a Id,
    /// The step.
    pub step: &'a Id,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The snapshot at the bottom.
    pub snapshot: Digest,
    /// The output as the workflow states it, with artifact references.
    pub output: &'a Value,
    /// Every workspace step that is completed by now, and at least every one that this step waits for.
    pub completed: &'a BTreeMap<Id, CompletedStep>,
}

/// What one call did.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The answer, or why there is none.
    pub answer: Result<ToolAnswer, ToolError>,
    /// The receipt of an effect.
    pub receipt: Option<ReceiptId>,
    /// The cumulative delta after an effect, stored. An effect that worked must name one, since it is the
    /// checkpoint; for other calls None says that nothing changed.
    pub delta: Option<Digest>,
}

/// What a step leaves when it is finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The cumulative delta, stored.
    pub delta: Digest,
    /// The head of the journal.
    pub receipts_head: Digest,
    /// The output with its evidence filled in and checked against the delta.
    pub output: Value,
    /// Every receipt of the step, of earlier epochs too.
    pub receipts: Vec<ReceiptId>,
}

/// Does the work of steps. The engine calls it from several tasks at once.
pub trait StepHost: Send + Sync {
    /// Opens the workspace and the journal of a step. Dependency deltas that contradict each other are a
    /// [`StepErrorKind::Conflict`](crate::StepErrorKind::Conflict). The journal may hold records that are
    /// newer than the checkpoint, up to its end: the process was killed before the state was written.
    fn open_step<'a>(
        &'a self,
        request: OpenStep<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn StepSession>, StepError>>;

    /// Fills in the artifact references and receipts of a final response. There is no workspace.
    fn compose<'a>(&'a self, request: Compose<'a>) -> BoxFuture<'a, Result<Value, StepError>>;
}

/// One open step. Dropping it leaves no workspace behind.
pub trait StepSession: Send {
    /// Runs one call. Dropping the future ends the call with all its processes. An answer with a
    /// [`ToolError`] is an outcome; an [`StepError`] ends the step.
    fn call<'a>(&'a mut self, call: &'a ToolCall) -> BoxFuture<'a, Result<CallOutcome, StepError>>;

    /// Exports the delta, fills in the evidence and the artifact references of `output` and checks them
    /// against the delta. `outputs` are those of the steps that this one depends on, directly or not.
    fn finish(
        self: Box<Self>,
        output: Value,
        outputs: BTreeMap<Id, Value>,
    ) -> BoxFuture<'static, Result<Finished, StepError>>;

    /// Gives the step up and takes its workspace away.
    fn abandon(self: Box<Self>, reason: String) -> BoxFuture<'static, ()>;
}
