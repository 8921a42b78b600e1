//! Outputs and their evidence: what cites no receipt, a foreign one or one that did not last is refused.

use serde_json::Value;

use crate::desk::{Desk, text};

/// A workflow with a step that writes and runs, and a step that speaks.
fn workflow(output: &str) -> String {
    format!(
        r#"
id = "w"
goal = "Say what was done."
[source]
path = "project"
[[step]]
id = "work"
[[step.call]]
id = "write"
tool = "workspace_write"
path = "made.txt"
content = "one\n"
[[step.call]]
id = "run"
tool = "workspace_run"
command = ["cat", "made.txt"]
[step.output]
write = "${{write.receipt}}"
[[step]]
id = "apart"
[[step.call]]
id = "run"
tool = "workspace_run"
command = ["true"]
[[step]]
id = "speak"
depends_on = ["work"]
[step.output]
{output}
"#
    )
}

fn step<'a>(document: &'a Value, id: &str) -> &'a Value {
    document["report"]["steps"].as_array().unwrap().iter().find(|step| step["step"] == id).unwrap()
}

/// Runs it under the id `r` and gives the output of the step that speaks.
fn accepted(output: &str) -> Value {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let document = desk.done(&["run", &desk.workflow(&workflow(output)), "--id", "r"]);
    step(&document, "speak")["output"].clone()
}

/// Runs it and gives the message with which the step that speaks failed.
#[track_caller]
fn refused(output: &str) -> String {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let (code, document) = desk.json(&["run", &desk.workflow(&workflow(output)), "--id", "r"]);
    assert_eq!(code, Some(1), "{output}: {document:#}");
    let failed = step(&document, "speak");
    assert_eq!(failed["status"], "failed", "{output}: {failed:#}");
    assert_eq!(failed["failure"]["kind"], "evidence", "{output}: {failed:#}");
    assert_eq!(step(&document, "work")["status"], "completed");
    let ended = desk.run(&["run", "--resume", "r"]).with(1);
    let message = text(&failed["failure"]["message"]);
    assert!(ended.stderr.contains("speak: failed"), "{ended}");
    message
}

