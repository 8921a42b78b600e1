//! Answers for the names of objects in a store, format 1: see `docs/formats/store.md`.

use coldframe_core::Digest;

/// The object that names the layout.
pub(crate) const FORMAT: &str = "format";
/// What [`FORMAT`] holds in this version.
pub(crate) const FORMAT_TEXT: &str = "coldframe-store 1\n";
/// The record of containers whose blobs were all found right.
pub(crate) const LEDGER: &str = "verified";
/// The folder of packs and their indexes.
pub(crate) const PACKS: &str = "packs";
/// The folder of unfinished objects.
pub(crate) const STAGING: &str = "staging";
/// The folder of snapshot manifests.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// The folder of deltas.
pub(crate) const DELTAS: &str = "deltas";

/// Blobs of at least this many bytes stand alone.
pub(crate) const LARGE_BYTES: usize = 1 << 20;
/// No pack holds more bytes than this.
pub(crate) const PACK_BYTES: usize = 16 << 20;
/// No pack holds more blobs than this, which bounds its index to 2.3 MB where blobs are tiny.
pub(crate) const PACK_RECORDS: usize = 1 << 16;

/// The pack `id`.
pub(crate) fn pack(id: &Digest) -> String {
    format!("{PACKS}/{id}.pack")
}

/// The index of the pack `id`.
pub(crate) fn pack_index(id: &Digest) -> String {
    format!("{PACKS}/{id}.idx")
}

/// The blob `digest` where it stands alone.
pub(crate) fn loose(digest: &Digest) -> String {
    let digest = digest.to_string();
    format!("blobs/{}/{digest}", &digest[..2])
}

/// The record `id` in the folder of snapshots or deltas.
pub(crate) fn record(folder: &str, id: &Digest) -> String {
    format!("{folder}/{id}")
}
