//! What an adapter's author gives the conformance kit: a way to make a source with known content.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use coldframe_core::{DynSourceAdapter, SourceRef};

/// One path of a source that a clause wants to exist. Parents come into being by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixtureNode {
    /// A regular file.
    File {
        /// The path from the root of the source.
        path: String,
        /// The bytes.
        content: Vec<u8>,
        /// Whether the owner may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// The path from the root of the source.
        path: String,
        /// The target as text.
        target: String,
    },
    /// A directory without entries.
    Directory {
        /// The path from the root of the source.
        path: String,
    },
}

impl FixtureNode {
    /// A file that is not executable.
    pub fn file(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self::File { path: path.to_owned(), content: content.into(), executable: false }
    }

    /// An executable file.
    pub fn executable(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self::File { path: path.to_owned(), content: content.into(), executable: true }
    }

    /// A symbolic link.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self::Symlink { path: path.to_owned(), target: target.to_owned() }
    }

    /// An empty directory.
    pub fn directory(path: &str) -> Self {
        Self::Directory { path: path.to_owned() }
    }

    /// The path from the root of the source.
    pub fn path(&self) -> &str {
        match self {
            Self::File { path, .. } | Self::Symlink { path, .. } | Self::Directory { path } => path,
        }
    }
}

/// A source that is ready to be captured.
pub struct PreparedSource {
    /// The adapter under test.
    pub adapter: Arc<dyn DynSourceAdapter>,
    /// What to ask it for.
    pub source: SourceRef,
    /// Whatever must live as long as the source: a temporary directory, a server.
    pub guard: Box<dyn Any + Send>,
}

impl PreparedSource {
    /// A source without anything to keep alive.
    pub fn new(adapter: impl DynSourceAdapter + 'static, source: SourceRef) -> Self {
        Self { adapter: Arc::new(adapter), source, guard: Box::new(()) }
    }

    /// Keeps `guard` alive as long as the source.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Any + Send) -> Self {
        self.guard = Box::new(guard);
        self
    }
}

impl fmt::Debug for PreparedSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PreparedSource").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Makes sources for the clauses. A fixture that cannot make what it is asked for panics: a suite that cannot
/// run must not look green.
pub trait SourceFixture {
    /// Makes a fresh source that holds exactly `nodes`, with nothing left over from another clause. Links are
    /// asked for only where the adapter declares them. Where the adapter declares incremental recapture, the
    /// source is old enough when this returns that a recapture may rely on its marks.
    fn prepare(&self, nodes: &[FixtureNode]) -> PreparedSource;

    /// A reference to a source that does not exist.
    fn missing(&self) -> PreparedSource;

    /// Whether the source can hold a directory without entries; false for Git trees.
    fn holds_empty_directories(&self) -> bool {
        true
    }

    /// The credential that the adapter was given, where it takes one. No error may show it.
    fn credential(&self) -> Option<String> {
        None
    }
}
