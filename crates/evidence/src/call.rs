//! Effects as the journal keeps them: large texts by hash, and a key that names each effect.

use std::fmt;

use coldframe_core::{Digest, Id, RunParams, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::canonical::canonical;

/// The longest text, in bytes, that a journal keeps whole.
pub const MAX_RECORDED_TEXT: usize = 4096;

/// A text of a call: whole where it is short, else by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedText {
    /// At most [`MAX_RECORDED_TEXT`] bytes.
    Whole(String),
    /// A longer text.
    Hashed {
        /// The SHA-256 of its bytes, 64 lower-case hexadecimal digits.
        sha256: String,
        /// The number of its bytes.
        size: u64,
    },
}

impl RecordedText {
    /// Keeps `text` whole or by its hash.
    pub fn of(text: &str) -> Self {
        if text.len() <= MAX_RECORDED_TEXT {
            return Self::Whole(text.to_owned());
        }
        let hash = Sha256::digest(text.as_bytes());
        let sha256 = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::Hashed { sha256, size: text.len() as u64 }
    }
}

/// A call that may change the workspace, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tool")]
pub enum RecordedCall {
    /// `workspace_write`
    #[serde(rename = "workspace_write")]
    Write {
        /// The path as the caller spelt it.
        path: String,
        /// The new content.
        content: RecordedText,
        /// The executable bit that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executable: Option<bool>,
    },
    /// `workspace_edit`
    #[serde(rename = "workspace_edit")]
    Edit {
        /// The path as the caller spelt it.
        path: String,
        /// The first line to replace, from 1.
        start_line: u64,
        /// The last line to replace, inclusive.
        end_line: u64,
        /// What stands there afterwards.
        replacement: RecordedText,
        /// The SHA-256 of the file as the caller read it.
        expected_sha256: String,
    },
    /// `workspace_run`
    #[serde(rename = "workspace_run")]
    Run(RunParams),
}

impl RecordedCall {
    /// The form for the journal, or `None` where the call only reads.
    pub fn of(call: &ToolCall) -> Option<Self> {
        match call {
            ToolCall::Write(call) => Some(Self::Write {
                path: call.path.clone(),
                content: RecordedText::of(&call.content),
                executable: call.executable,
            }),
            ToolCall::Edit(call) => Some(Self::Edit {
                path: call.path.clone(),
                start_line: call.start_line,
                end_line: call.end_line,
                replacement: RecordedText::of(&call.replacement),
                expected_sha256: call.expected_sha256.clone(),
            }),
            ToolCall::Run(call) => Some(Self::Run(call.clone())),
            ToolCall::List(_) | ToolCall::Read(_) | ToolCall::Search(_) => None,
        }
    }

    /// The tool's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Write { .. } => "workspace_write",
            Self::Edit { .. } => "workspace_edit",
            Self::Run(_) => "workspace_run",
        }
    }

    /// Whether the call runs a command; else it changes a file.
    pub const fn is_command(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}

/// Names an effect by workflow, step, place in the step's effects and call. The same call at the same place has
/// the same key in every epoch, so a repetition can be told from a new effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKey(Digest);

impl EffectKey {
    /// BLAKE3 of the canonical JSON `["coldframe-effect",1,workflow,step,effect,call]`. `effect` counts from 1
    /// the effects that still stand in the workspace.
    pub fn of(workflow: &Id, step: &Id, effect: u64, call: &RecordedCall) -> Self {
        let value = json!(["coldframe-effect", 1, workflow, step, effect, call]);
        Self(Digest::of(&canonical(&value)))
    }

    /// The key as a digest.
    pub const fn digest(&self) -> Digest {
        self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldframe_core::WriteParams;

    fn write(content: &str) -> RecordedCall {
        let call = WriteParams { path: "a".to_owned(), content: content.to_owned(), executable: None };
        RecordedCall::of(&ToolCall::Write(call)).unwrap()
    }

    #[test]
    fn a_long_text_is_kept_by_its_sha256() {
        assert_eq!(RecordedText::of(&"x".repeat(4096)), RecordedText::Whole("x".repeat(4096)));
        let RecordedText::Hashed { sha256, size } = RecordedText::of(&"a".repeat(1_000_000)) else {
            panic!("a long text was kept whole")
        };
        // The published test vector of SHA-256 for a million times the letter a.
        assert_eq!(sha256, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
        assert_eq!(size, 1_000_000);
    }

    #[test]
    fn each_part_of_an_effect_changes_its_key() {
        let id = |text: &str| Id::parse(text).unwrap();
        let key = EffectKey::of(&id("w"), &id("s"), 1, &write("1"));
        assert_eq!(key, EffectKey::of(&id("w"), &id("s"), 1, &write("1")));
        assert_ne!(key, EffectKey::of(&id("v"), &id("s"), 1, &write("1")));
        assert_ne!(key, EffectKey::of(&id("w"), &id("t"), 1, &write("1")));
        assert_ne!(key, EffectKey::of(&id("w"), &id("s"), 2, &write("1")));
        assert_ne!(key, EffectKey::of(&id("w"), &id("s"), 1, &write("2")));
    }

    #[test]
    fn every_effect_and_no_read_has_a_form() {
        for text in [
            r#"{"tool":"workspace_list"}"#,
            r#"{"tool":"workspace_read","path":"a"}"#,
            r#"{"tool":"workspace_search","query":"a"}"#,
            r#"{"tool":"workspace_write","path":"a","content":"b","executable":true}"#,
            r#"{"tool":"workspace_edit","path":"a","start_line":1,"end_line":1,"replacement":"b","expected_sha256":"c"}"#,
            r#"{"tool":"workspace_run","command":["true"]}"#,
        ] {
            let call: ToolCall = serde_json::from_str(text).unwrap();
            let recorded = RecordedCall::of(&call);
            assert_eq!(recorded.is_some(), call.is_effect(), "{text}");
            if let Some(recorded) = recorded {
                assert_eq!(recorded.name(), call.name());
                let value = serde_json::to_value(&recorded).unwrap();
                assert_eq!(serde_json::from_value::<RecordedCall>(value).unwrap(), recorded);
            }
        }
    }
}
