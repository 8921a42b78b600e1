//! Turns the text of a workflow file into a checked [`Workflow`]; every error names the line.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::{Digest, Id, SourceRef, ToolStatus};
use serde_json::{Map, Value};

use crate::graph::{Graph, GraphError};
use crate::reader::{Entry, Fields, Node, read, wrong};
use crate::template::{is_lone, is_template, visit_references};
use crate::tool_shape::{Kind, TOOLS, ToolShape};
use crate::workflow::{
    DEFAULT_CAPABILITIES, Expectation, MAX_CALLS, MAX_STEPS, MAX_WORKFLOW_BYTES, ScriptedCall, Step,
    StepKind, Workflow, WorkflowSource,
};
use crate::{MeshError, MeshErrorKind};

const TOP_KEYS: [&str; 4] = ["id", "goal", "source", "step"];
const STEP_KEYS: [&str; 7] = ["id", "title", "kind", "depends_on", "capabilities", "call", "output"];
const EXPECT_KEYS: [&str; 5] = ["status", "exit_code", "timed_out", "stdout_contains", "stderr_contains"];

/// A step with the lines that later checks name.
struct Draft {
    step: Step,
    line: usize,
    output_line: usize,
    /// The steps that the output references.
    references: BTreeSet<Id>,
}

pub(crate) fn parse(text: String) -> Result<Workflow, MeshError> {
    if text.len() > MAX_WORKFLOW_BYTES {
        let message = format!("the workflow has {} bytes; at most {MAX_WORKFLOW_BYTES}", text.len());
        return Err(MeshError::new(MeshErrorKind::Workflow, message));
    }
    let root = read(&text)?;
    let mut ignored = Vec::new();
    let fields = Fields::open(&root, "", &TOP_KEYS, &mut ignored)?;
    let id = id_of(fields.required_text("id")?, fields.required("id")?.line)?;
    let goal = fields.required_text("goal")?.to_owned();
    let source = fields.entry("source").map(|entry| source(entry, &mut ignored)).transpose()?;
    let nodes = fields.tables("step")?;
    if nodes.is_empty() || nodes.len() > MAX_STEPS {
        let message =
            format!("a workflow has 1 to {MAX_STEPS} steps, written [[step]]; there are {}", nodes.len());
        return Err(wrong(fields.line, message));
    }
    let mut drafts = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        drafts.push(step(node, index, &mut ignored)?);
    }
    let graph = connect(&mut drafts)?;
    let steps = drafts.into_iter().map(|draft| draft.step).collect();
    let digest = Digest::of(text.as_bytes());
    Ok(Workflow { id, goal, source, steps, ignored, text, digest, graph })
}

fn id_of(text: &str, line: usize) -> Result<Id, MeshError> {
    Id::parse(text).map_err(|error| wrong(line, error))
}

fn source(entry: &Entry, ignored: &mut Vec<String>) -> Result<WorkflowSource, MeshError> {
    let fields = Fields::open(&entry.node, "source", &["path", "provider", "locator", "revision"], ignored)?;
    let is_reference = ["provider", "locator", "revision"].iter().any(|key| fields.entry(key).is_some());
    if fields.entry("path").is_none() {
        let provider = fields.required_text("provider")?;
        let locator = fields.required_text("locator")?;
        let revision = fields.text("revision")?.unwrap_or_default();
        let source = SourceRef::new(provider, locator, revision);
        return source.map(WorkflowSource::Reference).map_err(|error| wrong(entry.line, error));
    }
    let path = fields.required_text("path")?;
    if is_reference || path.contains('\0') {
        let message = "source takes either a path, or provider, locator and revision";
        return Err(wrong(entry.line, message));
    }
    Ok(WorkflowSource::Path(path.to_owned()))
}

