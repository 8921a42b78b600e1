//! Checks licences, bans and sources of all dependencies with cargo-deny, which it installs when it is missing.

use crate::Outcome;
use crate::process::{cargo, run as run_command, succeeds};
use crate::workspace::target;

/// The version that is installed when the machine has none.
const VERSION: &str = "0.20.2";

/// Runs `cargo deny`; what it checks stands in `deny.toml`.
pub(crate) fn run() -> Outcome {
    if !succeeds(cargo().args(["deny", "--version"])) {
        install()?;
    }
    // The check reads the manifests of all platforms, of which a build fetches only its own.
    run_command(cargo().args(["fetch", "--quiet"]))?;
    run_command(cargo().args([
        "deny",
        "--offline",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}

/// Builds cargo-deny without optimization in a target folder of its own: the check takes a second either way,
/// and the build only half the time.
fn install() -> Outcome {
    println!(
        "cargo-deny is missing: installing version {VERSION} with `cargo install --locked` (some minutes)"
    );
    let folder = target()?.join("tools");
    run_command(
        cargo()
            .args(["install", "cargo-deny", "--version", VERSION, "--locked", "--target-dir"])
            .arg(folder)
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    )
}
