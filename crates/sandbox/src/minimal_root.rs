//! Plans the minimal root that commands see: a read-only system, a synthetic `/etc`, a small `/dev`, grants.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::policy::{Access, Policy};
use crate::sys::RootStep;

/// System folders that are bound where they are folders, and copied where they are links.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix"];
/// Parts of the host's `/etc` without which programs of the system do not start. None of them is secret.
const SYSTEM_ETC: [&str; 9] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates.conf",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// An empty file and an empty folder that cover what is hidden.
const EMPTY_FILE: &str = "etc/.empty";
const EMPTY_DIR: &str = "etc/.none";

const PASSWD: &str =
    "coldframe:x:1000:1000:coldframe:/tmp/home:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "coldframe:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost coldframe\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The steps that make the root for `policy`, in order.
pub(crate) fn plan(policy: &Policy) -> io::Result<Vec<RootStep>> {
    let mut plan = Plan::default();
    for directory in ["proc", "dev", "dev/shm", "etc", "tmp", "workspace"] {
        plan.directory(Path::new(directory))?;
    }
    for path in SYSTEM {
        plan.system(Path::new(path))?;
    }
    let files =
        [("etc/passwd", PASSWD), ("etc/group", GROUP), ("etc/hosts", HOSTS), ("etc/nsswitch.conf", NSSWITCH)];
    for (target, content) in files {
        plan.file(Path::new(target), content.as_bytes())?;
    }
    plan.file(Path::new(EMPTY_FILE), b"")?;
    plan.directory(Path::new(EMPTY_DIR))?;
    for path in SYSTEM_ETC {
        plan.bind(Path::new(path), false, false)?;
    }
    for name in DEVICES {
        // Read-only still lets devices be written to, but not the host's mode and times of them be changed.
        plan.bind(&Path::new("/dev").join(name), false, true)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        plan.link(Path::new(target), &Path::new("dev").join(name))?;
    }
    // The kernel lets a new /proc be mounted only where one is visible; each command's own covers this one.
    plan.steps.push(RootStep::Bind {
        source: text(Path::new("/proc"))?,
        target: text(Path::new("proc"))?,
        writable: true,
        devices: false,
    });
    let mut grants: Vec<_> = policy.grants.iter().collect();
    grants.sort_by(|a, b| a.path.cmp(&b.path));
    for grant in grants {
        plan.bind(&grant.path, grant.access == Access::ReadWrite, false)?;
        for hidden in &grant.hidden {
            plan.hide(hidden)?;
        }
    }
    Ok(plan.steps)
}

#[derive(Default)]
struct Plan {
    steps: Vec<RootStep>,
    made: BTreeSet<PathBuf>,
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::other("a path has a NUL byte"))
}

fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

impl Plan {
    /// Makes a directory and those above it, unless a bind already shows them.
    fn directory(&mut self, target: &Path) -> io::Result<()> {
        if target.as_os_str().is_empty() || self.made.contains(target) {
            return Ok(());
        }
        if let Some(parent) = target.parent() {
            self.directory(parent)?;
        }
        self.steps.push(RootStep::Directory { target: text(target)?, mode: 0o755 });
        self.made.insert(target.to_owned());
        Ok(())
    }

    fn file(&mut self, target: &Path, content: &[u8]) -> io::Result<()> {
        if let Some(parent) = target.parent() {
            self.directory(parent)?;
        }
        self.steps.push(RootStep::File { target: text(target)?, content: content.to_vec() });
        self.made.insert(target.to_owned());
        Ok(())
    }

    fn link(&mut self, destination: &Path, path: &Path) -> io::Result<()> {
        if self.made.insert(path.to_owned()) {
            self.steps.push(RootStep::Link { target: text(destination)?, path: text(path)? });
        }
        Ok(())
    }

    fn system(&mut self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => {
                let destination = CString::new(fs::read_link(path)?.into_os_string().into_vec())?;
                self.steps.push(RootStep::Link { target: destination, path: text(inside(path))? });
                Ok(())
            }
            Ok(_) => self.bind(path, false, false),
            Err(_) => Ok(()),
        }
    }

    /// Binds `path` at the same place; what is absent on the host is left out.
    fn bind(&mut self, path: &Path, writable: bool, devices: bool) -> io::Result<()> {
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        let target = inside(path);
        let shown = self.steps.iter().any(|step| match step {
            RootStep::Bind { source, .. } => {
                path.as_os_str().as_bytes().starts_with(source.as_bytes()) && is_at_or_below(path, source)
            }
            _ => false,
        });
        if !shown {
            if metadata.is_dir() { self.directory(target)? } else { self.file(target, b"")? }
        }
        self.steps.push(RootStep::Bind { source: text(path)?, target: text(target)?, writable, devices });
        Ok(())
    }

    fn hide(&mut self, path: &Path) -> io::Result<()> {
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        let empty = if metadata.is_dir() { EMPTY_DIR } else { EMPTY_FILE };
        self.steps.push(RootStep::Mask { empty: text(Path::new(empty))?, target: text(inside(path))? });
        Ok(())
    }
}

fn is_at_or_below(path: &Path, source: &CString) -> bool {
    path.starts_with(Path::new(std::ffi::OsStr::from_bytes(source.as_bytes())))
}
