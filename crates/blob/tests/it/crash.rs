//! A process that is killed at any moment leaves a store that is whole.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use coldframe_blob::Store;

use crate::support::{Tree, capture, files_below, run, staged};

const FOLDER: &str = "COLDFRAME_BLOB_TEST_CRASH_FOLDER";

/// Run by the other test as a process of its own, it captures until it is killed; run alone, it captures twice.
#[test]
fn captures_one_after_another() {
    let own = tempfile::tempdir().unwrap();
    let folder = std::env::var_os(FOLDER);
    let rounds = if folder.is_some() { u64::MAX } else { 2 };
    let root = folder.map_or_else(|| own.path().to_owned(), Into::into);
    run(async {
        let store = Store::open_local(&root).await.unwrap();
        for round in 0..rounds {
            let seed = (round + u64::from(std::process::id())) % 50;
            let snapshot = capture(&store, &Tree::sample(seed)).await.unwrap();
            store.verify_snapshot(&snapshot).await.unwrap();
        }
    });
    assert!(staged(&root).is_empty());
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_store() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::captures_one_after_another"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        std::thread::sleep(Duration::from_micros(u64::from(5_000 + nanos % 60_000 + round * 2_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        run(async {
            let store = Store::open_local(folder.path()).await.unwrap();
            let mut left = files_below(&folder.path().join("staging"));
            // A child that was killed before it made the store leaves that to this process, which stages a file then.
            let own = format!("/{:x}-", std::process::id());
            left.retain(|file| !file.to_str().unwrap().contains(&own));
            assert!(left.is_empty(), "the dead process's files are swept, not {left:?}");
            for id in store.snapshots().await.unwrap() {
                let snapshot = store.load_snapshot(&id).await.unwrap();
                store.verify_snapshot(&snapshot).await.unwrap();
            }
            let snapshot = capture(&store, &Tree::sample(u64::from(round))).await.unwrap();
            store.verify_snapshot(&snapshot).await.unwrap();
        });
    }
    let count =
        run(async { Store::open_local(folder.path()).await.unwrap().snapshots().await.unwrap().len() });
    assert!(count >= 20);
}
