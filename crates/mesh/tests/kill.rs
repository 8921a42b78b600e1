//! A process that works on a run is killed with `kill -9` at every point that a host or a listener sees.

mod double;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coldframe_core::Digest;
use coldframe_mesh::{Engine, EngineOptions, FileRunStore, Observer, RunEvent, RunStatus, Workflow};
use double::{Host, RUN, Tick, WORKFLOW};

const FOLDER: &str = "COLDFRAME_TEST_KILL_FOLDER";
const POINT: &str = "COLDFRAME_TEST_KILL_POINT";
const NAME: &str = "a_run_goes_on_after_a_kill_at_any_point";

struct Ticking(Tick);

impl Observer for Ticking {
    fn event(&self, _: &RunEvent) {
        (self.0)();
    }
}

/// Works on the run in `folder` until the end, or until the point at which the process kills itself.
fn work(folder: &Path) {
    let point: usize = std::env::var(POINT).unwrap().parse().unwrap();
    let passed = AtomicUsize::new(0);
    let tick: Tick = Arc::new(move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == point {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    });
    let host = Host { tick: tick.clone(), ..Host::new(folder) };
    let store = Arc::new(FileRunStore::new(folder.join("runs")));
    let engine = Engine::new(Arc::new(host), store, Arc::new(Ticking(tick)), EngineOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workflow = Workflow::parse(WORKFLOW).unwrap();
    let report = runtime.block_on(engine.run(&workflow, Digest::of(b"s"), &RUN)).unwrap();
    assert_eq!(report.status, RunStatus::Completed);
    let outputs: Vec<_> = report.steps.iter().map(|step| (&step.output, step.delta)).collect();
    std::fs::write(folder.join("outputs"), serde_json::to_string(&outputs).unwrap()).unwrap();
}

/// Runs this test in a process of its own, in which it does [`work`].
fn process(folder: &Path, point: usize) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--test-threads=1"])
        .env(FOLDER, folder)
        .env(POINT, point.to_string())
        .stdout(Stdio::null())
        .status()
        .unwrap()
}

#[test]
fn a_run_goes_on_after_a_kill_at_any_point() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(Path::new(&folder));
    }
    let whole = tempfile::tempdir().unwrap();
    assert!(process(whole.path(), 0).success());
    let read = |folder: &Path| std::fs::read_to_string(folder.join("outputs")).unwrap();
    let expected = read(whole.path());
    let calls: BTreeSet<String> = Host::new(whole.path()).executed().into_iter().collect();
    let mut point = 1;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let killed = process(folder.path(), point);
        if killed.signal() != Some(9) {
            assert!(killed.success(), "point {point}");
            break;
        }
        assert!(process(folder.path(), 0).success(), "resume after a kill at point {point}");
        assert_eq!(read(folder.path()), expected, "point {point}");
        let executed = Host::new(folder.path()).executed();
        assert_eq!(executed.iter().cloned().collect::<BTreeSet<_>>(), calls, "point {point}");
        // An effect in flight in each arm, or in the first step one and the read before it.
        assert!(executed.len() <= calls.len() + 2, "point {point}: {executed:?}");
        point += 1;
    }
    assert!(point > 40, "there are {point} points only");
}
