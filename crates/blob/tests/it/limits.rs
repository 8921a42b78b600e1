//! Limits hold against sources that lie, and a call that fails gives back what it took.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use coldframe_blob::{Store, capture_source};
use coldframe_core::{
    Capabilities, ErrorKind, InlineFile, KnownFile, LimitKind, NewFile, Resolved, SnapshotLimits,
    SnapshotWriter, SourceAdapter, SourceError, SourceRef, SourceSnapshot, once,
};
use futures_util::{StreamExt as _, stream};

use crate::support::{content, eventually, path, run, source, staged, stored};

type Steps<'a> = Pin<Box<dyn Future<Output = Result<(), SourceError>> + Send + 'a>>;

/// An adapter made of one function.
struct Script<F>(F);

impl<F> SourceAdapter for Script<F>
where
    F: for<'a> Fn(&'a dyn SnapshotWriter) -> Steps<'a> + Send + Sync,
{
    fn provider(&self) -> &str {
        "fixture"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        (self.0)(writer).await?;
        Ok(Resolved::new(source.clone(), ""))
    }
}

fn script<F>(steps: F) -> Script<F>
where
    F: for<'a> Fn(&'a dyn SnapshotWriter) -> Steps<'a> + Send + Sync,
{
    Script(steps)
}

fn new_file(at: &str, size: Option<u64>) -> NewFile {
    NewFile { path: path(at), executable: false, size }
}

fn inline(at: &str, content: &[u8]) -> InlineFile {
    InlineFile { path: path(at), executable: false, content: content.to_vec() }
}

const SMALL: SnapshotLimits =
    SnapshotLimits { max_files: 10, max_total_bytes: 3 << 20, max_file_bytes: 2 << 20, concurrency: 4 };

async fn capture_with<F>(limits: SnapshotLimits, steps: F) -> Result<SourceSnapshot, SourceError>
where
    F: for<'a> Fn(&'a dyn SnapshotWriter) -> Steps<'a> + Send + Sync,
{
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_local(folder.path()).await.unwrap();
    let result = capture_source(&script(steps), &source(), &store, limits).await;
    assert_eq!(store.snapshots().await.unwrap().len(), usize::from(result.is_ok()));
    assert!(eventually(|| staged(folder.path()).is_empty()).await);
    result
}

fn kind(result: Result<SourceSnapshot, SourceError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_declared_size_that_is_a_lie_is_refused_in_both_directions() {
    let limits = SnapshotLimits { max_total_bytes: 3 << 30, max_file_bytes: 3 << 30, ..SMALL };
    run(async {
        for (declared, real) in [(10, 4usize << 20), (2 << 30, 5)] {
            let taken = AtomicU64::new(0);
            let taken = &*Box::leak(Box::new(taken));
            let result = capture_with(limits, move |writer| {
                Box::pin(async move {
                    let chunks = stream::iter(0..).map(move |index| {
                        let _ = index;
                        taken.fetch_add(1, Ordering::Relaxed);
                        Ok(vec![0; real.min(1024)])
                    });
                    let content = chunks.take(real.div_ceil(1024));
                    writer.file(new_file("lie", Some(declared)), Box::pin(content)).await.map(drop)
                })
            });
            let error = result.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contract);
            assert_eq!(error.subject(), "lie");
            assert!(error.to_string().contains(&declared.to_string()), "{error}");
            assert_eq!(taken.load(Ordering::Relaxed), 1, "reading stops at the first chunk that is too much");
        }
    });
}

#[test]
fn each_limit_is_checked_before_bytes_are_taken_and_while_they_arrive() {
    let none_read = || -> coldframe_core::ByteStream<'static> {
        Box::pin(stream::poll_fn(|_| panic!("bytes were taken before the limits were checked")))
    };
    let expect = |limit| Some(ErrorKind::LimitExceeded(limit));
    run(async {
        let declared = capture_with(SMALL, |writer| {
            Box::pin(async move { writer.file(new_file("f", Some(3 << 20)), none_read()).await.map(drop) })
        });
        assert_eq!(kind(declared.await), expect(LimitKind::MaxFileBytes));
        let real = capture_with(SMALL, |writer| {
            Box::pin(async move {
                let endless = stream::repeat_with(|| Ok(vec![7; 100_000]));
                writer.file(new_file("f", None), Box::pin(endless)).await.map(drop)
            })
        });
        assert_eq!(kind(real.await), expect(LimitKind::MaxFileBytes));
        let together = capture_with(SMALL, |writer| {
            Box::pin(async move {
                writer
                    .files(vec![inline("a", &content(1, 1 << 19)), inline("b", &content(2, 1 << 20))])
                    .await?;
                writer.file(new_file("c", Some(2 << 20)), none_read()).await.map(drop)
            })
        });
        assert_eq!(kind(together.await), expect(LimitKind::MaxTotalBytes));
        let one_of_many = capture_with(SMALL, |writer| {
            Box::pin(async move { writer.files(vec![inline("a", &content(1, 3 << 20))]).await.map(drop) })
        });
        assert_eq!(kind(one_of_many.await), expect(LimitKind::MaxFileBytes));
        let every_kind = capture_with(SMALL, |writer| {
            Box::pin(async move {
                for number in 0..4 {
                    writer.symlink(path(&format!("l{number}")), "x".to_owned())?;
                    writer.directory(path(&format!("d{number}")))?;
                }
                writer.files(vec![inline("a", b""), inline("b", b"")]).await?;
                writer.directory(path("one too many"))
            })
        });
        assert_eq!(kind(every_kind.await), expect(LimitKind::MaxFiles));
    });
}

