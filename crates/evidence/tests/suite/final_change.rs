//! Cited changes against the final delta.

use coldframe_core::{
    DeltaChange, Digest, ExcludedCount, Node, SnapshotEntry, SnapshotManifest, SourceRef, SourceSnapshot,
    WorkspaceDelta, WorkspacePath,
};
use coldframe_evidence::{EvidenceErrorKind, FaultReason, Journal, Receipt, validate_against_delta};

use crate::fixture::{edit, effect, header, ran, refused, run, write, written};

fn entry(path: &str, node: Node) -> SnapshotEntry {
    SnapshotEntry { path: WorkspacePath::parse(path).unwrap(), node }
}

fn file(path: &str, content: &str, executable: bool) -> SnapshotEntry {
    let (digest, size) = (Digest::of(content.as_bytes()), content.len() as u64);
    entry(path, Node::File { digest, size, executable })
}

fn base() -> SourceSnapshot {
    let source = SourceRef::new("fixture", "x", "").unwrap();
    let entries = vec![file("kept.txt", "one\n", false), file("target/tracked.txt", "one\n", false)];
    SnapshotManifest { source, resolved_revision: String::new(), entries, omitted: vec![] }.seal().unwrap()
}

fn delta(changes: Vec<DeltaChange>) -> WorkspaceDelta {
    let excluded = vec![ExcludedCount { rule: "target".to_owned(), count: 1 }];
    WorkspaceDelta::new(base().id(), vec![], changes, excluded).unwrap()
}

fn added(entry: SnapshotEntry) -> DeltaChange {
    DeltaChange::Added { entry }
}

/// A receipt for each written file: path, content, executable.
fn receipts(files: &[(&str, &str, bool)]) -> Vec<Receipt> {
    let mut journal = Journal::begin(Vec::new(), header("w", "s", 1)).unwrap();
    files
        .iter()
        .map(|(path, content, executable)| {
            let answer = written(path, content, *executable);
            effect(&mut journal, &write(path, content), Ok(answer), "d")
        })
        .collect()
}

fn reasons(cited: &[Receipt], delta: &WorkspaceDelta) -> Vec<FaultReason> {
    let error = validate_against_delta(cited, &base(), delta).expect_err("the citation was accepted");
    assert_eq!(error.kind(), EvidenceErrorKind::NoFinalChange);
    error.faults().iter().map(|fault| fault.reason).collect()
}

#[test]
fn what_stands_in_the_delta_is_accepted() {
    let cited = receipts(&[
        ("new.txt", "new\n", false),
        ("kept.txt", "two\n", false),
        ("empty", "", false),
        ("run.sh", "#!/bin/sh\n", true),
        ("./sub//f.txt", "f\n", false),
        ("target/tracked.txt", "two\n", false),
    ]);
    let delta = delta(vec![
        added(file("new.txt", "new\n", false)),
        DeltaChange::Modified { entry: file("kept.txt", "two\n", false) },
        added(file("empty", "", false)),
        added(file("run.sh", "#!/bin/sh\n", true)),
        added(file("sub/f.txt", "f\n", false)),
        DeltaChange::Modified { entry: file("target/tracked.txt", "two\n", false) },
    ]);
    validate_against_delta(&cited, &base(), &delta).unwrap();
}

#[test]
fn a_receipt_overwritten_by_a_later_effect_is_refused_and_the_later_one_stands() {
    let cited = receipts(&[("new.txt", "one\n", false), ("new.txt", "two\n", false)]);
    let delta = delta(vec![added(file("new.txt", "two\n", false))]);
    assert_eq!(reasons(&cited, &delta), [FaultReason::Superseded]);
    validate_against_delta(&cited[1..], &base(), &delta).unwrap();
}

#[test]
fn a_change_that_was_put_back_is_no_final_change() {
    let cited = receipts(&[("kept.txt", "two\n", false), ("kept.txt", "one\n", false), ("gone", "1", false)]);
    let error = validate_against_delta(&cited, &base(), &delta(vec![])).unwrap_err();
    let messages: Vec<&str> = error.faults().iter().map(|fault| fault.message.as_str()).collect();
    assert!(messages.iter().all(|message| message.starts_with("no final change: ")), "{messages:?}");
    assert_eq!(reasons(&cited, &delta(vec![])), [FaultReason::NoFinalChange; 3]);
}

#[test]
fn a_deleted_replaced_or_remoded_file_is_refused() {
    let cited = receipts(&[
        ("kept.txt", "two\n", false),
        ("link", "1", false),
        ("dir", "1", false),
        ("mode", "1", false),
    ]);
    let delta = delta(vec![
        DeltaChange::Deleted { path: WorkspacePath::parse("kept.txt").unwrap() },
        added(entry("link", Node::Symlink { target: "x".to_owned() })),
        added(entry("dir", Node::Directory)),
        added(file("mode", "1", true)),
    ]);
    assert_eq!(reasons(&cited, &delta), [FaultReason::Superseded; 4]);
}

#[test]
fn a_path_that_a_rule_keeps_out_is_refused_with_the_rule() {
    let cited = receipts(&[("target/debug/out.txt", "1", false)]);
    let error = validate_against_delta(&cited, &base(), &delta(vec![])).unwrap_err();
    assert_eq!(error.faults()[0].reason, FaultReason::Excluded);
    assert_eq!(error.faults()[0].place, "tool:w:s:1");
    assert!(error.to_string().contains("the rule \"target\""), "{error}");
}

#[test]
fn commands_pass_and_failed_calls_do_not() {
    let mut journal = Journal::begin(Vec::new(), header("w", "s", 1)).unwrap();
    let command = effect(&mut journal, &run(&["make"]), Ok(ran(&["make"], 2, "")), "d");
    validate_against_delta([&command], &base(), &delta(vec![])).unwrap();
    let failed = effect(&mut journal, &edit("kept.txt"), Err(refused()), "d");
    assert_eq!(reasons(&[failed], &delta(vec![])), [FaultReason::NoObservation]);
}

#[test]
fn a_delta_of_another_base_proves_nothing() {
    let foreign = WorkspaceDelta::new(Digest::of(b"other"), vec![], vec![], vec![]).unwrap();
    let error = validate_against_delta([], &base(), &foreign).unwrap_err();
    assert_eq!(error.kind(), EvidenceErrorKind::Misuse);
}
