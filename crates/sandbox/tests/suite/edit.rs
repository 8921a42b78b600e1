//! `workspace_write` and `workspace_edit`: where they may write, and what an edit leaves untouched.

use coldframe_core::{EditParams, Node, ToolStatus};
use coldframe_sandbox::Strategy;

use crate::bench::{Bench, both, changes, edit, file, program, read, shell, text, write};

both!(
    a_write_leaves_through_no_link_no_dots_and_no_look_alike,
    replacing_a_file_keeps_its_executable_bit,
    of_twenty_edits_with_one_hash_exactly_one_lands,
    an_edit_of_a_file_that_changed_is_a_conflict_and_changes_nothing,
    line_ends_marks_and_missing_newlines_survive_an_edit,
    an_edit_of_what_is_not_there_or_not_text_is_typed,
    a_write_over_the_bound_is_refused_before_anything_changes,
    a_write_replaces_in_one_step_and_leaves_no_temporary_file,
);

async fn a_write_leaves_through_no_link_no_dots_and_no_look_alike(strategy: Strategy) {
    let bench = Bench::new(strategy, [("sub/x.txt", file("x\n"))]).await;
    let workspace = bench.open().await;
    let outside = bench.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("victim.txt"), "victim\n").unwrap();
    let at = outside.display();
    shell(
        &workspace,
        &format!(
            "ln -s {at} outdir; ln -s {at}/new.txt dangling; ln -s {at}/victim.txt outfile; ln -s sub insub"
        ),
    )
    .await;
    let refused = [
        "../x.txt",
        "../../outside/x.txt",
        "sub/../../x.txt",
        "/abs-case/x.txt",
        "outdir/x.txt",
        "outdir/deep/x.txt",
        "dangling",
        "outfile",
        "outdir/../x.txt",
        "../workspace-evil/x.txt",
        "sub/./../../x.txt",
        "~/x.txt/../../../x.txt",
        "insub/x.txt",
    ];
    for path in refused {
        let error = write(&workspace, path, "text").await.unwrap_err();
        assert_eq!(error.status, ToolStatus::Refused, "{path}: {}", error.message);
        assert!(!error.message.contains(outside.to_str().unwrap()));
    }
    let left: Vec<_> = crate::bench::names(&outside);
    assert_eq!(left, [outside.join("victim.txt")]);
    assert_eq!(std::fs::read_to_string(outside.join("victim.txt")).unwrap(), "victim\n");
    assert_eq!(text(&workspace, "sub/x.txt").await, "x\n");
}

async fn replacing_a_file_keeps_its_executable_bit(strategy: Strategy) {
    let items = [
        ("script.sh", program("#!/bin/sh\necho one\n")),
        ("plain.txt", file("plain\n")),
        ("locked.txt", file("l\n")),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "chmod 0444 locked.txt").await;
    assert!(write(&workspace, "script.sh", "#!/bin/sh\necho two\n").await.unwrap().executable);
    assert!(!write(&workspace, "plain.txt", "changed\n").await.unwrap().executable);
    assert!(!write(&workspace, "new/er.txt", "new\n").await.unwrap().executable);
    assert!(edit(&workspace, "script.sh", (2, 2), "echo three").await.unwrap().executable);
    // The folder is what a replacement needs write permission for, so a read-only file is replaced as well.
    write(&workspace, "locked.txt", "unlocked\n").await.unwrap();
    assert_eq!(shell(&workspace, "./script.sh; stat -c %a locked.txt script.sh").await, "three\n444\n755\n");
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["~locked.txt", "+new/er.txt", "~plain.txt", "~script.sh"]);
    let node = delta.change("script.sh").unwrap().node().unwrap();
    assert!(matches!(node, Node::File { executable: true, .. }));
    let mut set =
        coldframe_core::WriteParams { path: "plain.txt".into(), content: "x".into(), executable: Some(true) };
    assert!(workspace.write(set.clone()).await.unwrap().executable);
    set.executable = Some(false);
    assert!(!workspace.write(set).await.unwrap().executable);
}

