//! Where output goes: text or one JSON document on standard output, errors and remarks on standard error.

use std::io::{self, IsTerminal, Write};

use coldframe::Error;
use serde_json::{Value, json};

use crate::text::{shown_lines, tamed};

/// How this call of the program speaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// One JSON document on standard output in place of text.
    pub(crate) json: bool,
    /// Whether remarks are wanted beyond the usual.
    pub(crate) verbose: bool,
}

impl Output {
    /// Prints `document` in JSON mode, else what `text` gives.
    ///
    /// # Errors
    ///
    /// Those of standard output; a closed pipe is one of them.
    pub(crate) fn answer(self, document: &Value, text: impl FnOnce() -> String) -> io::Result<()> {
        if self.json { print(&format!("{document:#}\n")) } else { print(&text()) }
    }

    /// Prints a line for people on standard error; JSON mode is silent.
    pub(crate) fn remark(self, line: &str) {
        if !self.json {
            // Standard error that cannot be written to is no reason to stop the work.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Prints an error: text on standard error, or a JSON document on standard output.
    pub(crate) fn error(self, error: &Error, exit_code: u8) {
        if self.json {
            let _ = print(&format!("{:#}\n", error_document(error, exit_code)));
        } else {
            let _ = writeln!(io::stderr(), "error: {}", shown_lines(&error.to_string()));
        }
    }
}

/// `{"error": {"kind", "message", "exit_code", "details"?}}`.
pub(crate) fn error_document(error: &Error, exit_code: u8) -> Value {
    let mut document = json!({
        "kind": error.kind().as_str(),
        "message": error.to_string(),
        "exit_code": exit_code,
    });
    if let (Some(details), Some(fields)) = (error.details(), document.as_object_mut()) {
        fields.insert("details".to_owned(), details.clone());
    }
    json!({ "error": document })
}

/// Prints text on standard output.
///
/// # Errors
///
/// Those of standard output; a closed pipe is one of them.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes as they are.
///
/// # Errors
///
/// Those of standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Passes on what a command wrote: every byte to a file or a pipe, without steering sequences to a terminal.
///
/// # Errors
///
/// Those of the stream.
pub(crate) fn pass_on(mut stream: impl Write + IsTerminal, bytes: &[u8]) -> io::Result<()> {
    if stream.is_terminal() {
        stream.write_all(tamed(bytes).as_bytes())?;
    } else {
        stream.write_all(bytes)?;
    }
    stream.flush()
}
