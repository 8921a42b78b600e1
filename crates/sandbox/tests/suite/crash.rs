//! A process that holds workspaces is killed: no process, no mount and no folder of it is left.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coldframe_sandbox::{Sandbox, Strategy, SweepReport};
use coldframe_testkit::MemoryStore;

use crate::bench::{Bench, both, file, names, policy, words};
use crate::process::{lives, marker, wait_until_lives};

both!(a_killed_process_leaves_no_process_no_mount_and_its_folders_are_swept);

const FOLDER: &str = "COLDFRAME_TEST_CRASH_FOLDER";

/// Holds two workspaces with a command in each until it is killed.
async fn hold(strategy: Strategy, mark: &str) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let (one, two) = (bench.open().await, bench.open().await);
    println!("cache {}", bench.cache().display());
    let script = "trap '' TERM HUP; chmod 0 .; setsid sh -c 'sleep 300; :' \"$0\" & sleep 300; :";
    let (first, second) =
        (one.run(words(&["sh", "-c", script, mark])), two.run(words(&["sh", "-c", script, mark])));
    let _ = tokio::join!(first, second);
}

async fn a_killed_process_leaves_no_process_no_mount_and_its_folders_are_swept(strategy: Strategy) {
    let test =
        format!("crash::{strategy}::a_killed_process_leaves_no_process_no_mount_and_its_folders_are_swept");
    if let Ok(mark) = std::env::var(FOLDER) {
        return hold(strategy, &mark).await;
    }
    let mark = marker("crash", strategy);
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, &mark)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let cache =
        lines.find_map(|line| line.unwrap().split_once("cache ").map(|(_, path)| path.to_owned())).unwrap();
    wait_until_lives(&mark).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let cache = std::path::PathBuf::from(cache);
    assert_eq!(names(&cache.join("work")).len(), 2);
    let open = || Sandbox::open(&cache, Arc::new(MemoryStore::new()), policy(strategy)).unwrap();
    let other = open();
    assert_eq!(names(&cache.join("work")).len(), 2, "what a live process owns stays");
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(cache.to_str().unwrap()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let started = Instant::now();
    while lives(&mark) {
        assert!(started.elapsed() < Duration::from_secs(10), "a process is left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(cache.to_str().unwrap()));
    let report = other.sweep().unwrap();
    assert_eq!(report, SweepReport { workspaces: 2, trees: 0 });
    assert!(names(&cache.join("work")).is_empty());
    open();
}
