//! Ids of workflows, steps, owners and receipts: checked, never rewritten.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a workflow, a step or an owner: 1 to 128 of `A-Z a-z 0-9 . _ -`, not starting with a dot.
///
/// Anything else is refused and nothing is rewritten, so two ids never share a key or a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

/// The text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is 1 to 128 of A-Z a-z 0-9 . _ - and does not start with a dot, got {0:?}")]
pub struct InvalidId(String);

impl Id {
    /// Checks `text` and takes it as it is.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > 128 || text.starts_with('.') || !text.bytes().all(legal) {
            return Err(InvalidId(text.chars().take(140).collect()));
        }
        Ok(Self(text))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl TryFrom<String> for Id {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

/// `tool:<workflow>:<step>:<n>`: names the n-th recorded effect of a step, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReceiptId {
    /// The workflow that the step belongs to.
    pub workflow: Id,
    /// The step that ran the tool.
    pub step: Id,
    /// The number in the step's journal, from 1.
    pub number: u64,
}

impl ReceiptId {
    /// Reads `tool:<workflow>:<step>:<n>`; refuses every other spelling, leading zeros included.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId(text.chars().take(300).collect());
        let mut parts = text.split(':');
        let (Some("tool"), Some(workflow), Some(step), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        let value: u64 = number.parse().map_err(|_| refuse())?;
        if value == 0 || value.to_string() != number {
            return Err(refuse());
        }
        Ok(Self { workflow: Id::parse(workflow)?, step: Id::parse(step)?, number: value })
    }
}

impl fmt::Display for ReceiptId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "tool:{}:{}:{}", self.workflow, self.step, self.number)
    }
}

impl TryFrom<String> for ReceiptId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(&text)
    }
}

impl From<ReceiptId> for String {
    fn from(id: ReceiptId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_and_kept_as_they_are() {
        for good in ["a", "A.b_c-9", &"x".repeat(128)] {
            assert_eq!(Id::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", ".a", "a/b", "a b", "é", "..", "a:b", &"x".repeat(129)] {
            assert!(Id::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_receipt_id_has_one_spelling() {
        let id = ReceiptId::parse("tool:wf:step-1:12").unwrap();
        assert_eq!(id.to_string(), "tool:wf:step-1:12");
        for bad in [
            "",
            "made-up",
            "tool:wf:s:0",
            "tool:wf:s:01",
            "tool:wf:s:1 ",
            "tool:wf:s:+1",
            "tool:w:s:1:2",
            "tool::s:1",
        ] {
            assert!(ReceiptId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
