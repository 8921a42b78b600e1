//! `exec`: one command in a workspace, with receipt and delta.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use coldframe::core::{CommandObservation, OutputText, Stored, ToolError, WorkspaceError};
use coldframe::delta::DeltaStat;
use coldframe::{Coldframe, Error, ExecFacts, ExecReport, ExecRequest, Kind, Selection};
use serde_json::{Value, json};

use crate::output::{Output, pass_on};
use crate::progress::Progress;
use crate::text::{counted, shown, size, time};
use crate::{Ending, Stop, exit};

/// Run one command in an isolated workspace on a source; the source is never touched.
///
/// The program is found as your shell would find it, and the toolchain it belongs to is visible read-only. What
/// the command prints is passed on when it has ended; what it changes is kept as a delta.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The source: a directory, or PROVIDER:LOCATOR.
    source: String,
    /// Stop the command after SECONDS [default: the configured time, else 120].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Capture files that ignore rules leave out as well.
    #[arg(long)]
    include_ignored: bool,
    /// Capture ignored files that match GLOB, such as .env; may be repeated.
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Show which programs and folders the command would see, and run nothing.
    #[arg(long)]
    explain: bool,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The exit code of a failure of Coldframe itself, apart from the codes that commands use. Only what is about the
/// program has the codes that shells have for it; a source that is not there is another matter.
pub(crate) fn code(error: &Error) -> u8 {
    let cause = std::error::Error::source(error);
    let is_about_program = error.details().is_some_and(|details| details.get("program").is_some())
        || cause.is_some_and(|cause| cause.is::<ToolError>());
    let is_isolation = cause
        .and_then(|cause| cause.downcast_ref::<WorkspaceError>())
        .is_some_and(|error| matches!(error, WorkspaceError::Isolation(_)));
    match error.kind() {
        Kind::NotFound if is_about_program => exit::EXEC_NOT_FOUND,
        Kind::Refused if is_about_program || is_isolation => exit::EXEC_REFUSED,
        Kind::Cancelled => exit::INTERRUPTED,
        _ => exit::EXEC_FAILED,
    }
}

