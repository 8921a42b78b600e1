//! The six bounded tools: their parameters, answers and errors, as JSON and as types.

use serde::{Deserialize, Serialize};

use crate::{Digest, ReceiptId};

/// Parameters of `workspace_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListParams {
    /// The directory to list.
    pub path: String,
    /// Whether to descend.
    pub recursive: bool,
    /// The most entries in the answer, 1 to 5,000.
    pub limit: usize,
}

impl Default for ListParams {
    fn default() -> Self {
        Self { path: ".".to_owned(), recursive: false, limit: 500 }
    }
}

/// Parameters of `workspace_read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadParams {
    /// The file to read.
    pub path: String,
    /// The first line, from 1.
    #[serde(default = "first_line")]
    pub start_line: u64,
    /// The last line, inclusive.
    #[serde(default = "last_line")]
    pub end_line: u64,
}

const fn first_line() -> u64 {
    1
}

const fn last_line() -> u64 {
    400
}

/// Parameters of `workspace_search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchParams {
    /// The text, or the regular expression where `regex` is set. Letter case counts.
    pub query: String,
    /// The directory or file to search.
    #[serde(default = "root")]
    pub path: String,
    /// Which files: matched against the name, or against the whole path where it has a `/`.
    #[serde(default = "every_file")]
    pub glob: String,
    /// Whether `query` is a regular expression.
    #[serde(default)]
    pub regex: bool,
    /// The most matches in the answer, 1 to 1,000.
    #[serde(default = "match_limit")]
    pub limit: usize,
}

fn root() -> String {
    ".".to_owned()
}

fn every_file() -> String {
    "*".to_owned()
}

const fn match_limit() -> usize {
    100
}

/// Parameters of `workspace_write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteParams {
    /// The file to create or replace; missing directories are made.
    pub path: String,
    /// The whole new content.
    pub content: String,
    /// Sets or clears the executable bit; absent keeps what is there, and means no for a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
}

/// Parameters of `workspace_edit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditParams {
    /// The file to edit.
    pub path: String,
    /// The first line to replace, from 1.
    pub start_line: u64,
    /// The last line to replace, inclusive; `start_line - 1` inserts before `start_line`.
    pub end_line: u64,
    /// What stands there afterwards.
    pub replacement: String,
    /// The SHA-256 of the whole file as it was read.
    pub expected_sha256: String,
}

/// Parameters of `workspace_run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunParams {
    /// The program and its arguments.
    #[serde(deserialize_with = "words_or_text")]
    pub command: Vec<String>,
    /// The working directory.
    #[serde(default = "root")]
    pub cwd: String,
}

/// Takes `["cargo", "test"]`, or `"cargo test"` parted as a shell would part words, without running one.
fn words_or_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Command {
        Words(Vec<String>),
        Text(String),
    }
    match Command::deserialize(deserializer)? {
        Command::Words(words) => Ok(words),
        Command::Text(text) => split_words(&text).map_err(serde::de::Error::custom),
    }
}

/// Parts a command line at blanks, honouring `'…'`, `"…"` and `\`, and nothing else: no variable, no glob, no
/// operator. Operators are refused by name, since a shell would give them a meaning that is absent here.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => quoted(&mut letters, '\'', word.get_or_insert_default())?,
            '"' => quoted(&mut letters, '"', word.get_or_insert_default())?,
            '\\' => {
                word.get_or_insert_default().push(letters.next().ok_or("the command ends in a backslash")?)
            }
            ';' | '&' | '|' | '<' | '>' | '`' | '(' | ')' | '$' => {
                return Err(format!(
                    "{letter:?} has no meaning without a shell; quote it, run one command a call, or give a list of words"
                ));
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(letters: &mut std::str::Chars<'_>, mark: char, word: &mut String) -> Result<(), String> {
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter == mark => return Ok(()),
            '\\' if mark == '"' => match letters.next() {
                Some(next @ ('"' | '\\' | '$' | '`')) => word.push(next),
                Some(next) => word.extend(['\\', next]),
                None => break,
            },
            other => word.push(other),
        }
    }
    Err(format!("a {mark} is not closed"))
}

/// One call of a tool, as `{"tool": "workspace_read", "path": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tool")]
pub enum ToolCall {
    /// `workspace_list`
    #[serde(rename = "workspace_list")]
    List(ListParams),
    /// `workspace_read`
    #[serde(rename = "workspace_read")]
    Read(ReadParams),
    /// `workspace_search`
    #[serde(rename = "workspace_search")]
    Search(SearchParams),
    /// `workspace_write`
    #[serde(rename = "workspace_write")]
    Write(WriteParams),
    /// `workspace_edit`
    #[serde(rename = "workspace_edit")]
    Edit(EditParams),
    /// `workspace_run`
    #[serde(rename = "workspace_run")]
    Run(RunParams),
}

impl ToolCall {
    /// The tool's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::List(_) => "workspace_list",
            Self::Read(_) => "workspace_read",
            Self::Search(_) => "workspace_search",
            Self::Write(_) => "workspace_write",
            Self::Edit(_) => "workspace_edit",
            Self::Run(_) => "workspace_run",
        }
    }

    /// Whether the call may change the workspace, so that it is journalled and gets a receipt.
    pub const fn is_effect(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Edit(_) | Self::Run(_))
    }
}

/// What a listed path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, pipe or device that a command made.
    Other,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// The path from the workspace root.
    pub path: String,
    /// What it is.
    pub kind: ListedKind,
    /// The bytes of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether a file is executable.
    pub executable: bool,
    /// The target of a link, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The answer of `workspace_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage {
    /// The directory listed.
    pub path: String,
    /// The entries, sorted by the bytes of their paths.
    pub entries: Vec<ListEntry>,
    /// Whether entries are missing.
    pub truncated: bool,
    /// How many entries there are in all.
    pub total: u64,
}

