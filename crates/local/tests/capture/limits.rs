//! Limits end a capture before bytes are read.

use std::time::{Duration, Instant};

use coldframe_core::{DynSourceAdapter, LimitKind};
use coldframe_testkit::MemoryWriter;

use super::*;

#[test]
fn a_sparse_file_of_eight_gibibytes_is_refused_from_its_size() {
    let tree = Tree::of(&["small"]);
    fs::File::create(tree.path("huge.bin")).unwrap().set_len(8 << 30).unwrap();
    let limits = SnapshotLimits { max_file_bytes: 5 << 20, ..SnapshotLimits::workstation() };
    let start = Instant::now();
    let error = capture(&LocalSource::new(), &tree.root(), limits).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(error.kind(), ErrorKind::LimitExceeded(LimitKind::MaxFileBytes));
    assert_eq!(error.subject(), "huge.bin");
}

#[test]
fn no_byte_is_sent_of_a_tree_that_has_too_many_of_anything() {
    let nodes: Vec<FixtureNode> = (0..20)
        .map(|index| FixtureNode::file(&format!("d{}/f{index}", index % 4), "0123456789"))
        .chain([FixtureNode::symlink("l", "x"), FixtureNode::directory("e")])
        .collect();
    let tree = Tree::new(&nodes);
    let exact = SnapshotLimits { max_files: 22, max_total_bytes: 200, max_file_bytes: 10, concurrency: 2 };
    capture(&LocalSource::new(), &tree.root(), exact).expect("a limit may be met");
    let cases = [
        (SnapshotLimits { max_files: 21, ..exact }, LimitKind::MaxFiles),
        (SnapshotLimits { max_total_bytes: 199, ..exact }, LimitKind::MaxTotalBytes),
        (SnapshotLimits { max_file_bytes: 9, ..exact }, LimitKind::MaxFileBytes),
    ];
    for (limits, kind) in cases {
        let writer = MemoryWriter::new(MemoryStore::new(), limits);
        let source = reference(&tree.root());
        let adapter: &dyn DynSourceAdapter = &LocalSource::new();
        let error = block_on(adapter.capture(&source, &writer)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded(kind));
        assert_eq!(writer.bytes_received(), 0);
    }
}
