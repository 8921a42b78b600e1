//! Reads TOML into a tree that knows the line of each key, and takes tables apart strictly.
//!
//! Every key of a table is known, or tries to carry authority and is set aside with its path, or is an error.

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{MeshError, MeshErrorKind};

/// Keys that belong into trusted configuration. In a workflow file they have no effect and are reported.
pub(crate) const AUTHORITY_KEYS: [&str; 36] = [
    "allow",
    "allowed_commands",
    "binding",
    "budget",
    "budgets",
    "cache",
    "caches",
    "command_timeout",
    "commands",
    "containment",
    "credentials",
    "env",
    "environment",
    "exclude",
    "grants",
    "isolation",
    "limits",
    "network",
    "parallel",
    "policy",
    "publication",
    "publish",
    "required_isolation",
    "sandbox",
    "search_path",
    "snapshot",
    "snapshot_limits",
    "source_snapshot",
    "strategy",
    "timeout",
    "timeout_ms",
    "timeout_seconds",
    "toolchains",
    "workspace_allowed_commands",
    "workspace_environment",
    "workspace_timeout_seconds",
];

/// The deepest nesting of lists and tables.
const MAX_DEPTH: usize = 48;

/// A value with the line that it starts on.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Anything but a list or a table.
    Plain(Value),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

/// An error of a workflow file at a line.
pub(crate) fn wrong(line: usize, message: impl std::fmt::Display) -> MeshError {
    MeshError::new(MeshErrorKind::Workflow, format!("workflow line {line}: {message}"))
}

/// Parses a TOML document.
pub(crate) fn read(text: &str) -> Result<Node, MeshError> {
    let lines = LineIndex::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        wrong(lines.line(error.span().map_or(0, |span| span.start)), error.message().trim_end())
    })?;
    convert(&DeValue::Table(table.into_inner()), 1, &lines, MAX_DEPTH)
}

struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { starts: ends.collect() }
    }

    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset) + 1
    }
}

fn convert(value: &DeValue<'_>, line: usize, lines: &LineIndex, depth: usize) -> Result<Node, MeshError> {
    if depth == 0 {
        return Err(wrong(line, format_args!("nested deeper than {MAX_DEPTH} levels")));
    }
    let content = match value {
        DeValue::String(text) => Content::Plain(Value::String(text.to_string())),
        DeValue::Boolean(flag) => Content::Plain(Value::Bool(*flag)),
        DeValue::Datetime(time) => Content::Plain(Value::String(time.to_string())),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| wrong(line, format_args!("{:?} is no 64-bit number", number.as_str())))?;
            Content::Plain(parsed.into())
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            let parsed = parsed.ok_or_else(|| wrong(line, "only finite numbers can be stored"))?;
            Content::Plain(Value::Number(parsed))
        }
        DeValue::Array(items) => {
            let nodes = items
                .iter()
                .map(|item| convert(item.get_ref(), lines.line(item.span().start), lines, depth - 1));
            Content::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value): (&Spanned<_>, _)| {
                let at = lines.line(key.span().start);
                let node = convert(value.get_ref(), at, lines, depth - 1)?;
                Ok(Entry { key: key.get_ref().to_string(), line: at, node })
            });
            Content::Table(entries.collect::<Result<_, MeshError>>()?)
        }
    };
    Ok(Node { line, content })
}

impl Node {
    /// The value as JSON; a date becomes text.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Plain(value) => value.clone(),
            Content::List(nodes) => Value::Array(nodes.iter().map(Self::to_json).collect()),
            Content::Table(entries) => {
                let fields = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// The text of the field `key`, where the value is a table that has it.
    pub(crate) fn peek_text(&self, key: &str) -> Option<&str> {
        match &self.peek(key)?.content {
            Content::Plain(value) => value.as_str(),
            _ => None,
        }
    }

    /// The line of `key`, or of the table where it has no such key.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.peek(key).map_or(self.line, |node| node.line)
    }

    fn peek(&self, key: &str) -> Option<&Node> {
        let Content::Table(entries) = &self.content else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

/// The fields of one table whose keys have been checked.
pub(crate) struct Fields<'n> {
    entries: &'n [Entry],
    /// The line of the table.
    pub(crate) line: usize,
    /// The table's place, such as `step.repair`; empty at the top.
    pub(crate) place: String,
}

impl<'n> Fields<'n> {
    /// Takes a table apart. A key that is not in `known` is an error, or set aside where it claims authority.
    pub(crate) fn open(
        node: &'n Node,
        place: impl Into<String>,
        known: &[&str],
        ignored: &mut Vec<String>,
    ) -> Result<Self, MeshError> {
        let place = place.into();
        let Content::Table(entries) = &node.content else {
            return Err(wrong(node.line, format_args!("{place} must be a table")));
        };
        let fields = Self { entries, line: node.line, place };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let path = fields.path(&entry.key);
            if !AUTHORITY_KEYS.contains(&entry.key.as_str()) {
                let known = known.join(", ");
                return Err(wrong(entry.line, format_args!("unknown key {path}; known here: {known}")));
            }
            ignored.push(path);
        }
        Ok(fields)
    }

    /// The full name of a key, with letters that a terminal would obey escaped.
    pub(crate) fn path(&self, key: &str) -> String {
        let key = key.escape_debug();
        if self.place.is_empty() { key.to_string() } else { format!("{}.{key}", self.place) }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn missing(&self, key: &str) -> MeshError {
        wrong(self.line, format_args!("{} is missing", self.path(key)))
    }

    pub(crate) fn required(&self, key: &str) -> Result<&'n Entry, MeshError> {
        self.entry(key).ok_or_else(|| self.missing(key))
    }

    /// An optional text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'n str>, MeshError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match &entry.node.content {
            Content::Plain(Value::String(text)) => Ok(Some(text)),
            _ => Err(wrong(entry.line, format_args!("{} must be a text", self.path(key)))),
        }
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required_text(&self, key: &str) -> Result<&'n str, MeshError> {
        let text = self.text(key)?.ok_or_else(|| self.missing(key))?;
        if text.trim().is_empty() {
            return Err(wrong(self.line, format_args!("{} is empty", self.path(key))));
        }
        Ok(text)
    }

    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, MeshError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let number = match &entry.node.content {
            Content::Plain(value) => value.as_i64(),
            _ => None,
        };
        number
            .map(Some)
            .ok_or_else(|| wrong(entry.line, format_args!("{} must be a whole number", self.path(key))))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, MeshError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match &entry.node.content {
            Content::Plain(Value::Bool(flag)) => Ok(Some(*flag)),
            _ => Err(wrong(entry.line, format_args!("{} must be true or false", self.path(key)))),
        }
    }

    /// An optional list of texts, each with its line.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<(usize, &'n str)>>, MeshError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let refuse = |line| wrong(line, format_args!("{} must be a list of texts", self.path(key)));
        let Content::List(items) = &entry.node.content else { return Err(refuse(entry.line)) };
        let texts = items.iter().map(|item| match &item.content {
            Content::Plain(Value::String(text)) => Ok((item.line, text.as_str())),
            _ => Err(refuse(item.line)),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// The items of an array of tables; none where the key is absent.
    pub(crate) fn tables(&self, key: &str) -> Result<&'n [Node], MeshError> {
        match self.entry(key) {
            None => Ok(&[]),
            Some(Entry { node: Node { content: Content::List(items), .. }, .. }) => Ok(items),
            Some(entry) => {
                let path = self.path(key);
                Err(wrong(entry.line, format_args!("{path} must be a list of tables, written [[{path}]]")))
            }
        }
    }
}
