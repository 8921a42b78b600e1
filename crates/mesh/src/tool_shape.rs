//! The parameters and answer fields of the six tools, so that a workflow file is checked before it runs.

use coldframe_core::ToolCall;
use serde_json::{Map, Value};

/// What a parameter must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
    /// A list of words. Text is taken too, except where it was made by a template: then its blanks would
    /// part it into words that the workflow's author never wrote.
    Words,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
}

#[derive(Debug)]
pub(crate) struct ToolShape {
    pub(crate) name: &'static str,
    pub(crate) capability: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) answer: &'static [&'static str],
}

const fn need(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, kind, required: true }
}

const fn may(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, kind, required: false }
}

/// Fields that every answer can have: of the mesh, and of a tool's error.
pub(crate) const COMMON_FIELDS: [&str; 5] = ["status", "receipt", "message", "observed_sha256", "size"];

const MUTATION: &[&str] =
    &["tool_receipt_id", "path", "sha256", "digest", "size", "executable", "observed_at"];

pub(crate) const TOOLS: [ToolShape; 6] = [
    ToolShape {
        name: "workspace_list",
        capability: "read",
        parameters: &[may("path", Kind::Text), may("recursive", Kind::Flag), may("limit", Kind::Number)],
        answer: &["path", "entries", "truncated", "total"],
    },
    ToolShape {
        name: "workspace_read",
        capability: "read",
        parameters: &[
            need("path", Kind::Text),
            may("start_line", Kind::Number),
            may("end_line", Kind::Number),
        ],
        answer: &[
            "path",
            "content",
            "start_line",
            "end_line",
            "total_lines",
            "sha256",
            "size",
            "newline",
            "truncated",
        ],
    },
    ToolShape {
        name: "workspace_search",
        capability: "read",
        parameters: &[
            need("query", Kind::Text),
            may("path", Kind::Text),
            may("glob", Kind::Text),
            may("regex", Kind::Flag),
            may("limit", Kind::Number),
        ],
        answer: &["matches", "truncated", "files", "skipped"],
    },
    ToolShape {
        name: "workspace_write",
        capability: "write",
        parameters: &[need("path", Kind::Text), need("content", Kind::Text), may("executable", Kind::Flag)],
        answer: MUTATION,
    },
    ToolShape {
        name: "workspace_edit",
        capability: "write",
        parameters: &[
            need("path", Kind::Text),
            need("start_line", Kind::Number),
            need("end_line", Kind::Number),
            need("replacement", Kind::Text),
            need("expected_sha256", Kind::Text),
        ],
        answer: MUTATION,
    },
    ToolShape {
        name: "workspace_run",
        capability: "run",
        parameters: &[need("command", Kind::Words), may("cwd", Kind::Text)],
        answer: &[
            "tool_receipt_id",
            "command",
            "cwd",
            "exit_code",
            "signal",
            "timed_out",
            "timeout_ms",
            "duration_ms",
            "stdout",
            "stderr",
            "observed_at",
            "isolation",
        ],
    },
];

impl ToolShape {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Whether an answer of the tool can have the field.
    pub(crate) fn answers(&self, field: &str) -> bool {
        self.answer.contains(&field) || COMMON_FIELDS.contains(&field)
    }

    /// Makes the call of parameters in which no template is left.
    pub(crate) fn call(&self, mut parameters: Map<String, Value>) -> Result<ToolCall, String> {
        parameters.insert("tool".to_owned(), Value::String(self.name.to_owned()));
        serde_json::from_value(Value::Object(parameters)).map_err(|error| error.to_string())
    }
}

impl Kind {
    /// Says what is wrong with the value, if anything is.
    pub(crate) fn check(self, value: &Value) -> Result<(), &'static str> {
        let fits = match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_u64(),
            Self::Flag => value.is_boolean(),
            Self::Words => {
                value.is_string()
                    || value.as_array().is_some_and(|words| {
                        !words.is_empty() && words.iter().all(serde_json::Value::is_string)
                    })
            }
        };
        if fits { Ok(()) } else { Err(self.wanted()) }
    }

    pub(crate) const fn wanted(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Number => "a whole number that is not negative",
            Self::Flag => "true or false",
            Self::Words => "a list of words, or a command line",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldframe_core::{
        CommandObservation, Digest, ListPage, NewlineStyle, OutputText, ReadPage, SearchPage, ToolAnswer,
        ToolError, ToolStatus, WorkspaceMutation,
    };

    fn sample(kind: Kind) -> Value {
        match kind {
            Kind::Text => "x".into(),
            Kind::Number => 1.into(),
            Kind::Flag => true.into(),
            Kind::Words => serde_json::json!(["x"]),
        }
    }

    #[test]
    fn the_tables_name_the_parameters_of_the_contract() {
        for tool in &TOOLS {
            let all: Map<String, Value> =
                tool.parameters.iter().map(|it| (it.name.to_owned(), sample(it.kind))).collect();
            let call = tool.call(all.clone()).unwrap();
            assert_eq!(call.name(), tool.name);
            assert_eq!(call.is_effect(), tool.capability != "read");
            let Value::Object(mut written) = serde_json::to_value(&call).unwrap() else { panic!() };
            written.remove("tool");
            assert_eq!(written, all, "{}", tool.name);
            for parameter in tool.parameters {
                let mut fewer = all.clone();
                fewer.remove(parameter.name);
                assert_eq!(tool.call(fewer).is_err(), parameter.required, "{} {}", tool.name, parameter.name);
            }
        }
    }

    #[test]
    fn the_tables_name_the_answer_fields_of_the_contract() {
        let text = String::new;
        let receipt = coldframe_core::ReceiptId::parse("tool:w:s:1").ok();
        let command = ToolAnswer::Command(CommandObservation {
            tool_receipt_id: receipt.clone(),
            command: vec![],
            cwd: text(),
            exit_code: None,
            signal: Some(9),
            timed_out: false,
            timeout_ms: 1,
            duration_ms: 1,
            stdout: OutputText::default(),
            stderr: OutputText::default(),
            observed_at: text(),
            isolation: text(),
        });
        let digest = Digest::of(b"");
        let mutation = ToolAnswer::Mutation(WorkspaceMutation {
            tool_receipt_id: receipt,
            path: text(),
            sha256: text(),
            digest,
            size: 0,
            executable: false,
            observed_at: text(),
        });
        let read = ToolAnswer::Read(ReadPage {
            path: text(),
            content: text(),
            start_line: 1,
            end_line: 1,
            total_lines: 1,
            sha256: text(),
            size: 0,
            newline: NewlineStyle::Lf,
            truncated: false,
        });
        let search =
            ToolAnswer::Search(SearchPage { matches: vec![], truncated: false, files: 0, skipped: vec![] });
        let list = ToolAnswer::List(ListPage { path: text(), entries: vec![], truncated: false, total: 0 });
        let answers = [list, read, search, mutation.clone(), mutation, command];
        for (tool, answer) in TOOLS.iter().zip(answers) {
            let Value::Object(fields) = serde_json::to_value(&answer).unwrap() else { panic!() };
            let mut table: Vec<&str> = tool.answer.to_vec();
            table.sort_unstable();
            let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, table, "{}", tool.name);
        }
        let mut error = ToolError::new(ToolStatus::Conflict, "changed");
        (error.observed_sha256, error.size) = (Some(text()), Some(1));
        let Value::Object(fields) = serde_json::to_value(&error).unwrap() else { panic!() };
        assert!(fields.keys().all(|name| COMMON_FIELDS.contains(&name.as_str())), "{fields:?}");
    }
}
