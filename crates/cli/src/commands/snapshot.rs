//! `snapshot`: captured, shown, listed, read and verified.

use clap::Subcommand;
use coldframe::core::{Node, SnapshotEntry, SourceSnapshot, WorkspacePath};
use coldframe::{Captured, Coldframe, Error, Kind, Selection, SnapshotSize};
use serde_json::{Value, json};

use crate::output::{Output, pass_on, print};
use crate::progress::Progress;
use crate::text::{counted, shown, size, time};
use crate::{Ending, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Capture a source.
    Create {
        /// The source: a directory, or PROVIDER:LOCATOR.
        source: String,
        /// Capture files that ignore rules leave out as well.
        #[arg(long)]
        include_ignored: bool,
        /// Capture ignored files that match GLOB, such as .env; may be repeated.
        #[arg(long, value_name = "GLOB")]
        include: Vec<String>,
    },
    /// List the snapshots of the store.
    List,
    /// Show where a snapshot comes from, what it holds and what was left out.
    Show {
        /// The snapshot: its id, or at least 4 digits of it.
        id: String,
    },
    /// List the entries of a snapshot.
    Ls {
        /// The snapshot: its id, or at least 4 digits of it.
        id: String,
        /// Only this entry and what lies below it.
        path: Option<String>,
    },
    /// Print a file of a snapshot.
    Cat {
        /// The snapshot: its id, or at least 4 digits of it.
        id: String,
        /// The file.
        path: String,
    },
    /// Hash every content of a snapshot again; exit code 6 where one is damaged.
    Verify {
        /// The snapshot: its id, or at least 4 digits of it.
        id: String,
    },
}

pub(crate) async fn run(command: Snapshot, coldframe: Coldframe, output: Output) -> Ending {
    match command {
        Snapshot::Create { source, include_ignored, include } => {
            let source = coldframe.source(&source)?;
            let progress = Progress::start(output, "capturing the source");
            let captured = coldframe.capture(&source, &Selection { include_ignored, include }).await?;
            drop(progress);
            output.answer(&created_document(&captured), || created_text(&captured))?;
        }
        Snapshot::List => {
            let ids = coldframe.store().snapshots().await.map_err(Error::from)?;
            output
                .answer(&json!({ "snapshots": ids }), || ids.iter().map(|id| format!("{id}\n")).collect())?;
        }
        Snapshot::Show { id } => {
            let snapshot = coldframe.snapshot(&id).await?;
            output.answer(&shown_document(&snapshot), || shown_text(&snapshot))?;
        }
        Snapshot::Ls { id, path } => list(&coldframe.snapshot(&id).await?, path.as_deref(), output)?,
        Snapshot::Cat { id, path } => cat(&coldframe, &coldframe.snapshot(&id).await?, &path, output).await?,
        Snapshot::Verify { id } => {
            let snapshot = coldframe.snapshot(&id).await?;
            let progress = Progress::start(output, "hashing every content");
            let report = coldframe.store().verify_snapshot(&snapshot).await.map_err(Error::from)?;
            drop(progress);
            let document = json!({ "id": snapshot.id(), "blobs": report.blobs, "bytes": report.bytes });
            output.answer(&document, || {
                let (blobs, bytes) = (counted(report.blobs, "content"), size(report.bytes));
                format!("snapshot {} is whole: {blobs}, {bytes}\n", snapshot.id().short())
            })?;
        }
    }
    Ok(0)
}

fn created_document(captured: &Captured) -> Value {
    let mut document = shown_document(&captured.snapshot);
    document["capture_ms"] = json!(captured.time.as_secs_f64() * 1000.0);
    document
}

fn created_text(captured: &Captured) -> String {
    format!("{}captured in {}\n", shown_text(&captured.snapshot), time(captured.time))
}

fn shown_document(snapshot: &SourceSnapshot) -> Value {
    json!({
        "id": snapshot.id(),
        "tree": snapshot.tree(),
        "source": snapshot.source(),
        "resolved_revision": snapshot.resolved_revision(),
        "size": SnapshotSize::of(snapshot),
        "omitted": snapshot.omitted(),
        "case_twins": snapshot.twins(),
    })
}

