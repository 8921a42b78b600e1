//! `snapshot`: what is captured, what is left out and said to be, and what is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::desk::{Desk, Ended, text};
use crate::shown::shown;
use crate::{shell, tree};

/// Reason, subject and count of what was left out.
fn omitted(document: &Value) -> Vec<(String, String, u64)> {
    let omitted = document["omitted"].as_array().unwrap().iter();
    omitted.map(|one| (text(&one["reason"]), text(&one["subject"]), one["count"].as_u64().unwrap())).collect()
}

fn paths(desk: &Desk, id: &str) -> Vec<String> {
    let listed = desk.done(&["snapshot", "ls", id]);
    listed["entries"].as_array().unwrap().iter().map(|entry| text(&entry["path"])).collect()
}

#[test]
fn a_capture_says_what_it_holds_and_what_it_left_out() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.write(".gitignore", "*.log\nbuild/\n");
    desk.write("x.log", "");
    desk.write("y.log", "");
    desk.write("build/out", "");
    std::fs::create_dir(desk.project().join("empty")).unwrap();
    symlink("a.txt", desk.project().join("link")).unwrap();
    let ended = desk.run(&["snapshot", "create", "."]);
    assert_snapshot!(shown(&desk, &ended), @r"
    exit 0
    --- stdout
    snapshot [digest]
    tree     [digest]
    source   local:[desk]/project
    revision tree:[digest]
    holds    2 files, 1 link, 1 empty directory, 17 B
    left out 2 paths (ignored): .gitignore:*.log
    left out 1 path (ignored): .gitignore:build/
    captured in [time]
    --- stderr
    ");
}

#[test]
fn ignored_files_are_counted_and_can_be_had() {
    let desk = Desk::new();
    desk.write(".gitignore", "*.log\n.env\n");
    for name in ["a.log", "b.log", "sub/c.log", ".env", "kept.txt"] {
        desk.write(name, name);
    }
    let document = desk.done(&["snapshot", "create", "."]);
    let ignored: u64 =
        omitted(&document).iter().filter(|(reason, ..)| reason == "ignored").map(|(_, _, count)| count).sum();
    // The folder that holds nothing but ignored files is kept as an empty one.
    assert_eq!(ignored, 4, "{document:#}");
    assert_eq!(paths(&desk, &text(&document["id"])), [".gitignore", "kept.txt", "sub"]);

    let some = desk.done(&["snapshot", "create", "--include", ".env", "."]);
    assert_eq!(paths(&desk, &text(&some["id"])), [".env", ".gitignore", "kept.txt", "sub"]);
    let all = desk.done(&["snapshot", "create", "--include-ignored", "."]);
    assert_eq!(all["size"]["files"], 6);
    assert_eq!(all["size"]["omitted"], 0);
}

#[test]
fn names_links_modes_and_empty_folders_come_back_exactly() {
    let desk = Desk::new();
    let names = [
        "with space",
        "quote'\"",
        "back\\slash",
        "new\nline",
        "tab\t",
        "-dash",
        "größe",
        "gro\u{308}ße",
        "😀",
        "%41",
        "$HOME",
        "a*b?[c]",
        "CON",
        "trailing.",
        "...",
        "\u{202e}rtl",
    ];
    for name in names {
        desk.write(name, name);
    }
    desk.write("program", "#!/bin/sh\n");
    tree::set_mode(&desk.project().join("program"), 0o755);
    std::fs::create_dir_all(desk.project().join("deep/er/empty")).unwrap();
    for (target, link) in
        [("with space", "l1"), ("/etc/passwd", "l2"), ("../../..", "l3"), ("dangling", "l4"), (".", "l5")]
    {
        symlink(target, desk.project().join(link)).unwrap();
    }
    let document = desk.done(&["snapshot", "create", "."]);
    let id = text(&document["id"]);
    assert_eq!(omitted(&document), []);
    for name in names {
        let words = ["snapshot", "cat", &id, "--", name];
        let cat = desk.run(&words).with(0);
        assert_eq!(cat.text(), name);
    }
    let listed = desk.run(&["snapshot", "ls", &id]).with(0);
    for line in
        ["l             - l2 -> /etc/passwd", "d             - deep/er/empty/", "fx           10 program"]
    {
        assert!(listed.text().lines().any(|found| found == line), "{line:?}: {listed}");
    }
    // What a workspace shows is what the source is, byte by byte.
    let expected = tree::read(&desk.project());
    let script = "tar -cf - . | base64 -w0";
    let ended = desk.run(&["exec", ".", "--", "sh", "-c", script]).with(0);
    let copy = desk.path("from-the-workspace");
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(desk.path("tar.b64"), &ended.stdout).unwrap();
    shell::must(&copy, &["sh", "-c", "base64 -d ../tar.b64 | tar -xf - --no-same-owner"]);
    assert_eq!(tree::read(&copy), expected);
}

#[test]
fn what_cannot_be_kept_is_left_out_with_the_reason() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.write(".git/config", "[core]\n");
    desk.write("sub/.git/HEAD", "ref: refs/heads/main\n");
    shell::must(&desk.project(), &["mkfifo", "pipe"]);
    let _listener = UnixListener::bind(desk.project().join("socket")).unwrap();
    std::fs::write(desk.project().join(OsStr::from_bytes(b"bad-\xff-name")), "x").unwrap();
    symlink(OsStr::from_bytes(b"to-\xff"), desk.project().join("badlink")).unwrap();
    let document = desk.done(&["snapshot", "create", "."]);
    let reasons: Vec<String> = omitted(&document).into_iter().map(|(reason, ..)| reason).collect();
    for reason in ["fifo", "socket", "non-utf8-name", "non-utf8-target", "vcs-metadata"] {
        assert!(reasons.iter().any(|found| found == reason), "{reason}: {document:#}");
    }
    let id = text(&document["id"]);
    assert!(paths(&desk, &id).contains(&"a.txt".to_owned()));
    let told = desk.run(&["snapshot", "show", &id]).with(0);
    assert!(told.text().contains("left out 1 path (fifo): pipe"), "{told}");
}

