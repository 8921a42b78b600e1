//! One command in its own PID namespace: start it, follow it, prove that nothing of it is left.
//!
//! The command is the child of a small init process (a copy of the caller that never executes anything else),
//! so that signals mean what they say and orphans are reaped. When the command ends, when its time is over or
//! when the caller dies, the init process ends, and with it the kernel ends every process of the namespace;
//! the wait for the init process returns only after the last of them is gone.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::child::run_in_child;
use super::container::WorkspaceSpace;
use super::filter;
use super::raw::{self, Errno};

/// What to start, as the kernel wants it. Paths are those inside the container.
#[derive(Debug)]
pub(crate) struct Spawn {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
}

/// A started command.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    init: OwnedFd,
    status: OwnedFd,
    /// The init process ends when this is closed, so that no command outlives its caller.
    _lifeline: OwnedFd,
    streams: Option<(OwnedFd, OwnedFd)>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// Why a command did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The program cannot be executed.
    Execute(io::Error),
    /// The container could not be made.
    Contain(io::Error),
}

/// What the init process reports: four native 32-bit words in one write.
#[repr(C)]
#[derive(Clone, Copy)]
struct Report {
    kind: u32,
    value: i32,
    stage: u32,
    padding: u32,
}

const ENDED: u32 = 1;
const NOT_EXECUTED: u32 = 2;
const NOT_CONTAINED: u32 = 3;
const REPORT_BYTES: usize = std::mem::size_of::<Report>();
const STAGES: [&str; 9] = [
    "",
    "take the pipes",
    "mount /proc",
    "drop capabilities",
    "set limits",
    "prepare signals",
    "fork",
    "enter the folder",
    "filter system calls",
];

/// The most processes and threads of all commands together. The kernel counts them by user namespace, and does
/// not count those that root started.
const MOST_PROCESSES: libc::rlim_t = 8192;

/// The lowest number for descriptors that a child moves to 0 to 4.
const FIRST_FREE: RawFd = 10;
const STATUS: RawFd = 3;
const LIFELINE: RawFd = 4;

/// The raw numbers and pointers that the child needs; made before the clone.
struct Prepared {
    stdout: RawFd,
    stderr: RawFd,
    status: RawFd,
    lifeline: RawFd,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

fn high(fd: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(fd, FIRST_FREE)?)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

impl RunningCommand {
    /// Starts `spawn` in `space`.
    pub(crate) fn start(space: &WorkspaceSpace, spawn: &Spawn) -> io::Result<Self> {
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        let (status, status_end) = pipe()?;
        let (lifeline_end, lifeline) = pipe()?;
        let ends = [high(&stdout_end)?, high(&stderr_end)?, high(&status_end)?, high(&lifeline_end)?];
        let prepared = Prepared {
            stdout: ends[0].as_raw_fd(),
            stderr: ends[1].as_raw_fd(),
            status: ends[2].as_raw_fd(),
            lifeline: ends[3].as_raw_fd(),
            arguments: pointers(&spawn.arguments),
            environment: pointers(&spawn.environment),
        };
        for stream in [&stdout, &stderr] {
            fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
        }
        let dumpable = raw::prctl(libc::PR_GET_DUMPABLE, 0).unwrap_or(1);
        let mut outcome: Result<RawFd, Errno> = Err(libc::ECHILD);
        run_in_child(0, &mut || {
            outcome = enter(space).and_then(|()| {
                let _ = raw::prctl(libc::PR_SET_DUMPABLE, u64::from(dumpable == 1));
                clone_init(&prepared, spawn)
            });
            let _ = raw::prctl(libc::PR_SET_DUMPABLE, u64::from(dumpable == 1));
        })?;
        let init = outcome.map_err(io::Error::from_raw_os_error)?;
        // SAFETY: the kernel put this new descriptor into the table that the child shared with this process.
        let init = unsafe { OwnedFd::from_raw_fd(init) };
        Ok(Self { init, status, _lifeline: lifeline, streams: Some((stdout, stderr)) })
    }

    /// The non-blocking ends of standard output and standard error; they can be taken once.
    pub(crate) fn take_streams(&mut self) -> (OwnedFd, OwnedFd) {
        self.streams.take().expect("the streams of a command are taken once, by the one who started it")
    }

