//! Puts the runner's records in the place of what an output says about commands and files.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::{Id, ReceiptId};
use serde_json::{Map, Value};

use crate::bounds::{Walk, bounded, weigh};
use crate::claim::{RECEIPT_KEY, contradictions, unreceipted};
use crate::error::{FaultReason, shown};
use crate::{EvidenceError, Observation, Receipt, ReceiptBook};

/// What an output may cite.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The workflow of the step that speaks.
    pub workflow: &'a Id,
    /// The step itself and those that it depends on, directly or through others: a copied output keeps the
    /// receipts of the step that made them.
    pub visible_steps: &'a BTreeSet<Id>,
    /// Whether facts about commands and files without a receipt are refused.
    pub require_receipts: bool,
}

/// Replaces every object that has a `tool_receipt_id` by the record of that receipt, whole: what else stood in
/// it vanishes, and a fact that differs from the receipt's is an error. All errors are reported at once, each
/// with its JSON path.
///
/// Where receipts are required, an object is refused that has no receipt and states a `command` with any of
/// `exit_code`, `signal`, `timed_out`, `stdout`, `stderr`, `duration_ms`, `observed_at`, or a `path` with any of
/// `sha256`, `digest`, `executable`; a value of null states nothing. What is **not** recognised as a claim: the
/// same facts under other keys (`cmd`, `rc`), facts spread over several objects or lists, and prose. They stay
/// in the output as what they are, the author's words; a reader who wants facts reads objects with a
/// `tool_receipt_id` only.
///
/// An already hydrated value passes unchanged.
pub fn hydrate_receipt_evidence(
    value: Value,
    book: &ReceiptBook,
    scope: &Scope<'_>,
) -> Result<Value, EvidenceError> {
    let mut value = bounded(value).map_err(|fault| EvidenceError::Citations(vec![fault]))?;
    let mut hydration = Hydration { book, scope, walk: Walk::new(), records: BTreeMap::new() };
    hydration.visit(&mut value);
    let faults = hydration.walk.into_faults();
    if faults.is_empty() { Ok(value) } else { Err(EvidenceError::Citations(faults)) }
}

struct Hydration<'a> {
    book: &'a ReceiptBook,
    scope: &'a Scope<'a>,
    walk: Walk,
    /// The records as JSON with their weight, so that a receipt cited often is turned into JSON once.
    records: BTreeMap<ReceiptId, (Map<String, Value>, usize)>,
}

impl<'a> Hydration<'a> {
    /// Recurses at most as deep as the bound that the value has passed.
    fn visit(&mut self, value: &mut Value) {
        if let Value::Object(map) = value {
            if map.contains_key(RECEIPT_KEY) {
                if let Some(record) = self.citation(map) {
                    *value = Value::Object(record);
                }
                return;
            }
            if self.scope.require_receipts
                && let Some(message) = unreceipted(map)
            {
                self.walk.fault(FaultReason::Unreceipted, message);
            }
        }
        Walk::children(self, value, |hydration| &mut hydration.walk, Self::visit);
    }

    fn citation(&mut self, stated: &Map<String, Value>) -> Option<Map<String, Value>> {
        let receipt = match self.find(stated.get(RECEIPT_KEY)) {
            Ok(receipt) => receipt,
            Err((reason, message)) => {
                self.walk.fault(reason, message);
                return None;
            }
        };
        let (record, weight) = match self.records.get(&receipt.id) {
            Some(known) => known,
            None => {
                let record = record_of(receipt)?;
                let weight = weigh(&Value::Object(record.clone())).bytes;
                self.records.entry(receipt.id.clone()).or_insert((record, weight))
            }
        };
        let found = contradictions(stated, record, receipt.command().is_some());
        if !found.is_empty() {
            for (reason, message) in found {
                self.walk.fault(reason, format!("{}: {message}", receipt.id));
            }
            return None;
        }
        self.walk.grow(*weight).then(|| record.clone())
    }

    fn find(&self, id: Option<&Value>) -> Result<&'a Receipt, (FaultReason, String)> {
        let unknown = |detail: String| (FaultReason::UnknownReceipt, detail);
        let Some(Value::String(text)) = id else {
            let found = shown(&id.unwrap_or(&Value::Null).to_string());
            return Err(unknown(format!("{RECEIPT_KEY:?} must be the id of a receipt as text, got {found}")));
        };
        let id = ReceiptId::parse(text).map_err(|_| {
            unknown(format!(
                "{} is not the id of a receipt; cite the {RECEIPT_KEY} of an answer of workspace_run, workspace_write or workspace_edit, a read has none",
                shown(text)
            ))
        })?;
        if id.workflow != *self.scope.workflow || id.workflow != *self.book.workflow() {
            let detail =
                format!("{id} belongs to another workflow; cite receipts of {}", self.scope.workflow);
            return Err((FaultReason::ForeignWorkflow, detail));
        }
        if !self.scope.visible_steps.contains(&id.step) {
            let detail = format!("{id} belongs to a step that this one does not depend on");
            return Err((FaultReason::InvisibleStep, detail));
        }
        let receipt = match self.book.receipt(&id) {
            Some(receipt) => receipt,
            None if self.book.is_interrupted(&id) => {
                let detail = format!("{id} was interrupted, so nothing is known of it; run the tool again");
                return Err((FaultReason::NoObservation, detail));
            }
            None => return Err(unknown(format!("there is no receipt {id}"))),
        };
        if receipt.rolled_back {
            let detail = format!("the work of {id} was thrown away with its epoch; run the tool again");
            return Err((FaultReason::RolledBack, detail));
        }
        if receipt.observation == Observation::None {
            let why = receipt.error.as_ref().map_or("", |error| error.message.as_str());
            let detail = format!("the call of {id} failed, so it shows nothing: {}", shown(why));
            return Err((FaultReason::NoObservation, detail));
        }
        Ok(receipt)
    }
}

fn record_of(receipt: &Receipt) -> Option<Map<String, Value>> {
    let value = match &receipt.observation {
        Observation::Command(observation) => serde_json::to_value(observation),
        Observation::Mutation(mutation) => serde_json::to_value(mutation),
        Observation::None => return None,
    };
    match value {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}
