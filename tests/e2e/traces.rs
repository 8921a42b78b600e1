//! What a process that has ended may not leave on the host: processes and mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::shell;

/// The kernel takes a killed process's namespaces down in its own time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails where a process or a mount still has to do with `folder` after a moment of patience.
pub(crate) fn assert_none(folder: &Path) {
    let found = wait_until_none(|| of(folder));
    assert!(found.is_empty(), "left behind in {folder:?}: {found:#?}");
}

/// The processes and mounts that have to do with `folder`.
fn of(folder: &Path) -> Vec<String> {
    processes_of(folder).chain(mounts_of(folder)).collect()
}

/// Fails where a process whose command line has `marker` still runs after a moment of patience.
pub(crate) fn assert_no_process(marker: &str) {
    let found = wait_until_none(|| {
        processes()
            .filter(|process| contains(&read(process, "cmdline"), marker.as_bytes()))
            .map(|process| describe(&process))
            .collect()
    });
    assert!(found.is_empty(), "still running: {found:#?}");
}

fn wait_until_none(look: impl Fn() -> Vec<String>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes, this one apart, by their folders in `/proc`.
fn processes() -> impl Iterator<Item = std::path::PathBuf> {
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(move |entry| {
            let name = entry.file_name();
            name.as_bytes().iter().all(u8::is_ascii_digit) && name.as_bytes() != own.as_bytes()
        })
        .map(|entry| entry.path())
}

/// The processes that have `folder` in their command line, working folder or view of the mounts.
fn processes_of(folder: &Path) -> impl Iterator<Item = String> {
    let name = folder.as_os_str().as_bytes().to_vec();
    processes()
        .filter(move |process| {
            ["cmdline", "mountinfo"].iter().any(|file| contains(&read(process, file), &name))
                || ["cwd", "root"].iter().any(|link| {
                    fs::read_link(process.join(link))
                        .is_ok_and(|target| contains(target.as_os_str().as_bytes(), &name))
                })
        })
        .map(|process| describe(&process))
}

/// The mounts of this process that name `folder`.
fn mounts_of(folder: &Path) -> impl Iterator<Item = String> {
    let name = folder.to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains(&name))
        .map(|line| format!("mount {line}"))
        .collect::<Vec<_>>()
        .into_iter()
}

fn read(process: &Path, file: &str) -> Vec<u8> {
    fs::read(process.join(file)).unwrap_or_default()
}

fn describe(process: &Path) -> String {
    format!("{process:?} {}", String::from_utf8_lossy(&read(process, "cmdline")).replace('\0', " "))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_is_left_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    assert_none(folder.path());
    let mounting = format!("mount -t tmpfs tmpfs '{place}' && cd / && exec sleep 36000");
    let mut unshare = vec!["unshare", "--mount", "--", "sh", "-c", &mounting];
    if !crate::desk::is_root() {
        unshare.splice(1..1, ["--user", "--map-root-user"]);
    }
    let cases = [
        (folder.path(), vec!["sleep", "36000"]),
        (Path::new("/"), unshare),
        (Path::new("/"), vec!["tail", "-f", "/dev/null", "--", place]),
    ];
    for (working, words) in cases {
        let mut child = shell::program(working, &words).spawn().unwrap();
        shell::wait_until("the trace shows", || !of(folder.path()).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_none(folder.path());
    }
}
