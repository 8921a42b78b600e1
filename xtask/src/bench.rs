//! Prepares two real source trees and runs the benchmark that compares with tar, cp and git.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::{cargo, git, output, program, run as run_command};
use crate::workspace::target;

/// Crates with many files, to be fetched with all that they depend on: about 36,000 files and 660 MB.
const LARGE_CRATES: &[(&str, &str)] = &[
    ("aws-lc-sys", "=0.37.1"),
    ("aws-sdk-ec2", "=1.274.0"),
    ("grpcio-sys", "=0.13.0"),
    ("libgit2-sys", "=0.18.8"),
    ("librocksdb-sys", "=0.17.3"),
    ("openssl-src", "=300.6.1"),
    ("web-sys", "=0.3.107"),
    ("windows", "=0.62.2"),
];

const LARGE_FILES: usize = 30_000;
const SMALL_FILES: std::ops::RangeInclusive<usize> = 2_000..=3_000;

/// A crate bigger than this does not fit the small tree.
const SMALL_CRATE: usize = 400;

/// Prepares what is missing, then runs the benchmark with `words`; `--prepare` alone stops before it.
pub(crate) fn run(words: &[String]) -> Outcome {
    let folder = target()?.join("bench");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // A repository of its own, so that the ignore rules of the workspace around it do not reach the trees.
    run_command(git(&folder).args(["init", "--quiet"]))?;
    let large = folder.join("large");
    if !large.is_dir() {
        let crates = fetched_crates(&folder)?;
        println!("copying {} crates to {}", crates.len(), large.display());
        copy(&crates, &large)?;
    }
    let small = folder.join("small");
    if !small.is_dir() {
        copy(&small_selection(&large)?, &small)?;
    }
    for tree in [&large, &small] {
        repository(tree)?;
    }
    let (many, few) = (count(&large)?, count(&small)?);
    println!("large: {many} files, small: {few} files");
    if many < LARGE_FILES || !SMALL_FILES.contains(&few) {
        return Err(format!("the trees have the wrong sizes; remove {} and try again", folder.display()));
    }
    if words == ["--prepare"] {
        return Ok(());
    }
    run_command(cargo().args(["build", "--release", "--package", "coldframe-cli"]))?;
    let mut command = cargo();
    command.env("COLDFRAME_BENCH_BINARY", target()?.join("release").join("coldframe"));
    command.args(["bench", "--package", "coldframe", "--bench", "peers", "--"]).args(words);
    command.env("COLDFRAME_BENCH_LARGE", &large).env("COLDFRAME_BENCH_SMALL", &small);
    command.env("COLDFRAME_BENCH_LARGE_GIT", beside(&large)).env("COLDFRAME_BENCH_SMALL_GIT", beside(&small));
    run_command(&mut command)
}

/// Fetches the crates with a manifest of their own and gives the folders of all that its lock file names.
fn fetched_crates(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let project = folder.join("fetch");
    let mut manifest = "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n".to_owned();
    for (name, version) in LARGE_CRATES {
        manifest.push_str(&format!("{name} = {{ version = \"{version}\", default-features = false }}\n"));
    }
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    fs::create_dir_all(project.join("src")).map_err(|error| error.to_string())?;
    write(project.join("Cargo.toml"), &manifest)?;
    write(project.join("src/lib.rs"), "//! Nothing: only the dependencies of this package matter.\n")?;
    run_command(cargo().arg("fetch").current_dir(&project))
        .map_err(|problem| format!("{problem}; the first preparation needs crates.io"))?;
    let text =
        output(cargo().args(["metadata", "--offline", "--format-version", "1"]).current_dir(&project))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    let manifests = metadata["packages"].as_array().into_iter().flatten();
    let mut crates: Vec<PathBuf> = manifests
        .filter(|package| package["source"].is_string())
        .filter_map(|package| Path::new(package["manifest_path"].as_str()?).parent().map(Path::to_owned))
        .collect();
    crates.sort();
    Ok(crates)
}

/// Whole crates of the large tree in the order of their names until there are enough files.
fn small_selection(large: &Path) -> Outcome<Vec<PathBuf>> {
    let mut chosen = Vec::new();
    let mut files = 0;
    let entries = fs::read_dir(large).map_err(|error| error.to_string())?;
    let mut crates: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    crates.sort();
    for folder in crates {
        let more = count(&folder)?;
        if more <= SMALL_CRATE && files < *SMALL_FILES.start() {
            files += more;
            chosen.push(folder);
        }
    }
    Ok(chosen)
}

/// Copies whole folders into `tree`, which appears only when it is complete.
fn copy(folders: &[PathBuf], tree: &Path) -> Outcome {
    let partial = tree.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(|error| error.to_string())?;
    }
    fs::create_dir(&partial).map_err(|error| error.to_string())?;
    run_command(program("cp").arg("-R").arg("--").args(folders).arg(&partial))?;
    fs::rename(&partial, tree).map_err(|error| error.to_string())
}

/// Makes the copy of `tree` that the measurements of Git use, with everything committed.
fn repository(tree: &Path) -> Outcome {
    let copied = beside(tree);
    if copied.is_dir() {
        return Ok(());
    }
    println!("committing a copy of {} for git", tree.display());
    let partial = tree.with_extension("git-partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(|error| error.to_string())?;
    }
    run_command(program("cp").arg("-R").arg(tree).arg(&partial))?;
    run_command(git(&partial).args(["init", "--quiet"]))?;
    run_command(git(&partial).args(["config", "core.autocrlf", "false"]))?;
    run_command(git(&partial).args(["add", "--all"]))?;
    let mut commit = git(&partial);
    commit.args(["-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "-c", "gc.auto=0"]);
    run_command(commit.args(["commit", "--quiet", "--message", "All files"]))?;
    fs::rename(&partial, copied).map_err(|error| error.to_string())
}

/// The folder of the committed copy.
fn beside(tree: &Path) -> PathBuf {
    let mut name = tree.file_name().unwrap_or_default().to_owned();
    name.push("-git");
    tree.with_file_name(name)
}

/// The number of files below `folder`.
fn count(folder: &Path) -> Outcome<usize> {
    let mut pending = vec![folder.to_owned()];
    let mut files = 0;
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let entry = entry.map_err(|error| error.to_string())?;
            if entry.file_type().map_err(|error| error.to_string())?.is_dir() {
                pending.push(entry.path());
            } else {
                files += 1;
            }
        }
    }
    Ok(files)
}
