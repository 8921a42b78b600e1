//! A desk: a folder with a project and a state folder, and the binary called on them, by the caller or by another user.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{traces, tree};

/// The user that has no powers and no files.
const NOBODY: u32 = 65534;

/// What of the caller's environment the binary gets: where programs are.
const INHERITED: [&str; 8] =
    ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "GOROOT"];

/// A folder of its own, cleared away at the end.
pub(crate) struct Desk {
    folder: TempDir,
    user: Option<u32>,
}

impl Desk {
    /// A desk at which the caller works.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("coldframe-desk-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        Self { folder, user: None }
    }

    /// A desk at which an ordinary user works: the caller, or nobody in particular where the caller is root.
    pub(crate) fn ordinary() -> Self {
        let mut desk = Self::new();
        if is_root() {
            desk.user = Some(NOBODY);
            let copy = desk.path("coldframe");
            std::fs::hard_link(binary(), &copy)
                .or_else(|_| std::fs::copy(binary(), &copy).map(|_| ()))
                .unwrap();
            desk.hand_over(desk.folder.path());
            desk.hand_over(&desk.project());
        }
        desk
    }

    /// Gives a folder or file to the user of this desk.
    pub(crate) fn hand_over(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The folder of a run in the state folder.
    pub(crate) fn run_folder(&self, run: &str) -> PathBuf {
        self.home().join("runs").join(run)
    }

    /// Writes a file of the project, with the folders above it.
    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        tree::write(&self.project().join(path), content);
    }

    /// Writes `workflow` beside the project and gives its path.
    pub(crate) fn workflow(&self, workflow: &str) -> String {
        let path = self.path("workflow.toml");
        std::fs::write(&path, workflow).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Copies the example of the README to this desk and gives the path of its workflow.
    pub(crate) fn example(&self) -> PathBuf {
        let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/repair");
        tree::copy(&original, &self.path("repair"));
        self.path("repair/workflow.toml")
    }

    /// The binary with `words`, in the project, on this desk's home.
    pub(crate) fn command<W: AsRef<OsStr>>(&self, words: &[W]) -> Command {
        self.command_under(&[] as &[&str], words)
    }

    /// As [`Desk::command`], started by the program in `starter`, such as `["sh", "-c", …]`.
    pub(crate) fn command_under<S: AsRef<OsStr>, W: AsRef<OsStr>>(
        &self,
        starter: &[S],
        words: &[W],
    ) -> Command {
        let mut all: Vec<OsString> = self.as_user().into_iter().map(OsString::from).collect();
        all.extend(starter.iter().map(|word| word.as_ref().to_owned()));
        all.push(self.binary().into());
        all.push("--home".into());
        all.push(self.home().into());
        all.extend(words.iter().map(|word| word.as_ref().to_owned()));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.project()).env_clear().stdin(Stdio::null());
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.user.is_some() {
            command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.folder.path());
        }
        command
    }

    /// The binary that this desk's user can start.
    pub(crate) fn binary(&self) -> PathBuf {
        if self.user.is_some() { self.path("coldframe") } else { binary() }
    }

    /// The words that start a program as this desk's user; none where that is the caller.
    fn as_user(&self) -> Vec<String> {
        match self.user {
            Some(user) => {
                let id = user.to_string();
                ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"]
                    .map(str::to_owned)
                    .to_vec()
            }
            None => Vec::new(),
        }
    }

    pub(crate) fn run<W: AsRef<OsStr>>(&self, words: &[W]) -> Ended {
        Ended::of(&mut self.command(words))
    }

    /// Calls the binary with `--json`: standard error is silent, and standard output is one document.
    pub(crate) fn json(&self, words: &[&str]) -> (Option<i32>, Value) {
        let ended = self.run(&[&["--json"], words].concat());
        assert_eq!(ended.stderr, "", "{words:?} speaks on standard error in spite of --json");
        let document = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| panic!("{words:?} printed no JSON document: {error}\n{ended}"));
        (ended.code, document)
    }

    /// As [`Desk::json`], of a call that must succeed.
    pub(crate) fn done(&self, words: &[&str]) -> Value {
        let (code, document) = self.json(words);
        assert_eq!(code, Some(0), "{words:?}: {document:#}");
        document
    }

    /// As [`Desk::json`], of a call that must fail with `code`; gives the error.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) -> Value {
        let (found, document) = self.json(words);
        assert_eq!(found, Some(code), "{words:?}: {document:#}");
        let error = &document["error"];
        assert!(error.is_object(), "{words:?}: {document:#}");
        assert_eq!(error["exit_code"].as_i64(), Some(i64::from(code)), "{words:?}: {document:#}");
        error.clone()
    }

    /// Captures the project and gives the snapshot's id.
    pub(crate) fn captured(&self) -> String {
        text(&self.done(&["snapshot", "create", "."])["id"])
    }

    /// Runs a shell script on the project and gives the id of the delta.
    pub(crate) fn changed_by(&self, script: &str) -> String {
        text(&self.done(&["exec", ".", "--", "sh", "-c", script])["delta"]["id"])
    }

    /// Fails where a process, a mount or a workspace of this desk is left.
    pub(crate) fn assert_nothing_left(&self) {
        traces::assert_none(self.folder.path());
        let work = self.home().join("cache/sandbox/work");
        if let Ok(entries) = std::fs::read_dir(&work) {
            let left: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            assert!(left.is_empty(), "workspaces are left: {left:?}");
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_nothing_left();
        }
    }
}

/// How a call of the binary ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot start: {error}"));
        Self::from(output)
    }

    /// Fails unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Fails unless standard error has every part.
    #[track_caller]
    pub(crate) fn tells(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not told: {self}");
        }
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let status: ExitStatus = output.status;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: status.code(), signal: status.signal(), stdout: output.stdout, stderr }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let shown: String = stdout.chars().take(4000).collect();
        write!(
            formatter,
            "exit code {:?}, signal {:?}\n-- stdout\n{shown}\n-- stderr\n{}",
            self.code, self.signal, self.stderr
        )
    }
}

pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_coldframe"))
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The text of a JSON string.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
