//! Does the work of the mesh's steps with the sandbox, the store, the merge of deltas and the evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coldframe_blob::Store;
use coldframe_core::{
    BoxFuture, Digest, Id, OpenWorkspace, SourceSnapshot, ToolCall, ToolError, ToolStatus, WorkspaceDelta,
};
use coldframe_evidence::{
    ReceiptBook, ReferenceRules, Restored, Scope, hydrate_artifact_references, hydrate_receipt_evidence,
    validate_against_delta, verify_with_head,
};
use coldframe_mesh::{
    CallOutcome, CompletedStep, Compose, Finished, OpenStep, StepError, StepErrorKind, StepHost, StepSession,
};
use coldframe_sandbox::Sandbox;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::merge::merged_delta;
use crate::runs::{journal_file, steps_folder};
use crate::session::{JournalPlace, Opened, Parts, blocking};
use crate::{Error, Kind, Workspace};

/// The host of all steps of a run.
pub(crate) struct Host {
    store: Store,
    sandbox: Sandbox,
    runs: PathBuf,
    snapshot: Mutex<Option<Arc<SourceSnapshot>>>,
}

impl Host {
    pub(crate) fn new(store: Store, sandbox: Sandbox, runs: PathBuf) -> Self {
        Self { store, sandbox, runs, snapshot: Mutex::new(None) }
    }

    /// Every step of a run stands on one snapshot, so its manifest is read once.
    async fn snapshot(&self, id: &Digest) -> Result<Arc<SourceSnapshot>, Error> {
        let mut kept = self.snapshot.lock().await;
        match kept.as_ref().filter(|snapshot| snapshot.id() == *id) {
            Some(snapshot) => Ok(Arc::clone(snapshot)),
            None => {
                let snapshot = Arc::new(self.store.load_snapshot(id).await?);
                *kept = Some(Arc::clone(&snapshot));
                Ok(snapshot)
            }
        }
    }

    async fn open(&self, request: OpenStep<'_>) -> Result<HostedStep, Error> {
        let snapshot = self.snapshot(&request.snapshot).await?;
        let checkpoint = request.checkpoint.and_then(|checkpoint| checkpoint.delta);
        let (delta, restored) = match checkpoint {
            Some(id) => (Some(self.store.load_delta(&id).await?), Restored::Delta(id)),
            None => (self.merged(&snapshot, &request).await?, Restored::Nothing),
        };
        let folder = steps_folder(&self.runs, request.run);
        crate::home::make_private(&folder)
            .map_err(|error| Error::io(format!("create {folder:?}"), &error))?;
        let sandboxed =
            self.sandbox.open_workspace(OpenWorkspace { snapshot: &snapshot, delta: delta.as_ref() }).await?;
        let opened = Opened {
            isolation: sandboxed.isolation().to_string(),
            strategy: sandboxed.strategy().to_string(),
        };
        let workspace = Workspace::begin(Parts {
            inner: Box::new(sandboxed),
            opened,
            store: self.store.clone(),
            policy: self.sandbox.policy(),
            base: snapshot.id(),
            delta,
            journal: JournalPlace {
                file: &journal_file(&self.runs, request.run, request.step),
                run: request.run,
                step: request.step,
                epoch: request.epoch,
                restored,
            },
        })?;
        Ok(HostedStep {
            workspace,
            snapshot,
            run: request.run.clone(),
            step: request.step.clone(),
            runs: self.runs.clone(),
            heads: heads_of(request.lineage),
            deltas: deltas_of(request.lineage),
            store: self.store.clone(),
            capabilities: request.capabilities.clone(),
        })
    }

    /// The merged deltas of the dependencies, stored; none where the step depends on no workspace step.
    async fn merged(
        &self,
        snapshot: &Arc<SourceSnapshot>,
        request: &OpenStep<'_>,
    ) -> Result<Option<WorkspaceDelta>, Error> {
        let heads: Vec<Id> =
            request.depends_on.iter().filter(|step| request.lineage.contains_key(*step)).cloned().collect();
        if heads.is_empty() {
            return Ok(None);
        }
        merged_delta(&self.store, snapshot, request.lineage, heads).await.map(Some)
    }
}

