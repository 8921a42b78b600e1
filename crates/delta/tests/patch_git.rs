//! Patches as the real Git takes them: every kind of change, and random ones.

mod fixture;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use coldframe_core::{Digest, WorkspaceDelta};
use coldframe_delta::{DeltaErrorKind, FileChange, Patch, PatchError, patch, stat};
use fixture::{Item, Tree, contents, delta, file, files, link, path, program, snapshot, tree};
use proptest::prelude::*;

fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["-c", "core.autocrlf=false", "-c", "core.fileMode=true", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap())
        .envs([("GIT_AUTHOR_NAME", "t"), ("GIT_AUTHOR_EMAIL", "t@example.invalid")])
        .envs([("GIT_COMMITTER_NAME", "t"), ("GIT_COMMITTER_EMAIL", "t@example.invalid")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("these tests need git on the path");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {arguments:?}: {shown}\n{}", String::from_utf8_lossy(input));
    output.stdout
}

fn write(directory: &Path, tree: &Tree) {
    for (name, item) in tree {
        let target = directory.join(OsStr::from_bytes(name.as_bytes()));
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        match item {
            Item::File(content) | Item::Program(content) => {
                std::fs::write(&target, content).unwrap();
                let mode = if matches!(item, Item::Program(_)) { 0o755 } else { 0o644 };
                std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            Item::Link(text) => symlink(text, &target).unwrap(),
            Item::Directory => std::fs::create_dir_all(&target).unwrap(),
        }
    }
}

fn read(directory: &Path, at: &Path, tree: &mut Tree) {
    for entry in std::fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let full = entry.path();
        let name = full.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
        let kind = entry.file_type().unwrap();
        if name == ".git" {
            continue;
        }
        if kind.is_dir() {
            read(directory, &full, tree);
        } else if kind.is_symlink() {
            tree.insert(name, link(std::fs::read_link(&full).unwrap().to_str().unwrap()));
        } else {
            let content = std::fs::read(&full).unwrap();
            let executable = entry.metadata().unwrap().permissions().mode() & 0o100 != 0;
            tree.insert(name, if executable { Item::Program(content) } else { Item::File(content) });
        }
    }
}

fn without_directories(tree: &Tree) -> Tree {
    tree.iter()
        .filter(|(_, item)| **item != Item::Directory)
        .map(|(name, item)| (name.clone(), item.clone()))
        .collect()
}

fn made(from: &Tree, to: &Tree) -> (WorkspaceDelta, Patch) {
    let base = snapshot(from);
    let delta = delta(&base, from, to);
    let patch = patch(&base, &delta, &contents(&[from, to])).unwrap();
    (delta, patch)
}

/// A repository whose one commit holds `tree`, as a clone has it: without empty directories.
fn repository(tree: &Tree) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    git(root, &["init", "-q"], b"");
    write(root, &without_directories(tree));
    git(root, &["add", "-A", "-f"], b"");
    git(root, &["commit", "-q", "--allow-empty", "-m", "base"], b"");
    directory
}

/// Applies the patch with Git, forth and back, to work tree and index.
fn assert_git_takes(from: &Tree, to: &Tree) -> Patch {
    let (_, patch) = made(from, to);
    if patch.bytes.is_empty() {
        assert_eq!(without_directories(from), without_directories(to));
        return patch;
    }
    let directory = repository(from);
    let root = directory.path();
    let held = |root: &Path| {
        let mut tree = Tree::new();
        read(root, root, &mut tree);
        tree
    };
    git(root, &["apply", "--index", "--whitespace=nowarn"], &patch.bytes);
    assert_eq!(held(root), without_directories(to), "{}", String::from_utf8_lossy(&patch.bytes));
    git(root, &["diff", "--exit-code"], b"");
    git(root, &["apply", "--index", "--whitespace=nowarn", "-R"], &patch.bytes);
    assert_eq!(bytes_alone(held(root)), bytes_alone(without_directories(from)));
    patch
}

/// Git makes a plain file of a program or a link whose deletion it reverses, also with its own patches, so
/// only the bytes can be compared.
fn bytes_alone(tree: Tree) -> Tree {
    tree.into_iter()
        .map(|(name, item)| match item {
            Item::Program(content) => (name, Item::File(content)),
            Item::Link(target) => (name, Item::File(target.into_bytes())),
            other => (name, other),
        })
        .collect()
}

