//! Compares Coldframe with the programs that people use today, on two real trees, in one run.
//!
//! Run it with `cargo xtask bench`, which prepares the trees and names them in the environment. Each line gives
//! the medians of both sides and their ratio; rounds of the two sides alternate, so that a machine that slows
//! down slows both.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coldframe_blob::{Store, capture_source};
use coldframe_core::{OpenWorkspace, RunParams, SnapshotLimits, SourceRef, SourceSnapshot, WriteParams};
use coldframe_local::LocalSource;
use coldframe_sandbox::{Policy, Sandbox};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How often each side runs.
const ROUNDS: usize = 5;
/// How often a short operation of ours runs in one round; the round counts its median.
const REPEATS: usize = 40;

struct Tree {
    name: &'static str,
    plain: PathBuf,
    git: PathBuf,
}

struct Bench {
    folder: PathBuf,
    binary: PathBuf,
    wanted: Vec<String>,
}

fn variable(name: &str) -> Outcome<PathBuf> {
    let value =
        std::env::var_os(name).ok_or_else(|| format!("{name} is not set; run `cargo xtask bench`"))?;
    Ok(PathBuf::from(value))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(Duration, T)> {
    let started = Instant::now();
    let value = work()?;
    Ok((started.elapsed(), value))
}

fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Prints one comparison. `bound` is what the ratio of the peer's median to ours must reach.
fn report(work: &str, ours: Duration, peer: &str, theirs: Duration, bound: f64) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    let verdict = if ratio >= bound { "reached" } else { "MISSED" };
    println!(
        "{work:<46} {ours:>11.3?}   {peer:<34} {theirs:>11.3?}   {ratio:>8.2} times as fast, wanted {bound:.2}: {verdict}"
    );
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| name.contains(wanted.as_str()))
    }

    fn home(&self) -> Outcome<PathBuf> {
        let home = self.folder.join("home");
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        Ok(home)
    }

    fn create(&self, home: &Path, tree: &Path) -> Command {
        let mut command = quiet(&self.binary);
        command.arg("--home").arg(home).args(["snapshot", "create"]).arg(tree);
        command
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let large = Tree {
        name: "30,000 files",
        plain: variable("COLDFRAME_BENCH_LARGE")?,
        git: variable("COLDFRAME_BENCH_LARGE_GIT")?,
    };
    let small = Tree {
        name: "2,000 files",
        plain: variable("COLDFRAME_BENCH_SMALL")?,
        git: variable("COLDFRAME_BENCH_SMALL_GIT")?,
    };
    let folder = large.plain.with_file_name("work");
    fs::create_dir_all(&folder)?;
    let wanted = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let bench = Bench { folder, binary: variable("COLDFRAME_BENCH_BINARY")?, wanted };
    for (tree, factor) in [(&small, 100.0), (&large, 500.0)] {
        if bench.wants("workspace") {
            workspace(&bench, tree, factor).await?;
        }
        if bench.wants("capture") {
            first_capture(&bench, tree)?;
            capture_again(&bench, tree)?;
        }
    }
    if bench.wants("size") {
        independent_of_size(&bench, &small, &large).await?;
    }
    if bench.wants("memory") {
        memory(&bench, &large)?;
    }
    Ok(())
}

fn first_capture(bench: &Bench, tree: &Tree) -> Outcome {
    let (mut ours, mut add, mut tar) = (Vec::new(), Vec::new(), Vec::new());
    let repository = bench.folder.join("repository");
    for _ in 0..ROUNDS {
        let home = bench.home()?;
        ours.push(timed(|| run(&mut bench.create(&home, &tree.plain)))?.0);
        let pipe = format!("tar cf - -C '{}' . | cat", tree.plain.display());
        tar.push(timed(|| run(quiet("sh").args(["-c", &pipe])))?.0);
        if repository.exists() {
            fs::remove_dir_all(&repository)?;
        }
        run(quiet("git").args(["init", "--quiet"]).arg(&repository))?;
        let mut git = quiet("git");
        git.arg("--git-dir")
            .arg(repository.join(".git"))
            .arg("--work-tree")
            .arg(&tree.plain)
            .args(["add", "-A"]);
        add.push(timed(|| run(&mut git))?.0);
    }
    let ours = median(ours);
    let work = format!("first capture, {}", tree.name);
    report(&work, ours, "git add -A in a fresh repository", median(add), 5.0);
    report(&work, ours, "tar cf - | cat", median(tar), 1.0 / 3.0);
    Ok(())
}

