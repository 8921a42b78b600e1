//! Authority: what a workflow and a source may decide, and what only the trusted configuration can.

use serde_json::Value;

use crate::desk::{Desk, text};
use crate::tree;

const HEAD: &str = "id = \"w\"\ngoal = \"Ask for more.\"\n";
const SOURCE: &str = "[source]\npath = \"project\"\n";

fn runs(command: &str) -> String {
    format!(
        "{HEAD}{SOURCE}[[step]]\nid = \"only\"\n[[step.call]]\nid = \"r\"\ntool = \"workspace_run\"\ncommand = {command}\n"
    )
}

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    desk
}

fn only(document: &Value) -> &Value {
    &document["report"]["steps"][0]
}

/// Writes a configuration beside the project and gives its path.
fn config(desk: &Desk, content: &str) -> String {
    let path = desk.path("trusted.toml");
    std::fs::write(&path, content).unwrap();
    tree::set_mode(&path, 0o600);
    path.into_os_string().into_string().unwrap()
}

#[test]
fn a_program_that_is_not_allowed_is_refused_with_what_is() {
    let desk = desk();
    for command in [
        r#"["sh", "-c", "true"]"#,
        r#"["bash"]"#,
        r#"["/bin/sh", "-c", "true"]"#,
        r#"["./cat"]"#,
        r#"["env", "sh"]"#,
        r#"["git", "-c", "alias.x=!sh", "x"]"#,
    ] {
        let (code, document) = desk.json(&["run", &desk.workflow(&runs(command))]);
        assert_eq!(code, Some(1), "{command}: {document:#}");
        let failure = text(&only(&document)["failure"]["message"]);
        assert!(failure.contains("refused"), "{command}: {failure}");
        if !command.contains("git") {
            assert!(failure.contains("allowed are: ") && failure.contains("python3"), "{command}: {failure}");
        }
    }
}

