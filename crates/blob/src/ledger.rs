//! Answers for the text of the `verified` object: which containers were found right, and in which state.
//!
//! It only saves work. A line that does not read is ignored, and a lost ledger costs one more hash of the blobs.

use std::collections::HashMap;
use std::fmt::Write as _;

use coldframe_core::Digest;

use crate::state::ObjectState;

const HEADER: &str = "coldframe-verified 1";

/// What holds blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Container {
    Pack(Digest),
    Loose(Digest),
}

/// What was found in a container while it had `state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) state: ObjectState,
    /// The blobs that were wrong; all others were right.
    pub(crate) damaged: Vec<Digest>,
}

/// Findings by container.
pub(crate) type Findings = HashMap<Container, Finding>;

/// True where `text` can stand between blanks.
pub(crate) fn field_is_safe(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads a ledger; whatever does not read is left out.
pub(crate) fn parse(text: &str) -> Findings {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Findings::new();
    }
    lines.filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(Container, Finding)> {
    let mut fields = line.split(' ');
    let kind = fields.next()?;
    let name: Digest = fields.next()?.parse().ok()?;
    let container = match kind {
        "p" => Container::Pack(name),
        "l" => Container::Loose(name),
        _ => return None,
    };
    let size = fields.next()?.parse().ok()?;
    let mark = fields.next()?.to_owned();
    let damaged = fields.map(|field| field.parse().ok()).collect::<Option<Vec<Digest>>>()?;
    Some((container, Finding { state: ObjectState { size, mark }, damaged }))
}

/// Writes a ledger, sorted so that equal findings give equal text.
pub(crate) fn format(findings: &Findings) -> String {
    let mut lines: Vec<String> = findings
        .iter()
        .map(|(container, finding)| {
            let (kind, name) = match container {
                Container::Pack(id) => ('p', id),
                Container::Loose(digest) => ('l', digest),
            };
            let mut line = format!("{kind} {name} {} {}", finding.state.size, finding.state.mark);
            for digest in &finding.damaged {
                let _ = write!(line, " {digest}");
            }
            line
        })
        .collect();
    lines.sort_unstable();
    lines.insert(0, HEADER.to_owned());
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_round_trip_and_nonsense_is_left_out() {
        let finding =
            |damaged| Finding { state: ObjectState { size: 7, mark: "f-1-2.3-4.5".to_owned() }, damaged };
        let findings = Findings::from([
            (Container::Pack(Digest::of(b"p")), finding(vec![Digest::of(b"x"), Digest::of(b"y")])),
            (Container::Loose(Digest::of(b"l")), finding(vec![])),
        ]);
        let text = format(&findings);
        assert_eq!(parse(&text), findings);
        assert_eq!(parse(&format!("{text}p nonsense\nz\n\n")), findings);
        assert!(parse(&text.replace("verified 1", "verified 2")).is_empty());
        assert!(!field_is_safe("a b") && !field_is_safe("") && field_is_safe("\"1f-2\""));
    }
}
