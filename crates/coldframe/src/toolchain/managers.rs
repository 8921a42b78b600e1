//! What each known toolchain manager keeps where, and what of it commands need.

use std::path::{Path, PathBuf};

use super::guard::hidden_in;
use super::{Surroundings, Toolchains};

/// The verdict on an entry of a known manager, or why the entry is left out.
type Verdict = Result<String, String>;

impl Toolchains {
    /// Asks each manager about a `PATH` entry; `None` where none knows it.
    pub(super) fn take_managed(
        &mut self,
        entry: &Path,
        real: &Path,
        around: &Surroundings,
    ) -> Option<Verdict> {
        if is_cargo_bin(real, around) {
            return Some(self.take_rustup(entry, around));
        }
        if let Some(root) = around.folder_or("PYENV_ROOT", ".pyenv").filter(|root| is_within(real, root)) {
            return Some(self.take_pyenv(entry, real, &root, around));
        }
        if let Some(root) = asdf_root(around).filter(|root| is_within(real, root)) {
            return Some(self.take_asdf(entry, real, &root, around));
        }
        let root = real.parent()?;
        if root.join("pyvenv.cfg").is_file() {
            return Some(self.take_venv(entry, root));
        }
        let nvm = around.folder_or("NVM_DIR", ".nvm").map(|nvm| nvm.join("versions"));
        if nvm.is_some_and(|nvm| is_within(real, &nvm)) {
            return Some(self.take_root(entry, root, "Node.js of nvm"));
        }
        if real.join("go").is_file() && root.join("VERSION").is_file() && root.join("src").is_dir() {
            return Some(self.take_root(entry, root, "Go"));
        }
        if real.starts_with("/nix/store") {
            let granted = self.grant_known(Path::new("/nix/store"), Vec::new(), "Nix store");
            return Some(granted.and_then(|()| self.take_root(entry, entry, "Nix profile")));
        }
        None
    }

    /// Grants `root` and looks for programs in `entry`.
    fn take_root(&mut self, entry: &Path, root: &Path, reason: &str) -> Verdict {
        self.grant(root, reason)?;
        if entry != root {
            self.grant(entry, reason)?;
        }
        self.place(entry.to_path_buf(), true);
        Ok(format!("visible: {reason}"))
    }

    /// The proxies of rustup choose the toolchain inside, as they do outside; they need its settings and
    /// toolchains, and nothing else of the home.
    fn take_rustup(&mut self, entry: &Path, around: &Surroundings) -> Verdict {
        self.grant_known(entry, Vec::new(), "cargo programs")?;
        self.place(entry.to_path_buf(), true);
        let Some(rustup) = around.folder_or("RUSTUP_HOME", ".rustup").filter(|folder| folder.is_dir()) else {
            return Ok("visible: cargo programs".to_owned());
        };
        self.grant_known(&rustup, hidden_in(&rustup), "rustup toolchains")?;
        for linked in links_out_of(&rustup.join("toolchains"), &rustup) {
            self.grant(&linked, "a linked rustup toolchain")?;
        }
        self.set("RUSTUP_HOME", rustup.display());
        self.set("RUSTUP_AUTO_INSTALL", 0);
        if let Some(toolchain) = around.variables.get("RUSTUP_TOOLCHAIN") {
            self.set("RUSTUP_TOOLCHAIN", toolchain);
        }
        Ok("visible: cargo programs and rustup toolchains".to_owned())
    }

    /// A shim starts a shell that looks the version up; the folder of the version itself says the same faster.
    fn take_pyenv(&mut self, entry: &Path, real: &Path, root: &Path, around: &Surroundings) -> Verdict {
        let versions = root.join("versions");
        if is_within(real, &versions) && real.ends_with("bin") {
            let version = real.parent().unwrap_or(real);
            return self.take_root(entry, version, "a Python of pyenv");
        }
        if real.file_name() != Some("shims".as_ref()) {
            return Ok("not visible: pyenv itself; its versions are found through its shims".to_owned());
        }
        let named = pyenv_versions(root, around);
        let mut taken = Vec::new();
        for version in named.iter().filter(|name| name.as_str() != "system") {
            let folder = versions.join(version);
            if folder.join("bin").is_dir() {
                self.take_root(&folder.join("bin"), &folder, "a Python of pyenv")?;
                if folder.join("pyvenv.cfg").is_file() {
                    self.grant_base(&folder)?;
                }
                taken.push(version.as_str());
            }
        }
        Ok(match taken.as_slice() {
            [] => "not visible: pyenv has no version chosen but the system's".to_owned(),
            taken => format!("replaced by pyenv {}", taken.join(", ")),
        })
    }

