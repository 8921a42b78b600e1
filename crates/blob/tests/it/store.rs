//! Blobs and records: what is written is read, names are checked, the layout is as documented.

use std::sync::Arc;

use coldframe_blob::Store;
use coldframe_core::{
    BlobStore, DeltaChange, Digest, ErrorKind, Node, SnapshotEntry, SnapshotManifest, Stored, WorkspaceDelta,
    collect,
};
use futures_util::stream;
use proptest::prelude::*;

use crate::support::{Tree, capture, content, files_below, path, run, source, staged, stored};

#[test]
fn a_local_store_has_the_documented_layout_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a/store");
    run(async {
        let store = Store::open_local(&root).await.unwrap();
        let tree = Tree::new(&[("hello", b"hello\n"), ("none", b""), ("nul", b"a\0b")]);
        let snapshot = capture(&store, &tree).await.unwrap();
        let text = std::fs::read_to_string(root.join(format!("snapshots/{}", snapshot.id()))).unwrap();
        assert_eq!(text, snapshot.to_manifest());
    });
    assert_eq!(std::fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read(root.join("format")).unwrap(), b"coldframe-store 1\n");
    let id = include_str!("../golden/store/v1/pack.id").trim();
    let pack = std::fs::read(root.join(format!("packs/{id}.pack"))).unwrap();
    assert_eq!(pack, include_bytes!("../golden/store/v1/pack.pack"));
    let index = std::fs::read(root.join(format!("packs/{id}.idx"))).unwrap();
    assert_eq!(index, include_bytes!("../golden/store/v1/pack.idx"));
    assert!(files_below(&root.join("staging")).is_empty());
}

#[test]
fn a_golden_pack_reads() {
    let folder = tempfile::tempdir().unwrap();
    let id = include_str!("../golden/store/v1/pack.id").trim();
    std::fs::create_dir(folder.path().join("packs")).unwrap();
    std::fs::write(folder.path().join("format"), "coldframe-store 1\n").unwrap();
    let put =
        |end: &str, bytes: &[u8]| std::fs::write(folder.path().join(format!("packs/{id}.{end}")), bytes);
    put("pack", include_bytes!("../golden/store/v1/pack.pack")).unwrap();
    put("idx", include_bytes!("../golden/store/v1/pack.idx")).unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        for content in [&b"hello\n"[..], b"", b"a\0b"] {
            assert_eq!(store.read_bytes(stored(content)).await.unwrap(), content);
        }
    });
}

#[test]
fn another_layout_and_a_foreign_folder_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let open = || run(Store::open_local(folder.path())).map_err(|error| error.kind());
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    assert_eq!(open().err(), Some(ErrorKind::Unsupported));
    std::fs::write(folder.path().join("format"), "coldframe-store 2\n").unwrap();
    assert_eq!(open().err(), Some(ErrorKind::Unsupported));
    assert_eq!(files_below(folder.path()).len(), 2);
    std::fs::write(folder.path().join("format"), "coldframe-store 1\n").unwrap();
    assert!(open().is_ok());
}

#[test]
fn a_stream_is_stored_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let large = content(1, 5 << 20);
        let chunks: Vec<Result<Vec<u8>, _>> = large.chunks(70_000).map(|chunk| Ok(chunk.to_vec())).collect();
        let blob = store.write(Box::pin(stream::iter(chunks))).await.unwrap();
        assert_eq!(blob, stored(&large));
        assert_eq!(collect(store.read(blob).await.unwrap()).await.unwrap(), large);
        assert_eq!(store.read_bytes(blob).await.unwrap(), large);
        let before = files_below(folder.path()).len();
        let failing = [Ok(content(2, 3 << 20)), Err(coldframe_core::SourceError::contract("read", "torn"))];
        assert!(store.write(Box::pin(stream::iter(failing))).await.is_err());
        assert!(crate::support::eventually(|| staged(folder.path()).is_empty()).await);
        assert_eq!(files_below(folder.path()).len(), before);
        // Known bytes are not stored twice.
        assert_eq!(store.write_bytes(large.clone()).await.unwrap(), blob);
        assert_eq!(files_below(folder.path()).len(), before);
    });
}

#[test]
fn an_unknown_blob_and_a_wrong_size_are_errors_that_name_the_digest() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        for store in [Store::in_memory().await, Store::open_local(folder.path()).await.unwrap()] {
            let blob = store.write_bytes(b"content".to_vec()).await.unwrap();
            let missing = stored(b"never written");
            assert!(!store.contains(missing).await.unwrap());
            let error = store.read_bytes(missing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains(&missing.digest.to_string()), "{error}");
            let longer = Stored { size: 1 << 60, ..blob };
            assert!(!store.contains(longer).await.unwrap());
            let error = store.read_bytes(longer).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Integrity);
            assert!(error.to_string().contains(&blob.digest.to_string()), "{error}");
        }
    });
}

