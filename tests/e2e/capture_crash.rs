//! Captures that are killed, meet, or see their source change.

use std::process::Stdio;
use std::time::Instant;

use crate::desk::{Desk, Ended, text};
use crate::shell;

const KILLS: u32 = 20;
const FILES: u32 = 400;

fn project(desk: &Desk) {
    for number in 0..FILES {
        desk.write(format!("folder-{}/file-{number}", number % 13), format!("file {number}\n").repeat(30));
    }
    for number in 0..3 {
        let content: Vec<u8> = (0..1_500_000_u32).map(|byte| (byte * (number + 3) / 7) as u8).collect();
        desk.write(format!("large-{number}"), content);
    }
}

#[test]
fn a_capture_that_is_killed_at_any_moment_leaves_a_store_that_works() {
    let reference = Desk::new();
    project(&reference);
    let began = Instant::now();
    let expected = reference.done(&["snapshot", "create", "."]);
    let mut span = began.elapsed();

    let desk = Desk::new();
    project(&desk);
    let mut kills = 0;
    for number in 0.. {
        if kills == KILLS {
            break;
        }
        assert!(number < 5 * KILLS, "only {kills} kills hit a capture");
        // Half of the rounds begin from nothing, so that the kill hits first writes.
        if number % 2 == 0 {
            let _ = std::fs::remove_dir_all(desk.home());
        }
        let delay = shell::moment(span, number % KILLS, KILLS);
        if shell::kill_after(desk.command(&["snapshot", "create", "."]), delay) {
            span = span.min(delay);
        } else {
            kills += 1;
        }
        let listed = desk.done(&["snapshot", "list"]);
        for id in listed["snapshots"].as_array().unwrap() {
            desk.run(&["snapshot", "verify", &text(id)]).with(0);
        }
        if number % 4 == 3 {
            let document = desk.done(&["snapshot", "create", "."]);
            assert_eq!(document["tree"], expected["tree"], "killed after {delay:?}");
            desk.run(&["snapshot", "verify", &text(&document["id"])]).with(0);
        }
    }
    let staging = std::fs::read_dir(desk.home().join("store/staging")).map_or(0, |entries| entries.count());
    assert!(staging <= 1, "{staging} unfinished writes are left");
}

#[test]
fn two_captures_at_once_give_one_snapshot() {
    let desk = Desk::new();
    project(&desk);
    for _ in 0..3 {
        let children: Vec<_> = (0..4)
            .map(|_| {
                let mut command = desk.command(&["--json", "snapshot", "create", "."]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let ids: Vec<String> = children
            .into_iter()
            .map(|child| {
                let ended = Ended::from(child.wait_with_output().unwrap()).with(0);
                text(&serde_json::from_slice::<serde_json::Value>(&ended.stdout).unwrap()["id"])
            })
            .collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        desk.run(&["snapshot", "verify", &ids[0]]).with(0);
        std::fs::remove_dir_all(desk.home()).unwrap();
    }
}

#[test]
fn a_source_that_changes_while_it_is_read_is_captured_whole_or_refused() {
    let desk = Desk::new();
    project(&desk);
    let script = "while :; do for n in 1 2 3; do echo $n > folder-1/changing; rm -f folder-2/coming; \
                  echo x > folder-2/coming; done; done";
    let mut writer = shell::program(&desk.project(), &["sh", "-c", script]).spawn().unwrap();
    let endings: Vec<Ended> = (0..6).map(|_| desk.run(&["--json", "snapshot", "create", "."])).collect();
    writer.kill().unwrap();
    writer.wait().unwrap();
    for ended in endings {
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        match ended.code {
            Some(0) => drop(desk.run(&["snapshot", "verify", &text(&document["id"])]).with(0)),
            Some(7) => assert_eq!(document["error"]["kind"], "conflict", "{document:#}"),
            other => panic!("{other:?}: {document:#}"),
        }
    }
}