impl StepHost for Host {
    fn open_step<'a>(
        &'a self,
        request: OpenStep<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn StepSession>, StepError>> {
        Box::pin(async move {
            match self.open(request).await {
                Ok(step) => Ok(Box::new(step) as Box<dyn StepSession>),
                Err(error) => Err(step_error(&error)),
            }
        })
    }

    fn compose<'a>(&'a self, request: Compose<'a>) -> BoxFuture<'a, Result<Value, StepError>> {
        Box::pin(async move {
            let heads = heads_of(request.completed);
            let book =
                book_of(&self.runs, request.run, heads, None).await.map_err(|error| step_error(&error))?;
            let outputs = request
                .completed
                .iter()
                .map(|(step, completed)| (step.clone(), completed.output.clone()))
                .collect();
            let visible_steps = request.completed.keys().cloned().collect();
            let output = hydrated(request.output.clone(), &outputs, &book, request.run, visible_steps)
                .map_err(|error| evidence_error(&error))?;
            let deltas = deltas_of(request.completed);
            let base = self.snapshot(&request.snapshot).await.map_err(|error| step_error(&error))?;
            check_standing(&self.store, &base, &book, &output, &deltas)
                .await
                .map_err(|error| evidence_error(&error))?;
            Ok(output)
        })
    }
}

/// One open step of a run.
struct HostedStep {
    workspace: Workspace,
    snapshot: Arc<SourceSnapshot>,
    run: Id,
    step: Id,
    runs: PathBuf,
    heads: BTreeMap<Id, Digest>,
    deltas: BTreeMap<Id, Digest>,
    store: Store,
    capabilities: BTreeSet<String>,
}

impl HostedStep {
    async fn finish_step(self, output: Value, outputs: BTreeMap<Id, Value>) -> Result<Finished, StepError> {
        match self.checked_output(output, &outputs).await {
            Ok(output) => {
                let finished = self.workspace.finish().await.map_err(|error| step_error(&error))?;
                Ok(Finished {
                    delta: finished.delta.id(),
                    receipts_head: finished.receipts_head,
                    output,
                    receipts: finished.receipts.into_iter().map(|receipt| receipt.id).collect(),
                })
            }
            Err(error) => {
                // The output's fault is the one to report.
                let _ = self.workspace.abandon().await;
                Err(error)
            }
        }
    }

    async fn checked_output(&self, output: Value, outputs: &BTreeMap<Id, Value>) -> Result<Value, StepError> {
        let infrastructure = |error: Error| step_error(&error);
        let delta = self.workspace.export().await.map_err(infrastructure)?;
        let own = self.workspace.verified().await.map_err(infrastructure)?;
        let book =
            book_of(&self.runs, &self.run, self.heads.clone(), Some(own)).await.map_err(infrastructure)?;
        let visible_steps = self.heads.keys().chain([&self.step]).cloned().collect();
        let output = hydrated(output, outputs, &book, &self.run, visible_steps)
            .map_err(|error| evidence_error(&error))?;
        let cited = book.cited(&output).into_iter().filter(|receipt| receipt.id.step == self.step);
        validate_against_delta(cited, &self.snapshot, &delta)
            .map_err(|error| evidence_error(&Error::from(error)))?;
        check_standing(&self.store, &self.snapshot, &book, &output, &self.deltas)
            .await
            .map_err(|error| evidence_error(&error))?;
        Ok(output)
    }
}

impl StepSession for HostedStep {
    fn call<'a>(&'a mut self, call: &'a ToolCall) -> BoxFuture<'a, Result<CallOutcome, StepError>> {
        Box::pin(async move {
            let needed = capability_of(call);
            if !self.capabilities.contains(needed) {
                let message =
                    format!("the step does not have the capability {needed:?} that {} needs", call.name());
                let answer = Err(ToolError::new(ToolStatus::Refused, message));
                return Ok(CallOutcome { answer, receipt: None, delta: None });
            }
            let outcome = self.workspace.call(call).await.map_err(|error| step_error(&error))?;
            Ok(CallOutcome { answer: outcome.answer, receipt: outcome.receipt, delta: outcome.delta })
        })
    }

