//! `run`: a workflow file from its plan to its verified receipts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use coldframe::core::Id;
use coldframe::mesh::{
    CallRecord, Cancellation, Observer, PlannedStep, RunEvent, RunReport, RunStatus, StepReport, StepStatus,
};
use coldframe::{Coldframe, Error, Kind, PreparedRun, RunRequest, RunResult};
use serde_json::{Value, json};

use super::receipts;
use crate::answer_text::answer_text;
use crate::output::{Output, print, print_bytes};
use crate::progress::Progress;
use crate::text::{counted, shown, shown_lines, size, tamed, time};
use crate::{Ending, Stop, exit};

/// Run a workflow file, or go on with a run.
///
/// Independent steps run in parallel, each in a workspace of its own. The state is kept after every effect, so a
/// run that was stopped in any way goes on with --resume. The exit code is 1 where a step failed.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The workflow file.
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    workflow: Option<PathBuf>,
    /// Run it on SOURCE in place of the source that the file names.
    #[arg(long, conflicts_with = "resume")]
    source: Option<String>,
    /// Give the run this id in place of a fresh one.
    #[arg(long, conflicts_with = "resume")]
    id: Option<String>,
    /// Go on with the run RUN; failed and blocked steps are tried again.
    #[arg(long, value_name = "RUN")]
    resume: Option<String>,
}

pub(crate) async fn run(run: Run, coldframe: Coldframe, output: Output) -> Ending {
    let began = Instant::now();
    let progress = Arc::new(Progress::start(output, "reading the workflow"));
    let observer = Arc::new(Narrator { progress: Arc::clone(&progress), output });
    let cancellation = Cancellation::new();
    let stop = stop_on_ctrl_c(cancellation.clone(), output);
    let result = match &run.resume {
        Some(id) => {
            let id = coldframe.find_run(id)?;
            coldframe.resume(&id, observer, cancellation).await
        }
        None => {
            let prepared = prepare(&run, &coldframe).await?;
            progress.line(output, &introduction(&prepared));
            coldframe.run(&prepared, observer, cancellation).await
        }
    };
    stop.abort();
    drop(progress);
    let result = result?;
    let patch = match &result.delta {
        Some(delta) => Some(coldframe.patch(delta).await?.bytes),
        None => None,
    };
    if output.json {
        output.answer(&document(&result, patch.as_deref()), String::new)?;
    } else {
        print_result(&result, patch.as_deref())?;
        output.remark(&summary(&result, began.elapsed()));
    }
    Ok(match result.report.status {
        RunStatus::Completed => 0,
        RunStatus::Failed => exit::FAILED,
        RunStatus::InProgress => exit::INTERRUPTED,
    })
}

async fn prepare(run: &Run, coldframe: &Coldframe) -> Result<PreparedRun, Error> {
    let workflow = run.workflow.clone().ok_or_else(|| Error::new(Kind::Contract, "give a workflow file"))?;
    let source = run.source.as_deref().map(|source| coldframe.source(source)).transpose()?;
    let id = run.id.as_deref().map(Id::parse).transpose()?;
    coldframe.prepare_run(&RunRequest { workflow, source, id }).await
}

/// The first ctrl-c ends the run in order, so that it can go on later; the second one ends the process.
fn stop_on_ctrl_c(cancellation: Cancellation, output: Output) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            output.remark("stopping; once more to stop at once");
            cancellation.cancel();
            let _ = tokio::signal::ctrl_c().await;
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
    })
}

fn introduction(prepared: &PreparedRun) -> String {
    format!(
        "run {} · {}\ncaptured {} ({}) of {} in {}",
        prepared.run,
        shown(prepared.workflow.goal()),
        counted(prepared.size.files, "file"),
        size(prepared.size.bytes),
        shown(&prepared.source.to_string()),
        time(prepared.capture_time),
    )
}

/// Tells what happens, a line each.
struct Narrator {
    progress: Arc<Progress>,
    output: Output,
}

impl Observer for Narrator {
    fn event(&self, event: &RunEvent) {
        if let Some(lines) = narrated(event, self.output.verbose) {
            self.progress.line(self.output, &lines);
        }
        if let RunEvent::StepClaimed { step, .. } = event {
            self.progress.say(&format!("running {step}"));
        }
    }
}

