//! The clauses that every source adapter must meet, each a function that says what it found wrong.

use std::error::Error as _;
use std::future::poll_fn;
use std::task::Poll;

use coldframe_core::{
    DynSourceAdapter, ErrorKind, LimitKind, Node, SnapshotLimits, SourceError, SourceRef, SourceSnapshot,
};

use crate::{
    Clause, FixtureNode, FullStore, MemoryStore, MemoryWriter, PreparedSource, SourceFixture, block_on,
    capture_into_memory,
};

/// Every clause with its name.
pub const ALL: &[(&str, Clause)] = &[
    ("identity_is_preserved", identity_is_preserved),
    ("bytes_are_exact", bytes_are_exact),
    ("executable_bits_are_kept", executable_bits_are_kept),
    ("symlinks_are_kept_as_text", symlinks_are_kept_as_text),
    ("empty_directories_are_kept", empty_directories_are_kept),
    ("an_empty_source_is_a_snapshot", an_empty_source_is_a_snapshot),
    ("too_many_files_are_refused", too_many_files_are_refused),
    ("a_file_over_its_limit_is_refused", a_file_over_its_limit_is_refused),
    ("too_many_bytes_are_refused", too_many_bytes_are_refused),
    ("recapture_gives_the_same_id", recapture_gives_the_same_id),
    ("recapture_reads_nothing_again", recapture_reads_nothing_again),
    ("a_missing_source_is_not_found", a_missing_source_is_not_found),
    ("revisions_answer_as_declared", revisions_answer_as_declared),
    ("a_full_store_is_reported", a_full_store_is_reported),
    ("a_dropped_capture_leaves_nothing", a_dropped_capture_leaves_nothing),
    ("errors_are_short_and_hold_no_credential", errors_are_short_and_hold_no_credential),
];

type Finding = Result<(), String>;

fn ensure(holds: bool, finding: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(finding()) }
}

fn roomy() -> SnapshotLimits {
    SnapshotLimits { max_files: 1000, max_total_bytes: 64 << 20, max_file_bytes: 32 << 20, concurrency: 4 }
}

fn capture(prepared: &PreparedSource) -> Result<(SourceSnapshot, MemoryStore), String> {
    block_on(capture_into_memory(&*prepared.adapter, &prepared.source, roomy()))
        .map_err(|error| format!("the capture failed: {error}"))
}

fn refusal(prepared: &PreparedSource, limits: SnapshotLimits) -> Result<SourceError, String> {
    match block_on(capture_into_memory(&*prepared.adapter, &prepared.source, limits)) {
        Ok((snapshot, _)) => Err(format!("the capture succeeded with {} entries", snapshot.entries().len())),
        Err(error) => Ok(error),
    }
}

fn expect_kind(error: &SourceError, kind: ErrorKind) -> Finding {
    ensure(error.kind() == kind, || format!("expected an error of kind {kind:?}, got {error:?}"))
}

/// A few files whose paths every kind of source can hold.
fn small_tree() -> Vec<FixtureNode> {
    vec![
        FixtureNode::file("README.md", "hello\n"),
        FixtureNode::file("src/lib.rs", "pub fn one() -> u8 { 1 }\n"),
        FixtureNode::file("src/deep/er/mod.rs", "//! Deep.\n"),
        FixtureNode::file("src-notes.txt", "sorts between src and src/\n"),
    ]
}

/// A stretch of bytes without a period that a chunk size would hide.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}

/// Provider, locator and requested revision come back as asked, and the provider is the adapter's own.
pub fn identity_is_preserved(fixture: &dyn SourceFixture) -> Finding {
    let prepared = fixture.prepare(&small_tree());
    let provider = prepared.adapter.provider();
    ensure(provider == prepared.source.provider, || format!("the adapter names its provider {provider:?}"))?;
    let writer = MemoryWriter::new(MemoryStore::new(), roomy());
    let resolved = block_on(prepared.adapter.capture(&prepared.source, &writer))
        .map_err(|error| format!("the capture failed: {error}"))?;
    ensure(resolved.source == prepared.source, || {
        format!("asked for {}, answered for {}", prepared.source, resolved.source)
    })
}

