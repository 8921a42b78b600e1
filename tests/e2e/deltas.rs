//! Deltas: what a command changed is shown, patched and applied, and each way gives the same tree.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;

use crate::desk::{Desk, text};
use crate::shown::shown;
use crate::{shell, tree};

/// Changes of every kind that a patch can say.
const SCRIPT: &str = r#"set -e
echo two >> text.txt
printf 'no newline' > last.txt
printf 'cr\r\nlf\n\fff\n' > lines.txt
rm gone.txt
chmod 755 script.sh
chmod 644 program
printf '\000\001\002\377' > binary.bin
head -c 70000 /dev/zero > zeros.bin
ln -s text.txt link
ln -sfn elsewhere/nowhere oldlink
rm tolink && ln -s text.txt tolink
rm fromlink && echo a file now > fromlink
: > empty.txt
rm file-to-folder && mkdir file-to-folder && echo in > file-to-folder/in
rm -r folder-to-file && echo flat > folder-to-file
mkdir -p 'deep/er and' && echo x > 'deep/er and/with space.txt'
echo x > 'quote".txt'
echo x > 'tab	name'
echo x > 'back\slash'
echo x > 'größe-😀.txt'
echo x > -dash
mv moved.txt moved-away.txt
"#;

fn garden(desk: &Desk) {
    for (path, content) in [
        ("text.txt", "one\n"),
        ("last.txt", "old\n"),
        ("lines.txt", "cr\nlf\n"),
        ("gone.txt", "gone\n"),
        ("script.sh", "#!/bin/sh\n"),
        ("program", "#!/bin/sh\n"),
        ("tolink", "a file\n"),
        ("file-to-folder", "file\n"),
        ("folder-to-file/a", "a\n"),
        ("folder-to-file/b/c", "c\n"),
        ("moved.txt", "moved\n"),
        ("same/untouched.txt", "same\n"),
    ] {
        desk.write(path, content);
    }
    std::fs::write(desk.project().join("binary.bin"), [0, 1, 2, 3]).unwrap();
    std::fs::write(desk.project().join("zeros.bin"), vec![1; 60_000]).unwrap();
    tree::set_mode(&desk.project().join("program"), 0o755);
    symlink("text.txt", desk.project().join("oldlink")).unwrap();
    symlink("text.txt", desk.project().join("fromlink")).unwrap();
}

/// A copy of the project.
fn copied(desk: &Desk, name: &str) -> PathBuf {
    let copy = desk.path(name);
    tree::copy(&desk.project(), &copy);
    copy
}

fn folder(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn patch_and_apply_and_the_command_itself_give_the_same_tree() {
    let desk = Desk::new();
    garden(&desk);
    let before = tree::read(&desk.project());
    let id = desk.changed_by(SCRIPT);

    let by_hand = copied(&desk, "by-hand");
    shell::must(&by_hand, &["sh", "-c", SCRIPT]);
    let expected = tree::read(&by_hand);

    let applied = copied(&desk, "applied");
    desk.run(&["delta", "apply", &id, folder(&applied)]).with(0);
    assert_eq!(tree::read(&applied), expected);

    let patched = copied(&desk, "patched");
    let patch = desk.run(&["delta", "patch", &id]).with(0);
    assert_eq!(patch.stderr, "");
    let file = desk.path("changes.patch");
    std::fs::write(&file, &patch.stdout).unwrap();
    shell::must(&patched, &["git", "apply", "--whitespace=nowarn", folder(&file)]);
    assert_eq!(tree::read_files(&patched), tree::read_files(&by_hand));

    desk.run(&["delta", "apply", "--reverse", &id, folder(&applied)]).with(0);
    assert_eq!(tree::read(&applied), before);
}

#[test]
fn a_delta_is_shown_with_its_files_and_lines() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\nthree\n");
    desk.write("b.txt", "gone\n");
    let id = desk
        .changed_by("sed -i s/two/2/ a.txt; rm b.txt; mkdir -p target e; echo x > target/x; echo n > new");
    let ended = desk.run(&["delta", "show", &id]);
    assert_snapshot!(shown(&desk, &ended), @r"
    exit 0
    --- stdout
    delta [digest]
    base  [digest]
    left out by rule target: 1 path
     a.txt | 2 +-
     b.txt | 1 -
     e     | 0
     new   | 1 +
     4 files changed, 2 insertions(+), 2 deletions(-)

    diff --git a/a.txt b/a.txt
    index [object]..[object] 100644
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +2
     three
    diff --git a/b.txt b/b.txt
    deleted file mode 100644
    index [object]..[object]
    --- a/b.txt
    +++ /dev/null
    @@ -1 +0,0 @@
    -gone
    diff --git a/new b/new
    new file mode 100644
    index [object]..[object]
    --- /dev/null
    +++ b/new
    @@ -0,0 +1 @@
    +n
    --- stderr
    ");
}

#[test]
fn a_folder_that_is_not_the_base_is_refused_and_left_as_it_is() {
    let desk = Desk::new();
    garden(&desk);
    let id = desk.changed_by(SCRIPT);
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 7] = [
        ("text.txt", |at| std::fs::write(at.join("text.txt"), "someone else\n").unwrap()),
        ("gone.txt", |at| std::fs::remove_file(at.join("gone.txt")).unwrap()),
        ("script.sh", |at| tree::set_mode(&at.join("script.sh"), 0o755)),
        ("moved-away.txt", |at| std::fs::write(at.join("moved-away.txt"), "in the way\n").unwrap()),
        ("oldlink", |at| {
            std::fs::remove_file(at.join("oldlink")).unwrap();
            symlink("other", at.join("oldlink")).unwrap();
        }),
        ("folder-to-file", |at| std::fs::write(at.join("folder-to-file/mine"), "mine\n").unwrap()),
        ("deep", |at| symlink("/var/tmp", at.join("deep")).unwrap()),
    ];
    for (index, (path, spoil)) in spoils.into_iter().enumerate() {
        let copy = copied(&desk, &format!("copy-{index}"));
        spoil(&copy);
        let before = tree::touched(&copy);
        let error = desk.refused(7, &["delta", "apply", &id, folder(&copy)]);
        assert_eq!(error["kind"], "conflict");
        let differences = error["details"]["differences"].as_array().unwrap();
        let is_named = |found: &serde_json::Value| found["path"].as_str().unwrap().starts_with(path);
        assert!(differences.iter().any(is_named), "{path}: {error:#}");
        desk.run(&["delta", "apply", &id, folder(&copy)]).with(7).tells(&[path]);
        desk.run(&["delta", "apply", "--dry-run", &id, folder(&copy)]).with(7);
        assert_eq!(tree::touched(&copy), before, "{path}: the folder was touched");
    }
    // What the delta does not touch may differ.
    let copy = copied(&desk, "other-changes");
    std::fs::write(copy.join("same/untouched.txt"), "mine\n").unwrap();
    std::fs::write(copy.join("mine.txt"), "mine\n").unwrap();
    desk.run(&["delta", "apply", "--dry-run", &id, folder(&copy)]).with(0);
    assert_eq!(std::fs::read_to_string(copy.join("text.txt")).unwrap(), "one\n");
    desk.run(&["delta", "apply", &id, folder(&copy)]).with(0);
    assert_eq!(std::fs::read_to_string(copy.join("mine.txt")).unwrap(), "mine\n");
    desk.run(&["delta", "apply", &id, folder(&copy)]).with(7);
}

