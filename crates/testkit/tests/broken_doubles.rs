//! The kit against itself: the reference adapter meets every clause, and each broken one is caught.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coldframe_core::{
    Capabilities, ErrorKind, InlineFile, NewFile, Omission, OmissionReason, Resolved, SnapshotWriter,
    SourceAdapter, SourceError, SourceRef, WorkspacePath, once,
};
use coldframe_testkit::{FixtureNode, MemorySource, PreparedSource, SourceFixture, clauses};

struct MemoryFixture;

impl SourceFixture for MemoryFixture {
    fn prepare(&self, nodes: &[FixtureNode]) -> PreparedSource {
        let source = SourceRef::new("memory", MemorySource::LOCATOR, "").unwrap();
        PreparedSource::new(MemorySource::new(nodes.to_vec()), source)
    }

    fn missing(&self) -> PreparedSource {
        PreparedSource::new(MemorySource::default(), SourceRef::new("memory", "nowhere", "").unwrap())
    }
}

coldframe_testkit::source_conformance!(MemoryFixture);

/// One way in which an adapter can be wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Defect {
    AnswersForAnotherSource,
    ChangesBytes,
    LosesExecutableBits,
    ResolvesLinks,
    LosesEmptyDirectories,
    FailsOnNothing,
    SwallowsErrors,
    SendsAllBeforeItAsks,
    HidesWhichLimit,
    CountsCaptures,
    ClaimsToBeIncremental,
    FindsWhatIsMissing,
    IgnoresRevisions,
    StaysLockedWhenDropped,
    ShowsItsCredential,
}

const CREDENTIAL: &str = "hunter2-secret-token";

struct BrokenSource {
    nodes: Vec<FixtureNode>,
    defect: Defect,
    captures: AtomicU64,
    locked: AtomicBool,
}

impl BrokenSource {
    async fn send(&self, node: FixtureNode, writer: &dyn SnapshotWriter) -> Result<(), SourceError> {
        let path = WorkspacePath::parse(node.path())?;
        match node {
            FixtureNode::Directory { .. } if self.defect == Defect::LosesEmptyDirectories => Ok(()),
            FixtureNode::Directory { .. } => writer.directory(path),
            FixtureNode::Symlink { target, .. } if self.defect == Defect::ResolvesLinks => {
                writer.symlink(path, format!("/resolved/{target}"))
            }
            FixtureNode::Symlink { target, .. } => writer.symlink(path, target),
            FixtureNode::File { mut content, mut executable, .. } => {
                if self.defect == Defect::ChangesBytes {
                    content.retain(|byte| *byte != b'\r');
                }
                executable &= self.defect != Defect::LosesExecutableBits;
                if self.defect == Defect::SendsAllBeforeItAsks {
                    return writer.files(vec![InlineFile { path, executable, content }]).await.map(|_| ());
                }
                let size = Some(content.len() as u64);
                writer.file(NewFile { path, executable, size }, once(content)).await.map(|_| ())
            }
        }
    }

    fn refuse(&self, source: &SourceRef) -> Result<(), SourceError> {
        let detail = match self.defect {
            Defect::ShowsItsCredential => format!("refused with token {CREDENTIAL}"),
            _ => "refused".to_owned(),
        };
        if !source.revision.is_empty() && self.defect != Defect::IgnoresRevisions {
            return Err(SourceError::new(ErrorKind::Unsupported, "capture", detail));
        }
        if source.locator != MemorySource::LOCATOR && self.defect != Defect::FindsWhatIsMissing {
            return Err(SourceError::new(ErrorKind::NotFound, "capture", detail));
        }
        if self.nodes.is_empty() && self.defect == Defect::FailsOnNothing {
            return Err(SourceError::contract("capture", "nothing to capture"));
        }
        if self.locked.swap(true, Ordering::SeqCst) && self.defect == Defect::StaysLockedWhenDropped {
            return Err(SourceError::new(ErrorKind::Io, "capture", "another capture is under way"));
        }
        Ok(())
    }
}

impl SourceAdapter for BrokenSource {
    fn provider(&self) -> &str {
        "broken"
    }

    fn capabilities(&self) -> Capabilities {
        let declared = Capabilities::new().with_executable_bits().with_symlinks();
        match self.defect {
            Defect::ClaimsToBeIncremental => declared.with_incremental_recapture(),
            _ => declared,
        }
    }

