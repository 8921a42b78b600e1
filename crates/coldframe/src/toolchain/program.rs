//! Finds the program that a user named, and grants what that one program needs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Toolchains, is_system};
use crate::{Error, Kind};

impl Toolchains {
    /// Finds `name` as a shell would: in the entries of `PATH`, the first hit wins. Where it lies outside of the
    /// known toolchains, the folder it is installed in is granted read-only. A relative path with a `/` names a
    /// file of the workspace and gives `None`.
    ///
    /// # Errors
    ///
    /// `NotFound` where no entry has such a program, `Refused` where it may not be made visible.
    pub fn grant_program(&mut self, name: &str) -> Result<Option<PathBuf>, Error> {
        let path = Path::new(name);
        if path.is_absolute() {
            self.show(path)?;
            return Ok(Some(path.to_path_buf()));
        }
        if name.contains('/') {
            return Ok(None);
        }
        let hit = self
            .places
            .iter()
            .map(|place| place.folder.clone())
            .find(|folder| is_program(&folder.join(name)));
        let Some(folder) = hit else { return Err(self.not_found(name)) };
        self.show(&folder.join(name))?;
        self.place(folder, true);
        self.refresh_search_path();
        Ok(Some(path_of(&self.search_path, name).unwrap_or_else(|| PathBuf::from(name))))
    }

    fn not_found(&self, name: &str) -> Error {
        let message = format!(
            "{name:?} was not found in the {} folders of PATH that commands may see; \
             `coldframe doctor --explain` shows each of them",
            self.places.len()
        );
        Error::new(Kind::NotFound, message).with_details(json!({ "program": name }))
    }

    /// Makes one program visible: the folder it was found in, the folder its links lead to, and the
    /// interpreter that its first line names.
    fn show(&mut self, program: &Path) -> Result<(), Error> {
        let details = || json!({ "program": program });
        let real = program
            .canonicalize()
            .map_err(|error| Error::io(format!("find {program:?}"), &error).with_details(details()))?;
        let refused = |reason: String| {
            let message = format!(
                "{program:?} cannot be made visible to the command: {reason}; install it elsewhere or put its folder in search_path"
            );
            Error::new(Kind::Refused, message).with_details(details())
        };
        if let Some(folder) = program.parent()
            && !self.is_visible(folder)
        {
            self.grant(folder, "holds the program you named").map_err(refused)?;
        }
        self.show_target(&real).map_err(refused)?;
        if let Some(interpreter) = interpreter_of(&real).and_then(|path| path.canonicalize().ok()) {
            self.show_target(&interpreter).map_err(refused)?;
        }
        Ok(())
    }

    fn show_target(&mut self, real: &Path) -> Result<(), String> {
        if self.is_visible(real) {
            return Ok(());
        }
        let folder = real.parent().unwrap_or(real);
        // Only a `bin` that has the rest of an installation beside it stands for more than itself.
        let is_installation =
            |root: &&Path| ["lib", "libexec", "share"].iter().any(|name| root.join(name).is_dir());
        let has_environment = |root: &&Path| root.join("pyvenv.cfg").is_file();
        let parent = folder.parent().filter(|_| folder.ends_with("bin"));
        let root = parent.filter(|root| is_installation(root) || has_environment(root)).unwrap_or(folder);
        if root.join("pyvenv.cfg").is_file() {
            self.grant(root, "virtual environment of the program you named")?;
            return self.grant_base(root);
        }
        // A `bin` beside `lib` is an installation; where its parent may not be shown, the `bin` alone has to do.
        self.grant(root, "installation of the program you named")
            .or_else(|_| self.grant(folder, "holds the program you named"))
    }

    fn is_visible(&self, path: &Path) -> bool {
        is_system(path) || self.grants.iter().any(|grant| path.starts_with(&grant.path))
    }
}

fn path_of(search_path: &[PathBuf], name: &str) -> Option<PathBuf> {
    search_path.iter().map(|folder| folder.join(name)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The absolute interpreter of a script, without `env`, which looks in the search path anyway.
fn interpreter_of(program: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(512).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    Some(PathBuf::from(word)).filter(|path| path.is_absolute())
}
