//! The errors of the mesh: one for runs and workflow files, one that a step's host answers with.

use serde::{Deserialize, Serialize};

/// What a caller can do about a [`MeshError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeshErrorKind {
    /// The workflow file is wrong; the message names the line and the key.
    Workflow,
    /// A step needs an ability that this worker does not offer.
    Capability,
    /// Another process works on the run; wait for it or stop it.
    Busy,
    /// The run id belongs to another workflow or another snapshot.
    Mismatch,
    /// The run exists already.
    Exists,
    /// There is no such run.
    NotFound,
    /// The state on disk is damaged.
    Corrupt,
    /// The state on disk was written by a version with another format.
    Unsupported,
    /// The claim belongs to a later epoch, or the run to a later writer; nothing was written.
    Fenced,
    /// There is no room left to write.
    NoSpace,
    /// The disk or the operating system failed.
    Io,
}

/// An error of a run or of a workflow file: its kind, what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MeshError {
    kind: MeshErrorKind,
    message: String,
    #[source]
    source: Option<std::io::Error>,
}

impl MeshError {
    /// An error of `kind`; `message` says what is wrong and what to do.
    pub fn new(kind: MeshErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error of the operating system while it tried to do `operation`.
    pub fn io(operation: impl std::fmt::Display, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => MeshErrorKind::NotFound,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => MeshErrorKind::NoSpace,
            _ => MeshErrorKind::Io,
        };
        Self { kind, message: format!("{operation}: {error}"), source: Some(error) }
    }

    /// What a program can act on.
    pub fn kind(&self) -> MeshErrorKind {
        self.kind
    }
}

/// Why a step did not get on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepErrorKind {
    /// Two dependencies changed one path in different ways.
    Conflict,
    /// A policy, a capability or a bound forbids it.
    Refused,
    /// A call did not answer what the workflow expects.
    Expectation,
    /// The output cites what is not there, or not what it says.
    Evidence,
    /// The machine, the store or the host failed.
    Infrastructure,
    /// The work was cancelled; the step stays in progress and goes on with a resume.
    Cancelled,
}

/// Why a step failed: the kind and a message for people. It is stored in the state of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    /// What a program can act on.
    pub kind: StepErrorKind,
    /// What is wrong and what to do, at most [`MAX_MESSAGE_CHARS`] characters.
    pub message: String,
}

/// The longest message of a [`StepError`], in characters; longer ones are cut, since each save writes them.
pub const MAX_MESSAGE_CHARS: usize = 16_384;

impl StepError {
    /// An error of `kind`.
    pub fn new(kind: StepErrorKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS - 1) {
            message.truncate(end);
            message.push('…');
        }
        Self { kind, message }
    }
}
