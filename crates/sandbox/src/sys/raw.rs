//! System calls that run between a clone and an exec: no allocation, no lock, no panic.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::RawFd;

pub(super) type Errno = i32;

pub(super) const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub(super) const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub(super) const MOUNT_ATTR_NODEV: u64 = 0x4;
const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;

fn errno() -> Errno {
    // SAFETY: the location belongs to the calling thread. A child that shares memory with its suspended parent
    // uses the parent's, which is not looked at until the child is gone.
    unsafe { *libc::__errno_location() }
}

pub(super) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn check_fd(result: libc::c_long) -> Result<RawFd, Errno> {
    check(result).map(|fd| fd as RawFd)
}

fn check_unit(result: libc::c_int) -> Result<(), Errno> {
    check(libc::c_long::from(result)).map(|_| ())
}

pub(super) fn open(path: &CStr, flags: i32, mode: u32) -> Result<RawFd, Errno> {
    // SAFETY: the path is NUL-terminated and outlives the call.
    check_fd(libc::c_long::from(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) }))
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: closing a number has no memory effect; callers pass descriptors that they own.
    unsafe { libc::close(fd) };
}

pub(super) fn write_all(fd: RawFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: the buffer is valid for its length.
        let written = check(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } as libc::c_long)?;
        bytes = bytes.get(written as usize..).unwrap_or_default();
    }
    Ok(())
}

pub(super) fn write_file(path: &CStr, content: &[u8], flags: i32) -> Result<(), Errno> {
    let fd = open(path, libc::O_WRONLY | flags, 0o644)?;
    let result = write_all(fd, content);
    close(fd);
    result
}

pub(super) fn mkdir(path: &CStr, mode: u32) -> Result<(), Errno> {
    // SAFETY: the path is NUL-terminated and outlives the call.
    match check_unit(unsafe { libc::mkdir(path.as_ptr(), mode) }) {
        Err(libc::EEXIST) => Ok(()),
        other => other,
    }
}

pub(super) fn symlink(target: &CStr, path: &CStr) -> Result<(), Errno> {
    // SAFETY: both are NUL-terminated and outlive the call.
    check_unit(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) })
}

pub(super) fn chdir(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is NUL-terminated and outlives the call.
    check_unit(unsafe { libc::chdir(path.as_ptr()) })
}

pub(super) fn setns(fd: RawFd, kind: i32) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    check_unit(unsafe { libc::setns(fd, kind) })
}

pub(super) fn unshare(flags: i32) -> Result<(), Errno> {
    // SAFETY: takes numbers only; callers are single-threaded children.
    check_unit(unsafe { libc::unshare(flags) })
}

pub(super) fn prctl(option: i32, value: u64) -> Result<i32, Errno> {
    // SAFETY: the options used here take numbers only.
    check(libc::c_long::from(unsafe { libc::prctl(option, value, 0, 0, 0) })).map(|value| value as i32)
}

pub(super) fn mount(kind: &CStr, target: &CStr, flags: u64, data: &CStr) -> Result<(), Errno> {
    // SAFETY: all strings are NUL-terminated and outlive the call.
    let result = unsafe {
        libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    };
    check_unit(result)
}

/// Makes a file system with string options and flags and returns a detached mount.
pub(super) fn mount_detached(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    flags: &[&CStr],
    attributes: u64,
) -> Result<RawFd, Errno> {
    // SAFETY: the name is NUL-terminated and outlives the call.
    let context = check_fd(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let configure = |command: u32, key: *const libc::c_char, value: *const libc::c_char| {
        // SAFETY: key and value are null or NUL-terminated and outlive the call.
        check(unsafe { libc::syscall(libc::SYS_fsconfig, context, command, key, value, 0) })
    };
    let made = options
        .iter()
        .try_for_each(|(key, value)| configure(FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr()).map(|_| ()))
        .and_then(|()| {
            let mut flags = flags.iter();
            flags.try_for_each(|key| configure(FSCONFIG_SET_FLAG, key.as_ptr(), std::ptr::null()).map(|_| ()))
        })
        .and_then(|()| configure(FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null()))
        .and_then(|_| {
            // SAFETY: takes numbers only.
            check_fd(unsafe { libc::syscall(libc::SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes) })
        });
    close(context);
    made
}

/// A detached copy of the mount tree at `path`.
pub(super) fn clone_tree(path: &CStr) -> Result<RawFd, Errno> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_RECURSIVE as u32;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check_fd(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// Adds mount attributes to the mount (and, where asked, everything below it), and parts it from the host's: what
/// the host mounts below later would come without them.
pub(super) fn restrict(fd: RawFd, path: &CStr, attributes: u64, recursive: bool) -> Result<(), Errno> {
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let value =
        MountAttributes { set: attributes, clear: 0, propagation: libc::MS_PRIVATE, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the structure has the layout that the kernel documents and its size is passed along.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            flags,
            &raw const value,
            std::mem::size_of::<MountAttributes>(),
        )
    };
    check(result).map(|_| ())
}

pub(super) fn attach(mount: RawFd, target: &CStr) -> Result<(), Errno> {
    // SAFETY: both paths are NUL-terminated and outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount,
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(result).map(|_| ())
}

/// Makes the current directory the root and lets go of the old one.
pub(super) fn pivot_here() -> Result<(), Errno> {
    // SAFETY: the strings are NUL-terminated constants.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: as above.
    check_unit(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    chdir(c"/")
}

/// Brings the loopback interface of the current network namespace up.
pub(super) fn loopback_up() -> Result<(), Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let socket = check_fd(libc::c_long::from(unsafe { libc::socket(libc::AF_INET, kind, 0) }))?;
    // SAFETY: an all-zero ifreq is a valid value; its name is "lo" with zeros after it.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check_unit(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request))
    };
    close(socket);
    result
}

/// Gives up every capability.
pub(super) fn drop_capabilities() -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: version 3 takes two blocks of three 32-bit words, which is what `none` holds.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) }).map(|_| ())
}

pub(super) fn pause_ms(time_ms: i32) {
    // SAFETY: with a count of zero the pointer is not read.
    unsafe { libc::poll(std::ptr::null_mut(), 0, time_ms) };
}

pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process at once, without destructors or handlers.
    unsafe { libc::_exit(code) }
}

pub(super) fn set_host_name(name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is valid for its length.
    check_unit(unsafe { libc::sethostname(name.as_ptr(), name.to_bytes().len()) })
}
