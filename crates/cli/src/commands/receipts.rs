//! `receipts`: what the runner recorded, shown and verified.

use clap::Subcommand;
use coldframe::core::ReceiptId;
use coldframe::evidence::{Observation, Receipt, RecordedCall};
use coldframe::{Coldframe, Error, StepReceipts, Verification};
use serde_json::{Value, json};

use crate::Ending;
use crate::output::Output;
use crate::text::{counted, shown};

#[derive(Debug, Subcommand)]
pub(crate) enum Receipts {
    /// Show the receipts of a run, or one receipt in full.
    Show {
        /// A run (its id, or at least 4 characters of it), or a receipt such as tool:RUN:STEP:1.
        what: String,
    },
    /// Verify the journals of a run against the heads that the run recorded; exit code 6 where one was altered.
    Verify {
        /// The run: its id, or at least 4 characters of it.
        run: String,
    },
}

pub(crate) async fn run(command: Receipts, coldframe: Coldframe, output: Output) -> Ending {
    match command {
        Receipts::Show { what } if what.starts_with("tool:") => {
            let id = ReceiptId::parse(&what).map_err(Error::from)?;
            let receipt = coldframe.receipt(&id).await?;
            let document = json!(receipt);
            output
                .answer(&document, || format!("{}\n", crate::text::shown_lines(&format!("{document:#}"))))?;
        }
        Receipts::Show { what: run } | Receipts::Verify { run } => {
            let run = coldframe.find_run(&run)?;
            let steps = coldframe.receipts(&run).await?;
            let document =
                json!({ "run": run, "steps": steps.iter().map(step_document).collect::<Vec<_>>() });
            output.answer(&document, || {
                let lines: String = steps.iter().map(step_text).collect();
                format!("run {run}\n{lines}")
            })?;
        }
    }
    Ok(0)
}

/// The receipts of a step as lines.
pub(crate) fn step_text(step: &StepReceipts) -> String {
    let verified = match step.verification {
        Verification::Verified => "verified",
        Verification::Unfinished => "not finished, whole as far as it goes",
    };
    let mut lines = format!(
        "  {}: {verified} · {} · head {}\n",
        step.step,
        counted(step.records, "record"),
        step.head.short()
    );
    for receipt in &step.receipts {
        lines.push_str(&format!("    {}  {}\n", receipt.id, described(receipt)));
    }
    for receipt in &step.interrupted {
        lines.push_str(&format!("    {receipt}  interrupted: nobody knows how it ended\n"));
    }
    lines
}

fn described(receipt: &Receipt) -> String {
    let what = match &receipt.call {
        RecordedCall::Write { path, .. } => format!("write {path}"),
        RecordedCall::Edit { path, .. } => format!("edit {path}"),
        RecordedCall::Run(call) => format!("run {}", call.command.join(" ")),
    };
    let ended = match (&receipt.observation, &receipt.error) {
        (Observation::Command(command), _) if command.timed_out => " · timed out".to_owned(),
        (Observation::Command(command), _) => match (command.exit_code, command.signal) {
            (Some(code), _) => format!(" · exit {code}"),
            (None, Some(signal)) => format!(" · signal {signal}"),
            (None, None) => String::new(),
        },
        (Observation::Mutation(mutation), _) => {
            format!(" · {} bytes, sha256 {:.12}…", mutation.size, mutation.sha256)
        }
        (Observation::None, Some(error)) => format!(" · {}", error.message),
        (Observation::None, None) => String::new(),
    };
    let undone = if receipt.rolled_back { " · thrown away by a later epoch" } else { "" };
    shown(&format!("{what}{ended}{undone}")).into_owned()
}

/// The receipts of a step as JSON.
pub(crate) fn step_document(step: &StepReceipts) -> Value {
    json!({
        "step": step.step,
        "verification": step.verification,
        "head": step.head,
        "records": step.records,
        "receipts": step.receipts,
        "interrupted": step.interrupted,
    })
}
