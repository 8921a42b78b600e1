//! Knows the workspace: its root, its packages with their dependencies, and its files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Outcome;
use crate::process::{cargo, git, output};

/// One package of the workspace as `cargo metadata` tells it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    /// The package name.
    pub(crate) name: String,
    /// The folder from the workspace root.
    pub(crate) folder: String,
    /// Whether it may be published.
    pub(crate) published: bool,
    /// Required fields of a published package that are missing.
    pub(crate) missing: Vec<&'static str>,
    /// The names of its normal and build dependencies.
    pub(crate) normal: Vec<String>,
    /// The names of its development dependencies.
    pub(crate) development: Vec<String>,
}

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo's target folder, wherever it was configured to be.
pub(crate) fn target() -> Outcome<PathBuf> {
    let metadata = metadata()?;
    metadata["target_directory"].as_str().map(PathBuf::from).ok_or_else(|| no_field("target_directory"))
}

/// All packages of the workspace.
pub(crate) fn packages() -> Outcome<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or_else(|| no_field("packages"))?;
    packages.iter().map(package).collect()
}

/// The files that Git tracks or would track, from the root, sorted.
pub(crate) fn files() -> Outcome<Vec<String>> {
    let mut command = git(&root());
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listing = output(&mut command)?;
    let mut files: Vec<String> = listing
        .split('\0')
        .filter(|path| !path.is_empty() && root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn metadata() -> Outcome<Value> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

fn package(value: &Value) -> Outcome<Package> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    let manifest = text("manifest_path").ok_or_else(|| no_field("manifest_path"))?;
    let folder = Path::new(&manifest).parent().unwrap_or(Path::new(""));
    let folder = folder.strip_prefix(root()).unwrap_or(folder).to_string_lossy().into_owned();
    let published = value["publish"].as_array().is_none_or(|registries| !registries.is_empty());
    let mut missing = Vec::new();
    for field in ["description", "license", "repository"] {
        if text(field).is_none_or(|content| content.is_empty()) {
            missing.push(field);
        }
    }
    if value["authors"].as_array().is_none_or(Vec::is_empty) {
        missing.push("authors");
    }
    let mut package = Package {
        name: text("name").ok_or_else(|| no_field("name"))?,
        folder,
        published,
        missing,
        ..Package::default()
    };
    for dependency in value["dependencies"].as_array().ok_or_else(|| no_field("dependencies"))? {
        let name = dependency["name"].as_str().ok_or_else(|| no_field("dependencies.name"))?.to_owned();
        match dependency["kind"].as_str() {
            Some("dev") => package.development.push(name),
            _ => package.normal.push(name),
        }
    }
    Ok(package)
}

fn no_field(field: &str) -> String {
    format!("cargo metadata gave no {field:?}")
}
