//! The facade's one error, with a kind that a program and an exit code can act on.

use std::fmt;

use coldframe_core::{ErrorKind, InvalidId, SourceError, ToolError, ToolStatus, WorkspaceError};
use coldframe_delta::{DeltaErrorKind, FitError, MergeError, PatchError};
use coldframe_evidence::{EvidenceError, EvidenceErrorKind};
use coldframe_mesh::{MeshError, MeshErrorKind};

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The work itself failed: a step did not reach its end.
    Failed,
    /// What was named does not exist.
    NotFound,
    /// The input breaks a rule; a retry will not help.
    Contract,
    /// A bound was exceeded.
    Limit,
    /// Stored bytes or receipts are missing or not what their name says.
    Integrity,
    /// Two changes meet, or something changed under the work.
    Conflict,
    /// The policy, the permissions or this host's isolation forbid it.
    Refused,
    /// The disk, the network or the operating system failed.
    System,
    /// The work was cancelled.
    Cancelled,
}

impl Kind {
    /// The word that JSON output uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::NotFound => "not_found",
            Self::Contract => "contract",
            Self::Limit => "limit",
            Self::Integrity => "integrity",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::System => "system",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// An error of the facade: a kind, a message that says what to do, and the cause.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    details: Option<serde_json::Value>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; the message says what is wrong and what to do.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: None, source: None }
    }

    /// An error of the operating system while doing `operation`.
    pub fn io(operation: impl fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::PermissionDenied => Kind::Refused,
            _ => Kind::System,
        };
        // The kind stays findable among the causes, for those who treat a closed pipe apart.
        Self::new(kind, format!("{operation}: {error}")).with_source(std::io::Error::from(error.kind()))
    }

    /// Adds facts that a program can read, such as the paths of a conflict.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Facts that a program can read, where there are any.
    pub fn details(&self) -> Option<&serde_json::Value> {
        self.details.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

fn source_kind(error: &SourceError) -> Kind {
    match error.kind() {
        ErrorKind::Contract | ErrorKind::Unsupported => Kind::Contract,
        ErrorKind::Integrity => Kind::Integrity,
        ErrorKind::LimitExceeded(_) => Kind::Limit,
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Denied => Kind::Refused,
        ErrorKind::Changed => Kind::Conflict,
        ErrorKind::Cancelled => Kind::Cancelled,
        _ => Kind::System,
    }
}

/// The message of an error with those of its causes, each once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = inner.source();
    }
    message
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        Self::new(source_kind(&error), chain(&error)).with_source(error)
    }
}

impl From<WorkspaceError> for Error {
    fn from(error: WorkspaceError) -> Self {
        let kind = match &error {
            WorkspaceError::Source(source) => source_kind(source),
            WorkspaceError::Isolation(_) => Kind::Refused,
            WorkspaceError::Configuration(_) => Kind::Contract,
            _ => Kind::System,
        };
        Self::new(kind, chain(&error)).with_source(error)
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        let kind = match error.status {
            ToolStatus::Conflict => Kind::Conflict,
            ToolStatus::Refused => Kind::Refused,
            ToolStatus::Invalid => Kind::Contract,
            ToolStatus::NotFound => Kind::NotFound,
            ToolStatus::Limit => Kind::Limit,
            ToolStatus::Ok | ToolStatus::TimedOut | ToolStatus::Failed => Kind::System,
        };
        Self::new(kind, error.message.clone()).with_source(error)
    }
}

impl From<EvidenceError> for Error {
    fn from(error: EvidenceError) -> Self {
        let kind = match error.kind() {
            EvidenceErrorKind::Integrity | EvidenceErrorKind::Empty => Kind::Integrity,
            EvidenceErrorKind::Fenced => Kind::Conflict,
            EvidenceErrorKind::Io => Kind::System,
            _ => Kind::Contract,
        };
        Self::new(kind, chain(&error)).with_source(error)
    }
}

impl From<MeshError> for Error {
    fn from(error: MeshError) -> Self {
        let kind = match error.kind() {
            MeshErrorKind::Workflow | MeshErrorKind::Unsupported => Kind::Contract,
            MeshErrorKind::Capability => Kind::Refused,
            MeshErrorKind::Busy | MeshErrorKind::Mismatch | MeshErrorKind::Exists | MeshErrorKind::Fenced => {
                Kind::Conflict
            }
            MeshErrorKind::NotFound => Kind::NotFound,
            MeshErrorKind::Corrupt => Kind::Integrity,
            _ => Kind::System,
        };
        Self::new(kind, chain(&error)).with_source(error)
    }
}

fn delta_kind(kind: DeltaErrorKind) -> Kind {
    match kind {
        DeltaErrorKind::Conflict => Kind::Conflict,
        DeltaErrorKind::MissingContent => Kind::Integrity,
        _ => Kind::Contract,
    }
}

impl From<FitError> for Error {
    fn from(error: FitError) -> Self {
        Self::new(delta_kind(error.kind()), chain(&error)).with_source(error)
    }
}

impl From<PatchError> for Error {
    fn from(error: PatchError) -> Self {
        Self::new(delta_kind(error.kind()), chain(&error)).with_source(error)
    }
}

impl From<MergeError> for Error {
    fn from(error: MergeError) -> Self {
        let whole = Self::new(delta_kind(error.kind()), chain(&error));
        let details = match &error {
            MergeError::Conflict(conflict) => serde_json::to_value(conflict).ok(),
            _ => None,
        };
        let whole = whole.with_source(error);
        match details {
            Some(details) => whole.with_details(serde_json::json!({ "conflict": details })),
            None => whole,
        }
    }
}

impl From<InvalidId> for Error {
    fn from(error: InvalidId) -> Self {
        Self::new(Kind::Contract, error.to_string()).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_the_cause() {
        let limit = SourceError::limit(coldframe_core::LimitKind::MaxFiles, 1, 2);
        assert_eq!(Error::from(WorkspaceError::from(limit)).kind(), Kind::Limit);
        assert_eq!(Error::from(WorkspaceError::Isolation("no namespaces".into())).kind(), Kind::Refused);
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert_eq!(Error::from(SourceError::io("capture", denied)).kind(), Kind::Refused);
        assert_eq!(Error::from(ToolError::new(ToolStatus::Conflict, "changed")).kind(), Kind::Conflict);
    }

    #[test]
    fn a_cause_is_told_once() {
        let inner = SourceError::contract("read", "a bad line");
        let outer =
            SourceError::integrity("read manifest", "the manifest breaks the contract").with_source(inner);
        let message = Error::from(outer).to_string();
        assert_eq!(message.matches("a bad line").count(), 1, "{message}");
    }
}
