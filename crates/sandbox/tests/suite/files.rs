//! Names, modes and independence of materialized files.

use coldframe_core::{ListParams, ToolStatus};
use coldframe_sandbox::Strategy;

use crate::bench::{Bench, Item, both, changes, file, link, list, path, program, read, shell, text, write};

both!(
    names_that_differ_only_in_letter_case_are_four_files,
    composed_and_decomposed_names_are_two_files,
    odd_names_keep_every_byte,
    control_characters_in_names_are_kept,
    writing_in_place_reaches_no_sibling_and_no_base,
    only_the_executable_bit_survives_and_the_mask_of_the_process_does_not_count,
    folders_that_a_command_closed_do_not_stop_reading_others_or_the_clean_up,
    a_path_of_the_longest_legal_length_round_trips,
    a_folder_of_very_many_entries_is_cut_and_says_so,
    a_listing_shows_links_as_links_and_never_their_host_targets,
);

async fn names_that_differ_only_in_letter_case_are_four_files(strategy: Strategy) {
    let items =
        [("Readme.md", "one\n"), ("README.md", "two\n"), ("lib/a.txt", "lower\n"), ("Lib/a.txt", "upper\n")];
    let bench = Bench::new(strategy, items.map(|(name, text)| (name, file(text)))).await;
    let workspace = bench.open().await;
    for (name, content) in items {
        assert_eq!(text(&workspace, name).await, content);
    }
    assert!(workspace.export().await.unwrap().is_empty());
}

async fn composed_and_decomposed_names_are_two_files(strategy: Strategy) {
    let items = [("caf\u{e9}.txt", "composed\n"), ("cafe\u{301}.txt", "decomposed\n")];
    let bench = Bench::new(strategy, items.map(|(name, text)| (name, file(text)))).await;
    let workspace = bench.open().await;
    for (name, content) in items {
        assert_eq!(text(&workspace, name).await, content);
    }
    assert_eq!(list(&workspace).await.len(), 2);
}

async fn odd_names_keep_every_byte(strategy: Strategy) {
    let names = [
        "NUL",
        "aux.c",
        "con/readme.txt",
        "end.",
        "end",
        "end ",
        " lead.txt",
        "a\\b",
        "C:x",
        "-e",
        "~",
        "a:b,c",
    ];
    let bench = Bench::new(strategy, names.map(|name| (name, file(name)))).await;
    let workspace = bench.open().await;
    for name in names {
        assert_eq!(text(&workspace, name).await, name);
    }
    for name in ["NUL", "end", "end.", "end "] {
        write(&workspace, name, "changed").await.unwrap();
    }
    assert_eq!(changes(&workspace.export().await.unwrap()), ["~NUL", "~end", "~end ", "~end."]);
}

async fn control_characters_in_names_are_kept(strategy: Strategy) {
    let names = ["new\nline", "tab\there", "bell\u{7}", "esc\u{1b}[31m", "quote\"'`$(x)"];
    let bench = Bench::new(strategy, names.map(|name| (name, file(name)))).await;
    let workspace = bench.open().await;
    for name in names {
        assert_eq!(text(&workspace, name).await, name);
    }
    shell(&workspace, "rm \"$(printf 'new\\nline')\"; printf x > \"$(printf 'cr\\rhere')\"").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["+cr\rhere", "-new\nline"]);
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn writing_in_place_reaches_no_sibling_and_no_base(strategy: Strategy) {
    let data = b"0123456789".repeat(100);
    let bench =
        Bench::new(strategy, [("data.bin", file(data.clone())), ("second-name.bin", file(data.clone()))])
            .await;
    let (one, two) = (bench.open().await, bench.open().await);
    shell(&one, "printf CHANGED | dd of=data.bin conv=notrunc 2>/dev/null").await;
    assert_eq!(changes(&one.export().await.unwrap()), ["~data.bin"]);
    assert_eq!(text(&one, "second-name.bin").await.into_bytes(), data);
    assert_eq!(text(&two, "data.bin").await.into_bytes(), data);
    assert_eq!(text(&bench.open().await, "data.bin").await.into_bytes(), data);
    for entry in bench.snapshot.entries() {
        let blob = entry.node.blob().unwrap();
        assert_eq!(coldframe_core::Digest::of(&bench.blob(Some(blob.digest))), blob.digest);
    }
}

async fn only_the_executable_bit_survives_and_the_mask_of_the_process_does_not_count(strategy: Strategy) {
    let bench = Bench::new(strategy, [("run", program("#!/bin/sh\n")), ("plain", file("p\n"))]).await;
    let workspace = bench.open().await;
    let modes = shell(&workspace, "stat -c '%a %n' run plain").await;
    assert_eq!(modes, "755 run\n644 plain\n");
    shell(&workspace, "chmod 4755 plain; chmod 2644 run; umask 0; echo x > open; chmod 666 open").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["+open", "~plain", "~run"]);
    let again = bench.open_with(&delta).await;
    assert_eq!(shell(&again, "stat -c '%a %n' run plain open").await, "644 run\n755 plain\n644 open\n");
}

