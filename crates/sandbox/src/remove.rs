//! Removes trees of any depth and breadth with few descriptors, also where commands or the kernel closed folders.
//!
//! A folder that is met below is first moved up to the top, so that nothing recurses and no path grows.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, chmodat, fchmod, fstat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ALL: Mode = Mode::RWXU;

/// Removes `path` and everything below it; what is absent is no error.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    remove_but_last(path, c"")
}

/// Removes `path` and everything below it, the file `last` at its top after everything else.
pub(crate) fn remove_but_last(path: &Path, last: &CStr) -> io::Result<()> {
    let root = match openat(CWD, path, OPEN, Mode::empty()) {
        Err(Errno::ACCESS) => {
            chmod(path, ALL)?;
            openat(CWD, path, OPEN, Mode::empty())?
        }
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    open_up(&root)?;
    empty(&root, last)?;
    if !last.is_empty() {
        absent_is_fine(unlinkat(&root, last, AtFlags::empty()))?;
    }
    Ok(absent_is_fine(unlinkat(CWD, path, AtFlags::REMOVEDIR))?)
}

fn absent_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::NOENT) { Ok(()) } else { result }
}

/// Gives the owner back what is needed to remove the entries of a folder.
fn open_up(directory: &OwnedFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fstat(directory)?.st_mode);
    if mode.contains(ALL) { Ok(()) } else { fchmod(directory, ALL) }
}

fn empty(root: &OwnedFd, keep: &CStr) -> Result<(), Errno> {
    let mut moved = 0u64;
    let mut pending = take(root, root, keep, &mut moved)?;
    while let Some(name) = pending.pop() {
        if absent_is_fine(unlinkat(root, &name, AtFlags::REMOVEDIR)).is_ok() {
            continue;
        }
        let directory = match openat(root, &name, OPEN, Mode::empty()) {
            Err(Errno::ACCESS) => {
                chmodat(root, &name, ALL, AtFlags::empty())?;
                openat(root, &name, OPEN, Mode::empty())?
            }
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        open_up(&directory)?;
        let mut below = take(root, &directory, c"", &mut moved)?;
        pending.append(&mut below);
        absent_is_fine(unlinkat(root, &name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

/// Unlinks the entries of `directory` and names those folders, now in `root`, that are left to be emptied.
fn take(root: &OwnedFd, directory: &OwnedFd, keep: &CStr, moved: &mut u64) -> Result<Vec<CString>, Errno> {
    let is_root = std::ptr::eq(root, directory);
    let mut left = Vec::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." || (is_root && name == keep) {
            continue;
        }
        // What is no folder fails to be removed as one, so the kind is a hint only.
        if entry.file_type() != FileType::Directory {
            match absent_is_fine(unlinkat(directory, name, AtFlags::empty())) {
                Ok(()) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(error),
            }
        }
        if is_root {
            left.push(name.to_owned());
        } else if absent_is_fine(unlinkat(directory, name, AtFlags::REMOVEDIR)).is_err() {
            left.push(move_up(root, directory, name, moved)?);
        }
    }
    Ok(left)
}

fn move_up(root: &OwnedFd, directory: &OwnedFd, name: &CStr, moved: &mut u64) -> Result<CString, Errno> {
    let mut opened = false;
    loop {
        *moved += 1;
        let target = CString::new(format!(".removed-{moved}")).map_err(|_| Errno::INVAL)?;
        match renameat(directory, name, root, &target) {
            Ok(()) => return Ok(target),
            // Left there by a removal that did not come to its end.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            // Its entry `..` changes, so the folder itself must be writable.
            Err(Errno::ACCESS) if !opened => {
                chmodat(directory, name, ALL, AtFlags::empty())?;
                opened = true;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn closed_folders_links_and_leftovers_of_an_earlier_removal_go() {
        let parent = tempfile::tempdir().unwrap();
        let top = parent.path().join("top");
        for path in ["a/b/c", "a/closed/x", ".removed-1/deep/er", ".removed-2"] {
            fs::create_dir_all(top.join(path)).unwrap();
            fs::write(top.join(path).join("file"), "x").unwrap();
        }
        fs::write(parent.path().join("outside"), "stays").unwrap();
        symlink(parent.path(), top.join("a/b/link")).unwrap();
        fs::write(top.join("lock"), "").unwrap();
        for (path, mode) in [("a/closed/x", 0o000), ("a/closed", 0o500), ("a", 0o000)] {
            fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_but_last(&top, c"lock").unwrap();
        assert!(!top.exists());
        assert_eq!(fs::read_to_string(parent.path().join("outside")).unwrap(), "stays");
        remove_tree(&top).unwrap();
    }

    #[test]
    fn a_chain_of_folders_deeper_than_any_path_goes() {
        let parent = tempfile::tempdir().unwrap();
        let top = parent.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut at = openat(CWD, &top, OPEN, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, c"deep", ALL).unwrap();
            at = openat(&at, c"deep", OPEN, Mode::empty()).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
