//! What a source adapter promises, and the trusted writer that it streams into.

use std::future::Future;

use crate::{
    BoxFuture, ByteStream, Digest, Omission, SnapshotLimits, SourceError, SourceRef, SourceSnapshot, Stored,
    WorkspacePath,
};

/// What an adapter can do. The conformance kit tests the declared abilities, and that undeclared ones answer
/// [`crate::ErrorKind::Unsupported`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A mutable revision (branch, tag, nothing) resolves to one that never changes.
    pub pinned_revisions: bool,
    /// Only a selection of the paths can be captured.
    pub sparse_selection: bool,
    /// Capturing an unchanged source again reads no contents.
    pub incremental_recapture: bool,
    /// The source knows which files are executable.
    pub executable_bits: bool,
    /// The source can hold symbolic links.
    pub symlinks: bool,
}

impl Capabilities {
    /// None of the abilities.
    pub const fn new() -> Self {
        Self {
            pinned_revisions: false,
            sparse_selection: false,
            incremental_recapture: false,
            executable_bits: false,
            symlinks: false,
        }
    }

    /// Declares [`Self::pinned_revisions`].
    #[must_use]
    pub const fn with_pinned_revisions(mut self) -> Self {
        self.pinned_revisions = true;
        self
    }

    /// Declares [`Self::sparse_selection`].
    #[must_use]
    pub const fn with_sparse_selection(mut self) -> Self {
        self.sparse_selection = true;
        self
    }

    /// Declares [`Self::incremental_recapture`].
    #[must_use]
    pub const fn with_incremental_recapture(mut self) -> Self {
        self.incremental_recapture = true;
        self
    }

    /// Declares [`Self::executable_bits`].
    #[must_use]
    pub const fn with_executable_bits(mut self) -> Self {
        self.executable_bits = true;
        self
    }

    /// Declares [`Self::symlinks`].
    #[must_use]
    pub const fn with_symlinks(mut self) -> Self {
        self.symlinks = true;
        self
    }
}

/// What the source turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The source as asked; the writer's application compares it with its own.
    pub source: SourceRef,
    /// A revision that never changes, or empty where the tree digest itself is the revision.
    pub revision: String,
}

impl Resolved {
    /// `source`, resolved to the immutable `revision`.
    pub fn new(source: SourceRef, revision: impl Into<String>) -> Self {
        Self { source, revision: revision.into() }
    }
}

/// Turns a source into entries.
///
/// For callers: pass the adapter to the store's `capture_source`, which checks what it did.
/// For authors: stream every entry into `writer`, report every path you leave out with
/// [`SnapshotWriter::omit`], hold no whole source in memory, and put no credential into an error.
pub trait SourceAdapter: Send + Sync {
    /// The provider name that a [`SourceRef`] carries for this adapter.
    fn provider(&self) -> &str;

    /// What this adapter can do.
    fn capabilities(&self) -> Capabilities;

    /// Streams the source into `writer` and says what it resolved to.
    fn capture(
        &self,
        source: &SourceRef,
        writer: &dyn SnapshotWriter,
    ) -> impl Future<Output = Result<Resolved, SourceError>> + Send;

    /// Is told what a capture of `source` became, once the snapshot is stored and verified. An adapter may
    /// remember the id for [`SnapshotWriter::reuse`]; what goes wrong here never fails the capture. It may be told
    /// of captures that ran at the same time in any order, and must not block.
    fn captured(&self, _source: &SourceRef, _snapshot: &SourceSnapshot) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// [`SourceAdapter`] as an object; every adapter has it.
pub trait DynSourceAdapter: Send + Sync {
    /// See [`SourceAdapter::provider`].
    fn provider(&self) -> &str;

    /// See [`SourceAdapter::capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// See [`SourceAdapter::capture`].
    fn capture<'a>(
        &'a self,
        source: &'a SourceRef,
        writer: &'a dyn SnapshotWriter,
    ) -> BoxFuture<'a, Result<Resolved, SourceError>>;

    /// See [`SourceAdapter::captured`].
    fn captured<'a>(&'a self, source: &'a SourceRef, snapshot: &'a SourceSnapshot) -> BoxFuture<'a, ()>;
}

impl<A: SourceAdapter> DynSourceAdapter for A {
    fn provider(&self) -> &str {
        SourceAdapter::provider(self)
    }

    fn capabilities(&self) -> Capabilities {
        SourceAdapter::capabilities(self)
    }

    fn capture<'a>(
        &'a self,
        source: &'a SourceRef,
        writer: &'a dyn SnapshotWriter,
    ) -> BoxFuture<'a, Result<Resolved, SourceError>> {
        Box::pin(SourceAdapter::capture(self, source, writer))
    }

    fn captured<'a>(&'a self, source: &'a SourceRef, snapshot: &'a SourceSnapshot) -> BoxFuture<'a, ()> {
        Box::pin(SourceAdapter::captured(self, source, snapshot))
    }
}

/// A file whose bytes follow in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Where the file lies.
    pub path: WorkspacePath,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// The size the source declares, where it does; the bytes that arrive decide, and must match it.
    pub size: Option<u64>,
}

/// A small file, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// Where the file lies.
    pub path: WorkspacePath,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// A file whose bytes an earlier capture stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// Where the file lies.
    pub path: WorkspacePath,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The number of its bytes.
    pub size: u64,
}

/// Takes the entries of a capture. It belongs to the application, not to the adapter: it checks path rules,
/// collisions and limits before it takes bytes, hashes while they stream, deduplicates and stores.
///
/// Calls may overlap; the order of entries does not matter. A call that fails leaves no entry, so an adapter
/// may try the same path again.
pub trait SnapshotWriter: Send + Sync {
    /// The bounds in force, so that an adapter can stop early.
    fn limits(&self) -> SnapshotLimits;

    /// Takes one file as a stream.
    fn file<'a>(
        &'a self,
        file: NewFile,
        content: ByteStream<'a>,
    ) -> BoxFuture<'a, Result<Stored, SourceError>>;

    /// Takes several small files at once; all or none become entries.
    fn files<'a>(&'a self, files: Vec<InlineFile>) -> BoxFuture<'a, Result<Vec<Stored>, SourceError>>;

    /// Takes files by digest. Where the answer is `false` the store does not hold the blob, no entry was made,
    /// and the adapter must send the bytes.
    fn known<'a>(&'a self, files: Vec<KnownFile>) -> BoxFuture<'a, Result<Vec<bool>, SourceError>>;

    /// Takes all entries and omissions of an earlier snapshot of the same source at once, where nothing in the
    /// source differs from it. `false` where the store does not hold that snapshot with all its blobs, where it is
    /// of another source, where it would break a limit, or where something was taken or left out already: nothing
    /// was taken then, and the adapter sends its entries. A writer that keeps no snapshots answers so always.
    fn reuse<'a>(&'a self, _snapshot: Digest) -> BoxFuture<'a, Result<bool, SourceError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Takes a symbolic link with its target as text; the target is kept, never followed.
    fn symlink(&self, path: WorkspacePath, target: String) -> Result<(), SourceError>;

    /// Takes an empty directory.
    fn directory(&self, path: WorkspacePath) -> Result<(), SourceError>;

    /// Reports what is left out.
    fn omit(&self, omission: Omission);
}
