//! Runs one step: claim, open, calls with a checkpoint after each effect, finish, publish.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coldframe_core::{Digest, Id, ToolAnswer, ToolCall};
use serde_json::{Map, Value};

use crate::active::ActiveRun;
use crate::expect::{check, status_of};
use crate::store::Durability;
use crate::template::{Resolver, visit_references};
use crate::{
    CallAnswer, CallOutcome, CallRecord, Checkpoint, Claim, Claimed, CompletedStep, Compose, MeshError,
    OpenStep, RunEvent, RunState, ScriptedCall, Step, StepError, StepErrorKind, StepKind, StepResult,
    StepSession,
};

/// The most bytes of an output as JSON; every write of the state holds it.
const MAX_OUTPUT_BYTES: usize = 10 << 20;

/// The deepest nesting of an output. Deeper JSON could be written and not read again.
const MAX_OUTPUT_DEPTH: usize = 96;

/// How the work on a step ended.
pub(crate) enum StepEnd {
    /// It is completed; its dependants may begin.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled and stays claimed.
    Left,
    /// The state cannot be written; the run must stop.
    Stopped(MeshError),
}

/// Why the work cannot go on.
enum Stop {
    Step(StepError),
    Run(MeshError),
}

impl From<StepError> for Stop {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<MeshError> for Stop {
    fn from(error: MeshError) -> Self {
        Self::Run(error)
    }
}

fn cancelled() -> StepError {
    StepError::new(StepErrorKind::Cancelled, "the run was cancelled; resume it to go on")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Runs the step with that index to its end.
pub(crate) async fn run_step(active: &ActiveRun, index: usize) -> StepEnd {
    let started = Instant::now();
    let step = &active.workflow.steps[index];
    if active.halt.is_cancelled() {
        return StepEnd::Left;
    }
    let claim = active.publish(Durability::Process, |state| {
        state.claim(&active.workflow, &step.id, &active.owner, active.max_epochs)
    });
    let (claim, checkpoint) = match claim.await {
        Ok(Claimed::Work(claim, checkpoint)) => (claim, checkpoint),
        Ok(Claimed::Exhausted(failure)) => {
            let epoch = active.read(|state| state.steps[&step.id].epoch).await;
            tell_end(active, index, epoch, started, Some(failure)).await;
            return StepEnd::Failed;
        }
        Err(error) => return StepEnd::Stopped(error),
    };
    let calls_done = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.calls_done);
    active.tell(&RunEvent::StepClaimed { step: step.id.clone(), epoch: claim.epoch, calls_done });
    let mut worker = Worker::new(active, index, claim, checkpoint);
    let result = match step.kind {
        StepKind::Workspace => worker.work().await,
        StepKind::FinalResponse => worker.respond().await,
    };
    worker.publish(result, started).await
}

/// Fails a step whose task broke down, so that the run can go on without it.
pub(crate) async fn fail_step(active: &ActiveRun, index: usize, message: String) -> StepEnd {
    let step = &active.workflow.steps[index];
    let held = active.read(|state| {
        let record = &state.steps[&step.id];
        let owner = record.owner.clone()?;
        let delta = record.checkpoint.as_ref().and_then(|checkpoint| checkpoint.delta);
        Some((Claim { step: step.id.clone(), epoch: record.epoch, owner }, delta))
    });
    let Some((claim, delta)) = held.await else { return StepEnd::Failed };
    let mut worker = Worker::new(active, index, claim, None);
    worker.delta = delta;
    let failure = StepError::new(StepErrorKind::Infrastructure, message);
    worker.publish(Err(failure.into()), Instant::now()).await
}

async fn tell_end(
    active: &ActiveRun,
    index: usize,
    epoch: u64,
    started: Instant,
    failure: Option<StepError>,
) {
    let step = active.workflow.steps[index].id.clone();
    let (status, blocked) = active
        .read(|state: &RunState| {
            let blocked = active.workflow.graph.descendants(index).into_iter().filter_map(|at| {
                let id = &active.workflow.steps[at].id;
                (state.steps[id].blocked_by.as_ref() == Some(&step)).then(|| id.clone())
            });
            (state.steps[&step].status, blocked.collect())
        })
        .await;
    let duration_ms = millis(started.elapsed());
    active.tell(&RunEvent::StepEnded { step, epoch, status, duration_ms, failure, blocked });
}

struct Worker<'a> {
    active: &'a ActiveRun,
    step: &'a Step,
    index: usize,
    claim: Claim,
    checkpoint: Option<Checkpoint>,
    /// The answers that something still names.
    answers: BTreeMap<Id, CallAnswer>,
    /// For each call that something names: the last place that does, the output being after all calls.
    last_use: BTreeMap<String, usize>,
    /// The calls since the last checkpoint.
    calls: Vec<CallRecord>,
    delta: Option<Digest>,
}

