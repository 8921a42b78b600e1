//! Checks that documents name only files, packages, tasks and commands that exist.

use std::collections::BTreeSet;
use std::fs;

use crate::TASKS;
use crate::reference;
use crate::workspace::{Package, root};

/// Folders whose files a code span may name.
const FOLDERS: &[&str] = &["crates/", "docs/", "examples/", "tests/", "xtask/", ".ci/"];

/// What a document may name.
pub(super) struct Known {
    packages: BTreeSet<String>,
    paths: BTreeSet<String>,
    commands: BTreeSet<String>,
}

impl Known {
    /// The packages, all files and folders, and the commands that the reference lists.
    pub(super) fn new(packages: &[Package], files: &[String]) -> Self {
        let mut paths = BTreeSet::new();
        for file in files {
            let mut path = file.as_str();
            while paths.insert(path.to_owned())
                && let Some((folder, _)) = path.rsplit_once('/')
            {
                path = folder;
            }
        }
        let text = fs::read_to_string(root().join(reference::FILE)).unwrap_or_default();
        Self {
            packages: packages.iter().map(|package| package.name.clone()).collect(),
            paths,
            commands: reference::commands(&text),
        }
    }
}

/// What the document at `path` names that is not there.
pub(super) fn check(path: &str, text: &str, known: &Known) -> Vec<String> {
    let mut problems = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        let mut problem = |what: String| problems.push(format!("{path}:{}: {what}", number + 1));
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            check_command(line.trim().trim_start_matches("$ "), known).into_iter().for_each(&mut problem);
        } else {
            for target in links(line) {
                if !resolves(path, target, text, known) {
                    problem(format!("the link {target:?} leads nowhere"));
                }
            }
            for span in spans(line) {
                check_span(path, span, known).into_iter().for_each(&mut problem);
            }
        }
    }
    problems
}

fn check_span(path: &str, span: &str, known: &Known) -> Option<String> {
    let is_plain = !span.contains(['*', '<', '{', ' ', '…', '$', '[']) && !span.contains("NNNN");
    if is_plain && FOLDERS.iter().any(|folder| span.starts_with(folder)) {
        let path = span.trim_end_matches('/');
        return (!known.paths.contains(path)).then(|| format!("there is no file or folder {span:?}"));
    }
    let is_package =
        span.starts_with("coldframe-") && span.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    if is_package {
        // The pages of formats also name the words with which hashed texts begin.
        let is_unknown = !known.packages.contains(span) && !path.starts_with("docs/formats/");
        return is_unknown.then(|| format!("there is no package {span:?}"));
    }
    check_command(span, known)
}

/// Checks `cargo xtask WORD` and `coldframe WORD`.
fn check_command(line: &str, known: &Known) -> Option<String> {
    let mut words = line.split_whitespace();
    let (first, second, third) = (words.next()?, words.next()?, words.next());
    let is_word = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-')
    };
    if (first, second) == ("cargo", "xtask")
        && let Some(task) = third
        && is_word(task)
        && !TASKS.iter().any(|(name, _)| *name == task)
    {
        return Some(format!("there is no task `cargo xtask {task}`"));
    }
    if first == "coldframe"
        && is_word(second)
        && !known.commands.is_empty()
        && !known.commands.contains(second)
    {
        return Some(format!("there is no command `coldframe {second}` in {}", reference::FILE));
    }
    None
}

/// Whether a link target exists: a file or folder from the document, and a heading where it names one.
fn resolves(path: &str, target: &str, text: &str, known: &Known) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    if file.is_empty() {
        return headings(text).contains(heading);
    }
    let Some(file) = joined(path, file) else { return false };
    if !known.paths.contains(&file) && !file.is_empty() {
        return false;
    }
    heading.is_empty()
        || fs::read_to_string(root().join(&file)).is_ok_and(|other| headings(&other).contains(heading))
}

/// `target` as seen from the folder of `path`; nothing where it leaves the workspace.
fn joined(path: &str, target: &str) -> Option<String> {
    let mut segments: Vec<&str> = path.split('/').collect();
    segments.pop();
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// The anchors that a document offers, made from its headings as code hosts make them.
fn headings(text: &str) -> BTreeSet<String> {
    let title =
        |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    text.lines()
        .filter_map(title)
        .map(|title| {
            title
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// The targets of `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split_once(')').map(|(target, _)| target))
}

/// The texts between single backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let package = Package { name: "coldframe-core".to_owned(), ..Package::default() };
        let mut known =
            Known::new(&[package], &["docs/a.md".to_owned(), "crates/core/src/lib.rs".to_owned()]);
        known.commands = BTreeSet::from(["exec".to_owned()]);
        known
    }

    fn problems(text: &str) -> usize {
        check("docs/b.md", text, &known()).len()
    }

    #[test]
    fn what_exists_passes() {
        let text = "# B\n[a](a.md), [up](../crates/core), [here](#b), [web](https://example.org)\n\
                    `crates/core/` `coldframe-core` `cargo xtask tidy` `coldframe exec . -- ls` `crates/<short>`\n\
                    ```\n$ cargo xtask ci\n$ coldframe exec . -- true\n```\n";
        assert_eq!(check("docs/b.md", text, &known()), Vec::<String>::new());
    }

    #[test]
    fn what_is_gone_is_found() {
        for gone in [
            "[a](gone.md)",
            "[a](../../outside.md)",
            "[a](#gone)",
            "`crates/gone/src/lib.rs`",
            "`coldframe-gone`",
            "`cargo xtask gone`",
            "`coldframe gone`",
            "```\n$ coldframe gone now\n```",
        ] {
            assert_eq!(problems(gone), 1, "{gone}");
        }
    }
}
