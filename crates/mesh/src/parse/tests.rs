//! Tests of the workflow parser.

use super::*;

const GOOD: &str = r#"
id = "repair"
goal = "The total must count every item once."
[source]
path = "project"
[[step]]
id = "reproduce"
title = "Reproduce the failing test"
capabilities = ["read", "run"]
[[step.call]]
id = "failure"
tool = "workspace_run"
command = ["python3", "-m", "unittest", "-v"]
expect = { exit_code = 1, stderr_contains = "FAILED" }
[step.output]
evidence = "${failure.receipt}"
when = 2024-05-01
[[step]]
id = "repair"
depends_on = ["reproduce"]
[[step.call]]
id = "source"
tool = "workspace_read"
path = "src/cart.py"
[[step.call]]
tool = "workspace_edit"
path = "src/cart.py"
start_line = 7
end_line = "${source.total_lines}"
replacement = "total $${x} ${source.newline}"
expected_sha256 = "${source.sha256}"
[[step]]
id = "answer"
kind = "final_response"
depends_on = ["repair"]
[step.output]
failure = { artifact_ref = { step_id = "reproduce", path = ["evidence", 0] } }
"#;

fn refused(text: &str) -> String {
    let error = Workflow::parse(text).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Workflow);
    error.to_string()
}

/// The good workflow with one part replaced, which must be there exactly once.
fn changed(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from}");
    GOOD.replace(from, to)
}

fn ids(ids: &[Id]) -> Vec<&str> {
    ids.iter().map(Id::as_str).collect()
}

#[test]
fn a_workflow_is_read_as_it_is_written() {
    let workflow = Workflow::parse(GOOD).unwrap();
    assert_eq!(workflow.id().as_str(), "repair");
    assert_eq!(workflow.source(), Some(&WorkflowSource::Path("project".to_owned())));
    assert_eq!(workflow.digest(), Digest::of(GOOD.as_bytes()));
    assert!(workflow.ignored().is_empty());
    let [reproduce, repair, answer] = workflow.steps() else { panic!() };
    assert_eq!(reproduce.title, "Reproduce the failing test");
    assert_eq!(reproduce.calls[0].expect.exit_code, Some(1));
    assert_eq!(reproduce.output["when"], "2024-05-01");
    assert_eq!(repair.title, "repair");
    assert_eq!(repair.capabilities, DEFAULT_CAPABILITIES.map(str::to_owned).into());
    assert_eq!(ids(&repair.depends_on), ["reproduce"]);
    assert_eq!(repair.calls[1].id.as_str(), "call-2");
    assert_eq!(answer.kind, StepKind::FinalResponse);
    assert_eq!(ids(&answer.depends_on), ["repair", "reproduce"], "it waits for what it references");
    assert!(answer.capabilities.is_empty());
}

#[test]
fn a_final_response_without_dependencies_waits_for_every_workspace_step() {
    let workflow = Workflow::parse(changed("depends_on = [\"repair\"]\n", "")).unwrap();
    assert_eq!(ids(&workflow.steps()[2].depends_on), ["reproduce", "repair"]);
}

#[test]
fn a_source_can_name_any_provider() {
    let text = changed(
        "path = \"project\"",
        "provider = 'git'\nlocator = 'https://example.org/r'\nrevision = 'main'",
    );
    let expected = SourceRef::new("git", "https://example.org/r", "main").unwrap();
    assert_eq!(Workflow::parse(text).unwrap().source(), Some(&WorkflowSource::Reference(expected)));
    let both = changed("path = \"project\"", "path = 'project'\nlocator = 'x'");
    assert!(refused(&both).contains("either a path"));
}

#[test]
fn keys_that_claim_authority_have_no_effect_and_are_reported() {
    let text = changed("[source]", "network = true\nlimits = { max_files = 1 }\n[source]\ncaches = []")
        .replace("title = ", "allowed_commands = ['sh']\ntitle = ")
        .replace(
            "tool = \"workspace_run\"",
            "tool = \"workspace_run\"\ntimeout = 99999\nenvironment = { A = 'b' }",
        )
        .replace("exit_code = 1,", "exit_code = 1, publish = true,");
    let workflow = Workflow::parse(text).unwrap();
    let mut ignored = workflow.ignored().to_vec();
    ignored.sort_unstable();
    assert_eq!(
        ignored,
        [
            "limits",
            "network",
            "source.caches",
            "step.reproduce.allowed_commands",
            "step.reproduce.call.failure.environment",
            "step.reproduce.call.failure.expect.publish",
            "step.reproduce.call.failure.timeout",
        ]
    );
    let parameters: Vec<_> = workflow.steps()[0].calls[0].parameters.keys().collect();
    assert_eq!(parameters, ["command"]);
}

