//! A workspace whose every effect is journalled: an intent before it, an outcome and a stored delta after it.

use std::ops::RangeInclusive;
use std::path::Path;

use coldframe_blob::Store;
use coldframe_core::{
    CommandObservation, Digest, EditParams, Id, ListPage, ListParams, ReadPage, ReadParams, ReceiptId,
    RunParams, SearchPage, SearchParams, ToolAnswer, ToolCall, ToolError, ToolStatus, WorkspaceDelta,
    WorkspaceMutation, WriteParams,
};
use coldframe_evidence::{
    EffectContext, EffectEnd, Ending, FileSink, Header, Journal, JournalSink, Receipt, Restored, Resumed,
    StepResult, VerifiedJournal, verify_journal,
};
use coldframe_sandbox::Policy;
use tokio::sync::Mutex;

use crate::clock::now;
use crate::{Error, Kind};

/// Which journal a workspace writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalPlace<'a> {
    /// The file; its folder exists.
    pub(crate) file: &'a Path,
    /// The run, which the receipts name.
    pub(crate) run: &'a Id,
    /// The step.
    pub(crate) step: &'a Id,
    /// The epoch, from 1.
    pub(crate) epoch: u64,
    /// What the epoch starts from.
    pub(crate) restored: Restored,
}

/// How a workspace was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// What its commands run under: `full` or `none`.
    pub isolation: String,
    /// How it was materialized: `overlay` or `copy`.
    pub strategy: String,
}

/// What one call did.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The answer, with the receipt filled in, or why there is none.
    pub answer: Result<ToolAnswer, ToolError>,
    /// The receipt of an effect.
    pub receipt: Option<ReceiptId>,
    /// The stored cumulative delta after an effect.
    pub delta: Option<Digest>,
}

/// What a workspace leaves when it is finished.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The cumulative delta, stored.
    pub delta: WorkspaceDelta,
    /// The head of the journal.
    pub receipts_head: Digest,
    /// The receipts of this workspace, those of earlier epochs included.
    pub receipts: Vec<Receipt>,
}

/// An isolated copy-on-write workspace with a journal. Effects run one at a time in call order; reads do not wait.
///
/// Dropping it takes everything away but the journal; [`Workspace::finish`] keeps the delta.
pub struct Workspace {
    inner: Box<dyn coldframe_core::Workspace>,
    recorder: Mutex<Recorder>,
    store: Store,
    context: (Digest, Digest),
    opened: Opened,
}

struct Recorder {
    journal: Journal<FileSink>,
    delta: WorkspaceDelta,
    receipts: Vec<Receipt>,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Workspace").field("opened", &self.opened).finish_non_exhaustive()
    }
}

/// What a workspace is made of.
pub(crate) struct Parts<'a> {
    pub(crate) inner: Box<dyn coldframe_core::Workspace>,
    pub(crate) opened: Opened,
    pub(crate) store: Store,
    pub(crate) policy: &'a Policy,
    pub(crate) base: Digest,
    pub(crate) delta: Option<WorkspaceDelta>,
    pub(crate) journal: JournalPlace<'a>,
}

impl Workspace {
    /// Begins or resumes the journal of an open workspace.
    pub(crate) fn begin(parts: Parts<'_>) -> Result<Self, Error> {
        let (journal, resumed) = open_journal(&parts.journal, parts.base)?;
        let delta = match parts.delta {
            Some(delta) => delta,
            None => WorkspaceDelta::new(parts.base, Vec::new(), Vec::new(), Vec::new())?,
        };
        Ok(Self {
            inner: parts.inner,
            recorder: Mutex::new(Recorder { journal, delta, receipts: resumed.receipts }),
            store: parts.store,
            context: digests_of(parts.policy),
            opened: parts.opened,
        })
    }

    /// How it was opened.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Runs one tool. An effect gets a receipt, whatever its answer, and leaves a stored delta.
    ///
    /// # Errors
    ///
    /// Those of the journal and of the store; what the tool itself answers stands in the [`Outcome`].
    pub async fn call(&self, call: &ToolCall) -> Result<Outcome, Error> {
        if !call.is_effect() {
            return Ok(Outcome { answer: self.inner.call(call).await, receipt: None, delta: None });
        }
        let mut recorder = self.recorder.lock().await;
        self.settle(&mut recorder).await?;
        let (environment, policy) = self.context;
        let at = now();
        let context = EffectContext { state: recorder.delta.state(), environment, policy, at: &at };
        let receipt = recorder.journal.intent(call, &context)?;
        let mut answer = self.inner.call(call).await;
        sign(&mut answer, &receipt);
        if may_have_changed(&answer) {
            recorder.delta = self.store_delta().await?;
        }
        let delta = recorder.delta.id();
        let end = EffectEnd { state: recorder.delta.state(), delta: Some(delta), at: &now() };
        let recorded = recorder.journal.outcome(&receipt, &answer, &end)?;
        recorder.receipts.push(recorded);
        Ok(Outcome { answer, receipt: Some(receipt), delta: Some(delta) })
    }