    /// As for pyenv: the folders of the chosen versions stand in for the shims.
    fn take_asdf(&mut self, entry: &Path, real: &Path, root: &Path, around: &Surroundings) -> Verdict {
        let installs = root.join("installs");
        if is_within(real, &installs) && real.ends_with("bin") {
            return self.take_root(entry, real.parent().unwrap_or(real), "a tool of asdf");
        }
        if real.file_name() != Some("shims".as_ref()) {
            return Ok("not visible: asdf itself; its tools are found through its shims".to_owned());
        }
        let mut taken = Vec::new();
        for (tool, version) in asdf_versions(around) {
            let folder = installs.join(&tool).join(&version);
            if folder.join("bin").is_dir() {
                self.take_root(&folder.join("bin"), &folder, "a tool of asdf")?;
                taken.push(format!("{tool} {version}"));
            }
        }
        Ok(if taken.is_empty() {
            "not visible: asdf has no version chosen".to_owned()
        } else {
            format!("replaced by asdf {}", taken.join(", "))
        })
    }

    /// A virtual environment runs on the Python it was made with, so that one is granted too.
    pub(super) fn take_venv(&mut self, entry: &Path, root: &Path) -> Verdict {
        // An activated environment may lie in the source's folder, which is off limits otherwise.
        let limits = self.guard.off_limits.clone();
        let real = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        self.guard.off_limits.retain(|limit| *limit == real || !real.starts_with(limit));
        let granted = self.grant(root, "virtual environment");
        self.guard.off_limits = limits;
        granted?;
        self.grant_base(root)?;
        self.place(entry.to_path_buf(), true);
        self.set("VIRTUAL_ENV", root.display());
        Ok("visible: virtual environment and its Python".to_owned())
    }

    /// Grants the Python that the environment at `root` was made with.
    pub(super) fn grant_base(&mut self, root: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(root.join("pyvenv.cfg")).unwrap_or_default();
        let value = |line: &str| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "home").then(|| PathBuf::from(value.trim()))
        };
        let Some(bin) = text.lines().find_map(value).filter(|bin| bin.is_absolute()) else { return Ok(()) };
        for bin in [bin.canonicalize().unwrap_or_else(|_| bin.clone()), bin] {
            if !super::is_system(&bin) && bin.is_dir() {
                let base = if bin.ends_with("bin") { bin.parent().unwrap_or(&bin) } else { &bin };
                // The file is the environment's own, so it may name anything; only a Python is meant.
                if !is_python(base) {
                    continue;
                }
                self.grant(base, "the Python of a virtual environment")?;
            }
        }
        Ok(())
    }

    /// Grants the sources that package managers have fetched, since there is no network to fetch them again.
    pub(super) fn add_caches(&mut self, around: &Surroundings) {
        let has =
            |name: &str| self.places.iter().any(|place| place.visible && place.folder.join(name).is_file());
        let (cargo, go) = (has("cargo"), has("go"));
        if let Some(home) = around.folder_or("CARGO_HOME", ".cargo").filter(|home| cargo && home.is_dir()) {
            // The configuration and the credentials of cargo lie beside these and are not granted.
            for folder in ["registry", "git"] {
                let (path, hidden) = (home.join(folder), fetch_heads(&home.join(folder)));
                if path.is_dir() && self.grant_known(&path, hidden, "crates that cargo has fetched").is_err()
                {
                    self.remark(&path, "left out: it may not be granted");
                }
            }
            self.set("CARGO_HOME", home.display());
            self.set("CARGO_NET_OFFLINE", true);
        }
        let modules = around.folder("GOMODCACHE").or_else(|| {
            let path = around.folder("GOPATH").or_else(|| Some(around.folder("HOME")?.join("go")))?;
            Some(path.join("pkg/mod"))
        });
        if let Some(modules) = modules.filter(|modules| go && modules.is_dir()) {
            match self.grant_known(&modules, Vec::new(), "modules that go has fetched") {
                Ok(()) => {
                    self.set("GOMODCACHE", modules.display());
                    self.set("GOFLAGS", "-mod=readonly");
                    self.set("GOTOOLCHAIN", "local");
                }
                Err(reason) => self.remark(&modules, &format!("left out: {reason}")),
            }
        }
    }

    fn remark(&mut self, path: &Path, verdict: &str) {
        self.notes.push(super::PathNote { entry: path.to_path_buf(), verdict: verdict.to_owned() });
    }

    fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.environment.insert(name.to_owned(), value.to_string());
    }
}

