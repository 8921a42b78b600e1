//! Captures a directory on the local disk as a snapshot: ignore rules, links as text, and only what changed.
//!
//! [`LocalSource`] is the adapter; its documentation says what is kept and what is left out. It works in two
//! steps. First a few threads walk the tree, compare each file's marks with the stat cache and check the
//! limits; then only files that are new or changed are read, several at a time. The stat cache is described in
//! `docs/formats/stat-cache.md`.
//!
//! ```
//! use coldframe_core::{SnapshotLimits, SourceRef};
//! use coldframe_local::LocalSource;
//!
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("README.md"), "hello\n")?;
//! # let path = folder.path().to_str().unwrap();
//! let source = SourceRef::new(LocalSource::PROVIDER, path, "")?;
//! let adapter = LocalSource::new().with_include([".env"]);
//! let capture = coldframe_testkit::capture_into_memory(&adapter, &source, SnapshotLimits::default());
//! let (snapshot, _contents) = coldframe_testkit::block_on(capture)?;
//! assert_eq!(snapshot.entries()[0].path.as_str(), "README.md");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod found;
mod last;
mod private;
mod read;
mod rules;
mod source;
mod stat_cache;
mod tree;
mod walk;

pub use source::LocalSource;
