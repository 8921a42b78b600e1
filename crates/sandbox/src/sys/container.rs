//! User and mount namespaces that hold overlay mounts and the minimal root of commands.
//!
//! Nothing here shows on the host: mounts live in namespaces that only descriptors of this process keep alive,
//! so the last close takes them away, also when the process is killed.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::child::run_in_child;
use super::raw::{self, Errno, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

/// The user and group id that a command sees as its own.
const INSIDE_ID: u32 = 1000;

/// A user namespace in which the caller is an unprivileged user, with a copy of the host's mounts.
#[derive(Debug)]
pub(crate) struct Container {
    user: OwnedFd,
    host_mounts: OwnedFd,
}

/// The folders of an overlay, relative to `directory`.
#[derive(Debug)]
pub(crate) struct OverlayLayers<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) lower: &'a str,
    pub(crate) upper: &'a str,
    pub(crate) work: &'a str,
}

/// One step in making the minimal root. Targets are relative to the root.
#[derive(Debug)]
pub(crate) enum RootStep {
    Directory {
        target: CString,
        mode: u32,
    },
    File {
        target: CString,
        content: Vec<u8>,
    },
    Link {
        target: CString,
        path: CString,
    },
    Bind {
        source: CString,
        target: CString,
        writable: bool,
        devices: bool,
    },
    /// Covers `target` with an empty read-only file or directory that was made in the root.
    Mask {
        empty: CString,
        target: CString,
    },
}

/// The namespaces in which the commands of one workspace run.
#[derive(Debug)]
pub(crate) struct WorkspaceSpace {
    pub(super) user: OwnedFd,
    pub(super) mounts: OwnedFd,
    pub(super) network: OwnedFd,
    pub(super) names: OwnedFd,
}

/// Where a child stopped, and why.
#[derive(Debug, Clone, Copy)]
struct Stop {
    stage: &'static str,
    index: usize,
    errno: Errno,
}

fn at(stage: &'static str) -> impl Fn(Errno) -> Stop {
    move |errno| Stop { stage, index: 0, errno }
}

impl Stop {
    fn into_error(self) -> io::Error {
        let system = io::Error::from_raw_os_error(self.errno);
        io::Error::new(system.kind(), format!("{} (step {}): {system}", self.stage, self.index))
    }
}

