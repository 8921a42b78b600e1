//! Damage of every kind is found, named, and healed by the next capture.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coldframe_blob::Store;
use coldframe_core::{BlobStore, ErrorKind, SourceSnapshot};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};

use futures_util::TryStreamExt as _;

use crate::support::{Tree, capture, only_file, run, stored};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Damage {
    OtherBytes,
    CutToTwo,
    CutToNothing,
    Removed,
}

pub(crate) const ALL: [Damage; 4] =
    [Damage::OtherBytes, Damage::CutToTwo, Damage::CutToNothing, Damage::Removed];

/// Damages a file in place, as a bad disk or a careless program does.
pub(crate) fn damage(file: &Path, damage: Damage) {
    let bytes = fs::read(file).unwrap();
    match damage {
        Damage::OtherBytes => {
            let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            fs::OpenOptions::new().write(true).open(file).unwrap().write_all(&other).unwrap();
        }
        Damage::CutToTwo => fs::OpenOptions::new().write(true).open(file).unwrap().set_len(2).unwrap(),
        Damage::CutToNothing => fs::write(file, b"").unwrap(),
        Damage::Removed => fs::remove_file(file).unwrap(),
    }
}

/// Each blob reads right or is an error that names it; answers how many are errors.
async fn errors_of(store: &Store, tree: &Tree) -> usize {
    let mut errors = 0;
    for (_, content) in &tree.files {
        match store.read_bytes(stored(content)).await {
            Ok(read) => assert_eq!(&read, content),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Integrity | ErrorKind::NotFound), "{error}");
                assert!(error.to_string().contains(&stored(content).digest.to_string()), "{error}");
                errors += 1;
            }
        }
    }
    errors
}

async fn is_found_and_named(store: &Store, snapshot: &SourceSnapshot) {
    let error = store.verify_snapshot(snapshot).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let entry = snapshot.entry(error.subject()).expect("the error names a path of the snapshot");
    let digest = entry.node.blob().unwrap().digest;
    assert!(error.to_string().contains(&digest.to_string()), "{error}");
}

#[test]
fn every_damage_is_found_by_a_new_process_and_healed_by_a_capture() {
    for (folder_of, end) in [("packs", ".pack"), ("packs", ".idx"), ("blobs", "")] {
        for kind in ALL {
            let folder = tempfile::tempdir().unwrap();
            let tree = Tree::sample(7);
            run(async {
                let store = Store::open_local(folder.path()).await.unwrap();
                let snapshot = capture(&store, &tree).await.unwrap();
                damage(&only_file(&folder.path().join(folder_of), end), kind);

                let store = Store::open_local(folder.path()).await.unwrap();
                is_found_and_named(&store, &snapshot).await;
                assert!(errors_of(&store, &tree).await > 0, "{end} {kind:?}");

                let store = Store::open_local(folder.path()).await.unwrap();
                assert_eq!(capture(&store, &tree).await.unwrap(), snapshot, "{end} {kind:?}");
                assert_eq!(errors_of(&store, &tree).await, 0, "{end} {kind:?}");
                let store = Store::open_local(folder.path()).await.unwrap();
                store.verify_snapshot(&snapshot).await.unwrap();
                assert_eq!(errors_of(&store, &tree).await, 0, "{end} {kind:?}");
            });
        }
    }
}

#[test]
fn the_process_that_wrote_it_finds_and_heals_the_damage_too() {
    for (folder_of, end) in [("packs", ".pack"), ("blobs", "")] {
        for kind in ALL {
            for read_first in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let tree = Tree::sample(7);
                run(async {
                    let store = Store::open_local(folder.path()).await.unwrap();
                    let snapshot = capture(&store, &tree).await.unwrap();
                    assert_eq!(errors_of(&store, &tree).await, 0);
                    damage(&only_file(&folder.path().join(folder_of), end), kind);
                    if read_first {
                        is_found_and_named(&store, &snapshot).await;
                        assert!(errors_of(&store, &tree).await > 0 || kind == Damage::Removed);
                    }
                    assert_eq!(capture(&store, &tree).await.unwrap(), snapshot);
                    assert_eq!(errors_of(&store, &tree).await, 0, "{end} {kind:?} {read_first}");
                    store.verify_snapshot(&snapshot).await.unwrap();
                });
            }
        }
    }
}