    /// Readable once the command has ended or could not start.
    pub(crate) fn status_fd(&self) -> impl AsFd + '_ {
        &self.status
    }

    /// Ends every process of the command at once.
    pub(crate) fn kill(&self) {
        // It may be gone already, which is as good.
        let _ = pidfd_send_signal(&self.init, Signal::KILL);
    }

    /// Waits until no process of the command is left and says how it ended; `None` where it was killed.
    pub(crate) fn wait(&self) -> Result<Option<ExitStatus>, StartError> {
        let contain = |error: rustix::io::Errno| StartError::Contain(error.into());
        loop {
            match waitid(WaitId::PidFd(self.init.as_fd()), WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(rustix::io::Errno::CHILD) => break,
                Err(error) => return Err(contain(error)),
            }
        }
        let mut bytes = [0u8; REPORT_BYTES];
        let mut status = std::fs::File::from(self.status.try_clone().map_err(StartError::Contain)?);
        if status.read_exact(&mut bytes).is_err() {
            return Ok(None);
        }
        // SAFETY: the structure is plain integers, and every bit pattern is a value of it.
        let report: Report = unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
        let system = io::Error::from_raw_os_error(report.value);
        match report.kind {
            ENDED if libc::WIFSIGNALED(report.value) => {
                Ok(Some(ExitStatus::Signal(libc::WTERMSIG(report.value))))
            }
            ENDED => Ok(Some(ExitStatus::Code(libc::WEXITSTATUS(report.value)))),
            NOT_EXECUTED => Err(StartError::Execute(system)),
            _ => {
                let stage = STAGES.get(report.stage as usize).copied().unwrap_or("start");
                Err(StartError::Contain(io::Error::new(system.kind(), format!("{stage}: {system}"))))
            }
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.kill();
        let _ = self.wait();
    }
}

/// Enters the namespaces of the workspace; runs in the suspended caller's memory.
fn enter(space: &WorkspaceSpace) -> Result<(), Errno> {
    // Only root has groups to give up that matter; for others the kernel refuses and they stay as they are.
    // SAFETY: takes a count of zero, so the pointer is not read.
    unsafe { libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()) };
    raw::setns(space.user.as_raw_fd(), libc::CLONE_NEWUSER)?;
    raw::setns(space.mounts.as_raw_fd(), libc::CLONE_NEWNS)?;
    raw::setns(space.network.as_raw_fd(), libc::CLONE_NEWNET)?;
    raw::setns(space.names.as_raw_fd(), libc::CLONE_NEWUTS)
}

/// Makes the init process as a child of the caller, in memory of its own, and returns its descriptor.
fn clone_init(prepared: &Prepared, spawn: &Spawn) -> Result<RawFd, Errno> {
    let mut init: RawFd = -1;
    let flags = libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_PARENT
        | libc::CLONE_PIDFD
        | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child gets a copy of this memory and goes on on its copy of this stack; the
    // third argument is where CLONE_PIDFD puts the descriptor.
    let pid = raw::check(unsafe {
        libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, &raw mut init, 0, 0)
    })?;
    if pid == 0 {
        run_init(prepared, spawn);
    }
    Ok(init)
}

/// The life of the init process.
fn run_init(prepared: &Prepared, spawn: &Spawn) -> ! {
    if let Err((stage, errno)) = prepare_init(prepared) {
        report(NOT_CONTAINED, errno, stage);
        raw::exit(1);
    }
    // SAFETY: a plain fork by system call: the child has its own copy of this memory.
    let command = match raw::check(unsafe {
        libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), 0, 0, 0, 0)
    }) {
        Ok(0) => execute(prepared, spawn),
        Ok(pid) => pid as libc::pid_t,
        Err(errno) => {
            report(NOT_CONTAINED, errno, 6);
            raw::exit(1);
        }
    };
    // SAFETY: closes numbers that this process owns.
    unsafe { libc::syscall(libc::SYS_close_range, 0, 2, 0) };
    watch(command)
}

