//! Answers for a capture from end to end: run the adapter, check what it claims, verify what is stored.

use bytes::Bytes;
use coldframe_core::{
    Digest, DynSourceAdapter, Omission, Resolved, SnapshotEntry, SnapshotLimits, SnapshotManifest,
    SourceError, SourceRef, SourceSnapshot, Stored,
};

use crate::check::Visit;
use crate::entries::Taken;
use crate::layout;
use crate::objects::blocking;
use crate::reuse::Reused;
use crate::store::Store;
use crate::writer::CaptureWriter;

const CAPTURE: &str = "capture";

/// Captures `source` through `adapter` into `store`.
///
/// The snapshot exists only where all of it holds: the adapter kept provider, locator and revision as asked, the
/// entries obey the contract and the `limits`, and every blob is in the store. Blobs that this capture stored
/// need only be there with their size; blobs from before are hashed again unless their pack is the very file
/// that was hashed before. An adapter that found nothing new may hand over an earlier snapshot; it is given back
/// as it was stored, after the same look at its blobs.
///
/// At the end the adapter is told the snapshot ([`coldframe_core::SourceAdapter::captured`]).
///
/// # Errors
///
/// The adapter's error; `Contract` for a broken rule or a changed identity; `LimitExceeded`; `NoSpace` and `Io`
/// of the store; `Integrity`, which names path and digest, where a blob was lost while the capture ran. No
/// snapshot is stored then.
pub async fn capture_source(
    adapter: &dyn DynSourceAdapter,
    source: &SourceRef,
    store: &Store,
    limits: SnapshotLimits,
) -> Result<SourceSnapshot, SourceError> {
    if adapter.provider() != source.provider {
        return Err(changed("provider", &source.provider, adapter.provider(), source));
    }
    store.inner().refresh_index().await?;
    let writer = CaptureWriter::new(store, source, limits);
    let resolved = adapter.capture(source, &writer).await?;
    check_identity(source, &resolved)?;
    let (taken, visit) = writer.finish().await?;
    let snapshot = match taken {
        Taken::Snapshot(reused) if is_of(&reused.snapshot, &resolved.revision) => {
            if !store.inner().still_hold(&reused.holders, &visit).await? {
                check_blobs(store, &reused.snapshot, &visit.again()).await?;
            }
            reused.snapshot
        }
        Taken::Snapshot(reused) => {
            let Reused { snapshot, .. } = *reused;
            let (entries, omitted) = (snapshot.entries().to_vec(), snapshot.omitted().to_vec());
            seal(store, resolved, entries, omitted, &visit).await?
        }
        Taken::Entries(entries, omitted) => seal(store, resolved, entries, omitted, &visit).await?,
    };
    store.inner().save_ledger().await;
    adapter.captured(source, &snapshot).await;
    Ok(snapshot)
}

/// Whether the snapshot is what this revision gives: itself, or none where the tree is the revision.
fn is_of(snapshot: &SourceSnapshot, revision: &str) -> bool {
    let resolved = snapshot.resolved_revision();
    if revision.is_empty() { resolved == format!("tree:{}", snapshot.tree()) } else { resolved == revision }
}

/// Makes a snapshot of entries, stores it, and checks that all of it is there.
async fn seal(
    store: &Store,
    resolved: Resolved,
    entries: Vec<SnapshotEntry>,
    omitted: Vec<Omission>,
    visit: &Visit,
) -> Result<SourceSnapshot, SourceError> {
    let manifest =
        SnapshotManifest { source: resolved.source, resolved_revision: resolved.revision, entries, omitted };
    let (snapshot, text) = blocking(move || manifest.seal_with_text()).await??;
    let text = Bytes::from(text);
    check_blobs(store, &snapshot, visit).await?;
    store.save_record(layout::SNAPSHOTS, &snapshot.id(), text.clone()).await?;
    check_record(store, &snapshot.id(), text).await?;
    Ok(snapshot)
}

fn check_identity(asked: &SourceRef, resolved: &Resolved) -> Result<(), SourceError> {
    let answered = &resolved.source;
    let fields = [
        ("provider", &asked.provider, &answered.provider),
        ("locator", &asked.locator, &answered.locator),
        ("revision", &asked.revision, &answered.revision),
    ];
    match fields.into_iter().find(|(_, asked, answered)| asked != answered) {
        Some((field, value, other)) => Err(changed(field, value, other, asked)),
        None => Ok(()),
    }
}

fn changed(field: &str, asked: &str, answered: &str, source: &SourceRef) -> SourceError {
    let detail = format!("the adapter changed the {field} of the source from {asked:?} to {answered:?}");
    SourceError::contract(CAPTURE, detail).with_subject(source)
}

async fn check_blobs(store: &Store, snapshot: &SourceSnapshot, visit: &Visit) -> Result<(), SourceError> {
    let entries = snapshot.entries();
    let blobs: Vec<Stored> = entries.iter().filter_map(|entry| entry.node.blob()).collect();
    let present = store.inner().present(&blobs, visit, true).await?;
    let files = entries.iter().filter(|entry| entry.node.blob().is_some());
    match files.zip(blobs).zip(present).find(|(_, present)| !present) {
        None => Ok(()),
        Some(((entry, blob), _)) => {
            let detail = "it was stored or known and is missing or damaged now; capture again";
            Err(SourceError::corrupt_blob(CAPTURE, &blob.digest, detail).with_subject(&entry.path))
        }
    }
}

/// The store must give the manifest back as it was sealed. Equal text is an equal snapshot, so it is not parsed.
async fn check_record(store: &Store, id: &Digest, text: Bytes) -> Result<(), SourceError> {
    let name = layout::record(layout::SNAPSHOTS, id);
    if store.inner().objects.holds(&name, text).await? {
        return Ok(());
    }
    store.inner().objects.delete(&name).await?;
    let detail = "the store does not give the manifest back as it was written";
    Err(SourceError::integrity(CAPTURE, detail).with_subject(id))
}