#[test]
fn a_citation_is_replaced_by_the_record() {
    let output = accepted(r#"said = { tool_receipt_id = "tool:r:work:2" }"#);
    assert_eq!(output["said"]["exit_code"], 0);
    assert_eq!(output["said"]["stdout"]["text"], "one\n");
    let output =
        accepted(r#"said = { tool_receipt_id = "tool:r:work:1", path = "./made.txt", note = "mine" }"#);
    assert_eq!(output["said"]["path"], "made.txt");
    assert!(output["said"]["note"].is_null(), "what else stood beside the citation is gone");
}

#[test]
fn a_receipt_that_is_not_there_is_refused() {
    let message = refused(r#"said = { tool_receipt_id = "tool:r:work:3" }"#);
    assert!(message.contains("tool:r:work:3") && message.contains("/said"), "{message}");
    let message = refused(r#"said = [{ deep = { tool_receipt_id = "made up" } }]"#);
    assert!(message.contains("made up") && message.contains("/said/0/deep"), "{message}");
}

#[test]
fn a_foreign_receipt_is_refused() {
    let message = refused(r#"said = { tool_receipt_id = "tool:other:work:1" }"#);
    assert!(message.contains("another workflow"), "{message}");
    let message = refused(r#"said = { tool_receipt_id = "tool:r:apart:1" }"#);
    assert!(message.contains("does not depend on"), "{message}");
}

#[test]
fn a_fact_that_differs_from_the_receipt_is_refused() {
    let message = refused(r#"said = { tool_receipt_id = "tool:r:work:2", exit_code = 1 }"#);
    assert!(message.contains("exit_code") && message.contains("tool:r:work:2"), "{message}");
    let message = refused(r#"said = { tool_receipt_id = "tool:r:work:2", stdout = "two" }"#);
    assert!(message.contains("stdout"), "{message}");
    let message = refused(r#"said = { tool_receipt_id = "tool:r:work:1", exit_code = 0 }"#);
    assert!(message.contains("exit_code"), "{message}");
}

#[test]
fn a_claim_without_a_receipt_is_refused() {
    let message = refused(r#"said = { command = ["cargo", "test"], exit_code = 0 }"#);
    assert!(message.contains("without a receipt"), "{message}");
    let message = refused(r#"said = { path = "made.txt", sha256 = "00" }"#);
    assert!(message.contains("without a receipt"), "{message}");
    let both =
        refused("one = { tool_receipt_id = \"tool:r:work:9\" }\ntwo = { command = \"x\", exit_code = 0 }");
    assert!(both.contains("/one") && both.contains("/two"), "all faults at once: {both}");
}

#[test]
fn a_reference_to_what_is_not_there_is_refused() {
    let message = refused(r#"said = { artifact_ref = { step_id = "work", path = ["nothing"] } }"#);
    assert!(message.contains("nothing"), "{message}");
    let copied = accepted(r#"said = { artifact_ref = { step_id = "work", path = ["write"] } }"#);
    assert_eq!(copied["said"]["tool_receipt_id"], "tool:r:work:1");
}

/// A step that writes a file, does `then`, and cites the write.
fn cites_its_write_after(then: &str) -> (Option<i32>, Value) {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let workflow = format!(
        r#"
id = "w"
goal = "Cite what lasted."
[source]
path = "project"
[[step]]
id = "work"
[[step.call]]
id = "write"
tool = "workspace_write"
path = "made.txt"
content = "one\n"
{then}
[step.output]
write = "${{write.receipt}}"
"#
    );
    desk.json(&["run", &desk.workflow(&workflow)])
}

#[test]
fn a_change_that_did_not_last_to_the_end_of_the_step_cannot_be_cited() {
    let write = |path: &str, content: &str| {
        format!("[[step.call]]\ntool = \"workspace_write\"\npath = \"{path}\"\ncontent = \"{content}\"\n")
    };
    let run = |words: &str| format!("[[step.call]]\ntool = \"workspace_run\"\ncommand = {words}\n");
    for then in [
        write("made.txt", "two\\n"),
        run(r#"["rm", "made.txt"]"#),
        run(r#"["sed", "-i", "s/one/two/", "made.txt"]"#),
        run(r#"["mv", "made.txt", "moved.txt"]"#),
    ] {
        let (code, document) = cites_its_write_after(&then);
        assert_eq!(code, Some(1), "{then}: {document:#}");
        let failure = &step(&document, "work")["failure"];
        assert_eq!(failure["kind"], "evidence", "{then}: {failure:#}");
        assert!(text(&failure["message"]).contains("made.txt"), "{then}: {failure:#}");
    }
    // Another file, or the same content again, does no harm.
    for then in [write("other.txt", "two\\n"), write("made.txt", "one\\n"), run(r#"["touch", "made.txt"]"#)] {
        let (code, document) = cites_its_write_after(&then);
        assert_eq!(code, Some(0), "{then}: {document:#}");
    }
}

#[test]
fn a_write_that_its_own_step_replaced_cannot_be_cited_by_a_later_step() {
    let workflow = r#"
id = "w"
goal = "Say what was done."
[source]
path = "project"
[[step]]
id = "work"
[[step.call]]
tool = "workspace_write"
path = "made.txt"
content = "one\n"
[[step.call]]
tool = "workspace_write"
path = "made.txt"
content = "two\n"
[[step]]
id = "speak"
kind = "final_response"
depends_on = ["work"]
[step.output]
write = { tool_receipt_id = "tool:r:work:NUMBER" }
"#;
    for (number, code) in [("1", 1), ("2", 0)] {
        let desk = Desk::new();
        desk.write("a.txt", "a\n");
        let file = desk.workflow(&workflow.replace("NUMBER", number));
        desk.run(&["run", &file, "--id", "r"]).with(code);
    }
}