    /// An effect whose future was dropped has an unknown outcome: that is recorded, and the state taken anew.
    async fn settle(&self, recorder: &mut Recorder) -> Result<(), Error> {
        if let Some(receipt) = recorder.journal.open_effect().cloned() {
            recorder.journal.interrupt(&receipt, &now())?;
            recorder.delta = self.store_delta().await?;
        }
        Ok(())
    }

    async fn store_delta(&self) -> Result<WorkspaceDelta, Error> {
        let delta = self.inner.export().await?;
        // The journal is about to name this delta, so its contents have to be findable first.
        self.store.flush().await?;
        self.store.save_delta(&delta).await?;
        Ok(delta)
    }

    /// Lists a directory.
    ///
    /// # Errors
    ///
    /// Those of the tool.
    pub async fn list(&self, parameters: ListParams) -> Result<ListPage, Error> {
        match self.call(&ToolCall::List(parameters)).await?.answer? {
            ToolAnswer::List(page) => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads lines of a text file, counted from 1.
    ///
    /// # Errors
    ///
    /// Those of the tool.
    pub async fn read(&self, path: impl Into<String>, lines: RangeInclusive<u64>) -> Result<ReadPage, Error> {
        let call = ReadParams { path: path.into(), start_line: *lines.start(), end_line: *lines.end() };
        match self.call(&ToolCall::Read(call)).await?.answer? {
            ToolAnswer::Read(page) => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    /// Searches files.
    ///
    /// # Errors
    ///
    /// Those of the tool.
    pub async fn search(&self, parameters: SearchParams) -> Result<SearchPage, Error> {
        match self.call(&ToolCall::Search(parameters)).await?.answer? {
            ToolAnswer::Search(page) => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    /// Creates or replaces a file.
    ///
    /// # Errors
    ///
    /// Those of the tool.
    pub async fn write(
        &self,
        path: impl Into<String>,
        content: impl Into<String>,
    ) -> Result<WorkspaceMutation, Error> {
        let call = WriteParams { path: path.into(), content: content.into(), executable: None };
        self.mutate(ToolCall::Write(call)).await
    }

    /// Replaces lines of a file that still has the SHA-256 it was read with.
    ///
    /// # Errors
    ///
    /// `Conflict` where the file is another by now; else those of the tool.
    pub async fn edit(
        &self,
        path: impl Into<String>,
        lines: RangeInclusive<u64>,
        replacement: impl Into<String>,
        expected_sha256: impl Into<String>,
    ) -> Result<WorkspaceMutation, Error> {
        let call = EditParams {
            path: path.into(),
            start_line: *lines.start(),
            end_line: *lines.end(),
            replacement: replacement.into(),
            expected_sha256: expected_sha256.into(),
        };
        self.mutate(ToolCall::Edit(call)).await
    }

    async fn mutate(&self, call: ToolCall) -> Result<WorkspaceMutation, Error> {
        match self.call(&call).await?.answer? {
            ToolAnswer::Mutation(mutation) => Ok(mutation),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a command in the root of the workspace. A non-zero exit is an observation, not an error.
    ///
    /// # Errors
    ///
    /// Those of the tool: the policy refuses it, there is no such program, the machine fails.
    pub async fn run<I: IntoIterator<Item = impl Into<String>>>(
        &self,
        command: I,
    ) -> Result<CommandObservation, Error> {
        let command = command.into_iter().map(Into::into).collect();
        match self.call(&ToolCall::Run(RunParams { command, cwd: ".".to_owned() })).await?.answer? {
            ToolAnswer::Command(observation) => Ok(observation),
            other => Err(unexpected(&other)),
        }
    }

    /// The changes so far against the snapshot, stored. The workspace stays open.
    ///
    /// # Errors
    ///
    /// Those of the store and of the host.
    pub async fn export(&self) -> Result<WorkspaceDelta, Error> {
        let mut recorder = self.recorder.lock().await;
        self.settle(&mut recorder).await?;
        recorder.delta = self.store_delta().await?;
        Ok(recorder.delta.clone())
    }

    /// The receipts so far.
    pub async fn receipts(&self) -> Vec<Receipt> {
        self.recorder.lock().await.receipts.clone()
    }

    /// The journal as it stands on the disk, verified.
    pub(crate) async fn verified(&self) -> Result<VerifiedJournal, Error> {
        let mut recorder = self.recorder.lock().await;
        let bytes = recorder
            .journal
            .sink_mut()
            .contents()
            .map_err(|error| Error::io("read the journal of the step", &error))?;
        Ok(verify_journal(&bytes)?)
    }

    /// Exports and stores the delta, ends the journal and takes the workspace away.
    ///
    /// # Errors
    ///
    /// Those of the store, the journal and the host; the journal then stays without an end.
    pub async fn finish(self) -> Result<Finished, Error> {
        self.end(StepResult::Completed).await
    }

    /// Gives the work up: ends the journal as failed and takes the workspace away. The deltas of its effects stay
    /// in the store, since receipts name them.
    ///
    /// # Errors
    ///
    /// Those of the journal and the host.
    pub async fn abandon(self) -> Result<(), Error> {
        let Self { inner, recorder, .. } = self;
        let recorder = recorder.into_inner();
        end_journal(recorder, StepResult::Failed).await?;
        Ok(inner.close().await?)
    }

    async fn end(self, result: StepResult) -> Result<Finished, Error> {
        self.export().await?;
        let Self { inner, recorder, .. } = self;
        let finished = end_journal(recorder.into_inner(), result).await?;
        inner.close().await?;
        Ok(finished)
    }
}

async fn end_journal(recorder: Recorder, result: StepResult) -> Result<Finished, Error> {
    let Recorder { journal, delta, receipts } = recorder;
    let ending = Ending { result, delta: Some(delta.id()), state: delta.state(), at: now() };
    // The end is synced to the disk, which may take a while.
    let receipts_head = blocking(move || Ok(journal.end(ending)?)).await?;
    Ok(Finished { delta, receipts_head, receipts })
}

/// Runs work that waits for the disk outside of the asynchronous threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(Kind::System, format!("a task did not end: {error}"))),
    }
}

fn open_journal(place: &JournalPlace<'_>, base: Digest) -> Result<(Journal<FileSink>, Resumed), Error> {
    let failed = |error: std::io::Error| Error::io(format!("open the journal {:?}", place.file), &error);
    let (mut sink, mut existing) = FileSink::open_or_create(place.file).map_err(failed)?;
    // A process that was killed between the end of the journal and the state of the run has published no head,
    // so the step is not done; without its end the journal goes on.
    if verify_journal(&existing).is_ok_and(|journal| journal.is_complete()) {
        let body = existing.len().saturating_sub(1);
        let end = existing[..body].iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
        sink.truncate(end as u64).map_err(failed)?;
        existing.truncate(end);
    }
    let header = Header {
        workflow: place.run.clone(),
        step: place.step.clone(),
        epoch: place.epoch,
        base,
        started_at: now(),
    };
    Ok(Journal::open(&existing, sink, header, place.restored)?)
}

/// Names the environment and the policy of a workspace, so that receipts can be compared by them.
fn digests_of(policy: &Policy) -> (Digest, Digest) {
    let environment = format!(
        "coldframe-environment 1\n{:?}\n{:?}\n{:?}\n",
        policy.search_path, policy.grants, policy.environment
    );
    let rules = format!(
        "coldframe-policy 1\n{:?}\n{:?}\n{:?}\n{:?}\n{} {}\n",
        policy.commands,
        policy.timeout,
        policy.required_isolation,
        policy.exclude,
        policy.max_write_bytes,
        policy.max_output_bytes
    );
    (Digest::of(environment.as_bytes()), Digest::of(rules.as_bytes()))
}

fn sign(answer: &mut Result<ToolAnswer, ToolError>, receipt: &ReceiptId) {
    match answer {
        Ok(ToolAnswer::Command(observation)) => observation.tool_receipt_id = Some(receipt.clone()),
        Ok(ToolAnswer::Mutation(mutation)) => mutation.tool_receipt_id = Some(receipt.clone()),
        _ => {}
    }
}

/// A call that was turned down before it began has changed nothing, so no export is needed.
fn may_have_changed(answer: &Result<ToolAnswer, ToolError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => matches!(error.status, ToolStatus::Failed | ToolStatus::TimedOut | ToolStatus::Limit),
    }
}

fn unexpected(answer: &ToolAnswer) -> Error {
    Error::new(Kind::System, format!("the workspace gave the answer of another tool: {answer:?}"))
}

#[cfg(test)]
mod tests;
