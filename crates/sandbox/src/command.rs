//! `workspace_run`: which program a command means, whether it may run, and the run itself.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coldframe_core::{RunParams, ToolError, ToolStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::dir::{Links, WorkspaceDir, parse_path, tool_error};
use crate::output::Capture;
use crate::policy::{CommandRule, HOME_DIR, Policy, TEMPORARY_DIR, WORKSPACE_DIR};
use crate::sys::{ExitStatus, RunningCommand, Spawn, StartError, WorkspaceSpace};

/// The most bytes of all arguments together.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// The longest time-out that is kept to.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);
/// How much is read from one stream before the clock is looked at.
const DRAIN_BYTES: usize = 1 << 20;

fn refused(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolStatus::Refused, message)
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolStatus::Invalid, message)
}

/// The program that a command means, as a path inside the container.
fn resolve(policy: &Policy, name: &str) -> Result<PathBuf, ToolError> {
    if name.is_empty() {
        return Err(invalid("the command is empty; give a program and its arguments"));
    }
    let in_search_path = |name: &str| {
        policy.search_path.iter().map(|directory| directory.join(name)).find(|path| is_program(path))
    };
    match &policy.commands {
        // What a person typed may be a program of the workspace, named by a path.
        CommandRule::Any if name.contains('/') => Ok(PathBuf::from(name)),
        CommandRule::Any => in_search_path(name).ok_or_else(|| not_found(policy, name)),
        CommandRule::Only(allowed) => {
            let listed = || allowed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            if allowed.contains(name) && !name.contains('/') {
                return in_search_path(name).ok_or_else(|| not_found(policy, name));
            }
            let path = Path::new(name);
            let names_an_allowed_one = path.is_absolute()
                && path.file_name().and_then(|file| file.to_str()).is_some_and(|file| {
                    allowed.contains(file) && in_search_path(file).as_deref() == Some(path)
                });
            if names_an_allowed_one {
                return Ok(path.to_owned());
            }
            Err(refused(format!("{name:?} is not an allowed program; allowed are: {}", listed())))
        }
    }
}

fn not_found(policy: &Policy, name: &str) -> ToolError {
    let folders: Vec<_> = policy.search_path.iter().map(|path| path.display().to_string()).collect();
    ToolError::new(ToolStatus::NotFound, format!("no program {name:?} in {}", folders.join(":")))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Options of git, before its subcommand, that name programs or other folders.
const GIT_GLOBAL: [&str; 9] = [
    "-c",
    "--config-env",
    "--exec-path",
    "-C",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "-p",
    "--paginate",
];
/// Options of git's subcommands that start programs or write elsewhere.
const GIT_OPTIONS: [&str; 10] = [
    "-O",
    "--open-files-in-pager",
    "--output",
    "--exec",
    "--upload-pack",
    "--receive-pack",
    "--ext-diff",
    "--textconv",
    "--template",
    "--separate-git-dir",
];
/// Subcommands that an allowed git has.
const GIT_COMMANDS: [&str; 31] = [
    "--version",
    "add",
    "apply",
    "archive",
    "blame",
    "branch",
    "cat-file",
    "checkout",
    "clean",
    "commit",
    "diff",
    "grep",
    "init",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "mv",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "rm",
    "show",
    "show-ref",
    "stash",
    "status",
    "switch",
    "tag",
    "version",
    "write-tree",
];

/// Whether git takes `argument` for `option`. It takes the beginning of a long one as well, unless that is an
/// option of its own.
fn is_option(argument: &str, option: &str) -> bool {
    if !option.starts_with("--") {
        return argument.starts_with(option);
    }
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    name.len() > 2 && option.starts_with(name) && name != "--text"
}

/// Whether `-O` stands among the short options of a grep, before one that takes the rest as its value.
fn opens_pager(argument: &str) -> bool {
    let Some(letters) = argument.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
        return false;
    };
    letters.chars().take_while(|letter| !"efmABC".contains(*letter)).any(|letter| letter == 'O')
}

