//! Limits of a capture: each kind is named, and what was refused leaves nothing behind.

use crate::desk::{Desk, text};
use crate::tree;

fn configured(desk: &Desk, limits: &str) {
    std::fs::create_dir_all(desk.home()).unwrap();
    tree::set_mode(&desk.home(), 0o700);
    std::fs::write(desk.home().join("config.toml"), format!("[limits]\n{limits}\n")).unwrap();
}

#[test]
fn each_limit_is_named_with_what_it_allows() {
    let desk = Desk::new();
    for number in 0..10 {
        desk.write(format!("file-{number}"), "x".repeat(100));
    }
    desk.write("big", "x".repeat(1000));
    for (limits, name, value) in [
        ("max_files = 10", "max_files", "10"),
        ("max_total_bytes = 1999", "max_total_bytes", "1999"),
        ("max_file_bytes = 999", "max_file_bytes", "999"),
    ] {
        configured(&desk, limits);
        let error = desk.refused(5, &["snapshot", "create", "."]);
        assert_eq!(error["kind"], "limit");
        let message = text(&error["message"]).replace(',', "");
        assert!(message.contains(name) && message.contains(value), "{limits}: {message}");
        desk.run(&["snapshot", "create", "."]).with(5).tells(&[name]);
        desk.refused(125, &["exec", ".", "--", "true"]);
        assert_eq!(desk.done(&["snapshot", "list"])["snapshots"].as_array().unwrap().len(), 0);
    }
    for exact in ["max_files = 11", "max_total_bytes = 2000", "max_file_bytes = 1000"] {
        configured(&desk, exact);
        desk.run(&["snapshot", "create", "."]).with(0);
    }
}

#[test]
fn a_limit_on_files_counts_links_and_empty_folders_too() {
    let desk = Desk::new();
    desk.write("file", "x");
    std::fs::create_dir(desk.project().join("empty")).unwrap();
    std::os::unix::fs::symlink("file", desk.project().join("link")).unwrap();
    configured(&desk, "max_files = 2");
    desk.refused(5, &["snapshot", "create", "."]);
    configured(&desk, "max_files = 3");
    desk.done(&["snapshot", "create", "."]);
}

#[test]
fn a_file_too_large_is_refused_before_its_bytes_are_read() {
    let desk = Desk::new();
    // A sparse terabyte costs nothing unless somebody reads it.
    let file = std::fs::File::create(desk.project().join("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let began = std::time::Instant::now();
    let error = desk.refused(5, &["snapshot", "create", "."]);
    assert!(text(&error["message"]).contains("sparse"), "{error:#}");
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
}
