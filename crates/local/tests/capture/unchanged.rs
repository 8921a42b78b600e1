//! An unchanged tree is the earlier snapshot again; any change gives what a capture without a cache gives.

use std::path::PathBuf;
use std::time::Duration;

use coldframe_core::{DynSourceAdapter, SnapshotWriter};
use coldframe_testkit::MemoryWriter;
use proptest::prelude::*;

use super::*;

/// One tree that is captured again and again, with what a store would keep in between.
struct Series {
    tree: Tree,
    adapter: LocalSource,
    store: MemoryStore,
    earlier: Vec<SourceSnapshot>,
}

/// What a capture was, beside its result.
#[derive(Debug, PartialEq)]
struct How {
    reused: bool,
    bytes: u64,
}

const UNCHANGED: How = How { reused: true, bytes: 0 };

impl Series {
    fn new(tree: Tree) -> Self {
        let adapter = LocalSource::new().with_cache(tree.folder.path().join("cache"));
        Self { tree, adapter, store: MemoryStore::new(), earlier: Vec::new() }
    }

    /// A tree in which every kind of thing that a snapshot tells of occurs.
    fn of_everything() -> Self {
        let tree = Tree::of(&["src/a.rs", "src/b.rs", "src-more/c", "top", "old.log"]);
        tree.write(".gitignore", "*.log\n");
        tree.put(&FixtureNode::directory("empty"));
        tree.put(&FixtureNode::symlink("link", "src/a.rs"));
        make_fifo(&tree.path("pipe"));
        Self::new(tree)
    }

    fn capture(&mut self) -> (SourceSnapshot, How) {
        self.capture_within(SnapshotLimits::default()).unwrap()
    }

    fn capture_within(&mut self, limits: SnapshotLimits) -> Result<(SourceSnapshot, How), SourceError> {
        let writer = MemoryWriter::new(self.store.clone(), limits);
        let writer = self.earlier.iter().cloned().fold(writer, MemoryWriter::with_earlier);
        let (adapter, source): (&dyn DynSourceAdapter, _) = (&self.adapter, reference(&self.tree.root()));
        let resolved = block_on(adapter.capture(&source, &writer))?;
        let how = How { reused: writer.was_reused(), bytes: writer.bytes_received() };
        let snapshot = writer.finish(resolved)?;
        block_on(adapter.captured(&source, &snapshot));
        self.earlier.push(snapshot.clone());
        Ok((snapshot, how))
    }

    /// Captures with and without a cache and says how the first went.
    fn capture_and_compare(&mut self) -> (SourceSnapshot, How) {
        let (snapshot, how) = self.capture();
        assert_eq!(snapshot, self.tree.capture(), "a capture without a cache agrees");
        (snapshot, how)
    }

    fn cache(&self, end: &str) -> PathBuf {
        let files = fs::read_dir(self.tree.folder.path().join("cache")).unwrap();
        let mut files =
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().unwrap() == end);
        let found = files.next().unwrap();
        assert_eq!(files.next(), None);
        found
    }
}

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn overwrite_and_restore_the_time(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let length = fs::metadata(path).unwrap().len() as usize;
    fs::write(path, "#".repeat(length)).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}

#[test]
fn nothing_is_sent_and_the_snapshot_is_the_same_where_nothing_changed() {
    let mut series = Series::of_everything();
    let (first, how) = series.capture_and_compare();
    assert!(!how.reused && how.bytes > 0);
    for _ in 0..2 {
        assert_eq!(series.capture_and_compare(), (first.clone(), UNCHANGED));
    }
}