/// How the lines of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewlineStyle {
    /// No line ends.
    None,
    /// LF.
    Lf,
    /// CR LF.
    CrLf,
    /// CR alone.
    Cr,
    /// LF and CR LF.
    Mixed,
}

/// The answer of `workspace_read` for a text. `content` holds the lines as they are, with their ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPage {
    /// The file.
    pub path: String,
    /// The lines asked for, ends included.
    pub content: String,
    /// The first line shown, from 1.
    pub start_line: u64,
    /// The last line shown; `start_line - 1` where none is.
    pub end_line: u64,
    /// The lines of the whole file. A final line end opens no further line.
    pub total_lines: u64,
    /// The SHA-256 of the whole file.
    pub sha256: String,
    /// The bytes of the whole file.
    pub size: u64,
    /// How its lines end.
    pub newline: NewlineStyle,
    /// Whether the answer was cut before `end_line` or inside a line.
    pub truncated: bool,
}

/// One match of `workspace_search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchMatch {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// The line without its end, cut around the match where it is long.
    pub text: String,
}

/// Files that were not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedCount {
    /// Why: `binary`, `too_large`, `symlink`, `unreadable`, `special`.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// The answer of `workspace_search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchPage {
    /// The matches, sorted by path and line.
    pub matches: Vec<SearchMatch>,
    /// Whether matches are missing.
    pub truncated: bool,
    /// How many files were searched.
    pub files: u64,
    /// What was not searched, and why.
    pub skipped: Vec<SkippedCount>,
}

/// One stream of a command: head and tail as text, the whole in the blob store up to a bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputText {
    /// The text; bytes that are not UTF-8 as `\xNN`. A line in the middle says how many bytes are left out.
    pub text: String,
    /// How many bytes the command wrote.
    pub bytes: u64,
    /// How many of them stand in the blob.
    pub stored_bytes: u64,
    /// The blob with the stored bytes, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Digest>,
    /// Whether `text` leaves bytes out.
    pub truncated: bool,
    /// Whether the bytes are valid UTF-8 as far as they are shown.
    pub utf8: bool,
}

/// What a command did. Made by `workspace_run` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandObservation {
    /// The receipt; absent where the workspace keeps no journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_receipt_id: Option<ReceiptId>,
    /// Program and arguments as given.
    pub command: Vec<String>,
    /// The working directory, `.` for the root.
    pub cwd: String,
    /// The exit code, where the command ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it was stopped because its time was over.
    pub timed_out: bool,
    /// The time it was given.
    pub timeout_ms: u64,
    /// How long it ran.
    pub duration_ms: u64,
    /// What it wrote to standard output.
    pub stdout: OutputText,
    /// What it wrote to standard error.
    pub stderr: OutputText,
    /// When it started, RFC 3339 in UTC.
    pub observed_at: String,
    /// The containment it ran under: `full` or `none`.
    pub isolation: String,
}

/// What a write or an edit did. Made by `workspace_write` and `workspace_edit` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceMutation {
    /// The receipt; absent where the workspace keeps no journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_receipt_id: Option<ReceiptId>,
    /// The file.
    pub path: String,
    /// The SHA-256 of its new content.
    pub sha256: String,
    /// The BLAKE3 of its new content, as snapshots and deltas name it.
    pub digest: Digest,
    /// The bytes of its new content.
    pub size: u64,
    /// Whether it is executable now.
    pub executable: bool,
    /// When it was written, RFC 3339 in UTC.
    pub observed_at: String,
}

/// The answer of a tool that worked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolAnswer {
    /// Of `workspace_run`.
    Command(CommandObservation),
    /// Of `workspace_write` and `workspace_edit`.
    Mutation(WorkspaceMutation),
    /// Of `workspace_read`.
    Read(ReadPage),
    /// Of `workspace_search`.
    Search(SearchPage),
    /// Of `workspace_list`.
    List(ListPage),
}

/// How a call ended. A command's non-zero exit is `ok` with an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It worked.
    Ok,
    /// The file is not what the caller read.
    Conflict,
    /// The policy forbids it.
    Refused,
    /// The arguments are wrong.
    Invalid,
    /// The path does not exist.
    NotFound,
    /// A bound was exceeded.
    Limit,
    /// The time was over before the tool could answer.
    TimedOut,
    /// The machine failed.
    Failed,
}

/// Why a tool gave no answer. It never names a path of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind of end.
    pub status: ToolStatus,
    /// What is wrong and what to do.
    pub message: String,
    /// For a conflict: the SHA-256 of the file as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sha256: Option<String>,
    /// For a file that is not text: its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl ToolError {
    /// An error with a status and a message.
    pub fn new(status: ToolStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), observed_sha256: None, size: None }
    }
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn words_part_as_in_a_shell_without_one() {
        let words = |text: &str| split_words(text).unwrap();
        assert_eq!(words("python3 -c 'print(1); x'  \"a b\""), ["python3", "-c", "print(1); x", "a b"]);
        assert_eq!(words(r#"a\ b "q\"q" '' "#), ["a b", "q\"q", ""]);
        assert!(words("").is_empty());
        for bad in ["a; b", "a && b", "a | b", "a > b", "$(a)", "`a`", "$HOME", "'open", "a\\"] {
            assert!(split_words(bad).is_err(), "{bad}");
        }
    }
}
