//! Bounds on walks over foreign JSON, and the path that says where a walk is.

use serde_json::Value;

use crate::error::{Fault, FaultReason, MAX_FAULTS};

/// How deeply a value may nest, references followed.
pub const MAX_DEPTH: usize = 64;

/// How many bytes one hydration may add.
pub const MAX_HYDRATED_BYTES: usize = 64 << 20;

/// About how many bytes a value has as JSON, and how deeply it nests.
pub(crate) struct Weight {
    pub(crate) bytes: usize,
    pub(crate) depth: usize,
}

/// Weighs without recursion, so that no nesting can exhaust the stack.
pub(crate) fn weigh(value: &Value) -> Weight {
    let mut weight = Weight { bytes: 0, depth: 0 };
    let mut waiting = vec![(value, 1)];
    while let Some((value, depth)) = waiting.pop() {
        weight.depth = weight.depth.max(depth);
        weight.bytes += 8;
        match value {
            Value::Object(map) => {
                weight.bytes += map.keys().map(|key| key.len() + 4).sum::<usize>();
                waiting.extend(map.values().map(|child| (child, depth + 1)));
            }
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::String(text) => weight.bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    weight
}

/// Takes the value back where it nests at most [`MAX_DEPTH`] deep. A deeper one is taken apart level by level,
/// since dropping it whole would recurse.
pub(crate) fn bounded(value: Value) -> Result<Value, Fault> {
    let depth = weigh(&value).depth;
    if depth <= MAX_DEPTH {
        return Ok(value);
    }
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(map) => waiting.extend(map.into_iter().map(|(_, child)| child)),
            Value::Array(items) => waiting.extend(items),
            _ => {}
        }
    }
    let message = format!("the value nests {depth} deep, at most {MAX_DEPTH} are taken; flatten it");
    Err(Fault { place: String::new(), reason: FaultReason::TooDeep, message })
}

enum Part {
    Key(String),
    Index(usize),
}

/// Where a walk is and what it found wrong.
pub(crate) struct Walk {
    trail: Vec<Part>,
    faults: Vec<Fault>,
    added: usize,
}

impl Walk {
    pub(crate) fn new() -> Self {
        Self { trail: Vec::new(), faults: Vec::new(), added: 0 }
    }

    /// Runs `visit` on each child with the place set to it; stops where there are faults enough.
    pub(crate) fn children<C>(
        context: &mut C,
        value: &mut Value,
        walk: fn(&mut C) -> &mut Self,
        mut visit: impl FnMut(&mut C, &mut Value),
    ) {
        match value {
            Value::Object(map) => {
                for (key, child) in map.iter_mut() {
                    walk(context).trail.push(Part::Key(key.clone()));
                    visit(context, child);
                    walk(context).trail.pop();
                    if walk(context).is_full() {
                        return;
                    }
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter_mut().enumerate() {
                    walk(context).trail.push(Part::Index(index));
                    visit(context, child);
                    walk(context).trail.pop();
                    if walk(context).is_full() {
                        return;
                    }
                }
            }
            _ => {}
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.faults.len() >= MAX_FAULTS
    }

    /// Notes a fault at the present place.
    pub(crate) fn fault(&mut self, reason: FaultReason, message: impl Into<String>) {
        if !self.is_full() {
            let place = self.place();
            self.faults.push(Fault { place, reason, message: message.into() });
        }
    }

    /// Makes room for `bytes` more, or notes that the value would grow too large.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.added = self.added.saturating_add(bytes);
        let fits = self.added <= MAX_HYDRATED_BYTES;
        if !fits {
            let message = format!("the output would grow by more than {MAX_HYDRATED_BYTES} bytes; cite less");
            self.fault(FaultReason::TooLarge, message);
        }
        fits
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    fn place(&self) -> String {
        let mut place = String::new();
        for part in &self.trail {
            match part {
                Part::Key(key) => push_key(&mut place, key),
                Part::Index(index) => push_key(&mut place, &index.to_string()),
            }
        }
        place
    }
}

/// Adds a segment in the form of RFC 6901.
pub(crate) fn push_key(place: &mut String, key: &str) {
    place.push('/');
    for letter in key.chars() {
        match letter {
            '~' => place.push_str("~0"),
            '/' => place.push_str("~1"),
            other => place.push(other),
        }
    }
}
