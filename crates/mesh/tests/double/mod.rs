//! Doubles of the mesh's ports: a host whose workspaces are maps in files, and a store that stops on demand.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use coldframe_core::{
    BoxFuture, CommandObservation, Digest, Id, NewlineStyle, OutputText, ReadPage, ReceiptId, ToolAnswer,
    ToolCall, ToolError, ToolStatus, WorkspaceMutation,
};
use coldframe_mesh::{
    CallOutcome, Compose, Durability, Finished, MeshError, MeshErrorKind, OpenStep, OpenedRun, RunHandle,
    RunState, RunStore, StepError, StepErrorKind, StepHost, StepSession,
};
use serde_json::{Value, json};

pub type Files = BTreeMap<String, String>;

pub fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

/// The id of the run that most tests run.
pub static RUN: std::sync::LazyLock<Id> = std::sync::LazyLock::new(|| id("r"));

/// A diamond with effects, a read, templates, artifact references and a final response.
pub const WORKFLOW: &str = r#"
id = "w"
goal = "test"
[[step]]
id = "top"
[[step.call]]
id = "make"
tool = "workspace_write"
path = "base"
content = "0"
[[step.call]]
id = "look"
tool = "workspace_read"
path = "base"
[[step.call]]
tool = "workspace_write"
path = "copy"
content = "${look.content}"
[step.output]
sha256 = "${look.sha256}"
made = "${make.sha256}"
[[step]]
id = "left"
depends_on = ["top"]
[[step.call]]
tool = "workspace_write"
path = "left"
content = "1"
[[step.call]]
id = "test"
tool = "workspace_run"
command = ["false"]
expect = { exit_code = 1 }
[step.output]
text = "${test.stdout.text}"
[[step]]
id = "right"
depends_on = ["top"]
[[step.call]]
tool = "workspace_write"
path = "right"
content = "2"
[[step]]
id = "join"
depends_on = ["left", "right"]
[[step.call]]
id = "all"
tool = "workspace_run"
command = ["look"]
[step.output]
text = "${all.stdout.text}"
[[step]]
id = "answer"
kind = "final_response"
[step.output]
text = { artifact_ref = { step_id = "join", path = ["text"] } }
left = { artifact_ref = { step_id = "left", path = ["text"] } }
"#;

/// Lets the runtime drop the tasks of a run whose future was dropped.
pub async fn tasks_are_gone() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Called at every point where a process could be killed.
pub type Tick = Arc<dyn Fn() + Send + Sync>;

/// Keeps deltas and a log of executed calls in a folder, so that they outlive a kill.
#[derive(Clone)]
pub struct Host {
    pub folder: PathBuf,
    pub tick: Tick,
    /// Commands named `meet` wait for each other here.
    pub barrier: Arc<tokio::sync::Barrier>,
    /// Told when a command named `hang` has begun.
    pub hanging: Arc<tokio::sync::Notify>,
    pub opened: Arc<Mutex<Vec<Opened>>>,
    pub abandoned: Arc<Mutex<Vec<(Id, String)>>>,
}

/// What an opened step was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    pub step: Id,
    pub epoch: u64,
    pub lineage: Vec<Id>,
    pub calls_done: Option<usize>,
}

impl Host {
    pub fn new(folder: &Path) -> Self {
        std::fs::create_dir_all(folder.join("deltas")).unwrap();
        Self {
            folder: folder.to_owned(),
            tick: Arc::new(|| {}),
            barrier: Arc::new(tokio::sync::Barrier::new(2)),
            hanging: Arc::new(tokio::sync::Notify::new()),
            opened: Arc::default(),
            abandoned: Arc::default(),
        }
    }

    /// The calls that were executed, as `step what`, in order and over all processes.
    pub fn executed(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.join("executed")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn log(&self, line: &str) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.folder.join("executed")).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn store(&self, files: &Files) -> Digest {
        let text = serde_json::to_string(files).unwrap();
        let digest = Digest::of(text.as_bytes());
        let staged = self.folder.join(format!("deltas/{digest}.{}", std::process::id()));
        std::fs::write(&staged, text).unwrap();
        std::fs::rename(staged, self.folder.join(format!("deltas/{digest}"))).unwrap();
        digest
    }

