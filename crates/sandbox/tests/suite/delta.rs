//! Deltas: what is in them, what is left out, and that they give the same tree again.

use coldframe_core::{
    DeltaChange, Digest, ErrorKind, LimitKind, Node, OpenWorkspace, SnapshotLimits, SourceError,
    WorkspaceDelta, WorkspaceError,
};
use coldframe_sandbox::Strategy;

use crate::bench::{
    Bench, Item, alone, both, changes, file, link, path, policy, program, python, read, shell, text, tree,
    write,
};

both!(
    deleted_files_stay_deleted_in_the_next_epoch,
    a_folder_that_is_made_anew_loses_what_it_held,
    a_folder_made_anew_hides_the_base_at_every_depth,
    files_become_folders_and_folders_files,
    kinds_change_into_each_other_in_every_way,
    the_executable_bit_alone_is_a_change,
    excluded_names_near_misses_and_tracked_files_below_them,
    work_that_ends_where_it_began_is_an_empty_delta,
    links_empty_folders_and_binary_files_are_in_the_delta,
    what_no_delta_can_hold_is_counted,
    names_that_meet_but_for_letter_case_are_refused_at_export,
    a_case_only_rename_is_no_meeting,
    a_second_export_sees_what_changed_after_the_first,
    a_delta_that_does_not_fit_is_refused_before_anything_is_made,
    a_corrupt_blob_of_a_delta_is_an_integrity_error_and_leaves_nothing,
    reverting_what_a_dependency_did_is_kept,
    limits_of_a_delta_are_typed,
    very_many_folders_do_not_use_up_descriptors,
    tracked_files_below_an_excluded_name_can_be_deleted,
    renames_and_hard_links_are_seen_as_what_they_leave,
    a_sparse_file_and_old_times_are_no_trouble,
);

fn excluded(delta: &WorkspaceDelta) -> Vec<(&str, u64)> {
    delta.excluded().iter().map(|excluded| (excluded.rule.as_str(), excluded.count)).collect()
}

fn source(error: WorkspaceError) -> SourceError {
    match error {
        WorkspaceError::Source(error) => error,
        other => panic!("{other}"),
    }
}

async fn deleted_files_stay_deleted_in_the_next_epoch(strategy: Strategy) {
    let bench =
        Bench::new(strategy, [("a.txt", file("a\n")), ("b.txt", file("b\n")), ("dir/c.txt", file("c\n"))])
            .await;
    let workspace = bench.open().await;
    shell(&workspace, "rm a.txt dir/c.txt; rmdir dir").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-a.txt", "-dir/c.txt"]);
    bench.assert_reapplies(&workspace, &delta).await;
    let next = bench.open_with(&delta).await;
    shell(&next, "echo more > b.txt").await;
    let delta = next.export().await.unwrap();
    assert_eq!(changes(&delta), ["-a.txt", "~b.txt", "-dir/c.txt"]);
    bench.assert_reapplies(&next, &delta).await;
}

