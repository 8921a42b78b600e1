//! Evidence: what a step's tools did, recorded by the runner, cited by models, verified offline.
//!
//! * [`Journal`] writes one append-only journal per step: an intent before each effect, an outcome after it,
//!   every record chained to the one before. [`verify_journal`] checks it; `docs/formats/journal.md` describes
//!   it.
//! * [`ReceiptBook`] holds the receipts of verified journals. [`hydrate_receipt_evidence`] puts them in the
//!   place of what an output says about commands and files; a model's words never override a receipt.
//! * [`hydrate_artifact_references`] copies what an output refers to in other steps' outputs.
//! * [`validate_against_delta`] checks that cited changes stand in the step's final delta.
//!
//! Everything is pure and synchronous but [`FileSink`]. The crate has no clock: callers pass times.
//!
//! ```
//! use std::collections::BTreeSet;
//!
//! use coldframe_core::{Digest, Id, RunParams, ToolCall, ToolError, ToolStatus};
//! use coldframe_evidence::{
//!     EffectContext, EffectEnd, Ending, Header, Journal, ReceiptBook, Scope, StepResult,
//!     hydrate_receipt_evidence, verify_with_head,
//! };
//!
//! let (workflow, step) = (Id::parse("repair")?, Id::parse("test")?);
//! let (base, state) = (Digest::of(b"snapshot"), Digest::of(b"state"));
//! let at = "2026-01-31T12:00:00Z";
//! let header =
//!     Header { workflow: workflow.clone(), step: step.clone(), epoch: 1, base, started_at: at.into() };
//! let mut bytes = Vec::new();
//! let mut journal = Journal::begin(&mut bytes, header)?;
//!
//! let call = ToolCall::Run(RunParams { command: vec!["rm".into()], cwd: ".".into() });
//! let context = EffectContext { state, environment: Digest::of(b""), policy: Digest::of(b""), at };
//! let id = journal.intent(&call, &context)?;
//! let refused = Err(ToolError::new(ToolStatus::Refused, "rm is not allowed"));
//! journal.outcome(&id, &refused, &EffectEnd { state, delta: None, at })?;
//! let head = journal.end(Ending { result: StepResult::Failed, delta: None, state, at: at.into() })?;
//!
//! let mut book = ReceiptBook::new(workflow.clone());
//! book.add(verify_with_head(&bytes, &head)?)?;
//! let visible_steps = BTreeSet::from([step]);
//! let scope = Scope { workflow: &workflow, visible_steps: &visible_steps, require_receipts: true };
//! let claim = serde_json::json!({"command": ["rm"], "exit_code": 0, "tool_receipt_id": id});
//! assert!(hydrate_receipt_evidence(claim, &book, &scope).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod book;
mod bounds;
mod call;
mod canonical;
mod claim;
mod error;
mod final_change;
mod hydrate;
mod journal;
mod ledger;
mod receipt;
mod record;
mod reference;
mod sink;
mod verify;

pub use book::ReceiptBook;
pub use bounds::{MAX_DEPTH, MAX_HYDRATED_BYTES};
pub use call::{EffectKey, MAX_RECORDED_TEXT, RecordedCall, RecordedText};
pub use error::{EvidenceError, EvidenceErrorKind, Fault, FaultReason, MAX_FAULTS};
pub use final_change::validate_against_delta;
pub use hydrate::{Scope, hydrate_receipt_evidence};
pub use journal::{EffectContext, EffectEnd, Journal, NextEpoch, Restored, Resumed};
pub use receipt::{Observation, Receipt};
pub use record::{Ending, FORMAT, Header, StepResult};
pub use reference::{
    ArtifactReference, PathSegment, ReferencePattern, ReferenceRules, hydrate_artifact_references,
};
pub use sink::{FileSink, JournalSink};
pub use verify::{VerifiedJournal, verify_journal, verify_with_head};