fn step(node: &Node, index: usize, ignored: &mut Vec<String>) -> Result<Draft, MeshError> {
    let number = format!("#{}", index + 1);
    let name = node.peek_text("id").map_or(number, |text| text.escape_debug().to_string());
    let fields = Fields::open(node, format!("step.{name}"), &STEP_KEYS, ignored)?;
    let id = id_of(fields.required_text("id")?, fields.required("id")?.line)?;
    let kind = match fields.text("kind")? {
        None | Some("workspace") => StepKind::Workspace,
        Some("final_response") => StepKind::FinalResponse,
        Some(other) => {
            let message = format!("{} is {other:?}; it is workspace or final_response", fields.path("kind"));
            return Err(wrong(fields.required("kind")?.line, message));
        }
    };
    let calls = calls(&fields, ignored)?;
    let output_entry = fields.entry("output");
    let output = output_entry.map_or_else(|| Value::Object(Map::new()), |entry| entry.node.to_json());
    let output_line = output_entry.map_or(fields.line, |entry| entry.line);
    check_templates(&output, &calls)
        .map_err(|message| wrong(output_line, format_args!("{}: {message}", fields.path("output"))))?;
    let mut references = BTreeSet::new();
    artifact_references(&output, &mut references)
        .map_err(|message| wrong(output_line, format_args!("{}: {message}", fields.path("output"))))?;
    let capabilities = capabilities(&fields, kind, &calls)?;
    if kind == StepKind::FinalResponse && (!calls.is_empty() || output_entry.is_none()) {
        let message = "a final response has no workspace: it takes an output and no calls";
        return Err(wrong(fields.line, format_args!("{}: {message}", fields.place)));
    }
    let title = fields.text("title")?.map_or_else(|| id.to_string(), str::to_owned);
    let step = Step { id, title, kind, depends_on: depends_on(&fields)?, capabilities, calls, output };
    Ok(Draft { step, line: fields.line, output_line, references })
}

fn depends_on(fields: &Fields<'_>) -> Result<Vec<Id>, MeshError> {
    let mut names = Vec::new();
    let mut met = BTreeSet::new();
    for (line, text) in fields.texts("depends_on")?.unwrap_or_default() {
        let name = id_of(text, line)?;
        if !met.insert(name.clone()) {
            return Err(wrong(line, format_args!("{} names {name} twice", fields.path("depends_on"))));
        }
        names.push(name);
    }
    Ok(names)
}

fn capabilities(
    fields: &Fields<'_>,
    kind: StepKind,
    calls: &[ScriptedCall],
) -> Result<BTreeSet<String>, MeshError> {
    let Some(texts) = fields.texts("capabilities")? else {
        return Ok(match kind {
            StepKind::Workspace => DEFAULT_CAPABILITIES.map(str::to_owned).into(),
            StepKind::FinalResponse => BTreeSet::new(),
        });
    };
    let line = fields.required("capabilities")?.line;
    if kind == StepKind::FinalResponse && !texts.is_empty() {
        return Err(wrong(line, format_args!("{}: a final response has none", fields.path("capabilities"))));
    }
    let mut capabilities = BTreeSet::new();
    for (line, text) in texts {
        capabilities.insert(id_of(text, line)?.to_string());
    }
    if let Some(call) = calls.iter().find(|call| !capabilities.contains(call.shape.capability)) {
        let (path, needed) = (fields.path("capabilities"), call.shape.capability);
        let message = format!("{path} lacks {needed:?}, which call {} needs for {}", call.id, call.tool());
        return Err(wrong(line, message));
    }
    Ok(capabilities)
}

fn calls(fields: &Fields<'_>, ignored: &mut Vec<String>) -> Result<Vec<ScriptedCall>, MeshError> {
    let nodes = fields.tables("call")?;
    if nodes.len() > MAX_CALLS {
        let message = format!("{} has {} calls; at most {MAX_CALLS}", fields.place, nodes.len());
        return Err(wrong(fields.line, message));
    }
    let mut calls: Vec<ScriptedCall> = Vec::with_capacity(nodes.len());
    let mut shapes: BTreeMap<Id, &'static ToolShape> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let call = call(node, index, &fields.place, &shapes, ignored)?;
        if shapes.insert(call.id.clone(), call.shape).is_some() {
            let message = format!("{} has two calls with the id {}", fields.place, call.id);
            return Err(wrong(node.line, message));
        }
        calls.push(call);
    }
    Ok(calls)
}

fn call(
    node: &Node,
    index: usize,
    place: &str,
    earlier: &BTreeMap<Id, &'static ToolShape>,
    ignored: &mut Vec<String>,
) -> Result<ScriptedCall, MeshError> {
    let default_id = format!("call-{}", index + 1);
    let id_text = node.peek_text("id").unwrap_or(&default_id);
    let place = format!("{place}.call.{}", id_text.escape_debug());
    let tool = node.peek_text("tool").unwrap_or_default();
    let Some(shape) = ToolShape::named(tool) else {
        let names = TOOLS.each_ref().map(|tool| tool.name).join(", ");
        let what = if tool.is_empty() { "is missing".to_owned() } else { format!("is {tool:?}") };
        return Err(wrong(node.line_of("tool"), format_args!("{place}.tool {what}; the tools are {names}")));
    };
    let mut known = vec!["id", "tool", "expect"];
    known.extend(shape.parameters.iter().map(|parameter| parameter.name));
    let fields = Fields::open(node, place, &known, ignored)?;
    let id = id_of(fields.text("id")?.unwrap_or(&default_id), fields.line)?;
    if id.as_str().contains('.') {
        let message = format!("{}: the id of a call has no dot, since templates part at dots", fields.place);
        return Err(wrong(fields.line, message));
    }
    let parameters = parameters(&fields, shape, earlier)?;
    let expect = match fields.entry("expect") {
        None => Expectation::default(),
        Some(entry) => expectation(entry, fields.path("expect"), shape, ignored)?,
    };
    Ok(ScriptedCall { id, parameters, expect, shape })
}

