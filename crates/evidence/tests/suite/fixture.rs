//! Journals and effects that the tests share.

use coldframe_core::{
    CommandObservation, Digest, EditParams, Id, OutputText, ReceiptId, RunParams, ToolAnswer, ToolCall,
    ToolError, ToolStatus, WorkspaceMutation, WriteParams,
};
use coldframe_evidence::{
    EffectContext, EffectEnd, Ending, Header, Journal, JournalSink, Receipt, StepResult,
};

pub(crate) const AT: &str = "2026-01-31T12:00:00Z";

pub(crate) fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

pub(crate) fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

pub(crate) fn header(workflow: &str, step: &str, epoch: u64) -> Header {
    let (workflow, step) = (id(workflow), id(step));
    Header { workflow, step, epoch, base: digest("base"), started_at: AT.to_owned() }
}

pub(crate) fn write(path: &str, content: &str) -> ToolCall {
    ToolCall::Write(WriteParams { path: path.to_owned(), content: content.to_owned(), executable: None })
}

pub(crate) fn edit(path: &str) -> ToolCall {
    ToolCall::Edit(EditParams {
        path: path.to_owned(),
        start_line: 1,
        end_line: 1,
        replacement: "two\n".to_owned(),
        expected_sha256: "0".repeat(64),
    })
}

pub(crate) fn run(words: &[&str]) -> ToolCall {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    ToolCall::Run(RunParams { command, cwd: ".".to_owned() })
}

/// What a write answers. The SHA-256 stands for any: its value is never computed from the content here.
pub(crate) fn written(path: &str, content: &str, executable: bool) -> ToolAnswer {
    ToolAnswer::Mutation(WorkspaceMutation {
        tool_receipt_id: None,
        path: path.to_owned(),
        sha256: digest(&format!("sha256 of {content}")).to_string(),
        digest: digest(content),
        size: content.len() as u64,
        executable,
        observed_at: AT.to_owned(),
    })
}

pub(crate) fn output(text: &str) -> OutputText {
    let bytes = text.len() as u64;
    OutputText {
        text: text.to_owned(),
        bytes,
        stored_bytes: bytes,
        blob: Some(digest(text)),
        truncated: false,
        utf8: true,
    }
}

pub(crate) fn ran(words: &[&str], exit_code: i32, stdout: &str) -> ToolAnswer {
    ToolAnswer::Command(CommandObservation {
        tool_receipt_id: None,
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        cwd: ".".to_owned(),
        exit_code: Some(exit_code),
        signal: None,
        timed_out: false,
        timeout_ms: 60_000,
        duration_ms: 12,
        stdout: output(stdout),
        stderr: output(""),
        observed_at: AT.to_owned(),
        isolation: "full".to_owned(),
    })
}

pub(crate) fn context() -> EffectContext<'static> {
    EffectContext {
        state: digest("state"),
        environment: digest("environment"),
        policy: digest("policy"),
        at: AT,
    }
}

pub(crate) fn end_of(delta: &str) -> EffectEnd<'static> {
    EffectEnd { state: digest(&format!("state {delta}")), delta: Some(digest(delta)), at: AT }
}

pub(crate) fn ending(result: StepResult) -> Ending {
    Ending { result, delta: Some(digest("d9")), state: digest("state d9"), at: AT.to_owned() }
}

/// One effect with its outcome; `delta` names the delta after it.
pub(crate) fn effect<S: JournalSink>(
    journal: &mut Journal<S>,
    call: &ToolCall,
    result: Result<ToolAnswer, ToolError>,
    delta: &str,
) -> Receipt {
    let id = journal.intent(call, &context()).unwrap();
    journal.outcome(&id, &result, &end_of(delta)).unwrap()
}

pub(crate) fn refused() -> ToolError {
    ToolError::new(ToolStatus::Refused, "rm is not allowed")
}

pub(crate) fn receipt_id(text: &str) -> ReceiptId {
    ReceiptId::parse(text).unwrap()
}
