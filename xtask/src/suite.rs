//! Runs all tests and documentation examples and counts them, so that an empty run cannot pass.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::Outcome;
use crate::process::{cargo, run as run_command, shown};

/// How many tests ended in which way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Builds binaries and tests together: built alone, the binary would need some dependencies a second time, with the
/// features that it asks for by itself.
fn build() -> Outcome {
    run_command(cargo().args(["build", "--workspace", "--bins", "--tests", "--examples"]))
}

/// Builds everything (the end-to-end tests start the binary), then runs `cargo test --workspace` with `words` added.
pub(crate) fn run(words: &[String]) -> Outcome {
    build()?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).args(words).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", shown(&command)))?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    let mut counts = Counts::default();
    let mut screen = std::io::stdout().lock();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.map_err(|error| format!("cannot read the output of cargo test: {error}"))?;
        counts.add(&String::from_utf8_lossy(&line));
        screen.write_all(&line).and_then(|()| screen.write_all(b"\n")).map_err(|error| error.to_string())?;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    writeln!(screen, "{counts}").map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{} ended with {status}", shown(&command)));
    }
    counts.check(words.is_empty())
}

impl std::fmt::Display for Counts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored)
    }
}

impl Counts {
    /// Adds another count to this one.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Adds what a line `test result: ok. 3 passed; 0 failed; 1 ignored; …` says.
    pub(crate) fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line.split_once("test result:").and_then(|(_, rest)| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split("; ") {
            if let Some((number, word)) = part.split_once(' ') {
                let number: u64 = number.parse().unwrap_or(0);
                match word {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }

    /// Fails where a test failed and, for a whole run, where none ran or one was skipped.
    pub(crate) fn check(&self, whole: bool) -> Outcome {
        if self.failed > 0 {
            return Err(format!("{} tests failed", self.failed));
        }
        if whole && self.passed == 0 {
            return Err("no test ran".to_owned());
        }
        if whole && self.ignored > 0 {
            return Err(format!(
                "{} tests or examples are ignored; a skipped test proves nothing",
                self.ignored
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_add_up_and_other_lines_do_not() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        counts.add("test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("test something ... ok");
        counts.add("7 passed; 9 failed");
        assert_eq!(counts, Counts { passed: 5, failed: 4, ignored: 1 });
    }

    #[test]
    fn empty_failed_and_skipping_runs_do_not_pass() {
        let counts = |passed, failed, ignored| Counts { passed, failed, ignored };
        assert!(counts(1, 0, 0).check(true).is_ok());
        assert!(counts(0, 0, 0).check(true).is_err());
        assert!(counts(5, 0, 1).check(true).is_err());
        assert!(counts(5, 1, 0).check(false).is_err());
        assert!(counts(0, 0, 0).check(false).is_ok());
    }
}