fn parameters(
    fields: &Fields<'_>,
    shape: &'static ToolShape,
    earlier: &BTreeMap<Id, &'static ToolShape>,
) -> Result<Map<String, Value>, MeshError> {
    let mut parameters = Map::new();
    let mut has_template = false;
    for parameter in shape.parameters {
        let entry = match fields.entry(parameter.name) {
            Some(entry) => entry,
            None if parameter.required => fields.required(parameter.name)?,
            None => continue,
        };
        let path = fields.path(parameter.name);
        let value = entry.node.to_json();
        if is_template(&value) {
            has_template = true;
            visit_references(&value, &mut |reference| {
                check_reference(reference, |call| earlier.get(call).copied())
            })
            .map_err(|message| wrong(entry.line, format_args!("{path}: {message}")))?;
            if parameter.kind == Kind::Words && value.is_string() && !is_lone(&value) {
                let message = format!("{path} must be a list of words where it holds a template");
                return Err(wrong(entry.line, message));
            }
        }
        if !is_lone(&value) {
            let must = |wanted| wrong(entry.line, format_args!("{path} must be {wanted}"));
            parameter.kind.check(&value).map_err(must)?;
        }
        parameters.insert(parameter.name.to_owned(), value);
    }
    if !has_template {
        let check = shape.call(parameters.clone());
        check.map_err(|message| wrong(fields.line, format_args!("{}: {message}", fields.place)))?;
    }
    Ok(parameters)
}

fn expectation(
    entry: &Entry,
    path: String,
    shape: &ToolShape,
    ignored: &mut Vec<String>,
) -> Result<Expectation, MeshError> {
    let fields = Fields::open(&entry.node, path, &EXPECT_KEYS, ignored)?;
    let status = match fields.text("status")? {
        None => None,
        Some(text) => {
            let status: Result<ToolStatus, _> = serde_json::from_value(text.into());
            Some(
                status
                    .map_err(|error| wrong(entry.line, format_args!("{}: {error}", fields.path("status"))))?,
            )
        }
    };
    let about_command: Vec<&str> =
        EXPECT_KEYS[1..].iter().copied().filter(|key| fields.entry(key).is_some()).collect();
    let answers_command = shape.capability == "run" && matches!(status, None | Some(ToolStatus::Ok));
    if let Some(key) = about_command.first().filter(|_| !answers_command) {
        let message = format!("{} can be expected of a workspace_run with status ok only", fields.path(key));
        return Err(wrong(entry.line, message));
    }
    let exit_code = fields.integer("exit_code")?.map(i32::try_from).transpose();
    let exit_code = exit_code
        .map_err(|_| wrong(entry.line, format_args!("{} is out of range", fields.path("exit_code"))))?;
    let text = |key| fields.text(key).map(|text| text.map(str::to_owned));
    Ok(Expectation {
        status,
        exit_code,
        timed_out: fields.flag("timed_out")?,
        stdout_contains: text("stdout_contains")?,
        stderr_contains: text("stderr_contains")?,
    })
}

fn check_reference(
    reference: &crate::template::Reference,
    shape_of: impl Fn(&Id) -> Option<&'static ToolShape>,
) -> Result<(), String> {
    let name = &reference.call;
    let shape = Id::parse(name.as_str()).ok().and_then(|id| shape_of(&id)).ok_or_else(|| {
        format!(
            "\"${{{name}…}}\" names no earlier call of this step; write \"$${{\" where the text itself holds \"${{\""
        )
    })?;
    match reference.fields.first() {
        Some(field) if !shape.answers(field) => {
            let fields = shape.answer.join(", ");
            Err(format!(
                "call {name} answers no {field:?}; {} answers {fields}, status and receipt",
                shape.name
            ))
        }
        _ => Ok(()),
    }
}