async fn folders_that_a_command_closed_do_not_stop_reading_others_or_the_clean_up(strategy: Strategy) {
    let items = [("ro/file.txt", file("ro\n")), ("none/x.txt", file("x\n")), ("ro/deep/y.txt", file("y\n"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(
        &workspace,
        "echo new > none/new; mkdir -p none/a/b; echo z > none/a/b/z; chmod 0 none/x.txt none/a/b/z",
    )
    .await;
    shell(&workspace, "chmod 0 none/a/b none/a none; chmod 0555 ro ro/deep; chmod 0444 ro/file.txt").await;
    assert_eq!(text(&workspace, "ro/file.txt").await, "ro\n");
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["+none/a/b/z", "+none/new"]);
    assert_eq!(workspace.export().await.unwrap(), delta);
    let modes = shell(&workspace, "stat -c %a none ro; chmod 700 none; stat -c %a none/a none/x.txt").await;
    assert_eq!(modes, "0\n555\n0\n0\n", "an export leaves the modes as they were");
    let again = bench.open_with(&delta).await;
    assert_eq!(text(&again, "none/a/b/z").await, "z\n");
    shell(&workspace, "chmod 0 none .").await;
    assert_eq!(changes(&workspace.export().await.unwrap()), ["+none/a/b/z", "+none/new"]);
    again.close().await.unwrap();
    workspace.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

async fn a_path_of_the_longest_legal_length_round_trips(strategy: Strategy) {
    let folders = (0..15).map(|index| format!("{index:x}").repeat(255)).collect::<Vec<_>>().join("/");
    let folder = format!("{folders}/{}", "e".repeat(127));
    let (longest, other) =
        (&*format!("{folder}/{}", "y".repeat(127)), format!("{folder}/{}", "z".repeat(128)));
    assert_eq!(path(&other).as_str().len(), 4096);
    let bench = Bench::new(strategy, [(longest, file("long\n")), (&*other, file("longest\n"))]).await;
    let workspace = bench.open().await;
    assert_eq!(text(&workspace, longest).await, "long\n");
    assert_eq!(text(&workspace, &other).await, "longest\n");
    write(&workspace, &other, "changed\n").await.unwrap();
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), [format!("~{other}")]);
    let again = bench.open_with(&delta).await;
    assert_eq!(text(&again, &other).await, "changed\n");
    again.close().await.unwrap();
    workspace.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

async fn a_folder_of_very_many_entries_is_cut_and_says_so(strategy: Strategy) {
    let names: Vec<String> = (0..3000).map(|index| format!("many/f{index:05}")).collect();
    let more = ["many/A", "many/z.txt", "top.txt"].map(str::to_owned);
    let items = names.iter().chain(&more).map(|name| (name.clone(), file("")));
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let page =
        |path: &str, recursive| workspace.list(ListParams { path: path.to_owned(), recursive, limit: 500 });
    let first = page("many", false).await.unwrap();
    assert_eq!((first.entries.len(), first.total, first.truncated), (500, 3002, true));
    assert_eq!((first.entries[0].path.as_str(), first.entries[1].path.as_str()), ("many/A", "many/f00000"));
    assert_eq!(page("many", false).await.unwrap(), first);
    let whole = page(".", true).await.unwrap();
    assert_eq!((whole.total, whole.truncated, whole.entries[0].path.as_str()), (3004, true, "many"));
    assert!(whole.entries.is_sorted_by(|a, b| a.path < b.path));
    let empty = workspace.list(ListParams { limit: 0, ..ListParams::default() }).await.unwrap_err();
    assert_eq!(empty.status, ToolStatus::Invalid);
}

async fn a_listing_shows_links_as_links_and_never_their_host_targets(strategy: Strategy) {
    let items = [
        ("out", link("/etc")),
        ("dangling", link("nowhere")),
        ("in", link("sub")),
        ("sub/deep/x.txt", file("x\n")),
        ("empty", Item::Folder),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let entries = list(&workspace).await;
    let shown: Vec<(&str, Option<&str>)> =
        entries.iter().map(|entry| (entry.path.as_str(), entry.target.as_deref())).collect();
    let expected = [
        ("dangling", Some("nowhere")),
        ("empty", None),
        ("in", Some("sub")),
        ("out", Some("/etc")),
        ("sub", None),
        ("sub/deep", None),
        ("sub/deep/x.txt", None),
    ];
    assert_eq!(shown, expected);
    let through = ListParams { path: "in".to_owned(), recursive: true, limit: 10 };
    let below: Vec<String> =
        workspace.list(through).await.unwrap().entries.into_iter().map(|entry| entry.path).collect();
    assert_eq!(below, ["in/deep", "in/deep/x.txt"], "a link inside is followed where it is named");
    let outside =
        workspace.list(ListParams { path: "out".to_owned(), ..ListParams::default() }).await.unwrap_err();
    assert_eq!(outside.status, ToolStatus::Refused);
    assert!(!outside.message.contains(bench.folder.path().to_str().unwrap()));
    assert_eq!(read(&workspace, "out/passwd").await.unwrap_err().status, ToolStatus::Refused);
    assert_eq!(read(&workspace, "dangling").await.unwrap_err().status, ToolStatus::NotFound);
}