async fn of_twenty_edits_with_one_hash_exactly_one_lands(strategy: Strategy) {
    let content: String = (1..=100).map(|line| format!("line {line:03}\n")).collect();
    let bench = Bench::new(strategy, [("list.txt", file(content.clone()))]).await;
    let workspace = bench.open().await;
    let hash = read(&workspace, "list.txt").await.unwrap().sha256;
    let edits: Vec<_> = (1..=20)
        .map(|line| {
            let (workspace, expected_sha256) = (workspace.clone(), hash.clone());
            tokio::spawn(async move {
                let (path, replacement) = ("list.txt".to_owned(), format!("edited {line}"));
                let params =
                    EditParams { path, start_line: line, end_line: line, replacement, expected_sha256 };
                workspace.edit(params).await
            })
        })
        .collect();
    let mut landed = 0;
    for edit in edits {
        match edit.await.unwrap() {
            Ok(_) => landed += 1,
            Err(error) => {
                assert_eq!(error.status, ToolStatus::Conflict);
                assert!(error.observed_sha256.is_some_and(|observed| observed != hash));
            }
        }
    }
    assert_eq!(landed, 1);
    let after = text(&workspace, "list.txt").await;
    assert_eq!(after.lines().count(), 100);
    assert_eq!(after.lines().zip(content.lines()).filter(|(new, old)| new != old).count(), 1);
}

async fn an_edit_of_a_file_that_changed_is_a_conflict_and_changes_nothing(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a.txt", file("one\ntwo\nthree\n"))]).await;
    let workspace = bench.open().await;
    let stale = read(&workspace, "a.txt").await.unwrap().sha256;
    shell(&workspace, "printf 'zero\\none\\ntwo\\nthree\\n' > a.txt").await;
    let params = |expected_sha256: &str| EditParams {
        path: "a.txt".to_owned(),
        start_line: 1,
        end_line: 1,
        replacement: "ONE".to_owned(),
        expected_sha256: expected_sha256.to_owned(),
    };
    let error = workspace.edit(params(&stale)).await.unwrap_err();
    let current = read(&workspace, "a.txt").await.unwrap();
    assert_eq!((error.status, error.observed_sha256), (ToolStatus::Conflict, Some(current.sha256.clone())));
    assert_eq!(current.content, "zero\none\ntwo\nthree\n");
    workspace.edit(params(&current.sha256)).await.unwrap();
    assert_eq!(text(&workspace, "a.txt").await, "ONE\none\ntwo\nthree\n");
}

async fn line_ends_marks_and_missing_newlines_survive_an_edit(strategy: Strategy) {
    let cases: [(&str, (u64, u64), &str, &str); 11] = [
        ("one\r\ntwo\r\nthree\r\n", (2, 2), "TWO", "one\r\nTWO\r\nthree\r\n"),
        ("a\nb\nc", (3, 3), "C", "a\nb\nC"),
        ("a\nb\nc", (2, 2), "B", "a\nB\nc"),
        ("a\nb\nc", (3, 3), "C\n", "a\nb\nC\n"),
        ("a\nb\nc", (2, 3), "", "a\n"),
        ("\u{feff}h\nx\n", (2, 2), "Y", "\u{feff}h\nY\n"),
        ("\u{feff}h\nx\n", (1, 1), "H", "\u{feff}H\nx\n"),
        ("h\nx\n", (1, 1), "H", "H\nx\n"),
        ("one\x0ctwo\nthree\rfour\x0bmore\nfive\n", (2, 2), "X", "one\x0ctwo\nX\nfive\n"),
        ("one\r\ntwo\np\r50%\r100%\nfour\r\n", (4, 4), "FOUR", "one\r\ntwo\np\r50%\r100%\nFOUR\r\n"),
        ("", (1, 0), "new\n", "new\n"),
    ];
    let items = cases.iter().enumerate().map(|(index, (before, ..))| (format!("{index}.txt"), file(*before)));
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    for (index, (_, lines, replacement, after)) in cases.into_iter().enumerate() {
        let name = format!("{index}.txt");
        edit(&workspace, &name, lines, replacement).await.unwrap();
        assert_eq!(text(&workspace, &name).await, after, "case {index}");
    }
}

