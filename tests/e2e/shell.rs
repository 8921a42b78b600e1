//! Other programs that the tests need: git, python3, sh, kill and those that make odd files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a program in `folder` and fails where it does.
#[track_caller]
pub(crate) fn must<W: AsRef<OsStr>>(folder: &Path, words: &[W]) -> Vec<u8> {
    let output = program(folder, words).output().unwrap();
    assert!(
        output.status.success(),
        "{:?}: {}\n{}{}",
        words[0].as_ref(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// A program with its words, away from the caller's own Git configuration.
pub(crate) fn program<W: AsRef<OsStr>>(folder: &Path, words: &[W]) -> Command {
    let mut command = Command::new(words[0].as_ref());
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Where the caller's shell finds a program.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file() && file.is_absolute())
}

/// Sends a signal by name.
pub(crate) fn signal(child: &Child, name: &str) {
    must(Path::new("/"), &["kill", &format!("-{name}"), &child.id().to_string()]);
}

/// Waits until `holds`, at most half a minute.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A point in time within `span`: the `index`-th of `count` equal parts, and somewhere in it.
pub(crate) fn moment(span: Duration, index: u32, count: u32) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(index) % 1000;
    let thousandths = u64::from(index) * 1000 + random;
    span.mul_f64(thousandths as f64 / (f64::from(count) * 1000.0))
}

/// Starts the command, kills it with SIGKILL after `delay`, and says whether it had ended by itself before.
pub(crate) fn kill_after(mut command: Command, delay: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(delay);
    let had_ended = child.try_wait().unwrap().is_some();
    if !had_ended {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    had_ended
}
