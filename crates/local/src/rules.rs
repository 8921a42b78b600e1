//! Decides which paths ignore rules leave out, and says which rule it was.
//!
//! The rules of `.ignore` come before those of `.gitignore`, deeper files before higher ones, and
//! `.git/info/exclude` last, as in gitignore(5). A nested repository has its own `.gitignore` files: those of
//! the repository around it end at its border. The user's own global rules are not read, so that a snapshot
//! does not depend on who made it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coldframe_core::SourceError;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{CAPTURE, path_error, root_error};
use crate::tree::{Directory, Names, Tree, read_plain};

/// A rule file may be as large as this; nobody writes more by hand, and each rule costs memory.
const MAX_RULE_FILE_BYTES: u64 = 1 << 20;
/// So many rule files may apply to one path; each costs time for every path below it.
const MAX_RULE_FILES: u32 = 256;

/// One rule file, with those that it takes precedence over.
#[derive(Debug)]
struct Layer {
    matcher: Gitignore,
    /// Where paths relative to this file start in a path relative to the outermost rule file.
    start: usize,
    depth: u32,
    below: Option<Arc<Layer>>,
}

/// The rules that apply in one directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    plain: Option<Arc<Layer>>,
    git: Option<Arc<Layer>>,
}

impl Rules {
    /// The rule that leaves `path` out, or `None`. `path` starts at the outermost rule file.
    pub(crate) fn ignored_by(&self, path: &str, is_directory: bool) -> Option<&str> {
        for chain in [&self.plain, &self.git] {
            let mut next = chain.as_ref();
            while let Some(layer) = next {
                match layer.matcher.matched(&path[layer.start..], is_directory) {
                    Match::Ignore(glob) => return Some(glob.from().and_then(Path::to_str).unwrap_or("?")),
                    Match::Whitelist(_) => return None,
                    Match::None => next = layer.below.as_ref(),
                }
            }
        }
        None
    }

    /// True where no rule applies at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.plain.is_none() && self.git.is_none()
    }

    /// The rules in a directory that has these above it. `path` is the directory, `origin` the way from the
    /// outermost rule file to the root.
    pub(crate) fn enter(
        &self,
        tree: &Tree,
        directory: &Directory,
        names: &Names,
        path: &str,
        origin: &str,
    ) -> Result<Self, SourceError> {
        let mut rules = self.clone();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let start = origin.len() + prefix.len();
        if names.find(".git").is_some() {
            rules.git = None;
            let label = format!("{prefix}.git/info/exclude");
            let text = read_plain(|| tree.file(&label), MAX_RULE_FILE_BYTES + 1)
                .map_err(|error| path_error(&label, error))?;
            push(&mut rules.git, text, &label, start)?;
        }
        for (name, chain) in [(".gitignore", &mut rules.git), (".ignore", &mut rules.plain)] {
            if names.find(name).is_some() {
                let label = format!("{prefix}{name}");
                let text = read_plain(|| directory.file(name), MAX_RULE_FILE_BYTES + 1)
                    .map_err(|error| path_error(&label, error))?;
                push(chain, text, &label, start)?;
            }
        }
        Ok(rules)
    }

    /// The rules of the repository around `root`, where `root` lies inside one, and the way from its top.
    pub(crate) fn around(root: &Path) -> Result<(Self, String), SourceError> {
        let holds_repository = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
        let Some(top) = root.ancestors().find(holds_repository).filter(|top| *top != root) else {
            return Ok((Self::default(), String::new()));
        };
        let Some(origin) = root.strip_prefix(top).ok().and_then(Path::to_str) else {
            return Ok((Self::default(), String::new()));
        };
        let mut rules = Self::default();
        let mut folder = PathBuf::from(top);
        let mut start = 0;
        for (index, segment) in origin.split('/').enumerate() {
            let up = "../".repeat(origin.split('/').count() - index);
            let tree = Tree::open(&folder).map_err(|error| root_error(&up, error))?;
            let sources = [(".git/info/exclude", true), (".gitignore", true), (".ignore", false)];
            for (name, is_git) in sources.into_iter().skip(usize::from(index > 0)) {
                let label = format!("{up}{name}");
                let text = read_plain(|| tree.file(name), MAX_RULE_FILE_BYTES + 1)
                    .map_err(|error| path_error(&label, error))?;
                push(if is_git { &mut rules.git } else { &mut rules.plain }, text, &label, start)?;
            }
            folder.push(segment);
            start += segment.len() + 1;
        }
        Ok((rules, format!("{origin}/")))
    }
}

