//! What cannot be captured is an error that names it.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;

/// Runs `work` on a thread that may read only what its modes allow, also where the tests run as root.
fn as_an_ordinary_user<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
        work()
    });
    thread.join().unwrap()
}

fn close(path: std::path::PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let tree = Tree::of(&["a.txt", "sub/secret.txt", "z.txt"]);
    close(tree.path("sub/secret.txt"), 0o000);
    let error = as_an_ordinary_user(move || tree.refusal());
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Denied, "sub/secret.txt"));
}

#[test]
fn a_folder_that_may_not_be_listed_is_named_and_no_snapshot_lacks_it() {
    for mode in [0o000, 0o100, 0o400] {
        let tree = Tree::of(&["a.txt", "locked/inner.txt"]);
        close(tree.path("locked"), mode);
        let (tree, error) = as_an_ordinary_user(move || {
            let error = tree.refusal();
            (tree, error)
        });
        assert_eq!(error.kind(), ErrorKind::Denied, "{mode:o}");
        assert!(error.subject().starts_with("locked"), "{error}");
        close(tree.path("locked"), 0o700);
    }
}

#[test]
fn a_file_that_was_readable_at_the_last_capture_is_not_taken_from_the_cache() {
    let tree = Tree::of(&["a.txt"]);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let adapter = LocalSource::new().with_cache(tree.folder.path().join("cache"));
    tree.capture_with(&adapter);
    close(tree.path("a.txt"), 0o000);
    let error =
        as_an_ordinary_user(move || capture(&adapter, &tree.root(), SnapshotLimits::default()).unwrap_err());
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Denied, "a.txt"));
}

#[test]
fn a_locator_that_is_no_absolute_path_of_a_directory_is_refused() {
    let tree = Tree::of(&["file"]);
    let refusal = |source: &SourceRef| {
        let adapter = LocalSource::new();
        block_on(capture_into_memory(&adapter, source, SnapshotLimits::default())).unwrap_err()
    };
    let error = refusal(&reference(&tree.path("file")));
    assert_eq!(error.kind(), ErrorKind::Contract);
    assert!(error.to_string().contains("not a directory"), "{error}");
    assert_eq!(refusal(&reference(&tree.path("file/below"))).kind(), ErrorKind::Contract);
    assert_eq!(refusal(&reference(&tree.path("missing"))).kind(), ErrorKind::NotFound);
    let relative = refusal(&SourceRef::new("local", "some/tree", "").unwrap());
    assert_eq!(relative.kind(), ErrorKind::Contract);
    assert!(relative.to_string().contains("relative"), "{relative}");
    let other = SourceRef::new("github", tree.root().to_str().unwrap(), "").unwrap();
    assert_eq!(refusal(&other).kind(), ErrorKind::Contract);
}
