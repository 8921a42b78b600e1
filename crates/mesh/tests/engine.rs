//! The engine with doubles: what runs when, what stops what, and what a run leaves.

mod double;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coldframe_core::Digest;
use coldframe_mesh::{
    Engine, EngineOptions, FileRunStore, MeshError, MeshErrorKind, NoObserver, Observer, RunEvent, RunReport,
    RunStatus, StepErrorKind, StepStatus, Workflow,
};
use double::{Host, Opened, RUN, Store, id, tasks_are_gone};
use serde_json::json;

struct Bench {
    _folder: tempfile::TempDir,
    host: Host,
    store: Store,
    options: EngineOptions,
}

fn snapshot() -> Digest {
    Digest::of(b"snapshot")
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(folder.path());
        Self { _folder: folder, host, store: Store::new(), options: EngineOptions::default() }
    }

    fn engine(&self) -> Engine {
        self.engine_with(Arc::new(NoObserver))
    }

    fn engine_with(&self, observer: Arc<dyn Observer>) -> Engine {
        Engine::new(Arc::new(self.host.clone()), Arc::new(self.store.clone()), observer, self.options.clone())
    }

    async fn run(&self, text: &str) -> Result<RunReport, MeshError> {
        let workflow = Workflow::parse(text).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.engine().run(&workflow, snapshot(), &RUN))
            .await
            .expect("the run must end")
    }
}

/// Steps `id [depends_on] = calls`, without the head of a workflow.
fn step(id: &str, depends_on: &[&str], calls: &str) -> String {
    format!("[[step]]\nid = '{id}'\ndepends_on = {depends_on:?}\n{calls}\n")
}

fn run_call(command: &str) -> String {
    format!("[[step.call]]\ntool = 'workspace_run'\ncommand = ['{command}']\n")
}

fn write_call(path: &str, content: &str) -> String {
    format!(
        "[[step.call]]\nid = '{path}'\ntool = 'workspace_write'\npath = '{path}'\ncontent = '{content}'\n"
    )
}

fn workflow(steps: &[String]) -> String {
    format!("id = 'w'\ngoal = 'test'\n{}", steps.concat())
}

fn status(report: &RunReport, step: &str) -> StepStatus {
    report.step(step).unwrap().status
}

#[tokio::test]
async fn the_arms_of_a_diamond_run_at_the_same_time_and_meet() {
    let bench = Bench::new();
    // Each arm waits for the other one in its command, so the run ends only where they overlap.
    let text = workflow(&[
        step("top", &[], &write_call("base", "0")),
        step("left", &["top"], &(run_call("meet") + &write_call("left", "1"))),
        step("right", &["top"], &(run_call("meet") + &write_call("right", "2"))),
        step(
            "join",
            &["left", "right"],
            "[[step.call]]\nid='look'\ntool='workspace_run'\ncommand=['look']\n[step.output]\ntext = '${look.stdout.text}'",
        ),
    ]);
    let report = bench.run(&text).await.unwrap();
    assert_eq!(report.status, RunStatus::Completed);
    let join = report.step("join").unwrap();
    assert_eq!(join.output, Some(json!({"text": "0,1,2", "sees": ["left", "right", "top"]})));
    let opened = bench.host.opened.lock().unwrap();
    let joined = opened.iter().find(|opened| opened.step == id("join")).unwrap();
    assert_eq!(joined.lineage, [id("left"), id("right"), id("top")]);
    assert_eq!(report.leaves().map(|step| step.step.as_str()).collect::<Vec<_>>(), ["join"]);
}

#[tokio::test]
async fn no_more_steps_run_at_a_time_than_allowed() {
    let mut bench = Bench::new();
    bench.options.parallel = 1;
    let text = workflow(&[step("a", &[], &run_call("meet")), step("b", &[], &run_call("meet"))]);
    let workflow = Workflow::parse(text).unwrap();
    let engine = bench.engine();
    let stuck = tokio::time::timeout(Duration::from_millis(200), engine.run(&workflow, snapshot(), &RUN));
    assert!(stuck.await.is_err(), "the two never meet");
    assert_eq!(bench.host.executed(), ["a meet"]);
}

