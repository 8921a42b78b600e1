//! The answer of a run for people: what was claimed in words, and the facts of each receipt in few lines.

use coldframe::core::{CommandObservation, OutputText, WorkspaceMutation};
use serde_json::Value;

use crate::text::{shown, shown_lines, size, time};

/// The last lines of a stream that are shown; the test summary stands at the end.
const TAIL_LINES: usize = 6;

/// `value` as indented lines. Objects that are a command or a mutation are told as such.
pub(crate) fn answer_text(value: &Value) -> String {
    let mut text = String::new();
    push(&mut text, value, 1);
    text
}

fn push(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                push_named(text, &shown(name), field, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                push_named(text, "-", item, depth);
            }
        }
        // Words are quoted or marked on every line, so that none can pass for the facts of a receipt.
        Value::String(words) => {
            for line in shown_lines(words).lines() {
                text.push_str(&format!("{indent}> {line}\n"));
            }
        }
        other => text.push_str(&format!("{indent}{other}\n")),
    }
}

fn push_named(text: &mut String, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    if let Some(fact) = receipt_text(value) {
        let mut lines = fact.lines();
        text.push_str(&format!("{indent}{name}: {}\n", lines.next().unwrap_or_default()));
        for line in lines {
            text.push_str(&format!("{indent}    {line}\n"));
        }
        return;
    }
    match value {
        Value::Object(_) | Value::Array(_) => {
            text.push_str(&format!("{indent}{name}:\n"));
            push(text, value, depth + 1);
        }
        Value::String(words) if words.contains('\n') => {
            text.push_str(&format!("{indent}{name}:\n"));
            push(text, value, depth + 1);
        }
        Value::String(words) => text.push_str(&format!("{indent}{name}: \"{}\"\n", shown(words))),
        other => text.push_str(&format!("{indent}{name}: {other}\n")),
    }
}

/// The facts of a receipt, where `value` is what hydration put in the place of a citation.
fn receipt_text(value: &Value) -> Option<String> {
    value.get("tool_receipt_id")?;
    if value.get("command").is_some() {
        let command: CommandObservation = serde_json::from_value(value.clone()).ok()?;
        return Some(command_text(&command));
    }
    let mutation: WorkspaceMutation = serde_json::from_value(value.clone()).ok()?;
    let receipt = mutation.tool_receipt_id.as_ref()?;
    let bits = if mutation.executable { ", executable" } else { "" };
    let path = shown(&mutation.path).into_owned();
    Some(format!("{path} · {}{bits}, sha256 {:.12}… · {receipt}", size(mutation.size), mutation.sha256))
}

fn command_text(command: &CommandObservation) -> String {
    let ended = match (command.timed_out, command.exit_code, command.signal) {
        (true, ..) => format!("timed out after {} ms", command.timeout_ms),
        (_, Some(code), _) => format!("exit {code}"),
        (_, None, Some(signal)) => format!("signal {signal}"),
        (_, None, None) => "ended".to_owned(),
    };
    let lasted = time(std::time::Duration::from_millis(command.duration_ms));
    let receipt = command.tool_receipt_id.as_ref().map(|id| format!(" · {id}")).unwrap_or_default();
    let words = shown(&command.command.join(" ")).into_owned();
    let mut text = format!("{words} · {ended} in {lasted}{receipt}");
    for (name, stream) in [("stdout", &command.stdout), ("stderr", &command.stderr)] {
        if stream.bytes > 0 {
            text.push_str(&stream_text(name, stream));
        }
    }
    text
}

fn stream_text(name: &str, stream: &OutputText) -> String {
    let lines: Vec<&str> = stream.text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown_from = lines.len().saturating_sub(TAIL_LINES);
    let mut text = format!("\n{name}, {}", size(stream.bytes));
    text.push_str(if shown_from > 0 { ", its end:" } else { ":" });
    for line in &lines[shown_from..] {
        text.push_str(&format!("\n| {}", shown(line)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_read_as_lines_and_words_cannot_steer_the_terminal() {
        let stream =
            json!({ "text": "a\n\nb\n", "bytes": 5, "stored_bytes": 5, "truncated": false, "utf8": true });
        let empty = json!({ "text": "", "bytes": 0, "stored_bytes": 0, "truncated": false, "utf8": true });
        let command = json!({
            "tool_receipt_id": "tool:r:s:1", "command": ["make", "test"], "cwd": ".", "exit_code": 2,
            "timed_out": false, "timeout_ms": 1000, "duration_ms": 7, "stdout": stream, "stderr": empty,
            "observed_at": "2026-01-01T00:00:00Z", "isolation": "full"
        });
        let text = answer_text(&json!({ "proof": command, "words": "x\u{1b}[2J", "list": [1, "two"] }));
        let expected = "  list:\n    -: 1\n    -: \"two\"\n  proof: make test · exit 2 in 7 ms · tool:r:s:1\n      stdout, 5 B:\n      | a\n      | b\n  words: \"x\\u{1b}[2J\"\n";
        assert_eq!(text, expected);
    }
}
