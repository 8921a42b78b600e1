//! The trusted configuration: read from the user's own file, never from a source.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coldframe_core::SnapshotLimits;
use serde::Deserialize;

use crate::{Error, Home, Kind};

/// The package-manager cache variables that `[environment]` may set.
pub const CACHE_VARIABLES: [&str; 9] = [
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "NPM_CONFIG_CACHE",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "GOCACHE",
    "GOMODCACHE",
    "GRADLE_USER_HOME",
];

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Whether the toolchains on the caller's `PATH` are made visible to commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolchainMode {
    /// Recognised toolchains are granted read-only.
    #[default]
    Auto,
    /// Commands see the system's programs alone.
    Off,
}

/// The isolation below which no command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequiredIsolation {
    /// Namespaces, a minimal root and no network; where the host cannot give them, nothing runs.
    #[default]
    Full,
    /// Where the host gives less, workspaces open without commands: the other tools work, commands are refused.
    None,
}

/// How a workspace is materialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaterializeStrategy {
    /// An overlay where the host can, else a copy.
    #[default]
    Auto,
    /// An overlay, or an error.
    Overlay,
    /// A copy.
    Copy,
}

/// Which programs tools may run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Programs {
    /// The built-in list.
    #[default]
    Default,
    /// The built-in list and these.
    Extended(BTreeSet<String>),
    /// These alone.
    Only(BTreeSet<String>),
}

/// Trusted configuration, with a default for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The file it came from, where there was one.
    pub file: Option<PathBuf>,
    /// Bounds on captures; the default is [`SnapshotLimits::workstation`].
    pub limits: SnapshotLimits,
    /// Programs that models and workflow files may run. What a user types after `exec … --` is not asked here.
    pub programs: Programs,
    /// The time a command gets.
    pub timeout: Duration,
    /// Cache variables and the folders they name; the folders are bound writable.
    pub environment: BTreeMap<String, PathBuf>,
    /// Whether the caller's toolchains are granted.
    pub toolchains: ToolchainMode,
    /// The isolation that must be had.
    pub required_isolation: RequiredIsolation,
    /// How workspaces are materialized.
    pub strategy: MaterializeStrategy,
    /// Names that deltas leave out unless the snapshot has them; absent keeps the built-in list.
    pub exclude: Option<Vec<String>>,
    /// The folders in which programs are looked for, in place of the caller's `PATH`.
    pub search_path: Option<Vec<PathBuf>>,
    /// The most bytes of one write, in place of the built-in bound.
    pub max_write_bytes: Option<u64>,
    /// The most bytes kept of each output stream, in place of the built-in bound.
    pub max_output_bytes: Option<u64>,
    /// How many steps of a run may be under way at once.
    pub parallel_steps: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            limits: SnapshotLimits::workstation(),
            programs: Programs::Default,
            timeout: Duration::from_secs(120),
            environment: BTreeMap::new(),
            toolchains: ToolchainMode::Auto,
            required_isolation: RequiredIsolation::Full,
            strategy: MaterializeStrategy::Auto,
            exclude: None,
            search_path: None,
            max_write_bytes: None,
            max_output_bytes: None,
            parallel_steps: 4,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    commands: Commands,
    #[serde(default)]
    environment: BTreeMap<String, PathBuf>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    toolchains: ToolchainMode,
    #[serde(default)]
    required_isolation: RequiredIsolation,
    #[serde(default)]
    strategy: MaterializeStrategy,
    exclude: Option<Vec<String>>,
    search_path: Option<Vec<PathBuf>>,
    max_write_bytes: Option<u64>,
    max_output_bytes: Option<u64>,
    parallel_steps: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    max_files: Option<u64>,
    max_total_bytes: Option<u64>,
    max_file_bytes: Option<u64>,
    concurrency: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commands {
    allow: Option<BTreeSet<String>>,
    extend: Option<BTreeSet<String>>,
}

