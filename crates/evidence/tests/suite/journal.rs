//! Writing and resuming: order, kills, fencing, failing disks.

use std::io;

use coldframe_core::{ReadParams, ToolAnswer, ToolCall};
use coldframe_evidence::{
    EffectEnd, EvidenceErrorKind, FileSink, Journal, JournalSink, NextEpoch, Restored, StepResult,
    verify_journal,
};

use crate::fixture::{
    AT, context, digest, edit, effect, end_of, ending, header, ran, receipt_id, refused, run, write, written,
};

fn begun(bytes: &mut Vec<u8>) -> Journal<&mut Vec<u8>> {
    Journal::begin(bytes, header("w", "s", 1)).unwrap()
}

fn next(epoch: u64, restored: Restored) -> NextEpoch<'static> {
    NextEpoch { epoch, restored, at: AT }
}

#[test]
fn a_receipt_carries_what_the_runner_saw_and_its_own_id() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    let mut answer = written("a.txt", "", true);
    if let ToolAnswer::Mutation(mutation) = &mut answer {
        mutation.tool_receipt_id = Some(receipt_id("tool:other:s:9"));
    }
    let first = effect(&mut journal, &write("./a.txt", ""), Ok(answer), "d1");
    assert_eq!(first.id, receipt_id("tool:w:s:1"));
    assert_eq!(first.mutation().unwrap().tool_receipt_id, Some(first.id.clone()));
    assert_eq!((first.state_before, first.state_after), (digest("state"), digest("state d1")));
    let second = effect(&mut journal, &run(&["true"]), Err(refused()), "d1");
    assert_eq!((second.id.number, second.error), (2, Some(refused())));
    assert_eq!(second.record, journal.head());
    drop(journal);
    assert_eq!(verify_journal(&bytes).unwrap().receipts[0], first);
}

#[test]
fn reads_have_no_receipt() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    let read = ToolCall::Read(ReadParams { path: "a".to_owned(), start_line: 1, end_line: 1 });
    let error = journal.intent(&read, &context()).unwrap_err();
    assert_eq!(error.kind(), EvidenceErrorKind::Misuse);
    assert!(error.to_string().contains("workspace_read only reads"), "{error}");
}

#[test]
fn an_effect_out_of_order_writes_nothing() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    let ok = || Ok(written("a", "1", false));
    assert!(journal.outcome(&receipt_id("tool:w:s:1"), &ok(), &end_of("d")).is_err(), "no intent");
    let id = journal.intent(&write("a", "1"), &context()).unwrap();
    assert!(journal.intent(&edit("a"), &context()).is_err(), "two intents");
    assert!(journal.outcome(&receipt_id("tool:w:t:1"), &ok(), &end_of("d")).is_err(), "another step");
    assert!(journal.outcome(&id, &Ok(ran(&["true"], 0, "")), &end_of("d")).is_err(), "another tool");
    let late = EffectEnd { at: "yesterday", ..end_of("d") };
    assert!(journal.outcome(&id, &ok(), &late).is_err(), "no time");
    journal.outcome(&id, &ok(), &end_of("d")).unwrap();
    assert!(journal.outcome(&id, &ok(), &end_of("d")).is_err(), "a second outcome");
    journal.intent(&edit("a"), &context()).unwrap();
    assert!(journal.end(ending(StepResult::Completed)).is_err(), "completed with an effect in flight");
    assert_eq!(verify_journal(&bytes).unwrap().records, 4);
}

#[test]
fn a_kill_between_intent_and_outcome_leaves_an_interrupted_effect() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    let id = journal.intent(&run(&["make"]), &context()).unwrap();
    drop(journal);
    assert_eq!(verify_journal(&bytes).unwrap().unfinished, Some(id.clone()));

    let existing = bytes.clone();
    let (mut journal, resumed) =
        Journal::resume(&existing, &mut bytes, next(2, Restored::LastDelta)).unwrap();
    assert_eq!(resumed.interrupted, [id]);
    assert_eq!((resumed.last_delta, resumed.restored), (Some(digest("d1")), Some(digest("d1"))));
    assert!(!resumed.receipts[0].rolled_back);
    let again = effect(&mut journal, &run(&["make"]), Ok(ran(&["make"], 0, "")), "d2");
    assert_eq!((again.id.number, again.epoch), (3, 2));
    journal.end(ending(StepResult::Completed)).unwrap();
    let verified = verify_journal(&bytes).unwrap();
    assert_eq!((verified.receipts.len(), verified.interrupted.len()), (2, 1));
}

