//! Applies a delta to a directory that still equals its base: all of it or nothing, also when the process is killed.
//!
//! First everything is compared, and every difference is named. Then new contents are staged beside the files,
//! so that a full disk is met before anything changed. Then each path is changed by one rename, with what stood
//! there kept aside; where one of them fails, all are undone, and where the process is killed, the next apply to
//! that directory undoes them first. A loss of power in the middle is not provided for.

mod actions;
mod checks;
mod directory;
mod journal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use actions::{Action, Staging, Work};
pub use checks::Difference;
use coldframe_blob::Store;
use coldframe_core::{BlobStore, Node, SnapshotEntry, SourceSnapshot, Stored, WorkspaceDelta, WorkspacePath};
use coldframe_delta::{ApplyPlan, ApplyStep, plan_apply, plan_revert};
use directory::{Directory, Found, Kind as FoundKind};
use futures_util::StreamExt;
use journal::{ApplyJournal, Phase, Record, remove_staging, undo_all};
use serde_json::json;

use crate::runs::fresh_id;
use crate::session::blocking;
use crate::{Coldframe, Error, Kind};

/// Which way a delta is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// From the base to the result.
    #[default]
    Forward,
    /// From the result back to the base.
    Back,
}

/// How a delta is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApplyOptions {
    /// Which way.
    pub direction: Direction,
    /// Compares only and changes nothing.
    pub dry_run: bool,
}

/// What an apply did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The directory.
    pub directory: PathBuf,
    /// How many paths of the delta were applied, or would be.
    pub paths: usize,
    /// Whether an earlier apply that was killed had to be undone first.
    pub recovered: bool,
}

impl Coldframe {
    /// Applies a delta to `directory`, all or nothing. Only the paths that the delta touches are compared and
    /// changed; a symbolic link in the directory is never followed.
    ///
    /// # Errors
    ///
    /// `Conflict` where the directory differs from what the delta was made against, with every difference in the
    /// message and the details; `Refused` where the delta reaches into a `.git` folder; `Integrity` where contents are damaged; `System` where the disk fails. After each
    /// of them the directory is as it was.
    pub async fn apply(
        &self,
        delta: &WorkspaceDelta,
        directory: &Path,
        options: ApplyOptions,
    ) -> Result<Applied, Error> {
        check_harmless(delta)?;
        let base = self.store().load_snapshot(&delta.base()).await?;
        let plan = plan(&base, delta, options.direction)?;
        let job = Job {
            store: self.store().clone(),
            journals: self.home().root().join("applies"),
            directory: directory
                .canonicalize()
                .map_err(|error| Error::io(format!("open the directory {directory:?}"), &error))?,
            plan,
            paths: delta.changes().len(),
            dry_run: options.dry_run,
        };
        let runtime = tokio::runtime::Handle::current();
        blocking(move || job.run(&runtime)).await
    }
}

/// A hook or a configuration in a `.git` folder would be run by the user's next git command.
fn check_harmless(delta: &WorkspaceDelta) -> Result<(), Error> {
    let paths = || delta.changes().iter().map(coldframe_core::DeltaChange::path);
    let in_git = paths().find(|path| path.segments().any(means_git));
    match in_git.map(WorkspacePath::as_str).or_else(|| bare_repository(delta)) {
        None => Ok(()),
        Some(path) => {
            let message = format!(
                "the delta changes {path:?}, which git trusts; it is not applied, look at it with `delta show`"
            );
            Err(Error::new(Kind::Refused, message))
        }
    }
}

/// A folder that the delta makes into a repository without a `.git`: git finds it by these names, and runs what its
/// configuration names. The root is the empty path.
fn bare_repository(delta: &WorkspaceDelta) -> Option<&str> {
    const PARTS: [&str; 4] = ["head", "config", "objects", "refs"];
    let mut found: BTreeMap<&str, u8> = BTreeMap::new();
    for path in
        delta.changes().iter().filter(|change| change.node().is_some()).map(|change| change.path().as_str())
    {
        let mut start = 0;
        for segment in path.split('/') {
            if let Some(part) = PARTS.iter().position(|part| segment.eq_ignore_ascii_case(part)) {
                *found.entry(path[..start].trim_end_matches('/')).or_default() |= 1 << part;
            }
            start += segment.len() + 1;
        }
    }
    found.into_iter().find(|(_, parts)| *parts == 0b1111).map(|(folder, _)| folder)
}

