//! The command line of Coldframe. It parses, prints and exits; what it does is done by the facade.
//!
//! A binary of one's own with further adapters hands its runner to [`run`]:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     coldframe_cli::run(coldframe::Runner::new().source(coldframe::LocalSource::new()))
//! }
//! ```
#![forbid(unsafe_code)]

mod answer_text;
mod arguments;
mod commands;
mod exit;
mod output;
mod progress;
mod text;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use arguments::{Arguments, Command};
use coldframe::{Error, Runner};
use output::Output;

/// Why a command ended before its end.
#[derive(Debug)]
enum Stop {
    /// It failed.
    Error(Error),
    /// Nobody reads the output any more.
    Closed,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        if is_closed_pipe(&error) { Self::Closed } else { Self::Error(error) }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(Error::io("write the output", &error)),
        }
    }
}

fn is_closed_pipe(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// What a command ends with: the exit code, or why it stopped.
type Ending = Result<u8, Stop>;

/// Runs the command line of this process and gives its exit code.
pub fn run(runner: Runner) -> ExitCode {
    ExitCode::from(run_with(runner, std::env::args_os().collect()))
}

fn run_with(runner: Runner, words: Vec<OsString>) -> u8 {
    let arguments = match arguments::parse(words) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let output = Output { json: arguments.global.json, verbose: arguments.global.verbose > 0 };
    log_to_stderr(arguments.global.verbose);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = Error::io("start the runtime", &error);
            output.error(&error, exit::code(error.kind()));
            return exit::code(error.kind());
        }
    };
    outlive_size_limit(&runtime);
    let is_exec = matches!(arguments.command, Command::Exec(_));
    let code = match runtime.block_on(dispatch(runner, arguments, output)) {
        Ok(code) => code,
        Err(Stop::Closed) => 0,
        Err(Stop::Error(error)) => {
            let code = if is_exec { commands::exec::code(&error) } else { exit::code(error.kind()) };
            output.error(&error, code);
            code
        }
    };
    // A command that was given up may still hold a blocking task; it has nothing left to say.
    runtime.shutdown_timeout(Duration::from_millis(500));
    code
}

async fn dispatch(runner: Runner, arguments: Arguments, output: Output) -> Ending {
    let runner = arguments.global.configure(runner);
    match arguments.command {
        Command::Exec(command) => commands::exec::run(command, runner.open().await?, output).await,
        Command::Run(command) => commands::run::run(command, runner.open().await?, output).await,
        Command::Snapshot(command) => commands::snapshot::run(command, runner.open().await?, output).await,
        Command::Delta(command) => commands::delta::run(command, runner.open().await?, output).await,
        Command::Receipts(command) => commands::receipts::run(command, runner.open().await?, output).await,
        Command::Doctor(command) => commands::doctor::run(command, runner, output).await,
    }
}

/// A write beyond `ulimit -f` shall be an error that is told, not a signal that ends the process without a word.
fn outlive_size_limit(runtime: &tokio::runtime::Runtime) {
    #[cfg(target_os = "linux")]
    {
        const SIGXFSZ: i32 = 25;
        let _context = runtime.enter();
        // Once a handler is there it stays, also when the stream of its signals is dropped.
        drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(SIGXFSZ)));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = runtime;
}

/// `-v` shows what the libraries tell, `-vv` more of it; `COLDFRAME_LOG` says it in full.
fn log_to_stderr(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let filter = match (std::env::var("COLDFRAME_LOG"), verbose) {
        (Ok(text), _) if !text.is_empty() => EnvFilter::new(text),
        (_, 0) => return,
        (_, 1) => EnvFilter::new("coldframe=debug"),
        _ => EnvFilter::new("coldframe=trace,debug"),
    };
    // A program that embeds the command line may have set up a subscriber of its own.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time().try_init();
}
