//! The facade as an embedder uses it: commands, workflows and receipts on real workspaces.

mod exec;
mod runs;

use std::path::{Path, PathBuf};

use coldframe::toolchain::Surroundings;
use coldframe::{Coldframe, Config, Runner};

/// A project, a home, and a Coldframe that sees the system's programs alone.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
    pub(crate) node: Coldframe,
}

impl Desk {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::write(project.join("src/total.txt"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(project.join("notes.md"), "notes\n").unwrap();
        let surroundings =
            Surroundings { path: ["/usr/bin", "/bin"].map(PathBuf::from).into(), ..Surroundings::default() };
        let node = Runner::new()
            .with_home(folder.path().join("home"))
            .with_config(Config::parse("[commands]\nextend = ['sh']").unwrap())
            .with_surroundings(surroundings)
            .open()
            .await
            .unwrap();
        Self { folder, node }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn journal(&self, run: &str, step: &str) -> PathBuf {
        self.node.home().runs().join(run).join("steps").join(format!("{step}.journal"))
    }
}

/// The names and contents below a folder, to see that nothing touched it.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(contents(&entry.path()));
        } else {
            found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}
