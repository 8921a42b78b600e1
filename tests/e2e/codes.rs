//! What every command promises alike: the documented exit codes, JSON for programs, and quiet when nobody reads.

use std::path::Path;

use crate::desk::{Desk, Ended, text};
use crate::{shell, tree};

/// The tables of exit codes in the documentation: those of every command, and those of `exec`.
fn documented() -> [Vec<i32>; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(path).unwrap();
    ["| code | of every command but `exec` |", "| code | of `exec` |"].map(|head| {
        let table = page.split_once(head).unwrap_or_else(|| panic!("no table {head:?}")).1;
        table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.split('|').nth(1).unwrap().trim().parse().unwrap())
            .collect()
    })
}

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk
}

/// A workflow that runs one command.
fn workflow(desk: &Desk, command: &str) -> String {
    desk.workflow(&format!(
        "id = \"w\"\ngoal = \"g\"\n[source]\npath = \"project\"\n[[step]]\nid = \"s\"\n[[step.call]]\n\
         tool = \"workspace_run\"\ncommand = {command}\nexpect = {{ exit_code = 0 }}\n"
    ))
}

/// A call of any command but `exec` that ends with `code`, as the table describes it.
fn call_with(code: i32) -> (Desk, Ended) {
    let desk = desk();
    let ended = match code {
        0 => desk.run(&["snapshot", "list"]),
        1 => desk.run(&["run", &workflow(&desk, "[\"false\"]")]),
        2 => desk.run(&["snapshot", "frobnicate"]),
        3 => desk.run(&["delta", "show", "0123"]),
        4 => desk.run(&["snapshot", "create", "nowhere:x"]),
        5 => {
            std::fs::write(desk.path("c.toml"), "[limits]\nmax_files = 0\n").unwrap();
            desk.run(&["snapshot", "create", ".", "--config", "../c.toml"])
        }
        6 => {
            let id = desk.captured();
            std::fs::write(desk.home().join("store/snapshots").join(&id), "").unwrap();
            desk.run(&["snapshot", "verify", &id])
        }
        7 => {
            let id = desk.changed_by("echo two > a.txt");
            desk.write("a.txt", "someone else\n");
            desk.run(&["delta", "apply", &id])
        }
        8 => {
            std::fs::create_dir(desk.home()).unwrap();
            tree::set_mode(&desk.home(), 0o777);
            desk.run(&["snapshot", "list"])
        }
        9 => {
            // Standard output that is full stands for every failure of the system.
            let words = ["sh", "-c", "exec \"$0\" \"$@\" > /dev/full"];
            Ended::of(&mut desk.command_under(&words, &["snapshot", "create", "."]))
        }
        130 => {
            let file = workflow(&desk, "[\"python3\", \"-c\", \"import time; time.sleep(30)\"]");
            let mut command = desk.command(&["run", &file, "--id", "stopped"]);
            let child = command
                .stderr(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let journal = desk.run_folder("stopped").join("steps/s.journal");
            shell::wait_until("the command begins", || {
                std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("intent"))
            });
            shell::signal(&child, "INT");
            Ended::from(child.wait_with_output().unwrap())
        }
        other => panic!("docs/cli.md has a code {other} that no test knows"),
    };
    (desk, ended)
}

#[test]
fn every_documented_code_is_what_its_situation_ends_with() {
    let [general, of_exec] = documented();
    assert_eq!(general, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130]);
    for code in general {
        let (_desk, ended) = call_with(code);
        ended.with(code);
    }
    for code in of_exec {
        let desk = desk();
        match code {
            124 => desk.run(&["exec", "--timeout", "1", ".", "--", "sleep", "50"]),
            125 => desk.run(&["exec", "missing", "--", "true"]),
            126 => {
                // A program in a folder that holds credentials cannot be made visible.
                let place = tempfile::tempdir_in("/var/tmp").unwrap();
                tree::write(&place.path().join(".ssh/id_ed25519"), "secret");
                tree::write(&place.path().join(".ssh/tool"), "#!/bin/sh\n");
                tree::set_mode(&place.path().join(".ssh/tool"), 0o755);
                let tool = place.path().join(".ssh/tool");
                desk.run(&["exec", ".", "--", tool.to_str().unwrap()])
            }
            127 => desk.run(&["exec", ".", "--", "no-such-program-anywhere"]),
            // Shown where ctrl-c is tried.
            130 => continue,
            other => panic!("docs/cli.md has a code {other} of exec that no test knows"),
        }
        .with(code);
    }
}

