//! Checks the rules of the house and lists everything that breaks one.

mod documents;
mod edges;
mod sources;
mod words;

use std::fs;

use crate::Outcome;
use crate::workspace::{files, packages, root};

/// Runs every rule over the whole workspace.
pub(crate) fn run() -> Outcome {
    let packages = packages()?;
    let files = files()?;
    let mut problems = edges::check(&packages);
    let mut checked = 0;
    let known = documents::Known::new(&packages, &files);
    for path in files.iter().filter(|path| is_text(path)) {
        let text = fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        checked += 1;
        problems.extend(words::check(path, &text));
        if path.ends_with(".rs") {
            problems.extend(sources::check(path, &text));
        }
        if path.ends_with(".md") {
            problems.extend(documents::check(path, &text, &known));
        }
    }
    problems.extend(core_is_small(&files)?);
    if checked == 0 {
        return Err("tidy found no file to check".to_owned());
    }
    if problems.is_empty() {
        println!("tidy: {} packages and {checked} files follow the rules", packages.len());
        return Ok(());
    }
    for problem in &problems {
        println!("{problem}");
    }
    Err(format!("tidy found {} problems", problems.len()))
}

/// Golden files and fixtures hold bytes that formats prescribe; the lock file and the licences are not ours.
fn is_text(path: &str) -> bool {
    let written = [".rs", ".md", ".toml", ".py", ".sh", ".yml"].iter().any(|end| path.ends_with(end))
        || path == ".ci/run";
    written && !path.contains("/golden/") && !path.contains("/fixtures/")
}

/// The contract crate stays small, so that it can be implemented against cheaply. Documentation may be long.
fn core_is_small(files: &[String]) -> Outcome<Option<String>> {
    const MOST_LINES: usize = 2_000;
    let mut lines = 0;
    for path in files.iter().filter(|path| path.starts_with("crates/core/src/") && path.ends_with(".rs")) {
        let text = fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        let code = text.lines().take(sources::lines_without_tests(&text)).map(str::trim);
        lines += code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    }
    Ok((lines > MOST_LINES).then(|| {
        format!("crates/core: {lines} lines of code without tests, at most {MOST_LINES}; contracts only")
    }))
}
