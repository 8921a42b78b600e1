//! `workspace_search`: every file, hidden and ignored ones included, in linear time.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

use coldframe_core::{SearchMatch, SearchPage, SearchParams, SkippedCount, ToolError, ToolStatus};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::{FileType, OFlags, fstat};

use crate::beneath::open_beneath;
use crate::dir::{Links, WorkspaceDir, escaped, parse_path, tool_error};
use crate::lines::line_around;
use crate::read_tools::read_names;

/// The longest query in bytes.
const MAX_QUERY_BYTES: usize = 10_000;
/// Larger files are counted as skipped.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most characters of a line that are shown.
const MAX_LINE_CHARS: usize = 400;
/// After this long the answer is cut.
const DEADLINE: Duration = Duration::from_secs(10);
/// A file with a NUL among its first bytes is binary.
const BINARY_PREFIX: usize = 8_000;

struct Search<'a> {
    root: &'a WorkspaceDir,
    regex: Regex,
    glob: GlobMatcher,
    glob_has_slash: bool,
    limit: usize,
    deadline: Instant,
    page: SearchPage,
    skipped: BTreeMap<&'static str, u64>,
}

fn compile(params: &SearchParams) -> Result<Regex, ToolError> {
    let invalid = |detail: String| ToolError::new(ToolStatus::Invalid, detail);
    if params.query.len() > MAX_QUERY_BYTES {
        return Err(invalid(format!(
            "the query has {} bytes, at most {MAX_QUERY_BYTES} are taken",
            params.query.len()
        )));
    }
    let pattern = if params.regex { params.query.clone() } else { regex::escape(&params.query) };
    RegexBuilder::new(&pattern)
        .multi_line(true)
        .crlf(true)
        .size_limit(4 << 20)
        .dfa_size_limit(8 << 20)
        .nest_limit(100)
        .build()
        .map_err(|error| invalid(format!("the query is not a usable regular expression: {error}")))
}

pub(crate) fn search(root: &WorkspaceDir, params: &SearchParams) -> Result<SearchPage, ToolError> {
    if !(1..=1000).contains(&params.limit) {
        return Err(ToolError::new(ToolStatus::Invalid, "limit is 1 to 1,000"));
    }
    let glob = GlobBuilder::new(&params.glob)
        .literal_separator(true)
        .build()
        .map_err(|error| ToolError::new(ToolStatus::Invalid, format!("the glob is not usable: {error}")))?;
    let path = parse_path(&params.path)?;
    let mut search = Search {
        root,
        regex: compile(params)?,
        glob: glob.compile_matcher(),
        glob_has_slash: params.glob.contains('/'),
        limit: params.limit,
        deadline: Instant::now() + DEADLINE,
        page: SearchPage { matches: Vec::new(), truncated: false, files: 0, skipped: Vec::new() },
        skipped: BTreeMap::new(),
    };
    match path {
        None => search.walk(Vec::new(), ".")?,
        Some(path) => match root.open_dir(path.as_str(), Links::Refused) {
            Ok(_) => search.walk(path.as_str().as_bytes().to_vec(), path.as_str())?,
            Err(_) => {
                root.open_file(&path, Links::Refused)?;
                search.file(path.as_str().as_bytes());
            }
        },
    }
    let mut page = search.page;
    page.skipped = search
        .skipped
        .into_iter()
        .map(|(reason, count)| SkippedCount { reason: reason.to_owned(), count })
        .collect();
    Ok(page)
}

