//! The keys of the trusted configuration have the effect that their page describes, and the state folder is where it says.

use std::process::Command;

use serde_json::Value;

use crate::desk::{Desk, Ended, text};
use crate::{shell, tree};

/// Writes the home's own configuration.
fn configure(desk: &Desk, content: &str) {
    std::fs::create_dir_all(desk.home()).unwrap();
    tree::set_mode(&desk.home(), 0o700);
    std::fs::write(desk.home().join("config.toml"), content).unwrap();
}

#[test]
fn the_time_limit_of_the_configuration_holds_for_runs_and_exec() {
    let desk = Desk::new();
    configure(&desk, "timeout_seconds = 1\n");
    desk.run(&["exec", ".", "--", "sleep", "60"]).with(124).tells(&["timed out after 1.0 s"]);
    let workflow = desk.workflow(
        "id = \"w\"\ngoal = \"g\"\n[source]\npath = \"project\"\n[[step]]\nid = \"s\"\n[[step.call]]\nid = \"r\"\n\
         tool = \"workspace_run\"\ncommand = [\"python3\", \"-c\", \"import time; time.sleep(60)\"]\n\
         expect = { timed_out = true }\n[step.output]\nproof = \"${r.receipt}\"\n",
    );
    let document = desk.done(&["run", &workflow]);
    let proof = &document["report"]["steps"][0]["output"]["proof"];
    assert_eq!((&proof["timed_out"], &proof["exit_code"]), (&true.into(), &Value::Null), "{proof:#}");
    // What the user types for one command goes before the configuration.
    desk.run(&["exec", "--timeout", "30", ".", "--", "sleep", "1.2"]).with(0);
}

#[test]
fn overlay_and_copy_give_the_same_delta() {
    let script = "set -e; rm gone; echo x >> kept; mkdir -p a/b; echo y > a/b/c; chmod 755 mode; ln -sfn kept link; rm -r full";
    let ids: Vec<(String, Value)> = ["overlay", "copy"]
        .iter()
        .map(|strategy| {
            let desk = Desk::new();
            for name in ["gone", "kept", "mode", "full/one", "full/two"] {
                desk.write(name, name);
            }
            std::os::unix::fs::symlink("gone", desk.project().join("link")).unwrap();
            configure(&desk, &format!("strategy = '{strategy}'\n"));
            let document = desk.done(&["exec", ".", "--", "sh", "-c", script]);
            (text(&document["strategy"]), document["delta"]["changes"].clone())
        })
        .collect();
    assert_eq!(ids[0].0, "overlay");
    assert_eq!(ids[1].0, "copy");
    assert_eq!(ids[0].1, ids[1].1);
    assert_eq!(ids[0].1.as_array().unwrap().len(), 7);
}

#[test]
fn bounds_on_writes_and_output_hold_and_are_told() {
    let desk = Desk::new();
    configure(&desk, "max_write_bytes = 10\nmax_output_bytes = 1000\n");
    let call = |content: &str| {
        let workflow = format!(
            "id = \"w\"\ngoal = \"g\"\n[source]\npath = \"project\"\n[[step]]\nid = \"s\"\n[[step.call]]\n\
             tool = \"workspace_write\"\npath = \"x\"\ncontent = \"{content}\"\n"
        );
        desk.json(&["run", &desk.workflow(&workflow)])
    };
    assert_eq!(call("0123456789").0, Some(0));
    let (code, document) = call("0123456789a");
    assert_eq!(code, Some(1), "{document:#}");
    let failure = text(&document["report"]["steps"][0]["failure"]["message"]);
    assert!(failure.contains("got limit") && failure.contains("10"), "{failure}");

    let words = ["exec", ".", "--", "sh", "-c", "head -c 5000 /dev/zero; exit 4"];
    let ended = desk.run(&words).with(4).tells(&["more were written and not kept", "max_output_bytes"]);
    assert_eq!(ended.stdout.len(), 1000);
    let (_, document) = desk.json(&words);
    let stdout = &document["observation"]["stdout"];
    assert_eq!((stdout["bytes"].as_u64(), stdout["stored_bytes"].as_u64()), (Some(5000), Some(1000)));
}