fn capture_again(bench: &Bench, tree: &Tree) -> Outcome {
    let home = bench.home()?;
    // The second capture finds every file old enough to be trusted by its time stamps.
    run(&mut bench.create(&home, &tree.plain))?;
    std::thread::sleep(Duration::from_millis(100));
    run(&mut bench.create(&home, &tree.plain))?;
    run(quiet("git").args(["status"]).current_dir(&tree.git))?;
    let (mut ours, mut status) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS * 3 {
        ours.push(timed(|| run(&mut bench.create(&home, &tree.plain)))?.0);
        status.push(timed(|| run(quiet("git").arg("status").current_dir(&tree.git)))?.0);
    }
    report(&format!("capture again, {}", tree.name), median(ours), "git status", median(status), 1.0);
    Ok(())
}

/// A warm node: the tree is captured and its base tree is built.
async fn warm(home: &Path, tree: &Tree) -> Outcome<(Sandbox, SourceSnapshot)> {
    let store = Store::open_local(&home.join("store")).await?;
    let source = SourceRef::new("local", tree.plain.to_string_lossy(), "")?;
    let snapshot =
        capture_source(&LocalSource::new(), &source, &store, SnapshotLimits::workstation()).await?;
    let sandbox = Sandbox::open(&home.join("cache"), Arc::new(store), Policy::allowing(["true"]))?;
    sandbox.prepare(&snapshot).await?;
    settle()?;
    Ok((sandbox, snapshot))
}

/// Lets the disk finish what an earlier round left to it, so that the next one does not pay for it.
fn settle() -> Outcome {
    run(&mut quiet("sync"))
}

async fn open_and_close(sandbox: &Sandbox, snapshot: &SourceSnapshot) -> Outcome<Duration> {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let started = Instant::now();
        sandbox.open_workspace(OpenWorkspace { snapshot, delta: None }).await?.close().await?;
        times.push(started.elapsed());
    }
    Ok(median(times))
}

/// Opening, exporting and running in a workspace.
async fn workspace(bench: &Bench, tree: &Tree, factor: f64) -> Outcome {
    let (sandbox, snapshot) = warm(&bench.home()?, tree).await?;
    commands(&sandbox, &snapshot, tree).await?;
    let (mut ours, mut worktree) = (Vec::new(), Vec::new());
    let checkout = bench.folder.join("worktree");
    for _ in 0..ROUNDS {
        ours.push(open_and_close(&sandbox, &snapshot).await?);
        let git = || {
            let mut command = quiet("git");
            command.current_dir(&tree.git).arg("worktree");
            command
        };
        let (time, ()) = timed(|| {
            run(git().args(["add", "--detach"]).arg(&checkout).arg("HEAD"))?;
            run(git().args(["remove", "--force"]).arg(&checkout))
        })?;
        worktree.push(time);
        settle()?;
    }
    let work = format!("open and close, {}", tree.name);
    report(&work, median(ours), "git worktree add and remove", median(worktree), factor);
    export(&sandbox, &snapshot, tree).await
}

/// Opening and closing costs the same whatever the tree holds.
async fn independent_of_size(bench: &Bench, small: &Tree, large: &Tree) -> Outcome {
    let home = bench.home()?;
    let (few, few_snapshot) = warm(&home.join("few"), small).await?;
    let (many, many_snapshot) = warm(&home.join("many"), large).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(open_and_close(&few, &few_snapshot).await?);
        ours.push(open_and_close(&many, &many_snapshot).await?);
    }
    report(
        "open and close, size: 30,000 files",
        median(ours),
        "the same with 2,000 files",
        median(theirs),
        1.0 / 1.5,
    );
    Ok(())
}

