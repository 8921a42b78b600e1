//! Replaces references to other steps' outputs by copies of what they name.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::Id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::EvidenceError;
use crate::bounds::{MAX_DEPTH, Walk, bounded, push_key, weigh};
use crate::error::{Fault, FaultReason, MAX_FAULTS, shown};

const REFERENCE_KEY: &str = "artifact_ref";

/// One segment of a path into an output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathSegment {
    /// An item of a list, from 0.
    Index(u64),
    /// A field of an object.
    Field(String),
}

/// Names a value in the output of a step. In an output it stands as
/// `{"artifact_ref": {"step_id": "…", "path": ["field", 0]}}`, alone in its object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactReference {
    /// The step.
    pub step_id: Id,
    /// The way into its output; empty for the whole.
    #[serde(default)]
    pub path: Vec<PathSegment>,
}

/// Where references must stand: a JSON path in the form of RFC 6901 in which a segment `*` stands for every item
/// of a list, such as `/steps/*/evidence`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencePattern(Vec<String>);

impl ReferencePattern {
    /// Reads a pattern; the empty text means the whole value.
    pub fn parse(text: &str) -> Result<Self, EvidenceError> {
        let refuse = |why: &str| {
            Err(EvidenceError::Misuse(format!("{} is not a reference pattern: {why}", shown(text))))
        };
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let Some(rest) = text.strip_prefix('/') else { return refuse("it must start with '/'") };
        let segments: Vec<String> =
            rest.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect();
        if segments.len() > MAX_DEPTH { refuse("it is too deep") } else { Ok(Self(segments)) }
    }
}

/// What an output may and must refer to.
#[derive(Debug, Clone, Default)]
pub struct ReferenceRules {
    /// The steps that it may refer to.
    pub visible_steps: BTreeSet<Id>,
    /// The places where a reference must stand and a literal may not. An empty list satisfies a `*`.
    pub required: Vec<ReferencePattern>,
}

/// Replaces every reference in `value` by a deep copy of what it names in `outputs`; references inside the copy
/// are replaced in turn. All errors are reported at once, each with its JSON path.
pub fn hydrate_artifact_references(
    value: Value,
    outputs: &BTreeMap<Id, Value>,
    rules: &ReferenceRules,
) -> Result<Value, EvidenceError> {
    let mut value = bounded(value).map_err(|fault| EvidenceError::References(vec![fault]))?;
    let mut faults = Vec::new();
    for pattern in &rules.required {
        check_required(&value, &pattern.0, &mut String::new(), &mut faults);
    }
    let mut resolution = Resolution { outputs, rules, walk: Walk::new(), active: Vec::new(), depth: 0 };
    resolution.visit(&mut value);
    faults.extend(resolution.walk.into_faults());
    faults.truncate(MAX_FAULTS);
    if faults.is_empty() { Ok(value) } else { Err(EvidenceError::References(faults)) }
}

fn check_required(value: &Value, pattern: &[String], place: &mut String, faults: &mut Vec<Fault>) {
    if faults.len() >= MAX_FAULTS || is_reference(value) {
        return;
    }
    let mut refuse = |reason: FaultReason, message: &str| {
        faults.push(Fault { place: place.clone(), reason, message: message.to_owned() });
    };
    const MISSING: &str = "a reference to another step's output is required here; nothing is there";
    const LITERAL: &str = "a reference to another step's output is required here, not a literal";
    let Some((segment, rest)) = pattern.split_first() else {
        return match value {
            Value::Null => refuse(FaultReason::MissingRequired, MISSING),
            _ => refuse(FaultReason::LiteralAtRequired, LITERAL),
        };
    };
    let length = place.len();
    match value {
        Value::Array(items) if segment == "*" => {
            for (index, item) in items.iter().enumerate() {
                push_key(place, &index.to_string());
                check_required(item, rest, place, faults);
                place.truncate(length);
            }
        }
        Value::Array(_) | Value::Object(_) => {
            let child = match value {
                Value::Array(items) => segment.parse().ok().and_then(|index: usize| items.get(index)),
                _ => value.get(segment.as_str()),
            };
            push_key(place, segment);
            check_required(child.unwrap_or(&Value::Null), rest, place, faults);
            place.truncate(length);
        }
        Value::Null => refuse(FaultReason::MissingRequired, MISSING),
        _ => refuse(FaultReason::LiteralAtRequired, LITERAL),
    }
}

