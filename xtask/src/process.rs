//! Starts other programs and turns their failures into texts that name the command.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::workspace::root;

/// The cargo that runs this task, so that its children use the same toolchain.
pub(crate) fn cargo() -> Command {
    program(std::env::var("CARGO").as_deref().unwrap_or("cargo"))
}

/// `name`, to be started in the workspace root without standard input.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Git without the user's or the system's configuration, in `folder`, whoever owns it.
pub(crate) fn git(folder: &Path) -> Command {
    let mut command = program("git");
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(folder);
    command
}

/// Runs `command` with this task's own output and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", shown(command))) }
}

/// Runs `command` and gives its standard output; its errors stay visible.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", shown(command), output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("{} printed bytes that are not UTF-8", shown(command)))
}

/// Whether `command` can be started and exits with 0; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The command line as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}; is it installed?", shown(command))
}
