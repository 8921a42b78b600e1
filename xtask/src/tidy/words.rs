//! Finds words that do not belong into the project: leftovers, and names of places outside it.

/// Texts that may stand nowhere, each with the reason. They are put together here so that this file passes.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it, or say in docs/shortcomings.md what is missing"),
    (concat!("FIX", "ME"), "finish it, or say in docs/shortcomings.md what is missing"),
    (concat!("XX", "X"), "finish it, or say in docs/shortcomings.md what is missing"),
    (concat!("to", "do!("), "finish it"),
    (concat!("un", "implemented!("), "finish it"),
    (concat!("#[ig", "nore"), "a skipped test proves nothing"),
    (concat!("/wo", "rk/main"), "a path of one machine"),
    (concat!("/wo", "rk/shared"), "a path of one machine"),
    (concat!("../sha", "red"), "a path outside the project"),
    (concat!("/tmp/br", "ief"), "a path of one machine"),
    (concat!("this ses", "sion of "), "the project speaks of itself alone"),
];

/// What the text of the file at `path` must not say.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut problem = |what: &str| problems.push(format!("{path}:{}: {what}", number + 1));
        for (word, reason) in FORBIDDEN {
            if line.contains(word) {
                problem(&format!("{word:?} must not stand here: {reason}"));
            }
        }
        if names_issue(line) {
            problem("an issue number means nothing to a reader of the project; say what it is about");
        }
        if line.ends_with([' ', '\t']) && !path.ends_with(".rs") {
            problem("white space at the end of the line");
        }
    }
    problems
}

/// Whether `line` names an issue by its number, with a hash or in words.
fn names_issue(line: &str) -> bool {
    let digit_follows = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let numbered = line.match_indices(" #").chain(line.match_indices("(#")).any(|(at, _)| {
        let rest = &line[at + 2..];
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let ends = rest[digits..].starts_with([' ', ')', '.', ',', ';', ':']) || rest.len() == digits;
        (1..6).contains(&digits) && ends
    });
    let lower = line.to_ascii_lowercase();
    numbered || lower.match_indices("issue ").any(|(at, _)| digit_follows(&lower[at + 6..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_and_places_are_found_with_their_line() {
        let text = format!("first\n// {}: later\n", concat!("TO", "DO"));
        let problems = check("crates/a/src/b.rs", &text);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("crates/a/src/b.rs:2:"), "{problems:?}");
        assert_eq!(check("a.md", concat!("see ../sha", "red/design.md")).len(), 1);
        assert_eq!(check("a.md", "trailing \n").len(), 1);
        assert_eq!(check("a.md", "a workspace at /work is fine\n").len(), 0);
    }

    #[test]
    fn issue_numbers_are_told_from_headings_attributes_and_colours() {
        for bad in [concat!("fixes ", "#12"), concat!("(see (", "#7))"), concat!("as Issue ", "31 says")] {
            assert!(names_issue(bad), "{bad}");
        }
        for good in ["# Heading", "#[test]", "colour #112233", "r#\"text\"#", "an issue with links", "a #1a"]
        {
            assert!(!names_issue(good), "{good}");
        }
    }
}
