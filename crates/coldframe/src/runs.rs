//! Where runs are kept, and what their journals say: receipts found, shown and verified.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coldframe_core::{Digest, Id, ReceiptId};
use coldframe_evidence::{EvidenceErrorKind, Receipt, VerifiedJournal, verify_journal};
use coldframe_mesh::{FileRunStore, RunStore};
use serde::{Deserialize, Serialize};

use crate::session::blocking;
use crate::{Coldframe, Error, Kind};

const EXEC_RECORD: &str = "exec.json";
const MAX_RECORD_BYTES: u64 = 16 << 20;

pub(crate) fn steps_folder(runs: &Path, run: &Id) -> PathBuf {
    runs.join(run.as_str()).join("steps")
}

/// The journal of a step.
pub(crate) fn journal_file(runs: &Path, run: &Id, step: &Id) -> PathBuf {
    steps_folder(runs, run).join(format!("{step}.journal"))
}

/// Makes the folder of a new run with an id that no other run has.
pub(crate) fn create_run(runs: &Path, prefix: &str) -> Result<Id, Error> {
    use std::os::unix::fs::DirBuilderExt;
    loop {
        let id = fresh_id(prefix)?;
        match std::fs::DirBuilder::new().mode(0o700).create(runs.join(id.as_str())) {
            Ok(()) => {
                let folder = steps_folder(runs, &id);
                crate::home::make_private(&folder)
                    .map_err(|error| Error::io(format!("create {folder:?}"), &error))?;
                return Ok(id);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(format!("create a run in {runs:?}"), &error)),
        }
    }
}

/// `<prefix>` with eight digits that no other process makes at this moment.
pub(crate) fn fresh_id(prefix: &str) -> Result<Id, Error> {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()));
    Ok(Id::parse(format!("{prefix}{:08x}", random >> 32))?)
}

/// What one `exec` left; `runs/<run>/exec.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRecord {
    /// The format of this record: 1.
    pub format: u64,
    /// The run.
    pub run: Id,
    /// The step, whose journal has the receipt.
    pub step: Id,
    /// The snapshot.
    pub snapshot: Digest,
    /// The stored delta.
    pub delta: Digest,
    /// The head of the journal.
    pub receipts_head: Digest,
}

impl ExecRecord {
    pub(crate) fn save(&self, runs: &Path) -> Result<(), Error> {
        let folder = runs.join(self.run.as_str());
        let failed =
            |error: std::io::Error| Error::io(format!("write the record of run {}", self.run), &error);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        let unfinished = folder.join("exec.json.new");
        std::fs::write(&unfinished, text).map_err(failed)?;
        std::fs::rename(&unfinished, folder.join(EXEC_RECORD)).map_err(failed)
    }

    fn load(folder: &Path) -> Result<Option<Self>, Error> {
        use std::io::Read;
        let path = folder.join(EXEC_RECORD);
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("read {path:?}"), &error)),
        };
        let mut text = Vec::new();
        file.take(MAX_RECORD_BYTES)
            .read_to_end(&mut text)
            .map_err(|error| Error::io(format!("read {path:?}"), &error))?;
        let damaged = |detail: String| Error::new(Kind::Integrity, format!("{path:?} is damaged: {detail}"));
        let record: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if record.format == 1 {
            Ok(Some(record))
        } else {
            Err(Error::new(
                Kind::Contract,
                format!("{path:?} has format {}, this version reads 1", record.format),
            ))
        }
    }
}

/// How far the journal of a step could be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The chain is whole and ends with the recorded head.
    Verified,
    /// The chain is whole as far as it goes; the step has not published a head, so a missing tail cannot be seen.
    Unfinished,
}

/// The receipts of one step.
#[derive(Debug, Clone)]
pub struct StepReceipts {
    /// The step.
    pub step: Id,
    /// How far its journal could be verified.
    pub verification: Verification,
    /// The hash of the last record.
    pub head: Digest,
    /// How many records the journal has.
    pub records: u64,
    /// The receipts, in order.
    pub receipts: Vec<Receipt>,
    /// Effects that were begun and of which nothing else is known.
    pub interrupted: Vec<ReceiptId>,
}

impl Coldframe {
    /// The run that an id or a unique prefix of at least four characters names.
    ///
    /// # Errors
    ///
    /// `NotFound`, or `Contract` where several runs begin so.
    pub fn find_run(&self, text: &str) -> Result<Id, Error> {
        let runs = self.home().runs();
        if let Ok(id) = Id::parse(text)
            && runs.join(id.as_str()).is_dir()
        {
            return Ok(id);
        }
        let entries = std::fs::read_dir(&runs).map_err(|error| Error::io("list the runs", &error))?;
        let mut hits: Vec<Id> = entries
            .flatten()
            .filter_map(|entry| Id::parse(entry.file_name().into_string().ok()?).ok())
            .filter(|id| text.len() >= 4 && id.as_str().starts_with(text))
            .collect();
        hits.sort();
        match hits.as_slice() {
            [one] => Ok(one.clone()),
            [] => {
                let message = format!(
                    "there is no run {text:?} in {runs:?}; give its id or at least 4 characters of it"
                );
                Err(Error::new(Kind::NotFound, message))
            }
            several => {
                let names = several.iter().take(8).map(Id::as_str).collect::<Vec<_>>().join(", ");
                Err(Error::new(Kind::Contract, format!("several runs begin with {text:?}: {names}")))
            }
        }
    }

