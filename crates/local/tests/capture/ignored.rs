//! Ignore rules, metadata of version control systems, and the globs that overrule them.

use super::*;

#[test]
fn ignored_files_are_counted_by_rule_and_include_ignored_keeps_them() {
    let tree = Tree::of(&["src/main.rs", "a.log", "src/b.log", "target/x", "target/y/z", "keep.log"]);
    tree.write(".gitignore", "*.log\n!keep.log\ntarget/\n");
    tree.write("src/.gitignore", "*.tmp\n");
    tree.write("src/c.tmp", "");
    let snapshot = tree.capture();
    assert_eq!(paths(&snapshot), [".gitignore", "keep.log", "src/.gitignore", "src/main.rs"]);
    assert_eq!(
        omitted(&snapshot),
        ["ignored .gitignore:*.log 2", "ignored .gitignore:target/ 1", "ignored src/.gitignore:*.tmp 1"]
    );
    let everything = tree.capture_with(&LocalSource::new().with_include_ignored(true));
    assert_eq!(everything.entries().len(), 9);
    assert!(everything.omitted().is_empty());
}

#[test]
fn a_repository_with_a_nested_one_and_a_git_file_leaves_metadata_out_and_says_so() {
    let tree = Tree::of(&[
        ".git/HEAD",
        ".git/objects/ab/cd",
        "app.py",
        "nested/.git/config",
        "nested/code.c",
        "module/.git",
        "module/code.c",
        "other/.hg/store",
        "other/.svn/entries",
        "plain/.hg",
    ]);
    let expected = ["app.py", "module/code.c", "nested/code.c", "other", "plain/.hg"];
    let left_out = [
        "vcs-metadata .git 1",
        "vcs-metadata module/.git 1",
        "vcs-metadata nested/.git 1",
        "vcs-metadata other/.hg 1",
        "vcs-metadata other/.svn 1",
    ];
    let (first, second) = (tree.capture(), tree.capture());
    assert_eq!(paths(&first), expected);
    assert_eq!(omitted(&first), left_out);
    assert_eq!(first.id(), second.id());
    let everything = tree.capture_with(&LocalSource::new().with_include_ignored(true));
    assert_eq!(omitted(&everything), left_out, "metadata stays out either way");
}

#[test]
fn rules_of_the_repository_above_apply_below_and_end_at_a_nested_repository() {
    let tree = Tree::of(&[
        "sub/deep/a.log",
        "sub/deep/b.txt",
        "sub/deep/c.bak",
        "sub/deep/local.txt",
        "outside.log",
    ]);
    fs::create_dir_all(tree.path(".git/info")).unwrap();
    tree.write(".git/info/exclude", "*.bak\n");
    tree.write(".gitignore", "*.log\n/sub/deep/local.txt\n");
    let (snapshot, _) =
        capture(&LocalSource::new(), &tree.path("sub/deep"), SnapshotLimits::default()).unwrap();
    assert_eq!(paths(&snapshot), ["b.txt"]);
    assert_eq!(
        omitted(&snapshot),
        [
            "ignored ../../.git/info/exclude:*.bak 1",
            "ignored ../../.gitignore:*.log 1",
            "ignored ../../.gitignore:/sub/deep/local.txt 1"
        ]
    );
    fs::create_dir(tree.path("sub/deep/.git")).unwrap();
    let whole = tree.capture();
    let kept = paths(&whole);
    assert!(kept.contains(&"sub/deep/a.log") && !kept.contains(&"outside.log"), "{kept:?}");
}

#[test]
fn exclude_comes_last_and_dot_ignore_first() {
    let tree = Tree::of(&["a.x", "b.x", "c.x"]);
    fs::create_dir_all(tree.path(".git/info")).unwrap();
    tree.write(".git/info/exclude", "*.x\n");
    tree.write(".gitignore", "!b.x\n!c.x\n");
    tree.write(".ignore", "c.x\n");
    let snapshot = tree.capture();
    assert_eq!(paths(&snapshot), [".gitignore", ".ignore", "b.x"]);
    assert_eq!(
        omitted(&snapshot),
        ["vcs-metadata .git 1", "ignored .git/info/exclude:*.x 1", "ignored .ignore:c.x 1"]
    );
}

#[test]
fn included_globs_keep_what_rules_would_leave_out() {
    let tree = Tree::of(&[
        ".env",
        "app/.env",
        "dist/app.js",
        "dist/deep/map.js",
        "node_modules/kept/index.js",
        "node_modules/kept/secret.env",
        "node_modules/gone/index.js",
        "out/a.txt",
        "out/b.txt",
    ]);
    tree.write(".gitignore", ".env\n*.env\ndist\nnode_modules/\nout/\n");
    let adapter = LocalSource::new().with_include([".env", "dist", "node_modules/kept/*.js", "/out/a.txt"]);
    let snapshot = tree.capture_with(&adapter);
    assert_eq!(
        paths(&snapshot),
        [
            ".env",
            ".gitignore",
            "app/.env",
            "dist/app.js",
            "dist/deep/map.js",
            "node_modules/kept/index.js",
            "out/a.txt"
        ]
    );
    assert_eq!(
        omitted(&snapshot),
        ["ignored .gitignore:node_modules/ 2", "ignored .gitignore:out/ 1"],
        "the secret and the other package in node_modules, and one file of out"
    );
}

#[test]
fn a_directory_whose_files_are_all_ignored_is_kept_as_empty() {
    let tree = Tree::of(&["logs/a.log", "top"]);
    tree.write(".gitignore", "*.log\n");
    assert_eq!(paths(&tree.capture()), [".gitignore", "logs", "top"]);
    let adapter = LocalSource::new().with_include(["logs/a.log"]);
    assert_eq!(paths(&tree.capture_with(&adapter)), [".gitignore", "logs/a.log", "top"]);
}

#[test]
fn a_folder_that_holds_only_what_an_include_found_further_down_is_not_empty() {
    let tree = Tree::of(&["pkg/cache/deep/keep.bin", "pkg/cache/deep/drop.bin"]);
    tree.write(".gitignore", "cache/\n");
    let adapter = LocalSource::new().with_include(["pkg/cache/deep/keep.bin"]);
    assert_eq!(paths(&tree.capture_with(&adapter)), [".gitignore", "pkg/cache/deep/keep.bin"]);
    assert_eq!(paths(&tree.capture()), [".gitignore", "pkg"]);
}

#[test]
fn a_rule_file_that_is_a_link_out_of_the_tree_has_no_rules() {
    let tree = Tree::of(&["a.log"]);
    fs::write(tree.folder.path().join("rules"), "*.log\n").unwrap();
    symlink("../rules", tree.path(".gitignore")).unwrap();
    assert_eq!(paths(&tree.capture()), [".gitignore", "a.log"]);
}

#[test]
fn rules_of_a_folder_that_is_no_repository_count_below_it_and_not_above() {
    let tree = Tree::of(&["sub/a.log", "sub/b"]);
    tree.write(".gitignore", "*.log\n");
    let (below, _) = capture(&LocalSource::new(), &tree.path("sub"), SnapshotLimits::default()).unwrap();
    assert_eq!(paths(&below), ["a.log", "b"]);
    assert_eq!(paths(&tree.capture()), [".gitignore", "sub/b"]);
}

#[test]
fn a_glob_that_is_none_is_refused_by_name() {
    let tree = Tree::of(&["a"]);
    let adapter = LocalSource::new().with_include(["[z-a]"]);
    let error = capture(&adapter, &tree.root(), SnapshotLimits::default()).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Contract, "[z-a]"));
}
