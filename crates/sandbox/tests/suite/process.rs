//! How commands end, and that nothing of them is left.

use std::future::Future;
use std::time::{Duration, Instant};

use coldframe_core::RunParams;
use coldframe_sandbox::{SandboxWorkspace, Strategy};

use crate::bench::{Bench, both, file, policy, python, run, shell, text, words};

both!(
    a_child_that_keeps_the_pipe_open_ends_with_its_command,
    what_ignores_polite_signals_ends_at_the_time_out_with_the_output_so_far,
    standard_input_is_empty_and_there_is_no_terminal,
    exit_codes_and_signals_are_told_apart,
    descendants_change_nothing_after_the_command_has_ended,
    dropping_the_future_of_a_command_ends_it,
    a_command_whose_caller_is_gone_before_its_turn_never_starts,
    commands_run_in_call_order_and_reads_do_not_wait,
    a_fork_bomb_ends_at_the_time_out,
    closing_its_own_streams_does_not_end_a_command,
);

/// Whether a process with this marker in its command line lives on the host.
pub(crate) fn lives(marker: &str) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let own = process.file_name().to_str() == Some(&std::process::id().to_string());
        !own && String::from_utf8_lossy(&line).contains(marker)
    })
}

/// A text that no other test has.
pub(crate) fn marker(name: &str, strategy: Strategy) -> String {
    format!("mark-{name}-{strategy}-{}", std::process::id())
}

pub(crate) async fn wait_until_lives(marker: &str) {
    let started = Instant::now();
    while !lives(marker) {
        assert!(started.elapsed() < Duration::from_secs(20), "{marker} never started");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn bench(strategy: Strategy, timeout: Duration) -> (Bench, SandboxWorkspace) {
    let bench = Bench::with_policy(policy(strategy).with_timeout(timeout), [("a.txt", file("a\n"))]).await;
    let workspace = bench.open().await;
    (bench, workspace)
}

async fn a_child_that_keeps_the_pipe_open_ends_with_its_command(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    let mark = marker("pipe", strategy);
    let started = Instant::now();
    let script = "sh -c 'sleep 60' \"$0\" & setsid sh -c 'sleep 60; :' \"$0\" & echo started";
    let observed = run(&workspace, &["sh", "-c", script, &mark]).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(
        (observed.exit_code, observed.timed_out, observed.stdout.text.as_str()),
        (Some(0), false, "started\n")
    );
    assert!(!lives(&mark));
}

async fn what_ignores_polite_signals_ends_at_the_time_out_with_the_output_so_far(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_millis(700)).await;
    let mark = marker("ignore", strategy);
    let started = Instant::now();
    let script = "trap '' TERM HUP INT QUIT; setsid sh -c \"trap '' TERM HUP; while :; do sleep 1; done\" \"$0\" & \
                  echo both; echo err >&2; while :; do sleep 1; done";
    let observed = run(&workspace, &["sh", "-c", script, &mark]).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(observed.timed_out && observed.exit_code.is_none() && observed.timeout_ms == 700);
    assert_eq!((observed.stdout.text.as_str(), observed.stderr.text.as_str()), ("both\n", "err\n"));
    assert!(!lives(&mark));
    assert_eq!(run(&workspace, &["true"]).await.exit_code, Some(0), "the workspace goes on");
}

async fn standard_input_is_empty_and_there_is_no_terminal(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(10)).await;
    let script = "cat | wc -c; test -t 0 || test -t 1 || test -t 2 || echo no tty; (: > /dev/tty) 2>/dev/null || echo none";
    assert_eq!(shell(&workspace, script).await, "0\nno tty\nnone\n");
}

async fn exit_codes_and_signals_are_told_apart(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    for code in [0, 1, 2, 124, 125, 126, 127, 128, 130, 137, 143, 254, 255] {
        let observed = run(&workspace, &["sh", "-c", &format!("echo before; exit {code}")]).await;
        assert_eq!((observed.exit_code, observed.signal, observed.timed_out), (Some(code), None, false));
        assert_eq!(observed.stdout.text, "before\n");
    }
    for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15] {
        let observed = run(&workspace, &["sh", "-c", &format!("echo before; kill -{signal} $$")]).await;
        assert_eq!((observed.exit_code, observed.signal, observed.timed_out), (None, Some(signal), false));
        assert_eq!(observed.stdout.text, "before\n");
    }
}

