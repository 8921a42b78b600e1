//! `delta`: what a workspace changed, shown, written as a patch, applied.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Subcommand;
use coldframe::core::WorkspaceDelta;
use coldframe::delta::{DeltaStat, Patch};
use coldframe::{ApplyOptions, Coldframe, Direction};
use serde_json::json;

use crate::Ending;
use crate::output::{Output, print, print_bytes};
use crate::text::{counted, shown, shown_lines, tamed};

#[derive(Debug, Subcommand)]
pub(crate) enum Delta {
    /// Show a delta: where it comes from, its files and its lines.
    Show {
        /// The delta: its id, or at least 4 digits of it.
        id: String,
    },
    /// Write a delta as a patch that `git apply` takes.
    Patch {
        /// The delta: its id, or at least 4 digits of it.
        id: String,
    },
    /// Apply a delta to a directory whose files still equal the base, all or nothing.
    Apply {
        /// The delta: its id, or at least 4 digits of it.
        id: String,
        /// The directory.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Take the delta back: from its result to its base.
        #[arg(long)]
        reverse: bool,
        /// Compare only and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) async fn run(command: Delta, coldframe: Coldframe, output: Output) -> Ending {
    match command {
        Delta::Show { id } => {
            let delta = coldframe.delta(&id).await?;
            let stat = coldframe.stat(&delta).await?;
            if output.json {
                output.answer(&json!({ "delta": delta, "stat": stat }), String::new)?;
            } else {
                print(&header(&delta, &stat))?;
                print_patch(&coldframe.patch(&delta).await?)?;
            }
        }
        Delta::Patch { id } => {
            let delta = coldframe.delta(&id).await?;
            let patch = coldframe.patch(&delta).await?;
            if output.json {
                let text = std::str::from_utf8(&patch.bytes).ok();
                output.answer(
                    &json!({ "id": delta.id(), "patch": text, "utf8": text.is_some(), "left_out": patch.left_out }),
                    String::new,
                )?;
            } else {
                print_patch(&patch)?;
                for path in &patch.left_out {
                    output
                        .remark(&format!("not in the patch, which cannot say it: {}", shown(path.as_str())));
                }
            }
        }
        Delta::Apply { id, directory, reverse, dry_run } => {
            let delta = coldframe.delta(&id).await?;
            let direction = if reverse { Direction::Back } else { Direction::Forward };
            let applied = coldframe.apply(&delta, &directory, ApplyOptions { direction, dry_run }).await?;
            let document = json!({
                "id": delta.id(),
                "directory": applied.directory,
                "paths": applied.paths,
                "applied": !dry_run,
                "recovered": applied.recovered,
            });
            output.answer(&document, || {
                let recovered = if applied.recovered {
                    "an apply that was stopped half way was undone first\n"
                } else {
                    ""
                };
                let done = if dry_run { "would apply" } else { "applied" };
                let directory = applied.directory.to_string_lossy();
                format!(
                    "{recovered}{done} {} to {}\n",
                    counted(applied.paths as u64, "change"),
                    shown(&directory)
                )
            })?;
        }
    }
    Ok(0)
}

fn header(delta: &WorkspaceDelta, stat: &DeltaStat) -> String {
    let mut lines = format!("delta {}\nbase  {}\n", delta.id(), delta.base());
    for parent in delta.parents() {
        lines.push_str(&format!("after {parent}\n"));
    }
    for excluded in delta.excluded() {
        lines.push_str(&format!(
            "left out by rule {}: {}\n",
            shown(&excluded.rule),
            counted(excluded.count, "path")
        ));
    }
    lines.push_str(&shown_lines(&stat.to_string()));
    if !lines.ends_with('\n') {
        lines.push('\n');
    }
    lines.push('\n');
    lines
}

/// A patch goes to a file or a pipe byte by byte, and to a terminal without steering sequences.
fn print_patch(patch: &Patch) -> std::io::Result<()> {
    if std::io::stdout().is_terminal() { print(&tamed(&patch.bytes)) } else { print_bytes(&patch.bytes) }
}
