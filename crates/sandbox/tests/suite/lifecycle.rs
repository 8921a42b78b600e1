//! Opening, dropping and sweeping: nothing is left, nobody waits for ever, nothing leaks.

use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{OpenWorkspace, WorkspaceError, WorkspaceProvider};
use coldframe_sandbox::{Isolation, Sandbox, Strategy, SweepReport};
use coldframe_testkit::MemoryStore;

use crate::bench::{Bench, alone, both, file, names, policy, run, shell, text, words, write};
use crate::process::{lives, marker, wait_until_lives};

both!(
    a_dropped_workspace_leaves_nothing,
    dropping_everything_while_a_command_runs_leaves_nothing,
    many_commands_in_one_workspace_leak_nothing,
    many_workspaces_at_once_share_nothing,
    a_sweep_leaves_what_another_process_owns_and_removes_the_rest,
    the_snapshot_is_built_once_however_many_ask,
    a_workspace_outlives_its_sandbox,
);

async fn a_dropped_workspace_leaves_nothing(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a/b", file("b"))]).await;
    let workspace = bench.open().await;
    assert_eq!((workspace.strategy(), workspace.isolation()), (strategy, Isolation::Full));
    write(&workspace, "c", "c").await.unwrap();
    shell(&workspace, "mkdir x; chmod 0 x; chmod 0 a").await;
    assert_eq!(bench.work_folders().len(), 1);
    let clone = workspace.clone();
    workspace.close().await.unwrap();
    write(&clone, "c", "still open").await.unwrap();
    drop(clone);
    assert!(bench.work_folders().is_empty());
    let boxed = bench.sandbox.open(OpenWorkspace { snapshot: &bench.snapshot, delta: None }).await.unwrap();
    assert!(boxed.export().await.unwrap().is_empty());
    boxed.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

async fn dropping_everything_while_a_command_runs_leaves_nothing(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    let mark = marker("everything", strategy);
    {
        let call = workspace.run(words(&["sh", "-c", "sleep 60; :", &mark]));
        tokio::select! {
            _ = call => panic!("the command ended by itself"),
            () = wait_until_lives(&mark) => {}
        }
    }
    drop(workspace);
    let gone = async {
        while lives(&mark) || !bench.work_folders().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
}

async fn many_commands_in_one_workspace_leak_nothing(strategy: Strategy) {
    // A process of its own, since other tests open descriptors as well.
    if !alone(&format!("lifecycle::{strategy}::many_commands_in_one_workspace_leak_nothing"), &[]) {
        return;
    }
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    run(&workspace, &["true"]).await;
    let descriptors = || names("/proc/self/fd".as_ref()).len();
    let children = || {
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()))
            .unwrap_or_default()
    };
    let before = descriptors();
    for round in 0..1000 {
        let observed = run(&workspace, &["true"]).await;
        assert_eq!(observed.exit_code, Some(0), "{round}");
    }
    assert_eq!((descriptors(), children().as_str()), (before, ""));
    for _ in 0..50 {
        let other = bench.open().await;
        run(&other, &["true"]).await;
        other.export().await.unwrap();
        other.close().await.unwrap();
    }
    assert_eq!((descriptors(), children().as_str()), (before, ""));
}

async fn many_workspaces_at_once_share_nothing(strategy: Strategy) {
    let bench = Arc::new(Bench::new(strategy, [("a", file("a")), ("d/x", file("x"))]).await);
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                let workspace = bench.open().await;
                write(&workspace, "a", &format!("mine {index}")).await.unwrap();
                shell(&workspace, &format!("echo {index} > /tmp/own; echo {index} > d/own; rm d/x")).await;
                tokio::task::yield_now().await;
                assert_eq!(text(&workspace, "a").await, format!("mine {index}"));
                assert_eq!(shell(&workspace, "cat /tmp/own d/own").await, format!("{index}\n{index}\n"));
                assert_eq!(workspace.export().await.unwrap().changes().len(), 3);
                workspace
            })
        })
        .collect();
    let mut workspaces = Vec::new();
    for task in tasks {
        workspaces.push(task.await.unwrap());
    }
    assert_eq!(bench.work_folders().len(), 40);
    assert_eq!(text(&bench.open().await, "d/x").await, "x");
    drop(workspaces);
    assert!(bench.work_folders().is_empty());
}

