//! Compares a call's answer with what the workflow expects of it.

use coldframe_core::{CommandObservation, OutputText, ToolAnswer, ToolError, ToolStatus};

use crate::workflow::Expectation;

/// How many characters of a stream a message shows.
const TAIL_CHARS: usize = 1_500;

/// Says what is not as expected, if anything is.
pub(crate) fn check(expect: &Expectation, answer: &Result<ToolAnswer, ToolError>) -> Result<(), String> {
    let status = status_of(answer);
    let wanted = expect.status.unwrap_or(ToolStatus::Ok);
    if status != wanted {
        let detail = answer.as_ref().err().map(|error| format!(": {}", printable(&error.message)));
        let detail = detail.unwrap_or_default();
        return Err(format!("expected status {}, got {}{detail}", name(wanted), name(status)));
    }
    let Ok(ToolAnswer::Command(command)) = answer else { return Ok(()) };
    check_command(expect, command)
}

fn check_command(expect: &Expectation, command: &CommandObservation) -> Result<(), String> {
    let ended = match (command.exit_code, command.signal) {
        _ if command.timed_out => format!("it was stopped after {} ms", command.timeout_ms),
        (Some(code), _) => format!("it ended with {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it has no exit code".to_owned(),
    };
    if let Some(code) = expect.exit_code.filter(|code| command.exit_code != Some(*code)) {
        return Err(format!("expected exit code {code}, but {ended}{}", tails(command)));
    }
    if let Some(timed_out) = expect.timed_out.filter(|timed_out| command.timed_out != *timed_out) {
        let wanted = if timed_out { "a time-out" } else { "no time-out" };
        return Err(format!("expected {wanted}, but {ended}{}", tails(command)));
    }
    contains("standard output", &command.stdout, expect.stdout_contains.as_deref())?;
    contains("standard error", &command.stderr, expect.stderr_contains.as_deref())
}

fn contains(stream: &str, output: &OutputText, wanted: Option<&str>) -> Result<(), String> {
    match wanted {
        Some(wanted) if !output.text.contains(wanted) => {
            let cut = if output.truncated { " (it was cut; only the shown part is searched)" } else { "" };
            let tail = tail(&output.text);
            Err(format!("expected {wanted:?} in {stream}{cut}, which ends with:\n{tail}"))
        }
        _ => Ok(()),
    }
}

fn tails(command: &CommandObservation) -> String {
    let mut text = String::new();
    for (stream, output) in [("output", &command.stdout), ("error", &command.stderr)] {
        if !output.text.trim().is_empty() {
            text.push_str(&format!("\nstandard {stream} ends with:\n{}", tail(&output.text)));
        }
    }
    text
}

fn tail(text: &str) -> String {
    let text = text.trim_end();
    let start = text.char_indices().rev().nth(TAIL_CHARS - 1).map_or(0, |(at, _)| at);
    printable(&text[start..])
}

/// Escapes what a terminal would obey; a message may hold the output of any program.
fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => result.push(letter),
            _ if letter.is_control() => result.extend(letter.escape_default()),
            _ => result.push(letter),
        }
    }
    result
}

/// How a call ended.
pub(crate) fn status_of(answer: &Result<ToolAnswer, ToolError>) -> ToolStatus {
    answer.as_ref().map_or_else(|error| error.status, |_| ToolStatus::Ok)
}

fn name(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Ok => "ok",
        ToolStatus::Conflict => "conflict",
        ToolStatus::Refused => "refused",
        ToolStatus::Invalid => "invalid",
        ToolStatus::NotFound => "not_found",
        ToolStatus::Limit => "limit",
        ToolStatus::TimedOut => "timed_out",
        ToolStatus::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(exit_code: Option<i32>, stdout: &str) -> Result<ToolAnswer, ToolError> {
        let text = |text: &str| OutputText {
            text: text.to_owned(),
            bytes: text.len() as u64,
            ..OutputText::default()
        };
        Ok(ToolAnswer::Command(CommandObservation {
            tool_receipt_id: None,
            command: vec!["test".to_owned()],
            cwd: ".".to_owned(),
            exit_code,
            signal: None,
            timed_out: exit_code.is_none(),
            timeout_ms: 2_000,
            duration_ms: 1,
            stdout: text(stdout),
            stderr: text("\u{1b}[31mred\n"),
            observed_at: String::new(),
            isolation: "full".to_owned(),
        }))
    }

    #[test]
    fn without_an_expectation_a_non_zero_exit_and_a_time_out_pass() {
        assert_eq!(check(&Expectation::default(), &command(Some(1), "")), Ok(()));
        assert_eq!(check(&Expectation::default(), &command(None, "")), Ok(()));
        let refused = Err(ToolError::new(ToolStatus::Refused, "not allowed"));
        let error = check(&Expectation::default(), &refused).unwrap_err();
        assert_eq!(error, "expected status ok, got refused: not allowed");
    }

    #[test]
    fn each_check_can_miss_and_says_what_came() {
        let expect = |change: fn(&mut Expectation)| {
            let mut expect = Expectation::default();
            change(&mut expect);
            expect
        };
        let status = expect(|it| it.status = Some(ToolStatus::Conflict));
        assert_eq!(check(&status, &command(Some(0), "")), Err("expected status conflict, got ok".to_owned()));
        assert_eq!(check(&status, &Err(ToolError::new(ToolStatus::Conflict, "changed"))), Ok(()));
        let code = expect(|it| it.exit_code = Some(0));
        assert_eq!(check(&code, &command(Some(0), "")), Ok(()));
        let error = check(&code, &command(Some(3), "two\n")).unwrap_err();
        assert!(error.contains("ended with 3") && error.contains("ends with:\ntwo"), "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
        assert!(check(&code, &command(None, "")).unwrap_err().contains("stopped after 2000 ms"));
        let timed_out = expect(|it| it.timed_out = Some(true));
        assert!(check(&timed_out, &command(Some(0), "")).unwrap_err().contains("a time-out"));
        assert_eq!(check(&timed_out, &command(None, "")), Ok(()));
        let text = expect(|it| it.stdout_contains = Some("OK".to_owned()));
        assert_eq!(check(&text, &command(Some(1), "Ran 1\nOK\n")), Ok(()));
        assert!(check(&text, &command(Some(1), "FAILED")).unwrap_err().contains("FAILED"));
        let text = expect(|it| it.stderr_contains = Some("blue".to_owned()));
        assert!(check(&text, &command(Some(1), "")).unwrap_err().contains("standard error"));
    }
}