/// Puts one rule file on top of a chain. A line that is no pattern is passed over, as git does.
fn push(
    chain: &mut Option<Arc<Layer>>,
    text: Option<Vec<u8>>,
    label: &str,
    start: usize,
) -> Result<(), SourceError> {
    let Some(text) = text else { return Ok(()) };
    let refuse = |detail: String| {
        let detail = format!("{detail}; shorten it, or include ignored files");
        Err(SourceError::contract(CAPTURE, detail).with_subject(label))
    };
    if text.len() as u64 > MAX_RULE_FILE_BYTES {
        return refuse("the rule file is larger than 1 MiB".to_owned());
    }
    let depth = chain.as_ref().map_or(0, |layer| layer.depth) + 1;
    if depth > MAX_RULE_FILES {
        return refuse(format!("more than {MAX_RULE_FILES} rule files apply here"));
    }
    let matcher = match compile(&text, label) {
        Ok(matcher) => matcher,
        Err(error) => return refuse(format!("the rules are too large to compile: {error}")),
    };
    if !matcher.is_empty() {
        *chain = Some(Arc::new(Layer { matcher, start, depth, below: chain.take() }));
    }
    Ok(())
}

fn compile(text: &[u8], label: &str) -> Result<Gitignore, ignore::Error> {
    let mut builder = GitignoreBuilder::new(".");
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(line) = std::str::from_utf8(line) else { continue };
        // The builder keeps this with the pattern, so a match names its rule at no further cost.
        let rule = PathBuf::from(format!("{label}:{line}"));
        if let Err(error) = builder.add_line(Some(rule), &literal_braces(line)) {
            tracing::debug!(file = label, line, %error, "passed over a line that is no pattern");
        }
    }
    builder.build()
}

