//! What a command sees of the caller: programs and their toolchains, and neither variables nor credentials.

use std::path::Path;
use std::process::Command;

use crate::desk::{Desk, Ended, is_root, text};
use crate::{shell, tree};

const SECRET: &str = "seeds-4711-not-for-sale";

/// The binary with the caller's whole environment and secrets in it.
fn with_secrets(desk: &Desk, words: &[&str]) -> Command {
    let mut command = desk.command(words);
    command.envs(std::env::vars_os());
    for name in
        ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "CARGO_REGISTRY_TOKEN", "LD_PRELOAD_SECRET", "MY_VAR"]
    {
        command.env(name, SECRET);
    }
    command
}

#[test]
fn nothing_of_the_callers_environment_reaches_a_command() {
    let desk = Desk::new();
    let script = "env; cat /proc/*/environ /proc/*/cmdline; set; ls -la /root /home 2>&1; exit 0";
    let ended = Ended::of(&mut with_secrets(&desk, &["exec", ".", "--", "sh", "-c", script])).with(0);
    let seen = String::from_utf8_lossy(&ended.stdout);
    assert!(!seen.contains(SECRET), "{seen}");
    assert!(!ended.stderr.contains(SECRET));
    for line in ["HOME=/tmp/home", "TMPDIR=/tmp", "LANG=C.UTF-8"] {
        assert!(seen.lines().any(|found| found == line), "{line}: {seen}");
    }
}

#[test]
fn programs_of_the_caller_run_with_nothing_inherited() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    for (program, begins) in
        [("python3", "Python 3"), ("git", "git version"), ("cargo", "cargo "), ("rustc", "rustc ")]
    {
        let words = ["exec", ".", "--", program, "--version"];
        let ended = Ended::of(&mut with_secrets(&desk, &words));
        // An ordinary user may have no Rust on the path; then the shell finds nothing either.
        if shell::find(program).is_some() || ["python3", "git"].contains(&program) {
            assert!(ended.with(0).text().starts_with(begins), "{program}");
        } else {
            ended.with(127);
        }
    }
    let script = "git init -q . && git add a.txt && git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s";
    let ended = Ended::of(&mut with_secrets(&desk, &["exec", ".", "--", "sh", "-c", script])).with(0);
    assert_eq!(ended.text(), "one\n");
}

/// A cargo home as rustup makes it, with credentials, beside the state folder but not below `/tmp`.
fn cargo_home() -> tempfile::TempDir {
    let home = tempfile::Builder::new().prefix("coldframe-cargo-").tempdir_in("/var/tmp").unwrap();
    tree::set_mode(home.path(), 0o755);
    tree::write(&home.path().join("bin/cargo"), "#!/bin/sh\necho cargo of the caller\n");
    tree::set_mode(&home.path().join("bin/cargo"), 0o755);
    tree::write(&home.path().join("registry/index/crate"), "an index\n");
    tree::write(&home.path().join("registry/cache/crate"), "a crate\n");
    for name in ["credentials.toml", "credentials", "config.toml"] {
        tree::write(&home.path().join(name), format!("[registry]\ntoken = \"{SECRET}\"\n"));
    }
    home
}

fn shows_no_secret(cargo: &Path, command: &mut Command) {
    command.env("CARGO_HOME", cargo);
    let ended = Ended::of(command);
    let seen = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    assert!(!seen.contains(SECRET), "{seen}");
    assert!(seen.contains("cargo of the caller"), "{seen}");
    assert!(seen.contains("a crate"), "crates that cargo has fetched are visible: {seen}");
    assert_eq!(ended.code, Some(0), "{seen}");
}

