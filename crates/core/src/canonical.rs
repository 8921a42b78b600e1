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

/// No record has more fields.
const MAX_FIELDS: usize = 6;

/// The fields of one line, still escaped. There are as many lines as entries, so they cost no allocation.
pub(crate) struct Fields<'a> {
    fields: [&'a str; MAX_FIELDS],
    count: usize,
}

impl<'a> std::ops::Deref for Fields<'a> {
    type Target = [&'a str];

    fn deref(&self) -> &[&'a str] {
        &self.fields[..self.count]
    }
}

/// Reads the lines of a manifest and says in errors which line is wrong.
pub(crate) struct Lines<'a> {
    rest: &'a str,
    length: usize,
    number: usize,
    operation: &'static str,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(operation: &'static str, bytes: &'a [u8]) -> Result<Self, SourceError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SourceError::integrity(operation, "not UTF-8"))?;
        Ok(Self { rest: text, length: text.len(), number: 0, operation })
    }

    pub(crate) fn wrong(&self, detail: impl std::fmt::Display) -> SourceError {
        SourceError::integrity(self.operation, format!("line {}: {detail}", self.number))
    }

    /// The next line, parted at TABs and still escaped.
    pub(crate) fn next(&mut self) -> Result<Fields<'a>, SourceError> {
        self.number += 1;
        if self.rest.is_empty() {
            return Err(self.wrong("the text ends too early"));
        }
        if let Some((fields, rest)) = file_fields(self.rest) {
            self.rest = rest;
            return Ok(fields);
        }
        let (line, rest) = self.rest.split_once('\n').ok_or_else(|| self.wrong("the text is cut"))?;
        let mut parts = line.split('\t');
        let mut fields = Fields { fields: [""; MAX_FIELDS], count: 0 };
        for (place, field) in fields.fields.iter_mut().zip(&mut parts) {
            *place = field;
            fields.count += 1;
        }
        if parts.next().is_some() {
            return Err(self.wrong("too many fields"));
        }
        self.rest = rest;
        Ok(fields)
    }

    /// How many bytes of the text are left.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// How many bytes of the text were read.
    pub(crate) fn position(&self) -> usize {
        self.length - self.rest.len()
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
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("something follows the end")) }
    }
}

/// Parts a line of the shape `f SIZE DIGEST PATH` by the known width of its digest, and gives the rest of the text.
/// Nearly all lines of a snapshot have it. Whether the digest is one is seen when it is read. `None` where a line has another shape; it is parted at each TAB then.
fn file_fields(text: &str) -> Option<(Fields<'_>, &str)> {
    const DIGITS: usize = 64;
    let bytes = text.as_bytes();
    if !matches!(bytes, [b'f' | b'x', b'\t', ..]) {
        return None;
    }
    let digest = 2 + bytes[2..].iter().take_while(|byte| byte.is_ascii_digit()).count() + 1;
    let path = digest + DIGITS + 1;
    if bytes.get(digest - 1) != Some(&b'\t') || bytes.get(path - 1) != Some(&b'\t') {
        return None;
    }
    let end = path + text[path..].find('\n')?;
    if bytes[path..end].iter().fold(false, |found, byte| found | (*byte == b'\t')) {
        return None;
    }
    let mut fields = [""; MAX_FIELDS];
    fields[..4].copy_from_slice(&[
        &text[..1],
        &text[2..digest - 1],
        &text[digest..path - 1],
        &text[path..end],
    ]);
    Some((Fields { fields, count: 4 }, &text[end + 1..]))
}

fn unescape(field: &str) -> Option<Cow<'_, str>> {
    // Every byte is looked at, without an early end, which a processor does for many bytes at once.
    let is_special = |found: bool, byte: &u8| found | (*byte == b'\\') | (*byte == b'\r');
    if !field.as_bytes().iter().fold(false, is_special) {
        return Some(Cow::Borrowed(field));
    }
    if field.contains('\r') {
        return None;
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
