//! The binary as a person or a program calls it: words in, streams and exit codes out.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("a.txt"), "one\n").unwrap();
        Self { folder }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coldframe"));
        command
            .args(words)
            .current_dir(self.project())
            .env("COLDFRAME_HOME", self.folder.path().join("home"))
            .env("PATH", "/usr/bin:/bin")
            .env_remove("COLDFRAME_LOG")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[&["--json"], words].concat());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn exec_passes_code_and_streams_on_exactly() {
    let desk = Desk::new();
    let script = "printf 'out\\0\\377'; printf err >&2; exit 42";
    let output = desk.run(&["exec", ".", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(42), "{}", text(&output.stderr));
    assert_eq!(output.stdout, b"out\0\xff");
    let stderr = text(&output.stderr);
    for part in
        ["captured 1 file (4 B) in ", "full containment, no network", "err", "exit 42 in ", "nothing changed"]
    {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn exec_has_codes_of_its_own_for_its_own_failures() {
    let desk = Desk::new();
    let code = |words: &[&str]| desk.run(words).status.code();
    assert_eq!(code(&["exec", ".", "--", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["exec", ".", "--timeout", "1", "--", "sleep", "20"]), Some(124));
    assert_eq!(code(&["exec", "nowhere", "--", "true"]), Some(125));
    assert_eq!(code(&["exec", ".", "--", "no-such-program-here"]), Some(127));
    assert_eq!(code(&["exec", "."]), Some(2));
}

#[test]
fn a_delta_goes_from_exec_through_show_and_patch_to_apply() {
    let desk = Desk::new();
    let (code, document) = desk.json(&["exec", ".", "--", "sh", "-c", "echo two >> a.txt"]);
    assert_eq!((code, document["observation"]["exit_code"].as_i64()), (Some(0), Some(0)));
    let id = document["delta"]["id"].as_str().unwrap()[..8].to_owned();
    assert!(text(&desk.run(&["delta", "show", &id]).stdout).contains("+two\n"));
    assert!(text(&desk.run(&["delta", "patch", &id]).stdout).starts_with("diff --git a/a.txt b/a.txt\n"));
    assert_eq!(desk.run(&["delta", "apply", &id]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(desk.project().join("a.txt")).unwrap(), "one\ntwo\n");
    let (code, document) = desk.json(&["delta", "apply", &id]);
    assert_eq!((code, document["error"]["kind"].as_str()), (Some(7), Some("conflict")));
    assert_eq!(document["error"]["details"]["differences"][0]["path"], "a.txt");
    assert_eq!(desk.run(&["delta", "apply", "--reverse", &id]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(desk.project().join("a.txt")).unwrap(), "one\n");
}

#[test]
fn receipts_are_shown_and_verified() {
    let desk = Desk::new();
    let (_, document) = desk.json(&["exec", ".", "--", "true"]);
    let (run, receipt) = (document["run"].as_str().unwrap(), document["receipt"].as_str().unwrap());
    let verified = desk.run(&["receipts", "verify", run]);
    assert!(text(&verified.stdout).contains("exec: verified"), "{}", text(&verified.stdout));
    let (_, shown) = desk.json(&["receipts", "show", receipt]);
    assert_eq!(shown["id"], receipt);
    assert_eq!(desk.run(&["receipts", "show", "tool:none:exec:1"]).status.code(), Some(3));
    let journal = desk.folder.path().join("home/runs").join(run).join("steps/exec.journal");
    let altered = std::fs::read_to_string(&journal).unwrap().replace("\"true\"", "\"false\"");
    std::fs::write(&journal, altered).unwrap();
    assert_eq!(desk.run(&["receipts", "verify", run]).status.code(), Some(6));
}

#[test]
fn snapshots_are_created_listed_read_and_verified() {
    let desk = Desk::new();
    std::fs::write(desk.project().join(".gitignore"), "*.log\n").unwrap();
    std::fs::write(desk.project().join("x.log"), "log\n").unwrap();
    let (_, document) = desk.json(&["snapshot", "create", "."]);
    let id = &document["id"].as_str().unwrap()[..8];
    assert!(
        text(&desk.run(&["snapshot", "show", id]).stdout)
            .contains("left out 1 path (ignored): .gitignore:*.log")
    );
    assert_eq!(text(&desk.run(&["snapshot", "cat", id, "./a.txt"]).stdout), "one\n");
    assert!(text(&desk.run(&["snapshot", "ls", id]).stdout).contains(" a.txt\n"));
    assert_eq!(desk.run(&["snapshot", "verify", id]).status.code(), Some(0));
    assert_eq!(desk.run(&["snapshot", "cat", id, "missing"]).status.code(), Some(3));
    assert_eq!(desk.run(&["snapshot", "cat", id, "../a"]).status.code(), Some(4));
    assert_eq!(desk.run(&["snapshot", "show", "0123"]).status.code(), Some(3));
    let (_, whole) = desk.json(&["snapshot", "create", "--include-ignored", "."]);
    assert_eq!(whole["size"]["files"], 3);
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let desk = Desk::new();
    std::fs::write(desk.project().join("x\u{1b}[2J\n.txt"), "").unwrap();
    let (_, document) = desk.json(&["snapshot", "create", "."]);
    let listed = desk.run(&["snapshot", "ls", document["id"].as_str().unwrap()]);
    assert!(text(&listed.stdout).contains("x\\u{1b}[2J\\n.txt"), "{:?}", text(&listed.stdout));
    let error = desk.run(&["snapshot", "create", "none\u{1b}[2J"]);
    assert!(!error.stderr.contains(&0x1b));
}

#[test]
fn errors_are_one_line_for_people_and_a_document_for_programs() {
    let desk = Desk::new();
    let output = desk.run(&["snapshot", "create", "github:owner/repo"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).starts_with("error: ") && text(&output.stderr).lines().count() == 1);
    assert!(output.stdout.is_empty());
    let (code, document) = desk.json(&["snapshot", "show", "beef"]);
    assert_eq!((code, document["error"]["exit_code"].as_i64()), (Some(3), Some(3)));
    let (code, document) = desk.json(&["frobnicate"]);
    assert_eq!((code, document["error"]["kind"].as_str()), (Some(2), Some("usage")));
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let desk = Desk::new();
    for number in 0..3000 {
        std::fs::write(desk.project().join(format!("a-rather-long-name-of-a-file-{number}")), "").unwrap();
    }
    let (_, document) = desk.json(&["snapshot", "create", "."]);
    let id = document["id"].as_str().unwrap().to_owned();
    let mut child =
        desk.command(&["snapshot", "ls", &id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0u8; 10];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn configuration_comes_from_the_home_and_never_from_the_source() {
    let desk = Desk::new();
    for name in ["config.toml", "coldframe.toml", ".coldframe.toml"] {
        std::fs::write(desk.project().join(name), "nonsense = true\n").unwrap();
    }
    assert_eq!(desk.run(&["exec", ".", "--", "true"]).status.code(), Some(0));
    std::fs::write(desk.folder.path().join("home/config.toml"), "[limits]\nmax_files = 2\n").unwrap();
    let (code, document) = desk.json(&["snapshot", "create", "."]);
    assert_eq!((code, document["error"]["kind"].as_str()), (Some(5), Some("limit")));
    std::fs::write(desk.folder.path().join("home/config.toml"), "max_fils = 2\n").unwrap();
    let output = desk.run(&["doctor"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("max_fils"));
}

#[test]
fn a_run_prints_plan_changes_answer_and_receipts() {
    let desk = Desk::new();
    let workflow = r#"
id = "wf"
goal = "Say two."
[source]
path = "project"
[[step]]
id = "edit"
title = "Add a line"
[[step.call]]
id = "w"
tool = "workspace_write"
path = "a.txt"
content = "one\ntwo\n"
[step.output]
evidence = "${w.receipt}"
[[step]]
id = "answer"
kind = "final_response"
depends_on = ["edit"]
[step.output]
change = { artifact_ref = { step_id = "edit", path = ["evidence"] } }
"#;
    std::fs::write(desk.folder.path().join("wf.toml"), workflow).unwrap();
    let output = desk.run(&["run", "../wf.toml", "--id", "r1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for part in ["+two\n", "change: a.txt · 8 B, sha256 ", "… · tool:r1:edit:1\n", "edit: verified"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    for part in ["plan:\n", "Add a line", "✓ edit: done in ", "run r1 completed: 2 of 2 steps"] {
        assert!(text(&output.stderr).contains(part), "{part}: {}", text(&output.stderr));
    }
    let (code, document) = desk.json(&["run", "--resume", "r1"]);
    assert_eq!((code, document["report"]["status"].as_str()), (Some(0), Some("completed")));
    let failing =
        workflow.replace("id = \"wf\"", "id = \"wf2\"").replace("path = \"a.txt\"", "path = \"../a\"");
    std::fs::write(desk.folder.path().join("wf.toml"), failing).unwrap();
    assert_eq!(desk.run(&["run", "../wf.toml"]).status.code(), Some(1));
    assert_eq!(desk.run(&["run", "../wf.toml", "--id", "r1"]).status.code(), Some(7));
}

#[test]
fn doctor_says_what_the_host_gives() {
    let desk = Desk::new();
    let (code, document) = desk.json(&["doctor"]);
    assert_eq!(code, Some(if document["isolation_suffices"] == true { 0 } else { 8 }));
    assert!(document["host"]["checks"].as_array().is_some_and(|checks| !checks.is_empty()));
}
