//! Templates: `${call.field.sub}` in the texts of a workflow, replaced by values of a call's answer.
//!
//! A text that is one template alone takes the value with its type; within other text only texts, numbers and
//! booleans can stand. `$${` writes `${`. Keys are never templates.

use serde_json::Value;

/// The most bytes that templates may bring into one call or one output. A short text can name a long answer
/// many times, so without a bound it could fill the memory.
pub(crate) const MAX_EXPANDED_BYTES: usize = 16 << 20;

/// One `${call.field.sub}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) call: String,
    pub(crate) fields: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Reference(Reference),
}

fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            literal.push_str(&rest[..start - 1]);
            literal.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        literal.push_str(&rest[..start]);
        let body = &rest[start + 2..];
        let end = body.find('}').ok_or_else(|| {
            "\"${\" without \"}\"; write \"$${\" where the text itself holds \"${\"".to_owned()
        })?;
        if !literal.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut literal)));
        }
        parts.push(Part::Reference(reference(&body[..end])?));
        rest = &body[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

fn reference(body: &str) -> Result<Reference, String> {
    let legal = |segment: &str| {
        !segment.is_empty()
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let mut segments = body.split('.');
    let call = segments.next().unwrap_or_default();
    let fields: Vec<String> = segments.map(str::to_owned).collect();
    if !legal(call) || !fields.iter().all(|field| legal(field)) {
        let shown: String = body.chars().take(80).collect();
        return Err(format!(
            "\"${{{shown}}}\" is no template; one reads \"${{call.field}}\", and \"$${{\" writes \"${{\""
        ));
    }
    Ok(Reference { call: call.to_owned(), fields })
}

/// Whether the value holds a template. A malformed one counts.
pub(crate) fn is_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(is_template),
        Value::Object(fields) => fields.values().any(is_template),
        _ => false,
    }
}

/// Whether the value is a text of one template alone, so that its type is known only when it is resolved.
pub(crate) fn is_lone(value: &Value) -> bool {
    value.as_str().is_some_and(|text| matches!(parse(text).as_deref(), Ok([Part::Reference(_)])))
}

/// Calls `visit` for every reference in the value.
pub(crate) fn visit_references(
    value: &Value,
    visit: &mut dyn FnMut(&Reference) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => {
            for part in parse(text)? {
                if let Part::Reference(reference) = part {
                    visit(&reference)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| visit_references(item, visit)),
        Value::Object(fields) => fields.values().try_for_each(|field| visit_references(field, visit)),
        _ => Ok(()),
    }
}

/// Replaces templates by what `lookup` finds for a call's id.
pub(crate) struct Resolver<L> {
    lookup: L,
    remaining: usize,
}

impl<'a, L: Fn(&str) -> Option<&'a Value>> Resolver<L> {
    pub(crate) fn new(lookup: L) -> Self {
        Self { lookup, remaining: MAX_EXPANDED_BYTES }
    }

    /// The value with every template replaced.
    pub(crate) fn resolve(&mut self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) if text.contains("${") => self.resolve_text(text)?,
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.resolve(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let resolved = fields.iter().map(|(name, field)| Ok((name.clone(), self.resolve(field)?)));
                Value::Object(resolved.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    fn resolve_text(&mut self, text: &str) -> Result<Value, String> {
        let parts = parse(text)?;
        if let [Part::Reference(reference)] = parts.as_slice() {
            return self.find(reference);
        }
        let mut result = String::with_capacity(text.len());
        for part in parts {
            match part {
                Part::Text(text) => result.push_str(&text),
                Part::Reference(reference) => match self.find(&reference)? {
                    Value::String(text) => result.push_str(&text),
                    value @ (Value::Number(_) | Value::Bool(_)) => result.push_str(&value.to_string()),
                    value => {
                        return Err(format!(
                            "\"{}\" is {} and cannot stand within text; name one of its fields or let the template stand alone",
                            shown(&reference),
                            kind_of(&value)
                        ));
                    }
                },
            }
        }
        Ok(Value::String(result))
    }

    fn find(&mut self, reference: &Reference) -> Result<Value, String> {
        let mut value = (self.lookup)(&reference.call)
            .ok_or_else(|| format!("\"{}\": the call has no answer", shown(reference)))?;
        for field in &reference.fields {
            let next = match value {
                Value::Object(fields) => fields.get(field),
                Value::Array(items) => index(field).and_then(|at| items.get(at)),
                _ => None,
            };
            value = next.ok_or_else(|| {
                format!(
                    "\"{}\": the answer has no {field:?} there, it is {}",
                    shown(reference),
                    kind_of(value)
                )
            })?;
        }
        self.remaining = self.remaining.checked_sub(weight(value)).ok_or_else(|| {
            format!("the templates bring in more than {} MiB; name less", MAX_EXPANDED_BYTES >> 20)
        })?;
        Ok(value.clone())
    }
}

fn index(field: &str) -> Option<usize> {
    field.bytes().all(|byte| byte.is_ascii_digit()).then(|| field.parse().ok()).flatten()
}

fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| weight(item) + 1).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, field)| name.len() + weight(field) + 4).sum::<usize>()
        }
        _ => 8,
    }
}

