//! Receipts: what the runner recorded about one effect.

use coldframe_core::{
    CommandObservation, Digest, ReceiptId, ToolAnswer, ToolError, ToolStatus, WorkspaceMutation,
};
use serde::Serialize;

use crate::{EffectKey, RecordedCall};

/// What was observed of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Observation {
    /// A command ran.
    Command(CommandObservation),
    /// A file was written or edited.
    Mutation(WorkspaceMutation),
    /// The call gave no answer; the receipt's error says why.
    None,
}

impl Observation {
    /// The observation of an answer; [`Observation::None`] where there is none.
    pub(crate) fn of(answer: Option<ToolAnswer>) -> Self {
        match answer {
            Some(ToolAnswer::Command(observation)) => Self::Command(observation),
            Some(ToolAnswer::Mutation(mutation)) => Self::Mutation(mutation),
            _ => Self::None,
        }
    }
}

/// The answer with the receipt's id filled in; `None` where it is a read's.
pub(crate) fn with_receipt(answer: &ToolAnswer, id: &ReceiptId) -> Option<ToolAnswer> {
    let mut answer = answer.clone();
    match &mut answer {
        ToolAnswer::Command(observation) => observation.tool_receipt_id = Some(id.clone()),
        ToolAnswer::Mutation(mutation) => mutation.tool_receipt_id = Some(id.clone()),
        ToolAnswer::Read(_) | ToolAnswer::Search(_) | ToolAnswer::List(_) => return None,
    }
    Some(answer)
}

/// One effect with its intent and its outcome. It is made by a journal alone and cannot be read from JSON, so a
/// receipt in hand is one that the runner recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Receipt {
    /// Its id.
    pub id: ReceiptId,
    /// The epoch of the step that ran it.
    pub epoch: u64,
    /// The call as recorded.
    pub call: RecordedCall,
    /// Names the effect in every epoch.
    pub effect_key: EffectKey,
    /// How the call ended.
    pub status: ToolStatus,
    /// What was observed.
    pub observation: Observation,
    /// Why there is no observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
    /// The state of the workspace before the effect.
    pub state_before: Digest,
    /// The state of the workspace after it.
    pub state_after: Digest,
    /// The id of the cumulative delta after it, where one was exported.
    pub delta: Option<Digest>,
    /// The environment that it ran in.
    pub environment: Digest,
    /// The policy that it ran under.
    pub policy: Digest,
    /// When the intent was recorded, RFC 3339.
    pub started_at: String,
    /// When the outcome was recorded, RFC 3339.
    pub ended_at: String,
    /// The hash of the intent's record.
    pub intent: Digest,
    /// The hash of the outcome's record.
    pub record: Digest,
    /// Whether a later epoch began from a state without this effect.
    pub rolled_back: bool,
}

impl Receipt {
    /// The change of a file, where the effect was one and worked.
    pub const fn mutation(&self) -> Option<&WorkspaceMutation> {
        match &self.observation {
            Observation::Mutation(mutation) => Some(mutation),
            Observation::Command(_) | Observation::None => None,
        }
    }

    /// The run of a command, where the effect was one and worked.
    pub const fn command(&self) -> Option<&CommandObservation> {
        match &self.observation {
            Observation::Command(observation) => Some(observation),
            Observation::Mutation(_) | Observation::None => None,
        }
    }
}
