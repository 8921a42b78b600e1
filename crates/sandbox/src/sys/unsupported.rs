//! The names of this seam on a system that has no containers: each answers that it cannot.
//!
//! No value of [`Container`] or [`WorkspaceSpace`] can exist here, so what takes one is never reached.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// No such thing can be made on this system.
#[derive(Debug)]
pub(crate) struct Container(Infallible);

/// The folders of an overlay, relative to `directory`.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing mounts it here")]
pub(crate) struct OverlayLayers<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) lower: &'a str,
    pub(crate) upper: &'a str,
    pub(crate) work: &'a str,
}

/// One step in making the minimal root.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing performs it here")]
pub(crate) enum RootStep {
    Directory { target: CString, mode: u32 },
    File { target: CString, content: Vec<u8> },
    Link { target: CString, path: CString },
    Bind { source: CString, target: CString, writable: bool, devices: bool },
    Mask { empty: CString, target: CString },
}

/// No such thing can be made on this system.
#[derive(Debug)]
pub(crate) struct WorkspaceSpace(Infallible);

/// What to start.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing starts it here, except that messages name the program")]
pub(crate) struct Spawn {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
}

/// No such thing can be started on this system.
#[derive(Debug)]
pub(crate) struct RunningCommand(Infallible);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "no command ends here")]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// Why a command did not start.
#[derive(Debug)]
#[expect(dead_code, reason = "no command is started here")]
pub(crate) enum StartError {
    Execute(io::Error),
    Contain(io::Error),
}

impl Container {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "containers need Linux"))
    }

    pub(crate) fn overlay(&self, _layers: &OverlayLayers<'_>) -> io::Result<OwnedFd> {
        match self.0 {}
    }

    pub(crate) fn plain(&self, _directory: &Path) -> io::Result<OwnedFd> {
        match self.0 {}
    }

    pub(crate) fn root(&self, _stage: &Path, _steps: &[RootStep]) -> io::Result<OwnedFd> {
        match self.0 {}
    }

    pub(crate) fn space(
        &self,
        _root: BorrowedFd<'_>,
        _workspace: BorrowedFd<'_>,
        _previous: Option<&WorkspaceSpace>,
        _temporary_bytes: u64,
    ) -> io::Result<WorkspaceSpace> {
        match self.0 {}
    }
}

impl RunningCommand {
    pub(crate) fn start(space: &WorkspaceSpace, _spawn: &Spawn) -> io::Result<Self> {
        match space.0 {}
    }

    pub(crate) fn take_streams(&mut self) -> (OwnedFd, OwnedFd) {
        match self.0 {}
    }

    pub(crate) fn status_fd(&self) -> impl AsFd + '_ {
        match self.0 {}
        #[expect(unreachable_code, reason = "names the type that is never made")]
        io::stdin()
    }

    pub(crate) fn kill(&self) {
        match self.0 {}
    }

    pub(crate) fn wait(&self) -> Result<Option<ExitStatus>, StartError> {
        match self.0 {}
    }
}