async fn an_edit_of_what_is_not_there_or_not_text_is_typed(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a.txt", file("a\n")), ("bad", file(b"\xff\n".as_slice()))]).await;
    let workspace = bench.open().await;
    let hash = |content: &[u8]| {
        use sha2::Digest as _;
        sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02X}")).collect::<String>()
    };
    let params = |path: &str, lines: (u64, u64), expected_sha256: String| EditParams {
        path: path.to_owned(),
        start_line: lines.0,
        end_line: lines.1,
        replacement: "x".to_owned(),
        expected_sha256,
    };
    let cases = [
        (params("missing", (1, 1), hash(b"")), ToolStatus::NotFound),
        (params("bad", (1, 1), hash(b"\xff\n")), ToolStatus::Invalid),
        (params("a.txt", (3, 3), hash(b"a\n")), ToolStatus::Invalid),
        (params("a.txt", (0, 1), hash(b"a\n")), ToolStatus::Invalid),
        (params("a.txt", (1, u64::MAX), hash(b"a\n")), ToolStatus::Invalid),
        (params("a.txt", (u64::MAX, u64::MAX), hash(b"a\n")), ToolStatus::Invalid),
        (params("a.txt", (1, 1), String::new()), ToolStatus::Conflict),
        (params("../a.txt", (1, 1), hash(b"a\n")), ToolStatus::Refused),
    ];
    for (params, status) in cases {
        let shown = format!("{params:?}");
        assert_eq!(workspace.edit(params).await.unwrap_err().status, status, "{shown}");
    }
    workspace.edit(params("a.txt", (1, 1), hash(b"a\n"))).await.unwrap();
}

async fn a_write_over_the_bound_is_refused_before_anything_changes(strategy: Strategy) {
    let policy = crate::bench::policy(strategy).with_max_write_bytes(10);
    let bench = Bench::with_policy(policy, [("a.txt", file("a\n"))]).await;
    let workspace = bench.open().await;
    let error = write(&workspace, "deep/er/a.txt", "01234567890").await.unwrap_err();
    assert_eq!((error.status, error.size), (ToolStatus::Limit, Some(11)));
    let error = edit(&workspace, "a.txt", (1, 1), "01234567890").await.unwrap_err();
    assert_eq!(error.status, ToolStatus::Limit);
    write(&workspace, "a.txt", "0123456789").await.unwrap();
    assert_eq!(changes(&workspace.export().await.unwrap()), ["~a.txt"]);
}

async fn a_write_replaces_in_one_step_and_leaves_no_temporary_file(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a.txt", file("0".repeat(100_000)))]).await;
    let workspace = bench.open().await;
    let reader = {
        let workspace = workspace.clone();
        tokio::spawn(async move {
            for _ in 0..200 {
                let content = text(&workspace, "a.txt").await;
                assert_eq!(content.len(), 100_000);
                assert!(content.bytes().all(|byte| byte == content.as_bytes()[0]), "a torn read");
            }
        })
    };
    for round in 1..60 {
        write(&workspace, "a.txt", &(round % 10).to_string().repeat(100_000)).await.unwrap();
    }
    reader.await.unwrap();
    shell(&workspace, "mkdir full; echo x > full/x").await;
    assert_eq!(write(&workspace, "full", "x").await.unwrap_err().status, ToolStatus::Invalid);
    let names = shell(&workspace, "ls -A . full").await;
    assert!(!names.contains(".coldframe"), "{names}");
}
