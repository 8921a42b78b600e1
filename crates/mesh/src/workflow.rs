//! The workflow: a graph of steps with scripted tool calls, fully checked before anything runs.

use std::collections::BTreeSet;

use coldframe_core::{Digest, Id, SourceRef, ToolCall, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::graph::Graph;
use crate::template::Resolver;
use crate::tool_shape::ToolShape;
use crate::{CallAnswer, MeshError};

/// The longest workflow file, in bytes.
pub const MAX_WORKFLOW_BYTES: usize = 2 << 20;

/// The most steps of a workflow.
pub const MAX_STEPS: usize = 1_000;

/// The most calls of a step.
pub const MAX_CALLS: usize = 1_000;

/// Capabilities that a workspace step has unless it names its own.
pub const DEFAULT_CAPABILITIES: [&str; 3] = ["read", "run", "write"];

/// Where the files of a workflow come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkflowSource {
    /// A path, relative to the folder of the workflow file.
    Path(String),
    /// A source of any provider.
    Reference(SourceRef),
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Works in a workspace of its own.
    Workspace,
    /// Composes an answer from what other steps left; it has no workspace.
    FinalResponse,
}

/// What a call must answer. Absent checks pass; without any, the status must be `ok`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Expectation {
    /// The status; `ok` where it is absent.
    pub status: Option<ToolStatus>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// Whether a command was stopped because its time was over.
    pub timed_out: Option<bool>,
    /// What standard output holds.
    pub stdout_contains: Option<String>,
    /// What standard error holds.
    pub stderr_contains: Option<String>,
}

/// One scripted tool call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScriptedCall {
    /// Unique within the step; `call-<n>` where the file gives none.
    pub id: Id,
    /// The parameters, with templates.
    pub parameters: Map<String, Value>,
    /// What the answer must be.
    pub expect: Expectation,
    pub(crate) shape: &'static ToolShape,
}

impl ScriptedCall {
    /// The name of the tool.
    pub fn tool(&self) -> &'static str {
        self.shape.name
    }

    /// Fills the answers of earlier calls in. The message says which parameter is wrong.
    pub(crate) fn resolve<'a>(
        &self,
        lookup: impl Fn(&str) -> Option<&'a CallAnswer>,
    ) -> Result<ToolCall, String> {
        let mut resolver = Resolver::new(|call: &str| lookup(call).map(|answer| &answer.value));
        let mut parameters = Map::new();
        for (name, value) in &self.parameters {
            let resolved = resolver.resolve(value).map_err(|message| format!("{name}: {message}"))?;
            let parameter = self.shape.parameters.iter().find(|parameter| parameter.name == name);
            let kind = parameter.ok_or_else(|| format!("{name} is no parameter"))?.kind;
            kind.check(&resolved).map_err(|wanted| format!("{name} must be {wanted}"))?;
            if kind == crate::tool_shape::Kind::Words && resolved.is_string() && resolved != *value {
                return Err(format!("{name} must be a list of words where a template makes it"));
            }
            parameters.insert(name.clone(), resolved);
        }
        self.shape.call(parameters)
    }
}

/// One step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// Unique within the workflow.
    pub id: Id,
    /// For people; the id where the file gives none.
    pub title: String,
    /// What it does.
    pub kind: StepKind,
    /// The steps that it waits for directly. For a final response they include every step that it references.
    pub depends_on: Vec<Id>,
    /// What it may do; empty for a final response.
    pub capabilities: BTreeSet<String>,
    /// What it does, in order.
    pub calls: Vec<ScriptedCall>,
    /// What it answers, with templates and artifact references.
    pub output: Value,
}

/// A workflow that has been read and checked.
#[derive(Debug, Clone)]
pub struct Workflow {
    pub(crate) id: Id,
    pub(crate) goal: String,
    pub(crate) source: Option<WorkflowSource>,
    pub(crate) steps: Vec<Step>,
    pub(crate) ignored: Vec<String>,
    pub(crate) text: String,
    pub(crate) digest: Digest,
    pub(crate) graph: Graph,
}

impl Workflow {
    /// Reads the text of a workflow file, format 1: see `docs/formats/workflow.md`.
    ///
    /// Keys, types, references, capabilities and the graph are checked; an error is a
    /// [`MeshErrorKind::Workflow`](crate::MeshErrorKind::Workflow) that names the line.
    pub fn parse(text: impl Into<String>) -> Result<Self, MeshError> {
        crate::parse::parse(text.into())
    }

    /// The id.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// What the workflow is for.
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// Where the files come from, where the workflow says so.
    pub fn source(&self) -> Option<&WorkflowSource> {
        self.source.as_ref()
    }

    /// The steps in the order of the file.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step with that id.
    pub fn step(&self, id: &Id) -> Option<&Step> {
        self.graph.index_of(id).map(|index| &self.steps[index])
    }

    /// The keys that tried to carry authority, with their paths. They have no effect.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The text as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// BLAKE3 of the text.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
