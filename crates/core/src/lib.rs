//! The contracts of Coldframe: what a source, a store and a workspace promise one another.
//!
//! This crate holds types, traits and rules only. It does no I/O and knows no runtime, so a source adapter
//! or a store can be written against it alone.
//!
//! * [`WorkspacePath`], [`Digest`], [`Id`]: the rules every name obeys.
//! * [`SourceRef`], [`SnapshotEntry`], [`SourceSnapshot`], [`WorkspaceDelta`]: the records, each with one
//!   canonical text form from which its id is computed.
//! * [`SourceAdapter`] streams entries into a trusted [`SnapshotWriter`]; [`BlobStore`] keeps contents.
//! * [`Workspace`] and [`WorkspaceProvider`]: the six bounded tools and the export of a delta.
//!
//! ```
//! use coldframe_core::{Digest, Node, SnapshotEntry, SnapshotManifest, SourceRef, WorkspacePath};
//!
//! let manifest = SnapshotManifest {
//!     source: SourceRef::new("fixture", "project", "main")?,
//!     resolved_revision: "commit-1".to_owned(),
//!     entries: vec![SnapshotEntry {
//!         path: WorkspacePath::parse("README.md")?,
//!         node: Node::File { digest: Digest::of(b"hello\n"), size: 6, executable: false },
//!     }],
//!     omitted: vec![],
//! };
//! let snapshot = manifest.seal()?;
//! let text = snapshot.to_manifest();
//! assert_eq!(coldframe_core::SourceSnapshot::from_manifest(text.as_bytes())?, snapshot);
//! # Ok::<(), coldframe_core::SourceError>(())
//! ```
#![forbid(unsafe_code)]

mod canonical;
mod delta;
mod digest;
mod error;
mod id;
mod limits;
mod path;
mod snapshot;
mod source;
mod store;
mod tools;
mod workspace;

pub use delta::{DeltaChange, ExcludedCount, WorkspaceDelta};
pub use digest::{Digest, DigestWriter, ParseDigestError};
pub use error::{ErrorKind, MAX_DETAIL_CHARS, SourceError};
pub use id::{Id, InvalidId, ReceiptId};
pub use limits::{LimitKind, SnapshotLimits};
pub use path::{MAX_PATH_BYTES, MAX_SEGMENT_BYTES, PathError, WorkspacePath};
pub use snapshot::{
    Node, Omission, OmissionReason, SnapshotEntry, SnapshotManifest, SourceRef, SourceSnapshot,
};
pub use source::{
    Capabilities, DynSourceAdapter, InlineFile, KnownFile, NewFile, Resolved, SnapshotWriter, SourceAdapter,
};
pub use store::{BlobStore, BoxFuture, ByteStream, Stored, collect, once};
pub use tools::{
    CommandObservation, EditParams, ListEntry, ListPage, ListParams, ListedKind, NewlineStyle, OutputText,
    ReadPage, ReadParams, RunParams, SearchMatch, SearchPage, SearchParams, SkippedCount, ToolAnswer,
    ToolCall, ToolError, ToolStatus, WorkspaceMutation, WriteParams,
};
pub use workspace::{OpenWorkspace, Workspace, WorkspaceError, WorkspaceProvider};
