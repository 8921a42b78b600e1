//! Runs the tasks of the workspace, each as `cargo xtask NAME`.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod deny;
mod example;
mod ordinary;
mod package;
mod process;
mod proofs;
mod reference;
mod suite;
mod tidy;
mod user;
mod workspace;

use std::process::ExitCode;

/// What a task gives: nothing, or a text that says what is wrong and what to do.
type Outcome<T = ()> = Result<T, String>;

/// The tasks, as `--help` lists them and as the documents may name them.
const TASKS: &[(&str, &str)] = &[
    (
        "ci",
        "everything that must pass before a change lands; `ci --list` names the stages, `ci STAGE…` runs some",
    ),
    ("test", "all tests and documentation examples; further words go to `cargo test`"),
    ("tidy", "the rules of the house: crate edges, file headers, links, sizes"),
    ("gen", "writes the command reference into docs/cli.md; `gen --check` compares only"),
    (
        "bench",
        "prepares two real source trees and compares with tar, cp and git; further words go to the benchmark",
    ),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Outcome {
    let Some((task, rest)) = words.split_first() else {
        print_help();
        return Err("name a task".to_owned());
    };
    match task.as_str() {
        "ci" => ci::run(rest),
        "test" => suite::run(rest),
        "tidy" => tidy::run(),
        "gen" => reference::run(rest),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            print_help();
            Ok(())
        }
        other => Err(format!("there is no task {other:?}; `cargo xtask --help` lists them")),
    }
}

fn print_help() {
    println!("Usage: cargo xtask TASK [ARGUMENT…]\n");
    for (name, purpose) in TASKS {
        println!("  {name:<6}{purpose}");
    }
}
