//! The ordinary user as whom root repeats what must work without root's powers.

use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::process::{output, program, run as run_command, succeeds};

/// The name of the user.
pub(crate) const NAME: &str = "coldframe-ci";

/// Whether this process is root.
pub(crate) fn is_root() -> Outcome<bool> {
    Ok(output(program("id").arg("-u"))?.trim() == "0")
}

/// Makes the user where it is missing and gives its home folder. Only root can do so.
pub(crate) fn ensure() -> Outcome<PathBuf> {
    if !succeeds(program("id").arg(NAME)) {
        println!("making the user {NAME} for what must work without root's powers");
        run_command(program("useradd").args(["--create-home", "--user-group", NAME]))?;
    }
    let entry = output(program("getent").args(["passwd", NAME]))?;
    let home = entry.split(':').nth(5).filter(|home| home.starts_with('/'));
    home.map(PathBuf::from).ok_or_else(|| format!("the user {NAME} has no home folder"))
}

/// The words that start another program as the user, with a fresh environment and without any of root's powers.
pub(crate) fn words() -> [&'static str; 8] {
    ["setpriv", "--reuid", NAME, "--regid", NAME, "--init-groups", "--reset-env", "--"]
}

/// Starts what its further arguments name as the user.
pub(crate) fn command() -> Command {
    let words = words();
    let mut command = program(words[0]);
    command.args(&words[1..]);
    command
}
