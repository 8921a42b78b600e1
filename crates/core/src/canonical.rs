//! The line form that manifests share: fields parted by TAB, one record a line, one spelling for each value.
//!
//! In a field `\` TAB LF and CR are written `\\` `\t` `\n` `\r`; every other byte stands for itself. A number
//! has no sign and no leading zero. A text with any other spelling is refused, so a record has one form only.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::{Digest, Node, SnapshotEntry, SourceError, WorkspacePath};

pub(crate) fn push_field(text: &mut String, field: &str) {
    if !field.bytes().any(|byte| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r')) {
        text.push_str(field);
        return;
    }
    for letter in field.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
}

pub(crate) fn push_line(text: &mut String, fields: &[&str]) {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push('\t');
        }
        push_field(text, field);
    }
    text.push('\n');
}

/// Writes `f`, `x`, `l` or `d` and what belongs to it, path last.
pub(crate) fn push_entry(text: &mut String, path: &WorkspacePath, node: &Node) {
    match node {
        Node::File { digest, size, executable } => {
            let letter = if *executable { 'x' } else { 'f' };
            let _ = write!(text, "{letter}\t{size}\t");
            digest.push_hex(text);
            text.push('\t');
        }
        Node::Symlink { target } => {
            text.push_str("l\t");
            push_field(text, target);
            text.push('\t');
        }
        Node::Directory => text.push_str("d\t"),
    }
    push_field(text, path.as_str());
    text.push('\n');
}

/// Reads the lines of a manifest and says in errors which line is wrong.
pub(crate) struct Lines<'a> {
    lines: std::str::SplitInclusive<'a, char>,
    number: usize,
    operation: &'static str,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(operation: &'static str, bytes: &'a [u8]) -> Result<Self, SourceError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SourceError::integrity(operation, "not UTF-8"))?;
        Ok(Self { lines: text.split_inclusive('\n'), number: 0, operation })
    }

    pub(crate) fn wrong(&self, detail: impl std::fmt::Display) -> SourceError {
        SourceError::integrity(self.operation, format!("line {}: {detail}", self.number))
    }

    /// The next line, parted at TABs and still escaped.
    pub(crate) fn next(&mut self) -> Result<Vec<&'a str>, SourceError> {
        self.number += 1;
        let line = self.lines.next().ok_or_else(|| self.wrong("the text ends too early"))?;
        let line = line.strip_suffix('\n').ok_or_else(|| self.wrong("the text is cut"))?;
        Ok(line.split('\t').collect())
    }

    /// The next line, which must have the given name and number of fields after it.
    pub(crate) fn named<const N: usize>(&mut self, name: &str) -> Result<[&'a str; N], SourceError> {
        let fields = self.next()?;
        self.expect(&fields, name)
    }

    pub(crate) fn expect<const N: usize>(
        &self,
        fields: &[&'a str],
        name: &str,
    ) -> Result<[&'a str; N], SourceError> {
        match fields.split_first() {
            Some((first, rest)) if *first == name => {
                rest.try_into().map_err(|_| self.wrong(format_args!("{name:?} takes {N} fields")))
            }
            _ => Err(self.wrong(format_args!("expected {name:?}"))),
        }
    }

    pub(crate) fn text(&self, field: &'a str) -> Result<String, SourceError> {
        unescape(field).map(Cow::into_owned).ok_or_else(|| self.wrong("a wrong escape"))
    }

    pub(crate) fn number(&self, field: &str) -> Result<u64, SourceError> {
        let value: u64 = field.parse().map_err(|_| self.wrong("expected a number"))?;
        if field.starts_with('+') || (field.len() > 1 && field.starts_with('0')) {
            return Err(self.wrong("a number has no sign and no leading zero"));
        }
        Ok(value)
    }

    pub(crate) fn digest(&self, field: &str) -> Result<Digest, SourceError> {
        field.parse().map_err(|error| self.wrong(error))
    }

    pub(crate) fn path(&self, field: &'a str) -> Result<WorkspacePath, SourceError> {
        WorkspacePath::parse(self.text(field)?).map_err(|error| self.wrong(error))
    }

    /// An entry as [`push_entry`] writes it, or `None` where the line is something else.
    pub(crate) fn entry(&self, fields: &[&'a str]) -> Result<Option<SnapshotEntry>, SourceError> {
        let (path, node) = match fields {
            [kind @ ("f" | "x"), size, digest, path] => {
                let (size, digest) = (self.number(size)?, self.digest(digest)?);
                (path, Node::File { digest, size, executable: *kind == "x" })
            }
            ["l", target, path] => (path, Node::Symlink { target: self.text(target)? }),
            ["d", path] => (path, Node::Directory),
            _ => return Ok(None),
        };
        Ok(Some(SnapshotEntry { path: self.path(path)?, node }))
    }

    /// Checks the closing line, which counts the records, and that nothing follows.
    pub(crate) fn end(&mut self, fields: &[&'a str], records: usize) -> Result<(), SourceError> {
        let [count] = self.expect(fields, "end")?;
        if self.number(count)? != records as u64 {
            return Err(self.wrong(format_args!("the end counts {count} records, there are {records}")));
        }
        match self.lines.next() {
            None => Ok(()),
            Some(_) => Err(self.wrong("something follows the end")),
        }
    }
}

fn unescape(field: &str) -> Option<Cow<'_, str>> {
    if field.contains('\r') {
        return None;
    }
    if !field.contains('\\') {
        return Some(Cow::Borrowed(field));
    }
    let mut text = String::with_capacity(field.len());
    let mut letters = field.chars();
    while let Some(letter) = letters.next() {
        text.push(match letter {
            '\\' => match letters.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(Cow::Owned(text))
}