/// Paths and contents arrive byte for byte: empty, binary, without a final newline, large, with odd names.
pub fn bytes_are_exact(fixture: &dyn SourceFixture) -> Finding {
    let mut nodes = small_tree();
    nodes.extend([
        FixtureNode::file("empty", ""),
        FixtureNode::file("binary", (0..=255u8).collect::<Vec<u8>>()),
        FixtureNode::file("windows.txt", "\u{feff}one\r\ntwo"),
        FixtureNode::file("name with space/caf\u{e9}.txt", "coffee"),
        FixtureNode::file("large.bin", noise((3 << 20) + 12_345)),
        FixtureNode::file("exactly-one-mebibyte.bin", noise(1 << 20)),
    ]);
    let (snapshot, store) = capture(&fixture.prepare(&nodes))?;
    for node in &nodes {
        let FixtureNode::File { path, content, .. } = node else { continue };
        let entry = snapshot.entry(path).ok_or_else(|| format!("{path:?} is missing"))?;
        let blob = entry.node.blob().ok_or_else(|| format!("{path:?} is not a file"))?;
        let stored = store.content(&blob.digest).ok_or_else(|| format!("{path:?} has no content"))?;
        ensure(*stored == *content, || format!("the bytes of {path:?} differ"))?;
    }
    let (found, made) = (snapshot.entries().len(), nodes.len());
    ensure(found == made, || format!("{made} files were made, {found} entries were captured"))
}

/// The executable bit is kept where it is declared, and no file is executable where it is not.
pub fn executable_bits_are_kept(fixture: &dyn SourceFixture) -> Finding {
    let nodes =
        [FixtureNode::executable("run.sh", "#!/bin/sh\n"), FixtureNode::file("plain.sh", "#!/bin/sh\n")];
    let prepared = fixture.prepare(&nodes);
    let declared = prepared.adapter.capabilities().executable_bits;
    let (snapshot, _) = capture(&prepared)?;
    for (path, expected) in [("run.sh", declared), ("plain.sh", false)] {
        match snapshot.entry(path).map(|entry| &entry.node) {
            Some(Node::File { executable, .. }) if *executable == expected => {}
            other => return Err(format!("{path:?} should have executable = {expected}, got {other:?}")),
        }
    }
    Ok(())
}

/// A link is kept as its text where links are declared: never followed, never resolved.
pub fn symlinks_are_kept_as_text(fixture: &dyn SourceFixture) -> Finding {
    let targets = [
        ("inside", "real.txt"),
        ("dangling", "no/where"),
        ("outside", "../../etc/hostname"),
        ("loop", "loop"),
    ];
    let mut nodes = vec![FixtureNode::file("real.txt", "real\n")];
    let plain = fixture.prepare(&nodes);
    if !plain.adapter.capabilities().symlinks {
        let (snapshot, _) = capture(&plain)?;
        let links =
            snapshot.entries().iter().filter(|entry| matches!(entry.node, Node::Symlink { .. })).count();
        return ensure(links == 0, || "links are captured and not declared".to_owned());
    }
    nodes.extend(targets.map(|(path, target)| FixtureNode::symlink(path, target)));
    let (snapshot, _) = capture(&fixture.prepare(&nodes))?;
    for (path, expected) in targets {
        match snapshot.entry(path).map(|entry| &entry.node) {
            Some(Node::Symlink { target }) if target == expected => {}
            other => return Err(format!("{path:?} should be a link to {expected:?}, got {other:?}")),
        }
    }
    Ok(())
}

/// A directory without entries is an entry; one with entries is not.
pub fn empty_directories_are_kept(fixture: &dyn SourceFixture) -> Finding {
    let mut nodes = small_tree();
    if fixture.holds_empty_directories() {
        nodes.extend([FixtureNode::directory("hollow"), FixtureNode::directory("nest/inner")]);
    }
    let (snapshot, _) = capture(&fixture.prepare(&nodes))?;
    let directories: Vec<&str> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.node == Node::Directory)
        .map(|entry| entry.path.as_str())
        .collect();
    let expected: &[&str] = if fixture.holds_empty_directories() { &["hollow", "nest/inner"] } else { &[] };
    ensure(directories == expected, || format!("expected the directories {expected:?}, got {directories:?}"))
}

