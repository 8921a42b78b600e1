//! `workspace_search`: hostile patterns, hidden files, what was not searched.

use std::time::{Duration, Instant};

use coldframe_core::{SearchPage, SearchParams, ToolError, ToolStatus};
use coldframe_sandbox::{SandboxWorkspace, Strategy};

use crate::bench::{Bench, both, file, link, shell};

both!(
    hostile_patterns_end_in_time_and_option_like_text_is_text,
    a_pattern_that_spans_lines_costs_no_more_than_the_file,
    ignored_and_hidden_files_are_searched,
    what_is_not_searched_is_counted,
    a_glob_never_leaves_the_workspace,
    matches_are_sorted_cut_and_say_so,
);

async fn search(
    workspace: &SandboxWorkspace,
    query: &str,
    regex: bool,
    glob: &str,
) -> Result<SearchPage, ToolError> {
    let (path, query, glob) = (".".to_owned(), query.to_owned(), glob.to_owned());
    workspace.search(SearchParams { query, path, glob, regex, limit: 100 }).await
}

fn found(page: &SearchPage) -> Vec<(&str, u64)> {
    page.matches.iter().map(|found| (found.path.as_str(), found.line)).collect()
}

async fn hostile_patterns_end_in_time_and_option_like_text_is_text(strategy: Strategy) {
    let items = [
        ("text.txt", file(format!("{}!\nplain line\n", "a".repeat(50_000)))),
        ("more.txt", file(format!("{}\n", "ab".repeat(30_000)))),
        ("options.txt", file("grep -e --files\n")),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let deep = format!("(?i){}a{}", "(".repeat(200), ")".repeat(200));
    let long = "a".repeat(200_000);
    let invalid = ["[", "(?P<x", "\\", "*", "(x{1000}){1000}", "(?:a{0,1000}){0,1000}", &deep, &long];
    for pattern in ["(a+)+$", "(a|aa)+$", "(a*)*b", "", "^"].into_iter().chain(invalid) {
        let started = Instant::now();
        let answer = search(&workspace, pattern, true, "*").await;
        assert!(started.elapsed() < Duration::from_secs(15), "{pattern:.40}");
        if invalid.contains(&pattern) {
            assert_eq!(answer.unwrap_err().status, ToolStatus::Invalid, "{pattern:.40}");
        } else {
            answer.unwrap();
        }
    }
    for text in ["-e", "--files"] {
        assert_eq!(found(&search(&workspace, text, false, "*").await.unwrap()), [("options.txt", 1)]);
    }
    assert_eq!(found(&search(&workspace, "(a*)*b", true, "*").await.unwrap()), [("more.txt", 1)]);
}

async fn a_pattern_that_spans_lines_costs_no_more_than_the_file(strategy: Strategy) {
    let content = "a\n".repeat(400_000) + "b\n";
    let bench = Bench::new(strategy, [("lines.txt", file(content))]).await;
    let workspace = bench.open().await;
    let started = Instant::now();
    let page = search(&workspace, "(?s)a.*b", true, "*").await.unwrap();
    assert!(page.matches.is_empty() && !page.truncated, "no single line matches");
    assert!(started.elapsed() < Duration::from_secs(25));
    let either = search(&workspace, "(?s)a.*c|b", true, "*").await.unwrap();
    assert!(either.truncated || found(&either) == [("lines.txt", 400_001)]);
    assert!(started.elapsed() < Duration::from_secs(50));
}

async fn ignored_and_hidden_files_are_searched(strategy: Strategy) {
    let items = [
        (".gitignore", file("*.log\nsecret/\n")),
        (".ignore", file("main.rs\n")),
        ("app.log", file("needle\n")),
        (".hidden/config", file("needle\n")),
        ("secret/x.txt", file("needle\n")),
        ("src/.env", file("needle\n")),
        ("main.rs", file("needle\n")),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    let page = search(&workspace, "needle", false, "*").await.unwrap();
    let paths: Vec<&str> = found(&page).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [".hidden/config", "app.log", "main.rs", "secret/x.txt", "src/.env"]);
    assert!(page.skipped.is_empty());
}

async fn what_is_not_searched_is_counted(strategy: Strategy) {
    let items = [
        ("binary", file(b"needle\0".as_slice())),
        ("link", link("text")),
        ("text", file("needle\n")),
        ("bad.txt", file(b"\xff needle\n".as_slice())),
    ];
    let bench = Bench::new(strategy, items).await;
    let workspace = bench.open().await;
    shell(&workspace, "mkfifo pipe; truncate -s 20M large; chmod 0 text").await;
    let page = search(&workspace, "needle", false, "*").await.unwrap();
    let skipped: Vec<(&str, u64)> =
        page.skipped.iter().map(|skipped| (skipped.reason.as_str(), skipped.count)).collect();
    let mut expected = vec![("binary", 1), ("special", 1), ("symlink", 1), ("too_large", 1)];
    if !crate::bench::is_root() {
        expected.push(("unreadable", 1));
    }
    assert_eq!(skipped, expected);
    assert_eq!(page.matches[0].path, "bad.txt");
    assert!(page.matches[0].text.contains("\\xff needle"));
}

async fn a_glob_never_leaves_the_workspace(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a/x.rs", file("needle\n")), ("b.rs", file("needle\n"))]).await;
    let workspace = bench.open().await;
    std::fs::write(bench.folder.path().join("secret"), "needle\n").unwrap();
    for glob in ["../*", "/etc/*", "**/../../*"] {
        let page = search(&workspace, "needle", false, glob).await.unwrap();
        assert_eq!((page.matches.len(), page.files), (0, 0), "{glob}");
    }
    assert_eq!(
        found(&search(&workspace, "needle", false, "*.rs").await.unwrap()),
        [("a/x.rs", 1), ("b.rs", 1)]
    );
    assert_eq!(found(&search(&workspace, "needle", false, "a/*.rs").await.unwrap()), [("a/x.rs", 1)]);
    let params = |path: &str| SearchParams {
        query: "needle".to_owned(),
        path: path.to_owned(),
        glob: "*".to_owned(),
        regex: false,
        limit: 5,
    };
    for (path, status) in
        [("..", ToolStatus::Refused), ("/etc", ToolStatus::Refused), ("no", ToolStatus::NotFound)]
    {
        assert_eq!(workspace.search(params(path)).await.unwrap_err().status, status, "{path}");
    }
    assert_eq!(found(&workspace.search(params("a/x.rs")).await.unwrap()), [("a/x.rs", 1)]);
}

async fn matches_are_sorted_cut_and_say_so(strategy: Strategy) {
    let items = [("a-b", "x\nx\n"), ("a/c", "x\n"), ("a.d", "x\n"), ("cr.txt", "x\ry\rx")];
    let bench = Bench::new(strategy, items.map(|(name, content)| (name, file(content)))).await;
    let workspace = bench.open().await;
    let page = search(&workspace, "x", false, "*").await.unwrap();
    let expected = [("a-b", 1), ("a-b", 2), ("a.d", 1), ("a/c", 1), ("cr.txt", 1), ("cr.txt", 3)];
    assert_eq!(found(&page), expected);
    let params = SearchParams {
        query: "x".to_owned(),
        path: ".".to_owned(),
        glob: "*".to_owned(),
        regex: false,
        limit: 2,
    };
    let page = workspace.search(params).await.unwrap();
    assert_eq!((found(&page), page.truncated), (vec![("a-b", 1), ("a-b", 2)], true));
}