/// True for every spelling that some file system takes for `.git`.
fn means_git(name: &str) -> bool {
    let ignorable = |letter: &char| !matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let plain: String = name.chars().filter(ignorable).collect::<String>().to_lowercase();
    let stem = plain.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    stem == ".git" || stem == "git~1"
}

fn plan(base: &SourceSnapshot, delta: &WorkspaceDelta, direction: Direction) -> Result<ApplyPlan, Error> {
    let mut plan = match direction {
        Direction::Forward => plan_apply(base, delta)?,
        Direction::Back => plan_revert(base, delta)?,
    };
    // A file of the directory may have other names elsewhere, so not even its mode is changed in place.
    for step in &mut plan.steps {
        let ApplyStep::SetExecutable { path, .. } = &*step else { continue };
        let node = match direction {
            Direction::Forward => delta.change(path.as_str()).and_then(coldframe_core::DeltaChange::node),
            Direction::Back => base.entry(path.as_str()).map(|entry| &entry.node),
        };
        if let Some(node) = node {
            *step = ApplyStep::WriteFile { entry: SnapshotEntry { path: path.clone(), node: node.clone() } };
        }
    }
    Ok(plan)
}

struct Job {
    store: Store,
    journals: PathBuf,
    directory: PathBuf,
    plan: ApplyPlan,
    paths: usize,
    dry_run: bool,
}

impl Job {
    fn run(self, runtime: &tokio::runtime::Handle) -> Result<Applied, Error> {
        let failed = |error: io::Error| Error::io(format!("open the directory {:?}", self.directory), &error);
        let directory = Directory::open(&self.directory).map_err(failed)?;
        let journal = ApplyJournal::lock(&self.journals, &self.directory)?;
        let recovered = journal.recover(&directory)?;
        let look = checks::look(&directory, &self.plan)?;
        if !look.differences.is_empty() {
            return Err(self.conflict(&look.differences));
        }
        if !self.dry_run && !self.plan.steps.is_empty() {
            self.change(&directory, &journal, &look.found, runtime)?;
        }
        Ok(Applied { directory: self.directory, paths: self.paths, recovered })
    }

    fn conflict(&self, differences: &[Difference]) -> Error {
        let mut message = format!(
            "{:?} is not what the delta was made against, and nothing was changed; put these paths right or capture anew:",
            self.directory
        );
        for difference in differences.iter().take(50) {
            message.push_str(&format!("\n  {:?}: {}", difference.path.as_str(), difference.problem));
        }
        if differences.len() > 50 {
            message.push_str(&format!("\n  and {} more", differences.len() - 50));
        }
        Error::new(Kind::Conflict, message).with_details(json!({ "differences": differences }))
    }

    fn change(
        &self,
        directory: &Directory,
        journal: &ApplyJournal,
        found: &BTreeMap<WorkspacePath, Found>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), Error> {
        let mut record = Record {
            format: 1,
            directory: self.directory.clone(),
            staging: format!(".{}", fresh_id("coldframe-apply-")?),
            phase: Phase::Staging,
            actions: actions_of(&self.plan, found),
        };
        journal.write(&record)?;
        let result = self.staged_change(directory, journal, found, &mut record, runtime);
        // Moves that could not all be undone keep their originals and their journal for the next try.
        if result.as_ref().is_err_and(|(_, undone)| !undone) {
            return result.map_err(|(error, _)| error);
        }
        remove_staging(directory, &record.staging)
            .map_err(|error| Error::io("remove the staging folder", &error))?;
        journal.remove()?;
        result.map_err(|(error, _)| error)
    }

    /// Stages and moves. An error says whether everything is as it was before.
    fn staged_change(
        &self,
        directory: &Directory,
        journal: &ApplyJournal,
        found: &BTreeMap<WorkspacePath, Found>,
        record: &mut Record,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), (Error, bool)> {
        let intact = |error: Error| (error, true);
        let staging = Staging::create(directory, &record.staging)
            .map_err(|error| intact(Error::io("create the staging folder", &error)))?;
        for (number, step) in self.plan.steps.iter().enumerate() {
            self.stage(number, step, found, &staging, runtime).map_err(intact)?;
        }
        record.phase = Phase::Applying;
        journal.write(record).map_err(intact)?;
        let moved = record.actions.iter().enumerate().try_for_each(|(number, action)| {
            action.perform(number, directory, &staging, found.get(&action.path)).map_err(|error| {
                Error::io(format!("apply to {:?}, nothing was changed", action.path.as_str()), &error)
            })
        });
        record.phase = Phase::Done;
        moved.and_then(|()| journal.write(record)).map_err(|failed| {
            match undo_all(directory, &staging, &record.actions) {
                Ok(()) => {
                    // Where the disk is too full for it, the next apply finds everything undone already.
                    record.phase = Phase::Staging;
                    let _ = journal.write(record);
                    intact(failed)
                }
                Err(undo) => (Error::new(Kind::System, format!("{failed}; {undo}")), false),
            }
        })
    }