/// A source without anything in it is a snapshot without entries, not an error.
pub fn an_empty_source_is_a_snapshot(fixture: &dyn SourceFixture) -> Finding {
    let (snapshot, _) = capture(&fixture.prepare(&[]))?;
    ensure(snapshot.entries().is_empty(), || format!("{:?} came from nothing", snapshot.entries()))
}

/// More files than `max_files` end the capture with that limit.
pub fn too_many_files_are_refused(fixture: &dyn SourceFixture) -> Finding {
    let limits = SnapshotLimits { max_files: 3, ..roomy() };
    let error = refusal(&fixture.prepare(&small_tree()), limits)?;
    expect_kind(&error, ErrorKind::LimitExceeded(LimitKind::MaxFiles))
}

/// A file over `max_file_bytes` ends the capture with that limit, before more than the limit was sent.
pub fn a_file_over_its_limit_is_refused(fixture: &dyn SourceFixture) -> Finding {
    let nodes = [FixtureNode::file("big.bin", noise(2 << 20))];
    let limits = SnapshotLimits { max_file_bytes: 1000, ..roomy() };
    let prepared = fixture.prepare(&nodes);
    let writer = MemoryWriter::new(MemoryStore::new(), limits);
    match block_on(prepared.adapter.capture(&prepared.source, &writer)) {
        Ok(_) => return Err("the capture succeeded".to_owned()),
        Err(error) => expect_kind(&error, ErrorKind::LimitExceeded(LimitKind::MaxFileBytes))?,
    }
    let sent = writer.bytes_received();
    ensure(sent <= 1 << 20, || format!("{sent} bytes were sent of a file that may have 1,000"))
}

/// More bytes than `max_total_bytes` end the capture with that limit.
pub fn too_many_bytes_are_refused(fixture: &dyn SourceFixture) -> Finding {
    let nodes: Vec<FixtureNode> =
        (0..8).map(|index| FixtureNode::file(&format!("part-{index}"), noise(1000 + index))).collect();
    let limits = SnapshotLimits { max_total_bytes: 4000, ..roomy() };
    let error = refusal(&fixture.prepare(&nodes), limits)?;
    expect_kind(&error, ErrorKind::LimitExceeded(LimitKind::MaxTotalBytes))
}

/// Capturing the same source again gives the same snapshot id.
pub fn recapture_gives_the_same_id(fixture: &dyn SourceFixture) -> Finding {
    let prepared = fixture.prepare(&small_tree());
    let (first, second) = (capture(&prepared)?.0, capture(&prepared)?.0);
    ensure(first.id() == second.id(), || {
        format!("two captures differ:\n{}\n{}", first.to_manifest(), second.to_manifest())
    })
}

/// Where incremental recapture is declared, an unchanged source sends no byte twice into the same store, and
/// every byte again where the store has lost them.
pub fn recapture_reads_nothing_again(fixture: &dyn SourceFixture) -> Finding {
    let prepared = fixture.prepare(&small_tree());
    if !prepared.adapter.capabilities().incremental_recapture {
        let (first, second) = (capture(&prepared)?.1, capture(&prepared)?.1);
        let (first, second) = (first.total_bytes(), second.total_bytes());
        return ensure(first == second, || format!("first {first} bytes were stored, then {second}"));
    }
    let store = MemoryStore::new();
    let again = |store: &MemoryStore| -> Result<(SourceSnapshot, u64), String> {
        let writer = MemoryWriter::new(store.clone(), roomy());
        let resolved = block_on(prepared.adapter.capture(&prepared.source, &writer))
            .map_err(|error| format!("the capture failed: {error}"))?;
        let sent = writer.bytes_received();
        writer.finish(resolved).map(|snapshot| (snapshot, sent)).map_err(|error| error.to_string())
    };
    let (first, sent_first) = again(&store)?;
    let (second, sent_second) = again(&store)?;
    ensure(sent_second == 0, || format!("{sent_second} bytes were sent again of {sent_first}"))?;
    let (third, sent_third) = again(&MemoryStore::new())?;
    ensure(sent_third == sent_first, || format!("an empty store got {sent_third} bytes of {sent_first}"))?;
    ensure(first.id() == second.id() && first.id() == third.id(), || "the ids differ".to_owned())
}