#[test]
fn another_store_on_the_folder_sees_what_was_written_since_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let early = Store::open_local(folder.path()).await.unwrap();
        assert!(!early.contains(stored(b"x")).await.unwrap());
        let other = Store::open_local(folder.path()).await.unwrap();
        let tree = Tree::sample(1);
        let snapshot = capture(&other, &tree).await.unwrap();
        for (_, content) in &tree.files {
            assert!(early.contains(stored(content)).await.unwrap());
            assert_eq!(&early.read_bytes(stored(content)).await.unwrap(), content);
        }
        assert_eq!(early.verify_snapshot(&snapshot).await.unwrap().blobs, tree.files.len() as u64);
        assert_eq!(early.load_snapshot(&snapshot.id()).await.unwrap(), snapshot);
    });
}

#[test]
fn reads_work_from_plain_threads_that_block_on_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let contents: Vec<Vec<u8>> = (0..60).map(|seed| content(seed, 3000 * seed as usize)).collect();
    let store = runtime.block_on(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        store.write_many(contents.clone()).await.unwrap();
        store
    });
    assert_eq!(files_below(&folder.path().join("packs")).len(), 2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for content in &contents {
                    let read = runtime.handle().block_on(store.read_bytes(stored(content)));
                    assert_eq!(&read.unwrap(), content);
                }
            });
        }
    });
}

#[test]
fn a_snapshot_under_a_false_id_and_a_foreign_manifest_are_integrity_errors() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let snapshot = capture(&store, &Tree::sample(1)).await.unwrap();
        let name = |id: &Digest| folder.path().join(format!("snapshots/{id}"));
        let false_id = Digest::of(b"false");
        std::fs::copy(name(&snapshot.id()), name(&false_id)).unwrap();
        let error = store.load_snapshot(&false_id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Integrity);
        assert!(error.to_string().contains(&false_id.to_string()), "{error}");
        let foreign = b"{\"entries\": []}\n";
        std::fs::write(name(&Digest::of(foreign)), foreign).unwrap();
        let error = store.load_snapshot(&Digest::of(foreign)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Integrity);
        let missing = store.load_snapshot(&Digest::of(b"missing")).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        std::fs::write(name(&snapshot.id()), "cut").unwrap();
        assert_eq!(store.load_snapshot(&snapshot.id()).await.unwrap_err().kind(), ErrorKind::Integrity);
        store.save_snapshot(&snapshot).await.unwrap();
        assert_eq!(store.load_snapshot(&snapshot.id()).await.unwrap(), snapshot);
        let listed = store.snapshots().await.unwrap();
        assert!(listed.contains(&snapshot.id()) && listed.len() == 3, "{listed:?}");
    });
}

#[test]
fn deltas_are_saved_listed_and_resolved() {
    run(async {
        let store = Store::open(Arc::new(object_store::memory::InMemory::new())).await.unwrap();
        let node = Node::File { digest: Digest::of(b"x"), size: 1, executable: false };
        let change = DeltaChange::Added { entry: SnapshotEntry { path: path("x"), node } };
        let delta = WorkspaceDelta::new(Digest::of(b"base"), vec![], vec![change], vec![]).unwrap();
        store.save_delta(&delta).await.unwrap();
        store.save_delta(&delta).await.unwrap();
        assert_eq!(store.deltas().await.unwrap(), [delta.id()]);
        assert_eq!(store.load_delta(&delta.id()).await.unwrap(), delta);
        assert_eq!(store.resolve_delta(&delta.id().to_string()[..4]).await.unwrap(), delta.id());
        let empty = SnapshotManifest {
            source: source(),
            resolved_revision: String::new(),
            entries: vec![],
            omitted: vec![],
        };
        let snapshot = empty.seal().unwrap();
        store.save_snapshot(&snapshot).await.unwrap();
        assert_eq!(store.resolve_snapshot(&snapshot.id().short()).await.unwrap(), snapshot.id());
        assert_eq!(store.resolve_snapshot("abc").await.unwrap_err().kind(), ErrorKind::Contract);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_is_read(
        contents in proptest::collection::vec((any::<u64>(), prop_oneof![0usize..40, 5000usize..9000]), 0..20),
        alone in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<Vec<u8>> = contents.into_iter().map(|(seed, length)| content(seed, length)).collect();
        let result: Result<(), coldframe_core::SourceError> = run(async {
            for store in [Store::in_memory().await, Store::open_local(folder.path()).await?] {
                if alone {
                    for content in &contents {
                        assert_eq!(store.write_bytes(content.clone()).await?, stored(content));
                    }
                } else {
                    let written = store.write_many(contents.clone()).await?;
                    assert_eq!(written, contents.iter().map(|c| stored(c)).collect::<Vec<_>>());
                }
                for content in &contents {
                    assert!(store.contains(stored(content)).await?);
                    assert_eq!(&store.read_bytes(stored(content)).await?, content);
                }
            }
            let again = Store::open_local(folder.path()).await?;
            for content in &contents {
                assert_eq!(&collect(again.read(stored(content)).await?).await?, content);
            }
            Ok(())
        });
        result.unwrap();
    }
}