fn shown_text(snapshot: &SourceSnapshot) -> String {
    let held = SnapshotSize::of(snapshot);
    let mut text = format!(
        "snapshot {}\ntree     {}\nsource   {}\nrevision {}\nholds    {}, {}, {}, {}\n",
        snapshot.id(),
        snapshot.tree(),
        shown(&snapshot.source().to_string()),
        shown(snapshot.resolved_revision()),
        counted(held.files, "file"),
        counted(held.symlinks, "link"),
        if held.directories == 1 {
            "1 empty directory".to_owned()
        } else {
            format!("{} empty directories", held.directories)
        },
        size(held.bytes),
    );
    for omission in snapshot.omitted() {
        text.push_str(&format!(
            "left out {} ({}): {}\n",
            counted(omission.count, "path"),
            omission.reason,
            shown(&omission.subject)
        ));
    }
    for twins in snapshot.twins() {
        let names = twins.iter().map(|path| shown(path.as_str())).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("differ only in letter case or Unicode form: {names}\n"));
    }
    text
}

fn missing(snapshot: &SourceSnapshot, path: &str) -> Error {
    let id = snapshot.id().short();
    Error::new(
        Kind::NotFound,
        format!("snapshot {id} has no {path:?}; `coldframe snapshot ls {id}` lists what it has"),
    )
}

fn parsed(path: &str) -> Result<Option<WorkspacePath>, Error> {
    WorkspacePath::parse_lenient(path).map_err(|error| Error::new(Kind::Contract, error.to_string()))
}

fn list(snapshot: &SourceSnapshot, path: Option<&str>, output: Output) -> Result<(), Stop> {
    let entries: Vec<&SnapshotEntry> = match path.map(parsed).transpose()?.flatten() {
        None => snapshot.entries().iter().collect(),
        Some(path) => {
            let own = snapshot.entry(path.as_str());
            own.into_iter().chain(snapshot.entries_below(path.as_str())).collect()
        }
    };
    if let (Some(path), true) = (path, entries.is_empty() && !snapshot.entries().is_empty()) {
        return Err(missing(snapshot, path).into());
    }
    output.answer(&json!({ "entries": entries }), || entries.iter().map(|entry| line(entry)).collect())?;
    Ok(())
}

fn line(entry: &SnapshotEntry) -> String {
    let path = shown(entry.path.as_str());
    match &entry.node {
        Node::File { size, executable, .. } => {
            format!("{} {size:>12} {path}\n", if *executable { "fx" } else { "f " })
        }
        Node::Symlink { target } => format!("l  {:>12} {path} -> {}\n", "-", shown(target)),
        Node::Directory => format!("d  {:>12} {path}/\n", "-"),
    }
}

async fn cat(
    coldframe: &Coldframe,
    snapshot: &SourceSnapshot,
    path: &str,
    output: Output,
) -> Result<(), Stop> {
    let entry = parsed(path)?.and_then(|path| snapshot.entry(path.as_str()).cloned());
    let entry = entry.ok_or_else(|| missing(snapshot, path))?;
    let blob = match &entry.node {
        Node::Symlink { target } => {
            output.answer(&json!({ "entry": entry }), || format!("{}\n", shown(target)))?;
            return Ok(());
        }
        node => node
            .blob()
            .ok_or_else(|| Error::new(Kind::Contract, format!("{path:?} is an empty directory")))?,
    };
    if output.json {
        let mut bytes = Vec::new();
        coldframe.write_blob(blob, &mut bytes).await?;
        let text = String::from_utf8(bytes).ok();
        print(&format!("{:#}\n", json!({ "entry": entry, "utf8": text.is_some(), "content": text })))?;
    } else if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        let mut bytes = Vec::new();
        coldframe.write_blob(blob, &mut bytes).await?;
        pass_on(std::io::stdout(), &bytes)?;
    } else {
        coldframe.write_blob(blob, &mut std::io::stdout()).await?;
    }
    Ok(())
}