fn is_python(base: &Path) -> bool {
    let has_library = std::fs::read_dir(base.join("lib")).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"))
    });
    has_library && base.join("bin/python3").is_file()
}

fn is_within(real: &Path, folder: &Path) -> bool {
    folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
}

fn is_cargo_bin(real: &Path, around: &Surroundings) -> bool {
    let bin = around.folder_or("CARGO_HOME", ".cargo").and_then(|home| home.join("bin").canonicalize().ok());
    bin.is_some_and(|bin| real == bin)
}

/// Folders that links in `folder` lead to outside of `root`.
fn links_out_of(folder: &Path, root: &Path) -> Vec<PathBuf> {
    let (Ok(entries), Ok(root)) = (std::fs::read_dir(folder), root.canonicalize()) else { return Vec::new() };
    let mut outside: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| entry.path().canonicalize().ok())
        .filter(|target| target.is_dir() && !target.starts_with(&root))
        .collect();
    outside.sort();
    outside.dedup();
    outside
}

/// Git records the URL of a fetch, and with it a token that stood in it.
fn fetch_heads(folder: &Path) -> Vec<PathBuf> {
    let entries = |parent: &str| std::fs::read_dir(folder.join(parent)).into_iter().flatten().flatten();
    let mut heads: Vec<PathBuf> = ["db", "index"]
        .into_iter()
        .flat_map(entries)
        .flat_map(|entry| ["FETCH_HEAD", ".git/FETCH_HEAD"].map(|name| entry.path().join(name)))
        .filter(|file| file.is_file())
        .collect();
    heads.sort();
    heads
}

/// The words of a small file; nothing where it is missing, large or no file. A source may have written it.
fn words(file: &Path) -> Vec<Vec<String>> {
    let is_small = file.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() < 65_536);
    let text = if is_small { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.is_empty())
        .collect()
}

/// One plain path segment: a version that a source names must not lead out of the folder of versions.
fn is_segment(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

fn pyenv_versions(root: &Path, around: &Surroundings) -> Vec<String> {
    let from_variable =
        around.variables.get("PYENV_VERSION").map(|text| text.split(':').map(str::to_owned).collect());
    let from_file = |file: PathBuf| Some(words(&file).concat()).filter(|names| !names.is_empty());
    let from_project = || {
        around
            .project
            .iter()
            .flat_map(|project| project.ancestors())
            .find_map(|folder| from_file(folder.join(".python-version")))
    };
    let named: Vec<String> =
        from_variable.or_else(from_project).or_else(|| from_file(root.join("version"))).unwrap_or_default();
    let installed = |name: &String| is_segment(name) && root.join("versions").join(name).is_dir();
    named
        .into_iter()
        .filter_map(|name| if installed(&name) { Some(name) } else { newest_patch(root, &name) })
        .collect()
}

/// `3.12` stands for the newest installed `3.12.x`.
fn newest_patch(root: &Path, prefix: &str) -> Option<String> {
    if !is_segment(prefix) {
        return None;
    }
    let patch = |name: &str| name.strip_prefix(prefix)?.strip_prefix('.')?.parse::<u64>().ok();
    let entries = std::fs::read_dir(root.join("versions")).ok()?;
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| Some((patch(&name)?, name)))
        .max()
        .map(|(_, name)| name)
}

fn asdf_root(around: &Surroundings) -> Option<PathBuf> {
    around
        .folder("ASDF_DATA_DIR")
        .or_else(|| around.folder("ASDF_DIR"))
        .or_else(|| Some(around.folder("HOME")?.join(".asdf")))
}

/// Tool and version, from the project's `.tool-versions` first and the user's after it; the first word wins.
fn asdf_versions(around: &Surroundings) -> Vec<(String, String)> {
    let mut chosen: Vec<(String, String)> = Vec::new();
    let folders = around.project.iter().cloned().chain(around.folder("HOME"));
    for line in folders.flat_map(|folder| words(&folder.join(".tool-versions"))) {
        if let [tool, version, ..] = line.as_slice()
            && is_segment(tool)
            && is_segment(version)
            && !chosen.iter().any(|(known, _)| known == tool)
        {
            chosen.push((tool.clone(), version.clone()));
        }
    }
    chosen
}
