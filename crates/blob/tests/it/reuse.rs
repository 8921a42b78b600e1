//! An adapter that found nothing new hands over an earlier snapshot, and the store looks whether it still holds.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use coldframe_blob::{Store, capture_source};
use coldframe_core::{
    Capabilities, Digest, ErrorKind, InlineFile, Omission, OmissionReason, Resolved, SnapshotLimits,
    SnapshotWriter, SourceAdapter, SourceError, SourceRef, SourceSnapshot,
};

use crate::damage::{ALL, damage};
use crate::support::{Tree, capture, files_below, only_file, path, run, source};

/// Offers a snapshot; where it is refused it sends the tree.
struct Again<'a> {
    tree: Tree,
    offered: Digest,
    revision: &'a str,
    /// What it does after the snapshot was taken.
    then: fn(&dyn SnapshotWriter, &Path) -> Result<(), SourceError>,
    folder: &'a Path,
    /// The answers of the writer, and the snapshots that the adapter was told of.
    heard: Mutex<(Vec<bool>, Vec<Digest>)>,
}

impl<'a> Again<'a> {
    fn new(tree: &Tree, offered: &SourceSnapshot, folder: &'a Path) -> Self {
        let (tree, offered) = (tree.clone(), offered.id());
        Self { tree, offered, revision: "commit-1", then: |_, _| Ok(()), folder, heard: Mutex::default() }
    }

    async fn capture(&self, store: &Store) -> Result<SourceSnapshot, SourceError> {
        capture_source(self, &source(), store, SnapshotLimits::default()).await
    }

    fn was_taken(&self) -> bool {
        self.heard.lock().unwrap().0 == [true]
    }
}

impl SourceAdapter for Again<'_> {
    fn provider(&self) -> &str {
        "fixture"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().with_incremental_recapture()
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        let taken = writer.reuse(self.offered).await?;
        self.heard.lock().unwrap().0.push(taken);
        if taken {
            (self.then)(writer, self.folder)?;
        } else {
            self.tree.capture_into(source, writer).await?;
        }
        Ok(Resolved::new(source.clone(), self.revision))
    }

    async fn captured(&self, _source: &SourceRef, snapshot: &SourceSnapshot) {
        self.heard.lock().unwrap().1.push(snapshot.id());
    }
}

fn outside(folder: &Path) -> Vec<(std::path::PathBuf, u64, SystemTime)> {
    let files = files_below(folder).into_iter().filter(|file| !file.ends_with("verified"));
    let files = files.filter(|file| !file.starts_with(folder.join("staging")));
    files
        .map(|file| {
            let metadata = fs::metadata(&file).unwrap();
            (file, metadata.len(), metadata.modified().unwrap())
        })
        .collect()
}

#[test]
fn the_earlier_snapshot_is_given_back_and_nothing_is_written() {
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(1));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let first = capture(&store, &tree).await.unwrap();
        let before = outside(folder.path());
        for store in [store, Store::open_local(folder.path()).await.unwrap()] {
            let adapter = Again::new(&tree, &first, folder.path());
            assert_eq!(adapter.capture(&store).await.unwrap(), first);
            assert_eq!(*adapter.heard.lock().unwrap(), (vec![true], vec![first.id()]));
        }
        assert_eq!(outside(folder.path()), before);
    });
}

#[test]
fn a_store_in_memory_gives_snapshots_back_too() {
    run(async {
        let (store, tree) = (Store::in_memory().await, Tree::sample(1));
        let first = capture(&store, &tree).await.unwrap();
        let adapter = Again::new(&tree, &first, Path::new("/"));
        assert_eq!(adapter.capture(&store).await.unwrap(), first);
        assert!(adapter.was_taken());
    });
}

#[test]
fn damage_of_any_object_refuses_the_snapshot_and_the_capture_heals_it() {
    for (below, end) in [("packs", ".pack"), ("packs", ".idx"), ("blobs", ""), ("snapshots", "")] {
        for kind in ALL {
            let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(2));
            run(async {
                let store = Store::open_local(folder.path()).await.unwrap();
                let first = capture(&store, &tree).await.unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
                capture(&store, &tree).await.unwrap();
                damage(&only_file(&folder.path().join(below), end), kind);
                let store = Store::open_local(folder.path()).await.unwrap();
                let adapter = Again::new(&tree, &first, folder.path());
                assert_eq!(adapter.capture(&store).await.unwrap(), first);
                assert!(!adapter.was_taken(), "{below} {end} {kind:?}");
                let store = Store::open_local(folder.path()).await.unwrap();
                assert_eq!(store.load_snapshot(&first.id()).await.unwrap(), first);
                store.verify_snapshot(&first).await.unwrap();
                let adapter = Again::new(&tree, &first, folder.path());
                adapter.capture(&store).await.unwrap();
                assert!(adapter.was_taken(), "{below} {end} {kind:?}: it is whole again");
            });
        }
    }
}