/// Runs `work` in a child and hands out what it returns.
fn child<T: Copy>(flags: i32, mut work: impl FnMut() -> Result<T, Stop>) -> io::Result<T> {
    let mut outcome = None;
    // A change of credentials makes the shared memory undumpable, which would close /proc/self to the caller.
    let dumpable = raw::prctl(libc::PR_GET_DUMPABLE, 0).unwrap_or(1);
    run_in_child(flags, &mut || {
        outcome = Some(work());
        let _ = raw::prctl(libc::PR_SET_DUMPABLE, u64::from(dumpable == 1));
    })?;
    match outcome {
        Some(Ok(value)) => Ok(value),
        Some(Err(stop)) => Err(stop.into_error()),
        None => Err(io::Error::other("the child ended before it began")),
    }
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the child opened this descriptor in the shared table for the caller, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn open_namespace(path: &CStr, stage: &'static str) -> Result<RawFd, Stop> {
    raw::open(path, libc::O_RDONLY, 0).map_err(at(stage))
}

/// Opens all of them or, where one cannot be had, none: the table of descriptors is the caller's.
fn open_namespaces<const N: usize>(paths: [(&CStr, &'static str); N]) -> Result<[RawFd; N], Stop> {
    let mut opened = [-1; N];
    for (index, (path, stage)) in paths.into_iter().enumerate() {
        match open_namespace(path, stage) {
            Ok(fd) => opened[index] = fd,
            Err(stop) => {
                opened.into_iter().take(index).for_each(raw::close);
                return Err(stop);
            }
        }
    }
    Ok(opened)
}

pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::other("a path has a NUL byte"))
}

impl Container {
    /// Makes the namespaces. Fails where the host refuses user namespaces.
    pub(crate) fn new() -> io::Result<Self> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let user_map = format!("{INSIDE_ID} {user} 1");
        let group_map = format!("{INSIDE_ID} {group} 1");
        let [user, host_mounts] = child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, || {
            raw::write_file(c"/proc/self/setgroups", b"deny", 0).map_err(at("deny setgroups"))?;
            raw::write_file(c"/proc/self/gid_map", group_map.as_bytes(), 0)
                .map_err(at("map the group id"))?;
            raw::write_file(c"/proc/self/uid_map", user_map.as_bytes(), 0).map_err(at("map the user id"))?;
            // Nobody inside may make a user namespace of their own and gain capabilities in it.
            raw::write_file(c"/proc/sys/user/max_user_namespaces", b"0", 0)
                .map_err(at("forbid user namespaces"))?;
            open_namespaces([
                (c"/proc/self/ns/user", "keep the user namespace"),
                (c"/proc/self/ns/mnt", "keep the mount namespace"),
            ])
        })?;
        Ok(Self { user: own(user), host_mounts: own(host_mounts) })
    }

    fn enter(&self, mounts: RawFd) -> Result<(), Stop> {
        raw::setns(self.user.as_raw_fd(), libc::CLONE_NEWUSER).map_err(at("enter the user namespace"))?;
        raw::setns(mounts, libc::CLONE_NEWNS).map_err(at("enter the mount namespace"))
    }

    /// Mounts an overlay that no namespace shows and returns the handle of its root.
    pub(crate) fn overlay(&self, layers: &OverlayLayers<'_>) -> io::Result<OwnedFd> {
        let directory = c_path(layers.directory)?;
        let text = |value: &str| CString::new(value).map_err(|_| io::Error::other("a layer has a NUL byte"));
        let (lower, upper, work) = (text(layers.lower)?, text(layers.upper)?, text(layers.work)?);
        // With `userxattr` the kernel itself keeps metacopy off and follows no redirect, and refuses to be told so.
        let options: [(&CStr, &CStr); 4] =
            [(c"lowerdir", &lower), (c"upperdir", &upper), (c"workdir", &work), (c"index", c"off")];
        let mount = child(0, || {
            self.enter(self.host_mounts.as_raw_fd())?;
            raw::chdir(&directory).map_err(at("enter the workspace folder"))?;
            let flags: [&CStr; 2] = [c"userxattr", c"volatile"];
            let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
            raw::mount_detached(c"overlay", &options, &flags, attributes).map_err(at("mount the overlay"))
        })?;
        Ok(own(mount))
    }

    /// A handle of `directory` as a mount of its own.
    pub(crate) fn plain(&self, directory: &Path) -> io::Result<OwnedFd> {
        let directory = c_path(directory)?;
        let mount = child(0, || {
            self.enter(self.host_mounts.as_raw_fd())?;
            let mount = raw::clone_tree(&directory).map_err(at("clone the workspace mount"))?;
            let restricted = raw::restrict(mount, c"", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, true);
            if let Err(errno) = restricted {
                raw::close(mount);
                return Err(at("restrict it")(errno));
            }
            Ok(mount)
        })?;
        Ok(own(mount))
    }

    /// Builds the minimal root over the empty folder `stage` and returns the mount namespace that shows it.
    pub(crate) fn root(&self, stage: &Path, steps: &[RootStep]) -> io::Result<OwnedFd> {
        let stage = c_path(stage)?;
        let mounts = child(0, || {
            self.enter(self.host_mounts.as_raw_fd())?;
            raw::unshare(libc::CLONE_NEWNS).map_err(at("copy the mounts"))?;
            let options: [(&CStr, &CStr); 2] = [(c"size", c"16m"), (c"mode", c"755")];
            let root = raw::mount_detached(c"tmpfs", &options, &[], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
                .map_err(at("mount the root"))?;
            let attached = raw::attach(root, &stage).map_err(at("attach the root"));
            raw::close(root);
            attached?;
            raw::chdir(&stage).map_err(at("enter the root"))?;
            for (index, step) in steps.iter().enumerate() {
                step.perform().map_err(|errno| Stop { stage: "build the root", index, errno })?;
            }
            raw::pivot_here().map_err(at("pivot"))?;
            make_read_only().map_err(at("make the root read-only"))?;
            open_namespace(c"/proc/self/ns/mnt", "keep the root")
        });
        // A step's own path says more than its number.
        mounts.map(own).map_err(|error| match step_of(&error, steps) {
            Some(step) => io::Error::new(error.kind(), format!("{error}: {step:?}")),
            None => error,
        })
    }

    /// Makes the namespaces of one workspace: the root with the workspace in it, a temporary folder of at most
    /// `temporary_bytes`, a network with nothing but loopback. A mount is attached once, so the workspace comes
    /// from its `previous` namespaces where there are such.
    pub(crate) fn space(
        &self,
        root: BorrowedFd<'_>,
        workspace: BorrowedFd<'_>,
        previous: Option<&WorkspaceSpace>,
        temporary_bytes: u64,
    ) -> io::Result<WorkspaceSpace> {
        let temporary = CString::new(format!("size={temporary_bytes},mode=1777,nr_inodes=1000000"))?;
        let [mounts, network, names] = child(0, || {
            let workspace = match previous {
                None => {
                    self.enter(root.as_raw_fd())?;
                    workspace.as_raw_fd()
                }
                Some(previous) => {
                    self.enter(previous.mounts.as_raw_fd())?;
                    let copy = raw::clone_tree(c"/workspace").map_err(at("copy the workspace mount"))?;
                    if let Err(errno) = raw::setns(root.as_raw_fd(), libc::CLONE_NEWNS) {
                        raw::close(copy);
                        return Err(at("enter the root")(errno));
                    }
                    copy
                }
            };
            let kinds = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
            let attached = raw::unshare(kinds)
                .map_err(at("make the workspace's namespaces"))
                .and_then(|()| raw::attach(workspace, c"/workspace").map_err(at("attach the workspace")));
            if previous.is_some() {
                raw::close(workspace);
            }
            attached?;
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            raw::mount(c"tmpfs", c"/tmp", flags, &temporary).map_err(at("mount the temporary folder"))?;
            raw::mkdir(c"/tmp/home", 0o700).map_err(at("make the home folder"))?;
            raw::mount(c"tmpfs", c"/dev/shm", flags, c"size=256m,mode=1777")
                .map_err(at("mount shared memory"))?;
            raw::loopback_up().map_err(at("bring loopback up"))?;
            raw::set_host_name(c"coldframe").map_err(at("set the host name"))?;
            open_namespaces([
                (c"/proc/self/ns/mnt", "keep the mounts"),
                (c"/proc/self/ns/net", "keep the network"),
                (c"/proc/self/ns/uts", "keep the host name"),
            ])
        })?;
        let user = self.user.try_clone()?;
        Ok(WorkspaceSpace { user, mounts: own(mounts), network: own(network), names: own(names) })
    }
}