    pub fn load(&self, delta: Digest) -> Files {
        let text = std::fs::read_to_string(self.folder.join(format!("deltas/{delta}"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn merge(&self, request: &OpenStep<'_>) -> Result<Files, StepError> {
        let mut merged = Files::new();
        for dependency in request.depends_on {
            for (path, content) in self.load(request.lineage[dependency].delta) {
                if merged.get(&path).is_some_and(|other| *other != content) {
                    let message = format!("{path} was changed in two ways");
                    return Err(StepError::new(StepErrorKind::Conflict, message));
                }
                merged.insert(path, content);
            }
        }
        Ok(merged)
    }
}

impl StepHost for Host {
    fn open_step<'a>(
        &'a self,
        request: OpenStep<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn StepSession>, StepError>> {
        Box::pin(async move {
            (self.tick)();
            self.opened.lock().unwrap().push(Opened {
                step: request.step.clone(),
                epoch: request.epoch,
                lineage: request.lineage.keys().cloned().collect(),
                calls_done: request.checkpoint.map(|checkpoint| checkpoint.calls_done),
            });
            let files = match request.checkpoint.and_then(|checkpoint| checkpoint.delta) {
                Some(delta) => self.load(delta),
                None => self.merge(&request)?,
            };
            let (run, step) = (request.run.clone(), request.step.clone());
            Ok(Box::new(Session { host: self.clone(), run, step, files, receipts: Vec::new() })
                as Box<dyn StepSession>)
        })
    }

    fn compose<'a>(&'a self, request: Compose<'a>) -> BoxFuture<'a, Result<Value, StepError>> {
        Box::pin(async move {
            (self.tick)();
            let outputs = request.completed.iter().map(|(id, step)| (id.clone(), step.output.clone()));
            hydrate(request.output.clone(), &outputs.collect())
        })
    }
}

fn hydrate(value: Value, outputs: &BTreeMap<Id, Value>) -> Result<Value, StepError> {
    let missing = || StepError::new(StepErrorKind::Evidence, "the artifact reference leads nowhere");
    Ok(match value {
        Value::Object(fields) => match fields.get("artifact_ref") {
            Some(reference) => {
                let step = reference["step_id"].as_str().ok_or_else(missing)?;
                let path = reference["path"].as_array().cloned().unwrap_or_default();
                let start = outputs.get(&id(step)).ok_or_else(missing)?;
                let found = path.iter().try_fold(start, |at, part| at.get(part.as_str()?));
                found.cloned().ok_or_else(missing)?
            }
            None => fields
                .into_iter()
                .map(|(name, field)| Ok((name, hydrate(field, outputs)?)))
                .collect::<Result<_, _>>()?,
        },
        other => other,
    })
}

struct Session {
    host: Host,
    run: Id,
    step: Id,
    files: Files,
    receipts: Vec<ReceiptId>,
}

impl Session {
    fn receipt(&mut self) -> ReceiptId {
        let receipt = ReceiptId {
            workflow: self.run.clone(),
            step: self.step.clone(),
            number: self.receipts.len() as u64 + 1,
        };
        self.receipts.push(receipt.clone());
        receipt
    }

    async fn act(&mut self, call: &ToolCall) -> Result<ToolAnswer, ToolError> {
        match call {
            ToolCall::Read(params) => {
                let missing = || ToolError::new(ToolStatus::NotFound, "there is no such file");
                let content = self.files.get(&params.path).ok_or_else(missing)?.clone();
                Ok(ToolAnswer::Read(ReadPage {
                    path: params.path.clone(),
                    start_line: params.start_line,
                    end_line: params.end_line,
                    total_lines: content.lines().count() as u64,
                    sha256: Digest::of(content.as_bytes()).to_string(),
                    size: content.len() as u64,
                    content,
                    newline: NewlineStyle::Lf,
                    truncated: false,
                }))
            }
            ToolCall::Write(params) => {
                self.files.insert(params.path.clone(), params.content.clone());
                let digest = Digest::of(params.content.as_bytes());
                Ok(ToolAnswer::Mutation(WorkspaceMutation {
                    tool_receipt_id: None,
                    path: params.path.clone(),
                    sha256: digest.to_string(),
                    digest,
                    size: params.content.len() as u64,
                    executable: false,
                    observed_at: "2024-05-01T00:00:00Z".to_owned(),
                }))
            }
            ToolCall::Run(params) => self.run(&params.command).await,
            other => Err(ToolError::new(ToolStatus::Refused, other.name())),
        }
    }

    async fn run(&mut self, command: &[String]) -> Result<ToolAnswer, ToolError> {
        match command[0].as_str() {
            "meet" => {
                self.host.barrier.wait().await;
            }
            "hang" => {
                self.host.hanging.notify_one();
                std::future::pending::<()>().await;
            }
            "panic" => panic!("the host broke"),
            "forbidden" => return Err(ToolError::new(ToolStatus::Refused, "not allowed")),
            _ => {}
        }
        let text = self.files.values().cloned().collect::<Vec<_>>().join(",");
        Ok(ToolAnswer::Command(CommandObservation {
            tool_receipt_id: None,
            command: command.to_vec(),
            cwd: ".".to_owned(),
            exit_code: Some(i32::from(command[0] == "false")),
            signal: None,
            timed_out: false,
            timeout_ms: 1,
            duration_ms: 1,
            stdout: OutputText { bytes: text.len() as u64, text, utf8: true, ..OutputText::default() },
            stderr: OutputText::default(),
            observed_at: "2024-05-01T00:00:00Z".to_owned(),
            isolation: "full".to_owned(),
        }))
    }
}

impl StepSession for Session {
    fn call<'a>(&'a mut self, call: &'a ToolCall) -> BoxFuture<'a, Result<CallOutcome, StepError>> {
        Box::pin(async move {
            (self.host.tick)();
            let what = match call {
                ToolCall::Run(params) => params.command.join(" "),
                ToolCall::Write(params) => format!("write {}", params.path),
                ToolCall::Read(params) => format!("read {}", params.path),
                other => other.name().to_owned(),
            };
            self.host.log(&format!("{} {what}", self.step));
            let answer = self.act(call).await;
            let receipt = call.is_effect().then(|| self.receipt());
            let delta = call.is_effect().then(|| self.host.store(&self.files));
            (self.host.tick)();
            Ok(CallOutcome { answer, receipt, delta })
        })
    }

    fn finish(
        self: Box<Self>,
        output: Value,
        outputs: BTreeMap<Id, Value>,
    ) -> BoxFuture<'static, Result<Finished, StepError>> {
        Box::pin(async move {
            (self.host.tick)();
            let mut output = hydrate(output, &outputs)?;
            output["sees"] = json!(outputs.keys().collect::<Vec<_>>());
            let delta = self.host.store(&self.files);
            (self.host.tick)();
            Ok(Finished { delta, receipts_head: delta, output, receipts: self.receipts })
        })
    }

    fn abandon(self: Box<Self>, reason: String) -> BoxFuture<'static, ()> {
        self.host.abandoned.lock().unwrap().push((self.step.clone(), reason));
        Box::pin(async {})
    }
}

/// What the store does at one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It fails and has written nothing.
    FailBefore,
    /// It has written and fails.
    FailAfter,
    /// It never answers, and has written nothing: the process is gone.
    StopBefore,
    /// It never answers and has written.
    StopAfter,
}

#[derive(Default)]
struct Shelf {
    runs: BTreeMap<Id, (String, String)>,
    open: BTreeMap<Id, ()>,
    writes: usize,
    history: Vec<RunState>,
}

/// Keeps runs in memory, as text, and crashes at the write with the given number, counted from 1.
#[derive(Clone)]
pub struct Store {
    shelf: Arc<Mutex<Shelf>>,
    crash: Option<(usize, Crash)>,
    /// Told when a write never answers.
    pub stopped: Arc<tokio::sync::Notify>,
}

impl Store {
    pub fn new() -> Self {
        Self { shelf: Arc::default(), crash: None, stopped: Arc::default() }
    }

