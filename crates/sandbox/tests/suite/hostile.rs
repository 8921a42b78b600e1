//! Trees and races that a command makes against the tools that run beside and after it.

use std::time::Duration;

use coldframe_core::{ListParams, SearchParams, ToolStatus};
use coldframe_sandbox::Strategy;

use crate::bench::{Bench, both, changes, file, policy, python, read, shell, text, words, write};

both!(
    a_folder_that_becomes_a_link_to_the_host_shows_nothing_of_it,
    three_thousand_nested_folders_are_exported_listed_and_removed,
    a_tree_deeper_than_any_stack_is_left_out_counted_and_removed,
    a_pipe_does_not_block_any_tool,
);

async fn a_folder_that_becomes_a_link_to_the_host_shows_nothing_of_it(strategy: Strategy) {
    let policy = policy(strategy).with_timeout(Duration::from_secs(20));
    let bench =
        Bench::with_policy(policy, [("real/passwd", file("inside\n")), ("real/sub/x", file("inside\n"))])
            .await;
    let workspace = bench.open().await;
    let outside = bench.folder.path().join("outside");
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    for name in ["passwd", "sub/x", "only-outside"] {
        std::fs::write(outside.join(name), "root: stolen and longer\n").unwrap();
    }
    let swap = format!(
        "cp -r real d; ln -s {} evil; touch started; \
         while ! test -e stop; do mv d kept; mv evil d; mv d evil; mv kept d; done",
        outside.display()
    );
    let command = {
        let workspace = workspace.clone();
        tokio::spawn(async move { workspace.run(words(&["sh", "-c", &swap])).await })
    };
    while read(&workspace, "started").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut seen, until) = (0, std::time::Instant::now() + Duration::from_millis(1500));
    while std::time::Instant::now() < until {
        if let Ok(page) = read(&workspace, "d/passwd").await {
            assert_eq!(page.content, "inside\n");
            seen += 1;
        }
        for path in [".", "d"] {
            let params = ListParams { path: path.to_owned(), recursive: true, limit: 500 };
            let Ok(page) = workspace.list(params).await else { continue };
            for entry in page.entries {
                assert!(!entry.path.contains("only-outside"), "{entry:?}");
                assert!(entry.size.is_none_or(|size| size <= 7), "{entry:?}");
            }
        }
        let params = SearchParams {
            query: "stolen".to_owned(),
            path: ".".to_owned(),
            glob: "*".to_owned(),
            regex: false,
            limit: 10,
        };
        assert!(workspace.search(params).await.unwrap().matches.is_empty());
    }
    assert!(seen > 0);
    command.abort();
    let _ = command.await;
    assert_eq!(std::fs::read_to_string(outside.join("passwd")).unwrap(), "root: stolen and longer\n");
    shell(&workspace, &format!("rm -rf d evil kept; ln -s {} d", outside.display())).await;
    assert_eq!(write(&workspace, "d/passwd", "x").await.unwrap_err().status, ToolStatus::Refused);
}

async fn three_thousand_nested_folders_are_exported_listed_and_removed(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    let code = "import os\nfor n in range(3000):\n    os.mkdir('d'); os.chdir('d')\n    \
                if n in (1000, 2500): open('mark', 'w').write('x')\n";
    python(&workspace, code).await;
    let delta = workspace.export().await.unwrap();
    // The deepest legal path has 4,096 bytes; what lies deeper is left out and counted.
    assert_eq!(changes(&delta), [format!("+{}mark", "d/".repeat(1001))]);
    assert_eq!(
        delta.excluded().iter().map(|excluded| (excluded.rule.as_str(), excluded.count)).collect::<Vec<_>>(),
        [("illegal name", 2)]
    );
    let page =
        workspace.list(ListParams { path: ".".to_owned(), recursive: true, limit: 5000 }).await.unwrap();
    assert_eq!((page.total, page.truncated), (3003, false));
    let again = bench.open_with(&delta).await;
    assert_eq!(text(&again, &format!("{}mark", "d/".repeat(1001))).await, "x");
    assert_eq!(again.export().await.unwrap().changes(), delta.changes());
    again.close().await.unwrap();
    workspace.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

async fn a_tree_deeper_than_any_stack_is_left_out_counted_and_removed(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("a"))]).await;
    let workspace = bench.open().await;
    let code = "import os\nos.mkdir('target'); os.chdir('target')\nfor n in range(20000):\n    os.mkdir('d'); os.chdir('d')\n\
                open('f', 'w').close(); os.chmod('.', 0)";
    python(&workspace, code).await;
    let delta = workspace.export().await.unwrap();
    assert!(delta.is_empty());
    assert_eq!(delta.excluded()[0].count, 1);
    workspace.close().await.unwrap();
    assert!(bench.work_folders().is_empty());
}

async fn a_pipe_does_not_block_any_tool(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file("needle\n"))]).await;
    let workspace = bench.open().await;
    shell(&workspace, "mkfifo pipe; mkdir d; mkfifo d/pipe").await;
    let all = async {
        assert_eq!(read(&workspace, "pipe").await.unwrap_err().status, ToolStatus::Invalid);
        assert_eq!(write(&workspace, "pipe", "x").await.unwrap_err().status, ToolStatus::Refused);
        assert_eq!(crate::bench::list(&workspace).await.len(), 4);
        assert!(workspace.export().await.unwrap().is_empty());
        workspace.close().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
}
