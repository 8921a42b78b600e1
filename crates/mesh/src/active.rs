//! A run while one process works on it: its state and the only way to publish a change of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use coldframe_core::Id;
use tokio::sync::Mutex;

use crate::store::{Durability, RunHandle};
use crate::{
    Cancellation, CompletedStep, MeshError, MeshErrorKind, Observer, RunEvent, RunState, StepHost, Workflow,
};

/// The state with the right to write it.
pub(crate) struct Ledger {
    state: RunState,
    handle: Box<dyn RunHandle>,
    /// Set while a write is under way, and for good where one failed: then memory and disk differ, and a
    /// later write would publish what was never written.
    unsettled: bool,
}

pub(crate) struct ActiveRun {
    pub(crate) workflow: Workflow,
    pub(crate) host: Arc<dyn StepHost>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Given when the caller cancels or the state cannot be written any more.
    pub(crate) halt: Cancellation,
    pub(crate) owner: Id,
    pub(crate) max_epochs: u64,
    ledger: Mutex<Ledger>,
}

impl ActiveRun {
    pub(crate) fn new(
        workflow: Workflow,
        state: RunState,
        handle: Box<dyn RunHandle>,
        host: Arc<dyn StepHost>,
        observer: Arc<dyn Observer>,
        (owner, max_epochs): (Id, u64),
    ) -> Self {
        let ledger = Mutex::new(Ledger { state, handle, unsettled: false });
        Self { workflow, host, observer, halt: Cancellation::new(), owner, max_epochs, ledger }
    }

    pub(crate) fn tell(&self, event: &RunEvent) {
        self.observer.event(event);
    }

    /// Changes the state and writes it; both or, for all who read it later, neither. A change that fails must
    /// leave the state as it was.
    pub(crate) async fn publish<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut RunState) -> Result<T, MeshError>,
    ) -> Result<T, MeshError> {
        let mut ledger = self.ledger.lock().await;
        if ledger.unsettled {
            let message = "the state could not be written before; free the disk and resume the run";
            return Err(MeshError::new(MeshErrorKind::Io, message));
        }
        let Ledger { state, handle, unsettled } = &mut *ledger;
        let value = change(state)?;
        state.revision += 1;
        *unsettled = true;
        handle.save(state, durability).await?;
        *unsettled = false;
        Ok(value)
    }

    /// Reads the state as this process has it.
    pub(crate) async fn read<T>(&self, look: impl FnOnce(&RunState) -> T) -> T {
        look(&self.ledger.lock().await.state)
    }

    /// The completed steps among those with the given indices.
    pub(crate) async fn completed(
        &self,
        steps: impl IntoIterator<Item = usize>,
    ) -> BTreeMap<Id, CompletedStep> {
        self.read(|state| {
            let found = steps.into_iter().filter_map(|index| {
                let id = &self.workflow.steps[index].id;
                Some((id.clone(), state.steps.get(id)?.completed.clone()?))
            });
            found.collect()
        })
        .await
    }
}
