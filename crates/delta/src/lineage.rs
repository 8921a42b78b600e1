//! The steps behind a merge, sorted so that each comes after what it depends on.

use std::collections::{BTreeMap, HashMap};

use coldframe_core::{Id, SourceSnapshot, WorkspaceDelta};

use crate::MergeError;
use crate::ancestors::StepSet;
use crate::view::{View, check_fit};

/// A completed step: its cumulative delta and what it was built on.
#[derive(Debug, Clone)]
pub struct LineageStep<'a> {
    /// The step's own cumulative delta against the source snapshot.
    pub delta: &'a WorkspaceDelta,
    /// The steps whose merged state the step started from.
    pub depends_on: Vec<Id>,
}

/// The steps that a merge may need: the heads and all their ancestors. Others may be there and are not looked at.
#[derive(Debug, Clone, Default)]
pub struct Lineage<'a> {
    /// The steps by id.
    pub steps: BTreeMap<Id, LineageStep<'a>>,
}

/// The heads and their ancestors under small numbers; a step has a greater number than its ancestors.
pub(crate) struct History<'a> {
    pub(crate) ids: Vec<&'a Id>,
    pub(crate) views: Vec<View<'a>>,
    pub(crate) dependencies: Vec<Vec<usize>>,
    /// For each step the step itself and its ancestors.
    pub(crate) closures: Vec<StepSet>,
    /// The union of the closures of all heads.
    pub(crate) everything: StepSet,
}

impl<'a> History<'a> {
    pub(crate) fn new(
        base: &'a SourceSnapshot,
        lineage: &'a Lineage<'a>,
        heads: &'a [Id],
    ) -> Result<Self, MergeError> {
        let ids = sorted_steps(lineage, heads)?;
        let numbers: HashMap<&Id, usize> = ids.iter().enumerate().map(|(number, id)| (*id, number)).collect();
        let mut history = Self {
            views: Vec::with_capacity(ids.len()),
            dependencies: Vec::with_capacity(ids.len()),
            closures: Vec::with_capacity(ids.len()),
            everything: StepSet::empty(ids.len()),
            ids,
        };
        for (number, id) in history.ids.iter().enumerate() {
            let step = &lineage.steps[*id];
            check_fit(base, step.delta).map_err(|source| MergeError::Fit { step: (*id).clone(), source })?;
            let mut closure = StepSet::empty(history.ids.len());
            closure.insert(number);
            let dependencies: Vec<usize> = step.depends_on.iter().map(|id| numbers[id]).collect();
            for dependency in &dependencies {
                closure.add_all(&history.closures[*dependency]);
            }
            history.everything.insert(number);
            history.closures.push(closure);
            history.dependencies.push(dependencies);
            history.views.push(View::changed(base, step.delta));
        }
        Ok(history)
    }
}

enum Visit {
    Open,
    Done,
}

/// A depth-first walk with its own stack, so that a long chain of steps cannot exhaust the thread's.
fn sorted_steps<'a>(lineage: &'a Lineage<'a>, heads: &'a [Id]) -> Result<Vec<&'a Id>, MergeError> {
    let mut visits: HashMap<&Id, Visit> = HashMap::new();
    let mut sorted = Vec::new();
    // The names decide the numbers, so the order in which heads are handed in cannot.
    let mut heads: Vec<&Id> = heads.iter().collect();
    heads.sort_unstable();
    for head in heads {
        let mut stack: Vec<(&Id, std::slice::Iter<'_, Id>)> = Vec::new();
        let mut next = Some(head);
        loop {
            if let Some(id) = next.take() {
                match visits.get(id) {
                    Some(Visit::Done) => {}
                    Some(Visit::Open) => {
                        let start = stack.iter().position(|(open, _)| *open == id).unwrap_or_default();
                        let steps = stack[start..].iter().map(|(open, _)| (*open).clone()).collect();
                        return Err(MergeError::Cycle { steps });
                    }
                    None => {
                        let step = lineage
                            .steps
                            .get(id)
                            .ok_or_else(|| MergeError::UnknownStep { step: id.clone() })?;
                        visits.insert(id, Visit::Open);
                        stack.push((id, step.depends_on.iter()));
                    }
                }
            }
            let Some((id, dependencies)) = stack.last_mut() else { break };
            match dependencies.next() {
                Some(dependency) => next = Some(dependency),
                None => {
                    visits.insert(id, Visit::Done);
                    sorted.push(*id);
                    stack.pop();
                }
            }
        }
    }
    Ok(sorted)
}