fn prepare_init(prepared: &Prepared) -> Result<(), (u32, Errno)> {
    let stage = |number: u32| move |errno: Errno| (number, errno);
    // The copy of the caller's memory must stay closed to the command.
    raw::prctl(libc::PR_SET_DUMPABLE, 0).map_err(stage(1))?;
    for (from, to) in
        [(prepared.stdout, 1), (prepared.stderr, 2), (prepared.status, STATUS), (prepared.lifeline, LIFELINE)]
    {
        // SAFETY: takes numbers only.
        raw::check(libc::c_long::from(unsafe { libc::dup2(from, to) })).map_err(stage(1))?;
    }
    // SAFETY: closes every other descriptor of this process's own table.
    raw::check(unsafe { libc::syscall(libc::SYS_close_range, LIFELINE + 1, u32::MAX, 0) })
        .map_err(stage(1))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    // The init process shows the caller's arguments, so it stays hidden where the kernel can hide it.
    raw::mount(c"proc", c"/proc", flags, c"hidepid=4")
        .or_else(|_| raw::mount(c"proc", c"/proc", flags, c""))
        .map_err(stage(2))?;
    raw::drop_capabilities().map_err(stage(3))?;
    raw::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(stage(3))?;
    filter::install().map_err(stage(8))?;
    limit(libc::RLIMIT_CORE, 0).map_err(stage(4))?;
    limit(libc::RLIMIT_NPROC, MOST_PROCESSES).map_err(stage(4))?;
    // The caller's handlers are code of the caller; from here on signals do what they do by default.
    for signal in 1..=64 {
        // SAFETY: resets a disposition; the kernel refuses the few that cannot be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Lowers a limit for good; one that is lower already stays.
fn limit(resource: libc::__rlimit_resource_t, most: libc::rlim_t) -> Result<(), Errno> {
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for both calls.
    unsafe {
        raw::check(libc::c_long::from(libc::getrlimit(resource, &raw mut value)))?;
        value.rlim_max = value.rlim_max.min(most);
        value.rlim_cur = value.rlim_cur.min(most);
        raw::check(libc::c_long::from(libc::setrlimit(resource, &raw const value))).map(|_| ())
    }
}

fn report(kind: u32, value: i32, stage: u32) {
    let report = Report { kind, value, stage, padding: 0 };
    // SAFETY: the structure is plain integers without padding bytes, valid for its length.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const report).cast::<u8>(), REPORT_BYTES) };
    let _ = raw::write_all(STATUS, bytes);
}

/// Becomes the command.
fn execute(prepared: &Prepared, spawn: &Spawn) -> ! {
    // SAFETY: single-threaded child of our own; every pointer was prepared before the clone and is alive in
    // this copy of the memory; `execve` does not return on success.
    unsafe {
        libc::setsid();
        libc::umask(0o022);
        libc::close(0);
        let input = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        if input > 0 {
            libc::dup2(input, 0);
        }
        libc::fcntl(STATUS, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::syscall(libc::SYS_close_range, LIFELINE, u32::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    if let Err(errno) = raw::chdir(&spawn.directory) {
        report(NOT_CONTAINED, errno, 7);
        raw::exit(127);
    }
    // SAFETY: as above; both lists end in a null pointer.
    unsafe {
        libc::execve(spawn.program.as_ptr(), prepared.arguments.as_ptr(), prepared.environment.as_ptr())
    };
    // SAFETY: reads this thread's own error number.
    report(NOT_EXECUTED, unsafe { *libc::__errno_location() }, 0);
    raw::exit(127);
}

/// Reaps until the command has ended or the caller is gone; ending this process ends all others.
fn watch(command: libc::pid_t) -> ! {
    // SAFETY: plain calls of a single-threaded process; the structures are valid for their lengths.
    unsafe {
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        // Signals are still blocked from before the clone, so none is lost between the fork and here.
        let signals = libc::signalfd(-1, &raw const child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if signals < 0 {
            raw::exit(1);
        }
        loop {
            let mut status = 0;
            loop {
                let pid = libc::waitpid(-1, &raw mut status, libc::WNOHANG);
                if pid == command {
                    report(ENDED, status, 0);
                    raw::exit(0);
                }
                if pid <= 0 {
                    break;
                }
            }
            let mut watched = [
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: LIFELINE, events: libc::POLLIN, revents: 0 },
            ];
            libc::poll(watched.as_mut_ptr(), 2, -1);
            if watched[1].revents != 0 {
                raw::exit(1);
            }
            let mut drained = [0u8; 512];
            while libc::read(signals, drained.as_mut_ptr().cast(), drained.len()) > 0 {}
        }
    }
}