#[test]
fn every_command_prints_one_document_for_programs() {
    let desk = desk();
    let snapshot = desk.captured();
    let delta = desk.changed_by("echo two > a.txt");
    let file = workflow(&desk, "[\"true\"]");
    desk.done(&["run", &file, "--id", "made"]);
    let good: [&[&str]; 14] = [
        &["snapshot", "create", "."],
        &["snapshot", "list"],
        &["snapshot", "show", &snapshot],
        &["snapshot", "ls", &snapshot],
        &["snapshot", "cat", &snapshot, "a.txt"],
        &["snapshot", "verify", &snapshot],
        &["delta", "show", &delta],
        &["delta", "patch", &delta],
        &["delta", "apply", "--dry-run", &delta],
        &["receipts", "show", "made"],
        &["receipts", "verify", "made"],
        &["receipts", "show", "tool:made:s:1"],
        &["exec", "--explain", ".", "--", "true"],
        &["doctor"],
    ];
    for words in good {
        let document = desk.done(words);
        assert!(document.is_object() && document.get("error").is_none(), "{words:?}: {document:#}");
    }
    let bad: [(i32, &[&str]); 13] = [
        (3, &["snapshot", "create", "missing"]),
        (3, &["snapshot", "show", "0123"]),
        (4, &["snapshot", "show", "012"]),
        (3, &["snapshot", "cat", &snapshot, "missing"]),
        (4, &["snapshot", "cat", &snapshot, "../a.txt"]),
        (3, &["delta", "patch", "0123"]),
        (3, &["delta", "apply", &delta, "missing"]),
        (3, &["receipts", "show", "missing"]),
        (3, &["run", "missing.toml"]),
        (3, &["run", "--resume", "missing"]),
        (125, &["exec", "missing", "--", "true"]),
        (2, &["exec", "."]),
        (2, &["frobnicate"]),
    ];
    for (code, words) in bad {
        let error = desk.refused(code, words);
        assert!(!text(&error["kind"]).is_empty() && !text(&error["message"]).is_empty(), "{words:?}");
        // For people the same is one error on standard error, and nothing on standard output.
        let ended = desk.run(words).with(code);
        assert!(ended.stderr.starts_with("error: ") && ended.stdout.is_empty(), "{words:?}: {ended}");
    }
}

#[test]
fn ids_are_taken_by_their_first_digits() {
    let desk = desk();
    let snapshot = desk.captured();
    let delta = desk.changed_by("echo two > a.txt");
    for length in [4, 12, 64] {
        assert_eq!(text(&desk.done(&["snapshot", "show", &snapshot[..length]])["id"]), snapshot);
        desk.done(&["delta", "show", &delta[..length]]);
    }
    let file = workflow(&desk, "[\"true\"]");
    desk.done(&["run", &file, "--id", "twin-a"]);
    desk.done(&["run", &file, "--id", "twin-b"]);
    desk.done(&["receipts", "show", "twin-a"]);
    let error = desk.refused(4, &["receipts", "show", "twin"]);
    assert!(text(&error["message"]).contains("twin-a, twin-b"), "{error:#}");
    for name in ["../made", "..", "a/b", ".hidden", ""] {
        desk.refused(4, &["run", &file, "--id", name]);
        desk.refused(3, &["run", "--resume", name]);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let desk = desk();
    for number in 0..500 {
        desk.write(format!("a-rather-long-name-of-a-file-{number}"), format!("line {number}\n").repeat(40));
    }
    let snapshot = desk.captured();
    let delta = desk.changed_by("for file in a-*; do echo more >> $file; done");
    desk.write("big", "x".repeat(1 << 20));
    let big = desk.captured();
    let calls: [&[&str]; 9] = [
        &["snapshot", "ls", &snapshot],
        &["--json", "snapshot", "ls", &snapshot],
        &["snapshot", "cat", &big, "big"],
        &["delta", "show", &delta],
        &["delta", "patch", &delta],
        &["--json", "delta", "show", &delta],
        &["--help"],
        &["doctor"],
        &["exec", ".", "--", "seq", "1", "300000"],
    ];
    for words in calls {
        // The exit code of the binary, behind a reader that closes after one byte.
        let script = "{ \"$0\" \"$@\"; echo \"code $?\" >&2; } | head -c 1 > /dev/null";
        let ended = Ended::of(&mut desk.command_under(&["sh", "-c", script], words)).with(0);
        assert!(ended.stderr.ends_with("code 0\n"), "{words:?}: {ended}");
        assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains("error:"), "{words:?}: {ended}");
    }
}

#[test]
fn the_help_of_each_command_names_its_options() {
    let desk = desk();
    for words in [
        &["--help"][..],
        &["exec", "--help"],
        &["run", "--help"],
        &["snapshot", "--help"],
        &["delta", "--help"],
        &["delta", "apply", "--help"],
        &["receipts", "--help"],
        &["doctor", "--help"],
        &["help", "snapshot", "create"],
    ] {
        let ended = desk.run(words).with(0);
        assert!(ended.text().contains("Usage: coldframe"), "{words:?}: {ended}");
        assert_eq!(ended.stderr, "");
    }
    assert!(desk.run(&["--version"]).with(0).text().starts_with("coldframe 0."));
    assert!(!desk.home().exists(), "help makes no state folder");
}

#[test]
fn doctor_proves_what_this_host_contains() {
    let desk = desk();
    let document = desk.done(&["doctor"]);
    assert_eq!(
        (&document["isolation_suffices"], &document["host"]["isolation"]),
        (&true.into(), &"full".into())
    );
    let checks = document["host"]["checks"].as_array().unwrap();
    assert!(checks.len() >= 8 && checks.iter().all(|check| check["passed"] == true), "{checks:#?}");
    let told = desk.run(&["doctor"]).with(0);
    assert_eq!(told.text().matches("✓ ").count(), checks.len(), "{told}");
    assert!(!told.text().contains('✗'));
    let explained = desk.run(&["doctor", "--explain"]).with(0);
    assert!(explained.text().contains("PATH entries, in order:"), "{explained}");
}