async fn descendants_change_nothing_after_the_command_has_ended(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    let script =
        "setsid sh -c 'while :; do echo late >> late.txt; done' >/dev/null 2>&1 & sleep 0.1; echo done";
    shell(&workspace, script).await;
    let one = text(&workspace, "late.txt").await.len();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(text(&workspace, "late.txt").await.len(), one);
}

async fn dropping_the_future_of_a_command_ends_it(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(50)).await;
    let mark = marker("drop", strategy);
    let command = workspace.run(words(&["sh", "-c", "setsid sleep 60 & echo; sleep 60", &mark]));
    let observed = tokio::select! {
        observed = command => Some(observed),
        () = wait_until_lives(&mark) => None,
    };
    assert!(observed.is_none());
    let started = Instant::now();
    assert_eq!(run(&workspace, &["true"]).await.exit_code, Some(0), "the next effect waits for the end");
    assert!(!lives(&mark));
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// Polls a call once, so that the order of the calls is the order of their turns.
fn begun<'a, T>(call: impl Future<Output = T> + 'a) -> std::pin::Pin<Box<dyn Future<Output = T> + 'a>> {
    let mut call = Box::pin(call);
    assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
    call
}

async fn a_command_whose_caller_is_gone_before_its_turn_never_starts(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    let first = begun(workspace.run(words(&["sleep", "0.3"])));
    drop(begun(workspace.run(words(&["touch", "ran"]))));
    let third = begun(workspace.run(words(&["touch", "third"])));
    assert_eq!(first.await.unwrap().exit_code, Some(0));
    assert_eq!(third.await.unwrap().exit_code, Some(0));
    assert_eq!(shell(&workspace, "ls").await, "a.txt\nthird\n");
}

async fn commands_run_in_call_order_and_reads_do_not_wait(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    let scripts =
        (0..10).map(|index| format!("n=$(cat log 2>/dev/null | wc -l); sleep 0.05; echo {index} $n >> log"));
    let mut calls: Vec<_> =
        scripts.map(|script| begun(workspace.run(words(&["sh", "-c", &script])))).collect();
    assert_eq!(text(&workspace, "a.txt").await, "a\n");
    let last = calls.last_mut().unwrap();
    assert!(futures_util::FutureExt::now_or_never(last).is_none(), "the read waited for every command");
    for call in calls {
        assert_eq!(call.await.unwrap().exit_code, Some(0));
    }
    let expected: String = (0..10).map(|index| format!("{index} {index}\n")).collect();
    assert_eq!(text(&workspace, "log").await, expected);
}

async fn a_fork_bomb_ends_at_the_time_out(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_millis(300)).await;
    let mark = marker("bomb", strategy);
    // Bounded by its depth, so that the machine of the tests stays usable.
    let code = "import os, time, sys\nfor _ in range(6):\n    os.fork()\n    os.setsid() if os.getpid() % 2 else None\n\
                while True: time.sleep(1)";
    let started = Instant::now();
    let observed = run(&workspace, &["python3", "-c", code, &mark]).await;
    assert!(observed.timed_out && started.elapsed() < Duration::from_secs(20));
    assert!(!lives(&mark));
}

async fn closing_its_own_streams_does_not_end_a_command(strategy: Strategy) {
    let (_bench, workspace) = bench(strategy, Duration::from_secs(20)).await;
    let observed = run(&workspace, &["sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 7"]).await;
    assert_eq!((observed.exit_code, observed.stdout.bytes), (Some(7), 0));
    let elsewhere = RunParams { cwd: "./".to_owned(), ..words(&["sh", "-c", "exit 3"]) };
    assert_eq!(workspace.run(elsewhere).await.unwrap().exit_code, Some(3));
    assert_eq!(python(&workspace, "import sys; print(sys.stdin.read() == '')").await, "True\n");
}