#[test]
fn an_unknown_snapshot_and_one_of_another_source_are_refused() {
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(3));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let other = SourceRef::new("fixture", "elsewhere", "main").unwrap();
        let elsewhere = capture_source(&tree, &other, &store, SnapshotLimits::default()).await.unwrap();
        let mut adapter = Again::new(&tree, &elsewhere, folder.path());
        let snapshot = adapter.capture(&store).await.unwrap();
        assert!(!adapter.was_taken() && *snapshot.source() == source());
        adapter.offered = Digest::of(b"unknown");
        assert_eq!(adapter.capture(&store).await.unwrap(), snapshot);
    });
}

#[test]
fn a_snapshot_that_breaks_a_limit_is_refused_and_the_entries_meet_the_limit() {
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(4));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let first = capture(&store, &tree).await.unwrap();
        let all = SnapshotLimits::default();
        for limits in [
            SnapshotLimits { max_files: 5, ..all },
            SnapshotLimits { max_file_bytes: 1 << 20, ..all },
            SnapshotLimits { max_total_bytes: 1 << 20, ..all },
        ] {
            let adapter = Again::new(&tree, &first, folder.path());
            let error = capture_source(&adapter, &source(), &store, limits).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::LimitExceeded(_)), "{error}");
            assert_eq!(*adapter.heard.lock().unwrap(), (vec![false], vec![]), "not told of a failure");
        }
        let exact = SnapshotLimits { max_files: first.entries().len() as u64, ..all };
        let adapter = Again::new(&tree, &first, folder.path());
        capture_source(&adapter, &source(), &store, exact).await.unwrap();
        assert!(adapter.was_taken());
    });
}

#[test]
fn what_comes_after_a_snapshot_is_added_to_it_under_the_same_rules() {
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(5));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let first = capture(&store, &tree).await.unwrap();
        let mut adapter = Again::new(&tree, &first, folder.path());
        adapter.then = |writer, _| {
            for taken in ["d0", "d0/f0", "d0/f0/below"] {
                let error = writer.directory(path(taken)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Contract, "{taken}");
            }
            writer.omit(Omission { reason: OmissionReason::Fifo, subject: "pipe".to_owned(), count: 1 });
            writer.directory(path("new"))
        };
        let more = adapter.capture(&store).await.unwrap();
        assert_eq!(more.entries().len(), first.entries().len() + 1);
        assert!(more.entry("new").is_some() && more.omitted().len() == 1);
        store.verify_snapshot(&more).await.unwrap();
        assert_eq!(store.load_snapshot(&more.id()).await.unwrap(), more);
        assert_eq!(adapter.heard.lock().unwrap().1, [more.id()]);
    });
}

#[test]
fn a_snapshot_does_not_come_after_entries() {
    struct Late(Digest);
    impl SourceAdapter for Late {
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
            let file = InlineFile { path: path("own"), executable: false, content: b"own".to_vec() };
            writer.files(vec![file]).await?;
            assert!(!writer.reuse(self.0).await?);
            Ok(Resolved::new(source.clone(), "commit-1"))
        }
    }
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(6));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let first = capture(&store, &tree).await.unwrap();
        let (late, asked) = (Late(first.id()), source());
        let captured = capture_source(&late, &asked, &store, SnapshotLimits::default()).await.unwrap();
        assert_eq!(captured.entries().len(), 1);
    });
}

#[test]
fn another_revision_makes_another_snapshot_of_the_same_entries() {
    let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(7));
    run(async {
        let store = Store::open_local(folder.path()).await.unwrap();
        let first = capture(&store, &tree).await.unwrap();
        let mut adapter = Again::new(&tree, &first, folder.path());
        adapter.revision = "commit-2";
        let second = adapter.capture(&store).await.unwrap();
        assert_eq!((second.resolved_revision(), second.tree()), ("commit-2", first.tree()));
        assert_eq!(store.load_snapshot(&second.id()).await.unwrap(), second);
        let mut adapter = Again::new(&tree, &first, folder.path());
        adapter.revision = "";
        let third = adapter.capture(&store).await.unwrap();
        assert_eq!(third.resolved_revision(), format!("tree:{}", first.tree()));
        let adapter = Again { revision: "", ..Again::new(&tree, &third, folder.path()) };
        assert_eq!(adapter.capture(&store).await.unwrap(), third);
        assert_eq!(store.snapshots().await.unwrap().len(), 3);
    });
}

#[test]
fn a_container_that_is_lost_after_the_snapshot_was_taken_fails_the_capture() {
    for below in ["packs", "blobs"] {
        let (folder, tree) = (tempfile::tempdir().unwrap(), Tree::sample(8));
        let lost = folder.path().join(below);
        run(async {
            let store = Store::open_local(folder.path()).await.unwrap();
            let first = capture(&store, &tree).await.unwrap();
            let mut adapter = Again::new(&tree, &first, &lost);
            adapter.then = |_, folder| {
                files_below(folder).iter().for_each(|file| fs::remove_file(file).unwrap());
                Ok(())
            };
            let error = adapter.capture(&store).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Integrity, "{below}");
            assert!(first.entry(error.subject()).is_some(), "{below}: the error names a path");
            assert!(adapter.heard.lock().unwrap().1.is_empty());
        });
    }
}
