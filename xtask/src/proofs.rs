//! Proves with `cargo tree` what certain crates do not reach, however long the way.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::process::{cargo, output};

/// Runtimes, storage and system interfaces that a pure crate must not reach.
const IMPURE: &[&str] = &[
    "async-std",
    "hyper",
    "libc",
    "mio",
    "nix",
    "object_store",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
];

/// Which crate must not reach which others through normal dependencies.
const ABSENT: &[(&str, &[&str])] = &[
    ("coldframe-core", IMPURE),
    ("coldframe-delta", IMPURE),
    ("coldframe-evidence", IMPURE),
    ("coldframe-mesh", &["object_store", "reqwest", "hyper"]),
    ("coldframe-local", &["object_store", "reqwest", "hyper"]),
    ("coldframe-sandbox", &["object_store", "reqwest", "hyper"]),
];

/// Fails with the list of all crates that reach something they must not.
pub(crate) fn run() -> Outcome {
    let mut problems = Vec::new();
    for (name, absent) in ABSENT {
        let tree =
            output(cargo().args(["tree", "--package", name, "--edges", "normal", "--prefix", "none"]))?;
        let reached = names(&tree);
        if !reached.contains(*name) {
            return Err(format!("cargo tree does not name {name} itself; the proof would prove nothing"));
        }
        let found: Vec<&str> = absent.iter().filter(|other| reached.contains(**other)).copied().collect();
        if found.is_empty() {
            println!("{name} reaches {} crates, none of {}", reached.len() - 1, absent.join(", "));
        } else {
            problems.push(format!("{name} reaches {}", found.join(", ")));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// The first word of each line of `cargo tree --prefix none`.
fn names(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_first_words() {
        let tree = "coldframe-core v0.1.0 (/somewhere)\nblake3 v1.8.7\ntokio v1.0.0 (*)\n\n";
        assert_eq!(names(tree), BTreeSet::from(["coldframe-core", "blake3", "tokio"]));
    }
}
