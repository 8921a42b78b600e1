//! Runs the stages of continuous integration, times each and sums up.

use std::time::{Duration, Instant};

use crate::process::{cargo, run as run_command};
use crate::{Outcome, deny, example, ordinary, package, proofs, reference, suite, tidy};

/// One stage: its name, what it proves, and the function that runs it.
struct Stage {
    name: &'static str,
    proves: &'static str,
    run: fn() -> Outcome,
}

const STAGES: &[Stage] = &[
    Stage {
        name: "fetch",
        proves: "Cargo.lock is complete, and the stages below need no network",
        run: fetch,
    },
    Stage { name: "fmt", proves: "rustfmt has nothing to change", run: fmt },
    Stage { name: "tidy", proves: "crate edges, headers, links and sizes follow the rules", run: tidy::run },
    Stage { name: "tree", proves: "pure crates reach no runtime and no system library", run: proofs::run },
    Stage { name: "deny", proves: "licences, sources and bans of all dependencies", run: deny::run },
    Stage { name: "clippy", proves: "no compiler or clippy warning in any target", run: clippy },
    Stage { name: "doc", proves: "the documentation builds without a warning", run: doc },
    Stage { name: "package", proves: "each published crate can be packaged", run: package::run },
    Stage { name: "test", proves: "all tests and documentation examples pass", run: test },
    Stage { name: "ordinary", proves: "the tests pass for an ordinary user too", run: ordinary::run },
    Stage { name: "gen", proves: "docs/cli.md holds the help texts of the binary", run: check_reference },
    Stage {
        name: "example",
        proves: "the example of the README works, also for an ordinary user",
        run: example::run,
    },
];

/// Runs all stages, or those that `words` name, and fails when one of them failed.
pub(crate) fn run(words: &[String]) -> Outcome {
    if words.iter().any(|word| matches!(word.as_str(), "--list" | "--help" | "-h")) {
        for stage in STAGES {
            println!("  {:<9}{}", stage.name, stage.proves);
        }
        return Ok(());
    }
    let stages = selected(words)?;
    let mut results = Vec::new();
    for stage in stages {
        println!("\n==> {}: {}", stage.name, stage.proves);
        let start = Instant::now();
        let outcome = (stage.run)();
        let time = start.elapsed();
        match &outcome {
            Ok(()) => println!("<== {} passed in {}", stage.name, seconds(time)),
            Err(problem) => println!("<== {} FAILED in {}: {problem}", stage.name, seconds(time)),
        }
        results.push((stage.name, time, outcome));
    }
    summary(&results)
}

fn selected(words: &[String]) -> Outcome<Vec<&'static Stage>> {
    if words.is_empty() {
        return Ok(STAGES.iter().collect());
    }
    words
        .iter()
        .map(|word| {
            STAGES
                .iter()
                .find(|stage| stage.name == word)
                .ok_or_else(|| format!("there is no stage {word:?}; `cargo xtask ci --list` names them"))
        })
        .collect()
}

fn summary(results: &[(&str, Duration, Outcome)]) -> Outcome {
    println!("\nstage     result  time");
    for (name, time, outcome) in results {
        println!("{name:<10}{:<8}{}", if outcome.is_ok() { "ok" } else { "FAILED" }, seconds(*time));
    }
    let total: Duration = results.iter().map(|(_, time, _)| *time).sum();
    println!("{:<18}{}", "together", seconds(total));
    let failed: Vec<&str> =
        results.iter().filter(|(_, _, outcome)| outcome.is_err()).map(|(name, _, _)| *name).collect();
    if failed.is_empty() {
        println!("{} stages passed.", results.len());
        Ok(())
    } else {
        Err(format!("failed: {}; run one again with `cargo xtask ci {}`", failed.join(", "), failed[0]))
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn fetch() -> Outcome {
    run_command(cargo().args(["fetch", "--locked"]))
}

fn fmt() -> Outcome {
    run_command(cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Outcome {
    run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn doc() -> Outcome {
    run_command(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn test() -> Outcome {
    suite::run(&[])
}

fn check_reference() -> Outcome {
    reference::run(&["--check".to_owned()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn stages_have_different_names_and_unknown_ones_are_refused() {
        let names: BTreeSet<&str> = STAGES.iter().map(|stage| stage.name).collect();
        assert_eq!(names.len(), STAGES.len());
        assert!(selected(&["no-such-stage".to_owned()]).is_err());
        let some = selected(&["tidy".to_owned(), "fmt".to_owned()]).unwrap();
        assert_eq!(some.iter().map(|stage| stage.name).collect::<Vec<_>>(), ["tidy", "fmt"]);
    }

    #[test]
    fn one_failed_stage_fails_the_whole() {
        let passed = ("a", Duration::ZERO, Ok(()));
        let failed = ("b", Duration::ZERO, Err("broken".to_owned()));
        assert!(summary(std::slice::from_ref(&passed)).is_ok());
        assert!(summary(&[passed, failed]).unwrap_err().contains('b'));
    }
}