async fn a_folder_that_is_made_anew_loses_what_it_held(strategy: Strategy) {
    let items = [("d/old.txt", file("old\n")), ("d/deep/x.txt", file("x\n")), ("keep.txt", file("k\n"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "rm -r d; mkdir d; echo new > d/new.txt").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-d/deep/x.txt", "+d/new.txt", "-d/old.txt"]);
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn a_folder_made_anew_hides_the_base_at_every_depth(strategy: Strategy) {
    let items =
        [("d/e/f/old.txt", file("old\n")), ("d/e/same.txt", file("same\n")), ("d/top.txt", file("t\n"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "rm -r d; mkdir -p d/e/f; echo new > d/e/f/new.txt; echo same > d/e/same.txt").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["+d/e/f/new.txt", "-d/e/f/old.txt", "-d/top.txt"]);
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn files_become_folders_and_folders_files(strategy: Strategy) {
    let items = [("a", file("file\n")), ("b/x.txt", file("x\n")), ("b/y/z.txt", file("z\n"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "rm a; mkdir a; echo inner > a/inner.txt; rm -r b; echo now a file > b").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-a", "+a/inner.txt", "+b", "-b/x.txt", "-b/y/z.txt"]);
    bench.assert_reapplies(&workspace, &delta).await;
    let again = bench.open_with(&delta).await;
    assert_eq!(tree(&again).await.into_keys().collect::<Vec<_>>(), ["a", "a/inner.txt", "b"]);
}

/// Every kind of entry is replaced by every other one.
async fn kinds_change_into_each_other_in_every_way(strategy: Strategy) {
    let make = [
        ("file", "echo content > $1"),
        ("program", "echo content > $1; chmod +x $1"),
        ("link", "ln -s target $1"),
        ("empty", "mkdir $1"),
        ("full", "mkdir -p $1/in/ner; echo x > $1/in/ner/x; echo y > $1/y"),
        ("gone", ":"),
        ("built", "mkdir -p $1/target; echo built > $1/target/o"),
    ];
    let mut items = Vec::new();
    let mut script = "set -e\n".to_owned();
    for before in ["file", "program", "link", "empty", "full"] {
        for (after, command) in make {
            let at = format!("{before}-{after}");
            match before {
                "file" => items.push((at.clone(), file("before\n"))),
                "program" => items.push((at.clone(), program("before\n"))),
                "link" => items.push((at.clone(), link("elsewhere"))),
                "empty" => items.push((at.clone(), Item::Folder)),
                _ => items.extend(["a", "in/b", "in/ner/c"].map(|name| (format!("{at}/{name}"), file(name)))),
            }
            script += &format!("set -- {at}; rm -r $1; {command}\n");
        }
    }
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, &script).await;
    let delta = workspace.export().await.unwrap();
    let entries = delta.apply_to(&bench.snapshot).unwrap();
    let again = bench.open_with(&delta).await;
    let (mut expected, mut seen) = (tree(&workspace).await, tree(&again).await);
    // What is excluded is not carried over; a folder with nothing else in it goes with it, unless it was an entry.
    expected.retain(|path, _| !path.contains("-built/target"));
    expected.retain(|path, _| !path.ends_with("-built") || path.as_str() == "empty-built");
    seen.retain(|path, _| !path.ends_with("-built") || path.as_str() == "empty-built");
    assert_eq!(seen, expected);
    for name in ["file-gone", "link-gone", "empty-gone"] {
        assert!(entries.iter().all(|entry| entry.path.as_str() != name), "{name}");
    }
    assert_eq!(again.export().await.unwrap().changes(), delta.changes());
}

async fn the_executable_bit_alone_is_a_change(strategy: Strategy) {
    let bench =
        Bench::new(strategy, [("tool.sh", file("#!/bin/sh\n")), ("plain.sh", program("#!/bin/sh\n"))]).await;
    let workspace = bench.open().await;
    shell(&workspace, "chmod 755 tool.sh; chmod 644 plain.sh").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["~plain.sh", "~tool.sh"]);
    let node = |name: &str| delta.change(name).unwrap().node().unwrap().clone();
    let digest = Digest::of(b"#!/bin/sh\n");
    assert_eq!(node("tool.sh"), Node::File { digest, size: 10, executable: true });
    assert_eq!(node("plain.sh"), Node::File { digest, size: 10, executable: false });
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn excluded_names_near_misses_and_tracked_files_below_them(strategy: Strategy) {
    let tracked = [
        "src/output/keep.md",
        "output/report.md",
        "pkgs/a/node_modules/m/index.js",
        ".venv/cfg",
        ".tmp/t.txt",
        "target/notes.md",
    ];
    let near = [
        "my_output/x.txt",
        "output.txt",
        "target.rs",
        "targets/y.txt",
        "node_modules_old/z.js",
        "venv/v.txt",
        ".tmpfile",
        "src/Target/w.txt",
    ];
    let bench = Bench::new(strategy, tracked.iter().chain(&near).map(|name| (*name, file(*name)))).await;
    let workspace = bench.open().await;
    let script = "find . -type f -exec sh -c 'for f; do echo edited >> \"$f\"; done' sh {} +; \
                  for p in target/debug/big.o pkgs/a/node_modules/new.js output/build.log crates/x/target/out.o; do \
                  mkdir -p $(dirname $p); echo built > $p; done; mkdir -p node_modules/.bin; ln -s ../x node_modules/.bin/x; \
                  mkdir node_modules/empty; rm output/report.md";
    shell(&workspace, script).await;
    let delta = workspace.export().await.unwrap();
    let mut expected: Vec<String> = tracked
        .iter()
        .chain(&near)
        .filter(|name| **name != "output/report.md")
        .map(|name| format!("~{name}"))
        .collect();
    expected.push("-output/report.md".to_owned());
    expected.sort_by(|a, b| a[1..].cmp(&b[1..]));
    assert_eq!(changes(&delta), expected);
    assert_eq!(excluded(&delta), [("node_modules", 3), ("output", 1), ("target", 2)]);
    let again = bench.open_with(&delta).await;
    assert_eq!(again.export().await.unwrap().changes(), delta.changes());
    assert_eq!(
        read(&again, "output/report.md").await.unwrap_err().status,
        coldframe_core::ToolStatus::NotFound
    );
}

async fn work_that_ends_where_it_began_is_an_empty_delta(strategy: Strategy) {
    let names = ["same.txt", "back.txt", "again.txt", "touched.txt", "moved.txt", "d/x.txt", "mode.txt"];
    let bench = Bench::new(strategy, names.map(|name| (name, file(name)))).await;
    let workspace = bench.open().await;
    let script = "printf same.txt > same.txt; echo other > back.txt; printf back.txt > back.txt; rm again.txt; \
                  printf again.txt > again.txt; touch -d @1 touched.txt; echo x > brief.txt; rm brief.txt; mv moved.txt m; \
                  mv m moved.txt; mkdir -p new/er; rmdir new/er new; rm -r d; mkdir d; printf d/x.txt > d/x.txt; \
                  chmod +x mode.txt; chmod 640 mode.txt; chmod 700 d";
    shell(&workspace, script).await;
    let delta = workspace.export().await.unwrap();
    assert!(delta.is_empty() && delta.excluded().is_empty(), "{:?}", changes(&delta));
    let untouched = bench.open().await.export().await.unwrap();
    assert_eq!(untouched.id(), delta.id());
}

async fn links_empty_folders_and_binary_files_are_in_the_delta(strategy: Strategy) {
    let items = [
        ("link", link("old")),
        ("same", link("same-target")),
        ("hollow", Item::Folder),
        ("full/a", file("a")),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let script = "ln -sfn new link; rm same; ln -s same-target same; ln -s /etc/passwd out; mkdir -p made/deep; \
                  rm full/a; rmdir hollow; printf '\\0\\377\\1' > binary; ln -s 'odd target' 'odd name'";
    shell(&workspace, script).await;
    let delta = workspace.export().await.unwrap();
    let expected = ["+binary", "+full", "-full/a", "-hollow", "~link", "+made/deep", "+odd name", "+out"];
    assert_eq!(changes(&delta), expected);
    assert_eq!(
        delta.change("out").unwrap().node(),
        Some(&Node::Symlink { target: "/etc/passwd".to_owned() })
    );
    let Some(Node::File { digest, size: 3, executable: false }) = delta.change("binary").unwrap().node()
    else {
        panic!("{:?}", delta.change("binary"));
    };
    assert_eq!(bench.blob(Some(*digest)), b"\0\xff\x01");
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn what_no_delta_can_hold_is_counted(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a")), ("d/x", file("x")), ("node", file("n"))]).await;
    let workspace = bench.open().await;
    let code = "import os, socket\nos.mkfifo('pipe')\ns = socket.socket(socket.AF_UNIX); s.bind('sock')\n\
                open(b'bad\\xff', 'w').close()\nos.makedirs(b'dir\\xfe/sub'); open(b'dir\\xfe/sub/f', 'w').close()\n\
                os.symlink(b'target\\xff', 'oddlink')\nos.remove('node'); os.mkfifo('node')\n\
                try: os.mknod('whiteout', 0o20600, 0)\nexcept PermissionError: pass\n\
                os.remove('a'); os.symlink(b'\\xff', 'a')";
    python(&workspace, code).await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-a", "-node"]);
    // An overlay forbids to make what looks like its own mark; a copy takes it for a device.
    let special = if strategy == Strategy::Copy { 4 } else { 3 };
    assert_eq!(
        excluded(&delta),
        [("illegal name", 2), ("link target that is not UTF-8", 2), ("special file", special)]
    );
    assert_eq!(text(&workspace, "d/x").await, "x");
    assert_eq!(bench.open_with(&delta).await.export().await.unwrap().changes(), delta.changes());
    workspace.close().await.unwrap();
}

async fn names_that_meet_but_for_letter_case_are_refused_at_export(strategy: Strategy) {
    let items = [
        ("README.md", file("r")),
        ("lib/a.txt", file("a")),
        ("caf\u{e9}", file("c")),
        ("hollow", Item::Folder),
    ];
    for (script, subject) in [
        ("echo x > readme.md", "readme.md"),
        ("mkdir Lib; echo x > Lib/A.txt", "Lib/A.txt"),
        ("mkdir LIB; echo x > LIB/a.txt", "LIB/a.txt"),
        ("echo x > \"$(printf 'cafe\\314\\201')\"", "cafe\u{301}"),
        ("echo x > one; echo y > ONE", "one"),
        ("mkdir -p n/deep N/deep; echo x > n/deep/x; echo y > N/deep/x", "n/deep/x"),
        ("mkdir Hollow", "Hollow"),
        ("echo changed > README.md; echo x > Readme.md", "Readme.md"),
    ] {
        let bench = Bench::new(strategy, items.iter().map(|(name, item)| (*name, copy_of(item)))).await;
        let workspace = bench.open().await;
        shell(&workspace, script).await;
        let error = source(workspace.export().await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Contract, "{script}");
        assert_eq!(error.subject().to_lowercase(), subject.to_lowercase(), "{script}");
        assert!(error.to_string().contains("letter case"), "{error}");
    }
}

fn copy_of(item: &Item) -> Item {
    match item {
        Item::File(content) => Item::File(content.clone()),
        Item::Program(content) => Item::Program(content.clone()),
        Item::Link(target) => Item::Link(target.clone()),
        Item::Folder => Item::Folder,
    }
}

async fn a_case_only_rename_is_no_meeting(strategy: Strategy) {
    let items = [("README.md", file("r")), ("Sub/a", file("a")), ("twin", file("t")), ("Twin", file("T"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(
        &workspace,
        "mv README.md readme.md; mkdir sub; mv Sub/a sub/a; rmdir Sub; echo more >> twin; echo b > sub/b",
    )
    .await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-README.md", "-Sub/a", "+readme.md", "+sub/a", "+sub/b", "~twin"]);
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn a_second_export_sees_what_changed_after_the_first(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a")), ("b", file("b"))]).await;
    let workspace = bench.open().await;
    // The same size and, restored by hand, the same time of change of content.
    shell(&workspace, "printf x > a; touch -d @1000 a").await;
    let mut last = Vec::new();
    for letter in ["y", "z", "y", "w"] {
        shell(&workspace, &format!("printf {letter} > a; touch -d @1000 a")).await;
        let delta = workspace.export().await.unwrap();
        let Some(Node::File { digest, .. }) = delta.change("a").unwrap().node() else { panic!() };
        assert_eq!(*digest, Digest::of(letter.as_bytes()));
        last.push(delta.id());
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        assert_eq!(workspace.export().await.unwrap().id(), delta.id());
    }
    assert_eq!(last[0], last[2]);
    shell(&workspace, "printf a > a").await;
    assert!(workspace.export().await.unwrap().is_empty());
}

async fn a_delta_that_does_not_fit_is_refused_before_anything_is_made(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a")), ("d/x", file("x")), ("link", link("d"))]).await;
    let blob = Node::File { digest: Digest::of(b"a"), size: 1, executable: false };
    let entry = |name: &str| coldframe_core::SnapshotEntry { path: path(name), node: blob.clone() };
    let delta =
        |base: Digest, changes: Vec<DeltaChange>| WorkspaceDelta::new(base, vec![], changes, vec![]).unwrap();
    let base = bench.snapshot.id();
    let wrong = [
        delta(Digest::of(b"other"), vec![]),
        delta(base, vec![DeltaChange::Added { entry: entry("a") }]),
        delta(base, vec![DeltaChange::Modified { entry: entry("b") }]),
        delta(base, vec![DeltaChange::Deleted { path: path("d") }]),
        delta(base, vec![DeltaChange::Added { entry: entry("a/b") }]),
        delta(base, vec![DeltaChange::Added { entry: entry("link/y") }]),
        delta(base, vec![DeltaChange::Added { entry: entry("d") }]),
    ];
    for delta in wrong {
        let request = OpenWorkspace { snapshot: &bench.snapshot, delta: Some(&delta) };
        let error = source(bench.sandbox.open_workspace(request).await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Contract, "{error}");
        assert!(bench.work_folders().is_empty());
    }
}

async fn a_corrupt_blob_of_a_delta_is_an_integrity_error_and_leaves_nothing(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    write(&workspace, "b/new.txt", "content\n").await.unwrap();
    let delta = workspace.export().await.unwrap();
    workspace.close().await.unwrap();
    bench.store.damage(Digest::of(b"content\n"), b"another\n".to_vec());
    let request = OpenWorkspace { snapshot: &bench.snapshot, delta: Some(&delta) };
    let error = source(bench.sandbox.open_workspace(request).await.unwrap_err());
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Integrity, "b/new.txt"));
    assert!(bench.work_folders().is_empty());
    let other =
        crate::bench::snapshot(&bench.store, [("sub/bad", file("bad\n")), ("good", file("good\n"))]).await;
    bench.store.damage(Digest::of(b"bad\n"), b"evil".to_vec());
    let error = source(bench.sandbox.prepare(&other).await.unwrap_err());
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Integrity, "sub/bad"));
    assert!(error.to_string().contains(&Digest::of(b"bad\n").to_string()), "{error}");
    bench.store.remove(&Digest::of(b"bad\n"));
    assert_eq!(source(bench.sandbox.prepare(&other).await.unwrap_err()).kind(), ErrorKind::Integrity);
    bench.store.damage(Digest::of(b"bad\n"), b"bad\n".to_vec());
    bench.sandbox.prepare(&other).await.unwrap();
}

/// A step that takes back what the step before it did leaves nothing of it in the next epoch.
async fn reverting_what_a_dependency_did_is_kept(strategy: Strategy) {
    let bench = Bench::new(strategy, [("base.txt", file("base\n")), ("gone.txt", file("gone\n"))]).await;
    let first = bench.open().await;
    shell(&first, "echo x > x; echo edited > base.txt; rm gone.txt").await;
    let dependency = first.export().await.unwrap();
    let second = bench.open_with(&dependency).await;
    assert_eq!(second.export().await.unwrap().parents(), [dependency.id()]);
    shell(&second, "rm x; echo base > base.txt; echo gone > gone.txt").await;
    let reverted = second.export().await.unwrap();
    assert!(reverted.is_empty());
    let third = bench.open_with(&reverted).await;
    assert_eq!(tree(&third).await, tree(&bench.open().await).await);
}

async fn limits_of_a_delta_are_typed(strategy: Strategy) {
    let limits = SnapshotLimits { max_files: 3, max_total_bytes: 1000, max_file_bytes: 600, concurrency: 1 };
    let bench = Bench::with_policy(policy(strategy).with_delta_limits(limits), [("a", file("a"))]).await;
    let cases = [
        ("touch 1 2 3 4", Some(LimitKind::MaxFiles)),
        ("truncate -s 601 big", Some(LimitKind::MaxFileBytes)),
        ("truncate -s 8T huge", Some(LimitKind::MaxFileBytes)),
        ("truncate -s 600 1; truncate -s 600 2", Some(LimitKind::MaxTotalBytes)),
        ("touch 1 2; truncate -s 600 3", None),
    ];
    for (script, kind) in cases {
        let workspace = bench.open().await;
        shell(&workspace, script).await;
        match kind {
            Some(kind) => {
                let error = source(workspace.export().await.unwrap_err());
                assert_eq!(error.kind(), ErrorKind::LimitExceeded(kind), "{script}");
                assert!(!error.subject().is_empty());
            }
            None => assert_eq!(workspace.export().await.unwrap().changes().len(), 3),
        }
    }
}

async fn very_many_folders_do_not_use_up_descriptors(strategy: Strategy) {
    let test = format!("delta::{strategy}::very_many_folders_do_not_use_up_descriptors");
    if !alone(&test, &["prlimit", "--nofile=128:128"]) {
        return;
    }
    let items = (0..1500).map(|index| (format!("wide/d{index}/f"), file("")));
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let code = "import os, shutil\nfor n in range(1500):\n    os.makedirs('node_modules/p%d/lib' % n)\n    \
                os.mkdir('node_modules/p%d/lib/e' % n)\n    os.makedirs('new/p%d/q' % n)\nshutil.rmtree('wide')\n\
                for n in range(400):\n    os.mkdir('deep'); os.chdir('deep')\nopen('f', 'w').close()";
    python(&workspace, code).await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(delta.changes().len(), 3001);
    assert_eq!(excluded(&delta), [("node_modules", 1500)]);
    let page = coldframe_core::ListParams { path: ".".to_owned(), recursive: true, limit: 10 };
    assert_eq!(workspace.list(page).await.unwrap().total, 1 + 4500 + 1 + 3000 + 401);
    let again = bench.open_with(&delta).await;
    assert_eq!(again.export().await.unwrap().changes(), delta.changes());
    again.close().await.unwrap();
    workspace.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

/// A build folder with tracked files in it is removed and built anew.
async fn tracked_files_below_an_excluded_name_can_be_deleted(strategy: Strategy) {
    let items = [("target/notes.md", file("n")), ("target/deep/kept.md", file("k")), ("a", file("a"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(
        &workspace,
        "rm -r target; mkdir -p target/deep; echo built > target/deep/out.o; printf k > target/deep/kept.md",
    )
    .await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(
        (changes(&delta), excluded(&delta)),
        (vec!["-target/notes.md".to_owned()], vec![("target", 1)])
    );
    shell(&workspace, "rm -r target").await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["-target/deep/kept.md", "-target/notes.md"]);
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn renames_and_hard_links_are_seen_as_what_they_leave(strategy: Strategy) {
    let items = [("d/a", file("a")), ("d/sub/b", file("b")), ("e/c", file("c")), ("h", file("h"))];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "mv d moved; ln h h2; ln e/c e/c2; echo more >> e/c2; mv e/c over; echo x > f; mv f h")
        .await;
    let delta = workspace.export().await.unwrap();
    let expected = ["-d/a", "-d/sub/b", "-e/c", "+e/c2", "~h", "+h2", "+moved/a", "+moved/sub/b", "+over"];
    assert_eq!(changes(&delta), expected);
    assert_eq!(text(&workspace, "over").await, "cmore\n");
    bench.assert_reapplies(&workspace, &delta).await;
}

async fn a_sparse_file_and_old_times_are_no_trouble(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    shell(
        &workspace,
        "truncate -s 9M sparse; printf end >> sparse; touch -d '1960-01-01' sparse; touch -d '2400-01-01' a",
    )
    .await;
    let delta = workspace.export().await.unwrap();
    assert_eq!(changes(&delta), ["+sparse"]);
    let Some(Node::File { digest, size, .. }) = delta.change("sparse").unwrap().node() else { panic!() };
    assert_eq!(*size, (9 << 20) + 3);
    assert!(bench.blob(Some(*digest)).ends_with(b"\0end"));
    bench.assert_reapplies(&workspace, &delta).await;
}
