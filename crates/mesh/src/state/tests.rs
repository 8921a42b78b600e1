//! Tests of claims, fencing and the rules of a run state.

use super::*;

const DIAMOND: &str = r#"
id = "diamond"
goal = "test"
[[step]]
id = "a"
[[step]]
id = "b"
depends_on = ["a"]
[[step]]
id = "c"
depends_on = ["a"]
[[step]]
id = "d"
depends_on = ["b", "c"]
"#;

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn begin() -> (Workflow, RunState) {
    let workflow = Workflow::parse(DIAMOND).unwrap();
    let state = RunState::new(id("run"), &workflow, Digest::of(b"snapshot"));
    (workflow, state)
}

fn completed(what: &str) -> StepResult {
    StepResult::Workspace(CompletedStep {
        delta: Digest::of(what.as_bytes()),
        depends_on: vec![],
        receipts_head: Digest::of(b"head"),
        receipts: vec![],
        output: what.into(),
    })
}

fn failed() -> StepResult {
    let failure = StepError::new(StepErrorKind::Conflict, "both changed x");
    StepResult::Failed { failure, partial_delta: Some(Digest::of(b"partial")) }
}

fn claim(workflow: &Workflow, state: &mut RunState, step: &str, owner: &str) -> (Claim, Option<Checkpoint>) {
    match state.claim(workflow, &id(step), &id(owner), 3).unwrap() {
        Claimed::Work(claim, checkpoint) => (claim, checkpoint),
        Claimed::Exhausted(error) => panic!("{error}"),
    }
}

fn checkpoint(epoch: u64, calls_done: usize) -> Checkpoint {
    Checkpoint { epoch, delta: Some(Digest::of(b"d")), calls_done, answers: vec![] }
}

#[test]
fn a_late_epoch_publishes_nothing() {
    let (workflow, mut state) = begin();
    let (late, _) = claim(&workflow, &mut state, "a", "first");
    let (current, _) = claim(&workflow, &mut state, "a", "second");
    let (current, same_owner_before) = (claim(&workflow, &mut state, "a", "second").0, current);
    assert_eq!((late.epoch, same_owner_before.epoch, current.epoch), (1, 2, 3));
    let before = state.clone();
    let fenced =
        |result: Result<(), MeshError>| assert_eq!(result.unwrap_err().kind(), MeshErrorKind::Fenced);
    fenced(state.checkpoint(&late, checkpoint(1, 0), []));
    fenced(state.checkpoint(&same_owner_before, checkpoint(2, 0), []));
    fenced(state.end(&workflow, &same_owner_before, completed("late"), [], 1));
    fenced(state.end(&workflow, &late, completed("late"), [], 1));
    fenced(state.end(&workflow, &late, failed(), [], 1));
    let stolen = Claim { owner: id("first"), ..current.clone() };
    fenced(state.end(&workflow, &stolen, completed("stolen"), [], 1));
    assert_eq!(state, before);
    state.end(&workflow, &current, completed("current"), [], 1).unwrap();
    let ended = state.clone();
    fenced(state.end(&workflow, &current, completed("again"), [], 1));
    fenced(state.checkpoint(&current, checkpoint(3, 0), []));
    assert_eq!(state, ended);
    assert_eq!(state.claim(&workflow, &id("a"), &id("x"), 3).unwrap_err().kind(), MeshErrorKind::Fenced);
}

#[test]
fn a_failure_blocks_all_that_waits_for_it_and_nothing_else() {
    let (workflow, mut state) = begin();
    let (a, _) = claim(&workflow, &mut state, "a", "me");
    state.end(&workflow, &a, completed("a"), [], 5).unwrap();
    let (b, _) = claim(&workflow, &mut state, "b", "me");
    let (c, _) = claim(&workflow, &mut state, "c", "me");
    state.end(&workflow, &b, failed(), [], 5).unwrap();
    assert_eq!(state.steps[&id("d")].status, StepStatus::Blocked);
    assert_eq!(state.steps[&id("d")].blocked_by, Some(id("b")));
    assert_eq!(state.steps[&id("b")].partial_delta, Some(Digest::of(b"partial")));
    assert_eq!(state.status, RunStatus::InProgress, "c still works");
    state.end(&workflow, &c, completed("c"), [], 5).unwrap();
    assert_eq!(state.status, RunStatus::Failed);

    state.reopen();
    assert_eq!(state.status, RunStatus::InProgress);
    assert_eq!(state.steps[&id("c")].status, StepStatus::Completed);
    let b = &state.steps[&id("b")];
    assert_eq!((b.status, b.epoch, b.attempts), (StepStatus::Pending, 1, 0));
    assert!(b.failure.is_none() && b.partial_delta.is_none());
    let (again, from) = claim(&workflow, &mut state, "b", "me");
    assert_eq!((again.epoch, from), (2, None), "afresh, under an epoch that never was");
}

#[test]
fn a_run_is_completed_with_its_last_step() {
    let (workflow, mut state) = begin();
    for step in ["a", "b", "c", "d"] {
        assert_eq!(state.status, RunStatus::InProgress);
        let (claim, _) = claim(&workflow, &mut state, step, "me");
        state.end(&workflow, &claim, completed(step), [], 1).unwrap();
    }
    assert_eq!(state.status, RunStatus::Completed);
    let before = state.clone();
    state.reopen();
    assert_eq!(state, before);
}

#[test]
fn a_step_that_is_begun_too_often_fails_and_can_be_tried_afresh() {
    let (workflow, mut state) = begin();
    for epoch in 1..=3 {
        let (claim, from) = claim(&workflow, &mut state, "a", "me");
        assert_eq!(from.map(|from| from.epoch), (epoch > 1).then(|| epoch - 1));
        state.checkpoint(&claim, checkpoint(epoch, 0), []).unwrap();
    }
    let Claimed::Exhausted(error) = state.claim(&workflow, &id("a"), &id("me"), 3).unwrap() else { panic!() };
    assert!(error.message.contains("3 times"), "{error}");
    assert_eq!(state.status, RunStatus::Failed);
    assert_eq!(state.steps[&id("d")].status, StepStatus::Blocked);
    assert_eq!(state.steps[&id("a")].partial_delta, Some(Digest::of(b"d")));
    state.reopen();
    assert_eq!(claim(&workflow, &mut state, "a", "me").0.epoch, 4);
}

#[test]
fn a_state_that_does_not_fit_its_workflow_is_refused() {
    let (workflow, state) = begin();
    assert!(state.check(&workflow).is_ok());
    let other = Workflow::parse(DIAMOND.replace("goal = \"test\"", "goal = \"other\"")).unwrap();
    type Change = fn(&mut RunState);
    let changes: [(&Workflow, Change); 5] = [
        (&other, |_| {}),
        (&workflow, |state| drop(state.steps.remove(&id("b")))),
        (&workflow, |state| {
            let record = state.steps.remove(&id("b")).unwrap();
            state.steps.insert(id("x"), record);
        }),
        (&workflow, |state| state.steps.get_mut(&id("a")).unwrap().status = StepStatus::Completed),
        (&workflow, |state| state.steps.get_mut(&id("a")).unwrap().checkpoint = Some(checkpoint(1, 1))),
    ];
    for (workflow, change) in changes {
        let mut damaged = state.clone();
        change(&mut damaged);
        assert_eq!(damaged.check(workflow).unwrap_err().kind(), MeshErrorKind::Corrupt);
    }
}
