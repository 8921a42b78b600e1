//! The written form: a journal of the first version is read and reproduced byte for byte, and no change of it
//! goes unnoticed.

use coldframe_core::{Digest, ToolAnswer, ToolCall, ToolError, ToolStatus};
use coldframe_evidence::{
    EvidenceErrorKind, Journal, NextEpoch, Observation, RecordedCall, RecordedText, Restored, StepResult,
    verify_journal, verify_with_head,
};
use proptest::prelude::*;

use crate::fixture::{AT, context, edit, effect, end_of, ending, header, ran, run, write, written};

const GOLDEN: &[u8] = include_bytes!("../golden/v1/step.journal");
const GOLDEN_HEAD: &str = "29b8c683fdfd5a709bce53c229840c7b0349a47706a7d1d11ea4035601cef3ff";

/// One of each record: three effects, an interrupted one, an exhausted epoch and a completed one.
fn every_record() -> (Vec<u8>, Digest) {
    let mut bytes = Vec::new();
    let mut journal = Journal::begin(&mut bytes, header("repair", "fix-1", 1)).unwrap();
    effect(&mut journal, &write("src/é\n.py", "one\n"), Ok(written("src/é\n.py", "one\n", false)), "d1");
    let test = ["python3", "-m", "unittest"];
    effect(&mut journal, &run(&test), Ok(ran(&test, 1, "FAILED \"x\"\t\u{1}\n")), "d2");
    let mut conflict = ToolError::new(ToolStatus::Conflict, "the file changed");
    conflict.observed_sha256 = Some("1".repeat(64));
    effect(&mut journal, &edit("src/cart.py"), Err(conflict), "d2");
    let mut large = write("tool.sh", &"x".repeat(5000));
    if let ToolCall::Write(call) = &mut large {
        call.executable = Some(true);
    }
    journal.intent(&large, &context()).unwrap();
    journal.end(ending(StepResult::Exhausted)).unwrap();

    let existing = bytes.clone();
    let next = NextEpoch { epoch: 2, restored: Restored::LastDelta, at: AT };
    let (mut journal, _) = Journal::resume(&existing, &mut bytes, next).unwrap();
    let id = journal.intent(&run(&["sleep", "9"]), &context()).unwrap();
    let mut stopped = ran(&["sleep", "9"], 0, "");
    if let ToolAnswer::Command(observation) = &mut stopped {
        (observation.exit_code, observation.signal, observation.timed_out) = (None, Some(9), true);
    }
    journal.outcome(&id, &Ok(stopped), &end_of("d9")).unwrap();
    let head = journal.end(ending(StepResult::Completed)).unwrap();
    (bytes, head)
}

#[test]
fn a_journal_of_the_first_version_is_reproduced_byte_for_byte() {
    let (bytes, head) = every_record();
    assert_eq!(String::from_utf8(bytes).unwrap(), String::from_utf8(GOLDEN.to_vec()).unwrap());
    assert_eq!(head.to_string(), GOLDEN_HEAD);
}

#[test]
fn a_journal_of_the_first_version_is_read() {
    let journal = verify_with_head(GOLDEN, &GOLDEN_HEAD.parse().unwrap()).unwrap();
    assert_eq!((journal.header.workflow.as_str(), journal.header.step.as_str()), ("repair", "fix-1"));
    assert_eq!((journal.epoch, journal.records, journal.is_complete()), (2, 14, true));
    let ids: Vec<String> = journal.receipts.iter().map(|receipt| receipt.id.to_string()).collect();
    assert_eq!(ids, [1, 2, 3, 5].map(|number| format!("tool:repair:fix-1:{number}")));
    assert_eq!(journal.interrupted, [crate::fixture::receipt_id("tool:repair:fix-1:4")]);
    assert_eq!(journal.unfinished, None);
    assert_eq!(journal.receipts[0].mutation().unwrap().path, "src/é\n.py");
    assert_eq!(journal.receipts[1].command().unwrap().exit_code, Some(1));
    assert_eq!(journal.receipts[2].observation, Observation::None);
    assert!(journal.receipts[3].command().unwrap().timed_out);
}

#[test]
fn a_long_text_is_in_the_journal_by_its_hash_alone() {
    let text = std::str::from_utf8(GOLDEN).unwrap();
    assert!(!text.contains("xxxx"));
    let line = text.lines().find(|line| line.contains("tool.sh")).unwrap();
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    let call: RecordedCall = serde_json::from_value(value["call"].clone()).unwrap();
    let RecordedCall::Write { content: RecordedText::Hashed { size, sha256 }, .. } = call else {
        panic!("{call:?}")
    };
    assert_eq!((size, sha256.len()), (5000, 64));
}