#[test]
fn equal_trees_have_equal_digests_and_a_recapture_the_same_id() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.write("folder/b.txt", "two\n");
    let first = desk.done(&["snapshot", "create", "."]);
    let again = desk.done(&["snapshot", "create", "."]);
    assert_eq!(first["id"], again["id"]);
    tree::copy(&desk.project(), &desk.path("copy"));
    let other = desk.done(&["snapshot", "create", desk.path("copy").to_str().unwrap()]);
    assert_eq!(first["tree"], other["tree"]);
    assert_ne!(first["id"], other["id"], "another source is another snapshot");
    desk.write("a.txt", "two\n");
    let changed = desk.done(&["snapshot", "create", "."]);
    assert_ne!(first["tree"], changed["tree"]);
    desk.write("a.txt", "one\n");
    assert_eq!(desk.captured(), text(&first["id"]));
    // Same size, and the time set back: a change that only the contents show.
    let file = desk.project().join("a.txt");
    shell::must(&desk.project(), &["cp", "-p", "a.txt", "../keep-times"]);
    std::fs::write(&file, "six\n").unwrap();
    shell::must(&desk.project(), &["touch", "-r", "../keep-times", "a.txt"]);
    assert_ne!(desk.captured(), text(&first["id"]));
}

#[test]
fn what_is_no_folder_is_refused_with_the_way_out() {
    let desk = Desk::new();
    desk.write("file.txt", "x");
    desk.write("archive.tar.gz", "x");
    desk.run(&["snapshot", "create", "missing"]).with(3).tells(&["missing"]);
    desk.run(&["snapshot", "create", "file.txt"]).with(4).tells(&["is a file"]);
    desk.run(&["snapshot", "create", "archive.tar.gz"]).with(4).tells(&["unpack"]);
    desk.run(&["snapshot", "create", "github:owner/repo"]).with(4).tells(&["github"]);
    desk.run(&["snapshot", "create", ""]).with(4);
    let pipe = desk.path("pipe");
    shell::must(Path::new("/"), &[OsStr::new("mkfifo"), pipe.as_os_str()]);
    desk.run(&["snapshot", "create", pipe.to_str().unwrap()]).with(4);
    symlink(desk.project(), desk.path("link-to-project")).unwrap();
    desk.run(&["snapshot", "create", desk.path("link-to-project").to_str().unwrap()]).with(0);
}

#[test]
fn an_empty_folder_is_a_snapshot_too() {
    let desk = Desk::new();
    let document = desk.done(&["snapshot", "create", "."]);
    assert_eq!((document["size"]["files"].as_u64(), document["size"]["bytes"].as_u64()), (Some(0), Some(0)));
    let id = text(&document["id"]);
    desk.run(&["snapshot", "ls", &id]).with(0);
    desk.run(&["snapshot", "verify", &id]).with(0);
    desk.run(&["exec", ".", "--", "true"]).with(0);
}

#[test]
fn a_file_that_may_not_be_read_is_an_error_that_names_it() {
    let desk = Desk::ordinary();
    desk.write("open.txt", "x");
    desk.write("closed.txt", "secret");
    desk.hand_over(&desk.project().join("closed.txt"));
    tree::set_mode(&desk.project().join("closed.txt"), 0o000);
    let error = desk.refused(8, &["snapshot", "create", "."]);
    assert_eq!(error["kind"], "refused");
    assert!(text(&error["message"]).contains("closed.txt"), "{error:#}");
    tree::set_mode(&desk.project().join("closed.txt"), 0o600);
    desk.run(&["snapshot", "create", "."]).with(0);

    desk.write("locked/in.txt", "x");
    desk.hand_over(&desk.project().join("locked"));
    tree::set_mode(&desk.project().join("locked"), 0o000);
    let ended = desk.run(&["snapshot", "create", "."]);
    tree::set_mode(&desk.project().join("locked"), 0o755);
    ended.with(8).tells(&["locked"]);
}

#[test]
fn names_of_a_source_cannot_steer_the_terminal() {
    let desk = Desk::new();
    desk.write("x\u{1b}]0;owned\u{7}\u{9b}31m", "x");
    desk.write(".gitignore", "\u{1b}[2J*.log\n");
    desk.write("\u{1b}[2Jx.log", "x");
    let id = desk.captured();
    for words in [&["snapshot", "ls", &id][..], &["snapshot", "show", &id], &["snapshot", "create", "."]] {
        let ended = desk.run(words).with(0);
        assert!(!ended.text().contains(['\u{1b}', '\u{7}', '\u{9b}']), "{words:?}: {ended}");
    }
    let ended = desk.run(&["snapshot", "cat", &id, "\u{1b}[2J"]).with(3);
    assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
}

#[test]
fn a_project_that_holds_the_state_folder_is_captured_without_it() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let inside = desk.project().join("state");
    let words = ["--home", inside.to_str().unwrap(), "--json", "snapshot", "create", "."];
    let mut command = std::process::Command::new(desk.binary());
    let call = |command: &mut std::process::Command| {
        let ended = Ended::of(command.args(words).current_dir(desk.project())).with(0);
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let first = call(&mut command);
    assert_eq!(first["size"]["files"], 1, "{first:#}");
    let again = call(&mut std::process::Command::new(desk.binary()));
    assert_eq!(first["id"], again["id"]);
}
