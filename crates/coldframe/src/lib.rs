//! Coldframe as a library: capture a source once, work on it in isolated copy-on-write workspaces, and keep the
//! delta with its receipts.
//!
//! * [`Runner`] puts a program together from adapters, a [`Home`] and a trusted [`Config`], and opens a [`Coldframe`].
//! * [`Coldframe::capture`] makes a snapshot; [`Coldframe::open_workspace`] opens a [`Workspace`] on it.
//! * [`Coldframe::patch`], [`Coldframe::stat`] and [`Coldframe::apply`] use the delta that a workspace left.
//! * [`Coldframe::prepare_exec`] and [`Coldframe::prepare_run`] are what the command line is made of.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use coldframe::{Policy, Runner, Selection};
//!
//! # let folder = tempfile::tempdir()?;
//! # let (project, home) = (folder.path().join("project"), folder.path().join("home"));
//! # std::fs::create_dir(&project)?;
//! # std::fs::write(project.join("greeting.txt"), "hello\nworld\n")?;
//! let coldframe = Runner::new().with_home(home).open().await?;
//! let source = coldframe.source(project.to_str().unwrap_or("."))?;
//! let snapshot = coldframe.capture(&source, &Selection::default()).await?.snapshot;
//! let workspace = coldframe.open_workspace(&snapshot, Policy::allowing(["cargo"])).await?;
//!
//! let page = workspace.read("greeting.txt", 1..=40).await?;
//! let edit = workspace.edit("greeting.txt", 2..=2, "everyone\n", page.sha256).await?;
//! assert!(edit.tool_receipt_id.is_some());
//! let finished = workspace.finish().await?; // Dropping it instead leaves nothing but the journal.
//! let patch = coldframe.patch(&finished.delta).await?;
//! assert!(String::from_utf8_lossy(&patch.bytes).contains("-world\n+everyone\n"));
//! assert_eq!(std::fs::read_to_string(project.join("greeting.txt"))?, "hello\nworld\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod apply;
mod capture;
mod clock;
pub mod config;
mod deltas;
mod doctor;
mod error;
mod exec;
mod home;
mod host;
mod merge;
mod node;
mod policy;
mod registry;
mod runner;
mod runs;
mod session;
pub mod toolchain;
mod workflow;

pub use apply::{Applied, ApplyOptions, Direction};
pub use capture::{Captured, Selection, SnapshotSize};
/// The stores, for those who use one without a home.
pub use coldframe_blob::{Store, VerifyReport, capture_source};
/// The contracts: what adapters, stores and workspaces promise.
pub use coldframe_core as core;
/// The arithmetic of deltas: merge, plans, patches.
pub use coldframe_delta as delta;
/// Journals, receipts and their verification.
pub use coldframe_evidence as evidence;
/// The adapter for directories.
pub use coldframe_local::LocalSource;
/// Workflows and the engine that runs them.
pub use coldframe_mesh as mesh;
pub use coldframe_sandbox::{CommandRule, Grant, HostReport, Isolation, Policy, Sandbox, Strategy};
pub use config::{Config, ToolchainMode};
pub use doctor::Diagnosis;
pub use error::{Error, Kind};
pub use exec::{ExecFacts, ExecReport, ExecRequest, PreparedExec};
pub use home::Home;
pub use node::{Coldframe, OpenedWorkspace};
pub use registry::Registry;
pub use runner::Runner;
pub use runs::{ExecRecord, StepReceipts, Verification};
pub use session::{Finished, Opened, Outcome, Workspace};
pub use workflow::{PreparedRun, RunRequest, RunResult};
