//! The one error of sources and stores, with a kind that a program can act on.

use std::fmt;

use crate::{Digest, InvalidId, LimitKind, ParseDigestError, PathError};

/// The longest detail that an error carries, in characters.
pub const MAX_DETAIL_CHARS: usize = 500;

/// What a caller can do about a [`SourceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The adapter, the source or the caller broke a rule of the contract; a retry will not help.
    Contract,
    /// Stored bytes are missing or not what their name says.
    Integrity,
    /// A bound of [`crate::SnapshotLimits`] was exceeded.
    LimitExceeded(LimitKind),
    /// The source, the snapshot or the blob does not exist.
    NotFound,
    /// The source may not be read.
    Denied,
    /// The source changed while it was read; try again when it is still.
    Changed,
    /// The remote side answered with an error; the status says whether a retry can help.
    Provider {
        /// The HTTP status, where there is one.
        status: Option<u16>,
    },
    /// The adapter or the store does not have this ability.
    Unsupported,
    /// The disk, the network or the operating system failed.
    Io,
    /// There is no room left to write.
    NoSpace,
    /// The work was cancelled.
    Cancelled,
}

/// An error of a source or a store: kind, operation, subject, detail and cause. It never carries a credential.
pub struct SourceError {
    kind: ErrorKind,
    operation: &'static str,
    subject: String,
    detail: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl SourceError {
    /// An error of `kind` in `operation`.
    pub fn new(kind: ErrorKind, operation: &'static str, detail: impl Into<String>) -> Self {
        let detail = bounded(detail.into());
        Self { kind, operation, subject: String::new(), detail, source: None }
    }

    /// A broken contract.
    pub fn contract(operation: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Contract, operation, detail)
    }

    /// Missing or wrong bytes.
    pub fn integrity(operation: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Integrity, operation, detail)
    }

    /// A blob that is missing or wrong.
    pub fn corrupt_blob(operation: &'static str, digest: &Digest, detail: impl fmt::Display) -> Self {
        Self::integrity(operation, format!("blob {digest}: {detail}"))
    }

    /// An exceeded limit: names it, its value and what was met.
    pub fn limit(kind: LimitKind, limit: u64, met: u64) -> Self {
        let detail =
            format!("{kind} is {limit}, the source has at least {met}; raise the limit or select less");
        Self::new(ErrorKind::LimitExceeded(kind), "capture", detail)
    }

    /// An I/O error; its kind is derived from the operating system's.
    pub fn io(operation: &'static str, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Self::new(kind, operation, error.to_string()).with_source(error)
    }

    /// Names what the operation was about: a path, a locator, a snapshot id.
    #[must_use]
    pub fn with_subject(mut self, subject: impl fmt::Display) -> Self {
        self.subject = bounded(subject.to_string());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a program can act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The path, locator or id that the error is about; empty where there is none.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.operation)?;
        if !self.subject.is_empty() {
            write!(formatter, " {:?}", self.subject)?;
        }
        let what = match self.kind {
            ErrorKind::Contract => "contract broken",
            ErrorKind::Integrity => "integrity error",
            ErrorKind::LimitExceeded(_) => "limit exceeded",
            ErrorKind::NotFound => "not found",
            ErrorKind::Denied => "permission denied",
            ErrorKind::Changed => "changed while it was read",
            ErrorKind::Provider { .. } => "the provider refused",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Io => "I/O error",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::Cancelled => "cancelled",
        };
        write!(formatter, ": {what}")?;
        if self.detail.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.detail) }
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SourceError")
            .field("kind", &self.kind)
            .field("operation", &self.operation)
            .field("subject", &self.subject)
            .field("detail", &self.detail)
            .field("source", &self.source)
            .finish()
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<PathError> for SourceError {
    fn from(error: PathError) -> Self {
        Self::contract("check path", error.to_string())
    }
}

impl From<ParseDigestError> for SourceError {
    fn from(error: ParseDigestError) -> Self {
        Self::contract("read digest", error.to_string())
    }
}

impl From<InvalidId> for SourceError {
    fn from(error: InvalidId) -> Self {
        Self::contract("read id", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detail_is_bounded_and_the_kind_is_kept() {
        let error = SourceError::contract("capture", "x".repeat(9000)).with_subject("a/b");
        assert!(error.to_string().chars().count() < 600);
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Contract, "a/b"));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(SourceError::io("write", full).kind(), ErrorKind::NoSpace);
    }
}
