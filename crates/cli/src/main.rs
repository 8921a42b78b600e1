//! The `coldframe` binary: the command line on the adapters of this build.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    coldframe_cli::run(coldframe::Runner::new())
}
