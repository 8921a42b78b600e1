//! The words of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand};
use coldframe::Runner;
use serde_json::json;

use crate::commands::{delta, doctor, exec, receipts, run, snapshot};
use crate::{exit, output};

/// Immutable source snapshots, isolated copy-on-write workspaces, deltas and tamper-evident receipts.
#[derive(Debug, Parser)]
#[command(name = "coldframe", version, after_help = exit::HELP, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print one JSON document on standard output, also for errors.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Keep state in FOLDER [default: $COLDFRAME_HOME, else the XDG data folder].
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
    /// Read the trusted configuration from FILE [default: config.toml in the home, where it exists].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tell more on standard error; twice for everything.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// The runner with what the user gave.
    pub(crate) fn configure(&self, runner: Runner) -> Runner {
        let runner = match &self.home {
            Some(home) => runner.with_home(home),
            None => runner,
        };
        match &self.config {
            Some(file) => runner.with_config_file(file),
            None => runner,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Exec(exec::Exec),
    Run(run::Run),
    /// Capture, show and verify snapshots.
    #[command(subcommand)]
    Snapshot(snapshot::Snapshot),
    /// Show a delta, write it as a patch, or apply it to a directory.
    #[command(subcommand)]
    Delta(delta::Delta),
    /// Show and verify the receipts of runs.
    #[command(subcommand)]
    Receipts(receipts::Receipts),
    Doctor(doctor::Doctor),
}

/// Reads the words; help, the version and errors are printed, and their exit code is the error.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Arguments, u8> {
    let wants_json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Arguments::try_parse_from(words).map_err(|error| {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            // A reader who has seen enough of the help is no error.
            let _ = output::print(&error.to_string());
            return 0;
        }
        if wants_json {
            let document = json!({ "error": {
                "kind": "usage",
                "message": error.to_string().trim_end(),
                "exit_code": exit::USAGE,
            }});
            let _ = output::print(&format!("{document:#}\n"));
        } else {
            let _ = error.print();
        }
        exit::USAGE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, u8> {
        parse(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_stands_after_the_dashes_belongs_to_the_command() {
        let arguments = parsed(&["coldframe", "exec", ".", "--", "tool", "--json", "-v"]).unwrap();
        assert!(!arguments.global.json);
        match arguments.command {
            Command::Exec(exec) => assert_eq!(exec.command, ["tool", "--json", "-v"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_words_are_a_usage_error() {
        for words in [
            &["coldframe"][..],
            &["coldframe", "exec", "."],
            &["coldframe", "snapshot", "show"],
            &["coldframe", "run"],
            &["coldframe", "run", "a.toml", "--resume", "x"],
            &["coldframe", "exec", "--timeout", "0", ".", "--", "true"],
        ] {
            let error = Arguments::try_parse_from(words).unwrap_err();
            assert_eq!(error.exit_code(), i32::from(exit::USAGE), "{words:?}");
        }
    }
}
