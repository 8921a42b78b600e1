//! Workflows: branches that merge or conflict, evidence in the answer, and runs that go on.

use std::sync::Arc;

use coldframe::core::Id;
use coldframe::mesh::{Cancellation, NoObserver, RunStatus, StepErrorKind, StepStatus};
use coldframe::{Error, Kind, RunRequest, RunResult, Verification};

use crate::{Desk, contents};

async fn run(desk: &Desk, workflow: &str, id: &str) -> Result<RunResult, Error> {
    let file = desk.file("workflow.toml", workflow);
    let request = RunRequest { workflow: file, source: None, id: Some(Id::parse(id).unwrap()) };
    let prepared = desk.node.prepare_run(&request).await?;
    desk.node.run(&prepared, Arc::new(NoObserver), Cancellation::new()).await
}

const HEAD: &str = "id = 'w'\ngoal = 'Test.'\n[source]\npath = 'project'\n";

/// Two branches and a step on both; `{left}` and `{right}` are scripts.
fn diamond(left: &str, right: &str) -> String {
    format!(
        r#"{HEAD}
[[step]]
id = "left"
[[step.call]]
id = "go"
tool = "workspace_run"
command = ["sh", "-c", "{left}"]
[step.output]
evidence = "${{go.receipt}}"

[[step]]
id = "right"
[[step.call]]
id = "go"
tool = "workspace_run"
command = ["sh", "-c", "{right}"]

[[step]]
id = "both"
depends_on = ["left", "right"]
[[step.call]]
id = "go"
tool = "workspace_run"
command = ["sh", "-c", "cat src/total.txt notes.md"]
expect = {{ exit_code = 0 }}
[step.output]
seen = "${{go.receipt}}"

[[step]]
id = "answer"
kind = "final_response"
depends_on = ["both"]
[step.output]
left = {{ artifact_ref = {{ step_id = "left", path = ["evidence"] }} }}
seen = {{ artifact_ref = {{ step_id = "both", path = ["seen"] }} }}
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_merge_and_the_answer_has_the_facts_of_the_receipts() {
    let desk = Desk::new().await;
    let before = contents(&desk.project());
    let workflow = diamond("echo four >> src/total.txt; exit 7", "echo more >> notes.md");
    let result = run(&desk, &workflow, "r1").await.unwrap();
    assert_eq!(result.report.status, RunStatus::Completed, "{:?}", result.report);
    let (_, answer) = result.report.responses().next().unwrap();
    assert_eq!(answer["left"]["exit_code"], 7);
    assert_eq!(answer["left"]["tool_receipt_id"], "tool:r1:left:1");
    assert_eq!(answer["seen"]["stdout"]["text"], "one\ntwo\nthree\nfour\nnotes\nmore\n");
    let delta = result.delta.unwrap();
    assert_eq!(delta.changes().len(), 2);
    assert!(result.receipts.iter().all(|step| step.verification == Verification::Verified));
    assert_eq!(result.receipts.len(), 3);
    assert_eq!(contents(&desk.project()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_that_contradict_each_other_fail_the_step_on_both_with_the_path() {
    let desk = Desk::new().await;
    let workflow = diamond("echo left > notes.md", "echo right > notes.md");
    let result = run(&desk, &workflow, "r2").await.unwrap();
    assert_eq!(result.report.status, RunStatus::Failed);
    let both = result.report.step("both").unwrap();
    let failure = both.failure.as_ref().unwrap();
    assert_eq!((both.status, failure.kind), (StepStatus::Failed, StepErrorKind::Conflict));
    assert!(failure.message.contains("notes.md"), "{}", failure.message);
    assert_eq!(result.report.step("answer").unwrap().status, StepStatus::Blocked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_is_tried_afresh_by_a_resume_and_the_others_stay() {
    let desk = Desk::new().await;
    let workflow = format!(
        r#"{HEAD}
[[step]]
id = "good"
[[step.call]]
id = "go"
tool = "workspace_write"
path = "new.txt"
content = "new\n"

[[step]]
id = "bad"
depends_on = ["good"]
[[step.call]]
id = "write"
tool = "workspace_write"
path = "other.txt"
content = "other\n"
[[step.call]]
id = "go"
tool = "workspace_run"
command = ["false"]
expect = {{ exit_code = 0 }}
"#
    );
    let first = run(&desk, &workflow, "r3").await.unwrap();
    assert_eq!(first.report.step("bad").unwrap().failure.as_ref().unwrap().kind, StepErrorKind::Expectation);
    let id = Id::parse("r3").unwrap();
    let again = desk.node.resume(&id, Arc::new(NoObserver), Cancellation::new()).await.unwrap();
    assert_eq!(again.report.step("good").unwrap().epoch, 1);
    assert_eq!(again.report.step("bad").unwrap().epoch, 2);
    let bad = again.receipts.iter().find(|step| step.step.as_str() == "bad").unwrap();
    assert_eq!(bad.verification, Verification::Unfinished);
    let rolled_back: Vec<bool> = bad.receipts.iter().map(|receipt| receipt.rolled_back).collect();
    assert_eq!(rolled_back, [true, true, false, false]);
    assert_eq!(desk.node.find_run("r3").unwrap(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_cites_what_never_happened_fails_its_step() {
    let desk = Desk::new().await;
    for output in [
        "evidence = { tool_receipt_id = 'tool:r4:s:9' }",
        "evidence = { tool_receipt_id = 'tool:elsewhere:s:1' }",
        "claim = { command = ['rm'], exit_code = 0 }",
    ] {
        let workflow = format!(
            "{HEAD}\n[[step]]\nid = 's'\n[[step.call]]\nid = 'go'\ntool = 'workspace_run'\ncommand = ['true']\n[step.output]\n{output}\n"
        );
        let id = format!("r4-{}", output.len());
        let result = run(&desk, &workflow, &id).await.unwrap();
        let step = result.report.step("s").unwrap();
        assert_eq!(
            step.failure.as_ref().map(|failure| failure.kind),
            Some(StepErrorKind::Evidence),
            "{output}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_the_capability_cannot_use_the_tool() {
    let desk = Desk::new().await;
    let workflow = format!(
        "{HEAD}\n[[step]]\nid = 's'\ncapabilities = ['read']\n[[step.call]]\nid = 'go'\ntool = 'workspace_write'\npath = 'x'\ncontent = 'x'\n"
    );
    match run(&desk, &workflow, "r5").await {
        Err(error) => assert!(matches!(error.kind(), Kind::Contract | Kind::Refused), "{error}"),
        Ok(result) => assert_eq!(result.report.status, RunStatus::Failed),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_cannot_widen_the_policy() {
    let desk = Desk::new().await;
    let workflow = format!(
        "allowed_commands = ['perl']\n{HEAD}\n[[step]]\nid = 's'\n[[step.call]]\nid = 'go'\ntool = 'workspace_run'\ncommand = ['perl', '-v']\n"
    );
    let result = run(&desk, &workflow, "r6").await.unwrap();
    assert_eq!(result.report.ignored, ["allowed_commands"]);
    assert_eq!(result.report.status, RunStatus::Failed);
}
