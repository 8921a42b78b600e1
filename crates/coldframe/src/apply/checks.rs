//! Compares a directory with what an apply plan expects of it, and names every difference.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use coldframe_core::{DigestWriter, Node, WorkspacePath};
use coldframe_delta::{ApplyPlan, Expected, PathCheck};
use serde::Serialize;

use super::directory::{Directory, Found, Kind};
use crate::Error;

/// One path that is not what the delta was made against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The path.
    pub path: WorkspacePath,
    /// What is wrong there.
    pub problem: String,
}

/// What a look at the directory gave.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// All differences; the directory fits where there are none.
    pub(super) differences: Vec<Difference>,
    /// What stood at each path before its content was compared.
    pub(super) found: BTreeMap<WorkspacePath, Found>,
}

/// Compares every path of the plan.
pub(super) fn look(directory: &Directory, plan: &ApplyPlan) -> Result<Look, Error> {
    let checked: BTreeSet<&str> = plan.checks.iter().map(|check| check.path.as_str()).collect();
    let mut look = Look::default();
    for check in &plan.checks {
        let failed = |error| Error::io(format!("look at {:?}", check.path.as_str()), &error);
        let found = directory.look(&check.path).map_err(failed)?;
        let problem = problem(directory, check, found, &checked).map_err(failed)?;
        look.differences.extend(problem.map(|problem| Difference { path: check.path.clone(), problem }));
        look.found.extend(found.map(|found| (check.path.clone(), found)));
    }
    Ok(look)
}

fn problem(
    directory: &Directory,
    check: &PathCheck,
    found: Option<Found>,
    checked: &BTreeSet<&str>,
) -> io::Result<Option<String>> {
    let text = |problem: &str| Ok(Some(problem.to_owned()));
    match (&check.expected, found) {
        (Expected::Nothing | Expected::NothingOrDirectory, None) => Ok(None),
        (Expected::NothingOrDirectory, Some(found)) if found.kind == Kind::Directory => Ok(None),
        (Expected::Nothing | Expected::NothingOrDirectory, Some(_)) => text("it is there, and must not be"),
        (_, None) => text("it is gone"),
        (Expected::Directory, Some(found)) if found.kind == Kind::Directory => Ok(None),
        (Expected::DirectoryHoldingOnlyChecked, Some(found)) if found.kind == Kind::Directory => {
            stray(directory, &check.path, checked)
        }
        (Expected::Directory | Expected::DirectoryHoldingOnlyChecked, Some(_)) => {
            text("it is no longer a directory")
        }
        (Expected::Leaf { node }, Some(found)) => leaf_problem(directory, &check.path, node, found),
    }
}

/// A file that nobody asked about would be in the way of what takes the directory's place.
fn stray(
    directory: &Directory,
    path: &WorkspacePath,
    checked: &BTreeSet<&str>,
) -> io::Result<Option<String>> {
    for name in directory.names(path)? {
        let known = name.to_str().is_some_and(|name| checked.contains(format!("{path}/{name}").as_str()));
        if !known {
            return Ok(Some(format!("it holds {name:?}, which the delta does not know")));
        }
    }
    Ok(None)
}

fn leaf_problem(
    directory: &Directory,
    path: &WorkspacePath,
    node: &Node,
    found: Found,
) -> io::Result<Option<String>> {
    let problem = match (node, found.kind) {
        (Node::File { size, .. }, Kind::File) if *size != found.size => "its content has changed",
        (Node::File { executable, .. }, Kind::File) if *executable != found.is_executable() => {
            "its executable bit has changed"
        }
        (Node::File { digest, .. }, Kind::File) => {
            let mut hash = DigestWriter::default();
            io::copy(&mut directory.open_file(path)?, &mut hash)?;
            if hash.finish().0 == *digest { return Ok(None) } else { "its content has changed" }
        }
        (Node::Symlink { target }, Kind::Symlink) => {
            if directory.target_of(path)? == target.as_bytes() {
                return Ok(None);
            } else {
                "its target has changed"
            }
        }
        (Node::Directory, Kind::Directory) => return Ok(None),
        (Node::File { .. }, _) => "it is no longer a file",
        (Node::Symlink { .. }, _) => "it is no longer a link",
        (Node::Directory, _) => "it is no longer a directory",
    };
    Ok(Some(problem.to_owned()))
}
