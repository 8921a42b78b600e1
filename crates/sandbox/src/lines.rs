//! The line model that reading, searching and editing share.
//!
//! A line ends at LF or CR LF; at a lone CR only where the file has no LF at all. Nothing else ends a line, and
//! a final line end opens no further line.

use std::io::Read;

use coldframe_core::NewlineStyle;
use memchr::{memchr_iter, memrchr};
use sha2::{Digest as _, Sha256};

/// Counts over a whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) total_lines: u64,
    pub(crate) newline: NewlineStyle,
    pub(crate) utf8: bool,
}

/// Reads a stream once and counts.
#[derive(Default)]
struct Counter {
    size: u64,
    hash: Sha256,
    line_feeds: u64,
    returns: u64,
    pairs: u64,
    last: Option<u8>,
    partial: Vec<u8>,
    invalid: bool,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Counter {
    fn update(&mut self, chunk: &[u8]) {
        self.size += chunk.len() as u64;
        self.hash.update(chunk);
        self.returns += memchr_iter(b'\r', chunk).count() as u64;
        for index in memchr_iter(b'\n', chunk) {
            self.line_feeds += 1;
            let before = index.checked_sub(1).map_or(self.last, |before| Some(chunk[before]));
            self.pairs += u64::from(before == Some(b'\r'));
        }
        self.last = chunk.last().copied().or(self.last);
        self.check_utf8(chunk);
    }

    /// Carries a character that is cut at the end of a chunk over to the next.
    fn check_utf8(&mut self, chunk: &[u8]) {
        if self.invalid {
            return;
        }
        let mut rest = chunk;
        while !self.partial.is_empty() {
            let Some((first, others)) = rest.split_first() else { return };
            self.partial.push(*first);
            rest = others;
            match std::str::from_utf8(&self.partial) {
                Ok(_) => self.partial.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => self.invalid = true,
            }
            if self.invalid {
                return;
            }
        }
        if let Err(error) = std::str::from_utf8(rest) {
            match error.error_len() {
                Some(_) => self.invalid = true,
                None => self.partial = rest[error.valid_up_to()..].to_vec(),
            }
        }
    }

    fn finish(self) -> FileFacts {
        let lone = self.returns - self.pairs;
        let (ends, end_byte) = if self.line_feeds == 0 { (lone, b'\r') } else { (self.line_feeds, b'\n') };
        let newline = match (self.line_feeds, self.pairs) {
            (0, _) if lone == 0 => NewlineStyle::None,
            (0, _) => NewlineStyle::Cr,
            (_, 0) => NewlineStyle::Lf,
            (feeds, pairs) if feeds == pairs => NewlineStyle::CrLf,
            _ => NewlineStyle::Mixed,
        };
        FileFacts {
            size: self.size,
            sha256: hex(&self.hash.finalize()),
            total_lines: ends + u64::from(self.last.is_some_and(|last| last != end_byte)),
            newline,
            utf8: !self.invalid && self.partial.is_empty(),
        }
    }
}

/// A range of lines, at most `budget` bytes of it.
struct Picker {
    end_byte: u8,
    range: std::ops::RangeInclusive<u64>,
    budget: usize,
    line: u64,
    content: Vec<u8>,
    last_line: u64,
    cut: bool,
}

impl Picker {
    fn new(end_byte: u8, range: std::ops::RangeInclusive<u64>, budget: usize) -> Self {
        let last_line = range.start() - 1;
        Self { end_byte, range, budget, line: 1, content: Vec::new(), last_line, cut: false }
    }

    fn update(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            let end = memchr::memchr(self.end_byte, chunk).map(|index| index + 1);
            let (piece, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
            if self.range.contains(&self.line) && !self.cut {
                let room = self.budget - self.content.len();
                self.cut = piece.len() > room;
                if room > 0 {
                    self.content.extend_from_slice(&piece[..piece.len().min(room)]);
                    self.last_line = self.line;
                }
            }
            self.line += u64::from(end.is_some());
            chunk = rest;
        }
    }
}

/// The lines of a range with the facts of the whole file.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) facts: FileFacts,
    pub(crate) content: Vec<u8>,
    pub(crate) last_line: u64,
    pub(crate) cut: bool,
}

