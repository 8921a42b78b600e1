//! Citing receipts: what is replaced, what is refused, and what is said about it.

use std::collections::BTreeSet;

use coldframe_core::{Id, ToolAnswer};
use coldframe_evidence::{
    EvidenceError, FaultReason, Journal, MAX_DEPTH, NextEpoch, ReceiptBook, Restored, Scope, StepResult,
    hydrate_receipt_evidence, verify_journal,
};
use serde_json::{Value, json};

use crate::fixture::{AT, context, edit, effect, ending, header, id, ran, refused, run, write, written};

const TEST: [&str; 3] = ["python3", "-m", "unittest"];

/// Step `s` wrote `sub/f.txt` (1), ran a test that failed (2), was refused a command (3), edited an executable
/// file (4), wrote an empty file (5) and was killed while it wrote once more (6). Step `t` wrote one file.
fn book() -> ReceiptBook {
    let mut book = ReceiptBook::new(id("w"));
    let mut bytes = Vec::new();
    let mut journal = Journal::begin(&mut bytes, header("w", "s", 1)).unwrap();
    effect(&mut journal, &write("sub/f.txt", "one\n"), Ok(written("sub/f.txt", "one\n", false)), "d1");
    effect(&mut journal, &run(&TEST), Ok(ran(&TEST, 1, "2 tests\nFAILED\n")), "d1");
    effect(&mut journal, &run(&["rm"]), Err(refused()), "d1");
    effect(&mut journal, &edit("tool.sh"), Ok(written("tool.sh", "two\n", true)), "d2");
    effect(&mut journal, &write("empty", ""), Ok(written("empty", "", false)), "d3");
    journal.intent(&write("a", "b"), &context()).unwrap();
    drop(journal);
    book.add(verify_journal(&bytes).unwrap()).unwrap();
    let mut bytes = Vec::new();
    let mut journal = Journal::begin(&mut bytes, header("w", "t", 1)).unwrap();
    effect(&mut journal, &write("t", "t"), Ok(written("t", "t", false)), "d1");
    drop(journal);
    book.add(verify_journal(&bytes).unwrap()).unwrap();
    book
}

fn hydrate_with(value: Value, require_receipts: bool) -> Result<Value, EvidenceError> {
    let (workflow, visible_steps) = (id("w"), BTreeSet::from([id("s")]));
    let scope = Scope { workflow: &workflow, visible_steps: &visible_steps, require_receipts };
    hydrate_receipt_evidence(value, &book(), &scope)
}

fn hydrate(value: Value) -> Result<Value, EvidenceError> {
    hydrate_with(value, true)
}

fn faults(value: Value) -> Vec<(String, FaultReason)> {
    let error = hydrate(value).expect_err("the citation was accepted");
    error.faults().iter().map(|fault| (fault.place.clone(), fault.reason)).collect()
}

fn reason(value: Value) -> FaultReason {
    match faults(value.clone()).as_slice() {
        [(_, reason)] => *reason,
        several => panic!("{value}: {several:?}"),
    }
}

#[test]
fn an_id_alone_becomes_the_whole_record() {
    let value = hydrate(json!({"answer": [{"tool_receipt_id": "tool:w:s:2"}], "note": "kept"})).unwrap();
    let evidence = &value["answer"][0];
    assert_eq!(evidence["exit_code"], 1);
    assert_eq!(evidence["command"], json!(TEST));
    assert_eq!(evidence["stdout"]["text"], "2 tests\nFAILED\n");
    assert_eq!(evidence["tool_receipt_id"], "tool:w:s:2");
    assert_eq!(value["note"], "kept");
}

#[test]
fn what_else_a_model_put_into_a_citation_vanishes() {
    let cited =
        json!({"tool_receipt_id": "tool:w:s:1", "note": "trust me", "rc": 0, "cmd": "x", "exit_code": null});
    let value = hydrate(cited).unwrap();
    assert_eq!(value, hydrate(json!({"tool_receipt_id": "tool:w:s:1"})).unwrap());
    assert_eq!(value["path"], "sub/f.txt");
    assert!(value.get("note").is_none() && value.get("rc").is_none());
}

