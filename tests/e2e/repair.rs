//! The example of the README: a failing project is repaired in a run, with evidence, and stays as it was.

use std::path::Path;

use serde_json::Value;

use crate::desk::{Desk, text};
use crate::{shell, tree};

const TESTS: [&str; 5] = ["python3", "-m", "unittest", "discover", "-v"];
const STEPS: [&str; 6] = ["reproduce", "survey", "repair", "document", "verify", "answer"];

#[test]
fn a_run_shows_plan_times_changes_answer_and_receipts() {
    let desk = Desk::new();
    let workflow = desk.example();
    let project = desk.path("repair/project");
    let before = tree::touched(&desk.path("repair"));
    let ended = desk.run(&[Path::new("run"), &workflow]).with(0);

    let (plan, told) = ended.stderr.split_once("plan:\n").unwrap().1.split_once("begins").unwrap();
    for step in STEPS {
        let planned = plan.lines().any(|line| line.trim_start().starts_with(step));
        assert!(planned, "{step} is not planned: {ended}");
        let time = told.lines().find_map(|line| line.strip_prefix(&format!("✓ {step}: done in ")));
        let is_time = time.is_some_and(|time| {
            time.split_once(' ')
                .is_some_and(|(number, unit)| number.parse::<f64>().is_ok() && ["ms", "s"].contains(&unit))
        });
        assert!(is_time, "{step} has no time: {ended}");
    }
    assert!(told.contains("completed: 6 of 6 steps in "), "{ended}");

    let stdout = ended.text();
    let (changes, rest) = stdout.split_once("answer:\n").unwrap();
    let (answer, receipts) = rest.split_once("receipts:\n").unwrap();
    for fact in [
        "failure: python3 -m unittest discover -v · exit 1 in ",
        ":reproduce:1\n",
        "AssertionError: ",
        "change: till/pricing/discount.py · ",
        "tests: python3 -m unittest discover -v · exit 0 in ",
        "| OK\n",
        "suspect: \"till/pricing/discount.py\"\n",
    ] {
        assert!(answer.contains(fact), "{fact:?} is not in the answer: {answer}");
    }
    check_patch(&desk, &project, changes.strip_prefix("changes:\n").unwrap());
    let verified = receipts.lines().filter(|line| line.contains(": verified · ")).count();
    assert_eq!(verified, 5, "each workspace step has a verified journal: {receipts}");
    assert_eq!(tree::touched(&desk.path("repair")), before, "the run touched the source");
}

/// Facts come from receipts: the failure with its code and output, the change with the hash of the repaired file.
fn check_answer(answer: &Value) {
    assert_eq!(answer["failure"]["exit_code"], 1);
    assert_eq!(answer["failure"]["command"], serde_json::json!(TESTS));
    assert!(text(&answer["failure"]["stderr"]["text"]).contains("AssertionError: 99 != 100"));
    assert!(text(&answer["failure"]["tool_receipt_id"]).ends_with(":reproduce:1"));
    assert_eq!(answer["tests"]["exit_code"], 0);
    assert!(text(&answer["tests"]["stderr"]["text"]).ends_with("OK\n"));
    assert_eq!(answer["change"]["path"], "till/pricing/discount.py");
    assert_eq!(answer["change_log"]["path"], "CHANGELOG.md");
    assert_eq!(answer["suspect"], "till/pricing/discount.py");
}

/// The patch is one that Git takes, and with it the project's own tests pass.
fn check_patch(desk: &Desk, project: &Path, patch: &str) {
    let copy = desk.path("repaired");
    tree::copy(project, &copy);
    let failing = shell::program(&copy, &TESTS).output().unwrap();
    assert_eq!(failing.status.code(), Some(1), "the example does not fail to begin with");
    let file = desk.path("run.patch");
    std::fs::write(&file, patch).unwrap();
    shell::must(&copy, &[Path::new("git"), Path::new("apply"), &file]);
    shell::must(&copy, &TESTS);
}

#[test]
fn a_run_is_one_document_for_programs() {
    let desk = Desk::new();
    let workflow = desk.example();
    let document = desk.done(&["run", workflow.to_str().unwrap(), "--id", "for-programs"]);
    assert_eq!(document["report"]["status"], "completed");
    let times = document["step_ms"].as_object().unwrap();
    assert!(STEPS.iter().all(|step| times[*step].is_u64()), "{times:?}");
    check_answer(&document["responses"]["answer"]);
    for step in document["receipts"].as_array().unwrap() {
        assert_eq!(step["verification"], "verified", "{step:#}");
    }
    let verified = desk.done(&["receipts", "verify", "for-programs"]);
    assert_eq!(verified["steps"], document["receipts"]);

    let (applied, patched) = (desk.path("applied"), desk.path("patched"));
    for copy in [&applied, &patched] {
        tree::copy(&desk.path("repair/project"), copy);
    }
    let delta = text(&document["delta"]["id"]);
    desk.done(&["delta", "apply", &delta, applied.to_str().unwrap()]);
    let file = desk.path("run.patch");
    std::fs::write(&file, text(&document["patch"])).unwrap();
    shell::must(&patched, &[Path::new("git"), Path::new("apply"), &file]);
    assert_eq!(tree::read(&applied), tree::read(&patched));
    let hash = shell::must(&applied, &["sha256sum", "till/pricing/discount.py"]);
    let change = text(&document["responses"]["answer"]["change"]["sha256"]);
    assert!(String::from_utf8(hash).unwrap().starts_with(&change));
}

#[test]
fn the_same_by_hand_ends_with_the_code_of_the_failing_tests() {
    let desk = Desk::new();
    desk.example();
    let project = desk.path("repair/project");
    let before = tree::touched(&project);
    let words = [&["exec", project.to_str().unwrap(), "--"][..], &TESTS].concat();
    desk.run(&words).with(1).tells(&["AssertionError: 99 != 100", "full containment, no network"]);
    assert_eq!(tree::touched(&project), before);
}