fn shown(reference: &Reference) -> String {
    let mut text = format!("${{{}", reference.call);
    for field in &reference.fields {
        text.push('.');
        text.push_str(field);
    }
    text.push('}');
    text
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve(value: Value) -> Result<Value, String> {
        let answer = json!({"exit_code": 1, "stdout": {"text": "a b"}, "list": [{"n": 7}], "none": null});
        Resolver::new(|call: &str| (call == "test").then_some(&answer)).resolve(&value)
    }

    #[test]
    fn a_lone_template_keeps_the_type_and_others_become_text() {
        assert_eq!(resolve(json!("${test.exit_code}")), Ok(json!(1)));
        assert_eq!(resolve(json!(["${test.stdout}"])), Ok(json!([{"text": "a b"}])));
        assert_eq!(
            resolve(json!({"x": "<${test.stdout.text}:${test.exit_code}>"})),
            Ok(json!({"x": "<a b:1>"}))
        );
        assert_eq!(resolve(json!("${test.list.0.n}")), Ok(json!(7)));
        assert_eq!(resolve(json!("${test.none}")), Ok(Value::Null));
    }

    #[test]
    fn a_doubled_dollar_writes_the_text_itself() {
        assert_eq!(resolve(json!("$${HOME} costs $5 $")), Ok(json!("${HOME} costs $5 $")));
        assert_eq!(resolve(json!("a$${b}${test.exit_code}")), Ok(json!("a${b}1")));
    }

    #[test]
    fn a_value_that_holds_template_text_is_not_resolved_again() {
        let answer = json!({"content": "${test.secret}", "secret": "s"});
        let mut resolver = Resolver::new(|_: &str| Some(&answer));
        assert_eq!(resolver.resolve(&json!("${test.content}")), Ok(json!("${test.secret}")));
        assert_eq!(resolver.resolve(&json!("x${test.content}")), Ok(json!("x${test.secret}")));
    }

    #[test]
    fn wrong_templates_are_errors_that_say_why() {
        for (text, part) in [
            ("${test.exit_code", "without"),
            ("${}", "no template"),
            ("${test..x}", "no template"),
            ("${ test }", "no template"),
            ("${test.stdut}", "\"stdut\""),
            ("${test.list.1.n}", "\"1\""),
            ("${test.list.-1}", "\"-1\""),
            ("${test.exit_code.deep}", "a number"),
            ("${other.x}", "no answer"),
            ("a ${test.stdout}", "a table"),
            ("a ${test.none}", "nothing"),
        ] {
            let error = resolve(json!(text)).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_answer_named_many_times_is_refused() {
        let answer = json!({"content": "x".repeat(1 << 20)});
        let mut resolver = Resolver::new(|_: &str| Some(&answer));
        let error = resolver.resolve(&json!(vec!["${a.content}"; 40])).unwrap_err();
        assert!(error.contains("16 MiB"), "{error}");
    }
}
