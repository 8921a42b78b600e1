//! The seam to the operating system: the only place with unsafe code.
//!
//! On Linux it gives overlay mounts without a visible mount point, containers and commands in them. Elsewhere
//! the same names answer that the host cannot do it, and the workspace falls back to copies without commands.

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod container;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub(crate) use container::{Container, OverlayLayers, RootStep, WorkspaceSpace};
#[cfg(target_os = "linux")]
pub(crate) use process::{ExitStatus, RunningCommand, Spawn, StartError};
#[cfg(not(target_os = "linux"))]
pub(crate) use unsupported::{
    Container, ExitStatus, OverlayLayers, RootStep, RunningCommand, Spawn, StartError, WorkspaceSpace,
};