#[test]
fn a_kill_in_the_middle_of_a_write_costs_that_record_alone() {
    let mut whole = Vec::new();
    let mut journal = begun(&mut whole);
    effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    drop(journal);
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1).collect();
    for end in ends[0]..whole.len() {
        let mut bytes = whole[..end].to_vec();
        let existing = bytes.clone();
        let (mut journal, resumed) =
            Journal::resume(&existing, &mut bytes, next(2, Restored::Nothing)).unwrap();
        let complete = ends.iter().rfind(|complete| **complete <= end).unwrap();
        assert_eq!(resumed.dropped_bytes, (end - complete) as u64);
        effect(&mut journal, &write("b", "2"), Ok(written("b", "2", false)), "d2");
        journal.end(ending(StepResult::Completed)).unwrap();
        assert!(verify_journal(&bytes).unwrap().is_complete(), "cut at {end}");
    }
}

#[test]
fn a_kill_before_the_first_record_was_complete_begins_anew() {
    let mut whole = Vec::new();
    drop(begun(&mut whole));
    for end in [0, 1, 2, 40, whole.len() - 1] {
        let mut bytes = whole[..end].to_vec();
        let existing = bytes.clone();
        let error = Journal::resume(&existing, &mut bytes, next(2, Restored::Nothing)).err().unwrap();
        assert_eq!(error.kind(), EvidenceErrorKind::Empty);
        let (journal, resumed) =
            Journal::open(&existing, &mut bytes, header("w", "s", 2), Restored::Nothing).unwrap();
        assert_eq!(resumed.dropped_bytes, end as u64);
        drop(journal);
        assert_eq!(verify_journal(&bytes).unwrap().epoch, 2);
    }
}

#[test]
fn a_file_that_is_no_journal_is_never_cut() {
    for foreign in [&b"important notes"[..], b"a\nb", b"{\n", b"\x00\x00\x00"] {
        let mut bytes = foreign.to_vec();
        let result = Journal::open(foreign, &mut bytes, header("w", "s", 1), Restored::Nothing);
        assert_eq!(result.err().unwrap().kind(), EvidenceErrorKind::Integrity);
        assert_eq!(bytes, foreign);
    }
}

#[test]
fn a_damaged_journal_is_not_resumed() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    drop(journal);
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    let existing = bytes.clone();
    let error = Journal::resume(&existing, &mut bytes, next(2, Restored::Nothing)).err().unwrap();
    assert_eq!(error.kind(), EvidenceErrorKind::Integrity);
    assert!(error.to_string().contains("line 3"), "{error}");
    assert_eq!(bytes, existing);
}

#[test]
fn a_late_epoch_a_completed_step_and_a_foreign_journal_are_fenced() {
    let mut bytes = Vec::new();
    begun(&mut bytes).end(ending(StepResult::Failed)).unwrap();
    let existing = bytes.clone();
    let late = Journal::resume(&existing, &mut bytes, next(1, Restored::Nothing)).err().unwrap();
    assert_eq!(late.kind(), EvidenceErrorKind::Fenced);
    for foreign in [header("v", "s", 2), header("w", "t", 2)] {
        let error = Journal::open(&existing, &mut bytes, foreign, Restored::Nothing).err().unwrap();
        assert_eq!(error.kind(), EvidenceErrorKind::Misuse);
    }
    assert_eq!(bytes, existing);
    let (journal, _) = Journal::open(&existing, &mut bytes, header("w", "s", 2), Restored::Nothing).unwrap();
    journal.end(ending(StepResult::Completed)).unwrap();
    let existing = bytes.clone();
    assert!(Journal::resume(&existing, &mut bytes, next(3, Restored::Nothing)).is_err());
    assert_eq!(bytes, existing);
}

#[test]
fn effects_after_the_restored_delta_are_rolled_back_and_their_places_are_free_again() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    let lost = effect(&mut journal, &write("b", "1"), Ok(written("b", "1", false)), "d2");
    drop(journal);
    let existing = bytes.clone();
    let restored = Restored::Delta(digest("d1"));
    let (mut journal, resumed) = Journal::resume(&existing, &mut bytes, next(2, restored)).unwrap();
    let rolled: Vec<bool> = resumed.receipts.iter().map(|receipt| receipt.rolled_back).collect();
    assert_eq!(rolled, [false, true]);
    let again = effect(&mut journal, &write("b", "1"), Ok(written("b", "1", false)), "d2");
    assert_eq!((again.id.number, again.effect_key), (3, lost.effect_key));
    drop(journal);
    let verified = verify_journal(&bytes).unwrap();
    assert_eq!(verified.standing_effect(&lost.effect_key).unwrap().id, again.id);
    assert!(verified.receipt(&lost.id).unwrap().rolled_back);

    let existing = bytes.clone();
    let (_, resumed) = Journal::resume(&existing, &mut bytes, next(3, Restored::Nothing)).unwrap();
    assert!(resumed.receipts.iter().all(|receipt| receipt.rolled_back));
    assert_eq!(resumed.last_delta, Some(digest("d2")));
}

