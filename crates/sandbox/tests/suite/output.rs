//! What commands print: bounds, bytes that are no text, what is kept.

use std::time::Duration;

use coldframe_sandbox::Strategy;

use crate::bench::{Bench, alone, both, file, policy, python, run};

both!(
    bytes_that_are_no_text_are_marked_and_counted,
    head_and_tail_are_shown_and_the_whole_is_stored_up_to_the_bound,
    both_streams_are_kept_apart,
    a_full_cache_folder_is_typed_and_kills_nothing_else,
);

async fn bytes_that_are_no_text_are_marked_and_counted(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let code = "import sys\nsys.stdout.buffer.write(b'ok \\xff\\xfe end\\n' + '\\u00e9'.encode() * 500000 + b'\\xf0\\x9f')\n\
                sys.stderr.buffer.write(b'\\xc3')\nsys.exit(3)";
    let observed = run(&workspace, &["python3", "-c", code]).await;
    assert_eq!(observed.exit_code, Some(3));
    let expected =
        [b"ok \xff\xfe end\n".as_slice(), "\u{e9}".repeat(500_000).as_bytes(), b"\xf0\x9f"].concat();
    assert_eq!(observed.stdout.bytes, expected.len() as u64);
    assert_eq!(bench.blob(observed.stdout.blob), expected);
    assert!(observed.stdout.text.starts_with("ok \\xff\\xfe end\n\u{e9}") && observed.stdout.truncated);
    assert!(observed.stdout.text.ends_with("\u{e9}\\xf0\\x9f") && !observed.stdout.utf8);
    assert!(!observed.stdout.text.contains('\u{fffd}'));
    assert_eq!(
        (observed.stderr.text.as_str(), observed.stderr.bytes, observed.stderr.utf8),
        ("\\xc3", 1, false)
    );
}

async fn head_and_tail_are_shown_and_the_whole_is_stored_up_to_the_bound(strategy: Strategy) {
    let policy = policy(strategy).with_max_output_bytes(300_000);
    let bench = Bench::with_policy(policy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let observed =
        run(&workspace, &["python3", "-c", "print('first'); print('x' * 1000000); print('last')"]).await;
    let stdout = &observed.stdout;
    assert_eq!((stdout.bytes, stdout.stored_bytes), (1_000_012, 300_000));
    assert!(stdout.text.starts_with("first\n") && stdout.text.ends_with("\nlast\n") && stdout.truncated);
    assert!(stdout.text.contains("bytes left out") && stdout.text.len() < 40_000);
    assert_eq!(bench.blob(stdout.blob).len(), 300_000);
    assert!(
        crate::bench::names(bench.work_folders()[0].as_path()).iter().all(|path| !path.ends_with("stdout"))
    );
}

async fn both_streams_are_kept_apart(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let code = "import sys\nfor n in range(2000):\n    print('o', n)\n    print('e', n, file=sys.stderr)";
    let observed = run(&workspace, &["python3", "-c", code]).await;
    let expected = |letter: char| (0..2000).map(|n| format!("{letter} {n}\n")).collect::<String>();
    assert_eq!(bench.blob(observed.stdout.blob), expected('o').into_bytes());
    assert_eq!(bench.blob(observed.stderr.blob), expected('e').into_bytes());
    assert_eq!(observed.isolation, "full");
}

async fn a_full_cache_folder_is_typed_and_kills_nothing_else(strategy: Strategy) {
    let test = format!("output::{strategy}::a_full_cache_folder_is_typed_and_kills_nothing_else");
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m,mode=1777 tmpfs \"$0\" && TMPDIR=\"$0\" exec \"$@\"";
    let namespaces = if crate::bench::is_root() { "-m" } else { "-Urm" };
    if !alone(&test, &["unshare", namespaces, "sh", "-c", script, folder.path().to_str().unwrap()]) {
        return;
    }
    let bench = Bench::new(strategy, [("a.txt", file("a\n")), ("dir/b.txt", file("b\n"))]).await;
    let workspace = bench.open().await;
    let written = python(
        &workspace,
        "import errno\ntry:\n    f = open('big', 'wb', buffering=0)\n    while True: f.write(b'x' * 65536)\n\
         except OSError as e: print(errno.errorcode[e.errno])",
    )
    .await;
    assert_eq!(written, "ENOSPC\n");
    let error = crate::bench::write(&workspace, "more.txt", &"y".repeat(100_000)).await.unwrap_err();
    assert_eq!(error.status, coldframe_core::ToolStatus::Failed);
    assert!(error.message.contains("no space"), "{}", error.message);
    assert_eq!(crate::bench::text(&workspace, "a.txt").await, "a\n");
    let many = "import sys\nsys.stdout.write('z' * 2000000)";
    let observed = run(&workspace, &["python3", "-c", many]).await;
    assert_eq!(
        (observed.exit_code, observed.stdout.bytes),
        (Some(0), 2_000_000),
        "the command itself is observed"
    );
    assert!(observed.stdout.stored_bytes < 2_000_000);
    let other = crate::bench::snapshot(&bench.store, [("c.bin", file(vec![7u8; 300_000]))]).await;
    let error = bench.sandbox.prepare(&other).await.unwrap_err();
    let kind = match &error {
        coldframe_core::WorkspaceError::Source(error) => error.kind(),
        other => panic!("{other}"),
    };
    assert_eq!(kind, coldframe_core::ErrorKind::NoSpace);
    assert!(
        crate::bench::names(&bench.cache().join("trees"))
            .iter()
            .all(|path| { !path.file_name().unwrap().as_encoded_bytes().starts_with(b".") })
    );
    workspace.close().await.unwrap();
    bench.sandbox.prepare(&other).await.unwrap();
    assert!(bench.work_folders().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_stays_within_memory_and_time() {
    if !alone("output::endless_output_stays_within_memory_and_time", &[]) {
        return;
    }
    let policy =
        policy(Strategy::Auto).with_timeout(Duration::from_millis(1500)).with_max_output_bytes(8 << 20);
    let bench = Bench::with_policy(policy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    run(&workspace, &["true"]).await;
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = peak();
    for line in ["b'y\\n' * 32768", "b'z' * 65536"] {
        let code = format!("import sys\nblock = {line}\nwhile True: sys.stdout.buffer.write(block)");
        let observed = run(&workspace, &["python3", "-c", &code]).await;
        assert!(observed.timed_out && observed.duration_ms < 20_000);
        assert_eq!(observed.stdout.stored_bytes, 8 << 20);
        assert!(observed.stdout.bytes > 8 << 20 && observed.stdout.truncated);
    }
    // The memory store of the test itself holds the stored bytes, once while they arrive and once at rest.
    let grown = peak() - before;
    assert!(grown < 64 << 10, "{grown} KiB");
}
