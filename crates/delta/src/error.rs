//! What can go wrong with deltas, with one kind that a program can act on.

use coldframe_core::{Digest, Id, SourceError, WorkspacePath};

use crate::WorkspaceDeltaConflict;

/// What a caller can do about an error of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeltaErrorKind {
    /// Deltas, base and lineage do not belong together; a retry will not help.
    Contract,
    /// Two steps disagree about a path; a person or a further step has to decide.
    Conflict,
    /// The content of a blob is missing or has the wrong size; fetch it and try again.
    MissingContent,
}

/// A delta that does not belong to the snapshot it is used with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// The delta is against another snapshot.
    #[error("the delta is against snapshot {found}, not {expected}; use it with the snapshot that it names")]
    ForeignBase {
        /// The id of the snapshot at hand.
        expected: Digest,
        /// The id of the snapshot that the delta names.
        found: Digest,
    },
    /// A change cannot be made to the base.
    #[error("the change of {path:?} does not fit the base: {detail}; export the delta again")]
    Misfit {
        /// The path of the change.
        path: WorkspacePath,
        /// What is wrong.
        detail: &'static str,
    },
}

impl FitError {
    /// What a program can act on.
    pub fn kind(&self) -> DeltaErrorKind {
        DeltaErrorKind::Contract
    }
}

/// Why deltas could not be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Steps disagree; every path on which they do is listed.
    #[error(transparent)]
    Conflict(WorkspaceDeltaConflict),
    /// A head or a dependency is not in the lineage.
    #[error("step {step} is not in the lineage; hand in every ancestor of the heads")]
    UnknownStep {
        /// The step that is missing.
        step: Id,
    },
    /// A step depends on itself, directly or through others.
    #[error("the steps {} depend on one another in a circle; remove one of the dependencies", names(.steps))]
    Cycle {
        /// The steps of the circle, each depending on the next.
        steps: Vec<Id>,
    },
    /// The delta of a step does not belong to the base.
    #[error("the delta of step {step} cannot be merged: {source}")]
    Fit {
        /// The step.
        step: Id,
        /// What does not fit.
        source: FitError,
    },
    /// The merged changes break a rule of deltas.
    #[error("the merged delta breaks the contract")]
    Contract(#[from] SourceError),
}

impl MergeError {
    /// What a program can act on.
    pub fn kind(&self) -> DeltaErrorKind {
        match self {
            Self::Conflict(_) => DeltaErrorKind::Conflict,
            _ => DeltaErrorKind::Contract,
        }
    }
}

fn names(steps: &[Id]) -> String {
    steps.iter().map(Id::as_str).collect::<Vec<_>>().join(", ")
}

/// Why a patch could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The delta does not belong to the base.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A content is not at hand, or has another size than the delta says.
    #[error("the content of {path:?} (blob {digest}) is missing or incomplete; fetch the blob and try again")]
    MissingContent {
        /// The path that needs the content.
        path: WorkspacePath,
        /// The blob.
        digest: Digest,
    },
}

impl PatchError {
    /// What a program can act on.
    pub fn kind(&self) -> DeltaErrorKind {
        match self {
            Self::Fit(error) => error.kind(),
            Self::MissingContent { .. } => DeltaErrorKind::MissingContent,
        }
    }
}