    async fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> Result<Resolved, SourceError> {
        self.refuse(source)?;
        std::future::poll_fn(yield_once()).await;
        for node in self.nodes.clone() {
            match self.send(node, writer).await {
                Err(_) if self.defect == Defect::SwallowsErrors => {}
                Err(error) if self.defect == Defect::HidesWhichLimit => {
                    return Err(SourceError::new(ErrorKind::Io, "capture", error.to_string()));
                }
                outcome => outcome?,
            }
        }
        if self.defect == Defect::CountsCaptures {
            let count = self.captures.fetch_add(1, Ordering::SeqCst) + 1;
            writer.omit(Omission { reason: OmissionReason::Ignored, subject: "capture".to_owned(), count });
        }
        self.locked.store(false, Ordering::SeqCst);
        let mut answer = source.clone();
        if self.defect == Defect::AnswersForAnotherSource {
            answer.locator.push_str("/canonical");
        }
        Ok(Resolved::new(answer, ""))
    }
}

fn yield_once() -> impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<()> {
    let mut yielded = false;
    move |context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

struct BrokenFixture(Defect);

impl BrokenFixture {
    fn source(&self, nodes: &[FixtureNode], locator: &str) -> PreparedSource {
        let adapter = BrokenSource {
            nodes: nodes.to_vec(),
            defect: self.0,
            captures: AtomicU64::new(0),
            locked: AtomicBool::new(false),
        };
        let source = SourceRef::new("broken", locator, "").unwrap();
        PreparedSource { adapter: Arc::new(adapter), source, guard: Box::new(()) }
    }
}

impl SourceFixture for BrokenFixture {
    fn prepare(&self, nodes: &[FixtureNode]) -> PreparedSource {
        self.source(nodes, MemorySource::LOCATOR)
    }

    fn missing(&self) -> PreparedSource {
        self.source(&[], "nowhere")
    }

    fn credential(&self) -> Option<String> {
        Some(CREDENTIAL.to_owned())
    }
}

/// Each defect with the clauses that must catch it.
const CATCHES: &[(Defect, &[&str])] = &[
    (Defect::AnswersForAnotherSource, &["identity_is_preserved"]),
    (Defect::ChangesBytes, &["bytes_are_exact"]),
    (Defect::LosesExecutableBits, &["executable_bits_are_kept"]),
    (Defect::ResolvesLinks, &["symlinks_are_kept_as_text"]),
    (Defect::LosesEmptyDirectories, &["empty_directories_are_kept"]),
    (Defect::FailsOnNothing, &["an_empty_source_is_a_snapshot"]),
    (Defect::SwallowsErrors, &["too_many_files_are_refused", "a_full_store_is_reported"]),
    (Defect::SendsAllBeforeItAsks, &["a_file_over_its_limit_is_refused"]),
    (Defect::HidesWhichLimit, &["too_many_bytes_are_refused", "a_full_store_is_reported"]),
    (Defect::CountsCaptures, &["recapture_gives_the_same_id"]),
    (Defect::ClaimsToBeIncremental, &["recapture_reads_nothing_again"]),
    (Defect::FindsWhatIsMissing, &["a_missing_source_is_not_found"]),
    (Defect::IgnoresRevisions, &["revisions_answer_as_declared"]),
    (Defect::StaysLockedWhenDropped, &["a_dropped_capture_leaves_nothing"]),
    (Defect::ShowsItsCredential, &["errors_are_short_and_hold_no_credential"]),
];

#[test]
fn each_broken_double_is_caught() {
    for (defect, names) in CATCHES {
        for name in *names {
            let (_, clause) = clauses::ALL.iter().find(|(known, _)| known == name).expect("a clause's name");
            assert!(clause(&BrokenFixture(*defect)).is_err(), "{name} misses {defect:?}");
        }
    }
}

#[test]
fn each_clause_has_a_double_that_it_catches() {
    let caught: Vec<&str> = CATCHES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    for (name, _) in clauses::ALL {
        assert!(caught.contains(name), "{name} catches nothing");
    }
}

#[test]
fn a_double_is_caught_for_its_defect_and_for_nothing_else() {
    let breaks_everything =
        [Defect::AnswersForAnotherSource, Defect::ClaimsToBeIncremental, Defect::HidesWhichLimit];
    for (defect, names) in CATCHES.iter().filter(|(defect, _)| !breaks_everything.contains(defect)) {
        for (name, clause) in clauses::ALL.iter().filter(|(name, _)| !names.contains(name)) {
            let may_follow = match defect {
                Defect::SwallowsErrors | Defect::IgnoresRevisions | Defect::FindsWhatIsMissing => {
                    name.contains("refused") || name.starts_with("errors_are_short")
                }
                Defect::StaysLockedWhenDropped => name.contains("refused") || name.contains("full_store"),
                _ => false,
            };
            if !may_follow {
                assert_eq!(clause(&BrokenFixture(*defect)), Ok(()), "{name} on {defect:?}");
            }
        }
    }
}