fn narrated(event: &RunEvent, verbose: bool) -> Option<String> {
    match event {
        RunEvent::RunStarted { plan, ignored, .. } => Some(planned(plan, ignored)),
        RunEvent::StepClaimed { step, epoch, calls_done } => {
            let from = if *calls_done > 0 {
                format!(" after {}", counted(*calls_done as u64, "call"))
            } else {
                String::new()
            };
            let again = if *epoch > 1 { format!(" (epoch {epoch}{from})") } else { String::new() };
            Some(format!("  {step}: begins{again}"))
        }
        RunEvent::CallEnded { step, record } if verbose => Some(format!("  {step}: {}", called(record))),
        RunEvent::StepEnded { step, status, duration_ms, failure, blocked, .. } => {
            let lasted = time(Duration::from_millis(*duration_ms));
            let mut line = match status {
                StepStatus::Completed => format!("✓ {step}: done in {lasted}"),
                StepStatus::Failed => format!("✗ {step}: failed after {lasted}"),
                _ => format!("· {step}: stopped after {lasted}, can go on"),
            };
            if let Some(failure) = failure {
                line.push_str(&format!("\n    {}", shown_lines(&failure.message).replace('\n', "\n    ")));
            }
            if !blocked.is_empty() {
                line.push_str(&format!("\n    cannot run now: {}", names(blocked)));
            }
            Some(line)
        }
        _ => None,
    }
}

fn planned(plan: &[PlannedStep], ignored: &[String]) -> String {
    let mut lines = vec!["plan:".to_owned()];
    let width = plan.iter().map(|step| step.step.as_str().len()).max().unwrap_or(0);
    for step in plan {
        let after = if step.depends_on.is_empty() {
            String::new()
        } else {
            format!(" · after {}", names(&step.depends_on))
        };
        let done = if step.status == StepStatus::Completed { " · done already" } else { "" };
        lines.push(format!("  {:width$}  {}{after}{done}", step.step, shown(&step.title)));
    }
    for key in ignored {
        lines.push(format!("ignored: {} (authority comes from the trusted configuration)", shown(key)));
    }
    lines.join("\n")
}

fn names(steps: &[Id]) -> String {
    steps.iter().map(Id::as_str).collect::<Vec<_>>().join(", ")
}

fn called(record: &CallRecord) -> String {
    let code = record.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
    let receipt = record.receipt.as_ref().map(|receipt| format!(" · {receipt}")).unwrap_or_default();
    let status = serde_json::to_value(record.status).ok().and_then(|word| word.as_str().map(str::to_owned));
    format!(
        "{} {}: {}{code} in {}{receipt}",
        record.call,
        record.tool,
        status.unwrap_or_default(),
        time(Duration::from_millis(record.duration_ms))
    )
}

fn print_result(result: &RunResult, patch: Option<&[u8]>) -> Result<(), Stop> {
    use std::io::IsTerminal;
    if let Some(patch) = patch.filter(|patch| !patch.is_empty()) {
        print("changes:\n")?;
        if std::io::stdout().is_terminal() {
            print(&tamed(patch))?;
        } else {
            print_bytes(patch)?;
        }
    }
    for (step, response) in result.report.responses() {
        print(&format!("{step}:\n{}", answer_text(response)))?;
    }
    print("receipts:\n")?;
    for step in &result.receipts {
        print(&receipts::step_text(step))?;
    }
    Ok(())
}

fn summary(result: &RunResult, elapsed: Duration) -> String {
    let report = &result.report;
    let delta = match &result.delta {
        Some(delta) if !delta.is_empty() => {
            let id = delta.id().short();
            format!(
                " · delta {id}\nshow: coldframe delta show {id} · take: coldframe delta apply {id} DIRECTORY"
            )
        }
        _ => String::new(),
    };
    let (word, hint) = match report.status {
        RunStatus::Completed => ("completed", String::new()),
        RunStatus::Failed => ("failed", resume_hint(report)),
        RunStatus::InProgress => ("stopped", resume_hint(report)),
    };
    let done = report.steps.iter().filter(|step| step.status == StepStatus::Completed).count();
    format!(
        "run {} {word}: {done} of {} steps in {}{delta}{hint}",
        report.run,
        report.steps.len(),
        time(elapsed)
    )
}

fn resume_hint(report: &RunReport) -> String {
    format!("\ngo on: coldframe run --resume {}", report.run)
}

fn document(result: &RunResult, patch: Option<&[u8]>) -> Value {
    let report = &result.report;
    let responses: BTreeMap<&Id, &Value> = report.responses().collect();
    let times: BTreeMap<&Id, u64> =
        report.steps.iter().map(|step: &StepReport| (&step.step, step.duration_ms)).collect();
    json!({
        "report": report,
        "responses": responses,
        "step_ms": times,
        "delta": result.delta.as_ref().map(|delta| json!({
            "id": delta.id(),
            "changes": delta.changes(),
            "excluded": delta.excluded(),
        })),
        "patch": patch.map(String::from_utf8_lossy),
        "receipts": result.receipts.iter().map(receipts::step_document).collect::<Vec<_>>(),
    })
}