#[tokio::test]
async fn a_conflict_fails_the_step_and_blocks_those_behind_it_only() {
    let bench = Bench::new();
    let text = workflow(&[
        step("left", &[], &write_call("x", "1")),
        step("right", &[], &write_call("x", "2")),
        step("join", &["left", "right"], &run_call("never")),
        step("after", &["join"], &run_call("never")),
        step("beside", &["left"], &run_call("fine")),
        "[[step]]\nid = 'answer'\nkind = 'final_response'\n[step.output]\na = 1\n".to_owned(),
    ]);
    let report = bench.run(&text).await.unwrap();
    assert_eq!(report.status, RunStatus::Failed);
    let join = report.step("join").unwrap();
    assert_eq!(join.failure.as_ref().unwrap().kind, StepErrorKind::Conflict);
    assert_eq!(join.failure.as_ref().unwrap().message, "x was changed in two ways");
    for blocked in ["after", "answer"] {
        assert_eq!(status(&report, blocked), StepStatus::Blocked);
        assert_eq!(report.step(blocked).unwrap().blocked_by, Some(id("join")));
    }
    assert_eq!(status(&report, "beside"), StepStatus::Completed);
    assert!(!bench.host.executed().iter().any(|call| call.ends_with("never")));
}

#[tokio::test]
async fn templates_carry_answers_into_calls_and_outputs() {
    let bench = Bench::new();
    let text = workflow(&[
        step("make", &[], &(write_call("file", "one") + r#"
[[step.call]]
id = "again"
tool = "workspace_read"
path = "${file.path}"
[[step.call]]
id = "copy"
tool = "workspace_write"
path = "copy-of-${again.path}"
content = "${again.content} and ${again.total_lines}"
[step.output]
size = "${copy.size}"
evidence = ["${copy.receipt}", "${file.receipt}"]
literal = "$${HOME}"
"#)),
        step("use", &["make"], "[step.output]\nsize = { artifact_ref = { step_id = 'make', path = ['size'] } }\n"),
        "[[step]]\nid = 'answer'\nkind = 'final_response'\n[step.output]\nfound = { artifact_ref = { step_id = 'make', path = ['evidence'] } }\n".to_owned(),
    ]);
    let report = bench.run(&text).await.unwrap();
    let make = report.step("make").unwrap();
    let cited = json!([{"tool_receipt_id": "tool:r:make:2"}, {"tool_receipt_id": "tool:r:make:1"}]);
    assert_eq!(make.output, Some(json!({"size": 9, "evidence": cited, "literal": "${HOME}", "sees": []})));
    assert_eq!(bench.host.load(make.delta.unwrap())["copy-of-file"], "one and 1");
    assert_eq!(report.step("use").unwrap().output.as_ref().unwrap()["size"], 9);
    let responses: Vec<_> = report.responses().collect();
    assert_eq!(responses, [(&id("answer"), &json!({ "found": cited }))]);
    assert_eq!(make.receipts.len(), 2);
    let calls: Vec<_> = make.calls.iter().map(|call| call.call.as_str()).collect();
    assert_eq!(calls, ["file", "again", "copy"]);
}

#[tokio::test]
async fn a_missed_expectation_fails_the_step_at_once_and_keeps_its_delta() {
    let bench = Bench::new();
    let text = workflow(&[
        step("good", &[], &(run_call("false") + "expect = { exit_code = 1 }\n")),
        step("plain", &[], &run_call("false")),
        step("refused", &[], &(run_call("forbidden") + "expect = { status = 'refused' }\n")),
        step(
            "bad",
            &[],
            &(write_call("x", "1")
                + &run_call("false")
                + "expect = { exit_code = 0 }\n"
                + &run_call("never")),
        ),
        step("unexpected", &[], &run_call("forbidden")),
    ]);
    let report = bench.run(&text).await.unwrap();
    for step in ["good", "plain", "refused"] {
        assert_eq!(status(&report, step), StepStatus::Completed, "{step}");
    }
    let bad = report.step("bad").unwrap();
    let failure = bad.failure.as_ref().unwrap();
    assert_eq!(failure.kind, StepErrorKind::Expectation);
    assert!(
        failure.message.starts_with("call call-2 (workspace_run): expected exit code 0, but it ended with 1"),
        "{failure}"
    );
    assert_eq!(bench.host.load(bad.delta.unwrap())["x"], "1");
    assert_eq!(bad.calls.len(), 2);
    assert!(bad.output.is_none() && bad.receipts_head.is_none());
    let unexpected = report.step("unexpected").unwrap().failure.as_ref().unwrap();
    assert!(unexpected.message.ends_with("expected status ok, got refused: not allowed"), "{unexpected}");
    assert_eq!(bench.host.abandoned.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_host_that_breaks_down_fails_its_step_and_no_other() {
    let bench = Bench::new();
    let text = workflow(&[
        step("broken", &[], &(write_call("x", "1") + &run_call("panic"))),
        step("after", &["broken"], ""),
        step("beside", &[], &run_call("fine")),
    ]);
    let report = bench.run(&text).await.unwrap();
    let broken = report.step("broken").unwrap();
    assert_eq!(broken.failure.as_ref().unwrap().kind, StepErrorKind::Infrastructure);
    assert!(broken.failure.as_ref().unwrap().message.contains("the host broke"));
    assert_eq!(bench.host.load(broken.delta.unwrap())["x"], "1");
    assert_eq!(status(&report, "after"), StepStatus::Blocked);
    assert_eq!(status(&report, "beside"), StepStatus::Completed);
}

#[tokio::test]
async fn a_missing_capability_is_refused_before_anything_runs() {
    let mut bench = Bench::new();
    let text = workflow(&[
        step("a", &[], &run_call("fine")),
        step("b", &["a"], "").replace("depends_on", "capabilities = ['read', 'gpu']\ndepends_on"),
    ]);
    let error = bench.run(&text).await.unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Capability);
    assert!(error.to_string().starts_with("step b needs gpu,"), "{error}");
    assert!(bench.host.executed().is_empty() && bench.store.state(&RUN).is_none());
    bench.options.offered.insert("gpu".to_owned());
    assert_eq!(bench.run(&text).await.unwrap().status, RunStatus::Completed);
    bench.options.offered.remove("run");
    assert_eq!(bench.run(&text).await.unwrap_err().kind(), MeshErrorKind::Capability);
}

#[tokio::test]
async fn a_run_id_belongs_to_one_workflow_and_one_snapshot() {
    let bench = Bench::new();
    let text = workflow(&[step("a", &[], &run_call("fine"))]);
    bench.run(&text).await.unwrap();
    let again = bench.run(&text).await.unwrap();
    assert_eq!((again.status, bench.host.executed().len()), (RunStatus::Completed, 1));
    let other = Workflow::parse(format!("{text} ")).unwrap();
    let error = bench.engine().run(&other, snapshot(), &RUN).await.unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Mismatch);
    assert!(error.to_string().contains("another workflow text"), "{error}");
    let same = Workflow::parse(text).unwrap();
    let error = bench.engine().run(&same, Digest::of(b"other"), &RUN).await.unwrap_err();
    assert_eq!(error.kind(), MeshErrorKind::Mismatch);
    assert!(error.to_string().contains("another snapshot"), "{error}");
    assert_eq!(bench.engine().resume(&id("none")).await.unwrap_err().kind(), MeshErrorKind::NotFound);
}

#[tokio::test]
async fn a_failed_run_is_resumed_by_trying_the_failed_and_blocked_steps_again() {
    let mut bench = Bench::new();
    let text = workflow(&[
        step("fine", &[], &run_call("once")),
        step("flaky", &["fine"], &(write_call("x", "1") + &run_call("meet"))),
        step("after", &["flaky"], &run_call("last")),
    ]);
    let broken = Host::new(bench._folder.path());
    let workflow = Workflow::parse(&*text).unwrap();
    // The first time the machine breaks at the second call of the middle step.
    let calls = Arc::new(Mutex::new(0));
    bench.host.tick = Arc::new(move || {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        assert!(*calls < 8, "the machine broke");
    });
    let report = bench.engine().run(&workflow, snapshot(), &RUN).await.unwrap();
    assert_eq!(report.status, RunStatus::Failed);
    assert_eq!(status(&report, "flaky"), StepStatus::Failed);
    assert_eq!(status(&report, "after"), StepStatus::Blocked);

    bench.host = Host { barrier: Arc::new(tokio::sync::Barrier::new(1)), ..broken };
    let report = bench.engine().resume(&RUN).await.unwrap();
    assert_eq!(report.status, RunStatus::Completed);
    let opened = bench.host.opened.lock().unwrap().clone();
    let flaky = Opened { step: id("flaky"), epoch: 2, lineage: vec![id("fine")], calls_done: None };
    assert_eq!(opened[0], flaky, "afresh, not from the checkpoint");
    assert_eq!(opened.len(), 2, "the completed step stays");
    assert_eq!(bench.host.executed().iter().filter(|call| *call == "fine once").count(), 1);
}

#[tokio::test]
async fn a_cancelled_run_stays_in_progress_and_goes_on_from_its_checkpoint() {
    let mut bench = Bench::new();
    let text = workflow(&[
        step("long", &[], &(write_call("x", "1") + &run_call("hang"))),
        step("after", &["long"], &run_call("last")),
    ]);
    let workflow = Workflow::parse(text).unwrap();
    let engine = bench.engine();
    let cancel = async {
        bench.host.hanging.notified().await;
        bench.options.cancellation.cancel();
    };
    let (report, ()) = tokio::join!(engine.run(&workflow, snapshot(), &RUN), cancel);
    let report = report.unwrap();
    assert_eq!(report.status, RunStatus::InProgress);
    assert_eq!(status(&report, "long"), StepStatus::Claimed);
    assert_eq!(status(&report, "after"), StepStatus::Pending);
    assert_eq!(bench.host.abandoned.lock().unwrap()[0].0, id("long"));

    // The one that goes on has no file that hangs: the same command answers now.
    bench.options = EngineOptions::default();
    let engine = bench.engine();
    let resumed = tokio::time::timeout(Duration::from_millis(300), engine.resume(&RUN)).await;
    assert!(resumed.is_err(), "it hangs in the same call");
    let last = bench.host.opened.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last, Opened { step: id("long"), epoch: 2, lineage: vec![], calls_done: Some(1) });
    assert_eq!(bench.host.executed(), ["long write x", "long hang", "long hang"]);
}

#[tokio::test]
async fn a_step_that_never_ends_is_not_begun_for_ever() {
    let mut bench = Bench::new();
    bench.options.max_epochs = 2;
    let text = workflow(&[step("long", &[], &run_call("hang")), step("after", &["long"], "")]);
    let workflow = Workflow::parse(text).unwrap();
    for _ in 0..2 {
        let engine = bench.engine();
        let run = engine.run(&workflow, snapshot(), &RUN);
        assert!(tokio::time::timeout(Duration::from_millis(100), run).await.is_err());
        tasks_are_gone().await;
    }
    let report = bench.engine().run(&workflow, snapshot(), &RUN).await.unwrap();
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.step("long").unwrap().failure.as_ref().unwrap().message.contains("begun 2 times"));
    assert_eq!(status(&report, "after"), StepStatus::Blocked);
}

