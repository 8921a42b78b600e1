//! The rules of a journal: which record may follow which. The writer and the verifier share them.

use coldframe_core::{Digest, ReceiptId, ToolStatus};

use crate::receipt::{Observation, Receipt};
use crate::record::{Ending, Header, Intent, Outcome, Record, StepResult};
use crate::{EffectKey, EvidenceError};

/// What a record did.
pub(crate) enum Accepted {
    /// Nothing that receipts show.
    Nothing,
    /// It closed an effect.
    Receipt(Box<Receipt>),
    /// It closed an effect of which nothing is known.
    Interrupted(ReceiptId),
    /// It began an epoch without the effects of these numbers, ascending.
    RolledBack(Vec<u64>),
}

struct OpenEffect {
    intent: Intent,
    record: Digest,
}

struct Standing {
    number: u64,
    /// The delta after it.
    delta: Option<Digest>,
    /// The delta of the latest end that followed it; it differs where an interrupted effect left something.
    end_delta: Option<Digest>,
}

/// Where a journal stands.
pub(crate) struct Ledger {
    header: Header,
    epoch: u64,
    records: u64,
    head: Digest,
    numbered: u64,
    open: Option<OpenEffect>,
    /// The effects that stand in the workspace. Each is pushed and popped once, so that many epochs cost no
    /// more than their records.
    standing: Vec<Standing>,
    ending: Option<Ending>,
    last_delta: Option<Digest>,
}

