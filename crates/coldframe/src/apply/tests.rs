//! Deltas applied to real directories: all or nothing, whatever stands in the way.

use std::os::unix::fs::{PermissionsExt, symlink};

use coldframe_core::{DeltaChange, Digest, SnapshotManifest, SourceRef};

use super::*;
use crate::Runner;

struct Bench {
    folder: tempfile::TempDir,
    node: Coldframe,
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn file(text: &str, content: &str, executable: bool) -> SnapshotEntry {
    let node = Node::File { digest: Digest::of(content.as_bytes()), size: content.len() as u64, executable };
    SnapshotEntry { path: path(text), node }
}

fn link(text: &str, target: &str) -> SnapshotEntry {
    SnapshotEntry { path: path(text), node: Node::Symlink { target: target.to_owned() } }
}

fn directory(text: &str) -> SnapshotEntry {
    SnapshotEntry { path: path(text), node: Node::Directory }
}

fn added(entry: SnapshotEntry) -> DeltaChange {
    DeltaChange::Added { entry }
}

fn modified(entry: SnapshotEntry) -> DeltaChange {
    DeltaChange::Modified { entry }
}

fn deleted(text: &str) -> DeltaChange {
    DeltaChange::Deleted { path: path(text) }
}

impl Bench {
    /// A directory with the base in it, and the store that knows base and contents.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Runner::new().with_home(folder.path().join("home")).open().await.unwrap();
        let bench = Self { folder, node };
        let root = bench.root();
        for (name, content) in
            [("a.txt", "one\n"), ("dir/b.txt", "two\n"), ("dir/sub/c.txt", "three\n"), ("tool", "#!\n")]
        {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), content).unwrap();
        }
        std::fs::create_dir(root.join("empty")).unwrap();
        symlink("a.txt", root.join("link")).unwrap();
        for content in ["one\n", "two\n", "three\n", "#!\n", "new\n", "dir is a file now\n"] {
            bench.node.store().write_bytes(content.as_bytes().to_vec()).await.unwrap();
        }
        bench.node.store().flush().await.unwrap();
        bench
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    async fn delta(&self, changes: Vec<DeltaChange>) -> WorkspaceDelta {
        let base = SnapshotManifest {
            source: SourceRef::new("fixture", "x", "").unwrap(),
            resolved_revision: String::new(),
            entries: vec![
                file("a.txt", "one\n", false),
                file("dir/b.txt", "two\n", false),
                file("dir/sub/c.txt", "three\n", false),
                directory("empty"),
                link("link", "a.txt"),
                file("tool", "#!\n", false),
            ],
            omitted: vec![],
        }
        .seal()
        .unwrap();
        self.node.store().save_snapshot(&base).await.unwrap();
        WorkspaceDelta::new(base.id(), vec![], changes, vec![]).unwrap()
    }

    async fn apply(&self, delta: &WorkspaceDelta) -> Result<Applied, Error> {
        self.node.apply(delta, &self.root(), ApplyOptions::default()).await
    }

    /// Every path with its kind, bits and content.
    fn tree(&self) -> Vec<String> {
        fn walk(folder: &Path, prefix: &str, lines: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                let found = entry.path().symlink_metadata().unwrap();
                if found.is_symlink() {
                    lines.push(format!("{name} -> {:?}", entry.path().read_link().unwrap()));
                } else if found.is_dir() {
                    lines.push(format!("{name}/"));
                    walk(&entry.path(), &format!("{name}/"), lines);
                } else {
                    let bit = if found.permissions().mode() & 0o100 != 0 { "x" } else { "-" };
                    lines.push(format!("{name} {bit} {:?}", std::fs::read_to_string(entry.path()).unwrap()));
                }
            }
        }
        let mut lines = Vec::new();
        walk(&self.root(), "", &mut lines);
        lines.sort();
        lines
    }
}