/// A source that does not exist is an error of kind `NotFound`.
pub fn a_missing_source_is_not_found(fixture: &dyn SourceFixture) -> Finding {
    expect_kind(&refusal(&fixture.missing(), roomy())?, ErrorKind::NotFound)
}

/// An adapter that declares no revisions answers `Unsupported` to one; any other does not find a wrong one.
pub fn revisions_answer_as_declared(fixture: &dyn SourceFixture) -> Finding {
    let mut prepared = fixture.prepare(&small_tree());
    let declared = prepared.adapter.capabilities().pinned_revisions;
    prepared.source = SourceRef { revision: "no-such-revision".to_owned(), ..prepared.source };
    let expected = if declared { ErrorKind::NotFound } else { ErrorKind::Unsupported };
    expect_kind(&refusal(&prepared, roomy())?, expected)
}

/// A store without room ends the capture with that error; the adapter does not go on without the file.
pub fn a_full_store_is_reported(fixture: &dyn SourceFixture) -> Finding {
    let prepared = fixture.prepare(&small_tree());
    for fails_at in [1, 3] {
        let writer = MemoryWriter::new(FullStore::new(MemoryStore::new(), fails_at), roomy());
        match block_on(prepared.adapter.capture(&prepared.source, &writer)) {
            Ok(_) => return Err(format!("write {fails_at} failed and the capture succeeded")),
            Err(error) => expect_kind(&error, ErrorKind::NoSpace)?,
        }
    }
    Ok(())
}

/// A capture that is dropped at any point leaves no call pending, and the next one works.
pub fn a_dropped_capture_leaves_nothing(fixture: &dyn SourceFixture) -> Finding {
    let mut nodes = small_tree();
    nodes.push(FixtureNode::file("large.bin", noise(3 << 20)));
    let prepared = fixture.prepare(&nodes);
    for polls in [0, 1, 2, 3, 4, 6, 9, 14] {
        let writer = MemoryWriter::new(MemoryStore::new(), roomy());
        block_on(drop_after(&*prepared.adapter, &prepared.source, &writer, polls));
        let pending = writer.pending();
        ensure(pending == 0, || format!("dropped after {polls} polls, {pending} calls were still pending"))?;
    }
    let (snapshot, _) = capture(&prepared)?;
    let (found, made) = (snapshot.entries().len(), nodes.len());
    ensure(found == made, || format!("after dropped captures, {found} of {made} entries were captured"))
}

/// Polls the capture a number of times at most, then drops it.
async fn drop_after(adapter: &dyn DynSourceAdapter, source: &SourceRef, writer: &MemoryWriter, polls: u32) {
    let mut work = adapter.capture(source, writer);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 || work.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

/// Errors are bounded and carry the adapter's credential neither in their text nor in their causes.
pub fn errors_are_short_and_hold_no_credential(fixture: &dyn SourceFixture) -> Finding {
    let mut wrong_revision = fixture.prepare(&small_tree());
    wrong_revision.source.revision = "no-such-revision".to_owned();
    let limits = SnapshotLimits { max_files: 1, ..roomy() };
    let errors = [
        refusal(&fixture.missing(), roomy())?,
        refusal(&wrong_revision, roomy())?,
        refusal(&fixture.prepare(&small_tree()), limits)?,
    ];
    for error in errors {
        let mut text = format!("{error} {error:?}");
        let length = error.to_string().chars().count();
        ensure(length < 2000, || format!("an error of {length} characters"))?;
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(&format!(" {inner} {inner:?}"));
            cause = inner.source();
        }
        if let Some(credential) = fixture.credential() {
            ensure(!text.contains(&credential), || format!("the error shows the credential: {error}"))?;
        }
    }
    Ok(())
}