impl<'a> Worker<'a> {
    fn new(active: &'a ActiveRun, index: usize, claim: Claim, checkpoint: Option<Checkpoint>) -> Self {
        let step = &active.workflow.steps[index];
        let kept = checkpoint.iter().flat_map(|checkpoint| &checkpoint.answers);
        let answers = kept.map(|answer| (answer.call.clone(), answer.clone())).collect();
        let delta = checkpoint.as_ref().and_then(|checkpoint| checkpoint.delta);
        let last_use = last_uses(step);
        Self { active, step, index, claim, checkpoint, answers, last_use, calls: Vec::new(), delta }
    }

    /// Does `work` unless the run is halted first.
    async fn unless_halted<T>(
        &self,
        work: impl Future<Output = Result<T, StepError>>,
    ) -> Result<T, StepError> {
        tokio::select! {
            biased;
            () = self.active.halt.cancelled() => Err(cancelled()),
            result = work => result,
        }
    }

    async fn work(&mut self) -> Result<StepResult, Stop> {
        let workflow = &self.active.workflow;
        let lineage = self.active.completed(workflow.graph.ancestors(self.index)).await;
        let snapshot = self.active.read(|state| (state.run.clone(), state.snapshot)).await;
        let request = OpenStep {
            run: &snapshot.0,
            workflow: &workflow.id,
            step: &self.step.id,
            epoch: self.claim.epoch,
            snapshot: snapshot.1,
            depends_on: &self.step.depends_on,
            lineage: &lineage,
            checkpoint: self.checkpoint.as_ref(),
            capabilities: &self.step.capabilities,
        };
        let mut session = self.unless_halted(self.active.host.open_step(request)).await?;
        let output = match self.calls(session.as_mut()).await {
            Ok(output) => output,
            Err(stop) => {
                let reason = match &stop {
                    Stop::Step(error) => error.message.clone(),
                    Stop::Run(error) => error.to_string(),
                };
                session.abandon(reason).await;
                return Err(stop);
            }
        };
        let outputs = lineage.into_iter().map(|(id, completed)| (id, completed.output)).collect();
        let finished = session.finish(output, outputs).await?;
        self.delta = Some(finished.delta);
        check_output(&finished.output)?;
        Ok(StepResult::Workspace(CompletedStep {
            delta: finished.delta,
            depends_on: self.step.depends_on.clone(),
            receipts_head: finished.receipts_head,
            receipts: finished.receipts,
            output: finished.output,
        }))
    }

    async fn respond(&mut self) -> Result<StepResult, Stop> {
        let workflow = &self.active.workflow;
        let completed = self.active.completed(0..workflow.steps.len()).await;
        let (run, snapshot) = self.active.read(|state| (state.run.clone(), state.snapshot)).await;
        let request = Compose {
            run: &run,
            workflow: &workflow.id,
            step: &self.step.id,
            epoch: self.claim.epoch,
            snapshot,
            output: &self.step.output,
            completed: &completed,
        };
        let response = self.unless_halted(self.active.host.compose(request)).await?;
        check_output(&response)?;
        Ok(StepResult::Response(response))
    }

