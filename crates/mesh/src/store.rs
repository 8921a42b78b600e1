//! The port for the state of runs: whole writes only, one writer a run.

use coldframe_core::{BoxFuture, Id};

use crate::{MeshError, RunState};

/// How long a write must last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// It survives a kill of the process. Claims and checkpoints are written so.
    Process,
    /// It survives a loss of power. The start of a run and the ends of steps are written so.
    Machine,
}

/// A run that the caller has to itself until the handle is dropped.
pub struct OpenedRun {
    /// Writes the state.
    pub handle: Box<dyn RunHandle>,
    /// The state as it was last written.
    pub state: RunState,
    /// The text of the workflow.
    pub workflow: String,
}

/// Keeps the state of runs.
///
/// A write is complete or absent, and a failed one leaves the state before it. Two handles on one run never
/// exist at a time, whatever process holds them; the end of a process ends its handles.
pub trait RunStore: Send + Sync {
    /// Creates a run with its first state. Kinds: `Exists` where there is one, `Busy` where somebody has it.
    fn create<'a>(
        &'a self,
        workflow: &'a str,
        state: &'a RunState,
    ) -> BoxFuture<'a, Result<Box<dyn RunHandle>, MeshError>>;

    /// Opens a run to go on with it. Kinds: `NotFound`, `Busy`, `Corrupt`, `Unsupported`.
    fn open<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<OpenedRun, MeshError>>;

    /// Reads a run, also while somebody works on it: the workflow's text and the last state.
    fn load<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<(String, RunState), MeshError>>;
}

/// The right to write the state of one run.
pub trait RunHandle: Send {
    /// Replaces the state.
    fn save<'a>(
        &'a mut self,
        state: &'a RunState,
        durability: Durability,
    ) -> BoxFuture<'a, Result<(), MeshError>>;
}