fn is_reference(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.contains_key(REFERENCE_KEY))
}

struct Resolution<'a> {
    outputs: &'a BTreeMap<Id, Value>,
    rules: &'a ReferenceRules,
    walk: Walk,
    /// The references that are being followed, outermost first.
    active: Vec<ArtifactReference>,
    depth: usize,
}

impl<'a> Resolution<'a> {
    fn visit(&mut self, value: &mut Value) {
        if self.depth >= MAX_DEPTH {
            let message = format!("with its references followed the value nests deeper than {MAX_DEPTH}");
            self.walk.fault(FaultReason::TooDeep, message);
            return;
        }
        self.depth += 1;
        match value {
            Value::Object(map) if map.contains_key(REFERENCE_KEY) => match self.follow(map) {
                Ok(copy) => *value = copy,
                Err(Some((reason, message))) => self.walk.fault(reason, message),
                Err(None) => {}
            },
            _ => Walk::children(self, value, |resolution| &mut resolution.walk, Self::visit),
        }
        self.depth -= 1;
    }

    /// The copy that takes the reference's place; `Err(None)` where the fault is noted already.
    fn follow(&mut self, map: &Map<String, Value>) -> Result<Value, Option<(FaultReason, String)>> {
        let reference = parse(map).map_err(|message| Some((FaultReason::InvalidReference, message)))?;
        if self.active.contains(&reference) {
            let message = format!("the reference to step {} leads back to itself", reference.step_id);
            return Err(Some((FaultReason::Cycle, message)));
        }
        let target = self.find(&reference).map_err(Some)?;
        let weight = weigh(target);
        if weight.depth + self.depth > MAX_DEPTH {
            let message = format!("with its references followed the value nests deeper than {MAX_DEPTH}");
            return Err(Some((FaultReason::TooDeep, message)));
        }
        if !self.walk.grow(weight.bytes) {
            return Err(None);
        }
        let mut copy = target.clone();
        self.active.push(reference);
        self.visit(&mut copy);
        self.active.pop();
        Ok(copy)
    }

    fn find(&self, reference: &ArtifactReference) -> Result<&'a Value, (FaultReason, String)> {
        let step = &reference.step_id;
        let Some(mut value) = self.outputs.get(step) else {
            return Err((FaultReason::UnknownStep, format!("no step {step} has an output")));
        };
        if !self.rules.visible_steps.contains(step) {
            let detail = format!("step {step} is not one that this step depends on");
            return Err((FaultReason::InvisibleStep, detail));
        }
        let bad = |detail: String| (FaultReason::BadPath, format!("the output of step {step} {detail}"));
        let mut place = String::new();
        for segment in &reference.path {
            value = match (segment, value) {
                (PathSegment::Field(field), Value::Object(map)) => map
                    .get(field)
                    .ok_or_else(|| bad(format!("has no field {} at {}", shown(field), shown(&place))))?,
                (PathSegment::Index(index), Value::Array(items)) => {
                    usize::try_from(*index).ok().and_then(|index| items.get(index)).ok_or_else(|| {
                        bad(format!(
                            "has {} items at {}, none with index {index}",
                            items.len(),
                            shown(&place)
                        ))
                    })?
                }
                (PathSegment::Field(_), _) => return Err(bad(format!("has no object at {}", shown(&place)))),
                (PathSegment::Index(_), _) => return Err(bad(format!("has no list at {}", shown(&place)))),
            };
            match segment {
                PathSegment::Field(field) => push_key(&mut place, field),
                PathSegment::Index(index) => push_key(&mut place, &index.to_string()),
            }
        }
        Ok(value)
    }
}

fn parse(map: &Map<String, Value>) -> Result<ArtifactReference, String> {
    const FORM: &str = r#"{"artifact_ref": {"step_id": "…", "path": ["field", 0]}}"#;
    if map.len() > 1 {
        return Err(format!("a reference stands alone in its object, as {FORM}"));
    }
    let value = map.get(REFERENCE_KEY).unwrap_or(&Value::Null);
    let segments = value.get("path").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if segments.iter().any(|segment| segment.as_i64().is_some_and(|index| index < 0)) {
        return Err("an index counts from 0 and is not negative".to_owned());
    }
    if !value.is_object() {
        return Err(format!("a reference has the form {FORM}"));
    }
    ArtifactReference::deserialize(value)
        .map_err(|error| format!("a reference has the form {FORM}: {}", shown(&error.to_string())))
}