#[tokio::test]
async fn two_engines_never_work_on_one_run() {
    let mut bench = Bench::new();
    let text = workflow(&[step("long", &[], &run_call("hang"))]);
    let workflow = Workflow::parse(text).unwrap();
    let runs = tempfile::tempdir().unwrap();
    let store = Arc::new(FileRunStore::new(runs.path()).with_lock_wait(Duration::ZERO));
    let engine = |options: &EngineOptions| {
        Engine::new(Arc::new(bench.host.clone()), store.clone(), Arc::new(NoObserver), options.clone())
    };
    let first = engine(&bench.options);
    let second = async {
        bench.host.hanging.notified().await;
        let second = engine(&EngineOptions::default());
        for refused in [second.run(&workflow, snapshot(), &RUN).await, second.resume(&RUN).await] {
            assert_eq!(refused.unwrap_err().kind(), MeshErrorKind::Busy);
        }
        let seen = second.report(&RUN).await.unwrap();
        assert_eq!(status(&seen, "long"), StepStatus::Claimed, "looking is allowed");
        bench.options.cancellation.cancel();
    };
    let (report, ()) = tokio::join!(first.run(&workflow, snapshot(), &RUN), second);
    assert_eq!(report.unwrap().status, RunStatus::InProgress);
    assert_eq!(bench.host.executed(), ["long hang"]);
    bench.options = EngineOptions::default();
}