#[test]
fn another_version_is_refused_by_its_number() {
    let text = std::str::from_utf8(GOLDEN).unwrap().replace("\"v\":1}", "\"v\":2}");
    let error = verify_journal(text.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), EvidenceErrorKind::Unsupported);
    assert!(error.to_string().contains("format 2"), "{error}");
}

fn lines() -> Vec<&'static [u8]> {
    GOLDEN.split_inclusive(|byte| *byte == b'\n').collect()
}

#[test]
fn a_line_that_is_removed_doubled_or_swapped_is_noticed() {
    let lines = lines();
    for index in 0..lines.len() {
        let mut doubled = lines.clone();
        doubled.insert(index, lines[index]);
        assert!(verify_journal(&doubled.concat()).is_err(), "line {index} doubled");
        let mut removed = lines.clone();
        removed.remove(index);
        // A journal without its last record is whole in itself; its head is another.
        let result = verify_with_head(&removed.concat(), &GOLDEN_HEAD.parse().unwrap());
        assert_eq!(result.unwrap_err().kind(), EvidenceErrorKind::Integrity, "line {index} removed");
        assert_eq!(verify_journal(&removed.concat()).is_ok(), index + 1 == lines.len(), "line {index}");
        for other in index + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(index, other);
            assert!(verify_journal(&swapped.concat()).is_err(), "lines {index} and {other} swapped");
        }
    }
}

#[test]
fn a_removed_tail_is_whole_in_itself_and_fails_against_the_head() {
    let lines = lines();
    let head: Digest = GOLDEN_HEAD.parse().unwrap();
    for length in 1..lines.len() {
        let bytes = lines[..length].concat();
        assert!(verify_journal(&bytes).is_ok(), "{length} lines");
        assert!(verify_with_head(&bytes, &head).is_err(), "{length} lines");
    }
}

#[test]
fn every_byte_of_the_last_line_counts_though_no_record_follows_it() {
    let start = GOLDEN.len() - lines().last().unwrap().len();
    for index in start..GOLDEN.len() {
        for bit in [0, 5] {
            let mut bytes = GOLDEN.to_vec();
            bytes[index] ^= 1 << bit;
            assert!(verify_journal(&bytes).is_err(), "byte {index}, bit {bit}");
        }
    }
}

#[test]
fn a_cut_at_any_byte_but_a_line_end_is_an_error() {
    let first = lines()[0].len();
    for end in (0..GOLDEN.len()).filter(|end| *end == 0 || GOLDEN[end - 1] != b'\n') {
        let expected = if end < first { EvidenceErrorKind::Empty } else { EvidenceErrorKind::Cut };
        assert_eq!(verify_journal(&GOLDEN[..end]).unwrap_err().kind(), expected, "cut at {end}");
    }
}

#[test]
fn another_spelling_of_the_same_record_is_refused() {
    let text = std::str::from_utf8(GOLDEN).unwrap();
    let last = text.lines().last().unwrap();
    for (what, altered) in [
        ("a space", last.replacen("\":", "\": ", 1)),
        ("an escape", last.replacen("completed", "\\u0063ompleted", 1)),
        ("an unknown field", last.replacen("{", "{\"a\":1,", 1)),
        ("a doubled key", last.replacen(",\"v\":1}", ",\"v\":1,\"v\":1}", 1)),
        ("a carriage return", format!("{last}\r")),
    ] {
        assert_ne!(altered, last, "{what}");
        let bytes = text.replace(last, &altered);
        assert!(verify_journal(bytes.as_bytes()).is_err(), "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_altered_byte_is_noticed(index in 0..GOLDEN.len(), mask in 1..=255u8) {
        let mut bytes = GOLDEN.to_vec();
        bytes[index] ^= mask;
        prop_assert!(verify_journal(&bytes).is_err());
    }

    #[test]
    fn any_inserted_or_removed_stretch_is_noticed(
        start in 0..GOLDEN.len(),
        length in 1..200usize,
        inserted in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let end = (start + length).min(GOLDEN.len());
        let bytes = [&GOLDEN[..start], &inserted, &GOLDEN[end..]].concat();
        prop_assume!(bytes != GOLDEN);
        prop_assert!(verify_with_head(&bytes, &GOLDEN_HEAD.parse().unwrap()).is_err());
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(verify_journal(&bytes).is_err());
    }
}