    /// The same runs under a store that crashes at a write, counted from now, or not at all.
    pub fn crashing(&self, crash: Option<(usize, Crash)>) -> Self {
        self.shelf.lock().unwrap().writes = 0;
        Self { crash, ..self.clone() }
    }

    pub fn writes(&self) -> usize {
        self.shelf.lock().unwrap().writes
    }

    /// Every state that was written.
    pub fn history(&self) -> Vec<RunState> {
        self.shelf.lock().unwrap().history.clone()
    }

    pub fn state(&self, run: &Id) -> Option<RunState> {
        let shelf = self.shelf.lock().unwrap();
        shelf.runs.get(run).map(|(_, state)| serde_json::from_str(state).unwrap())
    }
}

struct Handle {
    store: Store,
    run: Id,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.store.shelf.lock().unwrap().open.remove(&self.run);
    }
}

impl RunHandle for Handle {
    fn save<'a>(&'a mut self, state: &'a RunState, _: Durability) -> BoxFuture<'a, Result<(), MeshError>> {
        Box::pin(async move {
            let crash = {
                let mut shelf = self.store.shelf.lock().unwrap();
                shelf.writes += 1;
                let crash = self.store.crash.filter(|(at, _)| *at == shelf.writes).map(|(_, crash)| crash);
                if !matches!(crash, Some(Crash::FailBefore | Crash::StopBefore)) {
                    let text = serde_json::to_string(state).unwrap();
                    shelf.runs.get_mut(&self.run).unwrap().1 = text;
                    shelf.history.push(state.clone());
                }
                crash
            };
            tokio::task::yield_now().await;
            match crash {
                None => Ok(()),
                Some(Crash::FailBefore | Crash::FailAfter) => {
                    Err(MeshError::new(MeshErrorKind::NoSpace, "the disk is full"))
                }
                Some(Crash::StopBefore | Crash::StopAfter) => {
                    self.store.stopped.notify_one();
                    std::future::pending().await
                }
            }
        })
    }
}