#[test]
fn an_edit_is_evidence_like_a_write_and_executable_and_empty_files_are_cited_without_trouble() {
    let value = hydrate(json!([
        {"tool_receipt_id": "tool:w:s:4", "path": "tool.sh", "executable": true},
        {"tool_receipt_id": "tool:w:s:5", "path": "empty", "size": 0},
        {"tool_receipt_id": "tool:w:s:5", "bytes": 0},
        {"tool_receipt_id": "tool:w:s:1", "path": "./sub//f.txt"},
    ]))
    .unwrap();
    assert_eq!(value[0]["executable"], true);
    assert_eq!((&value[1]["size"], &value[1]["path"]), (&json!(0), &json!("empty")));
    assert_eq!(value[3]["path"], "sub/f.txt");
}

#[test]
fn facts_that_agree_in_another_spelling_are_accepted() {
    hydrate(json!([
        {"tool_receipt_id": "tool:w:s:2", "command": "python3 -m unittest", "cwd": "./", "exit_code": 1},
        {"tool_receipt_id": "tool:w:s:2", "command": TEST, "stdout": "FAILED", "stderr": "", "signal": null},
        {"tool_receipt_id": "tool:w:s:2", "stdout": {"text": "2 tests\nFAILED\n"}, "observed_at": AT},
    ]))
    .unwrap();
}

#[test]
fn a_made_up_misspelt_or_missing_id_is_refused() {
    for bad in [
        json!("made-up"),
        json!("tool:w:s:99"),
        json!("tool:w:s:01"),
        json!("tool:w:s:1 "),
        json!(" tool:w:s:1"),
        json!("TOOL:w:s:1"),
        json!(""),
        json!(null),
        json!(1),
        json!(["tool:w:s:1"]),
        json!({"tool_receipt_id": "tool:w:s:1"}),
    ] {
        assert_eq!(reason(json!({"tool_receipt_id": bad})), FaultReason::UnknownReceipt, "{bad}");
    }
}

#[test]
fn receipts_of_other_workflows_and_of_steps_out_of_sight_are_refused() {
    assert_eq!(reason(json!({"tool_receipt_id": "tool:v:s:1"})), FaultReason::ForeignWorkflow);
    assert_eq!(reason(json!({"tool_receipt_id": "tool:w:t:1"})), FaultReason::InvisibleStep);
    let (workflow, visible) = (id("w"), BTreeSet::from([id("s"), id("t")]));
    let scope = Scope { workflow: &workflow, visible_steps: &visible, require_receipts: true };
    let cited = json!({"tool_receipt_id": "tool:w:t:1"});
    assert_eq!(hydrate_receipt_evidence(cited.clone(), &book(), &scope).unwrap()["path"], "t");
    let foreign = Scope { workflow: &id("v"), ..scope };
    assert!(hydrate_receipt_evidence(cited, &book(), &foreign).is_err());
}

#[test]
fn another_path_hash_or_exit_code_than_the_receipts_is_refused() {
    let file = "tool:w:s:1";
    let command = "tool:w:s:2";
    for (receipt, key, value) in [
        (file, "path", json!("other.txt")),
        (file, "path", json!("sub/../sub/f.txt")),
        (file, "path", json!(null)),
        (file, "sha256", json!("0".repeat(64))),
        (file, "digest", json!("0".repeat(64))),
        (file, "size", json!(5)),
        (file, "bytes", json!(0)),
        (file, "executable", json!(true)),
        (file, "observed_at", json!("2020-01-01T00:00:00Z")),
        (command, "exit_code", json!(0)),
        (command, "exit_code", json!(1.0)),
        (command, "exit_code", json!("1")),
        (command, "exit_code", json!(null)),
        (command, "command", json!("python3 -m pytest")),
        (command, "command", json!(["python3"])),
        (command, "stdout", json!("OK")),
        (command, "stdout", json!("")),
        (command, "stdout", json!({"text": "OK"})),
        (command, "stderr", json!("warning")),
        (command, "timed_out", json!(true)),
        (command, "signal", json!(9)),
        (command, "cwd", json!("sub")),
        (command, "duration_ms", json!(1)),
        (command, "isolation", json!("none")),
    ] {
        let stated = json!({"tool_receipt_id": receipt, key: value});
        assert_eq!(reason(stated), FaultReason::Contradiction, "{key}: {value}");
    }
}