#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

impl Observer for Listener {
    fn event(&self, event: &RunEvent) {
        let line = match event {
            RunEvent::RunStarted { plan, ignored, .. } => format!("start {} {ignored:?}", plan.len()),
            RunEvent::StepClaimed { step, epoch, .. } => format!("claim {step} {epoch}"),
            RunEvent::CallStarted { call, .. } => format!("call {call}"),
            RunEvent::CallEnded { record, .. } => format!("answer {} {:?}", record.call, record.exit_code),
            RunEvent::StepEnded { step, status, blocked, .. } => {
                format!("end {step} {status:?} {}", blocked.len())
            }
            RunEvent::RunEnded { status, .. } => format!("over {status:?}"),
            other => panic!("{other:?}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn the_events_tell_the_run_in_order() {
    let bench = Bench::new();
    let text = workflow(&[
        step("a", &[], &(run_call("false") + "timeout = 5\n")),
        step("b", &["a"], &(run_call("false") + "expect = { exit_code = 0 }\n")),
        step("c", &["b"], ""),
    ]);
    let listener = Arc::new(Listener::default());
    let workflow = Workflow::parse(text).unwrap();
    let report = bench.engine_with(listener.clone()).run(&workflow, snapshot(), &RUN).await.unwrap();
    assert_eq!(report.ignored, ["step.a.call.call-1.timeout"]);
    assert_eq!(
        *listener.0.lock().unwrap(),
        [
            "start 3 [\"step.a.call.call-1.timeout\"]",
            "claim a 1",
            "call call-1",
            "answer call-1 Some(1)",
            "end a Completed 0",
            "claim b 1",
            "call call-1",
            "answer call-1 Some(1)",
            "end b Failed 1",
            "over Failed",
        ]
    );
}

#[tokio::test]
async fn a_checkpoint_keeps_only_the_answers_that_are_still_named() {
    let bench = Bench::new();
    let calls = write_call("a", "1")
        + &write_call("b", "2")
        + "[[step.call]]\nid = 'c'\ntool = 'workspace_write'\npath = 'c'\ncontent = '${a.path}'\n"
        + &write_call("d", "4")
        + "[step.output]\nx = '${b.size}'\n";
    bench.run(&workflow(&[step("s", &[], &calls)])).await.unwrap();
    let kept: Vec<Vec<String>> = bench
        .store
        .history()
        .iter()
        .filter_map(|state| state.steps[&id("s")].checkpoint.clone())
        .map(|checkpoint| checkpoint.answers.iter().map(|answer| answer.call.to_string()).collect())
        .collect();
    assert_eq!(kept, [vec!["a"], vec!["a", "b"], vec!["b"], vec!["b"]]);
    let last = bench.store.state(&RUN).unwrap();
    assert!(last.steps[&id("s")].checkpoint.is_none());
}