impl Search<'_> {
    /// Walks depth first in the order of the bytes of the paths.
    fn walk(&mut self, start: Vec<u8>, shown: &str) -> Result<(), ToolError> {
        self.root.open_dir(shown, Links::Refused).map_err(|error| tool_error(shown, error))?;
        let mut pending = vec![(start, FileType::Directory)];
        while let Some((path, kind)) = pending.pop() {
            if self.page.truncated {
                break;
            }
            match kind {
                FileType::Directory => {
                    match self.open(&path, OFlags::DIRECTORY).and_then(|handle| read_names(&handle)) {
                        Ok(mut names) => {
                            // A directory sorts as its name and a slash, since that is how its paths begin.
                            names.sort_by_cached_key(|named| sort_key(&named.name, named.kind));
                            pending.extend(names.into_iter().rev().map(|named| {
                                let below = if path.is_empty() {
                                    named.name
                                } else {
                                    [&path[..], b"/", &named.name].concat()
                                };
                                (below, named.kind)
                            }));
                        }
                        Err(_) => self.skip("unreadable"),
                    }
                }
                FileType::RegularFile => self.file(&path),
                FileType::Symlink => self.skip("symlink"),
                _ => self.skip("special"),
            }
        }
        Ok(())
    }

    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    fn open(&self, path: &[u8], flags: OFlags) -> Result<std::os::fd::OwnedFd, rustix::io::Errno> {
        open_beneath(self.root.root(), path, flags | OFlags::RDONLY | OFlags::NONBLOCK, Links::Refused)
    }

    fn wanted(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let subject = if self.glob_has_slash { path } else { name };
        self.glob.is_match(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(subject))
    }

    fn file(&mut self, path: &[u8]) {
        if !self.wanted(path) {
            return;
        }
        let Ok(handle) = self.open(path, OFlags::empty()) else { return self.skip("unreadable") };
        match fstat(&handle) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return self.skip("special");
            }
            Ok(stat) if stat.st_size as u64 > MAX_FILE_BYTES => return self.skip("too_large"),
            Ok(_) => {}
            Err(_) => return self.skip("unreadable"),
        }
        let mut content = Vec::new();
        let mut bounded = std::fs::File::from(handle).take(MAX_FILE_BYTES + 1);
        if bounded.read_to_end(&mut content).is_err() {
            return self.skip("unreadable");
        }
        if content.len() as u64 > MAX_FILE_BYTES {
            return self.skip("too_large");
        }
        if content[..content.len().min(BINARY_PREFIX)].contains(&0) {
            return self.skip("binary");
        }
        self.page.files += 1;
        self.matches(path, &content);
        self.page.truncated |= Instant::now() > self.deadline;
    }

    fn matches(&mut self, path: &[u8], content: &[u8]) {
        let end_byte = if content.contains(&b'\n') { b'\n' } else { b'\r' };
        let (mut position, mut line, mut counted) = (0, 1, 0);
        // A match that reaches beyond its line says nothing about single lines, and looking for the next one
        // could read the rest of the file again for each line. From then on every line is looked at by itself.
        let mut by_line = false;
        while position < content.len() {
            if Instant::now() > self.deadline {
                self.page.truncated = true;
                return;
            }
            let at = if by_line {
                position
            } else {
                let Some(found) = self.regex.find_at(content, position) else { return };
                by_line = line_around(content, found.start(), end_byte).1 < found.end();
                found.start()
            };
            if at >= content.len() {
                return;
            }
            let (start, end, next) = line_around(content, at, end_byte);
            line += memchr::memchr_iter(end_byte, &content[counted..start]).count() as u64;
            counted = start;
            if let Some(inside) = self.regex.find(&content[start..end]) {
                if self.page.matches.len() == self.limit {
                    self.page.truncated = true;
                    return;
                }
                let text = excerpt(&content[start..end], inside.start());
                self.page.matches.push(SearchMatch { path: escaped(path), line, text });
            }
            position = next;
        }
    }
}

fn sort_key(name: &[u8], kind: FileType) -> Vec<u8> {
    let mut key = name.to_vec();
    if kind == FileType::Directory {
        key.push(b'/');
    }
    key
}

/// The line, or the part of a long one around the match.
fn excerpt(line: &[u8], at: usize) -> String {
    let from = if line.len() <= MAX_LINE_CHARS { 0 } else { at.saturating_sub(MAX_LINE_CHARS / 4) };
    let bytes = &line[from..line.len().min(from + MAX_LINE_CHARS * 4)];
    // Cut characters at either end are left out, not escaped.
    let lead = if from == 0 { 0 } else { bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count() };
    let text: String = escaped(&bytes[lead..]).chars().take(MAX_LINE_CHARS).collect();
    let (before, after) =
        (if from > 0 { "…" } else { "" }, if from + lead + text.len() < line.len() { "…" } else { "" });
    format!("{before}{text}{after}")
}