fn text(patch: &Patch) -> String {
    String::from_utf8(patch.bytes.clone()).unwrap()
}

#[test]
fn text_in_all_its_endings() {
    let long = |changed: &str| {
        let mut lines: Vec<String> = (0..60).map(|number| format!("line {number}\n")).collect();
        lines[10] = format!("{changed}\n");
        lines[40] = format!("{changed} again\n");
        lines.concat()
    };
    let from = files([
        ("crlf", "one\r\ntwo\r\nthree\r\n"),
        ("final", "a\nb"),
        ("gains", "a\nb"),
        ("loses", "a\nb\n"),
        ("long", &long("before")),
        ("emptied", "x\n"),
        ("gone", "g\n\n"),
        ("cr", "a\rb\rc"),
    ]);
    let to = files([
        ("crlf", "one\r\n2\r\nthree\r\n"),
        ("final", "a\nc"),
        ("gains", "a\nb\n"),
        ("loses", "a\nb"),
        ("long", &long("after")),
        ("emptied", ""),
        ("new", "n"),
        ("new-empty", ""),
        ("cr", "a\rX\rc"),
    ]);
    let patch = text(&assert_git_takes(&from, &to));
    assert!(patch.contains("-b\n+b\n\\ No newline at end of file\n"), "{patch}");
    assert_eq!(patch.matches("@@ -").count(), 10, "two hunks for the long file, one for the others\n{patch}");
    assert!(patch.contains("@@ -8,7 +8,7 @@\n"), "{patch}");
}

#[test]
fn bytes_that_are_no_text() {
    let all: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let from = tree([
        ("changed", Item::File(all.clone())),
        ("gone", Item::Program(b"\0".to_vec())),
        ("becomes-text", Item::File(b"a\0b".to_vec())),
        ("latin-1", Item::File(b"caf\xe9\nx\n".to_vec())),
    ]);
    let to = tree([
        ("changed", Item::File(all.iter().rev().copied().collect())),
        ("new", Item::Program(vec![0; 100_000])),
        ("becomes-text", file("a b\n")),
        ("latin-1", Item::File(b"caf\xe8\nx\n".to_vec())),
    ]);
    let patch = assert_git_takes(&from, &to);
    let text = String::from_utf8_lossy(&patch.bytes);
    assert_eq!(text.matches("GIT binary patch\n").count(), 4);
    assert!(patch.bytes.windows(6).any(|window| window == b"+caf\xe8\n"));
}

#[test]
fn modes_links_and_changes_of_kind() {
    let from = tree([
        ("tool", file("#!/bin/sh\n")),
        ("both", program("a\n")),
        ("link", link("old/target")),
        ("file-to-link", program("text\n")),
        ("link-to-file", link("x")),
        ("a", file("was a file\n")),
        ("b/x", file("1\n")),
        ("b/y/z", file("2\n")),
        ("gone", link("nowhere")),
    ]);
    let to = tree([
        ("tool", program("#!/bin/sh\n")),
        ("both", file("b\n")),
        ("link", link("new")),
        ("file-to-link", link("target with spaces")),
        ("link-to-file", file("now a file\n")),
        ("a/inner", file("inside\n")),
        ("b", file("was a folder\n")),
        ("new", link("somewhere/else")),
    ]);
    let patch = text(&assert_git_takes(&from, &to));
    assert!(patch.ends_with("diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"), "{patch}");
    assert!(patch.contains("deleted file mode 120000\n") && patch.contains("new file mode 120000\n"));
}

#[test]
fn names_of_every_sort() {
    let names = [
        "with space",
        " leading",
        "trailing ",
        "tab\there",
        "new\nline",
        "quote\"d",
        "back\\slash",
        "caf\u{e9}/\u{1f980}",
        "bell\u{7}\u{8}\u{b}\u{c}\r\u{7f}\u{1}",
        "-dash",
        "a/b/a/b",
        "dev/null",
        "space and\ttab",
        "#comment",
        "*",
    ];
    let with = |content: &str| -> Tree {
        names.iter().map(|name| ((*name).to_owned(), file(&format!("{content} {name:?}\n")))).collect()
    };
    assert_git_takes(&with("old"), &with("new"));
    assert_git_takes(&Tree::new(), &with("new"));
    assert_git_takes(&with("old"), &Tree::new());
    let programs: Tree = with("old")
        .into_iter()
        .map(|(name, item)| match item {
            Item::File(content) => (name, Item::Program(content)),
            other => (name, other),
        })
        .collect();
    assert_git_takes(&with("old"), &programs);
}

