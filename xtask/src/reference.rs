//! Writes the help texts of the binary into the command reference, or compares them with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::{cargo, output, program, run as run_command};
use crate::workspace::{root, target};

/// The document with the command reference.
pub(crate) const FILE: &str = "docs/cli.md";

/// What stands above this line is written by hand.
const MARK: &str =
    "<!-- Written by `cargo xtask gen` from the help texts; changes below this line are lost. -->";

/// `gen` writes, `gen --check` compares.
pub(crate) fn run(words: &[String]) -> Outcome {
    let check = match words {
        [] => false,
        [word] if word == "--check" => true,
        _ => return Err("usage: cargo xtask gen [--check]".to_owned()),
    };
    let generated = generated(&binary()?)?;
    let path = root().join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let by_hand = text.split_once(MARK).map_or(text.as_str(), |(before, _)| before).trim_end();
    let wanted = format!("{by_hand}\n\n{MARK}\n\n{generated}");
    if text == wanted {
        println!("{FILE} holds the help texts of the binary");
        return Ok(());
    }
    if check {
        return Err(format!("{FILE} differs from the help texts; run `cargo xtask gen`"));
    }
    fs::write(&path, wanted).map_err(|error| format!("{FILE}: {error}"))?;
    println!("{FILE} written");
    Ok(())
}

/// Builds the `coldframe` binary as `cargo run` does and says where it is.
pub(crate) fn binary() -> Outcome<PathBuf> {
    run_command(cargo().args(["build", "--quiet", "--package", "coldframe-cli"]))?;
    Ok(target()?.join("debug").join("coldframe"))
}

/// The first words of all commands that the generated part of `text` describes.
pub(crate) fn commands(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("### `coldframe "))
        .filter_map(|rest| rest.split([' ', '`']).next())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn generated(binary: &Path) -> Outcome<String> {
    let mut text = "## Command reference\n".to_owned();
    let mut pending: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = pending.pop() {
        let help = help(binary, &words)?;
        let name = std::iter::once("coldframe")
            .chain(words.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ");
        text.push_str(&format!("\n### `{name}`\n\n```text\n{}\n```\n", help.trim_end()));
        for command in listed_commands(&help).into_iter().rev() {
            pending.push(words.iter().cloned().chain([command]).collect());
        }
    }
    Ok(text)
}

fn help(binary: &Path, words: &[String]) -> Outcome<String> {
    let mut command = program(binary);
    command.args(words).arg("--help").env("COLUMNS", "100").env("NO_COLOR", "1");
    let help = output(&mut command)?;
    Ok(help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// The names in the list under `Commands:`, but for `help` itself.
fn listed_commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_help_texts() {
        let help = "Usage: coldframe\n\nCommands:\n  exec      Runs\n            on two lines\n  snapshot  Takes\n  help      Prints\n\nOptions:\n  -v  Says more\n";
        assert_eq!(listed_commands(help), ["exec", "snapshot"]);
        assert!(listed_commands("Usage: coldframe exec\n\nOptions:\n  -v\n").is_empty());
    }

    #[test]
    fn commands_are_found_in_the_reference() {
        let text = "### `coldframe`\n### `coldframe exec`\n### `coldframe snapshot create`\n### other\n";
        assert_eq!(commands(text), BTreeSet::from(["exec".to_owned(), "snapshot".to_owned()]));
    }
}
