//! Finds programs as the user's shell would, and what of the host must be visible for them to run.

mod guard;
mod managers;
mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coldframe_sandbox::{TEMPORARY_DIR, WORKSPACE_DIR};
use guard::Guard;
pub(crate) use guard::{hidden_in, is_system};
use serde::Serialize;

/// What the search for toolchains looks at: the caller's environment, and what it must keep away from.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The entries of `PATH`, in order.
    pub path: Vec<PathBuf>,
    /// The environment variables that say where toolchains are.
    pub variables: BTreeMap<String, String>,
    /// The folder that is captured, where it is on this host. Programs in it are never picked up, except for a
    /// virtual environment that the user has activated.
    pub project: Option<PathBuf>,
    /// Folders that no grant may show, such as the state folder.
    pub off_limits: Vec<PathBuf>,
    /// Places that mean something else inside a workspace, such as `/tmp`.
    pub reserved: Vec<PathBuf>,
}

impl Surroundings {
    /// The surroundings of this process.
    pub fn from_environment() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            path: std::env::split_paths(&path).collect(),
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            project: None,
            off_limits: Vec::new(),
            reserved: Self::reserved_places(),
        }
    }

    fn reserved_places() -> Vec<PathBuf> {
        ["/proc", "/dev", "/sys", "/etc", WORKSPACE_DIR, TEMPORARY_DIR].map(PathBuf::from).into()
    }

    /// Names the folder that is captured.
    #[must_use]
    pub fn with_project(mut self, project: impl Into<PathBuf>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Adds a folder that no grant may show.
    #[must_use]
    pub fn with_off_limits(mut self, folder: impl Into<PathBuf>) -> Self {
        self.off_limits.push(folder.into());
        self
    }

    /// The absolute folder that a variable names.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    }

    /// The folder that `variable` names, or `below` in the user's own folder.
    fn folder_or(&self, variable: &str, below: &str) -> Option<PathBuf> {
        self.folder(variable).or_else(|| Some(self.folder("HOME")?.join(below)))
    }
}

/// A folder that commands see read-only, at its own path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantedFolder {
    /// The folder, or a single file.
    pub path: PathBuf,
    /// Paths in it that stay hidden.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PathBuf>,
    /// Why it is granted.
    pub reason: String,
}

/// What was decided about one entry of `PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathNote {
    /// The entry.
    pub entry: PathBuf,
    /// What it is, and whether commands see it.
    pub verdict: String,
}

/// What commands see of the host's programs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Toolchains {
    /// The folders in which program names are resolved, in order.
    pub search_path: Vec<PathBuf>,
    /// What is bound read-only.
    pub grants: Vec<GrantedFolder>,
    /// Variables that the toolchains need.
    pub environment: BTreeMap<String, String>,
    /// What was decided about each entry of `PATH`, in order.
    pub notes: Vec<PathNote>,
    #[serde(skip)]
    places: Vec<Place>,
    #[serde(skip)]
    guard: Guard,
}

/// One folder in which a shell would look for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    visible: bool,
}

/// Says why a folder that the configuration names may not be bound into a workspace.
pub(crate) fn may_be_bound(folder: &Path) -> Result<(), String> {
    let user = std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok());
    let reserved = Surroundings::reserved_places();
    Guard { user, reserved, ..Guard::default() }.check_place(folder).map(|_| ())
}

impl Toolchains {
    /// Looks at each entry of `PATH` and grants the toolchains it knows: rustup and cargo, pyenv, nvm, asdf, go,
    /// virtual environments and Nix. It reads the file system and starts no program.
    pub fn discover(surroundings: &Surroundings) -> Self {
        let real = |path: &PathBuf| path.canonicalize().ok();
        let mut off_limits: Vec<PathBuf> = surroundings.off_limits.iter().filter_map(real).collect();
        off_limits.extend(surroundings.project.as_ref().and_then(real));
        let user = surroundings.folder("HOME").as_ref().and_then(real);
        let mut found = Self {
            guard: Guard { user, off_limits, reserved: surroundings.reserved.clone() },
            ..Self::default()
        };
        let mut seen: Vec<&PathBuf> = Vec::new();
        for entry in &surroundings.path {
            if !seen.contains(&entry) {
                seen.push(entry);
                let verdict = found.take_entry(entry, surroundings);
                found.notes.push(PathNote { entry: entry.clone(), verdict });
            }
        }
        found.add_caches(surroundings);
        found.refresh_search_path();
        found
    }