    /// Runs the calls that are left and resolves the output.
    async fn calls(&mut self, session: &mut dyn StepSession) -> Result<Value, Stop> {
        let done = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.calls_done);
        for (position, call) in self.step.calls.iter().enumerate().skip(done) {
            let about = |message: String| {
                let message = format!("call {} ({}): {message}", call.id, call.tool());
                StepError::new(StepErrorKind::Expectation, message)
            };
            let lookup = |name: &str| self.answer(name);
            let tool_call = call.resolve(lookup).map_err(about)?;
            let outcome = self.call(session, call, &tool_call).await?;
            self.delta = outcome.delta.or(self.delta);
            check(&call.expect, &outcome.answer).map_err(about)?;
            if tool_call.is_effect() && outcome.answer.is_ok() && outcome.delta.is_none() {
                let message = format!("call {}: the host gave no delta after an effect", call.id);
                return Err(StepError::new(StepErrorKind::Infrastructure, message).into());
            }
            self.keep(position, call, &outcome)?;
            if tool_call.is_effect() {
                self.publish_checkpoint(position + 1).await?;
            }
        }
        let mut resolver = Resolver::new(|name: &str| self.answer(name).map(|answer| &answer.value));
        resolver.resolve(&self.step.output).map_err(|message| {
            StepError::new(StepErrorKind::Expectation, format!("output: {message}")).into()
        })
    }

    fn answer(&self, name: &str) -> Option<&CallAnswer> {
        Id::parse(name).ok().and_then(|id| self.answers.get(&id))
    }

    async fn call(
        &mut self,
        session: &mut dyn StepSession,
        call: &ScriptedCall,
        tool_call: &ToolCall,
    ) -> Result<CallOutcome, StepError> {
        let (step, tool) = (self.step.id.clone(), call.tool().to_owned());
        self.active.tell(&RunEvent::CallStarted {
            step: step.clone(),
            call: call.id.clone(),
            tool: tool.clone(),
        });
        let started = Instant::now();
        let outcome = self.unless_halted(session.call(tool_call)).await?;
        let exit_code = match &outcome.answer {
            Ok(ToolAnswer::Command(command)) => command.exit_code,
            _ => None,
        };
        let record = CallRecord {
            call: call.id.clone(),
            tool,
            epoch: self.claim.epoch,
            status: status_of(&outcome.answer),
            exit_code,
            receipt: outcome.receipt.clone(),
            duration_ms: millis(started.elapsed()),
        };
        self.calls.push(record.clone());
        self.active.tell(&RunEvent::CallEnded { step, record });
        Ok(outcome)
    }

    /// Keeps the answer where something later names it, and drops those that nothing names any more.
    fn keep(&mut self, position: usize, call: &ScriptedCall, outcome: &CallOutcome) -> Result<(), StepError> {
        let last_use = &self.last_use;
        let is_named = |id: &Id| last_use.get(id.as_str()).is_some_and(|last| *last > position);
        self.answers.retain(|id, _| is_named(id));
        if is_named(&call.id) {
            let value = answer_value(outcome).map_err(|error| {
                let message = format!("call {}: the answer is no JSON: {error}", call.id);
                StepError::new(StepErrorKind::Infrastructure, message)
            })?;
            let answer = CallAnswer { call: call.id.clone(), value, receipt: outcome.receipt.clone() };
            self.answers.insert(call.id.clone(), answer);
        }
        Ok(())
    }

    async fn publish_checkpoint(&mut self, calls_done: usize) -> Result<(), MeshError> {
        let checkpoint = Checkpoint {
            epoch: self.claim.epoch,
            delta: self.delta,
            calls_done,
            answers: self.answers.values().cloned().collect(),
        };
        let calls = std::mem::take(&mut self.calls);
        let write = |state: &mut RunState| state.checkpoint(&self.claim, checkpoint, calls);
        self.active.publish(Durability::Process, write).await
    }

    async fn publish(self, result: Result<StepResult, Stop>, started: Instant) -> StepEnd {
        let Self { active, index, claim, calls, delta, .. } = self;
        let result = match result {
            Ok(result) => result,
            Err(Stop::Run(error)) => return StepEnd::Stopped(error),
            Err(Stop::Step(failure)) if failure.kind == StepErrorKind::Cancelled => {
                tell_end(active, index, claim.epoch, started, None).await;
                return StepEnd::Left;
            }
            Err(Stop::Step(failure)) => StepResult::Failed { failure, partial_delta: delta },
        };
        let failure = match &result {
            StepResult::Failed { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        let duration_ms = millis(started.elapsed());
        let written = active.publish(Durability::Machine, |state| {
            state.end(&active.workflow, &claim, result, calls, duration_ms)
        });
        if let Err(error) = written.await {
            return StepEnd::Stopped(error);
        }
        let end = if failure.is_some() { StepEnd::Failed } else { StepEnd::Completed };
        tell_end(active, index, claim.epoch, started, failure).await;
        end
    }
}

fn last_uses(step: &Step) -> BTreeMap<String, usize> {
    let mut last = BTreeMap::new();
    let parameters = step.calls.iter().enumerate();
    let parameters =
        parameters.flat_map(|(position, call)| call.parameters.values().map(move |value| (position, value)));
    for (position, value) in parameters.chain([(step.calls.len(), &step.output)]) {
        // The parser has refused every malformed template.
        let _ = visit_references(value, &mut |reference| {
            last.insert(reference.call.clone(), position);
            Ok(())
        });
    }
    last
}

/// The fields that templates can name: the answer's own, `status`, and `receipt` as a citation.
fn answer_value(outcome: &CallOutcome) -> Result<Value, serde_json::Error> {
    let value = match &outcome.answer {
        Ok(answer) => serde_json::to_value(answer)?,
        Err(error) => serde_json::to_value(error)?,
    };
    let mut fields = match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.insert("status".to_owned(), serde_json::to_value(status_of(&outcome.answer))?);
    if let Some(receipt) = &outcome.receipt {
        fields.insert("receipt".to_owned(), serde_json::json!({ "tool_receipt_id": receipt }));
    }
    Ok(Value::Object(fields))
}

fn check_output(output: &Value) -> Result<(), StepError> {
    let refuse = |message: String| Err(StepError::new(StepErrorKind::Refused, message));
    let mut level: Vec<&Value> = vec![output];
    let mut depth = 0;
    while !level.is_empty() {
        depth += 1;
        if depth > MAX_OUTPUT_DEPTH {
            return refuse(format!("the output is nested deeper than {MAX_OUTPUT_DEPTH} levels"));
        }
        level = level
            .into_iter()
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Array(items) => Box::new(items.iter()),
                    Value::Object(fields) => Box::new(fields.values()),
                    _ => Box::new(std::iter::empty()),
                }
            })
            .collect();
    }
    let bytes = serde_json::to_string(output).map_or(usize::MAX, |text| text.len());
    if bytes > MAX_OUTPUT_BYTES {
        return refuse(format!(
            "the output has {bytes} bytes as JSON; at most {MAX_OUTPUT_BYTES}, cite what is large instead"
        ));
    }
    Ok(())
}

/// The ids of steps for which a worker offers too little.
pub(crate) fn lacking(step: &Step, offered: &BTreeSet<String>) -> Vec<String> {
    step.capabilities.difference(offered).cloned().collect()
}
