//! Runs the example of the README as this user and, where this user is root, as an ordinary user too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::process::{output, program, run as run_command, shown};
use crate::reference::binary;
use crate::user;
use crate::workspace::{root, target};

/// The workflow of the example, from the folder that holds `examples/`.
const WORKFLOW: &str = "examples/repair/workflow.toml";

/// What the README tells a reader to type, but for the words that `cargo run` stands for.
const README_LINE: &str = "cargo run --release -- run examples/repair/workflow.toml";

/// A line that only the repaired project has.
const REPAIRED: &str = "+        shares[index] += 1";

/// Who runs the example, and from where.
struct Place {
    binary: PathBuf,
    folder: PathBuf,
    home: PathBuf,
    ordinary: bool,
}

/// Checks that the README still shows the example, then runs it in each place.
pub(crate) fn run() -> Outcome {
    let readme =
        fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    if !readme.lines().any(|line| line.trim_start_matches("$ ") == README_LINE) {
        return Err(format!("README.md does not show `{README_LINE}`"));
    }
    let binary = binary()?;
    let home = target()?.join("example").join("home");
    remove(&home)?;
    run_in(&Place { binary: binary.clone(), folder: root(), home, ordinary: false })?;
    if user::is_root()? {
        run_in(&place_of_ordinary_user(&binary)?)?;
    } else {
        println!("not root: the example ran as an ordinary user already");
    }
    Ok(())
}

/// Copies binary and example to the ordinary user's own folder, since the workspace may be closed to others.
fn place_of_ordinary_user(binary: &Path) -> Outcome<Place> {
    let folder = user::ensure()?.join("example");
    remove(&folder)?;
    fs::create_dir_all(folder.join("examples")).map_err(|error| error.to_string())?;
    run_command(program("cp").arg("-R").arg(root().join("examples/repair")).arg(folder.join("examples")))?;
    run_command(program("cp").arg(binary).arg(&folder))?;
    run_command(program("chown").args(["-R", &format!("{0}:{0}", user::NAME)]).arg(&folder))?;
    Ok(Place { binary: folder.join("coldframe"), home: folder.join("state"), folder, ordinary: true })
}

fn run_in(place: &Place) -> Outcome {
    println!("-- as {}", if place.ordinary { user::NAME } else { "the caller" });
    let before = fingerprint(&place.folder.join("examples/repair"))?;
    let shown_to_people = output(&mut place.coldframe(&["run", WORKFLOW]))?;
    println!("{shown_to_people}");
    if !shown_to_people.contains(REPAIRED) {
        return Err("the run shows no diff with the repair".to_owned());
    }
    let for_programs = output(&mut place.coldframe(&["--json", "run", WORKFLOW, "--id", "for-programs"]))?;
    let report: Value =
        serde_json::from_str(&for_programs).map_err(|error| format!("run --json: {error}"))?;
    for exit_code in [0, 1] {
        if !cites_command(&report, exit_code) {
            return Err(format!("the answer cites no command with exit code {exit_code} and its receipt"));
        }
    }
    place.exec_keeps_the_exit_code()?;
    if fingerprint(&place.folder.join("examples/repair"))? != before {
        return Err("the run changed the source".to_owned());
    }
    Ok(())
}

impl Place {
    fn coldframe(&self, words: &[&str]) -> Command {
        let mut command = if self.ordinary { user::command() } else { program(&self.binary) };
        if self.ordinary {
            command.arg(&self.binary);
        }
        command.arg("--home").arg(&self.home).args(words).current_dir(&self.folder);
        command
    }

    /// `exec` ends with the exit code of the command: 1, since the tests of the project fail.
    fn exec_keeps_the_exit_code(&self) -> Outcome {
        let mut command =
            self.coldframe(&["exec", "examples/repair/project", "--", "python3", "-m", "unittest"]);
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| error.to_string())?;
        if status.code() == Some(1) {
            Ok(())
        } else {
            Err(format!("{} ended with {status}", shown(&command)))
        }
    }
}

/// Whether some object within `value` is a command's record with a receipt and this exit code.
fn cites_command(value: &Value, exit_code: i64) -> bool {
    match value {
        Value::Object(fields) => {
            (fields.get("tool_receipt_id").is_some_and(Value::is_string)
                && fields.get("exit_code").and_then(Value::as_i64) == Some(exit_code))
                || fields.values().any(|field| cites_command(field, exit_code))
        }
        Value::Array(items) => items.iter().any(|item| cites_command(item, exit_code)),
        _ => false,
    }
}

/// Paths, modes, times and contents below `folder`, to see that nothing touched it.
fn fingerprint(folder: &Path) -> Outcome<String> {
    let listing = output(program("find").arg(folder).args(["-printf", "%P %y %m %s %T@ %C@\\n"]))?;
    let mut lines: Vec<&str> = listing.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

fn remove(folder: &Path) -> Outcome {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cited_command_is_found_however_deep() {
        let report = serde_json::json!({"a": [{"b": {"tool_receipt_id": "tool:w:s:1", "exit_code": 1}}]});
        assert!(cites_command(&report, 1));
        assert!(!cites_command(&report, 0));
        assert!(!cites_command(&serde_json::json!({"exit_code": 1}), 1));
    }
}
