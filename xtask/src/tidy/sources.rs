//! Checks Rust files: header, unsafe code, size.

/// Without its tests no file is longer, but for those listed.
const MOST_LINES: usize = 600;

/// Longer files, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// The only place for unsafe code.
const UNSAFE_FOLDER: &str = "crates/sandbox/src/sys";

/// What breaks a rule in the Rust file at `path`.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("//! ") {
        problems.push(format!(
            "{path}:1: the first line must be a `//!` sentence that says what the file answers for"
        ));
    }
    problems.extend(check_unsafe(path, text));
    let lines = if is_test(path) { 0 } else { lines_without_tests(text) };
    let listed = LONG_FILES.iter().any(|(long, _)| *long == path);
    if lines > MOST_LINES && !listed {
        problems.push(format!(
            "{path}: {lines} lines without tests, at most {MOST_LINES}; part it, or list it with the reason"
        ));
    }
    if lines <= MOST_LINES && listed && !is_test(path) {
        problems
            .push(format!("{path}: is no longer long; strike it from the list in xtask/src/tidy/sources.rs"));
    }
    problems
}

fn check_unsafe(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let in_sandbox = path.starts_with("crates/sandbox/");
    let is_crate_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    if is_crate_root && !in_sandbox && !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
        problems.push(format!("{path}: `#![forbid(unsafe_code)]` is missing"));
    }
    if path.starts_with(UNSAFE_FOLDER) {
        return problems;
    }
    for (number, line) in text.lines().enumerate() {
        if line_is_unsafe(line) {
            problems.push(format!("{path}:{}: unsafe code belongs under {UNSAFE_FOLDER}", number + 1));
        }
    }
    problems
}

/// Whether `line` opens unsafe code or allows it. Comments do not count.
fn line_is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    if code.contains("allow(unsafe_code)") && !code.contains('"') {
        return true;
    }
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("unsafe") {
        let starts_word =
            !before.ends_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '"'));
        let after = after.trim_start();
        if starts_word
            && ["{", "fn ", "impl ", "impl<", "extern ", "trait "].iter().any(|next| after.starts_with(next))
        {
            return true;
        }
        rest = after;
    }
    false
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/")
        || path.starts_with("tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
}

/// The lines before the module of unit tests.
pub(super) fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    lines.windows(2).position(is_tests).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_required() {
        assert_eq!(check("crates/a/src/b.rs", "//! Says something.\nfn a() {}\n"), Vec::<String>::new());
        assert_eq!(check("crates/a/src/b.rs", "fn a() {}\n").len(), 1);
        assert_eq!(check("crates/a/src/b.rs", "").len(), 1);
    }

    #[test]
    fn crate_roots_forbid_what_only_one_folder_may_hold() {
        assert_eq!(check("crates/a/src/lib.rs", "//! Says something.\n").len(), 1);
        assert_eq!(check("crates/a/src/lib.rs", "//! Says something.\n#![forbid(unsafe_code)]\n").len(), 0);
        assert_eq!(check("crates/sandbox/src/lib.rs", "//! Says something.\n").len(), 0);
        let block = concat!("//! Says something.\nfn a() { un", "safe { b() } }\n");
        assert_eq!(check("crates/a/src/b.rs", block).len(), 1);
        assert_eq!(check("crates/sandbox/src/b.rs", block).len(), 1);
        assert_eq!(check("crates/sandbox/src/sys/b.rs", block).len(), 0);
        assert_eq!(
            check("crates/a/src/b.rs", "//! Says something.\n// An unsafe { block } in words.\n").len(),
            0
        );
        assert_eq!(check("crates/a/src/b.rs", "//! Says something.\nlet unsafe_name = 1;\n").len(), 0);
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let body = |count: usize| format!("//! Says something.\n{}", "fn a() {}\n".repeat(count - 1));
        assert_eq!(check("crates/a/src/b.rs", &body(600)).len(), 0);
        assert_eq!(check("crates/a/src/b.rs", &body(601)).len(), 1);
        let with_tests =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", body(590), "fn a() {}\n".repeat(500));
        assert_eq!(check("crates/a/src/b.rs", &with_tests).len(), 0);
        assert_eq!(check("crates/a/tests/b.rs", &body(900)).len(), 0);
    }
}
