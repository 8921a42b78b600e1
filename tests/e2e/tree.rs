//! Folders as values: written, copied, and compared by everything that a snapshot promises to keep.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    File {
        content: Vec<u8>,
        executable: bool,
    },
    Link(OsString),
    /// A folder with nothing in it.
    Empty,
    Other,
}

/// Everything below a folder by its path, `.git` left out.
pub(crate) fn read(folder: &Path) -> BTreeMap<OsString, Found> {
    let mut found = BTreeMap::new();
    walk(folder, &mut |path, metadata| {
        let kind = metadata.file_type();
        let value = if kind.is_symlink() {
            Found::Link(fs::read_link(path).unwrap().into_os_string())
        } else if kind.is_file() {
            let executable = metadata.permissions().mode() & 0o100 != 0;
            Found::File { content: fs::read(path).unwrap(), executable }
        } else if kind.is_dir() {
            Found::Empty
        } else {
            Found::Other
        };
        found.insert(path.strip_prefix(folder).unwrap().as_os_str().to_owned(), value);
    });
    found
}

/// As [`read`], without the empty folders, which a patch cannot say.
pub(crate) fn read_files(folder: &Path) -> BTreeMap<OsString, Found> {
    let mut found = read(folder);
    found.retain(|_, value| *value != Found::Empty);
    found
}

/// The paths at which two trees differ.
pub(crate) fn differing(one: &BTreeMap<OsString, Found>, other: &BTreeMap<OsString, Found>) -> Vec<OsString> {
    let paths = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    paths.into_iter().filter(|path| one.get(*path) != other.get(*path)).cloned().collect()
}

/// Inodes, sizes, modes and times of everything below a folder: whoever touches a file changes this.
pub(crate) fn touched(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(folder, &mut |path, metadata| {
        lines.push(format!(
            "{path:?} {} {} {:o} {}.{} {}.{}",
            metadata.ino(),
            metadata.size(),
            metadata.mode(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec()
        ));
    });
    lines.sort();
    lines
}

/// Calls `visit` for each path that is no folder with something in it.
fn walk(folder: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".git" {
            continue;
        }
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let is_full = metadata.is_dir() && fs::read_dir(&path).unwrap().next().is_some();
        if is_full {
            walk(&path, visit);
        } else {
            visit(&path, &metadata);
        }
    }
}

/// Copies a folder with modes and links, without what Python leaves behind.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if entry.file_name() == "__pycache__" {
            continue;
        }
        if kind.is_dir() {
            copy(&source, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

/// Writes a file with the folders above it.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Sets the permissions of a path.
pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Every file below a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths = Vec::new();
    walk(folder, &mut |path, metadata| {
        if metadata.is_file() {
            paths.push(path.to_owned());
        }
    });
    paths.sort();
    paths
}
