//! Which commands run, where, and with what environment.

use std::path::PathBuf;
use std::sync::Arc;

use coldframe_core::{RunParams, ToolStatus, WorkspaceError};
use coldframe_sandbox::{Access, CommandRule, Grant, Policy, Sandbox, Strategy};
use coldframe_testkit::MemoryStore;

use crate::bench::{Bench, both, file, list, policy, program, run, shell, words};

both!(
    a_workspace_file_with_the_name_of_an_allowed_program_never_runs,
    files_that_shadow_allowed_programs_do_not_run_in_their_place,
    git_options_that_start_programs_are_refused_and_nothing_runs,
    working_folders_that_lead_out_are_refused_and_nothing_runs,
    the_environment_is_fixed_and_nothing_is_inherited,
    arguments_reach_the_program_without_a_shell,
    a_person_may_run_a_program_of_the_workspace,
    grants_are_seen_and_hidden_parts_are_not,
    a_command_line_that_is_empty_or_has_a_nul_is_invalid,
);

const FAKE: &str = "#!/bin/sh\necho fake >> fired\n";

async fn a_workspace_file_with_the_name_of_an_allowed_program_never_runs(strategy: Strategy) {
    let policy = Policy::allowing(["git"]).with_strategy(strategy);
    let bench = Bench::with_policy(policy, [("git", program(FAKE)), ("bin/git", program(FAKE))]).await;
    let workspace = bench.open().await;
    let names = [
        "./git",
        "bin/git",
        "../workspace/git",
        "/workspace/git",
        "GIT",
        " git",
        "git ",
        "git\n",
        "/tmp/git",
    ];
    for name in names {
        let error = workspace.run(words(&[name, "status"])).await.unwrap_err();
        assert_eq!(error.status, ToolStatus::Refused, "{name:?}");
    }
    assert_eq!(run(&workspace, &["git", "--version"]).await.exit_code, Some(0));
    assert!(!list(&workspace).await.iter().any(|entry| entry.path.ends_with("fired")));
}

async fn files_that_shadow_allowed_programs_do_not_run_in_their_place(strategy: Strategy) {
    let shadows = ["git", "sh", "ls", "env", "cat"];
    let items = shadows.iter().flat_map(|name| [name.to_string(), format!("bin/{name}")]);
    let bench = Bench::new(strategy, items.map(|name| (name, program(FAKE)))).await;
    let workspace = bench.open().await;
    for cwd in [".", "bin"] {
        let params = RunParams {
            cwd: cwd.to_owned(),
            ..words(&["sh", "-c", "git --version && ls >/dev/null && env"])
        };
        let observed = workspace.run(params).await.unwrap();
        assert!(observed.stdout.text.starts_with("git version"), "{}", observed.stdout.text);
    }
    assert!(!list(&workspace).await.iter().any(|entry| entry.path.ends_with("fired")));
    for entry in ["", ".", "bin", "./bin", "/workspace", "/workspace/bin", "/tmp/bin", "/usr/../workspace"] {
        let policy = policy(strategy).with_search_path(vec![PathBuf::from(entry), PathBuf::from("/usr/bin")]);
        assert!(
            matches!(bench.sandbox.with_policy(policy), Err(WorkspaceError::Configuration(_))),
            "{entry:?}"
        );
    }
}