#[test]
fn an_exhausted_epoch_hands_its_effects_on_even_where_an_interrupted_one_left_something() {
    let mut bytes = Vec::new();
    let mut journal = begun(&mut bytes);
    let kept = effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    journal.intent(&run(&["make"]), &context()).unwrap();
    journal.end(ending(StepResult::Exhausted)).unwrap();
    let verified = verify_journal(&bytes).unwrap();
    assert_eq!((verified.is_complete(), verified.last_delta), (false, Some(digest("d9"))));
    let existing = bytes.clone();
    let (mut journal, resumed) =
        Journal::resume(&existing, &mut bytes, next(2, Restored::LastDelta)).unwrap();
    assert_eq!((resumed.restored, resumed.interrupted.len()), (Some(digest("d9")), 1));
    assert_eq!(resumed.receipts, [kept]);
    effect(&mut journal, &write("b", "1"), Ok(written("b", "1", false)), "d2");
    assert_eq!(journal.last_delta(), Some(digest("d2")));
}

/// Takes a few bytes of the line that comes next and then fails, as a full disk does.
#[derive(Default)]
struct FullDisk {
    bytes: Vec<u8>,
    is_full: bool,
    is_stuck: bool,
}

impl JournalSink for FullDisk {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_full {
            self.bytes.extend_from_slice(&line[..7]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        JournalSink::append(&mut self.bytes, line)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        if self.is_stuck {
            Err(io::Error::other("stuck"))
        } else {
            JournalSink::truncate(&mut self.bytes, length)
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_a_whole_journal_that_goes_on_when_there_is_room() {
    let mut journal = Journal::begin(FullDisk::default(), header("w", "s", 1)).unwrap();
    journal.sink_mut().is_full = true;
    let error = journal.intent(&write("a", "1"), &context()).unwrap_err();
    assert_eq!(error.kind(), EvidenceErrorKind::Io);
    assert_eq!(verify_journal(&journal.sink_mut().bytes).unwrap().records, 1);
    journal.sink_mut().is_full = false;
    effect(&mut journal, &write("a", "1"), Ok(written("a", "1", false)), "d1");
    assert_eq!(verify_journal(&journal.into_sink().bytes).unwrap().records, 3);
}

#[test]
fn a_record_that_cannot_be_taken_back_stops_the_journal() {
    let mut journal = Journal::begin(FullDisk::default(), header("w", "s", 1)).unwrap();
    (journal.sink_mut().is_full, journal.sink_mut().is_stuck) = (true, true);
    assert!(journal.intent(&write("a", "1"), &context()).is_err());
    (journal.sink_mut().is_full, journal.sink_mut().is_stuck) = (false, false);
    let error = journal.intent(&write("a", "1"), &context()).unwrap_err();
    assert!(error.to_string().contains("resume the journal"), "{error}");
    let mut disk = journal.into_sink();
    let existing = disk.bytes.clone();
    let (_, resumed) = Journal::resume(&existing, &mut disk, next(2, Restored::Nothing)).unwrap();
    assert_eq!(resumed.dropped_bytes, 7);
    assert!(verify_journal(&disk.bytes).is_ok());
}

#[test]
fn a_journal_on_disk_outlives_its_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.journal");
    let mut journal = Journal::begin(FileSink::create(&path).unwrap(), header("w", "s", 1)).unwrap();
    journal.intent(&write("a", "1"), &context()).unwrap();
    drop(journal);
    let (sink, bytes) = FileSink::open(&path).unwrap();
    let (journal, resumed) = Journal::open(&bytes, sink, header("w", "s", 2), Restored::LastDelta).unwrap();
    assert_eq!(resumed.interrupted, [receipt_id("tool:w:s:1")]);
    let head = journal.end(ending(StepResult::Completed)).unwrap();
    assert_eq!(verify_journal(&std::fs::read(&path).unwrap()).unwrap().head, head);
}