async fn export(sandbox: &Sandbox, snapshot: &SourceSnapshot, tree: &Tree) -> Outcome {
    let paths: Vec<String> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.path.as_str().ends_with(".rs"))
        .step_by((snapshot.entries().len() / 20).max(1))
        .take(10)
        .map(|entry| entry.path.to_string())
        .collect();
    for path in &paths {
        fs::OpenOptions::new().append(true).open(tree.git.join(path))?.set_len(0)?;
    }
    run(quiet("git").arg("status").current_dir(&tree.git))?;
    let (mut ours, mut status) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS * 3 {
        let workspace = sandbox.open_workspace(OpenWorkspace { snapshot, delta: None }).await?;
        for path in &paths {
            workspace
                .write(WriteParams { path: path.clone(), content: "edited\n".to_owned(), executable: None })
                .await?;
        }
        let started = Instant::now();
        let delta = workspace.export().await?;
        ours.push(started.elapsed());
        assert_eq!(delta.changes().len(), paths.len());
        workspace.close().await?;
        let mut git = quiet("git");
        status.push(timed(|| run(git.args(["status", "--porcelain"]).current_dir(&tree.git)))?.0);
    }
    run(quiet("git").args(["checkout", "--quiet", "."]).current_dir(&tree.git))?;
    let work = format!("export after ten edits, {}", tree.name);
    report(&work, median(ours), "git status --porcelain", median(status), 5.0);
    Ok(())
}

async fn commands(sandbox: &Sandbox, snapshot: &SourceSnapshot, tree: &Tree) -> Outcome {
    let workspace = sandbox.open_workspace(OpenWorkspace { snapshot, delta: None }).await?;
    let (mut ours, mut bubblewrap) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS * ROUNDS {
        let started = Instant::now();
        let ran = workspace.run(RunParams { command: vec!["true".to_owned()], cwd: ".".to_owned() }).await?;
        ours.push(started.elapsed());
        assert_eq!(ran.exit_code, Some(0));
        let mut bwrap = quiet("bwrap");
        bwrap.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
        let (time, ()) =
            timed(|| run(&mut bwrap)).map_err(|error| format!("install bubblewrap to compare: {error}"))?;
        bubblewrap.push(time);
    }
    workspace.close().await?;
    let work = format!("workspace_run true, {}", tree.name);
    report(&work, median(ours), "bwrap --unshare-all --ro-bind / /", median(bubblewrap), 1.0 / 0.7);
    Ok(())
}

/// The peak of the resident memory of a command, in bytes, as the kernel last showed it.
fn peak(command: &mut Command) -> Outcome<u64> {
    let mut child = command.spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Ok(text) = fs::read_to_string(&status)
            && let Some(line) = text.lines().find(|line| line.starts_with("VmHWM:"))
        {
            let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
            peak = kilobytes.unwrap_or_default() << 10;
        }
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err(format!("{command:?}: {status}").into()) };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn memory(bench: &Bench, large: &Tree) -> Outcome {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let show = |work: &str, bytes: u64, bound: f64| {
        let verdict = if mebibytes(bytes) <= bound { "reached" } else { "MISSED" };
        println!("{work:<46} {:>8.1} MiB   wanted at most {bound:.0}: {verdict}", mebibytes(bytes));
    };
    let tree = peak(&mut bench.create(&bench.home()?, &large.plain))?;
    show("peak memory, 30,000 files", tree, 150.0);
    let folder = bench.folder.join("one-file");
    fs::create_dir_all(&folder)?;
    let file = folder.join("one.bin");
    if fs::metadata(&file).map_or(0, |metadata| metadata.len()) != 1 << 30 {
        run(quiet("dd")
            .args(["if=/dev/urandom", "bs=1M", "count=1024"])
            .arg(format!("of={}", file.display())))?;
    }
    let empty = bench.folder.join("empty");
    fs::create_dir_all(&empty)?;
    let idle = peak(&mut bench.create(&bench.home()?, &empty))?;
    let one = peak(&mut bench.create(&bench.home()?, &folder))?;
    show("peak memory above idle, one file of 1 GiB", one.saturating_sub(idle), 64.0);
    Ok(())
}
