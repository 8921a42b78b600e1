//! Writes the journal of a step: an intent before each effect, an outcome after it.

use coldframe_core::{Digest, ReceiptId, ToolAnswer, ToolCall, ToolError, ToolStatus};

use crate::ledger::{Accepted, Ledger, check_time};
use crate::receipt::{Receipt, with_receipt};
use crate::record::{Ending, Header, Intent, NO_RECORD, Outcome, Record, StepResult, encode};
use crate::sink::JournalSink;
use crate::verify::{read_lines, whole_lines};
use crate::{EffectKey, EvidenceError, RecordedCall};

/// What holds when an effect begins.
#[derive(Debug, Clone, Copy)]
pub struct EffectContext<'a> {
    /// The state of the workspace, as [`coldframe_core::WorkspaceDelta::state`] names it.
    pub state: Digest,
    /// Names the environment that the effect runs in.
    pub environment: Digest,
    /// Names the policy that it runs under.
    pub policy: Digest,
    /// Now, RFC 3339.
    pub at: &'a str,
}

/// What holds when an effect has ended.
#[derive(Debug, Clone, Copy)]
pub struct EffectEnd<'a> {
    /// The state of the workspace.
    pub state: Digest,
    /// The id of the cumulative delta, where one was exported and stored.
    pub delta: Option<Digest>,
    /// Now, RFC 3339.
    pub at: &'a str,
}

/// What a further epoch of a step starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// The snapshot and the dependencies alone: every effect so far is thrown away.
    Nothing,
    /// The newest delta that the journal names; the same as [`Restored::Nothing`] where it names none.
    LastDelta,
    /// This delta; the effects after the one that led to it are thrown away.
    Delta(Digest),
}

/// A further epoch of a step.
#[derive(Debug, Clone, Copy)]
pub struct NextEpoch<'a> {
    /// Its number, greater than every one before.
    pub epoch: u64,
    /// What its workspace starts from.
    pub restored: Restored,
    /// Now, RFC 3339.
    pub at: &'a str,
}

/// What a journal held when it was taken up again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resumed {
    /// Effects that were begun and of which nothing else is known, those of earlier resumptions included.
    pub interrupted: Vec<ReceiptId>,
    /// The bytes of a record that a kill cut short; they are gone from the sink.
    pub dropped_bytes: u64,
    /// The newest delta that the journal named before this epoch.
    pub last_delta: Option<Digest>,
    /// The delta that the epoch starts from.
    pub restored: Option<Digest>,
    /// The receipts so far.
    pub receipts: Vec<Receipt>,
}

/// The journal of a step, open for writing. It allows one effect at a time.
///
/// A call that fails has written nothing. Where even that cannot be made sure, every later call fails, and the
/// journal has to be resumed from what the sink holds.
pub struct Journal<S> {
    sink: S,
    ledger: Ledger,
    length: u64,
    broken: bool,
}

impl<S: JournalSink> Journal<S> {
    /// Begins a journal in an empty sink.
    pub fn begin(mut sink: S, header: Header) -> Result<Self, EvidenceError> {
        check_time(&header.started_at)?;
        let record = Record::Begin(header.clone());
        let mut line = encode(&record, 0, NO_RECORD)?;
        let head = Digest::of(&line);
        line.push(b'\n');
        if let Err(source) = sink.append(&line) {
            // The error of the append is the one to report, and a cut first line is no journal to anyone.
            let _ = sink.truncate(0);
            return Err(EvidenceError::Sink { operation: "begin", source });
        }
        Ok(Self { sink, ledger: Ledger::start(header, head), length: line.len() as u64, broken: false })
    }

    /// Verifies what the sink holds, drops a last line that a kill cut short, records an effect that was in
    /// flight as interrupted, and begins the epoch. [`EvidenceError::Empty`] says that not even the first record
    /// is complete.
    pub fn resume(
        existing: &[u8],
        mut sink: S,
        next: NextEpoch<'_>,
    ) -> Result<(Self, Resumed), EvidenceError> {
        let whole = whole_lines(existing)?;
        let read = read_lines(whole)?;
        let dropped_bytes = (existing.len() - whole.len()) as u64;
        let last_delta = read.ledger.last_delta();
        let restored = match next.restored {
            Restored::Nothing => None,
            Restored::LastDelta => last_delta,
            Restored::Delta(delta) => Some(delta),
        };
        if next.epoch <= read.ledger.epoch() {
            return Err(EvidenceError::Fenced { asked: next.epoch, current: read.ledger.epoch() });
        }
        let length = whole.len() as u64;
        if dropped_bytes > 0 {
            sink.truncate(length).map_err(|source| EvidenceError::Sink { operation: "truncate", source })?;
        }
        let mut journal = Self { sink, ledger: read.ledger, length, broken: false };
        let mut resumed = Resumed {
            interrupted: read.interrupted,
            dropped_bytes,
            last_delta,
            restored,
            receipts: read.receipts,
        };
        if let Some(receipt) = journal.ledger.open().cloned() {
            journal.interrupt(&receipt, next.at)?;
            resumed.interrupted.push(receipt);
        }
        let record = Record::Epoch { epoch: next.epoch, restored, at: next.at.to_owned() };
        if let Accepted::RolledBack(numbers) = journal.commit(record)? {
            crate::verify::mark_rolled_back(&mut resumed.receipts, &numbers);
        }
        Ok((journal, resumed))
    }