#[test]
fn unknown_keys_are_errors_that_name_key_and_line() {
    for (from, to, error) in [
        ("id = \"repair\"\ngoal", "idd = 1\nid = \"repair\"\ngoal", "workflow line 2: unknown key idd;"),
        ("title = ", "titel = ", "workflow line 8: unknown key step.reproduce.titel;"),
        ("command = [", "comand = [", "workflow line 13: unknown key step.reproduce.call.failure.comand;"),
        ("exit_code = 1", "exitcode = 1", "unknown key step.reproduce.call.failure.expect.exitcode;"),
        ("path = \"project\"", "folder = \"project\"", "unknown key source.folder;"),
    ] {
        let message = refused(&changed(from, to));
        assert!(message.contains(error), "{message}");
    }
    let message = refused("\"a\\u001b[31m\" = 1");
    assert!(message.contains("unknown key a\\u{1b}[31m"), "{message:?}");
}

#[test]
fn wrong_values_are_errors_that_say_what_is_wanted() {
    for (from, to, error) in [
        ("goal = \"The total must count every item once.\"", "", "goal is missing"),
        ("goal = \"The total must count every item once.\"", "goal = ' '", "goal is empty"),
        ("id = \"reproduce\"\ntitle", "id = \"../x\"\ntitle", "an id is 1 to 128"),
        ("id = \"reproduce\"\ntitle", "id = \".x\"\ntitle", "an id is 1 to 128"),
        ("id = \"reproduce\"\ntitle", "id = \"a/b\"\ntitle", "an id is 1 to 128"),
        ("id = \"reproduce\"\ntitle", "id = ''\ntitle", "empty"),
        ("id = \"failure\"", "id = \"a.b\"", "no dot"),
        ("id = \"reproduce\"\ntitle", "id = \"repair\"\ntitle", "two steps have the id repair"),
        (
            "tool = \"workspace_edit\"",
            "id = 'source'\ntool = \"workspace_edit\"",
            "two calls with the id source",
        ),
        ("title = \"Reproduce the failing test\"", "title = 3", "title must be a text"),
        ("depends_on = [\"reproduce\"]", "depends_on = \"reproduce\"", "must be a list of texts"),
        ("depends_on = [\"reproduce\"]", "depends_on = [\"reproduce\", \"reproduce\"]", "twice"),
        ("depends_on = [\"reproduce\"]", "depends_on = [\"reprodcue\"]", "which is no step"),
        ("kind = \"final_response\"", "kind = \"final\"", "workspace or final_response"),
        ("tool = \"workspace_read\"", "tool = \"workspace_delete\"", "the tools are workspace_list"),
        ("tool = \"workspace_read\"", "", "tool is missing"),
        ("start_line = 7", "start_line = -7", "start_line must be a whole number"),
        ("start_line = 7", "", "start_line is missing"),
        (
            "command = [\"python3\", \"-m\", \"unittest\", \"-v\"]",
            "command = 'a; b'",
            "no meaning without a shell",
        ),
        ("command = [\"python3\", \"-m\", \"unittest\", \"-v\"]", "command = []", "a list of words"),
        ("\"run\"]", "\"list\"]", "lacks \"run\", which call failure needs"),
        ("exit_code = 1", "exit_code = '1'", "must be a whole number"),
        ("exit_code = 1", "exit_code = 99999999999", "out of range"),
        ("exit_code = 1", "status = 'fine'", "unknown variant `fine`"),
        ("exit_code = 1", "status = 'refused'", "status ok only"),
        ("when = 2024-05-01", "when = nan", "finite"),
    ] {
        let message = refused(&changed(from, to));
        assert!(
            message.starts_with("workflow line ") && message.contains(error),
            "{from} -> {to}: {message}"
        );
    }
}

