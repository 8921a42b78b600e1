//! Verifies a journal offline: the chain, the form and the order of its records.

use coldframe_core::{Digest, ReceiptId};

use crate::ledger::{Accepted, Ledger, check_time};
use crate::record::{Ending, Header, NO_RECORD, Record, StepResult, decode};
use crate::{EffectKey, EvidenceError, Receipt};

/// A journal whose every record fits the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedJournal {
    /// What the journal is about, with its first epoch.
    pub header: Header,
    /// The newest epoch.
    pub epoch: u64,
    /// How many records it has.
    pub records: u64,
    /// The hash of the last record.
    pub head: Digest,
    /// The effects with an outcome, in order, those that were rolled back included.
    pub receipts: Vec<Receipt>,
    /// The effects of which nothing but the intent is known, in order, without `unfinished`.
    pub interrupted: Vec<ReceiptId>,
    /// The effect at the end of the journal that has neither outcome nor interruption.
    pub unfinished: Option<ReceiptId>,
    /// The newest delta that the journal names.
    pub last_delta: Option<Digest>,
    /// How the newest epoch ended, where it has.
    pub ending: Option<Ending>,
}

impl VerifiedJournal {
    /// Whether the step was completed.
    pub fn is_complete(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.result == StepResult::Completed)
    }

    /// The receipt of an id of this journal.
    pub fn receipt(&self, id: &ReceiptId) -> Option<&Receipt> {
        let index = self.receipts.binary_search_by_key(&id.number, |receipt| receipt.id.number).ok()?;
        Some(&self.receipts[index]).filter(|receipt| receipt.id == *id)
    }

    /// The receipt of an effect that stands in the workspace: a repetition of it may answer with that outcome.
    pub fn standing_effect(&self, key: &EffectKey) -> Option<&Receipt> {
        self.receipts.iter().rev().find(|receipt| receipt.effect_key == *key && !receipt.rolled_back)
    }
}

/// Verifies the bytes of a journal. A byte that was altered and a record that was taken out, put in, doubled or
/// moved are errors that name the line, and so is a line that a kill cut short ([`crate::Journal::resume`] drops
/// it). That whole records are missing at the end cannot be seen: [`verify_with_head`] sees it.
pub fn verify_journal(bytes: &[u8]) -> Result<VerifiedJournal, EvidenceError> {
    let whole = whole_lines(bytes)?;
    let read = read_lines(whole)?;
    if whole.len() < bytes.len() {
        return Err(EvidenceError::Cut { line: read.ledger.records() + 1 });
    }
    Ok(VerifiedJournal {
        header: read.ledger.header().clone(),
        epoch: read.ledger.epoch(),
        records: read.ledger.records(),
        head: read.ledger.head(),
        receipts: read.receipts,
        interrupted: read.interrupted,
        unfinished: read.ledger.open().cloned(),
        last_delta: read.ledger.last_delta(),
        ending: read.ledger.ending().cloned(),
    })
}

/// Verifies a journal and that its last record is the one recorded as `head`.
pub fn verify_with_head(bytes: &[u8], head: &Digest) -> Result<VerifiedJournal, EvidenceError> {
    let journal = verify_journal(bytes)?;
    if journal.head != *head {
        return Err(EvidenceError::Head { expected: *head, found: journal.head });
    }
    Ok(journal)
}

pub(crate) struct ReadLines {
    pub(crate) ledger: Ledger,
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) interrupted: Vec<ReceiptId>,
}

/// The bytes up to the last line end. What follows must look like the start of a record, so that a file that is
/// no journal is never cut.
pub(crate) fn whole_lines(bytes: &[u8]) -> Result<&[u8], EvidenceError> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
    let (whole, cut) = bytes.split_at(end);
    const START: &[u8] = b"{\"";
    if !START.starts_with(&cut[..cut.len().min(START.len())]) {
        let place = whole.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        return Err(EvidenceError::journal(place, "it is not the start of a record"));
    }
    if whole.is_empty() { Err(EvidenceError::Empty) } else { Ok(whole) }
}

/// The first record of whole lines.
pub(crate) fn read_header(whole: &[u8]) -> Result<Header, EvidenceError> {
    let first = whole.split(|byte| *byte == b'\n').next().unwrap_or_default();
    begin(first).map(|(header, _)| header)
}

fn begin(text: &[u8]) -> Result<(Header, Digest), EvidenceError> {
    let line = decode(text, 1)?;
    if (line.number, line.previous) != (0, NO_RECORD) {
        return Err(EvidenceError::journal(1, "it is not the first record of a journal"));
    }
    let Record::Begin(header) = line.record else {
        return Err(EvidenceError::journal(1, "the first record must be the beginning"));
    };
    check_time(&header.started_at).map_err(|error| EvidenceError::journal(1, error.to_string()))?;
    Ok((header, Digest::of(text)))
}

/// Reads whole lines, each with its line end.
pub(crate) fn read_lines(whole: &[u8]) -> Result<ReadLines, EvidenceError> {
    let mut lines = whole.strip_suffix(b"\n").unwrap_or(whole).split(|byte| *byte == b'\n');
    let (header, head) = begin(lines.next().unwrap_or_default())?;
    let mut read =
        ReadLines { ledger: Ledger::start(header, head), receipts: Vec::new(), interrupted: Vec::new() };
    for (text, place) in lines.zip(2..) {
        let line = decode(text, place)?;
        if line.number != read.ledger.records() {
            let detail = format!("it is record {}, expected {}", line.number, read.ledger.records());
            return Err(EvidenceError::journal(place, detail));
        }
        if line.previous != read.ledger.head() {
            return Err(EvidenceError::journal(place, "it does not follow the record before it"));
        }
        read.ledger.check(&line.record).map_err(|error| EvidenceError::journal(place, error.to_string()))?;
        match read.ledger.apply(line.record, Digest::of(text)) {
            Accepted::Nothing => {}
            Accepted::Receipt(receipt) => read.receipts.push(*receipt),
            Accepted::Interrupted(id) => read.interrupted.push(id),
            Accepted::RolledBack(numbers) => mark_rolled_back(&mut read.receipts, &numbers),
        }
    }
    Ok(read)
}

/// Marks the receipts of these ascending numbers.
pub(crate) fn mark_rolled_back(receipts: &mut [Receipt], numbers: &[u64]) {
    for number in numbers {
        if let Ok(index) = receipts.binary_search_by_key(number, |receipt| receipt.id.number) {
            receipts[index].rolled_back = true;
        }
    }
}