#[test]
fn what_a_patch_cannot_say_is_told() {
    let from = tree([("kept", file("0\n")), ("was-empty", Item::Directory), ("emptied/x", file("1\n"))]);
    let to = tree([("kept", file("1\n")), ("emptied", Item::Directory), ("now-empty", Item::Directory)]);
    let patch = assert_git_takes(&from, &to);
    assert_eq!(patch.left_out, [path("emptied"), path("now-empty"), path("was-empty")]);
    let hooked = files([("kept", "1\n"), ("sub/.Git/config", "[core]\n")]);
    let patch = assert_git_takes(&files([("kept", "0\n")]), &files([("kept", "1\n")]));
    let (_, with_hook) = made(&files([("kept", "0\n")]), &hooked);
    assert_eq!(with_hook.left_out, [path("sub/.Git/config")]);
    assert_eq!(with_hook.bytes, patch.bytes);
}

#[test]
fn a_missing_or_cut_content_is_an_error_that_names_the_path() {
    let (from, to) = (
        tree([("f", file("old\n")), ("m", file("m\n"))]),
        tree([("f", file("new\n")), ("m", program("m\n"))]),
    );
    let base = snapshot(&from);
    let delta = delta(&base, &from, &to);
    let error = patch(&base, &delta, &HashMap::new()).unwrap_err();
    assert_eq!(error.kind(), DeltaErrorKind::MissingContent);
    assert!(error.to_string().contains("\"f\""), "{error}");
    let mut cut = contents(&[&from, &to]);
    cut.insert(Digest::of(b"new\n"), b"ne".to_vec());
    assert!(matches!(patch(&base, &delta, &cut), Err(PatchError::MissingContent { .. })));
    let mut enough = contents(&[&from, &to]);
    enough.remove(&Digest::of(b"m\n"));
    assert!(patch(&base, &delta, &enough).is_ok(), "a mode change needs no content");
}

#[test]
fn the_statistics_are_those_of_git() {
    let from = tree([
        ("src/lib.rs", file("a\nb\nc\n")),
        ("gone", file("x\ny\n")),
        ("tool", file("t\n")),
        ("quo\"ted", file("1\n")),
        ("caf\u{e9}", file("1\n")),
        ("link", link("x")),
    ]);
    let to = tree([
        ("src/lib.rs", file("a\nB\nc\nd\n")),
        ("new", file("1\n2\n3\n")),
        ("tool", program("t\n")),
        ("quo\"ted", file("2\n")),
        ("caf\u{e9}", file("2\n")),
        ("bin", Item::File(vec![0; 12])),
        ("link", link("y")),
    ]);
    let base = snapshot(&from);
    let delta = delta(&base, &from, &to);
    let counted = stat(&base, &delta, &contents(&[&from, &to]));
    let directory = repository(&from);
    git(directory.path(), &["apply", "--index"], &made(&from, &to).1.bytes);
    let by_git = git(directory.path(), &["diff", "--stat=80", "--no-renames", "HEAD"], b"");
    assert_eq!(format!("{counted}\n"), String::from_utf8(by_git).unwrap());
    assert_eq!((counted.added_lines(), counted.deleted_lines()), (8, 6));
    let blind = stat(&base, &delta, &HashMap::new());
    let lib = blind.files.iter().find(|file| file.path == path("src/lib.rs")).unwrap();
    assert_eq!((lib.change, lib.added_lines, lib.binary), (FileChange::Modified, None, false));
}

#[test]
fn large_counts_are_scaled_to_the_line() {
    let lines = |count: usize| "x\n".repeat(count);
    let to = tree([("big", file(&lines(5000))), ("small", file(&lines(1)))]);
    let base = snapshot(&Tree::new());
    let shown = stat(&base, &delta(&base, &Tree::new(), &to), &contents(&[&to])).to_string();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains(" small |    1 +\n"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn git_makes_the_result_of_any_delta_from_its_patch((base, sides) in fixture::any_edits(1)) {
        assert_git_takes(&base, &sides[0]);
    }
}
