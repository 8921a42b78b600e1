//! The folder that holds a user's store, cache and runs: where it is, and that it is private.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{Error, Kind};

/// A private state folder: `store/`, `cache/`, `runs/` and, where the user wrote one, `config.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// Opens the folder that the environment names: `COLDFRAME_HOME`, else `$XDG_DATA_HOME/coldframe`, else
    /// `~/.local/share/coldframe`. It is created where it is missing.
    ///
    /// # Errors
    ///
    /// See [`Home::at`]; also where none of the three variables is set.
    pub fn from_environment() -> Result<Self, Error> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self::at(&default_root(variable)?)
    }

    /// Opens the folder `root`, and creates it with mode 0700 where it is missing.
    ///
    /// # Errors
    ///
    /// `Refused` where the folder belongs to another user or where others may write to it; `Contract` for a
    /// relative path; `System` where it cannot be made.
    pub fn at(root: &Path) -> Result<Self, Error> {
        if !root.is_absolute() {
            let message = format!("the home folder {root:?} is relative; give an absolute path");
            return Err(Error::new(Kind::Contract, message));
        }
        let fresh = !root.exists();
        make_private(root).map_err(|error| Error::io(format!("create the home folder {root:?}"), &error))?;
        let root = root
            .canonicalize()
            .map_err(|error| Error::io(format!("open the home folder {root:?}"), &error))?;
        // The resolved path is what is checked and used from here on: nobody else can change where it leads.
        check_path(&root)?;
        check_private(&root)?;
        let home = Self { root };
        for folder in [home.store(), home.cache(), home.runs()] {
            make_private(&folder).map_err(|error| Error::io(format!("create {folder:?}"), &error))?;
        }
        if fresh {
            // A home inside a project must not end up in the project's own snapshots or commits.
            let rule = home.root.join(".gitignore");
            std::fs::write(&rule, "*\n").map_err(|error| Error::io(format!("write {rule:?}"), &error))?;
        }
        Ok(home)
    }

    /// The folder itself, canonical.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where contents, snapshots and deltas are.
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Where base trees, workspaces under way and stat caches are; safe to delete while nothing runs.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Where the state and the journals of runs are.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Where the trusted configuration is looked for.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }
}

fn default_root(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Error> {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    if let Some(root) = set("COLDFRAME_HOME") {
        return Ok(root);
    }
    // The XDG rules say that a relative value is ignored.
    if let Some(data) = set("XDG_DATA_HOME").filter(|data| data.is_absolute()) {
        return Ok(data.join("coldframe"));
    }
    match set("HOME").filter(|home| home.is_absolute()) {
        Some(home) => Ok(home.join(".local/share/coldframe")),
        None => Err(Error::new(Kind::NotFound, "no home folder is known; set COLDFRAME_HOME or give --home")),
    }
}

pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Refuses a path on which somebody else could put another folder in place of this one.
fn check_path(root: &Path) -> Result<(), Error> {
    let user = rustix::process::geteuid().as_raw();
    // Ordinary users share folders with their groups; root must not rest on that.
    let others = if user == 0 { 0o022 } else { 0o002 };
    let foreign_is_unmapped = std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().nth(2).is_some_and(|count| count != "4294967295"));
    for folder in root.ancestors().skip(1) {
        let found = std::fs::metadata(folder)
            .map_err(|error| Error::io(format!("open {folder:?} on the way to the home folder"), &error))?;
        let owner = found.uid();
        // In a user namespace root's folders show the owner that stands for all who are not in it.
        let trusted = owner == user || owner == 0 || (owner == OVERFLOW_USER && foreign_is_unmapped);
        let sticky = found.mode() & 0o1000 != 0;
        if !trusted || (found.mode() & others != 0 && !sticky) {
            let message = format!(
                "others may change {folder:?}, which leads to the home folder {root:?}; set COLDFRAME_HOME to a folder \
                 whose whole path is yours or root's"
            );
            return Err(Error::new(Kind::Refused, message));
        }
    }
    Ok(())
}

/// What the kernel shows for owners that a user namespace does not know, unless it was told another number.
const OVERFLOW_USER: u32 = 65_534;

fn check_private(root: &Path) -> Result<(), Error> {
    let found = std::fs::metadata(root)
        .map_err(|error| Error::io(format!("open the home folder {root:?}"), &error))?;
    if !found.is_dir() {
        return Err(Error::new(Kind::Contract, format!("the home folder {root:?} is not a directory")));
    }
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        let message = format!(
            "the home folder {root:?} belongs to user {}, you are user {user}; set COLDFRAME_HOME to a folder of your own",
            found.uid()
        );
        return Err(Error::new(Kind::Refused, message));
    }
    if found.mode() & 0o022 != 0 {
        let message = format!("others may write to the home folder {root:?}; run `chmod go-w` on it");
        return Err(Error::new(Kind::Refused, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> Result<PathBuf, Error> {
        default_root(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value)))
    }

    #[test]
    fn the_most_explicit_variable_names_the_home() {
        let all = [("COLDFRAME_HOME", "/c"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(
            default_root(|name| all.iter().find(|(key, _)| *key == name).map(|p| p.1.into())).unwrap(),
            Path::new("/c")
        );
        assert_eq!(with(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]).unwrap(), Path::new("/x/coldframe"));
        assert_eq!(
            with(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]).unwrap(),
            Path::new("/h/.local/share/coldframe")
        );
        assert_eq!(with(&[("COLDFRAME_HOME", ""), ("HOME", "")]).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_fresh_home_is_private_and_ignores_itself() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("a/home");
        let home = Home::at(&root).unwrap();
        for folder in [home.root().to_path_buf(), home.store(), home.cache(), home.runs()] {
            assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{folder:?}");
        }
        assert_eq!(std::fs::read_to_string(home.root().join(".gitignore")).unwrap(), "*\n");
        assert_eq!(Home::at(&root).unwrap(), home);
    }

    #[test]
    fn a_home_that_others_may_write_to_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::set_permissions(outer.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(Home::at(outer.path()).unwrap_err().kind(), Kind::Refused);
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_home_in_a_folder_where_others_could_exchange_it_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let open = outer.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(Home::at(&open.join("home")).unwrap_err().kind(), Kind::Refused);
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(Home::at(&open.join("home")).is_ok());
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&open, Some(1234), None).unwrap();
            assert_eq!(Home::at(&open.join("home")).unwrap_err().kind(), Kind::Refused);
        }
    }

    #[test]
    fn a_home_of_another_user_is_refused() {
        let user = rustix::process::geteuid().as_raw();
        let folder = tempfile::tempdir().unwrap();
        let foreign = if user == 0 {
            std::os::unix::fs::chown(folder.path(), Some(65534), None).unwrap();
            folder.path().to_path_buf()
        } else {
            PathBuf::from("/usr")
        };
        assert_eq!(Home::at(&foreign).unwrap_err().kind(), Kind::Refused);
    }

    #[test]
    fn a_relative_home_and_a_file_are_refused() {
        assert_eq!(Home::at(Path::new("here")).unwrap_err().kind(), Kind::Contract);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Home::at(file.path()).is_err());
    }
}
