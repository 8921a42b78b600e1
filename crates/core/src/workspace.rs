//! What a workspace and its provider promise to those who drive them.

use crate::{BoxFuture, SourceError, SourceSnapshot, ToolAnswer, ToolCall, ToolError, WorkspaceDelta};

/// Why a workspace could not be opened, exported or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The snapshot, the delta or a blob is missing or damaged.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// This host cannot give the isolation that the configuration requires.
    #[error("this host cannot isolate: {0}")]
    Isolation(String),
    /// The operating system refused; nothing of the workspace is left.
    #[error("{operation}: {detail}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        detail: String,
    },
    /// The configuration contradicts itself or names what does not exist.
    #[error("configuration: {0}")]
    Configuration(String),
}

/// What a workspace starts from.
#[derive(Debug, Clone, Copy)]
pub struct OpenWorkspace<'a> {
    /// The snapshot at the bottom.
    pub snapshot: &'a SourceSnapshot,
    /// What earlier work changed against it, where there was any.
    pub delta: Option<&'a WorkspaceDelta>,
}

/// Opens isolated copy-on-write workspaces.
pub trait WorkspaceProvider: Send + Sync {
    /// Opens a fresh workspace. It shares nothing writable with any other.
    fn open<'a>(
        &'a self,
        request: OpenWorkspace<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Workspace>, WorkspaceError>>;
}

/// An isolated copy-on-write workspace. Effects run one at a time in call order; reads do not wait for them.
/// Dropping it leaves nothing behind.
pub trait Workspace: Send + Sync {
    /// Runs one tool. Dropping the future of a command ends the command with all its processes.
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<ToolAnswer, ToolError>>;

    /// The changes against the snapshot, with every new content in the blob store. The workspace stays open.
    fn export<'a>(&'a self) -> BoxFuture<'a, Result<WorkspaceDelta, WorkspaceError>>;

    /// Takes everything away and says so where that fails.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>>;
}
