//! The bytes of format 1 of manifest, delta and patch: today's code writes them and reads them.

mod fixture;

use coldframe_core::{
    Digest, ExcludedCount, Omission, OmissionReason, SnapshotManifest, SourceRef, SourceSnapshot,
    WorkspaceDelta,
};
use coldframe_delta::patch;
use fixture::{Item, Tree, contents, delta, entries, file, link, path, program, tree};

const MANIFEST: &[u8] = include_bytes!("golden/v1/manifest.txt");
const DELTA: &[u8] = include_bytes!("golden/v1/delta.txt");
const PATCH: &[u8] = include_bytes!("golden/v1/patch.diff");

fn before() -> Tree {
    tree([
        ("README.md", file("# Example\n\nOne.\nTwo.\nThree.\nFour.\nFive.\n")),
        ("bin/tool", file("#!/bin/sh\n")),
        ("caf\u{e9} \u{1f980}.txt", file("old\r\nline\r\n")),
        ("empty", file("")),
        ("folder/inner", file("1\n")),
        ("gone", program("gone\n")),
        ("kept/empty", Item::Directory),
        ("link", link("README.md")),
        ("picture", Item::File(vec![0, 1, 2, 3])),
        ("tab\there\\and\nthere\r", file("odd\n")),
    ])
}

fn after() -> Tree {
    tree([
        ("README.md", file("# Example\n\nOne.\nTwo and a half.\nThree.\nFour.\nFive.")),
        ("bin/tool", program("#!/bin/sh\n")),
        ("caf\u{e9} \u{1f980}.txt", file("new\r\nline\r\n")),
        ("empty", file("")),
        ("folder", file("now a file\n")),
        ("kept/empty", Item::Directory),
        ("link", link("bin/tool")),
        ("new directory", Item::Directory),
        ("picture", Item::File(vec![3, 2, 1, 0])),
        ("tab\there\\and\nthere\r", file("odder\n")),
    ])
}

fn snapshot() -> SourceSnapshot {
    let omission = |reason, subject: &str, count| Omission { reason, subject: subject.to_owned(), count };
    SnapshotManifest {
        source: SourceRef::new("fixture", "example\\project", "main").unwrap(),
        resolved_revision: "commit-1".to_owned(),
        entries: entries(&before()),
        omitted: vec![
            omission(OmissionReason::Ignored, "*.log", 12),
            omission(OmissionReason::Socket, "run/daemon\t.sock", 1),
            omission(OmissionReason::VcsMetadata, ".git", 1),
        ],
    }
    .seal()
    .unwrap()
}

fn changes() -> WorkspaceDelta {
    let base = snapshot();
    let plain = delta(&base, &before(), &after());
    let excluded = vec![ExcludedCount { rule: "target".to_owned(), count: 3 }];
    WorkspaceDelta::new(base.id(), vec![Digest::of(b"parent")], plain.changes().to_vec(), excluded).unwrap()
}

#[test]
fn the_manifest_is_written_and_read() {
    let snapshot = snapshot();
    assert_eq!(snapshot.to_manifest().as_bytes(), MANIFEST);
    assert_eq!(SourceSnapshot::from_manifest(MANIFEST).unwrap(), snapshot);
    assert_eq!(snapshot.id(), Digest::of(MANIFEST));
}

#[test]
fn the_delta_is_written_and_read() {
    let delta = changes();
    assert_eq!(delta.to_text().as_bytes(), DELTA);
    let read = WorkspaceDelta::from_text(DELTA).unwrap();
    assert_eq!(read, delta);
    assert_eq!(read.id(), Digest::of(DELTA));
    let base = SourceSnapshot::from_manifest(MANIFEST).unwrap();
    assert_eq!(read.apply_to(&base).unwrap(), entries(&after()));
}

#[test]
fn the_patch_is_written() {
    let written = patch(&snapshot(), &changes(), &contents(&[&before(), &after()])).unwrap();
    assert_eq!(String::from_utf8_lossy(&written.bytes), String::from_utf8_lossy(PATCH));
    assert_eq!(written.left_out, [path("new directory")]);
}
