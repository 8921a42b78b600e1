//! A run that is cut short at any of its writes goes on to the same end, and no completed step runs again.

mod double;

use std::collections::BTreeSet;
use std::sync::Arc;

use coldframe_core::Digest;
use coldframe_mesh::{Engine, EngineOptions, NoObserver, RunReport, RunStatus, StepStatus, Workflow};
use double::{Crash, Host, RUN, Store, WORKFLOW, tasks_are_gone};
use serde_json::Value;

fn engine(host: &Host, store: &Store, parallel: usize) -> Engine {
    let mut options = EngineOptions::default();
    options.parallel = parallel;
    Engine::new(Arc::new(host.clone()), Arc::new(store.clone()), Arc::new(NoObserver), options)
}

fn outputs(report: &RunReport) -> Vec<(String, Option<Value>, Option<Digest>)> {
    report.steps.iter().map(|step| (step.step.to_string(), step.output.clone(), step.delta)).collect()
}

/// Runs once with a crash, then resumes until the end. Answers the report and the calls of both.
async fn crash_and_resume(crash: (usize, Crash), parallel: usize) -> (RunReport, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path());
    let store = Store::new();
    let workflow = Workflow::parse(WORKFLOW).unwrap();
    let crashing = store.crashing(Some(crash));
    let first = engine(&host, &crashing, parallel);
    let run = RUN.clone();
    tokio::select! {
        result = first.run(&workflow, Digest::of(b"s"), &run) => {
            assert!(matches!(crash.1, Crash::FailBefore | Crash::FailAfter), "{crash:?}");
            assert!(result.is_err(), "{crash:?}");
        }
        () = crashing.stopped.notified() => {
            assert!(matches!(crash.1, Crash::StopBefore | Crash::StopAfter), "{crash:?}");
        }
    }
    tasks_are_gone().await;
    let state = store.state(&run).unwrap();
    let before = host.executed().len();
    let last = engine(&host, &store.crashing(None), parallel);
    let report = last.resume(&run).await.unwrap();
    let executed = host.executed();
    for (step, record) in &state.steps {
        let again: Vec<_> =
            executed[before..].iter().filter(|call| call.starts_with(&format!("{step} "))).collect();
        if record.status == StepStatus::Completed {
            assert!(again.is_empty(), "{crash:?}: completed step {step} ran again: {again:?}");
        }
        let done = record.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.calls_done);
        let calls = workflow.step(step).unwrap().calls.len();
        assert!(
            again.len() <= calls - done.min(calls),
            "{crash:?}: {step} repeats calls before its checkpoint"
        );
    }
    (report, executed)
}

#[tokio::test]
async fn a_crash_at_any_write_costs_at_most_the_calls_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path());
    let store = Store::new();
    let workflow = Workflow::parse(WORKFLOW).unwrap();
    let whole = engine(&host, &store, 2).run(&workflow, Digest::of(b"s"), &RUN).await.unwrap();
    assert_eq!(whole.status, RunStatus::Completed);
    assert_eq!(whole.step("answer").unwrap().output.as_ref().unwrap()["text"], "0,0,1,2");
    let calls: BTreeSet<String> = host.executed().into_iter().collect();
    assert_eq!(calls.len(), 7);
    let writes = store.writes();
    assert_eq!(writes, 5 + 6 + 5, "a claim and an end for each step, a checkpoint for each effect");
    for parallel in [1, 2] {
        for write in 1..=writes {
            for crash in [Crash::FailBefore, Crash::FailAfter, Crash::StopBefore, Crash::StopAfter] {
                let (report, executed) = crash_and_resume((write, crash), parallel).await;
                assert_eq!(outputs(&report), outputs(&whole), "{crash:?} at write {write}");
                let unique: BTreeSet<String> = executed.iter().cloned().collect();
                assert_eq!(unique, calls, "{crash:?} at write {write}");
                // An effect in flight, and the read since the last checkpoint, for each step at work.
                let again = executed.len() - calls.len();
                assert!(again <= 2 * parallel, "{crash:?} at write {write}: {executed:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_crashes_at_every_write_again_and_again_still_ends() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path());
    let store = Store::new();
    let workflow = Workflow::parse(WORKFLOW).unwrap();
    for _ in 0..16 {
        // Two writes get through each time, then the process is gone: a claim and one more.
        let crashing = store.crashing(Some((3, Crash::StopBefore)));
        let engine = engine(&host, &crashing, 1);
        tokio::select! {
            report = engine.run(&workflow, Digest::of(b"s"), &RUN) => {
                assert_eq!(report.unwrap().status, RunStatus::Completed);
                return;
            }
            () = crashing.stopped.notified() => {}
        }
        tasks_are_gone().await;
    }
    panic!("the run makes no progress");
}
