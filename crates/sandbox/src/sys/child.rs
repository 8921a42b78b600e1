//! Runs a function in a short-lived child that shares memory and descriptors with the caller.
//!
//! The caller is suspended until the child ends, as with `vfork`. So the child needs no message channel: what
//! it opens is open in the caller, and what it writes to its argument is there. It costs no copy of page tables.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;

const STACK_BYTES: usize = 256 << 10;

struct Call<'a> {
    function: &'a mut dyn FnMut(),
}

extern "C" fn enter(argument: *mut c_void) -> i32 {
    // SAFETY: `run_in_child` passes a pointer to a live `Call` and waits until the child is gone.
    let call = unsafe { &mut *argument.cast::<Call<'_>>() };
    (call.function)();
    0
}

/// Runs `function` in a child made with `flags`; it says what it did through the variables it captures.
///
/// `function` must not allocate, lock or panic: it runs in a copy of the calling thread while other threads
/// hold whatever they hold.
pub(super) fn run_in_child(flags: i32, function: &mut dyn FnMut()) -> io::Result<()> {
    let mut stack = vec![0u128; STACK_BYTES / 16];
    let mut call = Call { function };
    let all = flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    let blocked = BlockedSignals::all();
    // SAFETY: the stack is 16-byte aligned, unused by anybody else and alive until the child is gone, since
    // CLONE_VFORK suspends this thread until then; the same holds for `call`.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        libc::clone(enter, top, all, (&raw mut call).cast::<c_void>())
    };
    let error = io::Error::last_os_error();
    drop(blocked);
    if pid < 0 {
        return Err(error);
    }
    loop {
        // SAFETY: waits for the child made above; its status is not wanted.
        let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let error = io::Error::last_os_error();
        // A program that ignores SIGCHLD has its children reaped by the kernel: then there is none to wait for.
        if waited == pid || error.raw_os_error() == Some(libc::ECHILD) {
            return Ok(());
        }
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Keeps handlers of the program from running in a child that shares its memory.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: both sets are plain values, initialized by the calls themselves.
        unsafe {
            let mut every: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut every);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores the mask that `all` read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
