//! `doctor`: what this host can do, proved by trying.

use clap::Args;
use coldframe::{Diagnosis, Runner};
use serde_json::json;

use crate::Ending;
use crate::exit;
use crate::output::Output;
use crate::text::{shown, shown_lines};

/// Show what this host can do, proved by trying.
///
/// The exit code is 8 where the host does not give the isolation that the configuration requires.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Show each PATH entry and what commands see of it.
    #[arg(long)]
    explain: bool,
}

pub(crate) async fn run(doctor: Doctor, runner: Runner, output: Output) -> Ending {
    let diagnosis = runner.diagnose().await?;
    output.answer(&json!(diagnosis), || text(&diagnosis, doctor.explain))?;
    Ok(if diagnosis.isolation_suffices { 0 } else { exit::code(coldframe::Kind::Refused) })
}

fn text(diagnosis: &Diagnosis, explain: bool) -> String {
    let config = match &diagnosis.config {
        Some(file) => shown(&file.to_string_lossy()).into_owned(),
        None => "none, so the defaults hold".to_owned(),
    };
    let mut text = format!(
        "coldframe {}\nhome          {}\nconfiguration {config}\n",
        diagnosis.version,
        shown(&diagnosis.home.to_string_lossy())
    );
    for check in &diagnosis.host.checks {
        let mark = if check.passed { '✓' } else { '✗' };
        let name = shown(&check.name);
        text.push_str(&format!("{mark} {name}: {}\n", shown_lines(&check.detail).replace('\n', "\n    ")));
    }
    text.push_str(&format!(
        "isolation {} · materialization {}\n",
        diagnosis.host.isolation, diagnosis.host.strategy
    ));
    if !diagnosis.isolation_suffices {
        text.push_str(
            "commands will be refused: the configuration requires more isolation than this host gives\n",
        );
    }
    let toolchains = &diagnosis.toolchains;
    if explain {
        text.push_str(&shown_lines(&toolchains.explain()));
    } else {
        for grant in &toolchains.grants {
            let path = grant.path.to_string_lossy();
            text.push_str(&format!("visible read-only: {} ({})\n", shown(&path), grant.reason));
        }
    }
    text
}
