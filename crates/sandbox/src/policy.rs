//! Trusted configuration of a workspace: which commands, which parts of the host, which bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use coldframe_core::{SnapshotLimits, WorkspaceError};

/// Where the workspace stands inside the container.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The private temporary folder inside the container; it lives as long as the workspace.
pub const TEMPORARY_DIR: &str = "/tmp";
/// The home folder inside the container.
pub const HOME_DIR: &str = "/tmp/home";

/// Which programs may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandRule {
    /// Every program: for what a person typed.
    Any,
    /// Programs of these names, found in the search path; never a file of the workspace.
    Only(BTreeSet<String>),
}

/// How a granted part of the host may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Readable only.
    ReadOnly,
    /// Writable: what a command writes there stays on the host.
    ReadWrite,
}

/// A part of the host that commands see at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// An absolute path of the host: a directory or a file.
    pub path: PathBuf,
    /// How it may be used.
    pub access: Access,
    /// Files or directories below it that stay hidden, such as credentials. One that is made or replaced on the
    /// host is hidden again from the next command on, which then starts with an empty temporary folder.
    pub hidden: Vec<PathBuf>,
}

impl Grant {
    /// A read-only grant with nothing hidden.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: Access::ReadOnly, hidden: Vec::new() }
    }
}

/// How far commands are kept from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// No containment: commands are refused, the other tools work.
    None,
    /// Own user, mount, PID, network, IPC and UTS namespaces, a minimal read-only root, no capability.
    Full,
}

impl fmt::Display for Isolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Full => "full",
        })
    }
}

/// How a workspace gets its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Overlay where the host has it, else copy.
    Auto,
    /// An overlay mount over the base tree.
    Overlay,
    /// A copy of the base tree.
    Copy,
}

impl fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Overlay => "overlay",
            Self::Copy => "copy",
        })
    }
}

/// Trusted configuration of tools and commands. Nothing in it ever comes from a source, a model or a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Which programs may run.
    pub commands: CommandRule,
    /// The absolute folders in which a program name is looked up, in order.
    pub search_path: Vec<PathBuf>,
    /// Further parts of the host that commands see.
    pub grants: Vec<Grant>,
    /// Variables added to the fixed `PATH`, `HOME`, `LANG` and `TMPDIR`.
    pub environment: BTreeMap<String, String>,
    /// The wall time of one command.
    pub timeout: Duration,
    /// The weakest isolation that may be used; a host that gives less is refused.
    pub required_isolation: Isolation,
    /// How the workspace gets its files.
    pub strategy: Strategy,
    /// Names that stay out of a delta wherever they appear, unless the path is in the base snapshot.
    pub exclude: Vec<String>,
    /// The most bytes of one write, and of a file that is edited.
    pub max_write_bytes: u64,
    /// The most bytes of one output stream that are stored.
    pub max_output_bytes: u64,
    /// The most bytes of the private temporary folder.
    pub max_temporary_bytes: u64,
    /// The most entries and bytes of one delta.
    pub delta_limits: SnapshotLimits,
}

/// Programs that need no decision: they see nothing but the workspace and the system.
const HARMLESS: [&str; 40] = [
    "awk",
    "basename",
    "cargo",
    "cat",
    "cmp",
    "cp",
    "cut",
    "diff",
    "dirname",
    "echo",
    "false",
    "find",
    "git",
    "go",
    "grep",
    "head",
    "ls",
    "make",
    "mkdir",
    "mv",
    "node",
    "npm",
    "pwd",
    "pytest",
    "python",
    "python3",
    "rm",
    "rmdir",
    "rustc",
    "sed",
    "sha256sum",
    "sort",
    "stat",
    "tail",
    "test",
    "touch",
    "tr",
    "true",
    "uniq",
    "wc",
];

impl Default for Policy {
    fn default() -> Self {
        Self {
            commands: CommandRule::Only(HARMLESS.iter().map(|name| (*name).to_owned()).collect()),
            search_path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"]
                .iter()
                .map(PathBuf::from)
                .collect(),
            grants: Vec::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(120),
            required_isolation: Isolation::Full,
            strategy: Strategy::Auto,
            exclude: [".git", ".tmp", ".venv", "__pycache__", "node_modules", "output", "target"]
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
            max_write_bytes: 5 << 20,
            max_output_bytes: 64 << 20,
            max_temporary_bytes: 4 << 30,
            delta_limits: SnapshotLimits::workstation(),
        }
    }
}