#[test]
fn sixty_thousand_entries_stop_at_the_limit_of_a_thousand() {
    let limits = SnapshotLimits { max_files: 1000, ..SMALL };
    let sent = &*Box::leak(Box::new(AtomicU64::new(0)));
    let result = run(capture_with(limits, |writer| {
        Box::pin(async move {
            for number in 0..60_000 {
                sent.fetch_add(1, Ordering::Relaxed);
                writer.files(vec![inline(&format!("f{number}"), b"x")]).await?;
            }
            Ok(())
        })
    }));
    assert_eq!(kind(result), Some(ErrorKind::LimitExceeded(LimitKind::MaxFiles)));
    assert_eq!(sent.load(Ordering::Relaxed), 1001);
}

#[test]
fn collisions_are_refused_at_the_call_and_a_failed_call_leaves_path_and_bytes_free() {
    let snapshot = run(capture_with(SMALL, |writer| {
        Box::pin(async move {
            writer.files(vec![inline("a/b", b"1"), inline("a-b", b"2")]).await?;
            for (bad, word) in [("a/b", "twice"), ("a", "below"), ("a/b/c", "below")] {
                let error = writer.files(vec![inline("fresh", b"3"), inline(bad, b"4")]).await.unwrap_err();
                assert_eq!((error.kind(), error.subject()), (ErrorKind::Contract, bad));
                assert!(error.to_string().contains(word), "{error}");
                assert!(writer.symlink(path(bad), "x".to_owned()).is_err());
                assert!(writer.directory(path(bad)).is_err());
                assert!(writer.file(new_file(bad, None), once(vec![])).await.is_err());
            }
            for target in ["", "a\0b"] {
                assert!(writer.symlink(path("link"), target.to_owned()).is_err());
            }
            for _ in 0..20 {
                let torn = stream::iter([Ok(vec![1; 1 << 20]), Err(SourceError::contract("read", "torn"))]);
                assert!(writer.file(new_file("again", Some(2 << 20)), Box::pin(torn)).await.is_err());
            }
            writer.file(new_file("again", Some(2 << 20)), once(content(4, 2 << 20))).await.map(drop)
        })
    }))
    .unwrap();
    let paths: Vec<&str> = snapshot.entries().iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["a-b", "a/b", "again"]);
}

#[test]
fn a_dropped_call_leaves_no_entry_and_nothing_in_staging() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let root = folder.path().to_owned();
        let adapter = script(|writer| {
            let root = root.clone();
            Box::pin(async move {
                let first = stream::iter([Ok(content(1, 1 << 20)), Ok(content(2, 1 << 19))]);
                let stuck = first.chain(stream::pending());
                let call = writer.file(new_file("stuck", Some(2 << 20)), Box::pin(stuck));
                let waited = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
                assert!(waited.is_err(), "the call waits for bytes that never come");
                assert!(eventually(|| staged(&root).is_empty()).await);
                // Path and bytes are free again: 3 MiB are allowed in all.
                writer.file(new_file("stuck", Some(2 << 20)), once(content(3, 2 << 20))).await.map(drop)
            })
        });
        let snapshot = capture_source(&adapter, &source(), &store, SMALL).await.unwrap();
        assert_eq!(snapshot.entries().len(), 1);
        assert_eq!(snapshot.total_bytes(), 2 << 20);
    });
}

#[test]
fn what_is_not_stored_is_not_known_and_makes_no_entry() {
    let answers = &*Box::leak(Box::new(Mutex::new(Vec::new())));
    let snapshot = run(capture_with(SMALL, |writer| {
        Box::pin(async move {
            let known = |at: &str, content: &[u8], size| {
                let digest = stored(content).digest;
                KnownFile { path: path(at), executable: true, digest, size }
            };
            let ask = vec![known("a", b"new", 3)];
            let answer = writer.known(ask).await?;
            answers.lock().unwrap().extend(answer);
            writer.files(vec![inline("b", b"new")]).await?;
            let wrong_size = vec![known("c", b"new", 4)];
            let answer = writer.known(wrong_size).await?;
            answers.lock().unwrap().extend(answer);
            Ok(())
        })
    }))
    .unwrap();
    assert_eq!(*answers.lock().unwrap(), [false, false]);
    assert_eq!(snapshot.entries().len(), 1);
}