async fn a_sweep_leaves_what_another_process_owns_and_removes_the_rest(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    let left = bench.cache().join("work/.1-dead-0");
    std::fs::create_dir_all(left.join("upper/deep/er")).unwrap();
    std::fs::write(left.join("lock"), "").unwrap();
    std::fs::create_dir_all(bench.cache().join("trees/.1-dead-1/tree")).unwrap();
    let again = Sandbox::open(&bench.cache(), Arc::new(MemoryStore::new()), policy(strategy)).unwrap();
    assert!(!left.exists());
    assert_eq!(names(&bench.cache().join("trees")).len(), 1);
    assert_eq!(again.sweep().unwrap(), SweepReport::default());
    std::fs::create_dir_all(left.join("upper")).unwrap();
    assert_eq!(again.sweep().unwrap(), SweepReport { workspaces: 1, trees: 0 });
    assert_eq!(text(&workspace, "a").await, "a");
    assert_eq!(bench.work_folders().len(), 1);
    // A base tree of an earlier boot may have lost content with the power; it is built again.
    std::fs::write(bench.cache().join("boot"), "another boot\n").unwrap();
    let fresh = Sandbox::open(&bench.cache(), Arc::new(bench.store.clone()), policy(strategy)).unwrap();
    assert!(names(&bench.cache().join("trees")).is_empty());
    let request = OpenWorkspace { snapshot: &bench.snapshot, delta: None };
    assert_eq!(text(&fresh.open_workspace(request).await.unwrap(), "a").await, "a");
}

async fn the_snapshot_is_built_once_however_many_ask(strategy: Strategy) {
    let items = (0..200).map(|index| (format!("d{}/f{index}", index % 7), file(format!("content {index}"))));
    let bench = Arc::new(Bench::new(strategy, items).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.open().await.export().await.unwrap().is_empty() })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(
        names(&bench.cache().join("trees")),
        [bench.cache().join("trees").join(bench.snapshot.tree().to_string())]
    );
    // Without any blob the tree that is there still opens.
    let empty = Sandbox::open(&bench.cache(), Arc::new(MemoryStore::new()), policy(strategy)).unwrap();
    let request = OpenWorkspace { snapshot: &bench.snapshot, delta: None };
    assert_eq!(text(&empty.open_workspace(request).await.unwrap(), "d0/f0").await, "content 0");
}

async fn a_workspace_outlives_its_sandbox(strategy: Strategy) {
    let Bench { folder, store, snapshot, sandbox } = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = sandbox.open_workspace(OpenWorkspace { snapshot: &snapshot, delta: None }).await.unwrap();
    drop((sandbox, store));
    assert_eq!(shell(&workspace, "cat a").await, "a");
    workspace.close().await.unwrap();
    assert!(names(&folder.path().join("cache/work")).is_empty());
}

#[test]
fn a_workspace_works_and_drops_on_a_runtime_of_one_thread_and_outside_of_any() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (bench, workspace) = runtime.block_on(async {
        let bench = Bench::new(Strategy::Auto, [("a", file("a"))]).await;
        let workspace = bench.open().await;
        write(&workspace, "b", "b").await.unwrap();
        assert_eq!(shell(&workspace, "cat a b").await, "ab");
        assert_eq!(workspace.export().await.unwrap().changes().len(), 1);
        (bench, workspace)
    });
    drop(runtime);
    drop(workspace);
    assert!(bench.work_folders().is_empty());
}

/// A program that is being started holds copies of every descriptor for a moment, those of a half-built root too.
#[test]
fn sandboxes_open_while_other_threads_start_programs() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Naming a user makes the standard library fork, instead of sharing memory with the child.
                    let mut command = std::process::Command::new("true");
                    std::os::unix::process::CommandExt::uid(&mut command, rustix::process::getuid().as_raw());
                    assert!(command.status().unwrap().success());
                }
            });
        }
        let opened = runtime.block_on(async {
            let bench = Bench::new(Strategy::Auto, [("a", file("a"))]).await;
            let request = OpenWorkspace { snapshot: &bench.snapshot, delta: None };
            for _ in 0..400 {
                // Each policy has a root of its own.
                bench.sandbox.with_policy(policy(Strategy::Auto))?.open_workspace(request).await?;
            }
            Ok::<(), WorkspaceError>(())
        });
        done.store(true, Ordering::Relaxed);
        opened.unwrap();
    });
}

#[test]
fn a_runtime_that_ends_while_a_command_runs_takes_it_along() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mark = marker("runtime", Strategy::Auto);
    let bench = runtime.block_on(async {
        let bench = Bench::new(Strategy::Auto, [("a", file("a"))]).await;
        let workspace = bench.open().await;
        let command = words(&["sh", "-c", "sleep 60; :", &mark]);
        tokio::spawn(async move { workspace.run(command).await });
        wait_until_lives(&mark).await;
        bench
    });
    let started = std::time::Instant::now();
    drop(runtime);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!lives(&mark) && bench.work_folders().is_empty());
}

#[tokio::test]
async fn a_cache_folder_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let open =
        |path: &std::path::Path| Sandbox::open(path, Arc::new(MemoryStore::new()), policy(Strategy::Auto));
    let cache = folder.path().join("deep/er/cache");
    open(&cache).unwrap();
    assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(open(&cache), Err(WorkspaceError::System { .. })));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(open(&file), Err(WorkspaceError::System { .. })));
}
