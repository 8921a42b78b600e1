//! The single moves of an apply, each of which can be undone from what stands in the staging folder.

use std::io;

use coldframe_core::WorkspacePath;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::{Directory, Found};

/// One move at one path. Its number names its files in the staging folder: `new/<n>` waits to be put in place,
/// `old/<n>` is what stood there. Both together say whether the move was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Action {
    pub(super) path: WorkspacePath,
    pub(super) work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// Moves a file or a link to `old/<n>`.
    RemoveLeaf,
    /// Removes a directory with these permission bits where it is empty.
    RemoveDirectory { mode: u32 },
    /// Leaves a directory that is there already as it is.
    Keep,
    /// Makes a directory that was not there.
    MakeDirectory,
    /// Moves the file or link `new/<n>` to where nothing stands.
    Put,
    /// Moves the file `new/<n>` into the place of a file, which becomes `old/<n>`.
    Replace,
}

/// The staging folder beside the files it is about, so that a move is one rename.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) new: Directory,
    pub(super) old: Directory,
}

impl Action {
    /// Does the move, unless what stands at its path is not `expected` any more.
    pub(super) fn perform(
        &self,
        number: usize,
        directory: &Directory,
        staging: &Staging,
        expected: Option<&Found>,
    ) -> io::Result<()> {
        let (parent, name) = directory.parent(&self.path)?;
        let slot = number.to_string();
        match self.work {
            Work::RemoveLeaf => {
                parent.rename_new(name, &staging.old, &slot)?;
                check_same(staging.old.look_here(&slot)?, expected)
            }
            Work::RemoveDirectory { .. } => match parent.remove_directory(name) {
                // What it still holds is not the delta's to remove.
                Err(error) if is_not_empty(&error) => Ok(()),
                other => other,
            },
            Work::Keep => Ok(()),
            Work::MakeDirectory => parent.make_directory(name, 0o777),
            Work::Put => staging.new.rename_new(&slot, &parent, name),
            Work::Replace => {
                if parent.link(name, &staging.old, &slot).is_err() {
                    // Not every file system has hard links; then the path is empty for a moment.
                    parent.rename_new(name, &staging.old, &slot)?;
                }
                check_same(staging.old.look_here(&slot)?, expected)?;
                staging.new.rename(&slot, &parent, name)
            }
        }
    }

    /// Undoes the move where it was done, and does nothing where it was not or is undone already.
    pub(super) fn undo(&self, number: usize, directory: &Directory, staging: &Staging) -> io::Result<()> {
        let slot = number.to_string();
        let (parent, name) = match directory.parent(&self.path) {
            Ok(found) => found,
            // A directory on the way is not there, so neither is anything that this move made.
            Err(error) if super::directory::is_absence(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.work {
            Work::RemoveLeaf => match staging.old.look_here(&slot)? {
                Some(_) => staging.old.rename_new(&slot, &parent, name),
                None => Ok(()),
            },
            Work::RemoveDirectory { mode } => match parent.look_here(name)? {
                None => parent.make_directory(name, mode),
                Some(_) => Ok(()),
            },
            Work::Keep => Ok(()),
            Work::MakeDirectory => match parent.remove_directory(name) {
                Err(error) if is_not_empty(&error) || super::directory::is_absence(&error) => Ok(()),
                other => other,
            },
            // Moved back and not removed: an undo that is cut short and begun again must see what it has done.
            Work::Put => match staging.new.look_here(&slot)? {
                None => parent.rename_new(name, &staging.new, &slot),
                Some(_) => Ok(()),
            },
            Work::Replace => match staging.old.look_here(&slot)? {
                Some(_) => staging.old.rename(&slot, &parent, name),
                None => Ok(()),
            },
        }
    }
}

fn check_same(found: Option<Found>, expected: Option<&Found>) -> io::Result<()> {
    match (found, expected) {
        (Some(found), Some(expected))
            if found.identity == expected.identity
                && found.size == expected.size
                && found.mode == expected.mode =>
        {
            Ok(())
        }
        _ => Err(io::Error::other("it changed while the delta was applied")),
    }
}

fn is_not_empty(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| matches!(errno, Errno::NOTEMPTY | Errno::EXIST))
}