impl RunStore for Store {
    fn create<'a>(
        &'a self,
        workflow: &'a str,
        state: &'a RunState,
    ) -> BoxFuture<'a, Result<Box<dyn RunHandle>, MeshError>> {
        Box::pin(async move {
            let mut shelf = self.shelf.lock().unwrap();
            if shelf.open.contains_key(&state.run) {
                return Err(MeshError::new(MeshErrorKind::Busy, "somebody works on the run"));
            }
            if shelf.runs.contains_key(&state.run) {
                return Err(MeshError::new(MeshErrorKind::Exists, "the run exists"));
            }
            let text = serde_json::to_string(state).unwrap();
            shelf.runs.insert(state.run.clone(), (workflow.to_owned(), text));
            shelf.open.insert(state.run.clone(), ());
            Ok(Box::new(Handle { store: self.clone(), run: state.run.clone() }) as Box<dyn RunHandle>)
        })
    }

    fn open<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<OpenedRun, MeshError>> {
        Box::pin(async move {
            let (workflow, state) = self.load(run).await?;
            if self.shelf.lock().unwrap().open.insert(run.clone(), ()).is_some() {
                return Err(MeshError::new(MeshErrorKind::Busy, "somebody works on the run"));
            }
            let handle = Box::new(Handle { store: self.clone(), run: run.clone() });
            Ok(OpenedRun { handle, state, workflow })
        })
    }

    fn load<'a>(&'a self, run: &'a Id) -> BoxFuture<'a, Result<(String, RunState), MeshError>> {
        Box::pin(async move {
            let shelf = self.shelf.lock().unwrap();
            let (workflow, state) = shelf
                .runs
                .get(run)
                .ok_or_else(|| MeshError::new(MeshErrorKind::NotFound, "there is no such run"))?;
            Ok((workflow.clone(), serde_json::from_str(state).unwrap()))
        })
    }
}