impl Ledger {
    /// Starts with the first record, whose hash is `head`.
    pub(crate) fn start(header: Header, head: Digest) -> Self {
        Self {
            epoch: header.epoch,
            header,
            records: 1,
            head,
            numbered: 0,
            open: None,
            standing: Vec::new(),
            ending: None,
            last_delta: None,
        }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn head(&self) -> Digest {
        self.head
    }

    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    pub(crate) fn last_delta(&self) -> Option<Digest> {
        self.last_delta
    }

    /// The effect whose outcome is missing.
    pub(crate) fn open(&self) -> Option<&ReceiptId> {
        self.open.as_ref().map(|open| &open.intent.receipt)
    }

    /// The id that the next effect gets.
    pub(crate) fn next_receipt(&self) -> ReceiptId {
        ReceiptId {
            workflow: self.header.workflow.clone(),
            step: self.header.step.clone(),
            number: self.numbered + 1,
        }
    }

    /// The place of the next effect among those that stand, from 1.
    pub(crate) fn next_effect(&self) -> u64 {
        self.standing.len() as u64 + 1
    }

    /// Says why `record` may not follow; a record that passes is taken by [`Ledger::apply`].
    pub(crate) fn check(&self, record: &Record) -> Result<(), EvidenceError> {
        let refuse = |detail: String| Err(EvidenceError::Misuse(detail));
        let is_epoch = matches!(record, Record::Epoch { .. });
        match &self.ending {
            Some(ending) if !is_epoch || ending.result == StepResult::Completed => {
                return refuse("the journal has ended; nothing may follow".to_owned());
            }
            _ => {}
        }
        match record {
            Record::Begin(_) => refuse("the journal has begun already".to_owned()),
            Record::Intent(intent) => self.check_intent(intent),
            Record::Outcome(outcome) => {
                self.check_open(&outcome.receipt)?;
                self.check_outcome(outcome)
            }
            Record::Interrupted { receipt, at } => {
                self.check_open(receipt)?;
                check_time(at)
            }
            Record::Epoch { epoch, at, .. } => {
                self.check_closed()?;
                if *epoch <= self.epoch {
                    return Err(EvidenceError::Fenced { asked: *epoch, current: self.epoch });
                }
                check_time(at)
            }
            Record::End(ending) => {
                self.check_closed()?;
                check_time(&ending.at)
            }
        }
    }

    fn check_closed(&self) -> Result<(), EvidenceError> {
        match self.open() {
            None => Ok(()),
            Some(id) => Err(EvidenceError::Misuse(format!("{id} has no outcome yet; record that first"))),
        }
    }

    fn check_open(&self, receipt: &ReceiptId) -> Result<(), EvidenceError> {
        match self.open() {
            Some(open) if open == receipt => Ok(()),
            _ => {
                let detail = format!("{receipt} has no intent that waits for an outcome");
                Err(EvidenceError::Misuse(detail))
            }
        }
    }

    fn check_intent(&self, intent: &Intent) -> Result<(), EvidenceError> {
        self.check_closed()?;
        let expected = self.next_receipt();
        if intent.receipt != expected {
            let detail = format!("the next receipt is {expected}, not {}", intent.receipt);
            return Err(EvidenceError::Misuse(detail));
        }
        let effect = self.next_effect();
        let key = EffectKey::of(&expected.workflow, &expected.step, effect, &intent.call);
        if (intent.effect, intent.effect_key) != (effect, key) {
            let detail = format!("the effect of {expected} is number {effect} with key {key}");
            return Err(EvidenceError::Misuse(detail));
        }
        check_time(&intent.at)
    }

    fn check_outcome(&self, outcome: &Outcome) -> Result<(), EvidenceError> {
        let id = &outcome.receipt;
        let refuse = |detail: &str| Err(EvidenceError::Misuse(format!("{id}: {detail}")));
        let is_command = self.open.as_ref().is_some_and(|open| open.intent.call.is_command());
        match (&outcome.answer, &outcome.error) {
            (Some(answer), None) => {
                use coldframe_core::ToolAnswer::{Command, Mutation};
                let (of_command, receipt) = match answer {
                    Command(observation) => (true, &observation.tool_receipt_id),
                    Mutation(mutation) => (false, &mutation.tool_receipt_id),
                    _ => return refuse("the answer is that of a call that only reads"),
                };
                if of_command != is_command {
                    return refuse("the answer is that of another tool");
                }
                if receipt.as_ref() != Some(id) {
                    return refuse("the answer names another receipt");
                }
                if outcome.status != ToolStatus::Ok {
                    return refuse("a call with an answer ends as ok");
                }
            }
            (None, Some(error)) => {
                if error.status != outcome.status || outcome.status == ToolStatus::Ok {
                    return refuse("a call with an error ends as the error says, and never as ok");
                }
            }
            _ => return refuse("an outcome has either an answer or an error"),
        }
        check_time(&outcome.at)
    }

    /// Takes a record that [`Ledger::check`] let pass; `hash` is that of its line.
    pub(crate) fn apply(&mut self, record: Record, hash: Digest) -> Accepted {
        self.records += 1;
        self.head = hash;
        match record {
            Record::Begin(_) => Accepted::Nothing,
            Record::Intent(intent) => {
                self.numbered += 1;
                self.open = Some(OpenEffect { intent: *intent, record: hash });
                Accepted::Nothing
            }
            Record::Outcome(outcome) => match self.open.take() {
                Some(open) => self.close(open, *outcome, hash),
                None => Accepted::Nothing,
            },
            Record::Interrupted { receipt, .. } => {
                self.open = None;
                Accepted::Interrupted(receipt)
            }
            Record::Epoch { epoch, restored, .. } => {
                self.epoch = epoch;
                self.ending = None;
                self.last_delta = restored;
                Accepted::RolledBack(self.roll_back(restored))
            }
            Record::End(ending) => {
                self.last_delta = ending.delta.or(self.last_delta);
                if let Some(last) = self.standing.last_mut() {
                    last.end_delta = ending.delta;
                }
                self.ending = Some(ending);
                Accepted::Nothing
            }
        }
    }

    fn close(&mut self, open: OpenEffect, outcome: Outcome, hash: Digest) -> Accepted {
        let OpenEffect { intent, record } = open;
        let (number, delta) = (intent.receipt.number, outcome.delta);
        self.standing.push(Standing { number, delta, end_delta: None });
        self.last_delta = outcome.delta.or(self.last_delta);
        Accepted::Receipt(Box::new(Receipt {
            id: intent.receipt,
            epoch: self.epoch,
            call: intent.call,
            effect_key: intent.effect_key,
            status: outcome.status,
            observation: Observation::of(outcome.answer),
            error: outcome.error,
            state_before: intent.state,
            state_after: outcome.state,
            delta: outcome.delta,
            environment: intent.environment,
            policy: intent.policy,
            started_at: intent.at,
            ended_at: outcome.at,
            intent: record,
            record: hash,
            rolled_back: false,
        }))
    }

    /// Takes off the effects after the newest one that left the workspace at `restored`; all where none did.
    fn roll_back(&mut self, restored: Option<Digest>) -> Vec<u64> {
        let led_there = |effect: &Standing| {
            restored.is_some() && (effect.delta == restored || effect.end_delta == restored)
        };
        let mut numbers = Vec::new();
        while let Some(effect) = self.standing.pop_if(|effect| !led_there(effect)) {
            numbers.push(effect.number);
        }
        numbers.reverse();
        numbers
    }
}

/// Takes `2026-01-31T23:59:59Z`, with a fraction or an offset where there is one: the shape alone, since the
/// clock is the caller's.
pub(crate) fn check_time(text: &str) -> Result<(), EvidenceError> {
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let matches = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    let tail_is_legal = |tail: &[u8]| {
        (1..=20).contains(&tail.len())
            && tail
                .iter()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-' | b':' | b'Z'))
    };
    match bytes.split_at_checked(shape.len()) {
        Some((head, tail)) if head.iter().zip(shape).all(matches) && tail_is_legal(tail) => Ok(()),
        _ => {
            let detail =
                format!("a time is RFC 3339 such as 2026-01-31T23:59:59Z, got {}", crate::error::shown(text));
            Err(EvidenceError::Misuse(detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_time;

    #[test]
    fn a_time_has_the_shape_of_rfc_3339() {
        for good in ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.123456789Z", "2026-01-31T23:59:59+01:00"] {
            assert!(check_time(good).is_ok(), "{good}");
        }
        for bad in
            ["", "now", "2026-01-31", "2026-01-31T23:59:59", "2026-01-31 23:59:59Z", "2026-01-31T23:59:59Z\n"]
        {
            assert!(check_time(bad).is_err(), "{bad:?}");
        }
    }
}