fn check_templates(output: &Value, calls: &[ScriptedCall]) -> Result<(), String> {
    if !is_template(output) {
        return Ok(());
    }
    let shapes: BTreeMap<&Id, &'static ToolShape> = calls.iter().map(|call| (&call.id, call.shape)).collect();
    visit_references(output, &mut |reference| check_reference(reference, |id| shapes.get(id).copied()))
}

/// Collects the steps that `{ artifact_ref = { step_id = …, path = […] } }` name.
fn artifact_references(value: &Value, found: &mut BTreeSet<Id>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| artifact_references(item, found)),
        Value::Object(fields) => match fields.get("artifact_ref") {
            None => fields.values().try_for_each(|field| artifact_references(field, found)),
            Some(_) if fields.len() > 1 => Err("artifact_ref has no other keys beside it".to_owned()),
            Some(reference) => {
                let form = "artifact_ref takes step_id, and path as a list of texts and whole numbers";
                let Value::Object(reference) = reference else { return Err(form.to_owned()) };
                let step = reference.get("step_id").and_then(Value::as_str).ok_or(form)?;
                let legal = |part: &Value| part.is_string() || part.is_u64();
                let path_is_legal = reference
                    .get("path")
                    .is_none_or(|path| path.as_array().is_some_and(|parts| parts.iter().all(legal)));
                if !path_is_legal || reference.keys().any(|key| key != "step_id" && key != "path") {
                    return Err(form.to_owned());
                }
                found.insert(Id::parse(step).map_err(|error| error.to_string())?);
                Ok(())
            }
        },
        _ => Ok(()),
    }
}

/// Completes what final responses wait for, builds the graph and checks what crosses steps.
fn connect(drafts: &mut [Draft]) -> Result<Graph, MeshError> {
    let mut kinds: BTreeMap<Id, StepKind> = BTreeMap::new();
    for draft in drafts.iter() {
        if kinds.insert(draft.step.id.clone(), draft.step.kind).is_some() {
            return Err(wrong(draft.line, format_args!("two steps have the id {}", draft.step.id)));
        }
    }
    let workspaces: Vec<Id> = drafts
        .iter()
        .filter(|draft| draft.step.kind == StepKind::Workspace)
        .map(|draft| draft.step.id.clone())
        .collect();
    for draft in drafts.iter_mut().filter(|draft| draft.step.kind == StepKind::FinalResponse) {
        if draft.step.depends_on.is_empty() {
            draft.step.depends_on.clone_from(&workspaces);
        }
        let direct: BTreeSet<Id> = draft.step.depends_on.iter().cloned().collect();
        draft.step.depends_on.extend(draft.references.difference(&direct).cloned());
    }
    let edges: Vec<(Id, Vec<Id>)> =
        drafts.iter().map(|draft| (draft.step.id.clone(), draft.step.depends_on.clone())).collect();
    let graph = Graph::new(&edges).map_err(|error| graph_error(error, drafts))?;
    for (index, draft) in drafts.iter().enumerate() {
        let is_final = |name: &&Id| kinds.get(*name) == Some(&StepKind::FinalResponse);
        if let Some(name) = draft.step.depends_on.iter().find(is_final) {
            let message = format!("step {} waits for {name}, a final response; nothing can", draft.step.id);
            return Err(wrong(draft.line, message));
        }
        if draft.references.is_empty() {
            continue;
        }
        let ancestors = graph.ancestors(index);
        let visible = |name: &&Id| graph.index_of(name).is_some_and(|at| ancestors.contains(&at));
        if let Some(name) = draft.references.iter().find(|name| !visible(name)) {
            let message = format!(
                "the output of step {} references {name}, which it does not wait for; add it to depends_on",
                draft.step.id
            );
            return Err(wrong(draft.output_line, message));
        }
    }
    Ok(graph)
}

fn graph_error(error: GraphError, drafts: &[Draft]) -> MeshError {
    match error {
        GraphError::Unknown { step, name } => {
            let draft = &drafts[step];
            wrong(draft.line, format_args!("step {} waits for {name}, which is no step", draft.step.id))
        }
        GraphError::Cycle(steps) => {
            let names: Vec<&str> =
                steps.iter().chain(steps.first()).map(|step| drafts[*step].step.id.as_str()).collect();
            let line = steps.first().map_or(1, |step| drafts[*step].line);
            wrong(line, format_args!("steps wait for each other: {}", names.join(" -> ")))
        }
    }
}

#[cfg(test)]
mod tests;