async fn git_options_that_start_programs_are_refused_and_nothing_runs(strategy: Strategy) {
    let bench = Bench::with_policy(
        Policy::allowing(["git"]).with_strategy(strategy),
        [("a.txt", file("a\n")), ("b.txt", file("b\n"))],
    )
    .await;
    let workspace = bench.open().await;
    assert_eq!(run(&workspace, &["git", "init", "-q"]).await.exit_code, Some(0));
    let touch = "touch fired";
    let refused: [&[&str]; 17] = [
        &["git", "-c", "core.pager=touch fired", "-p", "log"],
        &["git", "-c", "alias.x=!touch fired", "x"],
        &["git", "--paginate", "log"],
        &["git", "--exec-path=.", "status"],
        &["git", "-C", "..", "status"],
        &["git", "-C../..", "status"],
        &["git", "--git-dir=../other", "status"],
        &["git", "--work-tree=..", "status"],
        &["git", "grep", "-Otouch fired", "a"],
        &["git", "grep", "--open-files-in-pager=touch fired", "a"],
        &["git", "diff", "--no-index", "--output=../outside/escape.txt", "a.txt", "b.txt"],
        &["git", "config", "--global", "core.editor", touch],
        &["git", "config", "core.fsmonitor=touch fired"],
        &["git", "-c", "core.sshCommand=touch fired", "ls-remote", "ssh://example.invalid/x"],
        &["git", "-c", "protocol.ext.allow=always", "clone", "ext::sh -c touch fired", "x"],
        &["git", "archive", "--exec=touch fired", "--remote=.", "HEAD"],
        &["git", "--config-env=core.pager=PAGER", "log"],
    ];
    for command in refused {
        assert_eq!(
            workspace.run(words(command)).await.unwrap_err().status,
            ToolStatus::Refused,
            "{command:?}"
        );
    }
    let abbreviated: [&[&str]; 6] = [
        &["git", "grep", "--open-files=touch fired", "a"],
        &["git", "diff", "--no-index", "--outpu=x.txt", "a.txt", "b.txt"],
        &["git", "log", "--outp=x.txt"],
        &["git", "archive", "--exe=touch fired", "--remote=.", "HEAD"],
        &["git", "init", "--templ=x", "y"],
        &["git", "grep", "-inOtouch fired", "a"],
    ];
    for command in abbreviated {
        assert_eq!(
            workspace.run(words(command)).await.unwrap_err().status,
            ToolStatus::Refused,
            "{command:?}"
        );
    }
    assert_eq!(run(&workspace, &["git", "status", "--short"]).await.exit_code, Some(0));
    assert_eq!(run(&workspace, &["git", "grep", "--no-index", "--text", "-ineO|a"]).await.exit_code, Some(1));
    assert!(!list(&workspace).await.iter().any(|entry| entry.path.ends_with("fired")));
}

async fn working_folders_that_lead_out_are_refused_and_nothing_runs(strategy: Strategy) {
    let bench = Bench::new(strategy, [("sub/x.txt", file("x\n")), ("file.txt", file("f\n"))]).await;
    let workspace = bench.open().await;
    shell(&workspace, "ln -s /usr link_out; ln -s sub link_in; ln -s /workspace/sub absolute; ln -s . here")
        .await;
    let at = |cwd: &str| RunParams { cwd: cwd.to_owned(), ..words(&["sh", "-c", "pwd -P; : > marker"]) };
    let allowed =
        [("", ""), (".", ""), ("sub", "/sub"), ("sub/", "/sub"), ("link_in", "/sub"), ("here/sub", "/sub")];
    for (cwd, place) in allowed {
        let observed = workspace.run(at(cwd)).await.unwrap();
        assert_eq!(observed.stdout.text, format!("/workspace{place}\n"), "{cwd:?}");
    }
    shell(&workspace, "rm marker sub/marker").await;
    let refused = [
        "..",
        "../..",
        "sub/../..",
        "/abs-case",
        "/workspace",
        "link_out",
        "link_out/bin",
        "absolute",
        "sub/../../outside",
    ];
    for (cwd, status) in refused.map(|cwd| (cwd, ToolStatus::Refused)).into_iter().chain([
        ("missing", ToolStatus::NotFound),
        ("file.txt", ToolStatus::NotFound),
        ("a\0b", ToolStatus::Invalid),
    ]) {
        assert_eq!(workspace.run(at(cwd)).await.unwrap_err().status, status, "{cwd:?}");
    }
    assert!(!list(&workspace).await.iter().any(|entry| entry.path.ends_with("marker")));
}