macro_rules! with {
    ($($(#[$doc:meta])* $method:ident, $field:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $method(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

impl Policy {
    /// The default with these programs allowed and no other.
    pub fn allowing<I: IntoIterator<Item = impl Into<String>>>(programs: I) -> Self {
        let names = programs.into_iter().map(Into::into).collect();
        Self { commands: CommandRule::Only(names), ..Self::default() }
    }

    with! {
        /// Sets [`Self::commands`].
        with_commands, commands: CommandRule;
        /// Sets [`Self::search_path`].
        with_search_path, search_path: Vec<PathBuf>;
        /// Sets [`Self::grants`].
        with_grants, grants: Vec<Grant>;
        /// Sets [`Self::environment`].
        with_environment, environment: BTreeMap<String, String>;
        /// Sets [`Self::timeout`].
        with_timeout, timeout: Duration;
        /// Sets [`Self::required_isolation`].
        with_required_isolation, required_isolation: Isolation;
        /// Sets [`Self::strategy`].
        with_strategy, strategy: Strategy;
        /// Sets [`Self::exclude`].
        with_exclude, exclude: Vec<String>;
        /// Sets [`Self::max_write_bytes`].
        with_max_write_bytes, max_write_bytes: u64;
        /// Sets [`Self::max_output_bytes`].
        with_max_output_bytes, max_output_bytes: u64;
        /// Sets [`Self::max_temporary_bytes`].
        with_max_temporary_bytes, max_temporary_bytes: u64;
        /// Sets [`Self::delta_limits`].
        with_delta_limits, delta_limits: SnapshotLimits;
    }

    /// Refuses what could let a workspace file pass for a program, or open more of the host than named.
    pub fn check(&self) -> Result<(), WorkspaceError> {
        let refuse = |detail: String| Err(WorkspaceError::Configuration(detail));
        for directory in &self.search_path {
            if !is_plain_absolute(directory)
                || directory.starts_with(WORKSPACE_DIR)
                || directory.starts_with("/tmp")
            {
                return refuse(format!(
                    "search path entry {directory:?}: give absolute folders outside {WORKSPACE_DIR} and {TEMPORARY_DIR}, without '..'"
                ));
            }
            if directory.to_str().is_none_or(|text| text.contains([':', '\0'])) {
                return refuse(format!("search path entry {directory:?} cannot stand in PATH"));
            }
        }
        for grant in &self.grants {
            let reserved = ["/proc", "/dev", "/sys", "/etc", WORKSPACE_DIR, TEMPORARY_DIR];
            let bad = |path: &Path| {
                !is_plain_absolute(path) || reserved.iter().any(|taken| path.starts_with(taken))
            };
            if bad(&grant.path) || grant.path == Path::new("/") {
                return refuse(format!(
                    "grant {:?}: give an absolute path outside {reserved:?}, not '/'",
                    grant.path
                ));
            }
            if let Some(hidden) = grant.hidden.iter().find(|hidden| !hidden.starts_with(&grant.path)) {
                return refuse(format!(
                    "hidden path {hidden:?} does not lie below the grant {:?}",
                    grant.path
                ));
            }
        }
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return refuse(format!(
                    "environment variable {name:?} is not a legal name or has a NUL byte"
                ));
            }
        }
        if self.timeout.is_zero() {
            return refuse("the time-out is zero; give at least a millisecond".to_owned());
        }
        Ok(())
    }
}

fn is_plain_absolute(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_path_that_could_reach_the_workspace_is_refused() {
        for entry in
            ["", ".", "bin", "./bin", "/workspace", "/workspace/bin", "/usr/../workspace", "/a:b", "/tmp/x"]
        {
            let policy =
                Policy::default().with_search_path(vec![PathBuf::from(entry), PathBuf::from("/usr/bin")]);
            assert!(policy.check().is_err(), "{entry:?}");
        }
        assert!(Policy::default().check().is_ok());
    }

    #[test]
    fn a_grant_that_opens_too_much_is_refused() {
        for path in ["/", "usr", "/etc", "/proc/1", "/home/../etc", "/workspace"] {
            let policy = Policy::default().with_grants(vec![Grant::read_only(path)]);
            assert!(policy.check().is_err(), "{path:?}");
        }
    }
}