#[test]
fn an_overwrite_that_sets_length_and_time_back_does_not_pass_as_verified() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::sample(3);
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        capture(&store, &tree).await.unwrap();
        // After this the packs are older than the clock tick in which a change could hide, and are recorded.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let snapshot = capture(&Store::open_local(folder.path()).await.unwrap(), &tree).await.unwrap();
        let ledger = fs::read_to_string(folder.path().join("verified")).unwrap();
        assert_eq!(ledger.lines().count(), 3, "{ledger}");
        for (below, end) in [("packs", ".pack"), ("blobs", "")] {
            let file = only_file(&folder.path().join(below), end);
            let modified = fs::metadata(&file).unwrap().modified().unwrap();
            damage(&file, Damage::OtherBytes);
            fs::OpenOptions::new().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        }
        let store = Store::open_local(folder.path()).await.unwrap();
        assert_eq!(capture(&store, &tree).await.unwrap(), snapshot);
        store.verify_snapshot(&snapshot).await.unwrap();
        assert_eq!(errors_of(&store, &tree).await, 0);
    });
}

#[test]
fn what_is_intact_in_a_damaged_pack_is_still_read_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = Tree::sample(5);
    tree.files.retain(|(path, _)| path != "large");
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let snapshot = capture(&store, &tree).await.unwrap();
        let pack = only_file(&folder.path().join("packs"), ".pack");
        let mut bytes = fs::read(&pack).unwrap();
        bytes[10] ^= 1;
        fs::write(&pack, bytes).unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        let store = Store::open_local(folder.path()).await.unwrap();
        assert_eq!(errors_of(&store, &tree).await, 1);
        let store = Store::open_local(folder.path()).await.unwrap();
        capture(&store, &tree).await.unwrap();
        let mut sizes: Vec<u64> = crate::support::files_below(&folder.path().join("packs"))
            .iter()
            .filter(|file| file.extension().is_some_and(|end| end == "pack"))
            .map(|file| fs::metadata(file).unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes.len(), 2);
        assert!(sizes[0] < 1000, "only the damaged blob was stored again: {sizes:?}");
        // The finding is remembered: a third process neither trusts the blob nor hashes the pack again.
        let ledger = fs::read_to_string(folder.path().join("verified")).unwrap();
        assert!(ledger.contains(&stored(&tree.files[0].1).digest.to_string()), "{ledger}");
        let store = Store::open_local(folder.path()).await.unwrap();
        assert_eq!(errors_of(&store, &tree).await, 0);
        store.verify_snapshot(&snapshot).await.unwrap();
    });
}

#[test]
fn a_store_elsewhere_heals_the_same_way() {
    for which in [".pack", ".idx", "blobs/"] {
        for kind in ALL {
            run(async {
                let objects = Arc::new(InMemory::new());
                let tree = Tree::sample(9);
                let store = Store::open(objects.clone()).await.unwrap();
                let snapshot = capture(&store, &tree).await.unwrap();
                let all: Vec<_> =
                    objects.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
                let mut found = all.iter().filter(|location| location.as_ref().contains(which));
                let (Some(location), None) = (found.next(), found.next()) else { panic!("{all:?}") };
                let bytes = objects.get(location).await.unwrap().bytes().await.unwrap();
                let damaged = match kind {
                    Damage::OtherBytes => bytes.iter().map(|byte| !byte).collect::<Vec<u8>>(),
                    Damage::CutToTwo => bytes[..2].to_vec(),
                    Damage::CutToNothing => Vec::new(),
                    Damage::Removed => bytes.to_vec(),
                };
                match kind {
                    Damage::Removed => objects.delete(location).await.unwrap(),
                    _ => drop(objects.put(location, damaged.into()).await.unwrap()),
                }
                let store = Store::open(objects.clone()).await.unwrap();
                is_found_and_named(&store, &snapshot).await;
                let store = Store::open(objects.clone()).await.unwrap();
                assert!(errors_of(&store, &tree).await > 0, "{which} {kind:?}");
                assert_eq!(capture(&store, &tree).await.unwrap(), snapshot);
                let store = Store::open(objects.clone()).await.unwrap();
                store.verify_snapshot(&snapshot).await.unwrap();
                assert_eq!(errors_of(&store, &tree).await, 0, "{which} {kind:?}");
            });
        }
    }
}