/// Makes the root read-only once no descriptor writes to it. The files in it are closed, but a program that another
/// thread starts at this moment holds copies of the caller's descriptors until it executes.
fn make_read_only() -> Result<(), Errno> {
    const TRIES: usize = 500;
    for _ in 0..TRIES {
        match raw::restrict(libc::AT_FDCWD, c"/", MOUNT_ATTR_RDONLY, false) {
            Err(libc::EBUSY) => raw::pause_ms(4),
            other => return other,
        }
    }
    Err(libc::EBUSY)
}

fn step_of<'a>(error: &io::Error, steps: &'a [RootStep]) -> Option<&'a RootStep> {
    let text = error.to_string();
    let index = text.strip_prefix("build the root (step ")?.split_once(')')?.0.parse::<usize>().ok()?;
    steps.get(index)
}

impl RootStep {
    fn perform(&self) -> Result<(), Errno> {
        match self {
            Self::Directory { target, mode } => raw::mkdir(target, *mode),
            Self::File { target, content } => raw::write_file(target, content, libc::O_CREAT | libc::O_EXCL),
            Self::Link { target, path } => raw::symlink(target, path),
            Self::Bind { source, target, writable, devices } => {
                let mut attributes = MOUNT_ATTR_NOSUID;
                if !writable {
                    attributes |= MOUNT_ATTR_RDONLY;
                }
                if !devices {
                    attributes |= MOUNT_ATTR_NODEV;
                }
                bind(source, target, attributes)
            }
            Self::Mask { empty, target } => bind(empty, target, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID),
        }
    }
}

fn bind(source: &CStr, target: &CStr, attributes: u64) -> Result<(), Errno> {
    let mount = raw::clone_tree(source)?;
    let result = raw::restrict(mount, c"", attributes, true).and_then(|()| raw::attach(mount, target));
    raw::close(mount);
    result
}
