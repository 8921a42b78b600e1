//! Checks that the changes which an output cites are what the step's final delta holds.

use coldframe_core::{DeltaChange, Node, SourceSnapshot, WorkspaceDelta, WorkspaceMutation, WorkspacePath};

use crate::error::{Fault, FaultReason, MAX_FAULTS, shown};
use crate::{EvidenceError, Receipt};

/// Checks that each cited change of a file stands in the final cumulative delta with that digest, size and
/// executable bit. Commands pass: they change what they change. All failures are reported at once, each under
/// the receipt's id.
///
/// Pass the receipts of the step that the delta belongs to: what an earlier step did was checked against that
/// step's delta, and this step may have changed it since.
pub fn validate_against_delta<'a>(
    cited: impl IntoIterator<Item = &'a Receipt>,
    base: &SourceSnapshot,
    delta: &WorkspaceDelta,
) -> Result<(), EvidenceError> {
    if delta.base() != base.id() {
        let detail = format!("the delta is against snapshot {}, not {}", delta.base(), base.id());
        return Err(EvidenceError::Misuse(detail));
    }
    let mut faults = Vec::new();
    for receipt in cited {
        if let Err((reason, message)) = check(receipt, base, delta) {
            faults.push(Fault { place: receipt.id.to_string(), reason, message });
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(EvidenceError::NoFinalChange(faults)) }
}

fn check(
    receipt: &Receipt,
    base: &SourceSnapshot,
    delta: &WorkspaceDelta,
) -> Result<(), (FaultReason, String)> {
    if receipt.rolled_back {
        let message = "the work was thrown away with its epoch; run the tool again".to_owned();
        return Err((FaultReason::RolledBack, message));
    }
    let Some(mutation) = receipt.mutation() else {
        let message = "the call failed, so it changed nothing that could be cited".to_owned();
        return receipt.command().map(|_| ()).ok_or((FaultReason::NoObservation, message));
    };
    let path = match WorkspacePath::parse_lenient(&mutation.path) {
        Ok(Some(path)) => path,
        _ => {
            let message = format!("{} is not a path of a file", shown(&mutation.path));
            return Err((FaultReason::NoFinalChange, message));
        }
    };
    let name = shown(path.as_str());
    match delta.change(path.as_str()) {
        Some(DeltaChange::Deleted { .. }) => {
            Err((FaultReason::Superseded, format!("{name} was deleted later; cite what stands at the end")))
        }
        Some(change) => match change.node() {
            Some(node) if stands(node, mutation) => Ok(()),
            Some(node) => Err((FaultReason::Superseded, format!("{name} {}", difference(node, mutation)))),
            None => Err((FaultReason::Superseded, format!("{name} is gone"))),
        },
        None => Err(unchanged(&path, mutation, base, delta)),
    }
}

fn stands(node: &Node, mutation: &WorkspaceMutation) -> bool {
    let written =
        Node::File { digest: mutation.digest, size: mutation.size, executable: mutation.executable };
    *node == written
}

fn difference(node: &Node, mutation: &WorkspaceMutation) -> String {
    match node {
        Node::Symlink { .. } => "was replaced by a link later; cite what stands at the end".to_owned(),
        Node::Directory => "was replaced by a directory later; cite what stands at the end".to_owned(),
        Node::File { digest, .. } if *digest != mutation.digest => {
            format!("was changed again later, to {}; cite the later receipt", digest.short())
        }
        Node::File { size, .. } if *size != mutation.size => {
            format!("has {size} bytes at the end, the receipt says {}", mutation.size)
        }
        Node::File { executable, .. } => {
            let bit = if *executable { "executable" } else { "not executable" };
            format!("is {bit} at the end, the receipt says otherwise; write it once more and cite that")
        }
    }
}

fn unchanged(
    path: &WorkspacePath,
    mutation: &WorkspaceMutation,
    base: &SourceSnapshot,
    delta: &WorkspaceDelta,
) -> (FaultReason, String) {
    let name = shown(path.as_str());
    let before = base.entry(path.as_str());
    if before.is_some_and(|entry| stands(&entry.node, mutation)) {
        let message = format!("no final change: {name} is as it was in the source; leave the citation out");
        return (FaultReason::NoFinalChange, message);
    }
    if before.is_some() {
        let message = format!("no final change: {name} was put back to what it was in the source");
        return (FaultReason::NoFinalChange, message);
    }
    // What the base holds is tracked, so a rule can only keep out a path that is not in it.
    let rules = delta.excluded().iter().map(|excluded| excluded.rule.as_str());
    let covering = rules.into_iter().find(|rule| path.segments().any(|segment| segment == *rule));
    if let Some(rule) = covering {
        let message = format!(
            "{name} lies where the rule {rule:?} keeps new files out of the delta; write it elsewhere or leave the citation out"
        );
        return (FaultReason::Excluded, message);
    }
    let message = format!("no final change: {name} is not there at the end; leave the citation out");
    (FaultReason::NoFinalChange, message)
}