impl Config {
    /// Reads `given`, or the home's `config.toml` where nothing is given and the file exists; else the default.
    ///
    /// # Errors
    ///
    /// `NotFound` where `given` does not exist, `Refused` where another user could have written the file,
    /// `Contract` for unknown keys and values that make no sense; the message names the key.
    pub fn load(given: Option<&Path>, home: &Home) -> Result<Self, Error> {
        let path = match given {
            Some(path) => path.to_path_buf(),
            None if home.config().exists() => home.config(),
            None => return Ok(Self::default()),
        };
        let text = read_trusted(&path)?;
        let refuse = |error: Error| Error::new(error.kind(), format!("configuration {path:?}: {error}"));
        let mut config = Self::parse(&text).map_err(refuse)?;
        config.file = Some(path);
        Ok(config)
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    ///
    /// `Contract`, with the key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| contract(error.to_string()))?;
        let programs = match (file.commands.allow, file.commands.extend) {
            (Some(_), Some(_)) => {
                return Err(contract(
                    "commands: give either `allow` (the whole list) or `extend` (additions)",
                ));
            }
            (Some(names), None) => Programs::Only(checked_programs("commands.allow", names)?),
            (None, Some(names)) => Programs::Extended(checked_programs("commands.extend", names)?),
            (None, None) => Programs::Default,
        };
        let defaults = Self::default();
        let timeout = file.timeout_seconds.map_or(defaults.timeout, Duration::from_secs);
        if timeout.is_zero() || timeout > Duration::from_secs(86_400) {
            return Err(contract("timeout_seconds must be 1 to 86400"));
        }
        let parallel_steps = file.parallel_steps.unwrap_or(defaults.parallel_steps);
        if !(1..=64).contains(&parallel_steps) {
            return Err(contract("parallel_steps must be 1 to 64"));
        }
        Ok(Self {
            file: None,
            limits: file.limits.over(defaults.limits)?,
            programs,
            timeout,
            environment: checked_environment(file.environment)?,
            toolchains: file.toolchains,
            required_isolation: file.required_isolation,
            strategy: file.strategy,
            exclude: file.exclude.map(checked_exclude).transpose()?,
            search_path: file.search_path.map(checked_search_path).transpose()?,
            max_write_bytes: file.max_write_bytes,
            max_output_bytes: file.max_output_bytes,
            parallel_steps,
        })
    }

    /// Refuses a search path that leads into `source`: whoever writes the source must not choose the programs.
    ///
    /// # Errors
    ///
    /// `Refused`, naming the entry.
    pub fn check_against_source(&self, source: &Path) -> Result<(), Error> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let source = real(source);
        match self.search_path.iter().flatten().find(|entry| real(entry).starts_with(&source)) {
            Some(entry) => {
                let message = format!(
                    "search_path: {entry:?} lies inside the source {source:?}, so the source could choose the programs; remove it"
                );
                Err(Error::new(Kind::Refused, message))
            }
            None => Ok(()),
        }
    }
}

impl Limits {
    fn over(self, defaults: SnapshotLimits) -> Result<SnapshotLimits, Error> {
        let limits = SnapshotLimits {
            max_files: self.max_files.unwrap_or(defaults.max_files),
            max_total_bytes: self.max_total_bytes.unwrap_or(defaults.max_total_bytes),
            max_file_bytes: self.max_file_bytes.unwrap_or(defaults.max_file_bytes),
            concurrency: self.concurrency.unwrap_or(defaults.concurrency),
        };
        if !(1..=1024).contains(&limits.concurrency) {
            return Err(contract("limits.concurrency must be 1 to 1024"));
        }
        Ok(limits)
    }
}

fn contract(message: impl Into<String>) -> Error {
    Error::new(Kind::Contract, message)
}

fn read_trusted(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::io(format!("read configuration {path:?}"), &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(contract(format!("configuration {path:?} is not a file")));
    }
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user && found.uid() != 0 {
        let message =
            format!("the configuration {path:?} belongs to user {}, so it cannot be trusted", found.uid());
        return Err(Error::new(Kind::Refused, message));
    }
    if found.mode() & 0o002 != 0 {
        let message = format!(
            "others may write to the configuration {path:?}, so it cannot be trusted; take that away with `chmod o-w`"
        );
        return Err(Error::new(Kind::Refused, message));
    }
    let mut text = String::new();
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(Error::new(Kind::Limit, format!("configuration {path:?} is larger than 1 MiB")));
    }
    Ok(text)
}

fn checked_programs(key: &str, names: BTreeSet<String>) -> Result<BTreeSet<String>, Error> {
    match names.iter().find(|name| name.is_empty() || name.contains('/') || name.contains('\0')) {
        Some(name) => Err(contract(format!(
            "{key}: {name:?} is not a program name; write it without a path, and its folder in search_path"
        ))),
        None => Ok(names),
    }
}