#[test]
fn templates_are_checked_before_anything_runs() {
    for (from, to, error) in [
        ("${failure.receipt}", "${failing.receipt}", "names no earlier call"),
        ("${failure.receipt}", "${failure.exitcode}", "answers no \"exitcode\""),
        ("${failure.receipt}", "${failure.receipt", "without"),
        ("${source.total_lines}", "7${source.total_lines}", "end_line must be a whole number"),
        ("${source.sha256}", "${call-2.sha256}", "names no earlier call"),
        ("${source.sha256}", "${failure.receipt}", "names no earlier call"),
        ("$${x}", "${HOME}", "write \"$${\""),
        ("[\"python3\", \"-m\", \"unittest\", \"-v\"]", "'python3 ${source.path}'", "names no earlier call"),
    ] {
        let message = refused(&changed(from, to));
        assert!(message.contains(error), "{to}: {message}");
    }
    let text = changed(
        "[[step.call]]\ntool = \"workspace_edit\"",
        "[[step.call]]\ntool = 'workspace_run'\ncommand = 'cat ${source.path}'\n[[step.call]]\ntool = \"workspace_edit\"",
    );
    assert!(refused(&text).contains("a list of words where it holds a template"));
}

#[test]
fn artifact_references_are_checked_before_anything_runs() {
    for (to, error) in [
        ("{ artifact_ref = { step_id = \"reprodcue\" } }", "which is no step"),
        ("{ artifact_ref = { step_id = \"answer\" } }", "wait for each other"),
        ("{ artifact_ref = { step_id = \"reproduce\", path = \"evidence\" } }", "artifact_ref takes"),
        ("{ artifact_ref = { step_id = \"reproduce\", path = [-1] } }", "artifact_ref takes"),
        ("{ artifact_ref = { step_id = \"reproduce\", pth = [] } }", "artifact_ref takes"),
        ("{ artifact_ref = { path = [] } }", "artifact_ref takes"),
        ("{ artifact_ref = \"reproduce\" }", "artifact_ref takes"),
        ("{ artifact_ref = { step_id = \"reproduce\" }, also = 1 }", "no other keys"),
        ("{ artifact_ref = { step_id = \"../x\" } }", "an id is"),
    ] {
        let from = "{ artifact_ref = { step_id = \"reproduce\", path = [\"evidence\", 0] } }";
        let message = refused(&changed(from, to));
        assert!(message.contains(error), "{to}: {message}");
    }
    let beside = changed("when = 2024-05-01", "other = { artifact_ref = { step_id = 'repair' } }");
    assert!(refused(&beside).contains("which it does not wait for; add it to depends_on"));
}

#[test]
fn steps_that_wait_for_each_other_are_named_in_a_row() {
    let text = changed("title = ", "depends_on = ['repair']\ntitle = ");
    assert!(refused(&text).contains("reproduce -> repair -> reproduce"));
    let text = changed("depends_on = [\"reproduce\"]", "depends_on = ['answer']");
    assert!(refused(&text).contains("wait"));
}

#[test]
fn a_final_response_has_no_workspace_and_nothing_waits_for_it() {
    let text = changed("kind = \"final_response\"", "kind = \"final_response\"\ncapabilities = ['read']");
    assert!(refused(&text).contains("a final response has none"));
    let with_calls =
        changed("id = \"repair\"\ndepends_on", "kind = 'final_response'\nid = \"repair\"\ndepends_on");
    assert!(refused(&with_calls).contains("no calls"));
    let text = format!("{GOOD}[[step]]\nid = 'after'\ndepends_on = ['answer']\n");
    assert!(refused(&text).contains("waits for answer, a final response"));
}

#[test]
fn a_hostile_file_is_refused_without_harm() {
    assert!(refused("id = 'a").starts_with("workflow line 1: "));
    assert!(refused("id = 'x'\ngoal = 'y'\n").contains("1 to 1000 steps"));
    assert!(refused("id = 'x'\ngoal = 'y'\nstep = 3\n").contains("written [[step]]"));
    assert!(refused(&"x".repeat(MAX_WORKFLOW_BYTES + 1)).contains("at most"));
    let deep_lists = format!("id = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&deep_lists).contains("line 1"));
    let deep_keys = format!("{}x = 1", "a.".repeat(100_000));
    assert!(refused(&deep_keys).contains("line 1"));
    let deep_header = format!("[{}x]", "a.".repeat(100_000));
    assert!(refused(&deep_header).contains("line 1"));
    let many_headers: String = (1..80).map(|depth| format!("[{}]\n", vec!["a"; depth].join("."))).collect();
    assert!(refused(&many_headers).contains("line"));
    let steps: String = (0..=MAX_STEPS).map(|step| format!("[[step]]\nid = 's{step}'\n")).collect();
    assert!(refused(&format!("id = 'x'\ngoal = 'y'\n{steps}")).contains("there are 1001"));
}