#[test]
fn credentials_of_cargo_stay_hidden() {
    let desk = Desk::new();
    let home = cargo_home();
    let cargo = home.path();
    let script = format!(
        "cargo --version; cat {0}/registry/cache/crate; cat {0}/credentials* {0}/config.toml; grep -rs token {0}; exit 0",
        cargo.display()
    );
    let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", cargo.display());
    let words = ["exec", ".", "--", "sh", "-c", &script];
    shows_no_secret(cargo, desk.command(&words).env("PATH", &path));

    // Bound writable by the configuration, the credentials are still hidden; cargo's own settings are not.
    std::fs::write(cargo.join("config.toml"), "[net]\nretry = 1\n").unwrap();
    std::fs::create_dir_all(desk.home()).unwrap();
    tree::set_mode(&desk.home(), 0o700);
    let config = format!(
        "search_path = ['{0}/bin', '/usr/bin', '/bin']\n[environment]\nCARGO_HOME = '{0}'\n",
        cargo.display()
    );
    std::fs::write(desk.home().join("config.toml"), config).unwrap();
    shows_no_secret(cargo, &mut desk.command(&words));
    let written = format!("echo fetched > {}/registry/cache/new", cargo.display());
    desk.run(&["exec", ".", "--", "sh", "-c", &written]).with(0);
    assert_eq!(std::fs::read_to_string(cargo.join("registry/cache/new")).unwrap(), "fetched\n");
}

#[test]
fn explain_shows_each_entry_of_the_path_and_runs_nothing() {
    let desk = Desk::new();
    let home = cargo_home();
    let path = format!("{}/bin:.::bin:/usr/bin:/bin", home.path().display());
    let ended = Ended::of(
        desk.command(&["exec", "--explain", ".", "--", "cargo"])
            .env("PATH", &path)
            .env("CARGO_HOME", home.path()),
    )
    .with(0);
    let text = ended.text();
    assert!(text.contains(&format!("{}/bin: visible", home.path().display())), "{text}");
    assert_eq!(text.matches("left out: it is empty or relative").count(), 3, "{text}");
    assert!(!text.contains("cargo of the caller"), "{text}");
}

#[test]
fn the_host_is_out_of_sight_and_out_of_reach() {
    let desk = Desk::new();
    let outside = tempfile::Builder::new().prefix("coldframe-outside-").tempdir_in("/var/tmp").unwrap();
    std::fs::write(outside.path().join("secret"), SECRET).unwrap();
    let script = format!(
        "cat {0}/secret {0}/../*/secret /workspace/../..{0}/secret; echo x > {0}/made; echo x > /usr/made; \
         cat /etc/shadow; ls /sys/class/net /proc/net; ls / ; id -u; cat /proc/self/status | grep CapEff; exit 0",
        outside.path().display()
    );
    let ended = desk.run(&["exec", ".", "--", "sh", "-c", &script]).with(0);
    let seen = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    assert!(!seen.contains(SECRET), "{seen}");
    assert!(seen.contains("CapEff:\t0000000000000000"), "{seen}");
    assert!(!outside.path().join("made").exists());
    assert!(!Path::new("/usr/made").exists());
    assert!(!seen.contains("root:$"), "{seen}");
    if is_root() {
        assert!(!seen.lines().any(|line| line == "0"), "the command runs with the caller's own root: {seen}");
    }
    let probe = "import socket\ntry:\n  socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError as e: print('no', e.errno)\n\
                 try:\n  socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print('unreachable', e.errno)";
    let ended = desk.run(&["exec", ".", "--", "python3", "-c", probe]).with(0);
    assert_eq!(ended.text(), "no 111\nunreachable 101\n");
}

/// No rule of a source, no glob and no option makes the state folder part of a snapshot of the folder around it.
#[test]
fn the_state_folder_is_never_captured() {
    let desk = Desk::new();
    desk.write("a.txt", "a\n");
    desk.write(".ignore", "!*\n");
    let home = desk.project().join("state");
    for extra in [&[][..], &["--include-ignored"], &["--include", "state/**"]] {
        let mut words = vec!["--home", home.to_str().unwrap(), "snapshot", "create", "project"];
        words.extend(extra);
        let created = Ended::of(
            std::process::Command::new(desk.binary()).args(&words).arg("--json").current_dir(desk.path("")),
        );
        let document: serde_json::Value = serde_json::from_str(created.with(0).text()).unwrap();
        let omitted = document["omitted"].as_array().unwrap();
        assert!(
            omitted.iter().any(|one| one["reason"] == "reserved" && one["subject"] == "state"),
            "{document}"
        );
        let id = text(&document["id"]);
        let listed = Ended::of(std::process::Command::new(desk.binary()).args([
            "--home",
            home.to_str().unwrap(),
            "snapshot",
            "ls",
            &id,
            "--json",
        ]));
        assert!(!listed.with(0).text().contains("state/"), "the state folder is captured");
    }
}