async fn the_environment_is_fixed_and_nothing_is_inherited(strategy: Strategy) {
    let environment = [("CARGO_HOME".to_owned(), "/opt/cargo".to_owned())].into();
    let policy = policy(strategy).with_environment(environment);
    let bench = Bench::with_policy(policy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let observed = run(&workspace, &["python3", "-c", "import os; print(sorted(os.environ))"]).await;
    let seen = observed.stdout.text.replace("'LC_CTYPE', ", "");
    assert_eq!(seen, "['CARGO_HOME', 'HOME', 'LANG', 'PATH', 'TMPDIR']\n");
    let home = shell(&workspace, "cd && pwd && touch x && ls && echo $TMPDIR && id -u").await;
    assert_eq!(home, "/tmp/home\nx\n/tmp\n1000\n");
    for bad in ["", "A=B", "A\0"] {
        let policy =
            crate::bench::policy(strategy).with_environment([(bad.to_owned(), String::new())].into());
        assert!(matches!(bench.sandbox.with_policy(policy), Err(WorkspaceError::Configuration(_))));
    }
}

async fn arguments_reach_the_program_without_a_shell(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let odd = ["$(touch fired)", "; touch fired", "*", "a b", "", "\n", "\u{1b}[0m", "--", "'"];
    let mut command = vec!["python3", "-c", "import sys; print(sys.argv[1:])"];
    command.extend(odd);
    let printed = run(&workspace, &command).await.stdout.text;
    let expected = r#"['$(touch fired)', '; touch fired', '*', 'a b', '', '\n', '\x1b[0m', '--', "'"]"#;
    assert_eq!(printed.trim_end(), expected);
    assert_eq!(list(&workspace).await.len(), 1);
}

async fn a_person_may_run_a_program_of_the_workspace(strategy: Strategy) {
    let policy = policy(strategy).with_commands(CommandRule::Any);
    let items = [
        ("tool", program("#!/bin/sh\necho mine\n")),
        ("plain", file("#!/bin/sh\n")),
        ("bad", program("no format")),
    ];
    let bench = Bench::with_policy(policy, items).await;
    let workspace = bench.open().await;
    assert_eq!(run(&workspace, &["./tool"]).await.stdout.text, "mine\n");
    assert_eq!(run(&workspace, &["printf", "x"]).await.stdout.text, "x");
    let cases = [
        ("./plain", ToolStatus::Invalid),
        ("./missing", ToolStatus::Invalid),
        ("./bad", ToolStatus::Invalid),
    ];
    for (name, status) in cases.into_iter().chain([("no-such-program", ToolStatus::NotFound)]) {
        assert_eq!(workspace.run(words(&[name])).await.unwrap_err().status, status, "{name}");
    }
}

async fn grants_are_seen_and_hidden_parts_are_not(strategy: Strategy) {
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    let cache = host.path().canonicalize().unwrap();
    for (name, content) in
        [("registry/index", "index\n"), ("credentials.toml", "token\n"), ("keys/id", "key\n")]
    {
        std::fs::create_dir_all(cache.join(name).parent().unwrap()).unwrap();
        std::fs::write(cache.join(name), content).unwrap();
    }
    let hidden = vec![cache.join("credentials.toml"), cache.join("keys"), cache.join("absent")];
    let shared = tempfile::tempdir_in("/var/tmp").unwrap();
    let writable = shared.path().canonicalize().unwrap();
    let grants = vec![
        Grant { path: cache.clone(), access: Access::ReadOnly, hidden },
        Grant { path: writable.clone(), access: Access::ReadWrite, hidden: vec![] },
        Grant::read_only("/var/tmp/coldframe-absent"),
    ];
    let bench = Bench::with_policy(policy(strategy).with_grants(grants), [("a", file(""))]).await;
    let workspace = bench.open().await;
    let at = cache.display();
    let script = format!(
        "cat {at}/registry/index {at}/credentials.toml; ls {at}/keys; (: > {at}/x) 2>/dev/null || echo locked"
    );
    assert_eq!(shell(&workspace, &script).await, "index\nlocked\n");
    // As programs save their files: written beside, then renamed over.
    std::fs::write(cache.join("credentials.new"), "token\n").unwrap();
    std::fs::rename(cache.join("credentials.new"), cache.join("credentials.toml")).unwrap();
    std::fs::write(cache.join("absent"), "token\n").unwrap();
    assert_eq!(shell(&workspace, &format!("cat {at}/credentials.toml {at}/absent")).await, "");
    shell(&workspace, &format!("echo kept > {}/made", writable.display())).await;
    assert_eq!(std::fs::read_to_string(writable.join("made")).unwrap(), "kept\n");
    assert!(workspace.export().await.unwrap().is_empty());
    let open = |path: PathBuf| {
        let policy =
            policy(strategy).with_grants(vec![Grant { path, access: Access::ReadWrite, hidden: vec![] }]);
        Sandbox::open(&bench.cache(), Arc::new(MemoryStore::new()), policy)
    };
    for path in [bench.cache(), bench.cache().join("trees"), bench.folder.path().to_owned()] {
        assert!(matches!(open(path), Err(WorkspaceError::Configuration(_))));
    }
}

async fn a_command_line_that_is_empty_or_has_a_nul_is_invalid(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    for command in [&[][..], &[""], &["sh", "-c", "a\0b"]] {
        assert_eq!(
            workspace.run(words(command)).await.unwrap_err().status,
            ToolStatus::Invalid,
            "{command:?}"
        );
    }
    let large = "x".repeat(10 << 20);
    assert_eq!(workspace.run(words(&["true", &large])).await.unwrap_err().status, ToolStatus::Limit);
    let one = "x".repeat(200 << 10);
    assert_eq!(workspace.run(words(&["true", &one])).await.unwrap_err().status, ToolStatus::Limit);
    assert_eq!(run(&workspace, &["true"]).await.exit_code, Some(0));
}