#[test]
fn a_file_claim_cannot_cite_a_command_nor_a_command_claim_a_file() {
    for key in ["path", "sha256", "digest", "size", "bytes", "executable"] {
        let stated = json!({"tool_receipt_id": "tool:w:s:2", key: "x"});
        assert_eq!(reason(stated), FaultReason::WrongKind, "{key}");
    }
    for key in ["command", "exit_code", "stdout", "stderr", "timed_out", "cwd"] {
        let stated = json!({"tool_receipt_id": "tool:w:s:1", key: 0});
        assert_eq!(reason(stated), FaultReason::WrongKind, "{key}");
    }
}

#[test]
fn calls_that_failed_were_interrupted_or_thrown_away_show_nothing() {
    assert_eq!(reason(json!({"tool_receipt_id": "tool:w:s:3"})), FaultReason::NoObservation);
    assert_eq!(reason(json!({"tool_receipt_id": "tool:w:s:6"})), FaultReason::NoObservation);

    let mut bytes = Vec::new();
    let mut journal = Journal::begin(&mut bytes, header("w", "s", 1)).unwrap();
    effect(&mut journal, &run(&["true"]), Ok(ran(&["true"], 0, "")), "d1");
    journal.end(ending(StepResult::Failed)).unwrap();
    let existing = bytes.clone();
    let next = NextEpoch { epoch: 2, restored: Restored::Nothing, at: AT };
    drop(Journal::resume(&existing, &mut bytes, next).unwrap());
    let mut book = ReceiptBook::new(id("w"));
    book.add(verify_journal(&bytes).unwrap()).unwrap();
    let (workflow, visible_steps) = (id("w"), BTreeSet::from([id("s")]));
    let scope = Scope { workflow: &workflow, visible_steps: &visible_steps, require_receipts: true };
    let cited = json!({"tool_receipt_id": "tool:w:s:1"});
    let error = hydrate_receipt_evidence(cited, &book, &scope).unwrap_err();
    assert_eq!(error.faults()[0].reason, FaultReason::RolledBack);
}

#[test]
fn facts_without_a_receipt_are_refused_unless_told_otherwise() {
    for claim in [
        json!({"command": ["true"], "exit_code": 0}),
        json!({"command": "true", "stdout": ""}),
        json!({"command": "true", "stderr": {}}),
        json!({"command": "true", "duration_ms": 1}),
        json!({"command": "true", "observed_at": AT}),
        json!({"command": "true", "timed_out": false}),
        json!({"path": "a", "sha256": "0"}),
        json!({"path": "a", "digest": "0"}),
        json!({"path": "a", "executable": false}),
    ] {
        let value = json!({"steps": [{"evidence": claim}]});
        assert_eq!(faults(value.clone()), [("/steps/0/evidence".to_owned(), FaultReason::Unreceipted)]);
        assert_eq!(hydrate_with(value.clone(), false).unwrap(), value);
    }
}

#[test]
fn objects_that_only_look_like_claims_pass() {
    let value = json!([
        {"path": "a.txt", "bytes": 4},
        {"path": "a.txt", "size": 4},
        {"command": "cargo test"},
        {"command": "cargo test", "exit_code": null},
        {"path": "a.txt", "sha256": null},
        {"exit_code": 0, "stdout": "x"},
        {"sha256": "0"},
        {"path": ["a", 0], "step_id": "s"},
        [], {}, null, "tool:w:s:1",
    ]);
    assert_eq!(hydrate(value.clone()).unwrap(), value);
}