/// Refuses what would make an allowed git start another program. The container bounds whatever is left.
fn check_git(arguments: &[String]) -> Result<(), ToolError> {
    let Some(command) = arguments.get(1) else { return Ok(()) };
    if let Some(option) =
        GIT_GLOBAL.iter().find(|option| command.starts_with('-') && is_option(command, option))
    {
        return Err(refused(format!(
            "git {option} is not allowed: it can start programs or leave the workspace"
        )));
    }
    if !GIT_COMMANDS.contains(&command.as_str()) {
        return Err(refused(format!(
            "git {command:?} is not allowed; allowed are: {}",
            GIT_COMMANDS.join(", ")
        )));
    }
    for argument in arguments[2..].iter().take_while(|argument| *argument != "--") {
        let option = GIT_OPTIONS.iter().find(|option| is_option(argument, option));
        // Short options may stand together: `-nO` is `-n -O`.
        let bundled = (command == "grep" && opens_pager(argument)).then_some(&"-O");
        if let Some(option) = option.or(bundled) {
            return Err(refused(format!(
                "git {command} {option} is not allowed: it can start programs or write elsewhere"
            )));
        }
    }
    Ok(())
}

/// A command that the policy lets run.
#[derive(Debug)]
pub(crate) struct Admitted {
    spawn: Spawn,
    pub(crate) cwd: String,
}

/// Checks a command against the policy and prepares it. Nothing has started when this refuses.
pub(crate) fn admit(policy: &Policy, root: &WorkspaceDir, params: &RunParams) -> Result<Admitted, ToolError> {
    let words = &params.command;
    let name =
        words.first().ok_or_else(|| invalid("the command is empty; give a program and its arguments"))?;
    if words.iter().map(String::len).sum::<usize>() > MAX_ARGUMENT_BYTES {
        return Err(ToolError::new(
            ToolStatus::Limit,
            format!("the arguments have more than {MAX_ARGUMENT_BYTES} bytes"),
        ));
    }
    let program = resolve(policy, name)?;
    if policy.commands != CommandRule::Any && program.file_name().is_some_and(|file| file == "git") {
        check_git(words)?;
    }
    let cwd = parse_path(&params.cwd)?;
    let shown = cwd.as_ref().map_or(".", |path| path.as_str());
    root.open_dir(shown, Links::Inside).map_err(|error| tool_error(shown, error))?;
    let directory = match &cwd {
        None => WORKSPACE_DIR.to_owned(),
        Some(path) => format!("{WORKSPACE_DIR}/{path}"),
    };
    let text = |text: &str| CString::new(text).map_err(|_| invalid("the command has a NUL byte"));
    let spawn = Spawn {
        program: text(&program.to_string_lossy())?,
        arguments: words.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
        environment: environment(policy).iter().map(|pair| text(pair)).collect::<Result<_, _>>()?,
        directory: text(&directory)?,
    };
    Ok(Admitted { spawn, cwd: shown.to_owned() })
}

/// `NAME=value` for the fixed variables and those of the policy; nothing is inherited.
fn environment(policy: &Policy) -> Vec<String> {
    let path: Vec<_> = policy.search_path.iter().map(|path| path.display().to_string()).collect();
    let mut variables = std::collections::BTreeMap::from([
        ("HOME".to_owned(), HOME_DIR.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), path.join(":")),
        ("TMPDIR".to_owned(), TEMPORARY_DIR.to_owned()),
    ]);
    variables.extend(policy.environment.clone());
    variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// What a finished run left.
pub(crate) struct Finished {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) timed_out: bool,
    pub(crate) duration: Duration,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

/// Runs a command to its end, its time-out or its cancellation; afterwards no process of it is left.
///
/// `cancelled` becomes readable when nobody waits for the command any more.
pub(crate) fn run(
    policy: &Policy,
    space: &WorkspaceSpace,
    admitted: &Admitted,
    spool: &Path,
    cancelled: &impl AsFd,
) -> Result<Finished, ToolError> {
    let failed = |error: &std::io::Error| {
        ToolError::new(ToolStatus::Failed, format!("the command could not be run: {error}"))
    };
    let started = Instant::now();
    // A caller may have gone while the call waited for its turn.
    if is_ready(cancelled) {
        return Err(ToolError::new(ToolStatus::Failed, "the call was cancelled before the command started"));
    }
    // Beyond a month nobody waits, and the clock could not hold it.
    let deadline = started + policy.timeout.min(LONGEST);
    let mut command = RunningCommand::start(space, &admitted.spawn).map_err(|error| failed(&error))?;
    let (stdout, stderr) = command.take_streams();
    let mut stdout = Capture::new(stdout, spool.join("stdout"), policy.max_output_bytes);
    let mut stderr = Capture::new(stderr, spool.join("stderr"), policy.max_output_bytes);
    let followed = follow(&command, &mut stdout, &mut stderr, deadline, cancelled);
    if !matches!(followed, Ok(End::Finished)) {
        command.kill();
    }
    let status = command.wait();
    let duration = started.elapsed();
    // Every writer is gone, so what is left in the pipes is all there will ever be.
    let drained = stdout.drain(usize::MAX).and_then(|()| stderr.drain(usize::MAX));
    let end = followed.and_then(|end| drained.map(|()| end)).map_err(|error| failed(&error))?;
    let status = status.map_err(|error| match error {
        StartError::Execute(error)
            if error.raw_os_error() == Some(rustix::io::Errno::TOOBIG.raw_os_error()) =>
        {
            ToolError::new(ToolStatus::Limit, "one argument or all of them are longer than the system takes")
        }
        StartError::Execute(error) => {
            let program = admitted.spawn.program.to_string_lossy();
            ToolError::new(ToolStatus::Invalid, format!("{program} cannot be executed: {error}"))
        }
        StartError::Contain(error) => failed(&error),
    })?;
    let (exit_code, signal) = match status {
        Some(ExitStatus::Code(code)) => (Some(code), None),
        Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
        None => (None, Some(9)),
    };
    let timed_out = matches!(end, End::TimedOut) && status.is_none();
    Ok(Finished { exit_code, signal, timed_out, duration, stdout, stderr })
}

