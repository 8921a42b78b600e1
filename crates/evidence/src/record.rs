//! One line of a journal, format 1: see `docs/formats/journal.md`.

use coldframe_core::{Digest, Id, ReceiptId, ToolAnswer, ToolError, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::canonical;
use crate::{EffectKey, EvidenceError, RecordedCall};

/// The format that this version writes and reads.
pub const FORMAT: u64 = 1;

/// What the first record's `previous` is.
pub(crate) const NO_RECORD: Digest = Digest::from_bytes([0; 32]);

/// What a journal is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The workflow.
    pub workflow: Id,
    /// The step of the workflow.
    pub step: Id,
    /// The epoch that begins; later ones are greater.
    pub epoch: u64,
    /// The id of the snapshot that the workspace stands on.
    pub base: Digest,
    /// When the step began, RFC 3339.
    pub started_at: String,
}

/// How an epoch of a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// The step is done; nothing may follow.
    Completed,
    /// The step failed; a later epoch may try again.
    Failed,
    /// The epoch's budget is spent; the next one goes on.
    Exhausted,
}

/// The last record of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How it ended.
    pub result: StepResult,
    /// The id of the final cumulative delta, where one was exported.
    pub delta: Option<Digest>,
    /// The state of the workspace at the end.
    pub state: Digest,
    /// When, RFC 3339.
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) receipt: ReceiptId,
    pub(crate) call: RecordedCall,
    pub(crate) effect: u64,
    pub(crate) effect_key: EffectKey,
    pub(crate) state: Digest,
    pub(crate) environment: Digest,
    pub(crate) policy: Digest,
    pub(crate) at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) receipt: ReceiptId,
    pub(crate) status: ToolStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<ToolAnswer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ToolError>,
    pub(crate) state: Digest,
    pub(crate) delta: Option<Digest>,
    pub(crate) at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Begin(Header),
    Intent(Box<Intent>),
    Outcome(Box<Outcome>),
    Interrupted { receipt: ReceiptId, at: String },
    Epoch { epoch: u64, restored: Option<Digest>, at: String },
    End(Ending),
}

/// A record with its place in the chain.
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) previous: Digest,
    pub(crate) record: Record,
}

/// The line without its line end.
pub(crate) fn encode(record: &Record, number: u64, previous: Digest) -> Result<Vec<u8>, EvidenceError> {
    let refuse = |detail: String| EvidenceError::Misuse(format!("the record cannot be written: {detail}"));
    let mut value = serde_json::to_value(record).map_err(|error| refuse(error.to_string()))?;
    let Value::Object(map) = &mut value else { return Err(refuse("it is not an object".to_owned())) };
    map.insert("v".to_owned(), FORMAT.into());
    map.insert("n".to_owned(), number.into());
    map.insert("previous".to_owned(), previous.to_string().into());
    let check = Digest::of(&canonical(&value));
    if let Value::Object(map) = &mut value {
        map.insert("check".to_owned(), check.to_string().into());
    }
    Ok(canonical(&value))
}

/// Reads a line without its line end; `place` is its number from 1. Every spelling but the one that [`encode`]
/// gives is refused, unknown fields, doubled keys and a wrong `check` included.
pub(crate) fn decode(text: &[u8], place: u64) -> Result<Line, EvidenceError> {
    let wrong = |detail: &str| EvidenceError::journal(place, detail);
    let value: Value = serde_json::from_slice(text).map_err(|_| wrong("it is not JSON"))?;
    let Value::Object(mut map) = value else { return Err(wrong("it is not an object")) };
    match map.remove("v").as_ref().and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(version) => return Err(EvidenceError::Version { line: place, version }),
        None => return Err(wrong("it has no format version")),
    }
    let number =
        map.remove("n").as_ref().and_then(Value::as_u64).ok_or_else(|| wrong("it has no record number"))?;
    let previous = map
        .remove("previous")
        .as_ref()
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| wrong("it does not name the record before it"))?;
    map.remove("check");
    let record: Record = serde_json::from_value(Value::Object(map)).map_err(|error| {
        wrong(&format!("it is not a record ({})", crate::error::shown(&error.to_string())))
    })?;
    let expected = encode(&record, number, previous).map_err(|error| wrong(&error.to_string()))?;
    if expected != text {
        return Err(wrong("it was altered: its check or its form does not fit"));
    }
    Ok(Line { number, previous, record })
}
