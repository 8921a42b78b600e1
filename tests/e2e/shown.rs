//! What a call shows as one text, with everything that differs from call to call replaced.

use std::sync::LazyLock;

use regex::Regex;

use crate::desk::{Desk, Ended};

/// Patterns and what stands in for them, in this order.
static FILTERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\b[0-9a-f]{64}\b", "[digest]"),
        (r"\b[0-9a-f]{40}\b", "[object]"),
        (r"\b[0-9a-f]{12}\b", "[short]"),
        (r"\bx[0-9a-f]{8}\b", "[run]"),
        (r" · base tree in [0-9.]+ m?s", ""),
        (r"\b[0-9.]+ m?s\b", "[time]"),
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "[when]"),
    ]
    .into_iter()
    .map(|(pattern, stand_in)| (Regex::new(pattern).unwrap(), stand_in))
    .collect()
});

/// Exit code, standard output and standard error.
pub(crate) fn shown(desk: &Desk, ended: &Ended) -> String {
    let code = ended.code.map_or("none".to_owned(), |code| code.to_string());
    let mut text = format!("exit {code}\n--- stdout\n{}--- stderr\n{}", ended.text(), ended.stderr);
    text = text.replace(desk.path("").to_str().unwrap().trim_end_matches('/'), "[desk]");
    for (pattern, stand_in) in FILTERS.iter() {
        text = pattern.replace_all(&text, *stand_in).into_owned();
    }
    text
}