#[test]
fn renamed_keys_stay_the_authors_words_and_never_gain_a_receipt() {
    let value = json!({"cmd": "true", "rc": 0, "receipt": "tool:w:s:2", "Tool_receipt_id": "tool:w:s:2"});
    assert_eq!(hydrate(value.clone()).unwrap(), value);
}

#[test]
fn each_fault_names_its_json_path_and_all_come_at_once() {
    let value = json!({
        "steps": [{"evidence": {"tool_receipt_id": "x"}}, {"a/b~c": {"path": "p", "sha256": "0"}}],
        "good": {"tool_receipt_id": "tool:w:s:1"},
        "two": {"tool_receipt_id": "tool:w:s:2", "exit_code": 0, "path": "p"},
    });
    let expected = [
        ("/steps/0/evidence", FaultReason::UnknownReceipt),
        ("/steps/1/a~1b~0c", FaultReason::Unreceipted),
        ("/two", FaultReason::Contradiction),
        ("/two", FaultReason::WrongKind),
    ];
    assert_eq!(faults(value), expected.map(|(place, reason)| (place.to_owned(), reason)));
    assert_eq!(faults(json!({"tool_receipt_id": ""}))[0].0, "");
}

#[test]
fn a_hydrated_value_passes_unchanged_and_lists_what_it_cites() {
    let cited = json!([{"tool_receipt_id": "tool:w:s:2"}, {"x": {"tool_receipt_id": "tool:w:s:1"}}]);
    let once = hydrate(cited).unwrap();
    assert_eq!(hydrate(once.clone()).unwrap(), once);
    let book = book();
    let ids: Vec<String> = book.cited(&once).iter().map(|receipt| receipt.id.to_string()).collect();
    assert_eq!(ids, ["tool:w:s:1", "tool:w:s:2"]);
}

fn nested(depth: usize) -> Value {
    (0..depth)
        .fold(json!(null), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"k": inner}) })
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    assert!(hydrate(nested(MAX_DEPTH - 1)).is_ok());
    assert_eq!(reason_of(hydrate(nested(MAX_DEPTH))), FaultReason::TooDeep);
    let mut deep = Value::Null;
    for _ in 0..300_000 {
        deep = Value::Array(vec![deep]);
    }
    assert_eq!(reason_of(hydrate(deep)), FaultReason::TooDeep);
}

fn reason_of(result: Result<Value, EvidenceError>) -> FaultReason {
    result.unwrap_err().faults()[0].reason
}

#[test]
fn citing_one_large_receipt_very_often_is_bounded() {
    let mut bytes = Vec::new();
    let mut journal = Journal::begin(&mut bytes, header("w", "s", 1)).unwrap();
    let mut answer = ran(&["cat"], 0, "");
    if let ToolAnswer::Command(observation) = &mut answer {
        observation.stdout.text = "x".repeat(1 << 20);
    }
    effect(&mut journal, &run(&["cat"]), Ok(answer), "d1");
    drop(journal);
    let workflow: Id = id("w");
    let mut book = ReceiptBook::new(workflow.clone());
    book.add(verify_journal(&bytes).unwrap()).unwrap();
    let visible_steps = BTreeSet::from([id("s")]);
    let scope = Scope { workflow: &workflow, visible_steps: &visible_steps, require_receipts: true };
    let value = Value::Array(vec![json!({"tool_receipt_id": "tool:w:s:1"}); 20_000]);
    assert_eq!(reason_of(hydrate_receipt_evidence(value, &book, &scope)), FaultReason::TooLarge);
}

#[test]
fn a_book_takes_each_step_of_its_workflow_once() {
    let mut bytes = Vec::new();
    drop(Journal::begin(&mut bytes, header("w", "s", 1)).unwrap());
    let journal = verify_journal(&bytes).unwrap();
    let mut book = ReceiptBook::new(id("w"));
    book.add(journal.clone()).unwrap();
    assert!(book.add(journal.clone()).is_err());
    assert!(ReceiptBook::new(id("v")).add(journal).is_err());
}
