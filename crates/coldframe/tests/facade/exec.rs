//! One command in a workspace: its code, its streams, its delta and its receipt.

use std::time::Duration;

use coldframe::core::{NewlineStyle, ToolStatus};
use coldframe::{ApplyOptions, Error, ExecReport, ExecRequest, Kind, Policy, Selection, Verification};

use crate::{Desk, contents};

async fn exec(desk: &Desk, command: &[&str], timeout: Option<Duration>) -> Result<ExecReport, Error> {
    let request = ExecRequest {
        source: desk.node.source(desk.project().to_str().unwrap())?,
        selection: Selection::default(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        timeout,
    };
    desk.node.prepare_exec(request).await?.run().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_leaves_code_streams_delta_and_receipt_and_the_source_alone() {
    let desk = Desk::new().await;
    let before = contents(&desk.project());
    let script = "echo out; echo err >&2; echo four >> src/total.txt; rm notes.md; exit 3";
    let report = exec(&desk, &["sh", "-c", script], None).await.unwrap();
    assert_eq!(report.observation.exit_code, Some(3));
    assert_eq!(
        (report.observation.stdout.text.as_str(), report.observation.stderr.text.as_str()),
        ("out\n", "err\n")
    );
    assert_eq!(report.observation.tool_receipt_id.as_ref(), Some(&report.receipt));
    assert_eq!(contents(&desk.project()), before);

    let patch =
        desk.node.patch(&desk.node.delta(&report.delta.id().to_string()[..8]).await.unwrap()).await.unwrap();
    let patch = String::from_utf8(patch.bytes).unwrap();
    assert!(patch.contains("+four\n") && patch.contains("-notes\n"), "{patch}");
    let stat = desk.node.stat(&report.delta).await.unwrap();
    assert_eq!((stat.added_lines(), stat.deleted_lines()), (1, 1));

    let steps = desk.node.receipts(&report.facts.run).await.unwrap();
    assert_eq!((steps.len(), steps[0].verification), (1, Verification::Verified));
    let receipt = desk.node.receipt(&report.receipt).await.unwrap();
    assert_eq!((receipt.status, receipt.delta), (ToolStatus::Ok, Some(report.delta.id())));

    desk.node.apply(&report.delta, &desk.project(), ApplyOptions::default()).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(desk.project().join("src/total.txt")).unwrap(),
        "one\ntwo\nthree\nfour\n"
    );
    assert!(!desk.project().join("notes.md").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_command_keeps_what_it_changed() {
    let desk = Desk::new().await;
    let report = exec(&desk, &["sh", "-c", "echo part > part; sleep 30"], Some(Duration::from_millis(400)))
        .await
        .unwrap();
    assert!(report.observation.timed_out);
    assert_eq!(report.delta.changes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_program_costs_no_capture() {
    let desk = Desk::new().await;
    let error = exec(&desk, &["no-such-program-here"], None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(desk.node.store().snapshots().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_journal_is_an_integrity_error() {
    let desk = Desk::new().await;
    let report = exec(&desk, &["true"], None).await.unwrap();
    let run = report.facts.run;
    let file = desk.journal(run.as_str(), "exec");
    let whole = std::fs::read(&file).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    for altered in [
        text.replace("\"exit_code\":0", "\"exit_code\":1"),
        text[..last].to_owned(),
        text[..last + 9].to_owned(),
    ] {
        std::fs::write(&file, altered).unwrap();
        assert_eq!(desk.node.receipts(&run).await.unwrap_err().kind(), Kind::Integrity);
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(desk.node.receipts(&run).await.unwrap_err().kind(), Kind::Integrity);
    std::fs::write(&file, whole).unwrap();
    assert!(desk.node.receipts(&run).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_folder_inside_the_source_is_not_captured() {
    let desk = Desk::new().await;
    let home = desk.project().join("state");
    let node = coldframe::Runner::new().with_home(&home).open().await.unwrap();
    let source = node.source(desk.project().to_str().unwrap()).unwrap();
    let snapshot = node.capture(&source, &Selection::default()).await.unwrap().snapshot;
    assert!(snapshot.entry("notes.md").is_some());
    assert!(snapshot.entries_below("state").is_empty());
    for selection in [
        Selection { include_ignored: true, include: vec![] },
        Selection { include_ignored: false, include: vec!["state/**".to_owned()] },
    ] {
        let snapshot = node.capture(&source, &selection).await.unwrap().snapshot;
        assert!(snapshot.entries_below("state").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedders_policy_binds_the_workspace() {
    let desk = Desk::new().await;
    let source = desk.node.source(desk.project().to_str().unwrap()).unwrap();
    let snapshot = desk.node.capture(&source, &Selection::default()).await.unwrap().snapshot;
    let workspace = desk.node.open_workspace(&snapshot, Policy::allowing(["true"])).await.unwrap();
    assert_eq!(workspace.run(["true"]).await.unwrap().exit_code, Some(0));
    assert_eq!(workspace.run(["ls"]).await.unwrap_err().kind(), Kind::Refused);
    let page = workspace.read("src/total.txt", 2..=2).await.unwrap();
    assert_eq!((page.content.as_str(), page.newline), ("two\n", NewlineStyle::Lf));
    workspace.edit("src/total.txt", 2..=2, "zwei\n", page.sha256.as_str()).await.unwrap();
    let stale = workspace.edit("src/total.txt", 1..=1, "eins\n", page.sha256).await.unwrap_err();
    assert_eq!(stale.kind(), Kind::Conflict);
    let first = workspace.finish().await.unwrap();
    let workspace =
        desk.node.reopen_workspace(&snapshot, &first.delta, Policy::allowing(["true"])).await.unwrap();
    assert_eq!(workspace.read("src/total.txt", 2..=2).await.unwrap().content, "zwei\n");
    let second = workspace.finish().await.unwrap();
    assert_eq!(second.delta.state(), first.delta.state());
}
