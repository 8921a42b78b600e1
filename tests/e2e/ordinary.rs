//! The main path as an ordinary user, who has no powers: containment and care must not rest on those of root.

use std::time::Instant;

use crate::desk::{Desk, text};
use crate::{shell, traces, tree};

#[test]
fn a_run_is_done_killed_and_resumed() {
    let desk = Desk::ordinary();
    let workflow = desk.example();
    let workflow = workflow.to_str().unwrap();
    let before = tree::touched(&desk.path("repair"));
    let began = Instant::now();
    let whole = desk.done(&["run", workflow, "--id", "whole"]);
    let span = began.elapsed();
    assert_eq!(whole["responses"]["answer"]["failure"]["exit_code"], 1);
    assert_eq!(whole["responses"]["answer"]["tests"]["isolation"], "full");
    desk.run(&["receipts", "verify", "whole"]).with(0);
    for round in 0..2 {
        let run = format!("killed-{round}");
        shell::kill_after(desk.command(&["run", workflow, "--id", &run]), shell::moment(span, round, 2));
        traces::assert_none(&desk.path("home"));
        let document = match desk.json(&["run", "--resume", &run]) {
            (Some(3), _) => desk.done(&["run", workflow, "--id", &run]),
            (code, document) => {
                assert_eq!(code, Some(0), "{document:#}");
                document
            }
        };
        assert_eq!(document["patch"], whole["patch"]);
    }
    assert_eq!(tree::touched(&desk.path("repair")), before);
}

#[test]
fn a_command_is_contained_and_its_delta_applied() {
    let desk = Desk::ordinary();
    desk.write("a.txt", "one\n");
    desk.hand_over(&desk.project().join("a.txt"));
    let marker = format!("35{}", std::process::id());
    let script = format!(
        "sleep {marker} & id -u; echo two >> a.txt; echo x > new; ls /root /home 2>/dev/null; exit 3"
    );
    let (code, document) = desk.json(&["exec", ".", "--", "sh", "-c", &script]);
    assert_eq!((code, &document["isolation"]), (Some(3), &"full".into()), "{document:#}");
    traces::assert_no_process(&marker);
    let delta = text(&document["delta"]["id"]);
    desk.run(&["delta", "apply", &delta]).with(0);
    assert_eq!(std::fs::read_to_string(desk.project().join("a.txt")).unwrap(), "one\ntwo\n");
    desk.refused(7, &["delta", "apply", &delta]);
    for (code, script) in [(143, "kill -TERM $$"), (7, "exit 7")] {
        desk.run(&["exec", ".", "--", "sh", "-c", script]).with(code);
    }
    desk.refused(127, &["exec", ".", "--", "no-such-program-anywhere"]);
    desk.run(&["exec", "--timeout", "1", ".", "--", "sleep", &marker]).with(124);
    traces::assert_no_process(&marker);
    desk.run(&["exec", ".", "--", "python3", "-c", "print(6 * 7)"]).with(0);
    desk.run(&["exec", ".", "--", "git", "--version"]).with(0);
}

#[test]
fn a_snapshot_is_captured_verified_and_healed() {
    let desk = Desk::ordinary();
    for number in 0..50 {
        desk.write(format!("file-{number}"), format!("file {number}\n"));
    }
    let id = desk.captured();
    desk.run(&["snapshot", "verify", &id]).with(0);
    assert_eq!(desk.run(&["snapshot", "cat", &id, "file-7"]).with(0).text(), "file 7\n");
    let pack = tree::files(&desk.home().join("store/packs"))
        .into_iter()
        .find(|path| path.extension() == Some("pack".as_ref()))
        .unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    desk.run(&["snapshot", "verify", &id]).with(6);
    assert_eq!(desk.captured(), id);
    desk.run(&["snapshot", "verify", &id]).with(0);
}

#[test]
fn every_proof_of_containment_passes() {
    let desk = Desk::ordinary();
    let document = desk.done(&["doctor"]);
    let checks = document["host"]["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["passed"] == true), "{checks:#?}");
}
