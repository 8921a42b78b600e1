//! Isolated copy-on-write workspaces: materialize a snapshot, run six bounded tools on it, export the delta.
//!
//! A [`Sandbox`] owns a cache folder. It builds the base tree of a snapshot once; each workspace is then an
//! overlay mount that the host does not see, opened in a fraction of a millisecond whatever the tree holds.
//! Commands run in namespaces of their own, on a minimal read-only root, with no network, no capability and no
//! inherited environment; when a call has returned no process of it is left.
//!
//! ```
//! use std::sync::Arc;
//! use coldframe_core::{OpenWorkspace, RunParams, SourceError, WriteParams};
//! use coldframe_sandbox::{Policy, Sandbox};
//!
//! # #[derive(Debug)] struct Failed(#[expect(dead_code)] String);
//! # impl<E: std::fmt::Display> From<E> for Failed { fn from(error: E) -> Self { Failed(error.to_string()) } }
//! # #[tokio::main(flavor = "multi_thread")] async fn main() -> Result<(), Failed> {
//! # let store = coldframe_testkit::MemoryStore::new();
//! # let writer = coldframe_testkit::MemoryWriter::new(store.clone(), Default::default());
//! # let source = coldframe_core::SourceRef::new("example", "empty", "")?;
//! # let snapshot = writer.finish(coldframe_core::Resolved::new(source, ""))?;
//! # let folder = tempfile::tempdir()?; let cache = folder.path();
//! let sandbox = Sandbox::open(cache, Arc::new(store), Policy::allowing(["cat"]))?;
//! let workspace = sandbox.open_workspace(OpenWorkspace { snapshot: &snapshot, delta: None }).await?;
//! workspace.write(WriteParams { path: "note.txt".into(), content: "hello\n".into(), executable: None }).await?;
//! let run = workspace.run(RunParams { command: vec!["cat".into(), "note.txt".into()], cwd: ".".into() }).await?;
//! assert_eq!((run.exit_code, run.stdout.text.as_str()), (Some(0), "hello\n"));
//! let delta = workspace.export().await?;
//! assert_eq!(delta.changes().len(), 1);
//! workspace.close().await?;
//! # Ok(()) }
//! ```
#![deny(unsafe_code)]

mod apply;
mod base;
mod beneath;
mod command;
mod copy;
mod dir;
mod export;
mod file_stream;
mod layer;
mod lines;
mod minimal_root;
mod node;
mod output;
mod policy;
mod probe;
mod read_tools;
mod remove;
mod sandbox;
mod search_tool;
mod sys;
mod twins;
mod workspace;
mod write_tools;

pub use base::BaseTree;
pub use node::SweepReport;
pub use policy::{
    Access, CommandRule, Grant, HOME_DIR, Isolation, Policy, Strategy, TEMPORARY_DIR, WORKSPACE_DIR,
};
pub use probe::{Check, HostReport, probe};
pub use sandbox::Sandbox;
pub use workspace::SandboxWorkspace;