fn checked_environment(given: BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, PathBuf>, Error> {
    for (name, folder) in &given {
        if !CACHE_VARIABLES.contains(&name.as_str()) {
            let known = CACHE_VARIABLES.join(", ");
            return Err(contract(format!(
                "environment.{name} is not a known cache variable; known are {known}"
            )));
        }
        if !folder.is_absolute() || !is_plain(folder) {
            return Err(contract(format!(
                "environment.{name}: {folder:?} must be an absolute path without `..`"
            )));
        }
        if !folder.is_dir() {
            return Err(contract(format!(
                "environment.{name}: {folder:?} is not a directory; create it first"
            )));
        }
    }
    Ok(given)
}

fn checked_search_path(entries: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    for entry in &entries {
        if entry.as_os_str().is_empty() {
            return Err(contract("search_path: an empty entry would mean the workspace itself; remove it"));
        }
        if !entry.is_absolute() || !is_plain(entry) {
            let message = format!(
                "search_path: {entry:?} is relative or has `..`, so the workspace could choose the programs; give an absolute path"
            );
            return Err(contract(message));
        }
    }
    Ok(entries)
}

fn checked_exclude(names: Vec<String>) -> Result<Vec<String>, Error> {
    match names.iter().find(|name| name.is_empty() || name.contains('/') || *name == "." || *name == "..") {
        Some(name) => Err(contract(format!("exclude: {name:?} must be one file or folder name"))),
        None => Ok(names),
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| !matches!(part, std::path::Component::ParentDir))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refused(text: &str) -> String {
        let error = Config::parse(text).expect_err(text);
        assert_eq!(error.kind(), Kind::Contract, "{text}");
        error.to_string()
    }

    #[test]
    fn everything_has_a_default_and_limits_are_a_workstations() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
        let limits = Config::parse("[limits]\nmax_files = 7").unwrap().limits;
        assert_eq!(limits, SnapshotLimits { max_files: 7, ..SnapshotLimits::workstation() });
    }

    #[test]
    fn unknown_keys_are_named() {
        assert!(refused("netwrok = true").contains("netwrok"));
        assert!(refused("[limits]\nmax_flies = 1").contains("max_flies"));
        assert!(refused("[environment]\nLD_PRELOAD = '/x'").contains("LD_PRELOAD"));
    }

    #[test]
    fn search_path_entries_that_a_workspace_could_fill_are_refused() {
        for entry in ["''", "'.'", "'bin'", "'./bin'", "'/usr/../bin'"] {
            assert!(refused(&format!("search_path = [{entry}]")).contains("search_path"), "{entry}");
        }
        let source = tempfile::tempdir().unwrap();
        let inside = source.path().join("bin");
        std::fs::create_dir(&inside).unwrap();
        let config = Config::parse(&format!("search_path = [{inside:?}, '/usr/bin']")).unwrap();
        assert_eq!(config.check_against_source(source.path()).unwrap_err().kind(), Kind::Refused);
        assert!(
            Config::parse("search_path = ['/usr/bin']").unwrap().check_against_source(source.path()).is_ok()
        );
    }

    #[test]
    fn a_link_into_the_source_is_seen_through() {
        let outer = tempfile::tempdir().unwrap();
        let (source, link) = (outer.path().join("source"), outer.path().join("tools"));
        std::fs::create_dir_all(source.join("bin")).unwrap();
        std::os::unix::fs::symlink(source.join("bin"), &link).unwrap();
        let config = Config::parse(&format!("search_path = [{link:?}]")).unwrap();
        assert!(config.check_against_source(&source).is_err());
    }

    #[test]
    fn programs_are_names_and_one_list_is_given() {
        let only = Config::parse("[commands]\nallow = ['git']").unwrap().programs;
        assert_eq!(only, Programs::Only(["git".to_owned()].into()));
        refused("[commands]\nallow = ['/bin/sh']");
        refused("[commands]\nallow = []\nextend = []");
    }

    #[test]
    fn cache_folders_must_exist_and_be_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[environment]\nGOCACHE = {:?}", folder.path());
        assert_eq!(Config::parse(&text).unwrap().environment["GOCACHE"], folder.path());
        refused("[environment]\nGOCACHE = 'cache'");
        refused("[environment]\nGOCACHE = '/does/not/exist'");
    }

    #[test]
    fn a_file_that_others_may_write_to_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(&folder.path().join("home")).unwrap();
        assert_eq!(Config::load(None, &home).unwrap(), Config::default());
        std::fs::write(home.config(), "timeout_seconds = 3").unwrap();
        assert_eq!(Config::load(None, &home).unwrap().timeout, Duration::from_secs(3));
        std::fs::set_permissions(home.config(), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(Config::load(None, &home).unwrap_err().kind(), Kind::Refused);
        let missing = folder.path().join("none.toml");
        assert_eq!(Config::load(Some(&missing), &home).unwrap_err().kind(), Kind::NotFound);
    }
}
