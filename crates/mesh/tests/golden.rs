//! The files of format 1 are read, and written again byte for byte.

use std::path::Path;

use coldframe_core::{Digest, Id, ReceiptId, ToolStatus};
use coldframe_mesh::{
    CallAnswer, CallRecord, Checkpoint, Claim, Claimed, CompletedStep, Durability, FileRunStore, RunState,
    RunStore, StepError, StepErrorKind, StepResult, StepStatus, Workflow,
};
use serde_json::json;

const WORKFLOW: &str = include_str!("golden/v1/repair/workflow.toml");
const STATE: &str = include_str!("golden/v1/repair/state.json");

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn claim(state: &mut RunState, workflow: &Workflow, step: &str) -> Claim {
    match state.claim(workflow, &id(step), &id("process-1"), 8).unwrap() {
        Claimed::Work(claim, _) => claim,
        Claimed::Exhausted(error) => panic!("{error}"),
    }
}

fn record(call: &str, tool: &str, exit_code: Option<i32>, receipt: Option<&str>) -> CallRecord {
    CallRecord {
        call: id(call),
        tool: tool.to_owned(),
        epoch: 1,
        status: ToolStatus::Ok,
        exit_code,
        receipt: receipt.map(|receipt| ReceiptId::parse(receipt).unwrap()),
        duration_ms: 12,
    }
}

/// A run with a step of every kind: completed, in progress with a checkpoint, failed, blocked, pending.
fn state(workflow: &Workflow) -> RunState {
    let mut state = RunState::new(id("repair"), workflow, Digest::of(b"snapshot"));
    let reproduce = claim(&mut state, workflow, "reproduce");
    let cited = json!({"tool_receipt_id": "tool:repair:reproduce:1", "exit_code": 1, "ratio": 0.1});
    let completed = StepResult::Workspace(CompletedStep {
        delta: Digest::of(b"delta"),
        depends_on: vec![],
        receipts_head: Digest::of(b"head"),
        receipts: vec![ReceiptId::parse("tool:repair:reproduce:1").unwrap()],
        output: json!({ "evidence": cited }),
    });
    let call = record("failure", "workspace_run", Some(1), Some("tool:repair:reproduce:1"));
    state.end(workflow, &reproduce, completed, [call], 34).unwrap();

    claim(&mut state, workflow, "fix");
    let fix = claim(&mut state, workflow, "fix");
    let receipt = ReceiptId::parse("tool:repair:fix:1").unwrap();
    let checkpoint = Checkpoint {
        epoch: 2,
        delta: Some(Digest::of(b"fixed")),
        calls_done: 2,
        answers: vec![CallAnswer {
            call: id("change"),
            value: json!({"path": "src/cart.py", "receipt": {"tool_receipt_id": receipt}, "status": "ok"}),
            receipt: Some(receipt),
        }],
    };
    let calls = [
        record("source", "workspace_read", None, None),
        record("change", "workspace_edit", None, Some("tool:repair:fix:1")),
    ];
    state.checkpoint(&fix, checkpoint, calls).unwrap();

    let lint = claim(&mut state, workflow, "lint");
    let failure = StepError::new(StepErrorKind::Expectation, "call call-1 (workspace_run): …");
    let failed = StepResult::Failed { failure, partial_delta: Some(Digest::of(b"partial")) };
    state.end(workflow, &lint, failed, [record("call-1", "workspace_run", Some(1), None)], 5).unwrap();
    state.revision = 7;
    state
}

#[tokio::test]
async fn format_1_is_read_and_written_again_byte_for_byte() {
    let workflow = Workflow::parse(WORKFLOW).unwrap();
    let expected = state(&workflow);
    let statuses: Vec<StepStatus> = expected.steps.values().map(|step| step.status).collect();
    let all = [
        StepStatus::Pending,
        StepStatus::Claimed,
        StepStatus::Failed,
        StepStatus::Blocked,
        StepStatus::Completed,
    ];
    assert_eq!(statuses, all);

    let folder = tempfile::tempdir().unwrap();
    let written = FileRunStore::new(folder.path().join("written"));
    written.create(WORKFLOW, &expected).await.unwrap();
    let bytes =
        |store: &FileRunStore| std::fs::read_to_string(store.folder(&id("repair")).join("state.json"));
    assert_eq!(bytes(&written).unwrap(), STATE);

    let read = FileRunStore::new(folder.path().join("read"));
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/repair"), &read.folder(&id("repair")));
    let mut opened = read.open(&id("repair")).await.unwrap();
    assert_eq!(opened.state, expected);
    opened.state.check(&Workflow::parse(opened.workflow).unwrap()).unwrap();
    opened.handle.save(&opened.state, Durability::Process).await.unwrap();
    assert_eq!(bytes(&read).unwrap(), STATE);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["state.json", "workflow.toml"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}
