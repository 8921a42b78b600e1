//! One command in a workspace, as a user types it: what was typed is allowed, and leaves a receipt and a delta.

use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{
    CommandObservation, Digest, Id, ReadParams, ReceiptId, RunParams, SourceRef, SourceSnapshot, ToolAnswer,
    ToolCall, ToolError, ToolStatus, WorkspaceDelta,
};
use coldframe_delta::DeltaStat;
use coldframe_sandbox::{CommandRule, Policy};

use crate::capture::SnapshotSize;
use crate::config::ToolchainMode;
use crate::node::{OpenedWorkspace, local_path};
use crate::runs::ExecRecord;
use crate::session::Opened;
use crate::toolchain::Toolchains;
use crate::{Coldframe, Error, Kind, Selection, Workspace};

/// What to run, and on what.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// The source.
    pub source: SourceRef,
    /// What of it is captured.
    pub selection: Selection,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The time it gets, in place of the configured one.
    pub timeout: Option<Duration>,
}

/// What was done before the command starts.
#[derive(Debug, Clone)]
pub struct ExecFacts {
    /// The run, which the receipt names.
    pub run: Id,
    /// The snapshot.
    pub snapshot: Digest,
    /// What the snapshot holds.
    pub size: SnapshotSize,
    /// The time of the capture.
    pub capture_time: Duration,
    /// The time for the base tree.
    pub prepare_time: Duration,
    /// The time for the workspace.
    pub open_time: Duration,
    /// How it was opened.
    pub opened: Opened,
}

/// A workspace that waits for its command.
#[derive(Debug)]
pub struct PreparedExec {
    facts: ExecFacts,
    opened: OpenedWorkspace,
    snapshot: Arc<SourceSnapshot>,
    command: Vec<String>,
    node: Coldframe,
}

/// What the command did and left.
#[derive(Debug, Clone)]
pub struct ExecReport {
    /// What was done before it.
    pub facts: ExecFacts,
    /// What it did.
    pub observation: CommandObservation,
    /// Its receipt.
    pub receipt: ReceiptId,
    /// What it changed, stored.
    pub delta: WorkspaceDelta,
    /// The counts of the delta.
    pub stat: DeltaStat,
}

impl Coldframe {
    /// What `exec` would make visible for this command.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such program, `Refused` where it may not be made visible.
    pub fn exec_toolchains(&self, source: &SourceRef, command: &[String]) -> Result<Toolchains, Error> {
        let Some(program) = command.first().filter(|program| !program.is_empty()) else {
            return Err(Error::new(Kind::Contract, "there is no command; write it after `--`"));
        };
        let mut toolchains = self.toolchains(Some(source));
        if self.config().toolchains == ToolchainMode::Auto && self.config().search_path.is_none() {
            toolchains.grant_program(program)?;
        }
        Ok(toolchains)
    }

    /// Captures the source and opens a workspace for the command. The program is looked for first, so that a
    /// misspelt one costs nothing.
    ///
    /// # Errors
    ///
    /// Those of the toolchains, the capture and the sandbox.
    pub async fn prepare_exec(&self, request: ExecRequest) -> Result<PreparedExec, Error> {
        let policy = self.exec_policy(&request)?;
        let captured = self.capture(&request.source, &request.selection).await?;
        let step = Id::parse("exec")?;
        let opened = self.open_step(&captured.snapshot, None, policy, ("x", step)).await?;
        let facts = ExecFacts {
            run: opened.run.clone(),
            snapshot: captured.snapshot.id(),
            size: SnapshotSize::of(&captured.snapshot),
            capture_time: captured.time,
            prepare_time: opened.prepare_time,
            open_time: opened.open_time,
            opened: opened.workspace.opened().clone(),
        };
        let snapshot = Arc::new(captured.snapshot);
        Ok(PreparedExec { facts, opened, snapshot, command: request.command, node: self.clone() })
    }

    /// A command that the user types is theirs to allow.
    fn exec_policy(&self, request: &ExecRequest) -> Result<Policy, Error> {
        if let Some(path) = local_path(&request.source) {
            self.config().check_against_source(path)?;
        }
        let toolchains = self.exec_toolchains(&request.source, &request.command)?;
        let policy = self.config().policy(&toolchains)?.with_commands(CommandRule::Any);
        Ok(match request.timeout {
            Some(timeout) => policy.with_timeout(timeout),
            None => policy,
        })
    }
}

impl PreparedExec {
    /// What was done so far.
    pub fn facts(&self) -> &ExecFacts {
        &self.facts
    }

    /// Runs the command, stores the delta, ends the journal and takes the workspace away. Dropping the future
    /// ends the command with all its processes.
    ///
    /// # Errors
    ///
    /// Those of the tool, the store and the journal. A non-zero exit and a time-out are observations.
    pub async fn run(self) -> Result<ExecReport, Error> {
        let workspace = self.opened.workspace;
        let call = ToolCall::Run(RunParams { command: self.command, cwd: ".".to_owned() });
        let outcome = workspace.call(&call).await?;
        let observation = match outcome.answer {
            Ok(ToolAnswer::Command(observation)) => observation,
            Ok(other) => {
                return Err(Error::new(Kind::System, format!("the workspace answered with {other:?}")));
            }
            Err(error) => {
                let error = about_program(&workspace, &call, error).await;
                workspace.abandon().await?;
                return Err(error);
            }
        };
        let receipt = outcome.receipt.ok_or_else(|| {
            Error::new(Kind::System, "the command has no receipt; the journal is not written")
        })?;
        let finished = workspace.finish().await?;
        let record = ExecRecord {
            format: 1,
            run: self.facts.run.clone(),
            step: receipt.step.clone(),
            snapshot: self.facts.snapshot,
            delta: finished.delta.id(),
            receipts_head: finished.receipts_head,
        };
        record.save(&self.node.home().runs())?;
        let stat = self.node.stat_against(self.snapshot, &finished.delta).await?;
        Ok(ExecReport { facts: self.facts, observation, receipt, delta: finished.delta, stat })
    }
}

/// What the system refuses to execute is told apart as shells do: a file of the workspace that is not there, and a
/// program that is there and cannot be executed.
async fn about_program(workspace: &Workspace, call: &ToolCall, error: ToolError) -> Error {
    let program = match call {
        ToolCall::Run(run) => run.command.first().map(String::as_str).unwrap_or_default(),
        _ => "",
    };
    if error.status != ToolStatus::Invalid || program.is_empty() {
        return error.into();
    }
    let details = serde_json::json!({ "program": program });
    if program.contains('/') && !program.starts_with('/') {
        let read = ReadParams { path: program.to_owned(), start_line: 1, end_line: 1 };
        let found = workspace.call(&ToolCall::Read(read)).await;
        if found.is_ok_and(|outcome| outcome.answer.is_err_and(|error| error.status == ToolStatus::NotFound))
        {
            let message = format!(
                "the snapshot has no {program:?}; a file that ignore rules leave out is captured with --include"
            );
            return Error::new(Kind::NotFound, message).with_details(details);
        }
    }
    Error::new(Kind::Refused, error.message.clone()).with_details(details).with_source(error)
}
