//! A forger who knows the format: every check is recomputed, and where it helps the whole chain too.

use coldframe_core::Digest;
use coldframe_evidence::{EvidenceErrorKind, verify_journal};
use serde_json::{Value, json};

const GOLDEN: &str = include_str!("../golden/v1/step.journal");

fn records() -> Vec<Value> {
    GOLDEN.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line with a check that fits. Keys come sorted, as maps of `serde_json` are.
fn seal(record: &Value) -> String {
    let mut record = record.clone();
    record.as_object_mut().unwrap().remove("check");
    record["check"] = json!(Digest::of(record.to_string().as_bytes()));
    record.to_string()
}

/// A journal of these records in which every record follows the one before it and is numbered by its place.
fn chain(records: &[Value]) -> String {
    let mut previous = Digest::from_bytes([0; 32]);
    let mut text = String::new();
    for (number, record) in records.iter().enumerate() {
        let mut record = record.clone();
        record["previous"] = json!(previous);
        record["n"] = json!(number);
        let line = seal(&record);
        previous = Digest::of(line.as_bytes());
        text += &line;
        text.push('\n');
    }
    text
}

fn refused_at(text: &str) -> u64 {
    match verify_journal(text.as_bytes()) {
        Err(error @ coldframe_evidence::EvidenceError::Journal { line, .. }) => {
            assert_eq!(error.kind(), EvidenceErrorKind::Integrity);
            line
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_forger_of_these_tests_writes_the_same_bytes_as_the_runner() {
    assert_eq!(chain(&records()), GOLDEN);
}

#[test]
fn an_altered_record_with_a_fitting_check_breaks_the_chain_behind_it() {
    let mut records = records();
    records[4]["answer"]["exit_code"] = json!(0);
    let text: String = records.iter().map(|record| seal(record) + "\n").collect();
    assert_eq!(refused_at(&text), 6);
}

#[test]
fn a_rebuilt_chain_still_counts_its_records_from_nought_without_gaps() {
    for number in [0, 6, 8, 99] {
        let mut records = records();
        records.truncate(8);
        let mut last = records.pop().unwrap();
        let good = chain(&records);
        last["n"] = json!(number);
        last["previous"] = json!(Digest::of(good.lines().last().unwrap().as_bytes()));
        assert_eq!(refused_at(&(good + &seal(&last) + "\n")), 8);
    }
    let mut first = records().remove(0);
    first["n"] = json!(1);
    assert_eq!(refused_at(&(seal(&first) + "\n")), 1);
}

#[test]
fn a_rebuilt_chain_cannot_carry_records_that_no_runner_writes() {
    type Edit = fn(&mut Vec<Value>);
    let cases: [(&str, u64, Edit); 20] = [
        ("no beginning", 1, |records| drop(records.remove(0))),
        ("two beginnings", 2, |records| records.insert(1, records[0].clone())),
        ("a receipt of another workflow", 2, |records| records[1]["receipt"] = json!("tool:other:fix-1:1")),
        ("a receipt of another step", 2, |records| records[1]["receipt"] = json!("tool:repair:other:1")),
        ("a receipt out of turn", 2, |records| records[1]["receipt"] = json!("tool:repair:fix-1:2")),
        ("another place of the effect", 2, |records| records[1]["effect"] = json!(2)),
        ("another effect key", 2, |records| records[1]["effect_key"] = json!(Digest::of(b"x"))),
        ("another call under the key", 2, |records| records[1]["call"]["content"] = json!("two\n")),
        ("an outcome without its intent", 2, |records| drop(records.remove(1))),
        ("a second outcome", 4, |records| records.insert(3, records[2].clone())),
        ("an outcome of another receipt", 3, |records| records[2]["receipt"] = json!("tool:repair:fix-1:2")),
        ("an answer with another receipt", 3, |records| {
            records[2]["answer"]["tool_receipt_id"] = json!("tool:repair:fix-1:2");
        }),
        ("an answer of another tool", 3, |records| records[2]["answer"] = records[4]["answer"].clone()),
        ("a failure with an answer", 3, |records| records[2]["status"] = json!("failed")),
        ("a success with an error", 7, |records| records[6]["status"] = json!("ok")),
        ("neither answer nor error", 3, |records| {
            records[2].as_object_mut().unwrap().remove("answer");
        }),
        ("an intent while another waits", 9, |records| drop(records.remove(8))),
        ("an effect after the end", 11, |records| drop(records.remove(10))),
        ("an epoch that goes back", 11, |records| records[10]["epoch"] = json!(1)),
        ("anything after completion", 15, |records| {
            records.push(json!({"v": 1, "record": "epoch", "epoch": 9, "restored": null, "at": "2026-01-31T12:00:00Z"}));
        }),
    ];
    for (what, line, edit) in cases {
        let mut records = records();
        edit(&mut records);
        assert_eq!(refused_at(&chain(&records)), line, "{what}");
    }
}

#[test]
fn a_wholly_rebuilt_journal_has_another_head() {
    let mut records = records();
    records[4]["answer"]["exit_code"] = json!(0);
    let forged = verify_journal(chain(&records).as_bytes()).unwrap();
    assert_ne!(forged.head, verify_journal(GOLDEN.as_bytes()).unwrap().head);
}
