//! The receipts of one workflow by id, taken from verified journals.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::{Id, ReceiptId};
use serde_json::Value;

use crate::{EvidenceError, Receipt, VerifiedJournal};

/// The receipts of a workflow's steps.
#[derive(Debug, Clone)]
pub struct ReceiptBook {
    workflow: Id,
    steps: BTreeSet<Id>,
    receipts: BTreeMap<ReceiptId, Receipt>,
    interrupted: BTreeSet<ReceiptId>,
}

impl ReceiptBook {
    /// An empty book of `workflow`.
    pub fn new(workflow: Id) -> Self {
        Self { workflow, steps: BTreeSet::new(), receipts: BTreeMap::new(), interrupted: BTreeSet::new() }
    }

    /// The workflow.
    pub fn workflow(&self) -> &Id {
        &self.workflow
    }

    /// Adds the receipts of a step. A journal of another workflow and a second journal of one step are refused.
    pub fn add(&mut self, journal: VerifiedJournal) -> Result<(), EvidenceError> {
        if journal.header.workflow != self.workflow {
            let detail = format!(
                "the journal is that of workflow {}, the book that of {}",
                journal.header.workflow, self.workflow
            );
            return Err(EvidenceError::Misuse(detail));
        }
        if !self.steps.insert(journal.header.step.clone()) {
            let detail = format!("the book has a journal of step {} already", journal.header.step);
            return Err(EvidenceError::Misuse(detail));
        }
        self.receipts.extend(journal.receipts.into_iter().map(|receipt| (receipt.id.clone(), receipt)));
        self.interrupted.extend(journal.interrupted.into_iter().chain(journal.unfinished));
        Ok(())
    }

    /// The receipt of an id.
    pub fn receipt(&self, id: &ReceiptId) -> Option<&Receipt> {
        self.receipts.get(id)
    }

    /// Whether the effect was begun and nothing else is known of it.
    pub fn is_interrupted(&self, id: &ReceiptId) -> bool {
        self.interrupted.contains(id)
    }

    /// The receipts, sorted by step and number.
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.values()
    }

    /// The receipts that a value cites, each once, sorted. Use it on a hydrated value, where every citation is
    /// known to be good.
    pub fn cited(&self, value: &Value) -> Vec<&Receipt> {
        let mut ids = BTreeSet::new();
        let mut waiting = vec![value];
        while let Some(value) = waiting.pop() {
            match value {
                Value::Object(map) => {
                    let id = map.get(crate::claim::RECEIPT_KEY).and_then(Value::as_str);
                    ids.extend(id.and_then(|text| ReceiptId::parse(text).ok()));
                    waiting.extend(map.values());
                }
                Value::Array(items) => waiting.extend(items),
                _ => {}
            }
        }
        ids.iter().filter_map(|id| self.receipts.get(id)).collect()
    }
}