fn everything() -> Vec<DeltaChange> {
    vec![
        modified(file("a.txt", "new\n", false)),
        deleted("dir/b.txt"),
        deleted("dir/sub/c.txt"),
        added(file("dir", "dir is a file now\n", true)),
        added(file("empty/inner/d.txt", "two\n", false)),
        modified(file("link", "new\n", false)),
        modified(file("tool", "#!\n", true)),
        added(link("other", "../outside")),
        added(directory("fresh/empty")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_of_every_sort_is_applied_and_taken_back() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let delta = bench.delta(everything()).await;
    let applied = bench.apply(&delta).await.unwrap();
    assert!(!applied.recovered);
    assert_eq!(
        bench.tree(),
        [
            "a.txt - \"new\\n\"",
            "dir x \"dir is a file now\\n\"",
            "empty/",
            "empty/inner/",
            "empty/inner/d.txt - \"two\\n\"",
            "fresh/",
            "fresh/empty/",
            "link - \"new\\n\"",
            "other -> \"../outside\"",
            "tool x \"#!\\n\"",
        ]
    );
    let back = ApplyOptions { direction: Direction::Back, dry_run: false };
    bench.node.apply(&delta, &bench.root(), back).await.unwrap();
    assert_eq!(bench.tree(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_differs_is_refused_with_every_difference() {
    let bench = Bench::new().await;
    std::fs::write(bench.root().join("a.txt"), "ONE\n").unwrap();
    std::fs::write(bench.root().join("dir/mine.txt"), "").unwrap();
    std::fs::remove_file(bench.root().join("link")).unwrap();
    std::fs::set_permissions(bench.root().join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(bench.root().join("other"), "").unwrap();
    let before = bench.tree();
    let error = bench.apply(&bench.delta(everything()).await).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    for name in ["a.txt", "dir", "link", "tool", "other"] {
        assert!(error.to_string().contains(&format!("\n  {name:?}: ")), "{name}: {error}");
    }
    assert_eq!(error.details().unwrap()["differences"].as_array().unwrap().len(), 5);
    assert_eq!(bench.tree(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_the_delta_does_not_touch_may_differ() {
    let bench = Bench::new().await;
    std::fs::write(bench.root().join("a.txt"), "mine\n").unwrap();
    let delta = bench.delta(vec![modified(file("tool", "#!\n", true))]).await;
    assert_eq!(bench.apply(&delta).await.unwrap().paths, 1);
    assert!(bench.tree().contains(&"a.txt - \"mine\\n\"".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_way_is_never_followed() {
    let bench = Bench::new().await;
    let outside = bench.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("b.txt"), "two\n").unwrap();
    std::fs::remove_dir_all(bench.root().join("dir")).unwrap();
    symlink(&outside, bench.root().join("dir")).unwrap();
    for change in [
        modified(file("dir/b.txt", "new\n", false)),
        deleted("dir/b.txt"),
        added(file("dir/n.txt", "new\n", false)),
    ] {
        let delta = bench.delta(vec![change]).await;
        assert_eq!(bench.apply(&delta).await.unwrap_err().kind(), Kind::Conflict);
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("b.txt")).unwrap(), "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_cannot_be_read_leaves_everything_as_it_was() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let mut changes = everything();
    changes.push(added(file("zzz", "never stored\n", false)));
    assert!(bench.apply(&bench.delta(changes).await).await.is_err());
    assert_eq!(bench.tree(), before);
    assert!(bench.apply(&bench.delta(everything()).await).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let options = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
    let delta = bench.delta(everything()).await;
    assert!(bench.node.apply(&delta, &bench.root(), options).await.unwrap().paths > 5);
    assert_eq!(bench.tree(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permission_bits_of_a_replaced_file_stay() {
    let bench = Bench::new().await;
    std::fs::set_permissions(bench.root().join("a.txt"), PermissionsExt::from_mode(0o640)).unwrap();
    let delta = bench.delta(vec![modified(file("a.txt", "new\n", true))]).await;
    bench.apply(&delta).await.unwrap();
    let mode = bench.root().join("a.txt").metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o750);
}

/// Does the first `count` moves of an apply and stops there, as a kill would.
fn stop_after(bench: &Bench, plan: &ApplyPlan, count: usize) {
    let root = bench.root().canonicalize().unwrap();
    let directory = Directory::open(&root).unwrap();
    let journal = ApplyJournal::lock(&bench.node.home().root().join("applies"), &root).unwrap();
    let found = checks::look(&directory, plan).unwrap().found;
    let record = Record {
        format: 1,
        directory: root,
        staging: ".coldframe-apply-test".to_owned(),
        phase: Phase::Applying,
        actions: actions_of(plan, &found),
    };
    let staging = Staging::create(&directory, &record.staging).unwrap();
    for (number, step) in plan.steps.iter().enumerate() {
        match step {
            ApplyStep::WriteFile { .. } => drop(staging.new.create_file(&number.to_string(), 0o666).unwrap()),
            ApplyStep::MakeSymlink { target, .. } => {
                staging.new.make_symlink(target, &number.to_string()).unwrap();
            }
            _ => {}
        }
    }
    journal.write(&record).unwrap();
    for (number, action) in record.actions.iter().enumerate().take(count) {
        action.perform(number, &directory, &staging, found.get(&action.path)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_of_a_file_keeps_its_mode() {
    let bench = Bench::new().await;
    let outside = bench.folder.path().join("outside");
    std::fs::hard_link(bench.root().join("tool"), &outside).unwrap();
    let delta = bench.delta(vec![modified(file("tool", "#!\n", true))]).await;
    bench.apply(&delta).await.unwrap();
    let is_executable = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o100 != 0;
    assert!(is_executable(&bench.root().join("tool")));
    assert!(!is_executable(&outside));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_was_killed_after_any_move_is_undone_by_the_next() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let delta = bench.delta(everything()).await;
    let base = bench.node.store().load_snapshot(&delta.base()).await.unwrap();
    let plan = plan_apply(&base, &delta).unwrap();
    let options = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
    for count in 0..=plan.steps.len() {
        stop_after(&bench, &plan, count);
        let applied = bench.node.apply(&delta, &bench.root(), options).await.unwrap();
        assert!(applied.recovered);
        assert_eq!(bench.tree(), before, "after {count} moves");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_was_killed_is_done_again_without_harm() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let delta = bench.delta(everything()).await;
    let base = bench.node.store().load_snapshot(&delta.base()).await.unwrap();
    let plan = plan_apply(&base, &delta).unwrap();
    stop_after(&bench, &plan, plan.steps.len());
    let directory = Directory::open(&bench.root()).unwrap();
    let folder = directory.child(".coldframe-apply-test").unwrap();
    let staging = Staging { new: folder.child("new").unwrap(), old: folder.child("old").unwrap() };
    let text = std::fs::read_dir(bench.node.home().root().join("applies"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| std::fs::read(path).unwrap())
        .unwrap();
    let record: Record = serde_json::from_slice(&text).unwrap();
    for _ in 0..3 {
        undo_all(&directory, &staging, &record.actions).unwrap();
    }
    let options = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
    bench.node.apply(&delta, &bench.root(), options).await.unwrap();
    assert_eq!(bench.tree(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staging_folder_that_is_there_in_part_is_removed() {
    let bench = Bench::new().await;
    let before = bench.tree();
    let delta = bench.delta(everything()).await;
    let base = bench.node.store().load_snapshot(&delta.base()).await.unwrap();
    let plan = plan_apply(&base, &delta).unwrap();
    let options = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
    let staging = bench.root().join(".coldframe-apply-test");
    for missing in [&["new"][..], &["old"], &["new", "old"]] {
        stop_after(&bench, &plan, 3);
        // A folder that is not Coldframe's ends the removal half way, after the moves were undone.
        std::fs::create_dir(staging.join("new/foreign")).unwrap();
        assert!(bench.node.apply(&delta, &bench.root(), options).await.is_err());
        for part in missing {
            std::fs::remove_dir_all(staging.join(part)).unwrap();
        }
        let _ = std::fs::remove_dir(staging.join("new/foreign"));
        bench.node.apply(&delta, &bench.root(), options).await.unwrap();
        assert_eq!(bench.tree(), before, "without {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staging_folder_that_the_directory_brought_itself_is_not_believed() {
    let bench = Bench::new().await;
    let planted = bench.root().join(".coldframe-apply-00000000/old");
    std::fs::create_dir_all(&planted).unwrap();
    std::fs::write(planted.join("0"), "planted\n").unwrap();
    bench.apply(&bench.delta(everything()).await).await.unwrap();
    assert!(bench.tree().contains(&".coldframe-apply-00000000/old/0 - \"planted\\n\"".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_never_reaches_into_a_git_folder() {
    let bench = Bench::new().await;
    for name in [".git/hooks/pre-commit", "vendor/.GIT/config", ".git"] {
        let delta = bench.delta(vec![added(file(name, "new\n", true))]).await;
        assert_eq!(bench.apply(&delta).await.unwrap_err().kind(), Kind::Refused, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_some_file_system_or_git_takes_for_a_repository_is_refused() {
    let bench = Bench::new().await;
    for name in ["GIT~1/config", ".g\u{200c}it/config", ".git /config", ".GIT./x", ".git:stream"] {
        let delta = bench.delta(vec![added(file(name, "new\n", false))]).await;
        assert_eq!(bench.apply(&delta).await.unwrap_err().kind(), Kind::Refused, "{name}");
    }
    let bare = ["docs/HEAD", "docs/config", "docs/objects/x/k", "docs/refs/heads/k"];
    let delta = bench.delta(bare.iter().map(|name| added(file(name, "new\n", false))).collect()).await;
    assert_eq!(bench.apply(&delta).await.unwrap_err().kind(), Kind::Refused);
    let harmless = bench
        .delta(vec![added(file("docs/HEAD", "new\n", false)), added(file(".gitignore", "new\n", false))])
        .await;
    bench.apply(&harmless).await.unwrap();
}
