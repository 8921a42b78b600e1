//! The system calls that commands do without: ways around the namespaces, and large kernel surfaces.
//!
//! Sockets of a family that network namespaces do not part (such as `AF_VSOCK`, which reaches the machine that
//! runs this one) are refused, and with them `io_uring`, which makes sockets without asking this filter. See
//! seccomp(2); the numbers are those of the machine's own architecture, and calls of any other are refused.

#![allow(unsafe_code)]

use super::raw::Errno;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000;
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
#[cfg(target_arch = "x86_64")]
const JUMP_IF_AT_LEAST: u16 = 0x35;

/// Where `struct seccomp_data` has the call, the architecture and the low half of the first argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

#[cfg(target_arch = "x86_64")]
const OWN: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const OWN: Option<u32> = Some(0xc000_00b7);
#[cfg(target_arch = "riscv64")]
const OWN: Option<u32> = Some(0xc000_00f3);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const OWN: Option<u32> = None;

/// Families that the command's own network namespace contains.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Answered with `ENOSYS`, so that programs take another way.
const ABSENT: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Answered with `EPERM`.
const FORBIDDEN: [libc::c_long; 24] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_quotactl,
];

const fn step(code: u16, k: u32, jump_true: u8, jump_false: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: jump_true, jf: jump_false, k }
}

/// A program under construction; it runs between a clone and an exec, so it lives on the stack.
struct Program {
    steps: [libc::sock_filter; 96],
    length: u16,
}

impl Program {
    fn push(&mut self, step: libc::sock_filter) {
        if let Some(place) = self.steps.get_mut(usize::from(self.length)) {
            *place = step;
            self.length += 1;
        }
    }

    /// Ends the program with `answer` where the loaded word is `value`.
    fn on(&mut self, value: u32, answer: u32) {
        self.push(step(JUMP_IF_EQUAL, value, 0, 1));
        self.push(step(RETURN, answer, 0, 0));
    }
}

fn refuse(errno: Errno) -> u32 {
    REFUSE | errno as u32
}

/// Restricts the calling process and all that come from it. It has given up new privileges before. Where the
/// architecture is not known here, nothing is restricted.
pub(super) fn install() -> Result<(), Errno> {
    let Some(own) = OWN else { return Ok(()) };
    let mut program = Program { steps: [step(RETURN, ALLOW, 0, 0); 96], length: 0 };
    program.push(step(LOAD, ARCHITECTURE, 0, 0));
    program.push(step(JUMP_IF_EQUAL, own, 1, 0));
    program.push(step(RETURN, refuse(libc::ENOSYS), 0, 0));
    program.push(step(LOAD, NUMBER, 0, 0));
    #[cfg(target_arch = "x86_64")]
    {
        // The x32 numbers of the same calls.
        program.push(step(JUMP_IF_AT_LEAST, 0x4000_0000, 0, 1));
        program.push(step(RETURN, refuse(libc::ENOSYS), 0, 0));
    }
    for number in ABSENT {
        program.on(number as u32, refuse(libc::ENOSYS));
    }
    for number in FORBIDDEN {
        program.on(number as u32, refuse(libc::EPERM));
    }
    program.push(step(JUMP_IF_EQUAL, libc::SYS_socket as u32, 1, 0));
    program.push(step(RETURN, ALLOW, 0, 0));
    program.push(step(LOAD, FIRST_ARGUMENT, 0, 0));
    for family in FAMILIES {
        program.on(family as u32, ALLOW);
    }
    program.push(step(RETURN, refuse(libc::EAFNOSUPPORT), 0, 0));
    let filter = libc::sock_fprog { len: program.length, filter: program.steps.as_mut_ptr() };
    // SAFETY: the filter points at as many steps as it says, alive for the call; the kernel copies them.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0) };
    super::raw::check(libc::c_long::from(result)).map(|_| ())
}
