//! Proves that each published crate can be packaged from what stands in its own folder.

use crate::Outcome;
use crate::process::{cargo, output, run as run_command};
use crate::workspace::packages;

/// A package is source code; one bigger file in it is a mistake.
const MAX_FILES: usize = 200;

/// Packages all published crates together, so that they may depend on one another before any is on a registry.
pub(crate) fn run() -> Outcome {
    let packages = packages()?;
    let published: Vec<&str> =
        packages.iter().filter(|package| package.published).map(|package| package.name.as_str()).collect();
    let mut command = cargo();
    command.args(["package", "--offline", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in &published {
        command.args(["--package", name]);
    }
    run_command(&mut command)?;
    for name in &published {
        let listing =
            output(cargo().args(["package", "--list", "--allow-dirty", "--offline", "--package", name]))?;
        let count = listing.lines().count();
        if count > MAX_FILES {
            return Err(format!("{name} would be published with {count} files; exclude what is not source"));
        }
    }
    println!("{} crates packaged: {}", published.len(), published.join(", "));
    Ok(())
}