    /// Verifies the journal of each step of a run against the head that the run recorded.
    ///
    /// # Errors
    ///
    /// `Integrity` where a journal was altered, cut or removed; the message names the step and the line.
    pub async fn receipts(&self, run: &Id) -> Result<Vec<StepReceipts>, Error> {
        let heads = self.recorded_heads(run).await?;
        let (runs, run) = (self.home().runs(), run.clone());
        blocking(move || {
            let mut steps = Vec::new();
            for (step, head) in heads {
                let file = journal_file(&runs, &run, &step);
                match std::fs::read(&file) {
                    Ok(bytes) => steps.push(verified_step(&run, &step, &bytes, head.as_ref())?),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound && head.is_none() => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        let message =
                            format!("step {step} of run {run} is done, and its journal {file:?} is gone");
                        return Err(Error::new(Kind::Integrity, message));
                    }
                    Err(error) => return Err(Error::io(format!("read the journal {file:?}"), &error)),
                }
            }
            Ok(steps)
        })
        .await
    }

    /// Finds one receipt, in a journal that was verified for it.
    ///
    /// # Errors
    ///
    /// `NotFound` where the run, the step or the receipt does not exist; else as [`Coldframe::receipts`].
    pub async fn receipt(&self, id: &ReceiptId) -> Result<Receipt, Error> {
        let run = self.find_run(id.workflow.as_str())?;
        let missing = || Error::new(Kind::NotFound, format!("run {run} has no receipt {id}"));
        let steps = self.receipts(&run).await?;
        let step = steps.into_iter().find(|step| step.step == id.step).ok_or_else(missing)?;
        step.receipts.into_iter().find(|receipt| receipt.id == *id).ok_or_else(missing)
    }

    /// The steps of a run with the heads that it recorded for those that are done.
    async fn recorded_heads(&self, run: &Id) -> Result<BTreeMap<Id, Option<Digest>>, Error> {
        let runs = self.home().runs();
        if let Some(record) = ExecRecord::load(&runs.join(run.as_str()))? {
            return Ok(BTreeMap::from([(record.step, Some(record.receipts_head))]));
        }
        let store = FileRunStore::new(&runs);
        if store.runs()?.contains(run) {
            let (_, state) = store.load(run).await?;
            let head = |record: &coldframe_mesh::StepRecord| {
                record.completed.as_ref().map(|done| done.receipts_head)
            };
            return Ok(state.steps.iter().map(|(step, record)| (step.clone(), head(record))).collect());
        }
        journals_in(&steps_folder(&runs, run))
    }
}

/// The steps that have a journal, of a run that has recorded nothing: it was killed, or an embedder keeps it.
fn journals_in(folder: &Path) -> Result<BTreeMap<Id, Option<Digest>>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::io(format!("list {folder:?}"), &error))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| Id::parse(entry.file_name().to_str()?.strip_suffix(".journal")?).ok())
        .map(|step| (step, None))
        .collect())
}

fn verified_step(run: &Id, step: &Id, bytes: &[u8], head: Option<&Digest>) -> Result<StepReceipts, Error> {
    let wrong = |detail: String| Error::new(Kind::Integrity, format!("step {step} of run {run}: {detail}"));
    let journal = match (verify_journal(bytes), head) {
        (Ok(journal), _) => journal,
        (Err(error), None) if error.kind() == EvidenceErrorKind::Empty => {
            return Err(wrong(
                "its journal has no complete record; the run was stopped before it began".to_owned(),
            ));
        }
        (Err(error), _) => return Err(wrong(error.to_string())),
    };
    if journal.header.workflow != *run || journal.header.step != *step {
        return Err(wrong("its journal is that of another run or step".to_owned()));
    }
    if let Some(head) = head.filter(|head| **head != journal.head) {
        let detail = format!(
            "its journal ends with {}, the run recorded {head}: its end was cut or added to",
            journal.head
        );
        return Err(wrong(detail));
    }
    let verification = if head.is_some() { Verification::Verified } else { Verification::Unfinished };
    Ok(step_receipts(step, verification, journal))
}

fn step_receipts(step: &Id, verification: Verification, journal: VerifiedJournal) -> StepReceipts {
    let VerifiedJournal { head, records, receipts, mut interrupted, unfinished, .. } = journal;
    interrupted.extend(unfinished);
    StepReceipts { step: step.clone(), verification, head, records, receipts, interrupted }
}