type Change = (&'static str, fn(&Tree));

const CHANGES: [Change; 17] = [
    ("same size, time set back", |tree| overwrite_and_restore_the_time(&tree.path("src/a.rs"))),
    ("executable", |tree| {
        fs::set_permissions(tree.path("top"), fs::Permissions::from_mode(0o755)).unwrap();
    }),
    ("renamed", |tree| fs::rename(tree.path("src/b.rs"), tree.path("src/z.rs")).unwrap()),
    ("renamed directory", |tree| fs::rename(tree.path("src"), tree.path("lib")).unwrap()),
    ("new empty directory", |tree| fs::create_dir(tree.path("src/empty")).unwrap()),
    ("removed", |tree| fs::remove_file(tree.path("src/a.rs")).unwrap()),
    ("last file of a directory removed", |tree| fs::remove_file(tree.path("src-more/c")).unwrap()),
    ("removed empty directory", |tree| fs::remove_dir(tree.path("empty")).unwrap()),
    ("new file", |tree| tree.write("src/new", "new")),
    ("other link", |tree| {
        fs::remove_file(tree.path("link")).unwrap();
        symlink("src/b.rs", tree.path("link")).unwrap();
    }),
    ("file became a link", |tree| {
        fs::remove_file(tree.path("top")).unwrap();
        symlink("src", tree.path("top")).unwrap();
    }),
    ("file became a directory", |tree| {
        fs::remove_file(tree.path("top")).unwrap();
        tree.write("top/inside", "x");
    }),
    ("one more ignored", |tree| tree.write("new.log", "x")),
    ("rules changed", |tree| tree.write(".gitignore", "*.rs\n")),
    ("rules added", |tree| tree.write("src/.ignore", "a.rs\n")),
    ("new pipe", |tree| make_fifo(&tree.path("src/pipe"))),
    ("repository began", |tree| tree.write("src/.git", "gitdir: elsewhere\n")),
];

#[test]
fn after_any_single_change_the_result_is_that_of_a_capture_without_a_cache() {
    for (name, change) in CHANGES {
        let mut series = Series::of_everything();
        let (before, _) = series.capture();
        assert_eq!(series.capture().1, UNCHANGED, "{name}");
        change(&series.tree);
        let (after, how) = series.capture_and_compare();
        assert!(!how.reused && before.id() != after.id(), "{name}");
        assert_eq!(series.capture_and_compare(), (after, UNCHANGED), "{name}");
    }
}

#[test]
fn a_file_that_was_only_touched_is_read_and_gives_the_same_snapshot() {
    let mut series = Series::of_everything();
    let (before, _) = series.capture();
    tree_touch(&series.tree.path("top"));
    let (after, how) = series.capture_and_compare();
    assert_eq!((after.id(), how), (before.id(), How { reused: false, bytes: 3 }));
    assert_eq!(series.capture().1, UNCHANGED);
}

fn tree_touch(path: &Path) {
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
}

#[test]
fn each_configuration_has_a_snapshot_of_its_own() {
    let mut series = Series::of_everything();
    series.capture();
    series.capture();
    let plain = series.adapter.clone();
    let adapters = [plain.clone().with_include(["old.log"]), plain.clone().with_include_ignored(true)];
    for adapter in adapters {
        series.adapter = adapter.clone();
        let (snapshot, how) = series.capture();
        let (without, _) = capture(
            &adapter.with_cache("/dev/null/none".into()),
            &series.tree.root(),
            SnapshotLimits::default(),
        )
        .unwrap();
        assert_eq!((snapshot, how.reused), (without, false));
        assert_eq!(series.capture().1, UNCHANGED);
    }
    series.adapter = plain;
    assert_eq!(series.capture().1, UNCHANGED);
}

#[test]
fn a_store_without_the_snapshot_or_without_a_blob_gets_what_it_lacks() {
    let mut series = Series::of_everything();
    let (first, _) = series.capture();
    series.earlier.clear();
    series.store = MemoryStore::new();
    let (second, how) = series.capture_and_compare();
    assert!(second == first && !how.reused && how.bytes > 0, "{how:?}");
    series.store.remove(&first.entry("top").unwrap().node.blob().unwrap().digest);
    let (third, how) = series.capture_and_compare();
    assert_eq!((third.id(), how), (first.id(), How { reused: false, bytes: 3 }));
    assert_eq!(series.capture().1, UNCHANGED);
}

#[test]
fn a_limit_that_the_tree_breaks_is_met_although_nothing_changed() {
    let mut series = Series::of_everything();
    series.capture();
    let tight = [
        SnapshotLimits { max_files: 3, ..SnapshotLimits::default() },
        SnapshotLimits { max_total_bytes: 9, ..SnapshotLimits::default() },
        SnapshotLimits { max_file_bytes: 2, ..SnapshotLimits::default() },
    ];
    for limits in tight {
        let error = series.capture_within(limits).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::LimitExceeded(_)), "{error}");
    }
}

