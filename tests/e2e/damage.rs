//! Damage of the store: named with what is damaged, never wrong bytes, and healed by the next capture.

use std::fs;
use std::path::PathBuf;

use crate::desk::{Desk, text};
use crate::tree;

/// A project with small files, which share a pack, and a large one, which stands alone.
fn captured() -> (Desk, String) {
    let desk = Desk::new();
    for number in 0..20 {
        desk.write(format!("small-{number}.txt"), format!("content of file {number}\n").repeat(20));
    }
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|number| number.to_le_bytes()).take(3_000_000).collect();
    desk.write("large.bin", large);
    let id = desk.captured();
    desk.run(&["snapshot", "verify", &id]).with(0);
    (desk, id)
}

fn stored(desk: &Desk, folder: &str, ending: &str) -> PathBuf {
    let found = tree::files(&desk.home().join("store").join(folder));
    found.into_iter().find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
}

/// Flips a byte in the middle of a file, in place and with the same size.
fn flip(path: &PathBuf) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

/// Every command that reads the damaged thing says so, and a new capture makes it whole again.
fn is_found_and_healed(desk: &Desk, id: &str, names: &str) {
    let error = desk.refused(6, &["snapshot", "verify", id]);
    assert_eq!(error["kind"], "integrity");
    assert!(text(&error["message"]).contains(names), "{names}: {error:#}");
    assert_eq!(desk.captured(), id);
    desk.run(&["snapshot", "verify", id]).with(0);
    desk.run(&["exec", ".", "--", "true"]).with(0);
}

#[test]
fn a_damaged_blob_in_a_pack_is_named_by_its_digest() {
    let (desk, id) = captured();
    let pack = stored(&desk, "packs", ".pack");
    flip(&pack);
    let entries = desk.done(&["snapshot", "ls", &id]);
    let damaged: Vec<String> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| desk.run(&["snapshot", "cat", &id, &text(&entry["path"])]).code == Some(6))
        .map(|entry| text(&entry["digest"]))
        .collect();
    assert_eq!(damaged.len(), 1, "one byte damages one file: {entries:#}");
    is_found_and_healed(&desk, &id, &damaged[0][..12]);
}

#[test]
fn a_damaged_blob_that_stands_alone_is_never_passed_on() {
    let (desk, id) = captured();
    let blob = stored(&desk, "blobs", "");
    flip(&blob);
    desk.run(&["snapshot", "cat", &id, "large.bin"]).with(6);
    // A workspace is not built from damaged bytes.
    fs::remove_dir_all(desk.home().join("cache")).unwrap();
    let digest = blob.file_name().unwrap().to_str().unwrap()[..12].to_owned();
    is_found_and_healed(&desk, &id, &digest);
}

#[test]
fn a_cut_blob_and_a_missing_one_are_found() {
    let (desk, id) = captured();
    let blob = stored(&desk, "blobs", "");
    let digest = blob.file_name().unwrap().to_str().unwrap()[..12].to_owned();
    let bytes = fs::read(&blob).unwrap();
    fs::write(&blob, &bytes[..1000]).unwrap();
    desk.run(&["snapshot", "cat", &id, "large.bin"]).with(6);
    is_found_and_healed(&desk, &id, &digest);
    fs::remove_file(&blob).unwrap();
    is_found_and_healed(&desk, &id, &digest);
}

#[test]
fn a_removed_pack_and_a_damaged_index_are_found() {
    for ending in [".pack", ".idx"] {
        let (desk, id) = captured();
        fs::remove_file(stored(&desk, "packs", ending)).unwrap();
        is_found_and_healed(&desk, &id, "");
    }
    let (desk, id) = captured();
    flip(&stored(&desk, "packs", ".idx"));
    is_found_and_healed(&desk, &id, "");
}

#[test]
fn a_cut_or_altered_manifest_is_named_and_healed() {
    let (desk, id) = captured();
    let manifest = stored(&desk, "snapshots", &id);
    let text_of_it = fs::read(&manifest).unwrap();
    let altered = String::from_utf8(text_of_it.clone()).unwrap().replace("small-1.txt", "small-x.txt");
    let empty: &[u8] = b"";
    for damaged in [&text_of_it[..text_of_it.len() / 2], altered.as_bytes(), empty] {
        fs::write(&manifest, damaged).unwrap();
        for words in [["snapshot", "show", &id], ["snapshot", "ls", &id], ["snapshot", "verify", &id]] {
            let error = desk.refused(6, &words);
            assert!(text(&error["message"]).contains(&id[..12]), "{error:#}");
        }
        assert_eq!(desk.captured(), id);
        assert_eq!(fs::read(&manifest).unwrap(), text_of_it);
    }
}

#[test]
fn a_damaged_delta_is_never_applied() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let id = desk.changed_by("echo two > a.txt; echo new > b.txt");
    let stored = desk.home().join("store/deltas").join(&id);
    let whole = fs::read_to_string(&stored).unwrap();
    fs::write(&stored, whole.replace("b.txt", "c.txt")).unwrap();
    let before = tree::touched(&desk.project());
    for words in [["delta", "show", &id], ["delta", "patch", &id], ["delta", "apply", &id]] {
        desk.refused(6, &words);
    }
    fs::write(&stored, whole).unwrap();
    // A content that the delta needs is damaged: nothing is changed.
    for pack in tree::files(&desk.home().join("store/packs"))
        .into_iter()
        .chain(tree::files(&desk.home().join("store/blobs")))
    {
        if fs::read(&pack).is_ok_and(|bytes| bytes.windows(4).any(|part| part == b"new\n")) {
            let bytes = fs::read(&pack).unwrap();
            let altered: Vec<u8> = String::from_utf8_lossy(&bytes).replace("new\n", "NEW\n").into_bytes();
            fs::write(&pack, altered).unwrap();
        }
    }
    desk.refused(6, &["delta", "apply", &id]);
    assert_eq!(tree::touched(&desk.project()), before);
}

#[test]
fn a_store_of_another_format_is_refused_and_left_alone() {
    let (desk, id) = captured();
    let format = desk.home().join("store/format");
    fs::write(&format, "coldframe-store 999\n").unwrap();
    let ended = desk.run(&["snapshot", "show", &id]);
    assert!(matches!(ended.code, Some(4 | 6)), "{ended}");
    assert!(ended.stderr.contains("999") || ended.stderr.contains("version"), "{ended}");
    desk.run(&["doctor"]);
    fs::write(&format, "coldframe-store 1\n").unwrap();
    desk.run(&["snapshot", "verify", &id]).with(0);
}
