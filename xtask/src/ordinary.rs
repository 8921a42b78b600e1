//! Repeats the tests as an ordinary user where they ran as root: containment must not rest on root's powers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Outcome;
use crate::process::{cargo, output, program, shown};
use crate::suite::Counts;
use crate::user;
use crate::workspace::root;

/// In a mount namespace of its own: puts an empty folder over `$2`, which is closed to others, shows `$1` below it
/// at its usual place again (kept at `$3` meanwhile), and starts the rest in the folder `$4`.
const OPEN_VIEW: &str = r#"set -e
mount --bind "$1" "$3"
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir -p "$1"
mount --bind "$3" "$1"
cd "$4"
shift 4
exec "$@""#;

/// Packages whose own tests repeat themselves as an ordinary user when root runs them.
const REPEATS_ITSELF: [&str; 1] = ["coldframe-sandbox"];

/// A program with tests.
struct Suite {
    folder: PathBuf,
    executable: PathBuf,
}

/// Runs every test program of the workspace as the ordinary user and counts the tests.
pub(crate) fn run() -> Outcome {
    if !user::is_root()? {
        println!("not root: the tests ran as an ordinary user already");
        return Ok(());
    }
    user::ensure()?;
    let kept = std::env::temp_dir().join(format!("coldframe-view-{}", std::process::id()));
    fs::create_dir(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    let outcome = run_all(&kept);
    fs::remove_dir(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    outcome
}

fn run_all(kept: &Path) -> Outcome {
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    let suites = suites()?;
    for suite in &suites {
        let mut command = as_user(suite, kept);
        let name = suite.executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output =
            command.output().map_err(|error| format!("cannot start {}: {error}", shown(&command)))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut own = Counts::default();
        text.lines().for_each(|line| own.add(line));
        println!("{name}: {own}");
        if !output.status.success() {
            println!("{text}{}", String::from_utf8_lossy(&output.stderr));
            failed.push(name);
        }
        counts.merge(&own);
    }
    println!("{counts}");
    if !failed.is_empty() {
        return Err(format!("as the user {}: {} failed", user::NAME, failed.join(", ")));
    }
    counts.check(true)
}

/// The test programs that `cargo test` would run, documentation examples not among them.
fn suites() -> Outcome<Vec<Suite>> {
    let messages =
        output(cargo().args(["test", "--workspace", "--no-run", "--quiet", "--message-format", "json"]))?;
    let mut suites = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).map_err(|error| format!("cargo test: {error}"))?;
        let package = message["package_id"].as_str().unwrap_or_default();
        let repeats_itself = REPEATS_ITSELF.iter().any(|name| package.contains(&format!("#{name}@")));
        let is_test = message["profile"]["test"].as_bool() == Some(true) && !repeats_itself;
        if let (true, Some(executable), Some(manifest)) =
            (is_test, message["executable"].as_str(), message["manifest_path"].as_str())
        {
            let folder = Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned();
            suites.push(Suite { folder, executable: PathBuf::from(executable) });
        }
    }
    suites.sort_by(|left, right| left.executable.cmp(&right.executable));
    Ok(suites)
}

fn as_user(suite: &Suite, kept: &Path) -> Command {
    let mut command = match closed_ancestor(&root()) {
        None => user::command(),
        Some(closed) => {
            let mut command = program("unshare");
            command.args(["--mount", "--", "sh", "-c", OPEN_VIEW, "sh"]);
            command.arg(root()).arg(closed).arg(kept).arg(&suite.folder).args(user::words());
            command
        }
    };
    command.arg(&suite.executable).current_dir(&suite.folder);
    command
}

/// The topmost folder above `path`, or `path` itself, that other users may not enter.
fn closed_ancestor(path: &Path) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let is_closed = |folder: &&Path| {
        fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    ancestors.into_iter().find(is_closed).map(Path::to_owned)
}
