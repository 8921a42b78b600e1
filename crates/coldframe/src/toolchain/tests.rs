//! Toolchains of invented home folders, found and granted.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::Kind;

struct House {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("user");
        std::fs::create_dir(&root).unwrap();
        Self { _folder: folder, root }
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn program(&self, path: &str) -> PathBuf {
        let path = self.file(path, "#!/bin/sh\n");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn around(&self, path: &[&str]) -> Surroundings {
        Surroundings {
            path: path.iter().map(|entry| self.root.join(entry)).collect(),
            variables: [("HOME".to_owned(), self.root.to_str().unwrap().to_owned())].into(),
            ..Surroundings::default()
        }
    }

    fn granted(&self, found: &Toolchains) -> Vec<String> {
        found
            .grants
            .iter()
            .map(|grant| grant.path.strip_prefix(&self.root).unwrap().display().to_string())
            .collect()
    }
}

#[test]
fn rustup_is_granted_without_the_credentials_and_configuration_of_cargo() {
    let house = House::new();
    for program in [".cargo/bin/cargo", ".cargo/bin/rustup"] {
        house.program(program);
    }
    for file in [
        ".cargo/credentials.toml",
        ".cargo/config.toml",
        ".cargo/registry/src/x",
        ".cargo/git/db/a/FETCH_HEAD",
        ".rustup/settings.toml",
    ] {
        house.file(file, "");
    }
    let found = Toolchains::discover(&house.around(&[".cargo/bin"]));
    assert_eq!(house.granted(&found), [".cargo/bin", ".rustup", ".cargo/registry", ".cargo/git"]);
    assert_eq!(found.grants[3].hidden, [house.root.join(".cargo/git/db/a/FETCH_HEAD")]);
    assert_eq!(found.search_path, [house.root.join(".cargo/bin")]);
    assert_eq!(found.environment["RUSTUP_HOME"], house.root.join(".rustup").display().to_string());
    assert!(found.explain().contains(".rustup (rustup toolchains)"), "{}", found.explain());
}

#[test]
fn a_linked_rustup_toolchain_outside_is_granted_too() {
    let house = House::new();
    house.program(".cargo/bin/cargo");
    house.file(".rustup/settings.toml", "");
    house.program("rust/stage1/bin/rustc");
    std::fs::create_dir(house.root.join(".rustup/toolchains")).unwrap();
    symlink(house.root.join("rust/stage1"), house.root.join(".rustup/toolchains/stage1")).unwrap();
    let found = Toolchains::discover(&house.around(&[".cargo/bin"]));
    assert!(house.granted(&found).contains(&"rust/stage1".to_owned()));
}

#[test]
fn the_shims_of_pyenv_give_way_to_the_chosen_version() {
    let house = House::new();
    for version in ["3.11.7", "3.12.1", "3.12.10"] {
        house.program(&format!(".pyenv/versions/{version}/bin/python3"));
    }
    house.program(".pyenv/shims/python3");
    house.file(".pyenv/version", "3.11.7\n");
    let mut around = house.around(&[".pyenv/shims"]);
    let chosen = |around: &Surroundings| Toolchains::discover(around).search_path;
    assert_eq!(chosen(&around), [house.root.join(".pyenv/versions/3.11.7/bin")]);
    house.file("project/.python-version", "3.12 # newest\n");
    around.project = Some(house.root.join("project"));
    assert_eq!(chosen(&around), [house.root.join(".pyenv/versions/3.12.10/bin")]);
    around.variables.insert("PYENV_VERSION".into(), "3.12.1:3.11.7".into());
    let both =
        ["3.12.1", "3.11.7"].map(|version| house.root.join(".pyenv/versions").join(version).join("bin"));
    assert_eq!(chosen(&around), both);
}

#[test]
fn a_version_that_a_source_names_never_leads_out() {
    let house = House::new();
    house.program(".pyenv/shims/python3");
    house.program("private/bin/python3");
    std::fs::create_dir(house.root.join(".pyenv/versions")).unwrap();
    let mut around = house.around(&[".pyenv/shims"]);
    around.project = Some(house.root.join("project"));
    for version in ["../../private", "/usr", "..", ".", "a/../../../private"] {
        house.file("project/.python-version", version);
        house.file("project/.tool-versions", &format!("python {version}"));
        let found = Toolchains::discover(&around);
        assert!(found.grants.is_empty() && found.search_path.is_empty(), "{version}");
    }
}

#[test]
fn asdf_shims_give_way_and_the_project_decides_before_the_user() {
    let house = House::new();
    for tool in ["nodejs/20.1.0", "nodejs/22.0.0", "ruby/3.3.0"] {
        house.program(&format!(".asdf/installs/{tool}/bin/tool"));
    }
    house.program(".asdf/shims/node");
    house.file(".tool-versions", "nodejs 20.1.0\nruby 3.3.0\n");
    house.file("project/.tool-versions", "nodejs 22.0.0\n");
    let around = house.around(&[".asdf/shims"]).with_project(house.root.join("project"));
    let expected =
        ["nodejs/22.0.0", "ruby/3.3.0"].map(|tool| house.root.join(".asdf/installs").join(tool).join("bin"));
    assert_eq!(Toolchains::discover(&around).search_path, expected);
}

#[test]
fn a_virtual_environment_brings_its_python_and_counts_in_the_source_only_when_activated() {
    let house = House::new();
    house.program("python/3.12/bin/python3");
    house.file("python/3.12/lib/python3.12/os.py", "");
    house.file("project/.venv/pyvenv.cfg", &format!("home = {}/python/3.12/bin\n", house.root.display()));
    house.program("project/.venv/bin/pytest");
    let mut around = house.around(&["project/.venv/bin"]).with_project(house.root.join("project"));
    assert!(Toolchains::discover(&around).grants.is_empty());
    let active = house.root.join("project/.venv");
    around.variables.insert("VIRTUAL_ENV".into(), active.display().to_string());
    let found = Toolchains::discover(&around);
    assert_eq!(house.granted(&found), ["project/.venv", "python/3.12"]);
    assert_eq!(found.search_path, [active.join("bin")]);
}

#[test]
fn nvm_and_go_are_known_by_their_layout() {
    let house = House::new();
    house.program(".nvm/versions/node/v20.1.0/bin/node");
    house.program("sdk/go1.22/bin/go");
    house.file("sdk/go1.22/VERSION", "");
    house.file("sdk/go1.22/src/x", "");
    house.file("go/pkg/mod/x", "");
    let found = Toolchains::discover(&house.around(&[".nvm/versions/node/v20.1.0/bin", "sdk/go1.22/bin"]));
    assert_eq!(house.granted(&found), [".nvm/versions/node/v20.1.0", "sdk/go1.22", "go/pkg/mod"]);
}

#[test]
fn entries_that_a_source_could_fill_are_left_out() {
    let house = House::new();
    house.program("project/bin/git");
    let mut around = house.around(&["project/bin"]).with_project(house.root.join("project"));
    around.path.extend(["", ".", "bin"].map(PathBuf::from));
    let found = Toolchains::discover(&around);
    assert_eq!(found.search_path, [] as [PathBuf; 0]);
    assert_eq!(found.notes.len(), 4);
    assert!(found.notes.iter().all(|note| note.verdict.starts_with("left out")), "{:?}", found.notes);
}

#[test]
fn a_program_that_was_named_is_granted_with_what_its_link_leads_to() {
    let house = House::new();
    house.program("apps/tool/venv/bin/tool");
    house.file("apps/tool/venv/pyvenv.cfg", "home = /usr/bin\n");
    std::fs::create_dir_all(house.root.join(".local/bin")).unwrap();
    symlink(house.root.join("apps/tool/venv/bin/tool"), house.root.join(".local/bin/tool")).unwrap();
    let mut found = Toolchains::discover(&house.around(&[".local/bin"]));
    assert!(found.search_path.is_empty() && found.grants.is_empty());
    assert_eq!(found.grant_program("tool").unwrap(), Some(house.root.join(".local/bin/tool")));
    assert_eq!(house.granted(&found), [".local/bin", "apps/tool/venv"]);
    assert_eq!(found.search_path, [house.root.join(".local/bin")]);
    assert_eq!(found.grant_program("missing").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(found.grant_program("./tool").unwrap(), None);
}

#[test]
fn a_program_beside_credentials_or_in_the_home_itself_is_refused() {
    let house = House::new();
    house.program("tool");
    house.program("bin/other");
    house.file("bin/id_rsa", "");
    let mut found = Toolchains::discover(&house.around(&["", "bin"]));
    for name in ["tool", "other"] {
        assert_eq!(found.grant_program(name).unwrap_err().kind(), Kind::Refused, "{name}");
    }
    assert!(found.grants.is_empty());
}

#[test]
fn the_order_of_path_decides_and_a_file_without_the_bit_is_no_program() {
    let house = House::new();
    house.file("one/bin/tool", "");
    house.program("two/bin/tool");
    house.program("three/bin/tool");
    let mut found = Toolchains::discover(&house.around(&["one/bin", "two/bin", "three/bin"]));
    assert_eq!(found.grant_program("tool").unwrap(), Some(house.root.join("two/bin/tool")));
}

#[test]
fn the_state_folder_is_never_shown() {
    let house = House::new();
    house.program("state/bin/tool");
    let around = house.around(&["state/bin"]).with_off_limits(house.root.join("state"));
    assert_eq!(Toolchains::discover(&around).grant_program("tool").unwrap_err().kind(), Kind::Refused);
}

#[test]
fn a_link_into_a_bin_shows_the_bin_and_not_what_lies_beside_it() {
    let house = House::new();
    let target = house.program("store/bin/tool");
    house.file("store/config.toml", "token = 1\n");
    std::fs::create_dir_all(house.root.join("links")).unwrap();
    symlink(target, house.root.join("links/tool")).unwrap();
    let mut found = Toolchains::discover(&house.around(&["links"]));
    found.grant_program("tool").unwrap();
    assert_eq!(house.granted(&found), ["links", "store/bin"]);
}

#[test]
fn an_activated_environment_opens_neither_the_state_folder_nor_what_its_file_names() {
    let house = House::new();
    house.program("venv/bin/python");
    house.file("secrets/key", "");
    house.file("venv/pyvenv.cfg", &format!("home = {}\n", house.root.join("secrets").display()));
    house.file("venv/state/store/x", "");
    let around = house.around(&["venv/bin"]).with_off_limits(house.root.join("venv/state"));
    assert!(house.granted(&Toolchains::discover(&around)).is_empty());
    let open = Toolchains::discover(&house.around(&["venv/bin"]));
    assert_eq!(house.granted(&open), ["venv"]);
}
