//! Conformance clauses, reference doubles and faulty doubles for the core traits of Coldframe.
//!
//! * [`MemoryStore`], [`MemoryWriter`], [`MemorySource`]: references that keep everything in memory.
//! * [`FullStore`], [`LyingStore`], [`LateStore`]: stores that fail in one way each.
//! * [`source_conformance!`]: one named `#[test]` per clause that every source adapter must meet, over a
//!   [`SourceFixture`] that the adapter's author writes.
//!
//! ```
//! use coldframe_core::{SnapshotLimits, SourceRef};
//! use coldframe_testkit::{FixtureNode, MemorySource, block_on, capture_into_memory};
//!
//! let adapter = MemorySource::new(vec![FixtureNode::file("src/lib.rs", "pub fn one() {}\n")]);
//! let source = SourceRef::new("memory", MemorySource::LOCATOR, "")?;
//! let capture = capture_into_memory(&adapter, &source, SnapshotLimits::default());
//! let (snapshot, store) = block_on(capture)?;
//! assert_eq!(snapshot.entries().len(), 1);
//! assert_eq!(store.total_bytes(), 16);
//! # Ok::<(), coldframe_core::SourceError>(())
//! ```
#![forbid(unsafe_code)]

pub mod clauses;
mod conformance;
mod faulty;
mod fixture;
mod memory_source;
mod memory_store;
mod memory_writer;

pub use conformance::{Clause, block_on, check};
pub use faulty::{FullStore, LateStore, LyingStore};
pub use fixture::{FixtureNode, PreparedSource, SourceFixture};
pub use memory_source::MemorySource;
pub use memory_store::MemoryStore;
pub use memory_writer::{MemoryWriter, capture_into_memory};
