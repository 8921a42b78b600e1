//! The undo journal of an apply: kept in the state folder, where no source can write one.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use coldframe_core::Digest;
use serde::{Deserialize, Serialize};

use super::actions::{Action, Staging};
use super::directory::{Directory, is_absence};
use crate::{Error, Kind};

/// How far an apply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// New contents are being written, or what was moved is back; no path of the directory is touched.
    Staging,
    /// The moves are under way, and have to be undone where the process ends now.
    Applying,
    /// All moves are done; the staging folder is left over.
    Done,
}

/// What stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) format: u64,
    pub(super) directory: PathBuf,
    pub(super) staging: String,
    pub(super) phase: Phase,
    pub(super) actions: Vec<Action>,
}

/// The journal of one directory, which no other process has while this one lives.
#[derive(Debug)]
pub(super) struct ApplyJournal {
    file: PathBuf,
    _lock: File,
}

impl ApplyJournal {
    /// Takes the journal of the directory with the canonical path `directory`.
    pub(super) fn lock(folder: &Path, directory: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::io("open the journal of the apply", &error);
        crate::home::make_private(folder).map_err(failed)?;
        let name = Digest::of(directory.as_os_str().as_encoded_bytes()).to_string();
        let lock = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(folder.join(format!("{name}.lock")))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { file: folder.join(format!("{name}.json")), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another apply to {directory:?} is under way; wait for it");
                Err(Error::new(Kind::Conflict, message))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("write the journal of the apply", &error);
        let unfinished = self.file.with_extension("new");
        let mut file = File::create(&unfinished).map_err(failed)?;
        let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        file.write_all(&text).map_err(failed)?;
        std::fs::rename(&unfinished, &self.file).map_err(failed)
    }

    pub(super) fn remove(&self) -> Result<(), Error> {
        std::fs::remove_file(&self.file).map_err(|error| Error::io("remove the journal of the apply", &error))
    }

    /// Undoes what a process that was killed left behind. True where there was something to undo.
    pub(super) fn recover(&self, directory: &Directory) -> Result<bool, Error> {
        let text = match std::fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io("read the journal of the apply", &error)),
        };
        let mut record: Record = serde_json::from_slice(&text).map_err(|error| {
            let message = format!("the journal {:?} of an interrupted apply is damaged: {error}", self.file);
            Error::new(Kind::Integrity, message)
        })?;
        if record.format != 1 {
            let message =
                format!("the journal {:?} has format {}, this version reads 1", self.file, record.format);
            return Err(Error::new(Kind::Contract, message));
        }
        let was_applying = record.phase == Phase::Applying;
        match Staging::open(directory, &record.staging) {
            Ok(staging) if was_applying => {
                undo_all(directory, &staging, &record.actions)?;
                // From here on parts of the staging folder may be gone, and nothing is left to undo.
                record.phase = Phase::Staging;
                self.write(&record)?;
            }
            Ok(_) => {}
            // Killed while the staging folder was made or removed: parts of it may be there.
            Err(error) if is_absence(&error) && !was_applying => {}
            Err(error) => return Err(Error::io("open the staging folder of an interrupted apply", &error)),
        }
        remove_staging(directory, &record.staging)
            .map_err(|error| Error::io("remove the staging folder", &error))?;
        self.remove()?;
        Ok(was_applying)
    }
}

impl Staging {
    pub(super) fn create(directory: &Directory, name: &str) -> io::Result<Self> {
        directory.make_directory(name, 0o700)?;
        let folder = directory.child(name)?;
        folder.make_directory("new", 0o700)?;
        folder.make_directory("old", 0o700)?;
        Self::open(directory, name)
    }

    fn open(directory: &Directory, name: &str) -> io::Result<Self> {
        let folder = directory.child(name)?;
        Ok(Self { new: folder.child("new")?, old: folder.child("old")? })
    }
}

/// Undoes the moves, the last one first; each is undone even where a later one could not be.
pub(super) fn undo_all(directory: &Directory, staging: &Staging, actions: &[Action]) -> Result<(), Error> {
    let mut failures = Vec::new();
    for (number, action) in actions.iter().enumerate().rev() {
        if let Err(error) = action.undo(number, directory, staging) {
            failures.push(format!("{:?}: {error}", action.path.as_str()));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the apply could not be undone at {}; what stood there is kept in the folder .coldframe-apply-… of the directory",
        failures.join(", ")
    );
    Err(Error::new(Kind::System, message))
}

/// Removes the staging folder with everything that is left in it.
pub(super) fn remove_staging(directory: &Directory, name: &str) -> io::Result<()> {
    let folder = match directory.child(name) {
        Ok(folder) => folder,
        Err(error) if is_absence(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for part in ["new", "old"] {
        let Ok(inner) = folder.child(part) else { continue };
        for leaf in inner.names_here()? {
            if let Some(leaf) = leaf.to_str() {
                inner.remove_file(leaf)?;
            }
        }
        folder.remove_directory(part)?;
    }
    directory.remove_directory(name)
}
