//! What an object in an output claims about a command or a file, and whether a receipt bears it out.

use coldframe_core::{RunParams, WorkspacePath};
use serde_json::{Map, Value, json};

use crate::error::{FaultReason, shown};

/// The key that makes an object a citation.
pub(crate) const RECEIPT_KEY: &str = "tool_receipt_id";

/// The facts of a command's receipt.
const COMMAND_FACTS: [&str; 11] = [
    "command",
    "cwd",
    "exit_code",
    "signal",
    "timed_out",
    "timeout_ms",
    "duration_ms",
    "stdout",
    "stderr",
    "observed_at",
    "isolation",
];

/// The facts of a file's receipt; `bytes` is a second name of `size`.
const MUTATION_FACTS: [&str; 7] = ["path", "sha256", "digest", "size", "bytes", "executable", "observed_at"];

/// What makes an object with a `command` a claim about its run.
const COMMAND_CLAIM: [&str; 7] =
    ["exit_code", "signal", "timed_out", "stdout", "stderr", "duration_ms", "observed_at"];

/// What makes an object with a `path` a claim about a file's content.
const MUTATION_CLAIM: [&str; 3] = ["sha256", "digest", "executable"];

/// Says what an object without a receipt claims all the same.
pub(crate) fn unreceipted(map: &Map<String, Value>) -> Option<String> {
    let states = |key: &&&str| map.get(**key).is_some_and(|value| !value.is_null());
    let claim = |subject: &'static str, facts: &'static [&'static str], tools: &str| {
        let fact = Some(&subject).filter(states).and_then(|_| facts.iter().find(states))?;
        Some(format!(
            "{subject:?} with {fact:?} is a claim without a receipt; put {{\"{RECEIPT_KEY}\": …}} of {tools} in its place"
        ))
    };
    claim("command", &COMMAND_CLAIM, "workspace_run")
        .or_else(|| claim("path", &MUTATION_CLAIM, "workspace_write or workspace_edit"))
}

/// What a citation states and its receipt does not bear out. `facts` is the receipt's record as JSON.
pub(crate) fn contradictions(
    stated: &Map<String, Value>,
    facts: &Map<String, Value>,
    is_command: bool,
) -> Vec<(FaultReason, String)> {
    let (own, other): (&[&str], &[&str]) =
        if is_command { (&COMMAND_FACTS, &MUTATION_FACTS) } else { (&MUTATION_FACTS, &COMMAND_FACTS) };
    let mut found = Vec::new();
    for (key, value) in stated {
        let key = key.as_str();
        if own.contains(&key) {
            let fact = facts.get(if key == "bytes" { "size" } else { key }).unwrap_or(&Value::Null);
            if !agrees(key, value, fact) {
                let message = format!(
                    "{key:?} is {} in the receipt, not {}; cite the id alone",
                    shown(&fact.to_string()),
                    shown(&value.to_string())
                );
                found.push((FaultReason::Contradiction, message));
            }
        } else if other.contains(&key) && !value.is_null() {
            let (cited, claimed) = if is_command { ("command", "file") } else { ("file", "command") };
            let message = format!("{key:?} states a fact of a {claimed}, the receipt is that of a {cited}");
            found.push((FaultReason::WrongKind, message));
        }
    }
    found
}

fn agrees(key: &str, stated: &Value, fact: &Value) -> bool {
    if stated == fact {
        return true;
    }
    match (key, stated, fact) {
        ("path" | "cwd", Value::String(stated), Value::String(fact)) => same_path(stated, fact),
        ("command", Value::String(text), Value::Array(words)) => {
            let spaced: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let parsed = serde_json::from_value::<RunParams>(json!({ "command": text }));
            spaced.join(" ") == *text || parsed.is_ok_and(|parsed| parsed.command == spaced)
        }
        ("stdout" | "stderr", Value::String(excerpt), Value::Object(output)) => {
            let text = output.get("text").and_then(Value::as_str).unwrap_or_default();
            let excerpt = excerpt.trim();
            if excerpt.is_empty() { text.trim().is_empty() } else { text.contains(excerpt) }
        }
        ("stdout" | "stderr", Value::Object(stated), Value::Object(output)) => {
            stated.iter().all(|(key, value)| output.get(key).is_none_or(|fact| fact == value))
        }
        _ => false,
    }
}

/// Whether two spellings, such as `./sub//f.txt` and `sub/f.txt`, name one path.
fn same_path(one: &str, other: &str) -> bool {
    match (WorkspacePath::parse_lenient(one), WorkspacePath::parse_lenient(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
