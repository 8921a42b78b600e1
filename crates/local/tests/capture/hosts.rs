//! Hosts that give little: few file handles, one blocking thread, other writers of the same cache.

use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;

const CHILD: &str = "COLDFRAME_TEST_FEW_HANDLES";

#[test]
fn three_thousand_files_are_captured_with_sixty_four_handles() {
    if std::env::var_os(CHILD).is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hosts::three_thousand_files_are_captured_with_sixty_four_handles"])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let paths: Vec<String> = (0..3000).map(|index| format!("folder-{}/file-{index}", index % 30)).collect();
    let tree = Tree::of(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let limits = SnapshotLimits { concurrency: 1000, ..SnapshotLimits::default() };
    let (snapshot, store) = capture(&LocalSource::new(), &tree.root(), limits).unwrap();
    assert_eq!(snapshot.entries().len(), 3000);
    for entry in snapshot.entries() {
        let content = store.content(&entry.node.blob().unwrap().digest).unwrap();
        assert_eq!(*content, entry.path.as_str().as_bytes());
    }
}

#[test]
fn one_blocking_thread_is_enough() {
    let mut nodes: Vec<FixtureNode> = (0..200)
        .map(|index| FixtureNode::file(&format!("d{}/f{index}", index % 7), format!("{index}")))
        .collect();
    nodes.push(FixtureNode::file("large.bin", vec![7; 5 << 20]));
    let tree = Tree::new(&nodes);
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_time().build().unwrap();
    let (adapter, source) = (LocalSource::new(), reference(&tree.root()));
    let work = capture_into_memory(&adapter, &source, SnapshotLimits::default());
    let timed = async { tokio::time::timeout(std::time::Duration::from_secs(30), work).await };
    let (snapshot, _) = runtime.block_on(timed).expect("it must not wait for itself").unwrap();
    assert_eq!(snapshot.entries().len(), 201);
}

#[test]
fn captures_at_once_share_a_cache_without_harm() {
    let paths: Vec<String> = (0..300).map(|index| format!("d{}/f{index}", index % 9)).collect();
    let tree = Tree::of(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let adapter = LocalSource::new().with_cache(tree.folder.path().join("cache"));
    let expected = tree.capture().id();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(tree.capture_with(&adapter).id(), expected);
                }
            });
        }
    });
    let left = fs::read_dir(tree.folder.path().join("cache")).unwrap().count();
    assert_eq!(left, 1, "nothing staged is left");
}
