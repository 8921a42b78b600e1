//! Journalled workspaces over a double that answers as it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coldframe_core::{BoxFuture, DeltaChange, Node, SnapshotEntry, WorkspaceError, WorkspacePath};

use super::*;

/// Each write counts; a write to `stuck` never answers.
#[derive(Default)]
struct Double {
    writes: Arc<AtomicU64>,
}

fn base() -> Digest {
    Digest::of(b"base")
}

impl coldframe_core::Workspace for Double {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<ToolAnswer, ToolError>> {
        Box::pin(async move {
            let ToolCall::Write(write) = call else {
                return Err(ToolError::new(ToolStatus::Refused, "only writes are allowed here"));
            };
            self.writes.fetch_add(1, Ordering::SeqCst);
            if write.path == "stuck" {
                std::future::pending::<()>().await;
            }
            Ok(ToolAnswer::Mutation(WorkspaceMutation {
                tool_receipt_id: None,
                path: write.path.clone(),
                sha256: "0".repeat(64),
                digest: Digest::of(write.content.as_bytes()),
                size: write.content.len() as u64,
                executable: false,
                observed_at: now(),
            }))
        })
    }

    fn export<'a>(&'a self) -> BoxFuture<'a, Result<WorkspaceDelta, WorkspaceError>> {
        Box::pin(async move {
            let content = self.writes.load(Ordering::SeqCst).to_string();
            let node = Node::File {
                digest: Digest::of(content.as_bytes()),
                size: content.len() as u64,
                executable: false,
            };
            let entry = SnapshotEntry { path: WorkspacePath::parse("counter").unwrap(), node };
            Ok(WorkspaceDelta::new(base(), vec![], vec![DeltaChange::Added { entry }], vec![])?)
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(async { Ok(()) })
    }
}

struct Desk {
    folder: tempfile::TempDir,
    store: Store,
}

impl Desk {
    async fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: Store::in_memory().await }
    }

    fn open(&self, epoch: u64, restored: Restored) -> Result<Workspace, Error> {
        let (run, step) = (Id::parse("r1").unwrap(), Id::parse("s").unwrap());
        let place = JournalPlace {
            file: &self.folder.path().join("s.journal"),
            run: &run,
            step: &step,
            epoch,
            restored,
        };
        Workspace::begin(Parts {
            inner: Box::new(Double::default()),
            opened: Opened { isolation: "full".into(), strategy: "copy".into() },
            store: self.store.clone(),
            policy: &Policy::default(),
            base: base(),
            delta: None,
            journal: place,
        })
    }

    fn journal(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("s.journal")).unwrap()
    }
}

#[tokio::test]
async fn an_effect_has_a_receipt_and_its_delta_is_stored() {
    let desk = Desk::new().await;
    let workspace = desk.open(1, Restored::Nothing).unwrap();
    let mutation = workspace.write("a", "1").await.unwrap();
    assert_eq!(mutation.tool_receipt_id.unwrap().to_string(), "tool:r1:s:1");
    let finished = workspace.finish().await.unwrap();
    let receipt = &finished.receipts[0];
    assert_eq!(desk.store.load_delta(&receipt.delta.unwrap()).await.unwrap().changes().len(), 1);
    assert_ne!(receipt.state_before, receipt.state_after);
    let journal = coldframe_evidence::verify_with_head(&desk.journal(), &finished.receipts_head).unwrap();
    assert!(journal.is_complete());
}

#[tokio::test]
async fn a_refused_call_has_a_receipt_without_an_observation() {
    let desk = Desk::new().await;
    let workspace = desk.open(1, Restored::Nothing).unwrap();
    let error = workspace.run(["true"]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    let receipts = workspace.receipts().await;
    assert_eq!((receipts.len(), receipts[0].status), (1, ToolStatus::Refused));
    assert_eq!(receipts[0].state_before, receipts[0].state_after);
}

#[tokio::test]
async fn a_call_that_was_given_up_is_recorded_as_interrupted() {
    let desk = Desk::new().await;
    let workspace = desk.open(1, Restored::Nothing).unwrap();
    let stuck = tokio::time::timeout(std::time::Duration::from_millis(20), workspace.write("stuck", ""));
    assert!(stuck.await.is_err());
    let next = workspace.write("a", "1").await.unwrap();
    assert_eq!(next.tool_receipt_id.unwrap().number, 2);
    workspace.finish().await.unwrap();
    let journal = verify_journal(&desk.journal()).unwrap();
    assert_eq!(journal.interrupted.iter().map(|id| id.number).collect::<Vec<_>>(), [1]);
    assert_eq!(journal.receipts.len(), 1);
}

#[tokio::test]
async fn a_step_whose_end_was_written_and_not_published_goes_on() {
    let desk = Desk::new().await;
    let first = desk.open(1, Restored::Nothing).unwrap();
    first.write("a", "1").await.unwrap();
    let finished = first.finish().await.unwrap();
    assert!(verify_journal(&desk.journal()).unwrap().is_complete());
    // The process was killed before the run's state named the head: the step is not done for the run.
    let second = desk.open(2, Restored::Delta(finished.delta.id())).unwrap();
    assert_eq!(second.receipts().await.len(), 1);
    second.write("b", "2").await.unwrap();
    let finished = second.finish().await.unwrap();
    assert_eq!(finished.receipts.iter().map(|receipt| receipt.id.number).collect::<Vec<_>>(), [1, 2]);
    assert!(finished.receipts.iter().all(|receipt| !receipt.rolled_back));
}

#[tokio::test]
async fn an_epoch_that_starts_afresh_throws_the_effects_before_it_away() {
    let desk = Desk::new().await;
    let first = desk.open(1, Restored::Nothing).unwrap();
    first.write("a", "1").await.unwrap();
    first.abandon().await.unwrap();
    let second = desk.open(2, Restored::Nothing).unwrap();
    second.write("a", "1").await.unwrap();
    let finished = second.finish().await.unwrap();
    let rolled_back = finished.receipts.iter().map(|receipt| receipt.rolled_back).collect::<Vec<_>>();
    assert_eq!(rolled_back, [true, false]);
}

#[tokio::test]
async fn an_older_epoch_is_refused() {
    let desk = Desk::new().await;
    desk.open(2, Restored::Nothing).unwrap();
    assert_eq!(desk.open(2, Restored::Nothing).unwrap_err().kind(), Kind::Conflict);
}
