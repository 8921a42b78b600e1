//! Workflows as graphs: branches at the same time, merges, conflicts, what is blocked and what goes on.

use serde_json::Value;

use crate::desk::{Desk, text};

/// A workflow on the project with these steps.
fn with_steps(steps: &str) -> String {
    format!("id = \"w\"\ngoal = \"Try the graph.\"\n[source]\npath = \"project\"\n{steps}")
}

/// A step that writes one file.
fn writes(id: &str, after: &str, path: &str, content: &str) -> String {
    format!(
        "[[step]]\nid = \"{id}\"\ndepends_on = [{after}]\n[[step.call]]\nid = \"w\"\ntool = \"workspace_write\"\n\
         path = \"{path}\"\ncontent = {content:?}\n"
    )
}

/// A step that runs one command.
fn runs(id: &str, after: &str, command: &str) -> String {
    format!(
        "[[step]]\nid = \"{id}\"\ndepends_on = [{after}]\n[[step.call]]\nid = \"r\"\ntool = \"workspace_run\"\n\
         command = {command}\nexpect = {{ exit_code = 0 }}\n"
    )
}

fn step<'a>(document: &'a Value, id: &str) -> &'a Value {
    document["report"]["steps"].as_array().unwrap().iter().find(|step| step["step"] == id).unwrap()
}

fn run(desk: &Desk, steps: &str) -> (Option<i32>, Value) {
    desk.json(&["run", &desk.workflow(&with_steps(steps))])
}

#[test]
fn branches_run_at_the_same_time_and_their_changes_meet() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    // Each branch waits until it has run for a second; one after the other they would take two.
    let slow = |number: u32| {
        format!(
            r#"["python3", "-c", "import time; time.sleep(1.2); open('branch-{number}','w').write('{number}')"]"#
        )
    };
    let steps = [
        writes("root", "", "root.txt", "root\n"),
        runs("left", "\"root\"", &slow(1)),
        runs("right", "\"root\"", &slow(2)),
        runs("join", "\"left\", \"right\"", r#"["cat", "root.txt", "branch-1", "branch-2"]"#),
    ]
    .concat();
    let began = std::time::Instant::now();
    let (code, document) = run(&desk, &steps);
    let elapsed = began.elapsed();
    assert_eq!(code, Some(0), "{document:#}");
    let spent = |id: &str| step(&document, id)["duration_ms"].as_u64().unwrap();
    assert!(spent("left") + spent("right") >= 2400, "{document:#}");
    let rest = spent("root") + spent("join");
    assert!(
        elapsed.as_millis() < u128::from(spent("left") + spent("right") + rest),
        "the branches ran one after the other: {elapsed:?}, {document:#}"
    );
    let changes = document["delta"]["changes"].as_array().unwrap();
    let paths: Vec<String> = changes.iter().map(|change| text(&change["path"])).collect();
    assert_eq!(paths, ["branch-1", "branch-2", "root.txt"]);
}