/// Git knows no `{a,b}`: braces stand for themselves there, and the matcher must not read them otherwise.
fn literal_braces(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let (mut escaped, mut in_class) = (false, false);
    for letter in line.chars() {
        match letter {
            '{' | '}' if !escaped && !in_class => text.push('\\'),
            '[' if !escaped => in_class = true,
            ']' if !escaped => in_class = false,
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        text.push(letter);
    }
    text
}

/// Globs that keep what a rule would leave out.
#[derive(Debug, Clone)]
pub(crate) struct Includes {
    matcher: Gitignore,
    /// The segments of globs that start at the root, to know which ignored directories may hold a match.
    anchored: Vec<Vec<String>>,
}

impl Includes {
    /// Compiles globs in the syntax of a `.gitignore` line, relative to the root.
    pub(crate) fn new(globs: &[String]) -> Result<Self, SourceError> {
        let mut builder = GitignoreBuilder::new(".");
        let refuse = |glob: &str, error: ignore::Error| {
            let detail = format!("not a glob to include: {error}");
            SourceError::contract(CAPTURE, detail).with_subject(glob)
        };
        let mut anchored = Vec::new();
        for glob in globs {
            builder.add_line(None, glob).map_err(|error| refuse(glob, error))?;
            let body = glob.trim_end_matches('/');
            if body.contains('/') && !body.starts_with('!') {
                anchored.push(body.trim_start_matches('/').split('/').map(str::to_owned).collect());
            }
        }
        let matcher = builder.build().map_err(|error| refuse("", error))?;
        Ok(Self { matcher, anchored })
    }

    /// True where a glob names `path`.
    pub(crate) fn names(&self, path: &str, is_directory: bool) -> bool {
        self.matcher.matched(path, is_directory).is_ignore()
    }

    /// True where a glob that starts at the root may name something below the directory `path`.
    pub(crate) fn leads_into(&self, path: &str) -> bool {
        self.anchored.iter().any(|glob| {
            let mut patterns = glob.iter().map(String::as_str);
            for name in path.split('/') {
                match patterns.next() {
                    Some("**") => return true,
                    Some(pattern) if pattern == name || pattern.contains(['*', '?', '[', '\\', '{']) => {}
                    _ => return false,
                }
            }
            patterns.next().is_some()
        })
    }
}

/// How often each rule left something out.
pub(crate) type RuleCounts = BTreeMap<String, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Rules {
        let mut rules = Rules::default();
        for (label, text) in files {
            let start = label.rfind('/').map_or(0, |index| index + 1);
            let chain = if label.ends_with(".ignore") { &mut rules.plain } else { &mut rules.git };
            push(chain, Some(text.as_bytes().to_vec()), label, start).unwrap();
        }
        rules
    }

    #[test]
    fn deeper_rules_and_negations_win_and_the_rule_is_named() {
        let rules = rules(&[(".gitignore", "*.log\n/build/\n"), ("sub/.gitignore", "!keep.log\n*.tmp\r\n")]);
        assert_eq!(rules.ignored_by("sub/a.log", false), Some(".gitignore:*.log"));
        assert_eq!(rules.ignored_by("sub/keep.log", false), None);
        assert_eq!(rules.ignored_by("sub/x.tmp", false), Some("sub/.gitignore:*.tmp"));
        assert_eq!(rules.ignored_by("sub/build", true), None);
    }

    #[test]
    fn directory_rules_match_directories_alone_and_anchors_hold() {
        let rules = rules(&[(".gitignore", "/build/\ncache/\n\\#odd\n# comment\n")]);
        assert_eq!(rules.ignored_by("build", true), Some(".gitignore:/build/"));
        assert_eq!(rules.ignored_by("build", false), None);
        assert_eq!(rules.ignored_by("a/build", true), None);
        assert_eq!(rules.ignored_by("a/cache", true), Some(".gitignore:cache/"));
        assert_eq!(rules.ignored_by("#odd", false), Some(".gitignore:\\#odd"));
    }

    #[test]
    fn plain_rules_come_before_those_of_git() {
        let rules = rules(&[(".gitignore", "*.env\n"), (".ignore", "!a.env\nb.txt\n")]);
        assert_eq!(rules.ignored_by("a.env", false), None);
        assert_eq!(rules.ignored_by("b.env", false), Some(".gitignore:*.env"));
        assert_eq!(rules.ignored_by("b.txt", false), Some(".ignore:b.txt"));
    }

    #[test]
    fn braces_stand_for_themselves() {
        let rules = rules(&[(".gitignore", "{a,b}.txt\n[{]x\n")]);
        assert_eq!(rules.ignored_by("a.txt", false), None);
        assert_eq!(rules.ignored_by("{a,b}.txt", false), Some(".gitignore:{a,b}.txt"));
        assert_eq!(rules.ignored_by("{x", false), Some(".gitignore:[{]x"));
    }

    #[test]
    fn a_rule_file_without_end_is_refused_by_name() {
        let mut chain = None;
        let text = vec![b'x'; (MAX_RULE_FILE_BYTES + 1) as usize];
        let error = push(&mut chain, Some(text), "sub/.gitignore", 0).unwrap_err();
        assert_eq!(error.subject(), "sub/.gitignore");
        let one_too_many =
            (0..=MAX_RULE_FILES).try_for_each(|_| push(&mut chain, Some(b"x\n".to_vec()), "r", 0));
        assert!(one_too_many.is_err());
    }

    #[test]
    fn includes_know_which_directories_lead_to_a_match() {
        let globs: Vec<String> = [".env", "node_modules/kept/*.js", "out/**/keep"].map(String::from).into();
        let includes = Includes::new(&globs).unwrap();
        assert!(includes.names("deep/down/.env", false) && includes.names("node_modules/kept/a.js", false));
        for (path, expected) in [
            ("node_modules", true),
            ("node_modules/kept", true),
            ("node_modules/other", false),
            ("node_modules/kept/deeper", false),
            ("out", true),
            ("out/a/b", true),
            ("target", false),
        ] {
            assert_eq!(includes.leads_into(path), expected, "{path}");
        }
        assert!(Includes::new(&["[z-a]".to_owned()]).is_err());
    }
}
