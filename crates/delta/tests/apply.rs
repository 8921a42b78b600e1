//! Apply plans, done on a directory tree in memory that refuses what a file system refuses.

mod fixture;

use std::collections::BTreeMap;

use coldframe_core::{DeltaChange, Digest, Node, SnapshotEntry, WorkspaceDelta};
use coldframe_delta::{ApplyPlan, ApplyStep, Expected, FitError, plan_apply, plan_revert};
use fixture::{Item, Tree, delta, entries, file, files, link, node, path, program, snapshot, tree};
use proptest::prelude::*;

/// Every path with what stands there, directories that hold something included.
type Disk = BTreeMap<String, Node>;

fn disk(entries: &[SnapshotEntry]) -> Disk {
    let mut disk = Disk::new();
    for entry in entries {
        for ancestor in entry.path.ancestors() {
            disk.insert(ancestor.to_owned(), Node::Directory);
        }
        disk.insert(entry.path.to_string(), entry.node.clone());
    }
    disk
}

fn is_empty_directory(disk: &Disk, path: &str) -> bool {
    let prefix = format!("{path}/");
    disk.get(path) == Some(&Node::Directory)
        && !disk.range(prefix.clone()..).next().is_some_and(|(next, _)| next.starts_with(&prefix))
}

fn assert_parent(disk: &Disk, path: &str) {
    if let Some((parent, _)) = path.rsplit_once('/') {
        assert_eq!(disk.get(parent), Some(&Node::Directory), "the parent of {path:?}");
    }
}

/// Does the steps and fails where a file system would.
fn perform(plan: &ApplyPlan, disk: &mut Disk) {
    for step in &plan.steps {
        match step {
            ApplyStep::RemoveFile { path } => {
                let removed = disk.remove(path.as_str());
                assert!(removed.is_some_and(|node| node != Node::Directory), "{step:?}");
            }
            ApplyStep::RemoveDirectoryIfEmpty { path } => {
                assert_eq!(disk.get(path.as_str()), Some(&Node::Directory), "{step:?}");
                if is_empty_directory(disk, path.as_str()) {
                    disk.remove(path.as_str());
                }
            }
            ApplyStep::MakeDirectory { path } => {
                assert_parent(disk, path.as_str());
                let before = disk.insert(path.to_string(), Node::Directory);
                assert!(before.is_none_or(|node| node == Node::Directory), "{step:?}");
            }
            ApplyStep::WriteFile { entry } => {
                assert_parent(disk, entry.path.as_str());
                let before = disk.insert(entry.path.to_string(), entry.node.clone());
                assert!(matches!(before, None | Some(Node::File { .. })), "{step:?}");
            }
            ApplyStep::MakeSymlink { path, target } => {
                assert_parent(disk, path.as_str());
                let link = Node::Symlink { target: target.clone() };
                assert_eq!(disk.insert(path.to_string(), link), None, "{step:?}");
            }
            ApplyStep::SetExecutable { path, executable } => match disk.get_mut(path.as_str()) {
                Some(Node::File { executable: bit, .. }) => *bit = *executable,
                other => panic!("{step:?} on {other:?}"),
            },
        }
    }
}

fn holds(plan: &ApplyPlan, disk: &Disk) -> bool {
    plan.checks.iter().all(|check| {
        let path = check.path.as_str();
        let found = disk.get(path);
        let is_directory = found == Some(&Node::Directory);
        match &check.expected {
            Expected::Nothing => found.is_none(),
            Expected::NothingOrDirectory => found.is_none() || is_directory,
            Expected::Leaf { node } => found == Some(node),
            Expected::Directory => is_directory,
            Expected::DirectoryHoldingOnlyChecked => {
                let prefix = format!("{path}/");
                let checked = |path: &str| plan.checks.iter().any(|check| check.path.as_str() == path);
                is_directory
                    && disk.keys().filter(|below| below.starts_with(&prefix)).all(|below| checked(below))
            }
        }
    })
}

fn assert_applies_and_reverts(from: &Tree, to: &Tree) {
    let base = snapshot(from);
    let delta = delta(&base, from, to);
    let result = delta.apply_to(&base).unwrap();
    assert_eq!(result, entries(to));
    let (forth, back) = (plan_apply(&base, &delta).unwrap(), plan_revert(&base, &delta).unwrap());
    let mut here = disk(base.entries());
    assert!(holds(&forth, &here), "{forth:#?}");
    perform(&forth, &mut here);
    assert_eq!(here, disk(&result));
    assert!(holds(&back, &here), "{back:#?}");
    perform(&back, &mut here);
    assert_eq!(here, disk(base.entries()));
}