pub(crate) async fn run(exec: Exec, coldframe: Coldframe, output: Output) -> Ending {
    let source = coldframe.source(&exec.source)?;
    if exec.explain {
        let toolchains = coldframe.exec_toolchains(&source, &exec.command)?;
        output.answer(&json!({ "toolchains": toolchains }), || toolchains.explain())?;
        return Ok(0);
    }
    let taken_from = exec.source.clone();
    let request = ExecRequest {
        source,
        selection: Selection { include_ignored: exec.include_ignored, include: exec.include },
        command: exec.command,
        timeout: exec.timeout.map(Duration::from_secs),
    };
    tokio::select! {
        ending = run_request(request, &taken_from, &coldframe, output) => ending,
        _ = tokio::signal::ctrl_c() => {
            output.remark("stopped; the source is as it was, and no delta is kept");
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn run_request(request: ExecRequest, source: &str, coldframe: &Coldframe, output: Output) -> Ending {
    let progress = Progress::start(output, "capturing the source");
    let prepared = coldframe.prepare_exec(request).await?;
    let facts = prepared.facts().clone();
    progress.line(output, &opening(&facts));
    progress.say("running the command");
    let report = prepared.run().await?;
    drop(progress);
    let stat = report.stat.clone();
    let code = exit_code(&report.observation);
    if output.json {
        output.answer(&document(&report, &stat, code), String::new)?;
        return Ok(code);
    }
    let streams = (&report.observation.stdout, &report.observation.stderr);
    match pass_streams_on(coldframe, streams).await {
        // A reader that has seen enough does not change how the command ended.
        Ok(()) | Err(Stop::Closed) => {}
        Err(stop) => return Err(stop),
    }
    output.remark(&closing(&report, &stat));
    if !report.delta.is_empty() {
        output.remark(&next_steps(&report, source));
    }
    Ok(code)
}

async fn pass_streams_on(
    coldframe: &Coldframe,
    (stdout, stderr): (&OutputText, &OutputText),
) -> Result<(), Stop> {
    let errors = pass_stream_on(coldframe, stderr, io::stderr()).await;
    pass_stream_on(coldframe, stdout, io::stdout()).await?;
    errors
}

/// Passes the stored bytes of a stream on, and says how many more there were.
async fn pass_stream_on(
    coldframe: &Coldframe,
    text: &OutputText,
    mut stream: impl io::Write + io::IsTerminal + Send,
) -> Result<(), Stop> {
    match text.blob {
        Some(digest) => {
            let blob = Stored { digest, size: text.stored_bytes };
            if stream.is_terminal() {
                // A control sequence may be cut by a chunk's end, so the whole is needed at once.
                let mut bytes = Vec::new();
                coldframe.write_blob(blob, &mut bytes).await?;
                pass_on(stream, &bytes)?;
            } else {
                coldframe.write_blob(blob, &mut stream).await?;
                stream.flush()?;
            }
        }
        None => pass_on(stream, text.text.as_bytes())?,
    }
    if text.stored_bytes < text.bytes {
        let left_out = size(text.bytes - text.stored_bytes);
        eprintln_quietly(&format!("[{left_out} more were written and not kept; see max_output_bytes]"));
    }
    Ok(())
}

fn eprintln_quietly(line: &str) {
    use io::Write;
    let _ = writeln!(io::stderr(), "{line}");
}

/// The command's own code, 128 and the number of the signal that ended it, or 124 where its time was over.
fn exit_code(observation: &CommandObservation) -> u8 {
    let low = |number: i32| u8::try_from(number & 0xff).unwrap_or(exit::EXEC_FAILED);
    match (observation.timed_out, observation.exit_code, observation.signal) {
        (true, ..) => exit::TIMED_OUT,
        (_, Some(code), _) => low(code),
        (_, None, Some(signal)) => low(128 + signal),
        (_, None, None) => exit::EXEC_FAILED,
    }
}

fn opening(facts: &ExecFacts) -> String {
    let base = if facts.prepare_time >= Duration::from_millis(10) {
        format!(" · base tree in {}", time(facts.prepare_time))
    } else {
        String::new()
    };
    let containment = match facts.opened.isolation.as_str() {
        "full" => "full containment, no network".to_owned(),
        other => format!("containment: {other}"),
    };
    format!(
        "captured {} ({}) in {}{base} · opened in {} · {containment}",
        counted(facts.size.files, "file"),
        size(facts.size.bytes),
        time(facts.capture_time),
        time(facts.open_time),
    )
}

fn closing(report: &ExecReport, stat: &DeltaStat) -> String {
    let observation = &report.observation;
    let ended = match (observation.timed_out, observation.exit_code, observation.signal) {
        (true, ..) => format!("timed out after {}", time(Duration::from_millis(observation.timeout_ms))),
        (_, Some(code), _) => format!("exit {code}"),
        (_, None, Some(signal)) => format!("ended by signal {signal}"),
        (_, None, None) => "ended".to_owned(),
    };
    let lasted = time(Duration::from_millis(observation.duration_ms));
    let changed = match report.delta.changes().len() as u64 {
        0 if report.delta.excluded().is_empty() => "nothing changed".to_owned(),
        0 => "nothing kept".to_owned(),
        count => {
            format!("{} changed (+{} −{})", counted(count, "path"), stat.added_lines(), stat.deleted_lines())
        }
    };
    let excluded = report.delta.excluded();
    let left_out = if excluded.is_empty() {
        String::new()
    } else {
        let rules = excluded.iter().map(|one| format!("{} below {}", one.count, shown(&one.rule)));
        format!(" · left out: {}", rules.collect::<Vec<_>>().join(", "))
    };
    format!(
        "{ended} in {lasted} · {changed}{left_out} · delta {} · receipt {}",
        report.delta.id().short(),
        report.receipt
    )
}

fn next_steps(report: &ExecReport, source: &str) -> String {
    let id = report.delta.id().short();
    let directory =
        if Path::new(source) == Path::new(".") { String::new() } else { format!(" {}", shell_word(source)) };
    format!("show: coldframe delta show {id} · take: coldframe delta apply {id}{directory}")
}

/// A word that a shell takes as it is meant.
fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@~".contains(letter);
    let word = shown(word);
    if word.chars().all(is_plain) { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn document(report: &ExecReport, stat: &DeltaStat, code: u8) -> Value {
    let facts = &report.facts;
    json!({
        "run": facts.run,
        "exit_code": code,
        "observation": report.observation,
        "receipt": report.receipt,
        "snapshot": { "id": facts.snapshot, "size": facts.size },
        "delta": {
            "id": report.delta.id(),
            "changes": report.delta.changes(),
            "excluded": report.delta.excluded(),
            "added_lines": stat.added_lines(),
            "deleted_lines": stat.deleted_lines(),
        },
        "isolation": facts.opened.isolation,
        "strategy": facts.opened.strategy,
        "capture_ms": milliseconds(facts.capture_time),
        "prepare_ms": milliseconds(facts.prepare_time),
        "open_ms": milliseconds(facts.open_time),
    })
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use coldframe::core::ToolStatus;

    use super::*;

    fn observed(exit_code: Option<i32>, signal: Option<i32>, timed_out: bool) -> CommandObservation {
        let document = json!({
            "command": ["x"], "cwd": ".", "exit_code": exit_code, "signal": signal, "timed_out": timed_out,
            "timeout_ms": 1, "duration_ms": 1, "observed_at": "2026-01-01T00:00:00Z", "isolation": "full",
            "stdout": OutputText::default(), "stderr": OutputText::default(),
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn the_code_of_the_command_is_passed_on_exactly() {
        for code in 0..=255 {
            assert_eq!(i32::from(exit_code(&observed(Some(code), None, false))), code);
        }
        assert_eq!(exit_code(&observed(None, Some(9), false)), 137);
        assert_eq!(exit_code(&observed(None, Some(9), true)), 124);
        assert_eq!(exit_code(&observed(Some(0), None, true)), 124);
    }

    #[test]
    fn only_what_is_about_the_program_has_the_codes_of_shells() {
        let program = |kind| Error::new(kind, "").with_details(json!({ "program": "x" }));
        assert_eq!([code(&program(Kind::NotFound)), code(&program(Kind::Refused))], [127, 126]);
        let tool = |status| Error::from(ToolError::new(status, "x"));
        assert_eq!([code(&tool(ToolStatus::NotFound)), code(&tool(ToolStatus::Refused))], [127, 126]);
        assert_eq!(code(&Error::from(WorkspaceError::Isolation(String::new()))), 126);
        for kind in [Kind::NotFound, Kind::Refused, Kind::Integrity, Kind::System] {
            assert_eq!(code(&Error::new(kind, "about the source")), 125);
        }
    }
}