    /// Begins the journal where `existing` has no complete record, else resumes it for `header.epoch`. A journal
    /// of another workflow, step or base is refused.
    pub fn open(
        existing: &[u8],
        mut sink: S,
        header: Header,
        restored: Restored,
    ) -> Result<(Self, Resumed), EvidenceError> {
        let whole = match whole_lines(existing) {
            Ok(whole) => whole,
            Err(EvidenceError::Empty) => {
                sink.truncate(0).map_err(|source| EvidenceError::Sink { operation: "truncate", source })?;
                let resumed = Resumed { dropped_bytes: existing.len() as u64, ..Resumed::default() };
                return Ok((Self::begin(sink, header)?, resumed));
            }
            Err(error) => return Err(error),
        };
        let found = crate::verify::read_header(whole)?;
        if (&found.workflow, &found.step, found.base) != (&header.workflow, &header.step, header.base) {
            let detail = format!(
                "the journal is that of workflow {}, step {}, base {}, not of {}, {}, {}; use another run id",
                found.workflow, found.step, found.base, header.workflow, header.step, header.base
            );
            return Err(EvidenceError::Misuse(detail));
        }
        Self::resume(existing, sink, NextEpoch { epoch: header.epoch, restored, at: &header.started_at })
    }

    /// Records that `call` is about to have an effect and gives the receipt's id. A call that only reads is
    /// refused: it has no receipt.
    pub fn intent(
        &mut self,
        call: &ToolCall,
        context: &EffectContext<'_>,
    ) -> Result<ReceiptId, EvidenceError> {
        let Some(recorded) = RecordedCall::of(call) else {
            let detail = format!("{} only reads; effects alone have receipts", call.name());
            return Err(EvidenceError::Misuse(detail));
        };
        let receipt = self.ledger.next_receipt();
        let effect = self.ledger.next_effect();
        let effect_key = EffectKey::of(&receipt.workflow, &receipt.step, effect, &recorded);
        self.commit(Record::Intent(Box::new(Intent {
            receipt: receipt.clone(),
            call: recorded,
            effect,
            effect_key,
            state: context.state,
            environment: context.environment,
            policy: context.policy,
            at: context.at.to_owned(),
        })))?;
        Ok(receipt)
    }

    /// Records how the effect ended. The receipt's id is filled into the answer, whatever stood there.
    pub fn outcome(
        &mut self,
        id: &ReceiptId,
        result: &Result<ToolAnswer, ToolError>,
        end: &EffectEnd<'_>,
    ) -> Result<Receipt, EvidenceError> {
        let (status, answer, error) = match result {
            Ok(answer) => {
                let Some(answer) = with_receipt(answer, id) else {
                    let detail = format!("{id}: the answer is that of a call that only reads");
                    return Err(EvidenceError::Misuse(detail));
                };
                (ToolStatus::Ok, Some(answer), None)
            }
            Err(error) => (error.status, None, Some(error.clone())),
        };
        let outcome = Outcome {
            receipt: id.clone(),
            status,
            answer,
            error,
            state: end.state,
            delta: end.delta,
            at: end.at.to_owned(),
        };
        match self.commit(Record::Outcome(Box::new(outcome)))? {
            Accepted::Receipt(receipt) => Ok(*receipt),
            _ => Err(EvidenceError::Misuse(format!("{id} has no intent that waits for an outcome"))),
        }
    }

    /// Records that nobody knows how the effect ended, as after a cancelled call.
    pub fn interrupt(&mut self, id: &ReceiptId, at: &str) -> Result<(), EvidenceError> {
        self.commit(Record::Interrupted { receipt: id.clone(), at: at.to_owned() }).map(|_| ())
    }

    /// Records the end of the epoch, makes the journal outlive a loss of power and gives its head. An effect in
    /// flight becomes interrupted, unless the step is to be completed: then it is an error.
    pub fn end(mut self, ending: Ending) -> Result<Digest, EvidenceError> {
        if ending.result != StepResult::Completed
            && let Some(receipt) = self.ledger.open().cloned()
        {
            self.interrupt(&receipt, &ending.at)?;
        }
        self.commit(Record::End(ending))?;
        self.sync()?;
        Ok(self.ledger.head())
    }

    /// Makes everything so far outlive a loss of power.
    pub fn sync(&mut self) -> Result<(), EvidenceError> {
        self.sink.sync().map_err(|source| EvidenceError::Sink { operation: "sync", source })
    }

    /// The hash of the last record.
    pub fn head(&self) -> Digest {
        self.ledger.head()
    }

    /// The effect whose outcome is missing.
    pub fn open_effect(&self) -> Option<&ReceiptId> {
        self.ledger.open()
    }

    /// The newest delta that the journal names.
    pub fn last_delta(&self) -> Option<Digest> {
        self.ledger.last_delta()
    }

    /// Where the lines go.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Gives the sink back without an end.
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn commit(&mut self, record: Record) -> Result<Accepted, EvidenceError> {
        if self.broken {
            let detail = "an earlier record could not be written nor taken back; resume the journal";
            return Err(EvidenceError::Misuse(detail.to_owned()));
        }
        self.ledger.check(&record)?;
        let mut line = encode(&record, self.ledger.records(), self.ledger.head())?;
        let hash = Digest::of(&line);
        line.push(b'\n');
        if let Err(source) = self.sink.append(&line) {
            self.broken = self.sink.truncate(self.length).is_err();
            return Err(EvidenceError::Sink { operation: "append to", source });
        }
        self.length += line.len() as u64;
        Ok(self.ledger.apply(record, hash))
    }
}
