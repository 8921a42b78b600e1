//! Receipts: shown in full, verified offline, and no altered, removed or added record passes.

use std::fs;
use std::path::PathBuf;

use insta::assert_snapshot;

use crate::desk::{Desk, text};
use crate::shown::shown;

const WORKFLOW: &str = r#"
id = "w"
goal = "Make a file and look at it."
[source]
path = "project"
[[step]]
id = "make"
[[step.call]]
id = "write"
tool = "workspace_write"
path = "made.txt"
content = "one\n"
[[step.call]]
id = "look"
tool = "workspace_run"
command = ["cat", "made.txt"]
[step.output]
written = "${write.receipt}"
seen = "${look.receipt}"
"#;

/// A finished run and its journal.
fn finished() -> (Desk, PathBuf) {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let workflow = desk.workflow(WORKFLOW);
    desk.run(&["run", &workflow, "--id", "made"]).with(0);
    let journal = desk.run_folder("made").join("steps/make.journal");
    (desk, journal)
}

#[test]
fn the_receipts_of_a_run_are_listed_and_shown_in_full() {
    let (desk, _) = finished();
    let ended = desk.run(&["receipts", "show", "made"]);
    assert_snapshot!(shown(&desk, &ended), @r"
    exit 0
    --- stdout
    run made
      make: verified · 6 records · head [short]
        tool:made:make:1  write made.txt · 4 bytes, sha256 [short]…
        tool:made:make:2  run cat made.txt · exit 0
    --- stderr
    ");

    let write = desk.done(&["receipts", "show", "tool:made:make:1"]);
    assert_eq!((&write["call"]["path"], &write["call"]["content"]), (&"made.txt".into(), &"one\n".into()));
    let look = desk.done(&["receipts", "show", "tool:made:make:2"]);
    assert_eq!(look["observation"]["exit_code"], 0, "{look:#}");
    assert_eq!(look["observation"]["stdout"]["text"], "one\n", "{look:#}");
    desk.refused(3, &["receipts", "show", "tool:made:make:3"]);
    desk.refused(3, &["receipts", "show", "tool:made:other:1"]);
    desk.refused(3, &["receipts", "show", "tool:none:make:1"]);
    desk.refused(3, &["receipts", "verify", "none"]);
    desk.refused(4, &["receipts", "show", "tool:made:make:x"]);
}

#[test]
fn every_altered_byte_is_found() {
    let (desk, journal) = finished();
    let whole = fs::read(&journal).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(0);
    // A stride without a common factor with the length of anything meets every kind of field.
    for at in (0..whole.len()).step_by(41).chain([whole.len() - 1]) {
        for mask in [0x01, 0x20] {
            let mut altered = whole.clone();
            altered[at] ^= mask;
            fs::write(&journal, &altered).unwrap();
            let ended = desk.run(&["receipts", "verify", "made"]);
            assert_eq!(ended.code, Some(6), "byte {at} of {} altered by {mask}: {ended}", whole.len());
            assert!(ended.stderr.contains("make"), "byte {at}: {ended}");
        }
    }
    fs::write(&journal, &whole).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(0);
}

#[test]
fn every_line_removed_doubled_moved_or_added_is_found() {
    let (desk, journal) = finished();
    let whole = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    assert!(lines.len() >= 6);
    let mut forgeries =
        vec![String::new(), format!("{whole}\n"), format!("{whole}{{}}\n"), whole.trim_end().to_owned()];
    for at in 0..lines.len() {
        let mut removed = lines.clone();
        removed.remove(at);
        let mut doubled = lines.clone();
        doubled.insert(at, lines[at]);
        let mut moved = lines.clone();
        moved.swap(at, (at + 1) % lines.len());
        let cut = lines[..at].to_vec();
        forgeries.extend([removed, doubled, moved, cut].map(|lines| lines.join("\n") + "\n"));
        let spaced = lines[at].replacen(':', ": ", 1);
        forgeries.push(whole.replace(lines[at], &spaced));
    }
    for forgery in forgeries {
        fs::write(&journal, &forgery).unwrap();
        let ended = desk.run(&["receipts", "verify", "made"]);
        assert_eq!(ended.code, Some(6), "{forgery}\n{ended}");
        desk.refused(6, &["receipts", "show", "tool:made:make:1"]);
    }
    fs::remove_file(&journal).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(6).tells(&["gone"]);
}

#[test]
fn a_whole_journal_of_another_run_does_not_pass() {
    let (desk, journal) = finished();
    let workflow = desk.path("workflow.toml").into_os_string().into_string().unwrap();
    desk.run(&["run", &workflow, "--id", "other"]).with(0);
    let other = desk.run_folder("other").join("steps/make.journal");
    let own = fs::read(&journal).unwrap();
    fs::copy(&other, &journal).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(6);
    // A rename of the run in every record breaks the chain.
    let renamed = String::from_utf8(own).unwrap().replace("\"made\"", "\"mode\"");
    fs::write(&journal, renamed).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(6);
}

#[test]
fn the_state_of_a_run_is_guarded_as_well() {
    let (desk, _) = finished();
    let state = desk.run_folder("made").join("state.json");
    let whole = fs::read_to_string(&state).unwrap();
    for altered in
        [whole.replace("completed", "cancelled"), whole[..whole.len() / 2].to_owned(), String::new()]
    {
        fs::write(&state, altered).unwrap();
        let error = desk.refused(6, &["receipts", "verify", "made"]);
        assert!(text(&error["message"]).contains("state"), "{error:#}");
        desk.refused(6, &["run", "--resume", "made"]);
    }
    fs::write(&state, whole).unwrap();
    desk.run(&["receipts", "verify", "made"]).with(0);
}

#[test]
fn the_receipt_of_an_exec_is_kept_and_verified() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    let document = desk.done(&["exec", ".", "--", "cat", "a.txt"]);
    let receipt = desk.done(&["receipts", "show", &text(&document["receipt"])]);
    assert_eq!(receipt["observation"]["stdout"], document["observation"]["stdout"]);
    let run = text(&document["run"]);
    desk.run(&["receipts", "verify", &run[..5]]).with(0);
    let record = desk.run_folder(&run).join("exec.json");
    let altered = fs::read_to_string(&record)
        .unwrap()
        .replace(&text(&receipt["observation"]["stdout"]["blob"])[..8], "00000000");
    let head = altered.find("\"receipts_head\": \"").unwrap() + 18;
    let mut bytes = altered.into_bytes();
    bytes[head] = if bytes[head] == b'0' { b'1' } else { b'0' };
    fs::write(&record, bytes).unwrap();
    desk.run(&["receipts", "verify", &run]).with(6);
}
