//! `exec`: exit codes, streams, time limits, and that nothing of a command outlives it or reaches the source.

use std::process::Stdio;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::desk::{Desk, Ended, text};
use crate::shown::shown;
use crate::{shell, traces, tree};

fn sh(script: &str) -> [&str; 6] {
    ["exec", ".", "--", "sh", "-c", script]
}

#[test]
fn a_call_shows_what_was_captured_what_happened_and_how_to_go_on() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let ended = desk.run(&sh("echo seen; echo two >> a.txt; echo told >&2; exit 7"));
    assert_snapshot!(shown(&desk, &ended), @r"
    exit 7
    --- stdout
    seen
    --- stderr
    captured 1 file (4 B) in [time] · opened in [time] · full containment, no network
    told
    exit 7 in [time] · 1 path changed (+1 −0) · delta [short] · receipt tool:[run]:exec:1
    show: coldframe delta show [short] · take: coldframe delta apply [short]
    ");
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let desk = Desk::new();
    for code in [0, 1, 2, 42, 124, 125, 126, 127, 255] {
        desk.run(&sh(&format!("exit {code}"))).with(code);
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        desk.run(&sh(&format!("kill -{signal} $$"))).with(code);
    }
    let (code, document) = desk.json(&sh("exit 127"));
    assert_eq!(code, Some(127));
    assert_eq!(document["observation"]["exit_code"], 127, "only a command that ran is observed");
}

#[test]
fn a_program_is_found_as_the_shell_would_find_it() {
    let desk = Desk::new();
    desk.write("tool", "#!/bin/sh\necho \"from the workspace: $1\"\n");
    tree::set_mode(&desk.project().join("tool"), 0o755);
    desk.write("plain", "#!/bin/sh\necho never\n");
    desk.write("true", "#!/bin/sh\nexit 99\n");
    tree::set_mode(&desk.project().join("true"), 0o755);

    let ended = desk.run(&["exec", ".", "--", "./tool", "x"]).with(0);
    assert_eq!(ended.text(), "from the workspace: x\n");
    desk.run(&["exec", ".", "--", "true"]).with(0);
    desk.run(&["exec", ".", "--", "/bin/true"]).with(0);
    desk.run(&["exec", ".", "--", "no-such-program-anywhere"]).with(127).tells(&["no-such-program-anywhere"]);
    desk.run(&["exec", ".", "--", "./no-such-file"]).with(127).tells(&["no-such-file"]);
    desk.run(&["exec", ".", "--", "/no/such/file"]).with(127);
    desk.run(&["exec", ".", "--", "tool"]).with(127);
    desk.run(&["exec", ".", "--", "./plain"]).with(126).tells(&["plain"]);
    let error = desk.refused(127, &["exec", ".", "--", "no-such-program-anywhere"]);
    assert_eq!(error["kind"], "not_found");
    desk.refused(125, &["exec", "no-such-source", "--", "true"]);
    desk.refused(2, &["exec", "."]);
}

#[test]
fn streams_are_passed_on_byte_by_byte_and_input_is_empty() {
    let desk = Desk::new();
    let script = "cat; printf 'a\\0\\377\\r\\n'; printf 'b\\0\\376' >&2; head -c 3000000 /dev/zero";
    let ended = desk.run(&sh(script)).with(0);
    assert!(ended.stdout.starts_with(b"a\0\xff\r\n\0\0"), "{:?}", &ended.stdout[..20]);
    assert_eq!(ended.stdout.len(), 3_000_005);
    let (_, document) = desk.json(&sh(script));
    let stdout = &document["observation"]["stdout"];
    assert_eq!(
        (stdout["bytes"].as_u64(), stdout["stored_bytes"].as_u64()),
        (Some(3_000_005), Some(3_000_005))
    );
    assert_eq!((&stdout["truncated"], &stdout["utf8"]), (&Value::Bool(true), &Value::Bool(false)));
}

#[test]
fn a_command_whose_time_is_over_is_stopped_with_its_output_and_its_changes() {
    let desk = Desk::new();
    let marker = format!("32{}", std::process::id());
    let script = format!(
        "trap '' TERM INT HUP; echo begun; echo kept > kept.txt; sleep {marker} & sleep {marker}; sleep {marker}"
    );
    let words = ["exec", "--timeout", "1", ".", "--", "sh", "-c", &script];
    let began = Instant::now();
    let (code, document) = desk.json(&words);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(code, Some(124), "{document:#}");
    let observation = &document["observation"];
    assert_eq!((&observation["timed_out"], &observation["exit_code"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(observation["stdout"]["text"], "begun\n");
    assert_eq!(observation["timeout_ms"], 1000);
    let delta = text(&document["delta"]["id"]);
    assert!(desk.run(&["delta", "show", &delta]).with(0).text().contains("+kept"));
    traces::assert_no_process(&marker);
}

#[test]
fn what_a_command_left_in_the_background_ends_with_it() {
    let desk = Desk::new();
    let marker = format!("33{}", std::process::id());
    // One in the background, one in a session of its own, one that is orphaned twice and holds the pipes.
    let script = format!(
        "sleep {marker} & setsid sleep {marker} & (setsid sh -c 'trap \"\" TERM; sleep {marker} & sleep {marker}' &) ; \
         nohup sleep {marker} & echo started; exit 5"
    );
    let began = Instant::now();
    let ended = desk.run(&sh(&script)).with(5);
    assert!(ended.text().contains("started"));
    assert!(began.elapsed() < Duration::from_secs(20), "the call waited for the background");
    traces::assert_no_process(&marker);
}

#[test]
fn the_source_is_not_touched() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.write("folder/b.txt", "two\n");
    std::os::unix::fs::symlink("a.txt", desk.project().join("link")).unwrap();
    let before = tree::touched(&desk.project());
    let script = "set -e; pwd; rm -r folder; echo x > a.txt; chmod 755 a.txt; echo y > link; mkdir -p new/er; \
                  echo z > new/er/file; mv a.txt moved";
    let ended = desk.run(&sh(script)).with(0);
    assert_eq!(ended.text(), "/workspace\n");
    assert_eq!(tree::touched(&desk.project()), before);
}

#[test]
fn ctrl_c_stops_the_command_and_keeps_no_delta() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.run(&["exec", ".", "--", "true"]).with(0);
    let deltas = || std::fs::read_dir(desk.home().join("store/deltas")).unwrap().count();
    let before = deltas();
    let marker = format!("34{}", std::process::id());
    let script = format!("echo two > a.txt; sleep {marker}");
    let child = desk.command(&sh(&script)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell::wait_until("the command begins", || {
        let runs = std::fs::read_dir(desk.home().join("runs")).unwrap().flatten();
        runs.filter_map(|run| std::fs::read_to_string(run.path().join("steps/exec.journal")).ok())
            .any(|journal| journal.contains(&marker))
    });
    shell::signal(&child, "INT");
    Ended::from(child.wait_with_output().unwrap()).with(130).tells(&["no delta is kept"]);
    traces::assert_no_process(&marker);
    assert_eq!(deltas(), before);
    desk.run(&["exec", ".", "--", "true"]).with(0);
}

#[test]
fn several_calls_on_one_home_do_not_disturb_each_other() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let children: Vec<_> = (0..6)
        .map(|number| {
            let script = format!("cat a.txt; echo {number} > a.txt; cat a.txt; exit {number}");
            let mut command = desk.command(&sh(&script));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        let ended = Ended::from(child.wait_with_output().unwrap()).with(number as i32);
        assert_eq!(ended.text(), format!("one\n{number}\n"));
    }
}