#[test]
fn a_later_change_wins_over_the_one_it_builds_on() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    // A diamond: one side rewrites what both inherit, the other leaves it.
    let steps = [
        writes("root", "", "shared.txt", "first\n"),
        writes("left", "\"root\"", "shared.txt", "second\n"),
        writes("right", "\"root\"", "right.txt", "right\n"),
        runs("join", "\"left\", \"right\"", r#"["grep", "-x", "second", "shared.txt"]"#),
    ]
    .concat();
    let (code, document) = run(&desk, &steps);
    assert_eq!(code, Some(0), "{document:#}");
    // Equal results on both sides are no conflict.
    let steps = [
        writes("left", "", "same.txt", "same\n"),
        writes("right", "", "same.txt", "same\n"),
        runs("join", "\"left\", \"right\"", r#"["cat", "same.txt"]"#),
    ]
    .concat();
    assert_eq!(run(&desk, &steps).0, Some(0));
}

#[test]
fn a_conflict_names_path_and_both_steps_and_blocks_what_waits() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    desk.write("b.txt", "b\n");
    let steps = [
        writes("left", "", "a.txt", "left\n"),
        writes("right", "", "a.txt", "right\n"),
        runs("join", "\"left\", \"right\"", r#"["true"]"#),
        runs("after", "\"join\"", r#"["true"]"#),
        runs("aside", "", r#"["true"]"#),
        "[[step]]\nid = \"answer\"\nkind = \"final_response\"\n[step.output]\nsaid = \"done\"\n".to_owned(),
    ]
    .concat();
    let workflow = desk.workflow(&with_steps(&steps));
    let (code, document) = desk.json(&["run", &workflow, "--id", "clash"]);
    assert_eq!(code, Some(1), "{document:#}");
    let join = step(&document, "join");
    assert_eq!((&join["status"], &join["failure"]["kind"]), (&"failed".into(), &"conflict".into()));
    let message = text(&join["failure"]["message"]);
    for part in ["\"a.txt\"", "left: ", "right: ", "changed differently"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    for id in ["left", "right", "aside"] {
        assert_eq!(step(&document, id)["status"], "completed");
    }
    for id in ["after", "answer"] {
        assert_eq!(step(&document, id)["status"], "blocked", "{document:#}");
        assert_eq!(step(&document, id)["blocked_by"], "join");
    }
    desk.run(&["run", "--resume", "clash"]).with(1).tells(&[
        "✗ join: failed",
        "\"a.txt\"",
        "left: ",
        "right: ",
        "cannot run now: after, answer",
    ]);
}

#[test]
fn every_kind_of_disagreement_is_a_conflict() {
    let desk = Desk::new();
    for name in ["a.txt", "folder/b.txt"] {
        desk.write(name, "base\n");
    }
    for (left, right, path) in [
        (r#"["rm", "a.txt"]"#, r#"["sed", "-i", "s/base/new/", "a.txt"]"#, "a.txt"),
        (r#"["rm", "-r", "folder"]"#, r#"["cp", "a.txt", "folder/c.txt"]"#, "folder"),
        (r#"["mkdir", "new"]"#, r#"["cp", "a.txt", "new"]"#, "new"),
        (r#"["cp", "a.txt", "Name"]"#, r#"["cp", "a.txt", "name"]"#, "ame"),
        (
            r#"["python3", "-c", "import os; os.chmod('a.txt', 0o755)"]"#,
            r#"["sed", "-i", "s/base/new/", "a.txt"]"#,
            "a.txt",
        ),
        (r#"["python3", "-c", "import os; os.symlink('a.txt', 'x')"]"#, r#"["cp", "a.txt", "x"]"#, "x"),
    ] {
        let steps = [
            runs("left", "", left),
            runs("right", "", right),
            runs("join", "\"left\", \"right\"", r#"["true"]"#),
        ]
        .concat();
        let (code, document) = run(&desk, &steps);
        // One side removes all it sees of a folder, the other adds to it: both can stand.
        if path == "folder" && code == Some(0) {
            let changes = document["delta"]["changes"].as_array().unwrap();
            assert_eq!(changes.len(), 2, "{document:#}");
            continue;
        }
        assert_eq!(code, Some(1), "{left} against {right}: {document:#}");
        let failure = &step(&document, "join")["failure"];
        assert_eq!(failure["kind"], "conflict", "{failure:#}");
        assert!(text(&failure["message"]).contains(path), "{failure:#}");
    }
}

#[test]
fn an_edit_of_what_was_not_read_is_a_conflict_and_changes_nothing() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\n");
    let stale = r#"
[[step]]
id = "edit"
[[step.call]]
id = "before"
tool = "workspace_read"
path = "a.txt"
[[step.call]]
tool = "workspace_run"
command = ["sed", "-i", "s/one/1/", "a.txt"]
[[step.call]]
id = "edit"
tool = "workspace_edit"
path = "a.txt"
start_line = 2
end_line = 2
replacement = "zwei\n"
expected_sha256 = "${before.sha256}"
"#;
    let (code, document) = run(&desk, stale);
    assert_eq!(code, Some(1), "{document:#}");
    let failure = &step(&document, "edit")["failure"];
    assert_eq!(failure["kind"], "expectation");
    assert!(text(&failure["message"]).contains("conflict"), "{failure:#}");

    // Expected, the conflict is an answer like any other, and the file is as it was.
    let (code, document) = run(
        &desk,
        &format!(
            "{stale}expect = {{ status = \"conflict\" }}\n[[step.call]]\ntool = \"workspace_run\"\ncommand = [\"grep\", \"-x\", \"two\", \"a.txt\"]\nexpect = {{ exit_code = 0 }}\n"
        ),
    );
    assert_eq!(code, Some(0), "{document:#}");
}

#[test]
fn a_failed_step_can_be_tried_again_and_done_ones_stay() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let steps = [
        writes("first", "", "made.txt", "x\n"),
        runs("second", "\"first\"", r#"["grep", "nothing", "made.txt"]"#),
    ]
    .concat();
    let workflow = desk.workflow(&with_steps(&steps));
    desk.run(&["run", &workflow, "--id", "twice"]).with(1).tells(&[
        "✗ second: failed",
        "expected exit code 0",
        "go on: coldframe run --resume twice",
    ]);
    let (code, document) = desk.json(&["run", "--resume", "twice"]);
    assert_eq!(code, Some(1));
    assert_eq!(step(&document, "first")["epoch"], 1);
    assert_eq!(step(&document, "second")["epoch"], 2);
    desk.run(&["receipts", "verify", "twice"]).with(0);
}
