//! The one error of evidence, with a kind that a program can act on and the places that are at fault.

use std::fmt;
use std::io;

use coldframe_core::Digest;

/// The most faults that one error carries; a walk stops there.
pub const MAX_FAULTS: usize = 100;

const SHOWN_FAULTS: usize = 8;
const SHOWN_CHARS: usize = 120;

/// What a caller can do about an [`EvidenceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EvidenceErrorKind {
    /// The journal is not what the runner wrote; none of its receipts may be trusted.
    Integrity,
    /// The last line of the journal is cut; resume the step, which drops it.
    Cut,
    /// The journal has no complete record yet; begin it.
    Empty,
    /// The journal has a format that this version does not read.
    Unsupported,
    /// The journal could not be written.
    Io,
    /// The caller broke a rule of the journal; nothing was written.
    Misuse,
    /// The journal has moved on to a later epoch; the caller's work is void.
    Fenced,
    /// A citation or a claim in an output was refused; whoever wrote the output can mend it.
    Citation,
    /// A reference to another step's output was refused; whoever wrote the output can mend it.
    Reference,
    /// A cited change does not stand in the final delta.
    NoFinalChange,
}

/// Why one place was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultReason {
    /// The id names no receipt: made up, that of a read, misspelt, empty or no text.
    UnknownReceipt,
    /// The receipt belongs to another workflow.
    ForeignWorkflow,
    /// The step is neither this one nor one that it depends on.
    InvisibleStep,
    /// A claim about a file cites a command, or the other way round.
    WrongKind,
    /// The call failed or was interrupted, so there is nothing to cite.
    NoObservation,
    /// The workspace that the effect worked on was thrown away.
    RolledBack,
    /// The citation states a fact that differs from the receipt's.
    Contradiction,
    /// A fact about a command or a file is stated without a receipt.
    Unreceipted,
    /// The value nests too deeply.
    TooDeep,
    /// The value would grow too large.
    TooLarge,
    /// The reference is not `{"artifact_ref": {"step_id": …, "path": […]}}`.
    InvalidReference,
    /// No step of that id has an output.
    UnknownStep,
    /// The step's output has nothing at that path.
    BadPath,
    /// A value stands where a reference is required.
    LiteralAtRequired,
    /// Nothing stands where a reference is required.
    MissingRequired,
    /// A reference leads back to itself.
    Cycle,
    /// The file is at the end as it was in the base, or is not there at all.
    NoFinalChange,
    /// The file was changed again after the cited effect.
    Superseded,
    /// A rule keeps the path out of deltas.
    Excluded,
}

/// One place that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The JSON path of the place (RFC 6901, such as `/steps/0/evidence`; empty for the whole value), or the id
    /// of the receipt where the fault is about a delta.
    pub place: String,
    /// What a program can act on.
    pub reason: FaultReason,
    /// What is wrong and what to do.
    pub message: String,
}

/// An error of journals, receipts and references.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// A line is altered, missing, doubled or out of place.
    #[error(
        "journal line {line}: {detail}; the journal is not what the runner wrote, do not trust its receipts"
    )]
    Journal {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// The last line has no end: it never became a record. The lines before it are good.
    #[error("journal line {line} is cut, as by a kill in the middle of a write; resume the step to mend it")]
    Cut {
        /// The line, from 1.
        line: u64,
    },
    /// There is no complete record.
    #[error("the journal has no complete record; begin a new one")]
    Empty,
    /// The format is not known.
    #[error("journal line {line}: format {version} is not known to this version; it reads format 1")]
    Version {
        /// The line, from 1.
        line: u64,
        /// The version that the line states.
        version: u64,
    },
    /// The journal's last record is not the one that was recorded as its head.
    #[error(
        "the journal ends with record {found}, the recorded head is {expected}: records were removed from its end or added to it"
    )]
    Head {
        /// The head as recorded elsewhere.
        expected: Digest,
        /// The head of the journal.
        found: Digest,
    },
    /// The journal could not be written. Unless the next call says otherwise, nothing of the record is left.
    #[error("{operation} the journal: {source}")]
    Sink {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller broke a rule of the journal; nothing was written.
    #[error("{0}")]
    Misuse(String),
    /// The journal already is at this epoch or a later one.
    #[error("epoch {asked} is void: the journal is at epoch {current}; claim the step again")]
    Fenced {
        /// The epoch that was to begin.
        asked: u64,
        /// The epoch that the journal is at.
        current: u64,
    },
    /// Citations or claims were refused.
    #[error("{}", Listed(.0))]
    Citations(Vec<Fault>),
    /// References were refused.
    #[error("{}", Listed(.0))]
    References(Vec<Fault>),
    /// Cited changes do not stand in the final delta.
    #[error("{}", Listed(.0))]
    NoFinalChange(Vec<Fault>),
}

impl EvidenceError {
    /// What a program can act on.
    pub fn kind(&self) -> EvidenceErrorKind {
        match self {
            Self::Journal { .. } | Self::Head { .. } => EvidenceErrorKind::Integrity,
            Self::Cut { .. } => EvidenceErrorKind::Cut,
            Self::Empty => EvidenceErrorKind::Empty,
            Self::Version { .. } => EvidenceErrorKind::Unsupported,
            Self::Sink { .. } => EvidenceErrorKind::Io,
            Self::Misuse(_) => EvidenceErrorKind::Misuse,
            Self::Fenced { .. } => EvidenceErrorKind::Fenced,
            Self::Citations(_) => EvidenceErrorKind::Citation,
            Self::References(_) => EvidenceErrorKind::Reference,
            Self::NoFinalChange(_) => EvidenceErrorKind::NoFinalChange,
        }
    }

    /// The places that were refused, at most [`MAX_FAULTS`]; none for errors of a journal.
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Citations(faults) | Self::References(faults) | Self::NoFinalChange(faults) => faults,
            _ => &[],
        }
    }

    pub(crate) fn journal(line: u64, detail: impl Into<String>) -> Self {
        Self::Journal { line, detail: detail.into() }
    }
}

struct Listed<'a>(&'a [Fault]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().take(SHOWN_FAULTS).enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            let place = if fault.place.is_empty() { "the output" } else { &fault.place };
            write!(formatter, "{separator}{}: {}", printable(place), fault.message)?;
        }
        match self.0.len().saturating_sub(SHOWN_FAULTS) {
            0 => Ok(()),
            more => write!(formatter, "; and {more} more"),
        }
    }
}

/// Keeps keys that a model chose from steering a terminal or flooding a log.
fn printable(place: &str) -> String {
    let mut text = String::new();
    for letter in place.chars().take(2 * SHOWN_CHARS) {
        if letter.is_control() { text.extend(letter.escape_debug()) } else { text.push(letter) }
    }
    text
}

/// Quotes foreign text for a message: escaped and bounded.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_bounded_and_has_no_control_character() {
        let fault = Fault {
            place: format!("/\u{1b}[2J{}", "k".repeat(9000)),
            reason: FaultReason::UnknownReceipt,
            message: shown(&"\u{7}".repeat(9000)),
        };
        let error = EvidenceError::Citations(vec![fault; 50]);
        let text = error.to_string();
        assert!(text.len() < 20_000 && !text.chars().any(char::is_control), "{text}");
        assert!(text.ends_with("and 42 more"));
        assert_eq!((error.kind(), error.faults().len()), (EvidenceErrorKind::Citation, 50));
    }
}
