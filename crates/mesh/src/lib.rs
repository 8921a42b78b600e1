//! Runs graphs of workspace steps, with durable state and resume.
//!
//! A [`Workflow`] is a TOML file: steps, what they wait for, and scripted tool calls. The [`Engine`] runs steps
//! that do not wait for each other at the same time, each in a workspace of its own that its [`StepHost`]
//! opens with the deltas of the steps before it. A [`RunStore`] keeps the state, so that a run goes on after
//! `kill -9` and no completed step runs twice. A final response composes an answer from what the steps left.
//!
//! This crate knows no workspace, source, store or journal: they come in through the ports.
//!
//! ```
//! use coldframe_mesh::Workflow;
//!
//! let workflow = Workflow::parse(r#"
//! id = "repair"
//! goal = "The total must count every item once."
//!
//! [[step]]
//! id = "reproduce"
//! [[step.call]]
//! id = "failure"
//! tool = "workspace_run"
//! command = ["python3", "-m", "unittest"]
//! expect = { exit_code = 1 }
//! timeout = 9000
//! [step.output]
//! evidence = "${failure.receipt}"
//!
//! [[step]]
//! id = "answer"
//! kind = "final_response"
//! [step.output]
//! failure = { artifact_ref = { step_id = "reproduce", path = ["evidence"] } }
//! "#)?;
//! assert_eq!(workflow.steps()[1].depends_on, workflow.steps()[..1].iter().map(|s| s.id.clone()).collect::<Vec<_>>());
//! assert_eq!(workflow.ignored(), ["step.reproduce.call.failure.timeout"]);
//!
//! let error = Workflow::parse("id = 'x'\ngoal = 'y'\nstepp = []").unwrap_err();
//! assert!(error.to_string().starts_with("workflow line 3: unknown key stepp"));
//! # Ok::<(), coldframe_mesh::MeshError>(())
//! ```
#![forbid(unsafe_code)]

mod active;
mod cancellation;
mod engine;
mod error;
mod expect;
mod file_store;
mod graph;
mod observer;
mod parse;
mod ports;
mod reader;
mod report;
mod state;
mod store;
mod template;
mod tool_shape;
mod worker;
mod workflow;

pub use cancellation::Cancellation;
pub use engine::{Engine, EngineOptions};
pub use error::{MAX_MESSAGE_CHARS, MeshError, MeshErrorKind, StepError, StepErrorKind};
pub use file_store::FileRunStore;
pub use observer::{NoObserver, Observer, PlannedStep, RunEvent};
pub use ports::{
    CallAnswer, CallOutcome, Checkpoint, CompletedStep, Compose, Finished, OpenStep, StepHost, StepSession,
};
pub use report::{RunReport, StepReport};
pub use state::{CallRecord, Claim, Claimed, RunState, RunStatus, StepRecord, StepResult, StepStatus};
pub use store::{Durability, OpenedRun, RunHandle, RunStore};
pub use workflow::{
    DEFAULT_CAPABILITIES, Expectation, MAX_CALLS, MAX_STEPS, MAX_WORKFLOW_BYTES, ScriptedCall, Step,
    StepKind, Workflow, WorkflowSource,
};