#[test]
fn names_to_leave_out_are_those_of_the_configuration() {
    let desk = Desk::new();
    configure(&desk, "exclude = ['build']\n");
    let script = "mkdir build target; echo x > build/x; echo x > target/x";
    let document = desk.done(&["exec", ".", "--", "sh", "-c", script]);
    assert_eq!(document["delta"]["changes"][0]["path"], "target/x");
    assert_eq!(document["delta"]["excluded"], serde_json::json!([{ "rule": "build", "count": 1 }]));
}

#[test]
fn toolchains_off_leaves_the_systems_programs_alone() {
    let desk = Desk::new();
    configure(&desk, "toolchains = 'off'\n");
    let ended =
        desk.run(&["exec", ".", "--", "sh", "-c", "echo $PATH; command -v cargo; python3 --version"]).with(0);
    let path = ended.text().lines().next().unwrap();
    let system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    assert!(path.split(':').all(|entry| system.contains(&entry)), "{path}");
}

#[test]
fn one_step_at_a_time_is_possible() {
    let desk = Desk::new();
    configure(&desk, "parallel_steps = 1\n");
    let step = |id: &str| {
        format!(
            "[[step]]\nid = \"{id}\"\n[[step.call]]\ntool = \"workspace_run\"\n\
             command = [\"python3\", \"-c\", \"import time; time.sleep(0.6)\"]\n"
        )
    };
    let workflow =
        format!("id = \"w\"\ngoal = \"g\"\n[source]\npath = \"project\"\n{}{}", step("one"), step("two"));
    let began = std::time::Instant::now();
    desk.done(&["run", &desk.workflow(&workflow)]);
    assert!(began.elapsed() >= std::time::Duration::from_millis(1200));
}

/// The binary with these variables and no `--home`.
fn bare(desk: &Desk, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(desk.binary());
    command.args(["--json", "doctor"]).current_dir(desk.project()).env_clear();
    command.env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
    command
}

#[test]
fn the_state_folder_is_where_the_most_explicit_word_says() {
    let desk = Desk::new();
    let (one, two, three) = (desk.path("one"), desk.path("two"), desk.path("three"));
    let [one, two, three] = [&one, &two, &three].map(|path| path.to_str().unwrap());
    let home = |variables: &[(&str, &str)]| {
        let ended = Ended::of(&mut bare(&desk, variables)).with(0);
        text(&serde_json::from_slice::<Value>(&ended.stdout).unwrap()["home"])
    };
    let all = [("COLDFRAME_HOME", one), ("XDG_DATA_HOME", two), ("HOME", three)];
    assert_eq!(home(&all), one);
    assert_eq!(home(&all[1..]), format!("{two}/coldframe"));
    assert_eq!(home(&all[2..]), format!("{three}/.local/share/coldframe"));
    Ended::of(&mut bare(&desk, &[])).with(3);
    let mut named = bare(&desk, &all);
    named.args(["--home", "here"]);
    let ended = Ended::of(&mut named).with(0);
    let found: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(text(&found["home"]), desk.project().canonicalize().unwrap().join("here").to_str().unwrap());
    for path in [one, &format!("{one}/store"), &format!("{one}/runs")] {
        let mode = shell::must(&desk.project(), &["stat", "-c", "%a", path]);
        assert_eq!(mode, b"700\n", "{path}");
    }
}

#[test]
fn a_run_takes_another_source_and_verbosity_shows_each_call() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    tree::write(&desk.path("other/b.txt"), "b\n");
    let workflow = desk.workflow(
        "id = \"w\"\ngoal = \"g\"\n[source]\npath = \"project\"\n[[step]]\nid = \"s\"\n[[step.call]]\nid = \"look\"\n\
         tool = \"workspace_run\"\ncommand = [\"cat\", \"b.txt\"]\nexpect = { exit_code = 0, stdout_contains = \"b\" }\n",
    );
    desk.run(&["run", &workflow]).with(1);
    let ended = desk.run(&["-v", "run", &workflow, "--source", "../other"]).with(0);
    ended.tells(&["s: look workspace_run: ok, exit 0 in "]);
    desk.run(&["run", &workflow, "--source", "../other", "--id", "done"]).with(0);
    // A run that is complete is shown again, and nothing of it runs twice.
    let document = desk.done(&["run", "--resume", "done"]);
    assert_eq!(document["report"]["steps"][0]["epoch"], 1);
    // Another workflow or source under the same id is another run.
    desk.refused(7, &["run", &workflow, "--id", "done"]);
}