#[test]
fn the_trusted_configuration_extends_or_replaces_the_list() {
    let desk = desk();
    let shell = desk.workflow(&runs(r#"["sh", "-c", "echo from the shell"]"#));
    let extended = config(&desk, "[commands]\nextend = ['sh']\n");
    let document = desk.done(&["run", &shell, "--config", &extended]);
    assert_eq!(only(&document)["status"], "completed");
    let cat = desk.workflow(&runs(r#"["cat", "a.txt"]"#));
    desk.done(&["run", &cat, "--config", &extended]);
    let replaced = config(&desk, "[commands]\nallow = ['sh']\n");
    let (code, document) = desk.json(&["run", &cat, "--config", &replaced]);
    assert_eq!(code, Some(1));
    assert!(text(&only(&document)["failure"]["message"]).contains("allowed are: sh"), "{document:#}");
}

#[test]
fn a_configuration_in_the_source_is_never_read() {
    let desk = desk();
    let generous = "required_isolation = 'none'\n[commands]\nextend = ['sh']\n[limits]\nmax_files = 0\n";
    for name in [
        "config.toml",
        "coldframe.toml",
        ".coldframe.toml",
        ".coldframe/config.toml",
        ".config/coldframe/config.toml",
    ] {
        desk.write(name, generous);
        std::fs::write(desk.path("config.toml"), generous).unwrap();
    }
    let (code, document) = desk.json(&["run", &desk.workflow(&runs(r#"["sh", "-c", "true"]"#))]);
    assert_eq!(code, Some(1), "{document:#}");
    assert_eq!(desk.done(&["doctor"])["config"], Value::Null);
}

#[test]
fn keys_that_ask_for_authority_have_no_effect_and_are_reported() {
    let desk = desk();
    let asks = format!(
        "{HEAD}allowed_commands = [\"sh\"]\nlimits = {{ max_files = 0 }}\nnetwork = true\n{SOURCE}snapshot_limits = {{ max_files = 0 }}\n\
         [[step]]\nid = \"only\"\ntimeout_seconds = 1\nsandbox = \"none\"\n[[step.call]]\nid = \"r\"\ntool = \"workspace_run\"\n\
         command = [\"sh\", \"-c\", \"true\"]\nenv = {{ LD_PRELOAD = \"x\" }}\nexpect = {{ status = \"refused\", timeout = 1 }}\n"
    );
    let workflow = desk.workflow(&asks);
    let document = desk.done(&["run", &workflow]);
    let ignored: Vec<String> = document["report"]["ignored"].as_array().unwrap().iter().map(text).collect();
    for key in [
        "allowed_commands",
        "limits",
        "network",
        "source.snapshot_limits",
        "timeout_seconds",
        "sandbox",
        "env",
        "timeout",
    ] {
        assert!(
            ignored.iter().any(|found| found == key || found.ends_with(&format!(".{key}"))),
            "{key}: {ignored:?}"
        );
    }
    assert_eq!(ignored.len(), 8, "{ignored:?}");
    desk.run(&["run", &workflow]).with(0).tells(&["ignored: allowed_commands", "trusted configuration"]);
}

#[test]
fn a_step_without_the_capability_is_refused() {
    let desk = desk();
    for (capabilities, call) in [
        ("\"read\"", "tool = \"workspace_run\"\ncommand = [\"true\"]"),
        ("\"read\", \"run\"", "tool = \"workspace_write\"\npath = \"x\"\ncontent = \"x\""),
        ("\"run\"", "tool = \"workspace_read\"\npath = \"a.txt\""),
    ] {
        let workflow = format!(
            "{HEAD}{SOURCE}[[step]]\nid = \"only\"\ncapabilities = [{capabilities}]\n[[step.call]]\n{call}\n"
        );
        let ended = desk.run(&["run", &desk.workflow(&workflow)]);
        assert!(matches!(ended.code, Some(1 | 4 | 8)), "{ended}");
        assert!(ended.stderr.contains("capability") || ended.stderr.contains("capabilities"), "{ended}");
    }
    let foreign = format!("{HEAD}{SOURCE}[[step]]\nid = \"only\"\ncapabilities = [\"fly\"]\n");
    desk.run(&["run", &desk.workflow(&foreign)]).with(8).tells(&["fly"]);
}

#[test]
fn a_wrong_workflow_is_refused_with_line_and_key_before_anything_runs() {
    let desk = desk();
    let step = "[[step]]\nid = \"only\"\n";
    for (text, parts) in [
        (
            format!("{HEAD}{SOURCE}{step}[[step.call]]\ntool = \"workspace_fly\"\n"),
            &["workflow line 8", "call-1.tool", "workspace_fly"][..],
        ),
        (format!("{HEAD}colour = 1\n{SOURCE}{step}"), &["line 3", "colour"]),
        (
            format!(
                "{HEAD}{SOURCE}{step}[[step.call]]\ntool = \"workspace_read\"\npath = \"a\"\nlines = 3\n"
            ),
            &["line 10", "lines"],
        ),
        (format!("{HEAD}{SOURCE}{step}depends_on = [\"nobody\"]\n"), &["nobody"]),
        (format!("{HEAD}{SOURCE}{step}depends_on = [\"only\"]\n"), &["only"]),
        (format!("{HEAD}{SOURCE}{step}{step}"), &["only"]),
        (format!("{HEAD}{SOURCE}[[step]]\nid = \"../up\"\n"), &["../up"]),
        (format!("{HEAD}{SOURCE}"), &["step"]),
        ("id = \"w\"\ngoal = \n".to_owned(), &["line 2"]),
        (format!("{HEAD}{step}"), &["source"]),
        (format!("{HEAD}{SOURCE}{step}[step.output]\nx = \"${{nothing.receipt}}\"\n"), &["nothing"]),
    ] {
        let path = desk.workflow(&text);
        desk.run(&["run", &path]).with(4).tells(parts);
        assert_eq!(desk.refused(4, &["run", &path])["kind"], "contract");
    }
    desk.run(&["run", "no-such-file.toml"]).with(3);
    desk.run(&["run", ".."]);
    let runs = std::fs::read_dir(desk.home().join("runs")).unwrap().count();
    assert_eq!(runs, 0, "a refused workflow leaves no run");
}

#[test]
fn a_path_that_leads_out_of_the_workspace_is_refused() {
    let desk = desk();
    std::fs::write(desk.path("outside.txt"), "secret-of-the-host\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", desk.project().join("link")).unwrap();
    std::os::unix::fs::symlink("..", desk.project().join("up")).unwrap();
    for call in [
        "tool = \"workspace_read\"\npath = \"../outside.txt\"",
        "tool = \"workspace_read\"\npath = \"/etc/hostname\"",
        "tool = \"workspace_read\"\npath = \"link\"",
        "tool = \"workspace_read\"\npath = \"up/outside.txt\"",
        "tool = \"workspace_write\"\npath = \"up/made.txt\"\ncontent = \"x\"",
        "tool = \"workspace_write\"\npath = \"link\"\ncontent = \"x\"",
        "tool = \"workspace_run\"\ncommand = [\"cat\", \"a.txt\"]\ncwd = \"..\"",
    ] {
        let workflow = format!("{HEAD}{SOURCE}[[step]]\nid = \"only\"\n[[step.call]]\n{call}\n");
        let (code, document) = desk.json(&["run", &desk.workflow(&workflow)]);
        assert_eq!(code, Some(1), "{call}: {document:#}");
        let failure = text(&only(&document)["failure"]["message"]);
        assert!(failure.contains("got refused") || failure.contains("got invalid"), "{call}: {failure}");
        assert!(!failure.contains("secret-of-the-host"));
    }
    assert!(!desk.path("made.txt").exists());
}

#[test]
fn a_wrong_configuration_is_refused_with_the_key() {
    let desk = desk();
    for (content, part) in [
        ("netwrok = true", "netwrok"),
        ("[limits]\nmax_flies = 1", "max_flies"),
        ("[environment]\nLD_PRELOAD = '/x'", "LD_PRELOAD"),
        ("[environment]\nCARGO_HOME = '/no/such/folder'", "CARGO_HOME"),
        ("search_path = ['']", "search_path"),
        ("search_path = ['bin']", "search_path"),
        ("search_path = ['./bin', '/usr/bin']", "search_path"),
        ("search_path = ['/usr/../bin']", "search_path"),
        ("timeout_seconds = 0", "timeout_seconds"),
        ("parallel_steps = 0", "parallel_steps"),
        ("[commands]\nallow = ['/bin/sh']", "commands.allow"),
        ("[commands]\nallow = ['sh']\nextend = ['sh']", "commands"),
        ("strategy = 'magic'", "magic"),
        ("exclude = ['a/b']", "exclude"),
    ] {
        let file = config(&desk, content);
        for words in [&["doctor"][..], &["snapshot", "create", "."]] {
            let words = [words, &["--config", &file]].concat();
            desk.run(&words).with(4).tells(&[part]);
        }
        desk.refused(125, &["exec", "--config", &file, ".", "--", "true"]);
    }
    desk.run(&["doctor", "--config", "/no/such/file.toml"]).with(3);
    let open = config(&desk, "");
    tree::set_mode(std::path::Path::new(&open), 0o666);
    desk.run(&["doctor", "--config", &open]).with(8).tells(&["chmod o-w"]);
}

#[test]
fn a_search_path_into_the_source_is_refused() {
    let desk = desk();
    desk.write("bin/python3", "#!/bin/sh\necho owned\n");
    tree::set_mode(&desk.project().join("bin/python3"), 0o755);
    let inside =
        config(&desk, &format!("search_path = [{:?}, '/usr/bin', '/bin']\n", desk.project().join("bin")));
    desk.run(&["exec", "--config", &inside, ".", "--", "true"]).with(125).tells(&["search_path"]);
    let workflow = desk.workflow(&runs(r#"["python3", "--version"]"#));
    desk.run(&["run", "--config", &inside, &workflow]).with(8).tells(&["search_path"]);
}