    /// The system's programs alone.
    pub fn system() -> Self {
        let mut found = Self::default();
        for folder in ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
            if Path::new(folder).is_dir() {
                found.place(PathBuf::from(folder), true);
            }
        }
        found.refresh_search_path();
        found
    }

    /// The report of `--explain`: each entry of `PATH`, then each grant and variable.
    pub fn explain(&self) -> String {
        let mut text = String::from("PATH entries, in order:\n");
        for note in &self.notes {
            text.push_str(&format!("  {}: {}\n", note.entry.display(), note.verdict));
        }
        text.push_str("programs are looked for in:\n");
        for folder in &self.search_path {
            text.push_str(&format!("  {}\n", folder.display()));
        }
        text.push_str("visible read-only besides the system folders:\n");
        for grant in &self.grants {
            text.push_str(&format!("  {} ({})\n", grant.path.display(), grant.reason));
            for hidden in &grant.hidden {
                text.push_str(&format!("    hidden: {}\n", hidden.display()));
            }
        }
        if self.grants.is_empty() {
            text.push_str("  nothing\n");
        }
        for (name, value) in &self.environment {
            text.push_str(&format!("environment {name}={value}\n"));
        }
        text
    }

    /// Decides about one entry of `PATH` and says what was decided.
    fn take_entry(&mut self, entry: &Path, surroundings: &Surroundings) -> String {
        if !entry.is_absolute() {
            return "left out: it is empty or relative, so the source could choose the programs".to_owned();
        }
        let real = match entry.canonicalize() {
            Ok(real) => real,
            Err(error) => return format!("left out: {error}"),
        };
        if !real.is_dir() {
            return "left out: it is not a folder".to_owned();
        }
        if self.is_in_project(&real, surroundings) && !self.is_activated(&real, surroundings) {
            return "left out: it lies in the source, which must not choose the programs".to_owned();
        }
        if is_system(&real) && is_system(entry) {
            self.place(entry.to_path_buf(), true);
            return "system programs".to_owned();
        }
        match self.take_managed(entry, &real, surroundings) {
            Some(Ok(verdict)) => verdict,
            Some(Err(reason)) => format!("left out: {reason}"),
            None if entry.to_str().is_none_or(|text| text.contains(':')) => {
                "left out: its name cannot stand in PATH".to_owned()
            }
            None => {
                self.place(entry.to_path_buf(), false);
                "not visible: no toolchain that is known here; a program that you name is granted by itself"
                    .to_owned()
            }
        }
    }

    fn is_in_project(&self, real: &Path, surroundings: &Surroundings) -> bool {
        let project = surroundings.project.as_ref().and_then(|project| project.canonicalize().ok());
        project.is_some_and(|project| real.starts_with(project))
    }

    fn is_activated(&self, real: &Path, surroundings: &Surroundings) -> bool {
        let active = surroundings.folder("VIRTUAL_ENV").and_then(|folder| folder.canonicalize().ok());
        active.is_some_and(|active| real.starts_with(&active) && active.join("pyvenv.cfg").is_file())
    }

    fn place(&mut self, folder: PathBuf, visible: bool) {
        match self.places.iter_mut().find(|place| place.folder == folder) {
            Some(place) => place.visible |= visible,
            None => self.places.push(Place { folder, visible }),
        }
    }

    fn refresh_search_path(&mut self) {
        self.search_path =
            self.places.iter().filter(|place| place.visible).map(|place| place.folder.clone()).collect();
    }

    /// Grants a folder after the guard's check; a folder that is visible already is granted once.
    fn grant(&mut self, folder: &Path, reason: &str) -> Result<(), String> {
        let real = self.guard.check(folder)?;
        self.push_grant(folder, real, Vec::new(), reason);
        Ok(())
    }

    /// Grants a folder whose layout is known, without a look for credentials in it; `hidden` stays hidden.
    fn grant_known(&mut self, folder: &Path, hidden: Vec<PathBuf>, reason: &str) -> Result<(), String> {
        let real = self.guard.check_place(folder)?;
        self.push_grant(folder, real, hidden, reason);
        Ok(())
    }

    fn push_grant(&mut self, folder: &Path, real: PathBuf, hidden: Vec<PathBuf>, reason: &str) {
        // Links and recorded paths may use either spelling, so both are bound where they differ.
        for path in [real, folder.to_path_buf()] {
            let covered = is_system(&path) || self.grants.iter().any(|grant| path.starts_with(&grant.path));
            if !covered {
                let hidden = hidden
                    .iter()
                    .filter_map(|inner| Some(path.join(inner.strip_prefix(folder).ok()?)))
                    .collect();
                self.grants.push(GrantedFolder { path, hidden, reason: reason.to_owned() });
            }
        }
    }
}