#[test]
fn a_file_becomes_a_folder_and_a_folder_a_file() {
    assert_applies_and_reverts(
        &files([("a", "0"), ("b/x.txt", "0"), ("b/y/z.txt", "0")]),
        &files([("a/inner.txt", "1"), ("b", "now a file")]),
    );
}

#[test]
fn every_kind_becomes_every_other_kind() {
    let kinds =
        [file("0"), file("1"), program("0"), program("1"), link("x"), link("y"), Item::Directory, file("")];
    for from in &kinds {
        for to in &kinds {
            assert_applies_and_reverts(&tree([("d/p", from.clone())]), &tree([("d/p", to.clone())]));
        }
        assert_applies_and_reverts(&tree([("d/p", from.clone())]), &Tree::new());
        assert_applies_and_reverts(&tree([("d/p", from.clone())]), &files([("d/p/q/r", "")]));
    }
}

#[test]
fn a_change_of_the_executable_bit_writes_no_content() {
    let (from, to) =
        (tree([("t", file("0")), ("u", program("0"))]), tree([("t", program("0")), ("u", file("0"))]));
    let base = snapshot(&from);
    let plan = plan_apply(&base, &delta(&base, &from, &to)).unwrap();
    let set = |name, executable| ApplyStep::SetExecutable { path: path(name), executable };
    assert_eq!(plan.steps, [set("t", true), set("u", false)]);
    assert_applies_and_reverts(&from, &to);
}

#[test]
fn the_checks_name_what_must_stand_at_each_touched_path_and_above() {
    let from = files([("d/gone", "0"), ("kept", "0"), ("f", "0")]);
    let to = files([("d", "file"), ("kept", "0"), ("f", "1"), ("n/new", "2")]);
    let base = snapshot(&from);
    let plan = plan_apply(&base, &delta(&base, &from, &to)).unwrap();
    let leaf = |content: &str| Expected::Leaf { node: node(&file(content)) };
    let told: Vec<(&str, &Expected)> =
        plan.checks.iter().map(|check| (check.path.as_str(), &check.expected)).collect();
    let expected = [
        ("d", &Expected::DirectoryHoldingOnlyChecked),
        ("d/gone", &leaf("0")),
        ("f", &leaf("0")),
        ("n", &Expected::NothingOrDirectory),
        ("n/new", &Expected::Nothing),
    ];
    assert_eq!(told, expected);
}

#[test]
fn foreign_files_stop_a_folder_from_becoming_a_file_and_survive_its_removal() {
    let from = files([("d/e/gone", "0")]);
    let base = snapshot(&from);
    let mut here = disk(base.entries());
    here.insert("d/e/ignored".to_owned(), node(&file("mine")));
    let to_file = plan_apply(&base, &delta(&base, &from, &files([("d", "file")]))).unwrap();
    assert!(!holds(&to_file, &here));
    let removed = plan_apply(&base, &delta(&base, &from, &Tree::new())).unwrap();
    assert!(holds(&removed, &here));
    perform(&removed, &mut here);
    assert_eq!(here, disk(&entries(&files([("d/e/ignored", "mine")]))));
}

#[test]
fn a_delta_that_does_not_fit_gives_no_plan() {
    let base = snapshot(&files([("a", "0"), ("d/x", "0")]));
    let misfit = |changes| {
        let delta = WorkspaceDelta::new(base.id(), vec![], changes, vec![]).unwrap();
        matches!(plan_apply(&base, &delta), Err(FitError::Misfit { .. }))
    };
    let entry = |name| SnapshotEntry { path: path(name), node: node(&file("1")) };
    assert!(misfit(vec![DeltaChange::Added { entry: entry("a") }]));
    assert!(misfit(vec![DeltaChange::Added { entry: entry("a/b") }]));
    assert!(misfit(vec![DeltaChange::Added { entry: entry("d") }]));
    assert!(misfit(vec![DeltaChange::Modified { entry: entry("b") }]));
    assert!(misfit(vec![DeltaChange::Deleted { path: path("b") }]));
    let foreign = WorkspaceDelta::new(Digest::of(b"other"), vec![], vec![], vec![]).unwrap();
    assert!(matches!(plan_apply(&base, &foreign), Err(FitError::ForeignBase { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn base_and_plan_give_the_result_of_the_delta((base, sides) in fixture::any_edits(1)) {
        assert_applies_and_reverts(&base, &sides[0]);
    }

    #[test]
    fn any_tree_becomes_any_other_tree(from in fixture::any_tree(), to in fixture::any_tree()) {
        assert_applies_and_reverts(&from, &to);
    }
}
