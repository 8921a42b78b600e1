//! Captures: identity, deduplication, several at once, and no work for what did not change.

use std::fs;
use std::time::Duration;

use coldframe_blob::{Store, capture_source};
use coldframe_core::{
    BlobStore, Capabilities, ErrorKind, Omission, OmissionReason, Resolved, SnapshotLimits, SnapshotWriter,
    SourceAdapter, SourceError, SourceRef,
};

use crate::support::{Tree, capture, content, files_below, path, run, source, stored};

/// Answers with another source than it was asked for.
struct Forger {
    provider: &'static str,
    answer: SourceRef,
}

impl SourceAdapter for Forger {
    fn provider(&self) -> &str {
        self.provider
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    async fn capture(&self, _: &SourceRef, writer: &dyn SnapshotWriter) -> Result<Resolved, SourceError> {
        writer.directory(path("d"))?;
        Ok(Resolved::new(self.answer.clone(), "commit-1"))
    }
}

#[test]
fn an_adapter_that_changes_the_identity_of_the_source_is_refused_by_field() {
    let cases = [
        ("fixture", "other", "project", "main", "provider"),
        ("other", "fixture", "project", "main", "provider"),
        ("fixture", "fixture", "elsewhere", "main", "locator"),
        ("fixture", "fixture", "project", "topic", "revision"),
    ];
    run(async {
        let store = Store::in_memory().await;
        for (own, provider, locator, revision, field) in cases {
            let answer = SourceRef::new(provider, locator, revision).unwrap();
            let adapter = Forger { provider: own, answer };
            let error =
                capture_source(&adapter, &source(), &store, SnapshotLimits::default()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contract);
            assert!(error.to_string().contains(field), "{error}");
        }
        assert!(store.snapshots().await.unwrap().is_empty());
    });
}

#[test]
fn entries_of_every_kind_and_omissions_are_in_the_snapshot() {
    struct Mixed;
    impl SourceAdapter for Mixed {
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
            writer.symlink(path("link"), "../away".to_owned())?;
            writer.directory(path("empty"))?;
            for _ in 0..3 {
                let subject = "target".to_owned();
                writer.omit(Omission { reason: OmissionReason::Ignored, subject, count: 2 });
            }
            Ok(Resolved::new(source.clone(), ""))
        }
    }
    run(async {
        let store = Store::in_memory().await;
        let snapshot = capture_source(&Mixed, &source(), &store, SnapshotLimits::default()).await.unwrap();
        assert_eq!(snapshot.entries().len(), 2);
        assert_eq!(snapshot.omitted()[0].count, 6);
        assert_eq!(snapshot.resolved_revision(), format!("tree:{}", snapshot.tree()));
        assert_eq!(store.load_snapshot(&snapshot.id()).await.unwrap(), snapshot);
    });
}

#[test]
fn identical_blobs_are_stored_once_and_an_unchanged_source_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let large = content(8, 2 << 20);
        let tree =
            Tree::new(&[("a", b"same"), ("b", b"same"), ("c", b"other"), ("l", &large), ("m", &large)]);
        let snapshot = capture(&store, &tree).await.unwrap();
        let pack = crate::support::only_file(&folder.path().join("packs"), ".pack");
        assert_eq!(fs::metadata(pack).unwrap().len(), 9);
        assert_eq!(files_below(&folder.path().join("blobs")).len(), 1);
        tokio::time::sleep(Duration::from_millis(60)).await;
        for ask_first in [true, false] {
            let state = |folder: &std::path::Path| -> Vec<_> {
                let mut files = files_below(&folder.join("packs"));
                files.extend(files_below(&folder.join("blobs")));
                files.extend(files_below(&folder.join("snapshots")));
                files
                    .into_iter()
                    .map(|file| (fs::metadata(&file).unwrap().modified().unwrap(), file))
                    .collect()
            };
            let before = state(folder.path());
            let store = Store::open_local(folder.path()).await.unwrap();
            let again = Tree { ask_first, ..tree.clone() };
            assert_eq!(capture(&store, &again).await.unwrap(), snapshot);
            assert_eq!(state(folder.path()), before);
        }
    });
}

#[test]
fn many_files_fill_several_packs_of_bounded_size() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let files: Vec<(String, Vec<u8>)> =
            (0..45).map(|number| (format!("f{number}"), content(number, 900_000))).collect();
        let tree = Tree { files, ask_first: false };
        let snapshot = capture(&store, &tree).await.unwrap();
        let packs = files_below(&folder.path().join("packs"));
        assert_eq!(packs.len(), 6, "{packs:?}");
        assert!(packs.iter().all(|pack| fs::metadata(pack).unwrap().len() <= 16 << 20));
        let report = store.verify_snapshot(&snapshot).await.unwrap();
        assert_eq!((report.blobs, report.bytes), (45, 45 * 900_000));
    });
}

#[test]
fn several_captures_at_once_on_one_folder_are_all_whole() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let one = Store::open_local(folder.path()).await.unwrap();
        let two = Store::open_local(folder.path()).await.unwrap();
        let mut shared = Tree::sample(1);
        shared
            .files
            .extend(Tree::sample(2).files.into_iter().map(|(at, content)| (format!("x/{at}"), content)));
        let trees = [Tree::sample(1), Tree::sample(2), shared];
        let captures = trees.iter().flat_map(|tree| [(&one, tree), (&two, tree)]);
        let captures = captures.map(|(store, tree)| capture(store, tree));
        let snapshots = futures_util::future::join_all(captures).await;
        let fresh = Store::open_local(folder.path()).await.unwrap();
        for snapshot in snapshots {
            fresh.verify_snapshot(&snapshot.unwrap()).await.unwrap();
        }
        assert_eq!(fresh.snapshots().await.unwrap().len(), 3);
    });
}

#[test]
fn a_blob_that_is_lost_while_the_capture_runs_fails_it() {
    struct Saboteur(std::path::PathBuf);
    impl SourceAdapter for Saboteur {
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
            let resolved = Tree::sample(4).capture_into(source, writer).await?;
            for file in files_below(&self.0.join("blobs")) {
                fs::remove_file(file).unwrap();
            }
            Ok(resolved)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let adapter = Saboteur(folder.path().to_owned());
        let error = capture_source(&adapter, &source(), &store, SnapshotLimits::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Integrity, "large"));
        assert!(store.snapshots().await.unwrap().is_empty());
        let blob = stored(&Tree::sample(4).files.last().unwrap().1);
        assert!(!store.contains(blob).await.unwrap());
    });
}