    fn finish(
        self: Box<Self>,
        output: Value,
        outputs: BTreeMap<Id, Value>,
    ) -> BoxFuture<'static, Result<Finished, StepError>> {
        Box::pin(self.finish_step(output, outputs))
    }

    fn abandon(self: Box<Self>, _reason: String) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // The reason to give up stands in the run's state; what is left over goes at the next start.
            let _ = self.workspace.abandon().await;
        })
    }
}

const fn capability_of(call: &ToolCall) -> &'static str {
    match call {
        ToolCall::List(_) | ToolCall::Read(_) | ToolCall::Search(_) => "read",
        ToolCall::Write(_) | ToolCall::Edit(_) => "write",
        ToolCall::Run(_) => "run",
    }
}

fn deltas_of(steps: &BTreeMap<Id, CompletedStep>) -> BTreeMap<Id, Digest> {
    steps.iter().map(|(step, completed)| (step.clone(), completed.delta)).collect()
}

/// A write of an earlier step that is cited must stand in the delta of that step.
async fn check_standing(
    store: &Store,
    base: &SourceSnapshot,
    book: &ReceiptBook,
    output: &Value,
    deltas: &BTreeMap<Id, Digest>,
) -> Result<(), Error> {
    let mut cited: BTreeMap<&Id, Vec<_>> = BTreeMap::new();
    for receipt in book.cited(output) {
        cited.entry(&receipt.id.step).or_default().push(receipt);
    }
    for (step, receipts) in cited {
        let Some(delta) = deltas.get(step) else { continue };
        validate_against_delta(receipts, base, &store.load_delta(delta).await?)?;
    }
    Ok(())
}

fn heads_of(steps: &BTreeMap<Id, CompletedStep>) -> BTreeMap<Id, Digest> {
    steps.iter().map(|(step, completed)| (step.clone(), completed.receipts_head)).collect()
}

/// Verifies the journals of completed steps against their recorded heads and collects the receipts.
async fn book_of(
    runs: &Path,
    run: &Id,
    heads: BTreeMap<Id, Digest>,
    own: Option<coldframe_evidence::VerifiedJournal>,
) -> Result<ReceiptBook, Error> {
    let (runs, run) = (runs.to_path_buf(), run.clone());
    blocking(move || {
        let mut book = ReceiptBook::new(run.clone());
        for (step, head) in heads {
            let file = journal_file(&runs, &run, &step);
            let bytes = std::fs::read(&file)
                .map_err(|error| Error::io(format!("read the journal {file:?}"), &error))?;
            book.add(verify_with_head(&bytes, &head)?)?;
        }
        if let Some(own) = own {
            book.add(own)?;
        }
        Ok(book)
    })
    .await
}

fn hydrated(
    output: Value,
    outputs: &BTreeMap<Id, Value>,
    book: &ReceiptBook,
    run: &Id,
    visible_steps: BTreeSet<Id>,
) -> Result<Value, Error> {
    let rules = ReferenceRules { visible_steps: visible_steps.clone(), required: Vec::new() };
    let output = hydrate_artifact_references(output, outputs, &rules)?;
    let scope = Scope { workflow: run, visible_steps: &visible_steps, require_receipts: true };
    Ok(hydrate_receipt_evidence(output, book, &scope)?)
}

fn step_error(error: &Error) -> StepError {
    let kind = match error.kind() {
        Kind::Conflict => StepErrorKind::Conflict,
        Kind::Refused | Kind::Limit => StepErrorKind::Refused,
        Kind::Cancelled => StepErrorKind::Cancelled,
        _ => StepErrorKind::Infrastructure,
    };
    StepError::new(kind, error.to_string())
}

fn evidence_error(error: &Error) -> StepError {
    StepError::new(StepErrorKind::Evidence, error.to_string())
}
