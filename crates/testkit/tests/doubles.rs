//! The reference doubles keep their contracts, and the faulty ones fail in the way they say.

use std::time::{Duration, Instant};

use coldframe_core::{
    BlobStore, Digest, ErrorKind, InlineFile, KnownFile, LimitKind, NewFile, Resolved, SnapshotLimits,
    SnapshotWriter, SourceError, SourceRef, Stored, WorkspacePath, once,
};
use coldframe_testkit::{FullStore, LateStore, LyingStore, MemoryStore, MemoryWriter, block_on};

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn inline(text: &str, content: &str) -> InlineFile {
    InlineFile { path: path(text), executable: false, content: content.into() }
}

fn writer(limits: SnapshotLimits) -> MemoryWriter {
    MemoryWriter::new(MemoryStore::new(), limits)
}

#[test]
fn a_damaged_or_missing_blob_is_never_read_as_other_bytes() {
    block_on(async {
        let store = MemoryStore::new();
        let stored = store.write_bytes(b"right".to_vec()).await.unwrap();
        assert_eq!(store.read_bytes(stored).await.unwrap(), b"right");
        let other_size = Stored { size: 9, ..stored };
        assert!(!store.contains(other_size).await.unwrap());
        assert_eq!(store.read_bytes(other_size).await.unwrap_err().kind(), ErrorKind::Integrity);
        store.damage(stored.digest, b"wrong".to_vec());
        assert_eq!(store.read_bytes(stored).await.unwrap_err().kind(), ErrorKind::Integrity);
        assert!(store.remove(&stored.digest));
        assert_eq!(store.read_bytes(stored).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn the_writer_refuses_collisions_at_the_call() {
    let writer = writer(SnapshotLimits::default());
    block_on(async {
        writer.files(vec![inline("a/b", "1"), inline("a-b", "2")]).await.unwrap();
        for wrong in ["a/b", "a", "a/b/c"] {
            let error = writer.files(vec![inline(wrong, "3")]).await.unwrap_err();
            assert_eq!((error.kind(), error.subject()), (ErrorKind::Contract, wrong));
            assert_eq!(writer.directory(path(wrong)).unwrap_err().kind(), ErrorKind::Contract);
        }
        assert_eq!(&*writer.content("a/b").unwrap(), b"1");
        assert!(writer.files(vec![inline("x", "1"), inline("x", "1")]).await.is_err());
        writer.files(vec![inline("x", "1")]).await.expect("a failed batch leaves no entry");
    });
}

#[test]
fn a_failed_call_gives_its_claim_back() {
    let limits = SnapshotLimits { max_files: 2, max_total_bytes: 10, max_file_bytes: 8, concurrency: 1 };
    let writer = writer(limits);
    let new_file = |size| NewFile { path: path("f"), executable: false, size };
    block_on(async {
        let broken = SourceError::new(ErrorKind::Changed, "read", "it changed");
        let stream = futures_util::stream::iter(vec![Ok(b"12345".to_vec()), Err(broken)]);
        let error = writer.file(new_file(Some(8)), Box::pin(stream)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        let error = writer.file(new_file(Some(3)), once(b"12".to_vec())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contract);
        let error = writer.file(new_file(None), once(b"123456789".to_vec())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded(LimitKind::MaxFileBytes));
        writer.file(new_file(None), once(b"12345678".to_vec())).await.expect("nothing is claimed any more");
        let error = writer.files(vec![inline("g", "123")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded(LimitKind::MaxTotalBytes));
        writer.symlink(path("l"), "f".to_owned()).unwrap();
        let error = writer.directory(path("d")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded(LimitKind::MaxFiles));
    });
    assert_eq!(writer.pending(), 0);
    let source = SourceRef::new("fixture", "x", "").unwrap();
    let snapshot = writer.finish(Resolved::new(source, "1")).unwrap();
    assert_eq!(snapshot.entries().len(), 2);
}

#[test]
fn a_file_is_known_only_where_its_blob_is_stored() {
    let store = MemoryStore::new();
    block_on(async {
        let stored = store.write_bytes(b"old".to_vec()).await.unwrap();
        let writer = MemoryWriter::new(store.clone(), SnapshotLimits::default());
        let known = |name: &str, digest| KnownFile { path: path(name), executable: true, digest, size: 3 };
        let files = vec![known("a", stored.digest), known("b", Digest::of(b"new"))];
        assert_eq!(writer.known(files).await.unwrap(), [true, false]);
        assert_eq!((writer.known_answered(), writer.bytes_received()), (1, 0));
        writer.files(vec![inline("b", "new")]).await.expect("an unknown file makes no entry");
    });
}

#[test]
fn the_faulty_stores_fail_in_their_way() {
    block_on(async {
        let full = FullStore::new(MemoryStore::new(), 2);
        let stored = full.write_bytes(b"one".to_vec()).await.unwrap();
        assert_eq!(full.write_bytes(b"two".to_vec()).await.unwrap_err().kind(), ErrorKind::NoSpace);
        full.write_bytes(b"two".to_vec()).await.unwrap();
        assert_eq!(full.read_bytes(stored).await.unwrap(), b"one");

        let lying = LyingStore::new(MemoryStore::new());
        let stored = lying.write_bytes(b"truth".to_vec()).await.unwrap();
        let read = lying.read_bytes(stored).await.unwrap();
        assert_ne!(Digest::of(&read), stored.digest);

        let late = LateStore::new(MemoryStore::new(), Duration::from_millis(20));
        let start = Instant::now();
        late.write_bytes(b"late".to_vec()).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    });
}

#[test]
fn an_earlier_snapshot_is_reused_only_whole_and_only_first() {
    let store = MemoryStore::new();
    let writer = MemoryWriter::new(store.clone(), SnapshotLimits::default());
    let file = InlineFile { path: path("a"), executable: true, content: b"one".to_vec() };
    let blob = block_on(writer.files(vec![file])).unwrap()[0];
    writer.directory(path("d")).unwrap();
    let resolved = || Resolved::new(SourceRef::new("fixture", "project", "main").unwrap(), "commit-1");
    let earlier = writer.finish(resolved()).unwrap();
    let next = |limits| MemoryWriter::new(store.clone(), limits).with_earlier(earlier.clone());

    let writer = next(SnapshotLimits::default());
    assert!(block_on(writer.reuse(earlier.id())).unwrap() && writer.was_reused());
    assert!(writer.directory(path("a")).is_err(), "its paths are taken");
    assert_eq!(writer.finish(resolved()).unwrap(), earlier);

    let writer = next(SnapshotLimits { max_files: 1, ..SnapshotLimits::default() });
    assert!(!block_on(writer.reuse(earlier.id())).unwrap(), "a limit forbids it");
    let writer = next(SnapshotLimits::default());
    writer.directory(path("first")).unwrap();
    assert!(!block_on(writer.reuse(earlier.id())).unwrap(), "something came before");
    store.remove(&blob.digest);
    let writer = next(SnapshotLimits::default());
    assert!(!block_on(writer.reuse(earlier.id())).unwrap() && !writer.was_reused(), "a blob is missing");
}