fn is_ready(descriptor: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

enum End {
    Finished,
    TimedOut,
    Cancelled,
}

fn follow(
    command: &RunningCommand,
    stdout: &mut Capture,
    stderr: &mut Capture,
    deadline: Instant,
    cancelled: &impl AsFd,
) -> std::io::Result<End> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(End::TimedOut);
        }
        let status = command.status_fd();
        let mut watched = vec![PollFd::new(&status, PollFlags::IN), PollFd::new(cancelled, PollFlags::IN)];
        watched.extend(
            [&*stdout, &*stderr]
                .into_iter()
                .filter_map(Capture::pipe)
                .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
        );
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (ended, dropped) = (!watched[0].revents().is_empty(), !watched[1].revents().is_empty());
        drop(watched);
        if ended {
            return Ok(End::Finished);
        }
        if dropped {
            return Ok(End::Cancelled);
        }
        stdout.drain(DRAIN_BYTES)?;
        stderr.drain(DRAIN_BYTES)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(arguments: &[&str]) -> Result<(), ToolError> {
        check_git(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn git_options_that_start_programs_or_leave_the_folder_are_refused() {
        let refused: [&[&str]; 16] = [
            &["git", "-c", "core.pager=x", "-p", "log"],
            &["git", "-c", "alias.x=!x", "x"],
            &["git", "-calias.x=!x", "x"],
            &["git", "--paginate", "log"],
            &["git", "--exec-path=.", "status"],
            &["git", "-C", "..", "status"],
            &["git", "-C../..", "status"],
            &["git", "--git-dir=../other", "status"],
            &["git", "--work-tree=..", "status"],
            &["git", "grep", "-Otouch fired", "a"],
            &["git", "grep", "--open-files-in-pager=x", "a"],
            &["git", "diff", "--no-index", "--output=../outside/x", "a", "b"],
            &["git", "config", "--global", "core.editor", "x"],
            &["git", "clone", "ext::sh -c x", "x"],
            &["git", "archive", "--exec=x", "--remote=.", "HEAD"],
            &["git", "--config-env=core.pager=PAGER", "log"],
        ];
        for arguments in refused {
            assert_eq!(
                git(arguments).map_err(|error| error.status),
                Err(ToolStatus::Refused),
                "{arguments:?}"
            );
        }
        for arguments in [
            &["git", "status"][..],
            &["git", "log", "-p"],
            &["git", "commit", "-m", "-Ox"],
            &["git"],
            &["git", "add", "--", "-O"],
        ] {
            let expected = if arguments.contains(&"-Ox") { Err(ToolStatus::Refused) } else { Ok(()) };
            assert_eq!(git(arguments).map_err(|error| error.status), expected, "{arguments:?}");
        }
    }

    #[test]
    fn only_the_exact_name_of_an_allowed_program_resolves() {
        let policy = Policy::allowing(["sh"]);
        assert!(resolve(&policy, "sh").is_ok());
        for name in
            ["./sh", "bin/sh", "../x/sh", "/workspace/sh", "SH", " sh", "sh ", "sh\n", "cat", "/bin/cat"]
        {
            assert_eq!(
                resolve(&policy, name).map_err(|error| error.status),
                Err(ToolStatus::Refused),
                "{name:?}"
            );
        }
        assert_eq!(
            resolve(&Policy::allowing(["no-such"]), "no-such").map_err(|error| error.status),
            Err(ToolStatus::NotFound)
        );
    }
}
