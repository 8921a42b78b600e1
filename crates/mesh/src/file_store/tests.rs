//! Tests of the run store on the disk.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::Workflow;

const TEXT: &str = "id = 'w'\ngoal = 'g'\n[[step]]\nid = 's'\n";

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn state(run: &str) -> RunState {
    RunState::new(id(run), &Workflow::parse(TEXT).unwrap(), Digest::of(b"snapshot"))
}

fn store() -> (tempfile::TempDir, FileRunStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = FileRunStore::new(folder.path().join("runs")).with_lock_wait(Duration::ZERO);
    (folder, store)
}

fn kind<T>(result: Result<T, MeshError>) -> MeshErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

#[tokio::test]
async fn a_state_comes_back_as_it_was_written() {
    let (_folder, store) = store();
    let mut state = state("r1");
    let mut handle = store.create(TEXT, &state).await.unwrap();
    for durability in [Durability::Process, Durability::Machine] {
        state.revision += 1;
        handle.save(&state, durability).await.unwrap();
        assert_eq!(store.load(&id("r1")).await.unwrap(), (TEXT.to_owned(), state.clone()));
    }
    drop(handle);
    let opened = store.open(&id("r1")).await.unwrap();
    assert_eq!((opened.workflow.as_str(), &opened.state), (TEXT, &state));
    assert_eq!(store.runs().unwrap(), [id("r1")]);
}

#[tokio::test]
async fn only_the_user_can_read_a_run() {
    let (_folder, store) = store();
    store.create(TEXT, &state("r1")).await.unwrap();
    let folder = store.folder(&id("r1"));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for name in [STATE, PREVIOUS, WORKFLOW, LOCK] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn one_run_has_one_writer() {
    let (_folder, store) = store();
    let handle = store.create(TEXT, &state("r1")).await.unwrap();
    let error = store.open(&id("r1")).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Busy);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    assert_eq!(kind(store.create(TEXT, &state("r1")).await), MeshErrorKind::Busy);
    store.create(TEXT, &state("r2")).await.unwrap();
    drop(handle);
    assert_eq!(kind(store.create(TEXT, &state("r1")).await), MeshErrorKind::Exists);
    store.open(&id("r1")).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_was_overtaken_writes_nothing() {
    let (_folder, store) = store();
    let mut late = store.create(TEXT, &state("r1")).await.unwrap();
    let folder = store.folder(&id("r1"));
    std::fs::remove_file(folder.join(LOCK)).unwrap();
    let mut opened = store.open(&id("r1")).await.unwrap();
    opened.state.revision = 7;
    opened.handle.save(&opened.state, Durability::Process).await.unwrap();
    assert_eq!(kind(late.save(&state("r1"), Durability::Process).await), MeshErrorKind::Fenced);
    assert_eq!(store.load(&id("r1")).await.unwrap().1.revision, 7);
}

#[tokio::test]
async fn a_missing_run_and_one_that_was_never_begun_are_not_found() {
    let (_folder, store) = store();
    assert_eq!(kind(store.open(&id("none")).await), MeshErrorKind::NotFound);
    assert_eq!(kind(store.load(&id("none")).await), MeshErrorKind::NotFound);
    assert!(store.runs().unwrap().is_empty());
    // A kill between making the folder and the first state leaves this behind.
    std::fs::create_dir_all(store.folder(&id("cut"))).unwrap();
    std::fs::write(store.folder(&id("cut")).join("state.json.new"), "half").unwrap();
    assert_eq!(kind(store.open(&id("cut")).await), MeshErrorKind::NotFound);
    store.create(TEXT, &state("cut")).await.unwrap();
    assert_eq!(store.runs().unwrap(), [id("cut")]);
}

#[tokio::test]
async fn every_cut_and_every_changed_byte_is_found_and_says_what_to_do() {
    let (_folder, store) = store();
    let mut written = state("r1");
    let mut handle = store.create(TEXT, &written).await.unwrap();
    written.revision = 1;
    handle.save(&written, Durability::Process).await.unwrap();
    drop(handle);
    let path = store.folder(&id("r1")).join(STATE);
    let good = std::fs::read(&path).unwrap();
    for length in 0..good.len() {
        assert!(matches!(decode(&good[..length]), Err(Problem::Damaged(_))), "cut at {length}");
        let mut bytes = good.clone();
        bytes[length] ^= 1;
        assert!(decode(&bytes).is_err(), "changed at {length}");
    }
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    let error = store.open(&id("r1")).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Corrupt);
    assert!(error.to_string().contains("copy state.previous.json over state.json"), "{error}");
    std::fs::copy(store.folder(&id("r1")).join(PREVIOUS), &path).unwrap();
    assert_eq!(store.open(&id("r1")).await.unwrap().state.revision, 0);
}

#[tokio::test]
async fn a_changed_workflow_and_a_later_format_are_refused() {
    let (_folder, store) = store();
    drop(store.create(TEXT, &state("r1")).await.unwrap());
    let folder = store.folder(&id("r1"));
    std::fs::write(folder.join(WORKFLOW), format!("{TEXT} ")).unwrap();
    assert_eq!(kind(store.open(&id("r1")).await), MeshErrorKind::Corrupt);
    std::fs::write(folder.join(WORKFLOW), TEXT).unwrap();
    let text = std::fs::read_to_string(folder.join(STATE)).unwrap();
    std::fs::write(folder.join(STATE), text.replace("\"format\":1,", "\"format\":2,")).unwrap();
    let error = store.open(&id("r1")).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Unsupported);
    assert!(error.to_string().contains("format \"2\""), "{error}");
}

#[tokio::test]
async fn a_state_in_the_wrong_folder_is_refused() {
    let (_folder, store) = store();
    drop(store.create(TEXT, &state("r1")).await.unwrap());
    std::fs::rename(store.folder(&id("r1")), store.folder(&id("r2"))).unwrap();
    assert_eq!(kind(store.open(&id("r2")).await), MeshErrorKind::Corrupt);
}

#[tokio::test]
async fn a_failed_write_leaves_the_state_before_it() {
    let (_folder, store) = store();
    let mut state = state("r1");
    let mut handle = store.create(TEXT, &state).await.unwrap();
    // A folder in the place of the staged file makes the write fail, for every user.
    let staged = store.folder(&id("r1")).join("state.json.new");
    std::fs::create_dir(&staged).unwrap();
    state.revision = 1;
    assert!(handle.save(&state, Durability::Machine).await.is_err());
    assert_eq!(store.load(&id("r1")).await.unwrap().1.revision, 0);
    std::fs::remove_dir(&staged).unwrap();
    handle.save(&state, Durability::Machine).await.unwrap();
    assert_eq!(store.load(&id("r1")).await.unwrap().1.revision, 1);
}
