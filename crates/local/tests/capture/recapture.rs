//! Capturing again reads what changed and nothing else.

use std::time::Duration;

use coldframe_core::{DynSourceAdapter, KnownFile};
use coldframe_testkit::MemoryWriter;

use super::*;

/// Captures into `store` and says how many bytes were sent.
fn sent(tree: &Tree, adapter: &LocalSource, store: &MemoryStore) -> (SourceSnapshot, u64) {
    let writer = MemoryWriter::new(store.clone(), SnapshotLimits::default());
    let adapter: &dyn DynSourceAdapter = adapter;
    let resolved = block_on(adapter.capture(&reference(&tree.root()), &writer)).unwrap();
    let bytes = writer.bytes_received();
    (writer.finish(resolved).unwrap(), bytes)
}

fn settled(paths: &[&str]) -> (Tree, LocalSource, MemoryStore) {
    let tree = Tree::of(paths);
    std::thread::sleep(Duration::from_millis(30));
    let adapter = LocalSource::new().with_cache(tree.folder.path().join("cache"));
    (tree, adapter, MemoryStore::new())
}

#[test]
fn only_a_changed_file_is_sent_again() {
    let (tree, adapter, store) = settled(&["a/one", "a/two", "b/three"]);
    sent(&tree, &adapter, &store);
    assert_eq!(sent(&tree, &adapter, &store).1, 0);
    tree.write("a/two", "changed");
    let (snapshot, bytes) = sent(&tree, &adapter, &store);
    assert_eq!(bytes, 7);
    assert_eq!(snapshot.id(), tree.capture().id(), "a capture without a cache agrees");
    assert_eq!(sent(&tree, &adapter, &store).1, 0);
}

#[test]
fn removed_added_and_moved_files_are_seen() {
    let (tree, adapter, store) = settled(&["a", "b", "c/d"]);
    sent(&tree, &adapter, &store);
    fs::remove_file(tree.path("a")).unwrap();
    fs::rename(tree.path("b"), tree.path("e")).unwrap();
    tree.write("c/new", "new");
    let (snapshot, _) = sent(&tree, &adapter, &store);
    assert_eq!(paths(&snapshot), ["c/d", "c/new", "e"]);
    assert_eq!(snapshot.id(), tree.capture().id());
}

#[test]
fn a_change_that_keeps_size_and_modification_time_is_seen() {
    let (tree, adapter, store) = settled(&["file"]);
    let before = fs::metadata(tree.path("file")).unwrap().modified().unwrap();
    sent(&tree, &adapter, &store);
    fs::write(tree.path("file"), "FILE").unwrap();
    fs::File::options().write(true).open(tree.path("file")).unwrap().set_modified(before).unwrap();
    let (snapshot, _) = sent(&tree, &adapter, &store);
    assert_eq!(snapshot.id(), tree.capture().id());
}

#[test]
fn a_change_right_after_a_capture_is_always_seen() {
    let (tree, adapter, store) = settled(&["file"]);
    for round in 0..60 {
        // The same size each time, within the same tick of the stamp clock as often as not.
        let content = format!("round {round:04}");
        tree.write("file", &content);
        let (snapshot, _) = sent(&tree, &adapter, &store);
        let blob = snapshot.entry("file").unwrap().node.blob().unwrap();
        assert_eq!(*store.content(&blob.digest).unwrap(), content.as_bytes());
    }
}

#[test]
fn a_mode_that_changes_is_seen_and_touches_no_other_file() {
    let (tree, adapter, store) = settled(&["run", "other"]);
    sent(&tree, &adapter, &store);
    fs::set_permissions(tree.path("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let (snapshot, bytes) = sent(&tree, &adapter, &store);
    assert!(matches!(snapshot.entry("run").unwrap().node, Node::File { executable: true, .. }));
    assert_eq!(bytes, 3);
}

#[test]
fn a_store_that_has_lost_a_blob_gets_it_again() {
    let (tree, adapter, store) = settled(&["keep", "lose"]);
    let (snapshot, _) = sent(&tree, &adapter, &store);
    let blob = snapshot.entry("lose").unwrap().node.blob().unwrap();
    assert!(store.remove(&blob.digest));
    let (again, bytes) = sent(&tree, &adapter, &store);
    assert_eq!((again.id(), bytes), (snapshot.id(), 4));
    let known =
        KnownFile { path: again.entries()[1].path.clone(), executable: false, digest: blob.digest, size: 4 };
    let writer = MemoryWriter::new(store, SnapshotLimits::default());
    assert_eq!(block_on(coldframe_core::SnapshotWriter::known(&writer, vec![known])).unwrap(), [true]);
}

#[test]
fn a_damaged_cache_is_as_good_as_none() {
    let (tree, adapter, store) = settled(&["a", "b"]);
    let (snapshot, _) = sent(&tree, &adapter, &store);
    let cache = fs::read_dir(tree.folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&cache).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for damaged in [&whole[..whole.len() - 1], &flipped[..], b"", b"something else"] {
        fs::write(&cache, damaged).unwrap();
        let (again, bytes) = sent(&tree, &adapter, &store);
        assert_eq!((again.id(), bytes), (snapshot.id(), 2));
    }
    assert_eq!(sent(&tree, &adapter, &store).1, 0, "the cache is whole again");
}

#[test]
fn a_cache_that_cannot_be_written_does_not_fail_the_capture() {
    let (tree, _, store) = settled(&["a"]);
    let adapter = LocalSource::new().with_cache(tree.path("a/not-a-directory"));
    assert_eq!(sent(&tree, &adapter, &store).1, 1);
    assert_eq!(sent(&tree, &adapter, &store).1, 1);
}

#[test]
fn other_rules_have_another_cache_and_other_roots_too() {
    let (tree, adapter, store) = settled(&["a", "b.log"]);
    tree.write(".gitignore", "*.log\n");
    std::thread::sleep(Duration::from_millis(30));
    let everything = adapter.clone().with_include_ignored(true);
    sent(&tree, &adapter, &store);
    sent(&tree, &everything, &store);
    assert_eq!(sent(&tree, &adapter, &store).1, 0);
    assert_eq!(sent(&tree, &everything, &store).1, 0);
    let caches = fs::read_dir(tree.folder.path().join("cache")).unwrap().count();
    assert_eq!(caches, 2);
}
