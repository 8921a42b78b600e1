//! `workspace_read`: line ends, encodings, long lines.

use coldframe_core::{NewlineStyle, ReadParams, SearchParams, ToolStatus};
use coldframe_sandbox::Strategy;
use sha2::{Digest as _, Sha256};

use crate::bench::{Bench, both, file, read};

both!(
    every_line_end_is_counted_and_the_hash_is_that_of_the_whole_file,
    what_is_not_utf8_text_is_refused_with_size_and_hash,
    characters_that_straddle_buffers_are_text,
    a_line_of_megabytes_is_cut_and_does_not_hide_the_next,
    lines_far_into_a_large_file_can_be_read,
    wrong_ranges_and_paths_are_refused,
);

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn every_line_end_is_counted_and_the_hash_is_that_of_the_whole_file(strategy: Strategy) {
    let cases: [(&str, &[u8], u64, NewlineStyle); 7] = [
        ("crlf.txt", b"a\r\nb\r\nc\r\n", 3, NewlineStyle::CrLf),
        ("mixed.txt", b"a\r\nb\nc\r\n", 3, NewlineStyle::Mixed),
        ("nofinal.txt", b"a\nb", 2, NewlineStyle::Lf),
        ("empty.txt", b"", 0, NewlineStyle::None),
        ("one-newline.txt", b"\n", 1, NewlineStyle::Lf),
        ("two-newlines.txt", b"\n\n", 2, NewlineStyle::Lf),
        ("controls.txt", b"one\x0ctwo\nthree\rfour\x0bmore\nfive\n", 3, NewlineStyle::Lf),
    ];
    let bench = Bench::new(strategy, cases.map(|(name, content, ..)| (name, file(content)))).await;
    let workspace = bench.open().await;
    for (name, content, lines, newline) in cases {
        let page = read(&workspace, name).await.unwrap();
        assert_eq!((page.total_lines, page.newline, page.end_line), (lines, newline, lines), "{name}");
        assert_eq!((page.content.as_bytes(), page.sha256), (content, sha256(content)), "{name}");
        assert!(!page.truncated);
    }
}

async fn what_is_not_utf8_text_is_refused_with_size_and_hash(strategy: Strategy) {
    let late = [&b"x".repeat(70_000)[..], b"\xff\n"].concat();
    let cases: [(&str, &[u8]); 6] = [
        ("utf16.txt", b"\xff\xfet\0e\0"),
        ("latin1.txt", b"caf\xe9\n"),
        ("late.txt", &late),
        ("picture.png", b"\x89PNG\r\n\x1a\n"),
        ("surrogate.txt", b"\xed\xa0\x80\n"),
        ("overlong.txt", b"\xc0\xaf\n"),
    ];
    let bench = Bench::new(strategy, cases.map(|(name, content)| (name, file(content)))).await;
    let workspace = bench.open().await;
    for (name, content) in cases {
        let params = ReadParams { path: name.to_owned(), start_line: 1, end_line: 2 };
        let error = workspace.read(params).await.unwrap_err();
        assert_eq!(error.status, ToolStatus::Invalid, "{name}");
        assert_eq!(
            (error.size, error.observed_sha256),
            (Some(content.len() as u64), Some(sha256(content))),
            "{name}"
        );
        assert!(error.message.contains("not UTF-8"), "{}", error.message);
    }
}

async fn characters_that_straddle_buffers_are_text(strategy: Strategy) {
    let mut items = Vec::new();
    for size in [1000, 1024, 4096, 8192, 65536] {
        for back in 1..=3 {
            let content = format!("{}\u{20ac}\u{1f642}\nsecond line\n", "x".repeat(size - back));
            items.push((format!("edge-{size}-{back}.txt"), content));
        }
    }
    let bench =
        Bench::new(strategy, items.clone().into_iter().map(|(name, content)| (name, file(content)))).await;
    let workspace = bench.open().await;
    for (name, content) in items {
        let page = read(&workspace, &name).await.unwrap();
        assert_eq!(
            (page.total_lines, page.content, page.sha256),
            (2, content.clone(), sha256(content.as_bytes()))
        );
    }
}

async fn a_line_of_megabytes_is_cut_and_does_not_hide_the_next(strategy: Strategy) {
    let content = format!("{}needle\nshort\n", "z".repeat(5 << 20));
    let bench = Bench::new(strategy, [("long.txt", file(content))]).await;
    let workspace = bench.open().await;
    let lines = |start_line, end_line| {
        workspace.read(ReadParams { path: "long.txt".to_owned(), start_line, end_line })
    };
    for (start, end, cut) in [(1, 1, true), (1, 2, true), (2, 2, false)] {
        let page = lines(start, end).await.unwrap();
        assert_eq!((page.truncated, page.total_lines), (cut, 2), "{start} to {end}");
        assert!(page.content.len() <= 256 << 10);
    }
    assert_eq!(lines(2, 2).await.unwrap().content, "short\n");
    let params = SearchParams {
        query: "needle".to_owned(),
        path: ".".to_owned(),
        glob: "*".to_owned(),
        regex: false,
        limit: 10,
    };
    let found = workspace.search(params).await.unwrap();
    assert_eq!((found.matches.len(), found.matches[0].line), (1, 1));
    assert!(found.matches[0].text.contains("needle") && found.matches[0].text.len() < 4096);
}

async fn lines_far_into_a_large_file_can_be_read(strategy: Strategy) {
    let content: String = (1..=60_000).map(|line| format!("line {line}\n")).collect();
    let bench = Bench::new(strategy, [("big.txt", file(content))]).await;
    let workspace = bench.open().await;
    let params = ReadParams { path: "big.txt".to_owned(), start_line: 50_000, end_line: 50_001 };
    let page = workspace.read(params).await.unwrap();
    assert_eq!(
        (page.content.as_str(), page.end_line, page.total_lines),
        ("line 50000\nline 50001\n", 50_001, 60_000)
    );
    crate::bench::shell(&workspace, "truncate -s 8T endless").await;
    let error = read(&workspace, "endless").await.unwrap_err();
    assert_eq!((error.status, error.size), (ToolStatus::Limit, Some(8 << 40)));
    let beyond = ReadParams { path: "big.txt".to_owned(), start_line: 70_000, end_line: 70_010 };
    let page = workspace.read(beyond).await.unwrap();
    assert_eq!((page.content.as_str(), page.end_line, page.truncated), ("", 69_999, false));
}

async fn wrong_ranges_and_paths_are_refused(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a.txt", file("a\n")), ("sub/b.txt", file("b\n"))]).await;
    let workspace = bench.open().await;
    for (start_line, end_line) in [(0, 1), (2, 1)] {
        let params = ReadParams { path: "a.txt".to_owned(), start_line, end_line };
        assert_eq!(workspace.read(params).await.unwrap_err().status, ToolStatus::Invalid);
    }
    let cases = [
        ("../a.txt", ToolStatus::Refused),
        ("/etc/passwd", ToolStatus::Refused),
        ("sub/../../a.txt", ToolStatus::Refused),
        ("sub", ToolStatus::Invalid),
        (".", ToolStatus::Invalid),
        ("a\0b", ToolStatus::Invalid),
        ("a.txt/b", ToolStatus::NotFound),
        ("missing", ToolStatus::NotFound),
    ];
    for (path, status) in cases {
        assert_eq!(read(&workspace, path).await.unwrap_err().status, status, "{path:?}");
    }
    assert_eq!(read(&workspace, "./sub//b.txt").await.unwrap().path, "sub/b.txt");
}
