//! Merges what completed steps left into one stored delta.

use std::collections::BTreeMap;
use std::sync::Arc;

use coldframe_blob::Store;
use coldframe_core::{Id, SourceSnapshot, WorkspaceDelta};
use coldframe_delta::{Lineage, LineageStep, merge_heads};
use coldframe_mesh::CompletedStep;

use crate::Error;
use crate::session::blocking;

/// The merged cumulative delta of `heads`, stored. `steps` has the heads and every completed step below them.
pub(crate) async fn merged_delta(
    store: &Store,
    snapshot: &Arc<SourceSnapshot>,
    steps: &BTreeMap<Id, CompletedStep>,
    heads: Vec<Id>,
) -> Result<WorkspaceDelta, Error> {
    let mut loaded: Vec<(Id, WorkspaceDelta, Vec<Id>)> = Vec::with_capacity(steps.len());
    for (step, completed) in steps {
        let delta = store.load_delta(&completed.delta).await?;
        // A dependency without a workspace has no delta and no place in the lineage.
        let depends_on =
            completed.depends_on.iter().filter(|step| steps.contains_key(*step)).cloned().collect();
        loaded.push((step.clone(), delta, depends_on));
    }
    let base = Arc::clone(snapshot);
    let merged = blocking(move || {
        let steps = loaded
            .iter()
            .map(|(step, delta, depends_on)| {
                (step.clone(), LineageStep { delta, depends_on: depends_on.clone() })
            })
            .collect();
        Ok(merge_heads(&base, &Lineage { steps }, &heads)?)
    })
    .await?;
    store.save_delta(&merged).await?;
    Ok(merged)
}
