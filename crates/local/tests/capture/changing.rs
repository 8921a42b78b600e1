//! Files that change while they are captured: the right bytes of one moment, or an error that names them.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Tells the writing thread to end, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `writes` again and again on another thread while `body` runs.
fn meanwhile(mut writes: impl FnMut(u64) + Send, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                writes(round);
                round += 1;
            }
        });
        let _stop = Stop(&stop);
        body();
    });
}

/// Captures over and over; each success must hold bytes that `is_whole` knows as those of one moment.
fn hammer(tree: &Tree, path: &str, is_whole: impl Fn(&[u8]) -> bool) {
    let adapter = LocalSource::new().with_cache(tree.folder.path().join("cache"));
    let end = Instant::now() + Duration::from_millis(1500);
    let mut rounds = 0;
    while Instant::now() < end || rounds == 0 {
        rounds += 1;
        match capture(&adapter, &tree.root(), SnapshotLimits::default()) {
            Ok((snapshot, store)) => {
                let blob = snapshot.entry(path).expect("the file is always there").node.blob().unwrap();
                let content = store.content(&blob.digest).unwrap();
                assert_eq!(content.len() as u64, blob.size);
                assert!(is_whole(&content), "a mixture of two moments was stored");
            }
            Err(error) => {
                assert_eq!((error.kind(), error.subject()), (ErrorKind::Changed, path), "{error}");
            }
        }
    }
}

#[test]
fn a_small_file_rewritten_in_place_is_what_it_was_at_one_moment() {
    let length = 1 << 20;
    let tree = Tree::new(&[FixtureNode::file("log.txt", vec![b'a'; length])]);
    let mut file = fs::File::options().write(true).open(tree.path("log.txt")).unwrap();
    let writes = move |round: u64| {
        file.seek(SeekFrom::Start(0)).unwrap();
        let letter = b'a' + ((round + 1) % 26) as u8;
        // In pieces, so that a reader can come in between.
        for _ in 0..16 {
            file.write_all(&vec![letter; length / 16]).unwrap();
        }
        // About as long as a capture waits for a file to be still, so that both often begin at once.
        std::thread::sleep(Duration::from_micros(20_500 + round % 16 * 100));
    };
    // The writer goes from front to back, so at each moment a new letter stands before the one it replaces. A
    // reader that it overtakes sees the old one first.
    let next = |letter: u8| b'a' + (letter - b'a' + 1) % 26;
    meanwhile(writes, || {
        hammer(&tree, "log.txt", |content| {
            let stretches: Vec<&[u8]> = content.chunk_by(|a, b| a == b).collect();
            content.len() == length
                && match stretches[..] {
                    [_] => true,
                    [new, old] => new[0] == next(old[0]),
                    _ => false,
                }
        });
    });
}

#[test]
fn a_large_file_that_is_written_anew_is_never_a_mixture() {
    let length = 3 << 20;
    let tree = Tree::new(&[FixtureNode::file("grows.bin", vec![0; length])]);
    let path = tree.path("grows.bin");
    let writes = move |round: u64| {
        // Truncated and written anew in one letter, so at each moment the file has no two.
        fs::write(&path, vec![(round % 251) as u8; length + (round % 1000) as usize]).unwrap();
        std::thread::sleep(Duration::from_micros(20_500 + round % 32 * 100));
    };
    meanwhile(writes, || {
        hammer(&tree, "grows.bin", |content| content.iter().all(|byte| *byte == content[0]));
    });
}

#[test]
fn a_file_changed_without_pause_is_an_error_and_not_a_hang() {
    let tree = Tree::of(&["still.txt", "busy.txt"]);
    let file = fs::File::options().append(true).open(tree.path("busy.txt")).unwrap();
    let writes = move |_| {
        (&file).write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_micros(200));
    };
    meanwhile(writes, || {
        let start = Instant::now();
        let error = tree.refusal();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Changed, "busy.txt"));
        assert!(start.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn folders_that_are_swapped_for_links_never_lead_out() {
    let tree = Tree::of(&["real/inner.txt"]);
    let outside = tree.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("inner.txt"), "outside-bytes").unwrap();
    let (real, parked) = (tree.path("real"), tree.folder.path().join("parked"));
    let writes = |_| {
        fs::rename(&real, &parked).unwrap();
        symlink(&outside, &real).unwrap();
        fs::remove_file(&real).unwrap();
        fs::rename(&parked, &real).unwrap();
    };
    meanwhile(writes, || {
        let end = Instant::now() + Duration::from_millis(800);
        while Instant::now() < end {
            match capture(&LocalSource::new(), &tree.root(), SnapshotLimits::default()) {
                Ok((snapshot, store)) => {
                    for entry in snapshot.entries() {
                        if let Some(blob) = entry.node.blob() {
                            assert_eq!(**store.content(&blob.digest).unwrap(), *b"real/inner.txt");
                        }
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error}"),
            }
        }
    });
}
