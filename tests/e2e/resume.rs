//! Runs that are stopped: a kill at any moment costs at most the call in flight, and ctrl-c ends a run in order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::desk::{Desk, Ended, text};
use crate::tree::Found;
use crate::{shell, traces, tree};

const ROUNDS: u32 = 6;
const KILLS: u32 = 8;

/// The result of a run, applied to a copy of the example's project.
fn applied(desk: &Desk, name: &str, delta: &str) -> BTreeMap<OsString, Found> {
    let copy = desk.path(name);
    tree::copy(&desk.path("repair/project"), &copy);
    desk.done(&["delta", "apply", delta, copy.to_str().unwrap()]);
    tree::read(&copy)
}

#[test]
fn a_run_that_is_killed_at_any_moment_ends_as_if_it_had_not_been() {
    let desk = Desk::new();
    let workflow = desk.example();
    let workflow = workflow.to_str().unwrap();
    let before = tree::touched(&desk.path("repair"));
    let began = Instant::now();
    let whole = desk.done(&["run", workflow, "--id", "whole"]);
    let mut span = began.elapsed();
    let expected = applied(&desk, "expected", &text(&whole["delta"]["id"]));

    let mut kills = 0;
    for round in 0.. {
        if round >= ROUNDS && kills >= KILLS {
            break;
        }
        assert!(round < 4 * ROUNDS, "only {kills} kills hit a process that ran");
        let run = format!("killed-{round}");
        let delay = shell::moment(span, round % ROUNDS, ROUNDS);
        if shell::kill_after(desk.command(&["run", workflow, "--id", &run]), delay) {
            span = span.min(delay);
        } else {
            kills += 1;
        }
        traces::assert_none(&desk.path(""));
        // A second kill hits the resumption itself.
        let again = shell::moment(span / 2, round % ROUNDS, ROUNDS);
        kills += u32::from(!shell::kill_after(desk.command(&["run", "--resume", &run]), again));

        let (code, document) = match desk.json(&["run", "--resume", &run]) {
            // The first kill came before the run existed.
            (Some(3), _) => desk.json(&["run", workflow, "--id", &run]),
            ended => ended,
        };
        assert_eq!(code, Some(0), "killed after {delay:?} and {again:?}: {document:#}");
        assert_eq!(document["report"]["status"], "completed");
        assert_eq!(document["patch"], whole["patch"], "killed after {delay:?} and {again:?}");
        let found = applied(&desk, &run, &text(&document["delta"]["id"]));
        assert!(found == expected, "another tree; killed after {delay:?} and {again:?}");
        desk.done(&["receipts", "verify", &run]);
        desk.assert_nothing_left();
    }
    assert_eq!(tree::touched(&desk.path("repair")), before, "the source was touched");
    let staged = desk.home().join("store/staging");
    desk.done(&["snapshot", "list"]);
    assert!(std::fs::read_dir(&staged).is_ok_and(|entries| entries.count() <= 1), "{staged:?} is not tidied");
}

/// One step writes, the next one takes a while.
const SLOW: &str = r#"
id = "slow"
goal = "Something that takes a while."
[source]
path = "project"
[[step]]
id = "first"
[[step.call]]
tool = "workspace_write"
path = "made.txt"
content = "made\n"
[[step]]
id = "second"
depends_on = ["first"]
[[step.call]]
id = "before"
tool = "workspace_write"
path = "second.txt"
content = "second\n"
[[step.call]]
id = "wait"
tool = "workspace_run"
command = ["python3", "-c", "import time; print('waiting', flush=True); time.sleep(2.5)"]
[step.output]
wait = "${wait.receipt}"
"#;

fn is_waiting(desk: &Desk, run: &str) -> bool {
    let journal = desk.run_folder(run).join("steps/second.journal");
    std::fs::read_to_string(journal).is_ok_and(|text| text.contains("time.sleep"))
}

#[test]
fn ctrl_c_ends_a_run_in_order_and_it_goes_on_later() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let workflow = desk.workflow(SLOW);
    let mut command = desk.command(&["run", &workflow, "--id", "stopped"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell::wait_until("the command begins", || is_waiting(&desk, "stopped"));
    shell::signal(&child, "INT");
    let ended = Ended::from(child.wait_with_output().unwrap()).with(130);
    ended.tells(&["stopping", "coldframe run --resume stopped"]);
    desk.assert_nothing_left();

    let document = desk.done(&["run", "--resume", "stopped"]);
    assert_eq!(document["report"]["status"], "completed");
    let paths: Vec<&str> = document["delta"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["path"].as_str().or(change["entry"]["path"].as_str()).unwrap())
        .collect();
    assert_eq!(paths, ["made.txt", "second.txt"]);
    // The first step was done before the stop and did not run again.
    let steps = document["report"]["steps"].as_array().unwrap();
    let epochs: Vec<_> = steps.iter().map(|step| (text(&step["step"]), step["epoch"].as_u64())).collect();
    assert_eq!(epochs, [("first".to_owned(), Some(1)), ("second".to_owned(), Some(2))]);
}

#[test]
fn a_second_process_keeps_away_from_a_run_that_is_busy() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let workflow = desk.workflow(SLOW);
    let mut command = desk.command(&["run", &workflow, "--id", "busy"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell::wait_until("the command begins", || is_waiting(&desk, "busy"));
    desk.refused(7, &["run", "--resume", "busy"]);
    desk.refused(7, &["run", &workflow, "--id", "busy"]);
    Ended::from(child.wait_with_output().unwrap()).with(0);
}

#[test]
fn a_command_that_was_in_flight_runs_again_and_its_first_receipt_is_no_evidence() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let workflow = desk.workflow(SLOW);
    let mut child = desk
        .command(&["run", &workflow, "--id", "cut"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    shell::wait_until("the command begins", || is_waiting(&desk, "cut"));
    child.kill().unwrap();
    child.wait().unwrap();
    traces::assert_none(&desk.path(""));

    desk.done(&["run", "--resume", "cut"]);
    let receipts = desk.done(&["receipts", "show", "cut"]);
    let second = receipts["steps"].as_array().unwrap().iter().find(|step| step["step"] == "second").unwrap();
    assert_eq!(second["interrupted"], serde_json::json!(["tool:cut:second:2"]));
    let ids: Vec<String> =
        second["receipts"].as_array().unwrap().iter().map(|receipt| text(&receipt["id"])).collect();
    assert_eq!(ids, ["tool:cut:second:1", "tool:cut:second:3"]);
}

#[test]
fn a_workspace_of_a_killed_exec_goes_with_the_next_call() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    desk.run(&["exec", ".", "--", "true"]).with(0);
    let marker = format!("31{}", std::process::id());
    let script = format!("echo x > new; sleep {marker} & sleep {marker}");
    let command = desk.command(&["exec", ".", "--", "sh", "-c", &script]);
    shell::kill_after(command, Duration::from_millis(700));
    traces::assert_no_process(&marker);
    traces::assert_none(&desk.path(""));
    desk.run(&["exec", ".", "--", "true"]).with(0);
    assert_eq!(tree::read(&desk.project()).len(), 1, "{:?}", Path::new("a.txt"));
}