#[test]
fn a_process_that_ended_between_its_two_writes_does_no_harm() {
    let mut series = Series::of_everything();
    series.capture();
    let (old_cache, old_last) =
        (fs::read(series.cache("stat")).unwrap(), fs::read(series.cache("last")).unwrap());
    series.tree.write("top", "new");
    series.capture();
    let new_last = fs::read(series.cache("last")).unwrap();
    assert_ne!(old_last, new_last);
    fs::write(series.cache("last"), &old_last).unwrap();
    assert!(!series.capture_and_compare().1.reused, "a cache that is newer than its snapshot");
    assert_eq!(series.capture().1, UNCHANGED);
    fs::write(series.cache("stat"), &old_cache).unwrap();
    assert!(!series.capture_and_compare().1.reused, "a cache that is older than its snapshot");
    assert_eq!(series.capture().1, UNCHANGED);
}

#[test]
fn a_damaged_memory_of_the_snapshot_costs_time_alone() {
    let mut series = Series::of_everything();
    series.capture();
    let whole = fs::read(series.cache("last")).unwrap();
    let mut damaged = vec![Vec::new(), whole[..whole.len() - 1].to_vec(), [&whole[..], b"x"].concat()];
    damaged.extend((0..whole.len()).step_by(7).map(|position| {
        let mut other = whole.clone();
        other[position] ^= 1;
        other
    }));
    for bytes in damaged {
        fs::write(series.cache("last"), bytes).unwrap();
        assert_eq!(series.capture_and_compare().1, How { reused: false, bytes: 0 });
        assert_eq!(fs::read(series.cache("last")).unwrap(), whole, "it is written again");
    }
}

#[test]
fn a_snapshot_of_other_contents_is_not_remembered() {
    let mut series = Series::of_everything();
    let (first, _) = series.capture();
    series.tree.write("top", "other");
    let (second, _) = series.capture();
    let (adapter, source): (&dyn DynSourceAdapter, _) = (&series.adapter, reference(&series.tree.root()));
    let before = fs::read(series.cache("last")).unwrap();
    block_on(adapter.captured(&source, &first));
    assert_eq!(fs::read(series.cache("last")).unwrap(), before, "the cache is that of the second");
    assert_eq!(series.capture(), (second, UNCHANGED));
}

#[test]
fn an_entry_that_came_before_keeps_a_snapshot_from_being_reused() {
    let mut series = Series::of_everything();
    let (first, _) = series.capture();
    let writer =
        MemoryWriter::new(series.store.clone(), SnapshotLimits::default()).with_earlier(first.clone());
    writer.directory(coldframe_core::WorkspacePath::parse("before").unwrap()).unwrap();
    assert!(!block_on(writer.reuse(first.id())).unwrap());
}

/// An edit of a small tree: which of its few names, and what becomes of it.
fn edit() -> impl Strategy<Value = (usize, u8)> {
    (0..NAMES.len(), 0u8..7)
}

const NAMES: [&str; 8] = ["a", "a/b", "a/c", "a-b", "d/e/f", "d/x.log", "d/.gitignore", "z"];

fn apply(tree: &Tree, (name, what): (usize, u8)) {
    let path = tree.path(NAMES[name]);
    if what >= 5 {
        // Set a mode or leave all as it is.
        if what == 5 && path.is_file() && !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        return;
    }
    for above in path.ancestors().skip(1).take_while(|above| *above != tree.root()) {
        if above.is_symlink() || above.is_file() {
            fs::remove_file(above).unwrap();
        }
    }
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(&path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(&path).unwrap();
    }
    match what {
        0 => {}
        1 => tree.put(&FixtureNode::directory(NAMES[name])),
        2 => tree.put(&FixtureNode::symlink(NAMES[name], "z")),
        other => tree.write(NAMES[name], ["*.log\n", "x\n"][usize::from(other - 3)]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn with_a_cache_or_without_the_result_is_the_same(
        first in proptest::collection::vec(edit(), 0..12),
        later in proptest::collection::vec(proptest::collection::vec(edit(), 0..3), 1..5),
    ) {
        let mut series = Series::new(Tree::of(&[]));
        first.into_iter().for_each(|edit| apply(&series.tree, edit));
        std::thread::sleep(Duration::from_millis(1));
        series.capture_and_compare();
        for edits in later {
            edits.into_iter().for_each(|edit| apply(&series.tree, edit));
            let (snapshot, _) = series.capture_and_compare();
            let (again, how) = series.capture_and_compare();
            prop_assert_eq!(&again, &snapshot);
            // A tree without a file has no cache to compare it with.
            prop_assert!(how.reused || snapshot.total_bytes() == 0, "{:?}", how);
        }
    }
}
