//! What becomes of each kind of thing in a tree: links, pipes, sockets, empty directories, odd names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn links_of_every_sort_are_kept_as_text_and_nothing_outside_is_read() {
    let tree = Tree::of(&["real/file.txt"]);
    let outside = tree.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "outside-bytes").unwrap();
    let links = [
        ("to-file", "real/file.txt"),
        ("to-folder", "real"),
        ("to-outside", "../outside"),
        ("to-outside-file", "../outside/secret.txt"),
        ("to-nowhere", "no/such/thing"),
        ("to-itself", "to-itself"),
        ("to-dot", "."),
        ("real/to-parent", ".."),
    ];
    links.iter().for_each(|(path, target)| tree.put(&FixtureNode::symlink(path, target)));
    let start = Instant::now();
    let (snapshot, store) = capture(&LocalSource::new(), &tree.root(), SnapshotLimits::default()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    for (path, expected) in links {
        let node = &snapshot.entry(path).unwrap().node;
        assert_eq!(*node, Node::Symlink { target: expected.to_owned() }, "{path}");
    }
    assert_eq!(snapshot.entries().len(), links.len() + 1);
    assert_eq!(store.total_bytes(), "real/file.txt".len() as u64);
}

#[test]
fn a_root_that_is_a_link_to_a_directory_is_the_directory() {
    let tree = Tree::of(&["a"]);
    let link = tree.folder.path().join("link");
    symlink("tree", &link).unwrap();
    let (snapshot, _) = capture(&LocalSource::new(), &link, SnapshotLimits::default()).unwrap();
    assert_eq!(paths(&snapshot), ["a"]);
    assert_eq!(snapshot.tree(), tree.capture().tree());
}

#[test]
fn a_pipe_and_a_socket_are_reported_and_never_opened() {
    let tree = Tree::of(&["ok.txt"]);
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, tree.path("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(tree.path("socket")).unwrap();
    let start = Instant::now();
    let snapshot = tree.capture();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(paths(&snapshot), ["ok.txt"]);
    assert_eq!(omitted(&snapshot), ["socket socket 1", "fifo pipe 1"]);
}

#[test]
fn a_directory_with_nothing_but_a_pipe_in_it_is_kept_as_empty() {
    let tree = Tree::of(&["ok.txt", "folder/x"]);
    fs::remove_file(tree.path("folder/x")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, tree.path("folder/pipe"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    let snapshot = tree.capture();
    assert_eq!(snapshot.entry("folder").unwrap().node, Node::Directory);
    assert_eq!(omitted(&snapshot), ["fifo folder/pipe 1"]);
}

#[test]
fn names_that_are_not_utf8_are_reported_with_their_bytes() {
    let tree = Tree::of(&["ok.txt"]);
    fs::write(tree.root().join(OsStr::from_bytes(b"caf\xe9.txt")), "lost").unwrap();
    fs::create_dir(tree.root().join(OsStr::from_bytes(b"\xff\xfedir"))).unwrap();
    fs::write(tree.root().join(OsStr::from_bytes(b"\xff\xfedir/inner.txt")), "lost").unwrap();
    symlink(OsStr::from_bytes(b"caf\xe9.txt"), tree.path("link")).unwrap();
    let snapshot = tree.capture();
    assert_eq!(paths(&snapshot), ["ok.txt"]);
    let expected =
        ["non-utf8-name caf\\xe9.txt 1", "non-utf8-name \\xff\\xfedir 1", "non-utf8-target link 1"];
    let left_out = omitted(&snapshot);
    for line in expected {
        assert!(left_out.iter().any(|found| found == line), "{line} in {left_out:?}");
    }
    assert_eq!(left_out.len(), 3);
}

#[test]
fn names_with_every_other_oddity_are_kept_exactly() {
    let names = [
        "new\nline",
        "tab\t",
        "back\\slash",
        " lead",
        "trail ",
        "trail.",
        "-rf",
        "caf\u{e9}",
        "cafe\u{301}",
        "C:x",
    ];
    let tree = Tree::of(&names);
    let snapshot = tree.capture();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(paths(&snapshot), expected);
    assert_eq!(snapshot.twins().len(), 1, "the two forms of one name are both there");
}

#[test]
fn an_empty_source_and_empty_folders_are_kept_by_one_rule() {
    assert!(Tree::new(&[]).capture().entries().is_empty());
    let nodes =
        [FixtureNode::directory("a"), FixtureNode::directory("b/c"), FixtureNode::file("keep/.keep", "")];
    let snapshot = Tree::new(&nodes).capture();
    assert_eq!(paths(&snapshot), ["a", "b/c", "keep/.keep"]);
    assert_eq!(snapshot.entry("a").unwrap().node, Node::Directory);
}

#[test]
fn modes_other_than_the_owners_execute_bit_do_not_matter() {
    let tree = Tree::of(&["setuid", "others", "owner"]);
    for (path, mode) in [("setuid", 0o4644), ("others", 0o655), ("owner", 0o744)] {
        fs::set_permissions(tree.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let snapshot = tree.capture();
    for (path, expected) in [("setuid", false), ("others", false), ("owner", true)] {
        assert!(
            matches!(snapshot.entry(path).unwrap().node, Node::File { executable, .. } if executable == expected),
            "{path}"
        );
    }
}

#[test]
fn hard_links_are_two_files() {
    let tree = Tree::of(&["one"]);
    fs::hard_link(tree.path("one"), tree.path("two")).unwrap();
    assert_eq!(paths(&tree.capture()), ["one", "two"]);
}

#[test]
fn a_tree_of_two_thousand_levels_is_walked_and_longer_paths_are_reported() {
    let tree = Tree::new(&[]);
    let mut handle = rustix::fs::open(
        tree.root(),
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let levels = 2100;
    for _ in 0..levels {
        rustix::fs::mkdirat(&handle, "d", rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        handle = rustix::fs::openat(&handle, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    drop(handle);
    let snapshot = tree.capture();
    let deepest = snapshot.entries().last().unwrap();
    assert_eq!((snapshot.entries().len(), deepest.path.segments().count()), (1, 2048));
    assert_eq!(deepest.node, Node::Directory);
    let left_out = snapshot.omitted();
    assert_eq!((left_out.len(), left_out[0].reason), (1, OmissionReason::IllegalName));
}

#[test]
fn files_that_a_kernel_makes_up_are_just_read() {
    // Their size reads as zero whatever they hold.
    let (snapshot, store) =
        capture(&LocalSource::new(), Path::new("/proc/sys/fs/inotify"), SnapshotLimits::default()).unwrap();
    let blob = snapshot.entry("max_user_watches").unwrap().node.blob().unwrap();
    let expected = fs::read("/proc/sys/fs/inotify/max_user_watches").unwrap();
    assert!(!expected.is_empty());
    assert_eq!(*store.content(&blob.digest).unwrap(), expected);
}
