//! Content-addressed storage for blobs, snapshots and deltas, on a local disk or any `object_store`.
//!
//! A [`Store`] names every blob by the BLAKE3 of its bytes and checks size and hash on every read. Small files
//! of a capture go into packs, large ones and single writes stand alone; `docs/formats/store.md` has the layout.
//! [`capture_source`] runs a source adapter against a store and gives back a verified snapshot.
//!
//! ```
//! use coldframe_blob::Store;
//! use coldframe_core::BlobStore;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let store = Store::in_memory().await;
//! let blob = store.write_bytes(b"hello\n".to_vec()).await?;
//! assert!(store.contains(blob).await?);
//! assert_eq!(store.read_bytes(blob).await?, b"hello\n");
//! # Ok::<(), coldframe_core::SourceError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod capture;
mod check;
mod digest_map;
mod disk;
mod entries;
mod index;
mod inner;
mod layout;
mod ledger;
mod objects;
mod pack;
mod packer;
mod read;
mod reuse;
mod state;
mod store;
mod write;
mod writer;

pub use capture::capture_source;
pub use store::{Store, VerifyReport};