    /// Writes what a step will put in place to `new/<number>`.
    fn stage(
        &self,
        number: usize,
        step: &ApplyStep,
        found: &BTreeMap<WorkspacePath, Found>,
        staging: &Staging,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), Error> {
        let slot = number.to_string();
        match step {
            ApplyStep::WriteFile { entry } => {
                let Node::File { digest, size, executable } = entry.node else { return Ok(()) };
                let failed = |error: io::Error| Error::io(format!("stage {:?}", entry.path.as_str()), &error);
                let mode = if executable { 0o777 } else { 0o666 };
                let mut file = staging.new.create_file(&slot, mode).map_err(failed)?;
                runtime.block_on(self.copy(Stored { digest, size }, &mut file, &entry.path))?;
                match found.get(&entry.path).filter(|found| found.kind == FoundKind::File) {
                    Some(old) => take_over(&file, old, executable).map_err(failed),
                    None => Ok(()),
                }
            }
            ApplyStep::MakeSymlink { path, target } => staging
                .new
                .make_symlink(target, &slot)
                .map_err(|error| Error::io(format!("stage the link {:?}", path.as_str()), &error)),
            _ => Ok(()),
        }
    }

    async fn copy(&self, blob: Stored, file: &mut std::fs::File, path: &WorkspacePath) -> Result<(), Error> {
        let mut content = self.store.read(blob).await?;
        while let Some(chunk) = content.next().await {
            file.write_all(&chunk?)
                .map_err(|error| Error::io(format!("stage {:?}", path.as_str()), &error))?;
        }
        Ok(())
    }
}

/// Gives a new file the owner and the permission bits of the one it replaces, but for the executable bit.
fn take_over(file: &std::fs::File, old: &Found, executable: bool) -> io::Result<()> {
    let (user, group) = old.owner;
    let found = rustix::fs::fstat(file)?;
    if (found.st_uid, found.st_gid) != (user, group) {
        // Only root may give files away; for others the new file is theirs.
        let _ = rustix::fs::fchown(
            file,
            Some(rustix::fs::Uid::from_raw(user)),
            Some(rustix::fs::Gid::from_raw(group)),
        );
    }
    Ok(rustix::fs::fchmod(file, rustix::fs::Mode::from_raw_mode(mode_with(old.mode, executable)))?)
}

/// Sets or clears the executable bits; whoever may read may then execute.
const fn mode_with(mode: u32, executable: bool) -> u32 {
    let mode = mode & 0o777;
    match (executable, mode & 0o100 != 0) {
        (true, false) => mode | ((mode & 0o444) >> 2),
        (false, true) => mode & !0o111,
        _ => mode,
    }
}

fn actions_of(plan: &ApplyPlan, found: &BTreeMap<WorkspacePath, Found>) -> Vec<Action> {
    let mut removed = std::collections::BTreeSet::new();
    let mut actions = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let at = |path: &WorkspacePath| found.get(path);
        let (path, work) = match step {
            ApplyStep::RemoveFile { path } => {
                removed.insert(path);
                (path, Work::RemoveLeaf)
            }
            ApplyStep::RemoveDirectoryIfEmpty { path } => {
                removed.insert(path);
                (path, Work::RemoveDirectory { mode: at(path).map_or(0o777, |found| found.mode & 0o777) })
            }
            ApplyStep::MakeDirectory { path } => {
                let is_there = at(path).is_some_and(|found| found.kind == FoundKind::Directory);
                (path, if is_there && !removed.contains(path) { Work::Keep } else { Work::MakeDirectory })
            }
            ApplyStep::MakeSymlink { path, .. } => (path, Work::Put),
            ApplyStep::WriteFile { entry: SnapshotEntry { path, .. } } => {
                let replaces = at(path).is_some() && !removed.contains(path);
                (path, if replaces { Work::Replace } else { Work::Put })
            }
            ApplyStep::SetExecutable { path, .. } => (path, Work::Keep),
        };
        actions.push(Action { path: path.clone(), work });
    }
    actions
}
