//! Which folders of the host may be shown to commands, and which files in them stay hidden.

use std::path::{Path, PathBuf};

/// Names of files and folders that hold credentials. A folder that directly holds one is not granted.
const CREDENTIALS: [&str; 27] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".m2",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".yarnrc.yml",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "gcloud",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "keyrings",
];

/// Folders of which each subfolder belongs to somebody: granting one whole would show everything.
const SHARED: [&str; 14] = [
    "/", "/boot", "/dev", "/etc", "/home", "/mnt", "/media", "/opt", "/proc", "/root", "/run", "/srv",
    "/tmp", "/var",
];

/// What must never be granted on this host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    /// The user's own folder, canonical.
    pub(crate) user: Option<PathBuf>,
    /// Folders that neither may be granted nor lie in a granted one: the state folder and the source.
    pub(crate) off_limits: Vec<PathBuf>,
    /// Places that mean something else inside a workspace, so that nothing of the host can appear there.
    pub(crate) reserved: Vec<PathBuf>,
}

impl Guard {
    /// Says why `folder` may not be granted read-only, or gives its canonical form.
    pub(crate) fn check(&self, folder: &Path) -> Result<PathBuf, String> {
        let real = self.check_place(folder)?;
        match credential_in(&real) {
            Some(name) => Err(format!("it holds {name:?}, which may be a credential")),
            None => Ok(real),
        }
    }

    /// As [`Guard::check`], without a look at what the folder holds: for folders whose layout is known.
    pub(crate) fn check_place(&self, folder: &Path) -> Result<PathBuf, String> {
        let real = folder.canonicalize().map_err(|error| error.to_string())?;
        if SHARED.iter().any(|shared| real == Path::new(shared)) {
            return Err("it is a folder of the whole system".to_owned());
        }
        for path in [folder, &real] {
            if let Some(place) = self.reserved.iter().find(|place| path.starts_with(place)) {
                return Err(format!("{place:?} is another folder for commands than on this host"));
            }
        }
        if is_home_of_somebody(&real) {
            return Err("it is the home folder of a user".to_owned());
        }
        if let Some(user) = &self.user {
            if user.starts_with(&real) {
                return Err("it holds your whole home folder".to_owned());
            }
            for shared in [".local", ".local/share", ".config", ".cache"] {
                if real == user.join(shared) {
                    return Err(format!("~/{shared} holds the data of many programs"));
                }
            }
        }
        let credential = real.components().any(|part| {
            part.as_os_str().to_str().is_some_and(|name| name.starts_with('.') && CREDENTIALS.contains(&name))
        });
        if credential {
            return Err("its path leads through a folder of credentials".to_owned());
        }
        match self.off_limits.iter().find(|limit| limit.starts_with(&real) || real.starts_with(limit)) {
            Some(limit) => Err(format!("it meets {limit:?}, which commands must not see")),
            None => Ok(real),
        }
    }
}

/// True for a home folder that the system's list of users names; `$HOME` may say anything.
fn is_home_of_somebody(folder: &Path) -> bool {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let homes = users.lines().filter_map(|line| line.split(':').nth(5));
    homes.filter(|home| !is_system(Path::new(home))).any(|home| Path::new(home) == folder)
}

/// The first entry of `folder` whose name is that of a credential.
fn credential_in(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find(|name| CREDENTIALS.contains(&name.as_str()))
}

/// The entries of `folder` that have the name of a credential: to be hidden where it is granted by name.
pub(crate) fn hidden_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut hidden: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| CREDENTIALS.contains(&name)))
        .map(|entry| entry.path())
        .collect();
    hidden.sort();
    hidden
}

/// True below the folders that every command sees anyway.
pub(crate) fn is_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64"].iter().any(|system| path.starts_with(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_home_and_what_holds_it_are_never_granted() {
        let outer = tempfile::tempdir().unwrap();
        let user = outer.path().canonicalize().unwrap().join("user");
        std::fs::create_dir_all(user.join(".local/share")).unwrap();
        std::fs::create_dir_all(user.join("tools")).unwrap();
        let guard = Guard { user: Some(user.clone()), ..Guard::default() };
        for path in [&user, outer.path(), Path::new("/"), Path::new("/etc"), &user.join(".local")] {
            assert!(guard.check(path).is_err(), "{path:?}");
        }
        assert_eq!(guard.check(&user.join("tools")), Ok(user.join("tools")));
        std::os::unix::fs::symlink(&user, user.join("tools/all")).unwrap();
        assert!(guard.check(&user.join("tools/all")).is_err());
    }

    #[test]
    fn folders_with_credentials_and_the_state_folder_are_refused() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap();
        for folder in ["tool", "state/store", ".ssh/tool"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("tool/credentials.toml"), "").unwrap();
        let guard = Guard { off_limits: vec![root.join("state")], ..Guard::default() };
        for folder in ["tool", "state", "state/store", ".ssh/tool", ""] {
            assert!(guard.check(&root.join(folder)).is_err(), "{folder}");
        }
        assert_eq!(hidden_in(&root.join("tool")), [root.join("tool/credentials.toml")]);
    }
}