/// Reads a file through once, or twice where its lines end at a lone CR, in bounded memory.
pub(crate) fn pick(
    file: &mut (impl Read + std::io::Seek),
    range: std::ops::RangeInclusive<u64>,
    budget: usize,
) -> std::io::Result<Picked> {
    let mut counter = Counter::default();
    let mut picker = Picker::new(b'\n', range.clone(), budget);
    each_chunk(file, |chunk| {
        counter.update(chunk);
        picker.update(chunk);
    })?;
    let facts = counter.finish();
    if facts.newline == NewlineStyle::Cr {
        picker = Picker::new(b'\r', range, budget);
        file.seek(std::io::SeekFrom::Start(0))?;
        each_chunk(file, |chunk| picker.update(chunk))?;
    }
    if picker.cut && facts.utf8 {
        // A cut falls between characters.
        let whole = std::str::from_utf8(&picker.content).map_or_else(|error| error.valid_up_to(), str::len);
        picker.content.truncate(whole);
    }
    Ok(Picked { facts, content: picker.content, last_line: picker.last_line, cut: picker.cut })
}

fn each_chunk(file: &mut impl Read, mut work: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => work(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn facts(content: &[u8]) -> FileFacts {
    let mut counter = Counter::default();
    counter.update(content);
    counter.finish()
}

/// The lines of a text, each with its end.
pub(crate) fn split(content: &[u8]) -> Vec<&[u8]> {
    let end_byte = if content.contains(&b'\n') { b'\n' } else { b'\r' };
    content.split_inclusive(|byte| *byte == end_byte).collect()
}

/// The end of a line: `\r\n`, `\n`, `\r` (in a file without LF) or nothing.
pub(crate) fn end_of(line: &[u8], lone_return: bool) -> &'static str {
    match line {
        [.., b'\r', b'\n'] => "\r\n",
        [.., b'\n'] => "\n",
        [.., b'\r'] if lone_return => "\r",
        _ => "",
    }
}

const MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a range of lines cannot be replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRange {
    pub(crate) total_lines: u64,
}

/// Replaces the lines `start` to `end` (from 1, inclusive; `end = start - 1` inserts before `start`).
///
/// The first line of the replacement takes the end of the first line that it replaces and so on; what is more
/// takes the end of the last one. Where the last line replaced has no end, the replacement keeps its own.
/// A byte order mark stays. Bytes outside the range are untouched.
pub(crate) fn replace(content: &[u8], start: u64, end: u64, replacement: &str) -> Result<Vec<u8>, BadRange> {
    let (mark, body) = match content.strip_prefix(MARK) {
        Some(body) => (MARK, body),
        None => (&b""[..], content),
    };
    let lines = split(body);
    let total = lines.len() as u64;
    // A file without lines takes 1 to 1 as well: that is what a caller who thinks of one empty line gives.
    let end = if total == 0 && start == 1 && end == 1 { 0 } else { end };
    if start == 0 || start > total + 1 || end > total || end + 1 < start {
        return Err(BadRange { total_lines: total });
    }
    let (first, last) = ((start - 1) as usize, end as usize);
    let lone_return = facts(body).newline == NewlineStyle::Cr;
    let ends: Vec<&str> = lines[first..last].iter().map(|line| end_of(line, lone_return)).collect();
    let neighbour = || {
        lines
            .iter()
            .take(first)
            .chain(&lines[last..])
            .map(|line| end_of(line, lone_return))
            .find(|end| !end.is_empty())
    };
    let replaced = ends.iter().rev().find(|end| !end.is_empty()).copied();
    let usual = replaced.or_else(|| {
        lines[..first].iter().rev().map(|line| end_of(line, lone_return)).find(|end| !end.is_empty())
    });
    let usual = usual.or_else(neighbour).unwrap_or("\n");
    let mut result = mark.to_vec();
    for line in &lines[..first] {
        result.extend_from_slice(line);
    }
    // An insertion behind a last line without an end gives it one.
    if first > 0
        && first == lines.len()
        && end_of(lines[first - 1], lone_return).is_empty()
        && !replacement.is_empty()
    {
        result.extend_from_slice(usual.as_bytes());
    }
    let replacement = replacement.strip_prefix('\u{feff}').filter(|_| first == 0).unwrap_or(replacement);
    let reaches_open_end = last == lines.len() && ends.last().is_some_and(|end| end.is_empty());
    push_replacement(&mut result, replacement, &ends, usual, reaches_open_end);
    for line in &lines[last..] {
        result.extend_from_slice(line);
    }
    Ok(result)
}

fn push_replacement(result: &mut Vec<u8>, text: &str, ends: &[&str], usual: &str, reaches_open_end: bool) {
    let normal = text.replace("\r\n", "\n");
    let mut lines = normal.split_inclusive('\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let body = line.strip_suffix('\n');
        result.extend_from_slice(body.unwrap_or(line).as_bytes());
        let is_last = lines.peek().is_none();
        if body.is_none() && is_last && reaches_open_end {
            return;
        }
        let end = ends.get(index).copied().filter(|end| !end.is_empty()).unwrap_or(usual);
        result.extend_from_slice(end.as_bytes());
    }
}

/// The line around `position`: its bounds without its end, and where the next one begins.
pub(crate) fn line_around(content: &[u8], position: usize, end_byte: u8) -> (usize, usize, usize) {
    let start = memrchr(end_byte, &content[..position]).map_or(0, |index| index + 1);
    let stop = memchr::memchr(end_byte, &content[position..]).map_or(content.len(), |index| position + index);
    let text_end =
        if end_byte == b'\n' && stop > start && content[stop - 1] == b'\r' { stop - 1 } else { stop };
    (start, text_end, (stop + 1).min(content.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn replaced(content: &[u8], start: u64, end: u64, text: &str) -> String {
        String::from_utf8(replace(content, start, end, text).unwrap()).unwrap()
    }

    #[test]
    fn counts_lines_of_every_sort() {
        let cases: [(&[u8], u64, NewlineStyle); 9] = [
            (b"a\r\nb\r\nc\r\n", 3, NewlineStyle::CrLf),
            (b"a\r\nb\nc\r\n", 3, NewlineStyle::Mixed),
            (b"a\nb", 2, NewlineStyle::Lf),
            (b"", 0, NewlineStyle::None),
            (b"\n", 1, NewlineStyle::Lf),
            (b"\n\n", 2, NewlineStyle::Lf),
            (b"a\rb\r", 2, NewlineStyle::Cr),
            (b"one\x0ctwo\nthree\rfour\x0bmore\nfive\n", 3, NewlineStyle::Lf),
            ("a\u{2028}b\u{85}c".as_bytes(), 1, NewlineStyle::None),
        ];
        for (content, lines, newline) in cases {
            let facts = facts(content);
            assert_eq!((facts.total_lines, facts.newline), (lines, newline), "{content:?}");
            assert_eq!(split(content).len() as u64, lines, "{content:?}");
        }
    }

    #[test]
    fn characters_that_straddle_chunks_are_text_and_a_bad_byte_far_away_is_seen() {
        for length in [1000, 1024, 4096, 8192, 65535, 65534, 65533, 65536] {
            let content = format!("{}\u{20ac}\u{1f642}\nsecond line\n", "x".repeat(length));
            let picked = pick(&mut Cursor::new(content.as_bytes()), 1..=9, 1 << 20).unwrap();
            assert!(picked.facts.utf8 && picked.facts.total_lines == 2, "{length}");
            assert_eq!(picked.content, content.as_bytes());
        }
        let late = [&b"x".repeat(70000)[..], b"\xff\n"].concat();
        assert!(!pick(&mut Cursor::new(late), 1..=1, 10).unwrap().facts.utf8);
        for bad in [&b"\xed\xa0\x80\n"[..], b"\xc0\xaf\n", b"caf\xe9\n", b"\xf0\x9f"] {
            assert!(!facts(bad).utf8, "{bad:?}");
        }
    }

    #[test]
    fn a_cut_says_so_and_splits_no_character() {
        let content = "\u{e9}".repeat(10);
        let picked = pick(&mut Cursor::new(content.as_bytes()), 1..=1, 5).unwrap();
        assert_eq!((picked.content.as_slice(), picked.cut), ("\u{e9}\u{e9}".as_bytes(), true));
        let long = format!("{}\nshort\n", "z".repeat(100));
        let picked = pick(&mut Cursor::new(long.as_bytes()), 2..=2, 50).unwrap();
        assert_eq!((picked.content.as_slice(), picked.cut, picked.last_line), (&b"short\n"[..], false, 2));
    }

    #[test]
    fn replacement_lines_take_the_ends_of_the_lines_they_replace() {
        assert_eq!(replaced(b"one\r\ntwo\r\nthree\r\n", 2, 2, "TWO"), "one\r\nTWO\r\nthree\r\n");
        let mixed = b"one\r\ntwo\nprogress\r50%\r100%\nfour\r\n";
        assert_eq!(replaced(mixed, 2, 2, "TWO"), "one\r\nTWO\nprogress\r50%\r100%\nfour\r\n");
        assert_eq!(replaced(mixed, 4, 4, "FOUR"), "one\r\ntwo\nprogress\r50%\r100%\nFOUR\r\n");
        assert_eq!(replaced(mixed, 1, 2, "X\nY"), "X\r\nY\nprogress\r50%\r100%\nfour\r\n");
        assert_eq!(replaced(b"one\x0ctwo\nthree\rfour\x0bmore\nfive\n", 2, 2, "X"), "one\x0ctwo\nX\nfive\n");
        assert_eq!(replaced(b"a\rb\rc\r", 2, 2, "X\nY\n"), "a\rX\rY\rc\r");
        assert_eq!(replaced(b"a\nb\n", 1, 1, "x\r\ny\r\n"), "x\ny\nb\n");
    }

    #[test]
    fn a_missing_final_newline_survives() {
        assert_eq!(replaced(b"a\nb\nc", 3, 3, "C"), "a\nb\nC");
        assert_eq!(replaced(b"a\nb\nc", 2, 2, "B"), "a\nB\nc");
        assert_eq!(replaced(b"a\nb\nc", 3, 3, "C\n"), "a\nb\nC\n");
        assert_eq!(replaced(b"a\nb\nc", 2, 3, ""), "a\n");
        assert_eq!(replaced(b"a\nb", 3, 2, "c"), "a\nb\nc\n");
    }

    #[test]
    fn a_byte_order_mark_is_kept_and_none_is_added() {
        let marked = b"\xef\xbb\xbfh\nx\n";
        assert_eq!(replaced(marked, 2, 2, "Y"), "\u{feff}h\nY\n");
        assert_eq!(replaced(marked, 1, 1, "H"), "\u{feff}H\nx\n");
        assert_eq!(replaced(marked, 1, 1, "\u{feff}H"), "\u{feff}H\nx\n");
        assert_eq!(replaced(b"h\nx\n", 1, 1, "H"), "H\nx\n");
    }

    #[test]
    fn insertion_and_empty_files_work_and_other_ranges_are_refused() {
        assert_eq!(replaced(b"", 1, 0, "new\n"), "new\n");
        assert_eq!(replaced(b"", 1, 1, "new"), "new\n");
        assert_eq!(replaced(b"a\nc\n", 2, 1, "b"), "a\nb\nc\n");
        assert_eq!(replaced(b"a\n", 2, 1, "b\n"), "a\nb\n");
        for (start, end) in [(0, 1), (4, 3), (1, 3), (3, 1), (2, 0)] {
            assert_eq!(replace(b"a\nb\n", start, end, ""), Err(BadRange { total_lines: 2 }), "{start} {end}");
        }
    }
}