#[test]
fn every_difference_is_listed_not_only_the_first() {
    let desk = Desk::new();
    for number in 0..20 {
        desk.write(format!("file-{number}"), "base\n");
    }
    let id = desk.changed_by("for file in file-*; do echo new > $file; done");
    for number in 0..20 {
        desk.write(format!("file-{number}"), "someone else\n");
    }
    let error = desk.refused(7, &["delta", "apply", &id]);
    assert_eq!(error["details"]["differences"].as_array().unwrap().len(), 20);
}

#[test]
fn a_delta_never_follows_a_link_of_the_folder() {
    let desk = Desk::new();
    desk.write("folder/a.txt", "one\n");
    let id = desk.changed_by("echo two > folder/a.txt; echo new > folder/new.txt");
    let (copy, outside) = (desk.path("copy"), desk.path("outside"));
    std::fs::create_dir(&copy).unwrap();
    tree::write(&outside.join("a.txt"), "one\n");
    symlink(&outside, copy.join("folder")).unwrap();
    let before = tree::touched(&outside);
    desk.refused(7, &["delta", "apply", &id, folder(&copy)]);
    assert_eq!(tree::touched(&outside), before);
}

#[test]
fn what_a_patch_cannot_say_is_told_and_applied_all_the_same() {
    let desk = Desk::new();
    desk.write("keep/file", "x\n");
    std::fs::create_dir(desk.project().join("was-empty")).unwrap();
    let id = desk.changed_by("mkdir -p now/empty; rmdir was-empty; rm keep/file; echo y > other");
    let patch = desk.run(&["delta", "patch", &id]).with(0);
    assert!(patch.text().contains("+y"));
    let patch = patch.tells(&["now/empty", "was-empty"]);
    assert!(!patch.text().contains("empty"), "{patch}");
    let applied = copied(&desk, "applied");
    desk.run(&["delta", "apply", &id, folder(&applied)]).with(0);
    let by_hand = copied(&desk, "by-hand");
    shell::must(&by_hand, &["sh", "-c", "mkdir -p now/empty; rmdir was-empty; rm keep/file; echo y > other"]);
    assert_eq!(tree::read(&applied), tree::read(&by_hand));
}

#[test]
fn what_is_left_out_of_a_delta_is_counted_unless_it_was_captured() {
    let desk = Desk::new();
    desk.write("target/captured", "old\n");
    let script = "mkdir -p __pycache__ node_modules/a; for n in 1 2 3; do echo x > __pycache__/$n; done; \
                  echo x > node_modules/a/b; echo new > target/captured; echo x > target/other";
    let document = desk.done(&["exec", ".", "--", "sh", "-c", script]);
    let changes = document["delta"]["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{changes:#?}");
    let excluded: Vec<_> = document["delta"]["excluded"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(&one["rule"]), one["count"].as_u64().unwrap()))
        .collect();
    let expected = [("__pycache__", 3), ("node_modules", 1), ("target", 1)];
    assert_eq!(excluded, expected.map(|(rule, count)| (rule.to_owned(), count)));
}

#[test]
fn a_delta_that_reaches_into_git_is_refused() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    std::fs::create_dir_all(desk.home()).unwrap();
    tree::set_mode(&desk.home(), 0o700);
    std::fs::write(desk.home().join("config.toml"), "exclude = []\n").unwrap();
    let id = desk.changed_by("mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit");
    let copy = copied(&desk, "copy");
    desk.refused(8, &["delta", "apply", &id, folder(&copy)]);
    assert!(!copy.join(".git").exists());
    let patch = desk.run(&["delta", "patch", &id]).with(0).tells(&["not in the patch"]);
    assert_eq!(patch.text(), "");
}
