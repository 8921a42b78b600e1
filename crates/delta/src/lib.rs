//! Pure arithmetic on workspace deltas: merge, conflicts, apply plans, patches and their statistics.
//!
//! Nothing here reads a disk, waits, or knows a runtime. Contents come in as bytes where a function needs
//! them, and everything that has to be done to a directory goes out as data.
//!
//! * [`merge_heads`] joins the deltas of the steps that a step depends on, three-way per path against the
//!   state of their common ancestors, and reports every [`PathConflict`] at once.
//! * [`plan_apply`] and [`plan_revert`] say what must stand in a directory, and what to do there in which order.
//! * [`patch()`] writes a git-format patch that `git apply` takes; [`stat`] counts its lines.
//!
//! ```
//! use std::collections::{BTreeMap, HashMap};
//!
//! use coldframe_core::{DeltaChange, Digest, Id, Node, SnapshotEntry, SnapshotManifest, SourceRef};
//! use coldframe_core::{WorkspaceDelta, WorkspacePath};
//! use coldframe_delta::{Lineage, LineageStep, merge_heads, patch};
//!
//! let file = |path: &str, content: &[u8]| SnapshotEntry {
//!     path: WorkspacePath::parse(path).unwrap(),
//!     node: Node::File { digest: Digest::of(content), size: content.len() as u64, executable: false },
//! };
//! let base = SnapshotManifest {
//!     source: SourceRef::new("fixture", "project", "")?,
//!     resolved_revision: String::new(),
//!     entries: vec![file("greeting", b"hello\n")],
//!     omitted: vec![],
//! }
//! .seal()?;
//! let change = |change| WorkspaceDelta::new(base.id(), vec![], vec![change], vec![]);
//! let left = change(DeltaChange::Modified { entry: file("greeting", b"good day\n") })?;
//! let right = change(DeltaChange::Added { entry: file("notes", b"") })?;
//!
//! let ids = [Id::parse("left")?, Id::parse("right")?];
//! let steps = BTreeMap::from([
//!     (ids[0].clone(), LineageStep { delta: &left, depends_on: vec![] }),
//!     (ids[1].clone(), LineageStep { delta: &right, depends_on: vec![] }),
//! ]);
//! let merged = merge_heads(&base, &Lineage { steps }, &ids)?;
//! assert_eq!(merged.changes().len(), 2);
//!
//! let contents: HashMap<Digest, Vec<u8>> = [&b"hello\n"[..], b"good day\n", b""]
//!     .into_iter()
//!     .map(|content| (Digest::of(content), content.to_vec()))
//!     .collect();
//! let patch = patch(&base, &merged, &contents)?;
//! assert!(String::from_utf8(patch.bytes)?.contains("-hello\n+good day\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ancestors;
mod binary;
mod conflict;
mod error;
mod lineage;
mod lines;
mod merge;
mod patch;
mod plan;
mod quote;
mod resolve;
mod stat;
mod view;

pub use conflict::{ConflictKind, ConflictSide, PathConflict, WorkspaceDeltaConflict};
pub use error::{DeltaErrorKind, FitError, MergeError, PatchError};
pub use lineage::{Lineage, LineageStep};
pub use merge::merge_heads;
pub use patch::{Contents, Patch, patch};
pub use plan::{ApplyPlan, ApplyStep, Expected, PathCheck, plan_apply, plan_revert};
pub use stat::{DeltaStat, FileChange, FileStat, stat};
