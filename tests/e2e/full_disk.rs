//! A disk that is full: the error says so, and what is stored stays readable.

use crate::desk::{Desk, Ended, is_root, text};

/// Captures something small, then something that does not fit, then reads what was stored.
const SCRIPT: &str = r#"
$limit
"$1" --home "$2/home" snapshot create small >/dev/null || exit 90
id=$("$1" --home "$2/home" snapshot list)
$before
"$1" --home "$2/home" --json snapshot create large
echo "code $?"
"$1" --home "$2/home" --json exec large -- true
echo "exec $?"
"$1" --home "$2/home" snapshot verify $id || exit 91
"$1" --home "$2/home" snapshot cat $id a.txt
$after
"$1" --home "$2/home" snapshot create large >/dev/null || exit 92
"$1" --home "$2/home" snapshot create small >/dev/null || exit 93
exit 0
"#;

/// Runs the script where `limit` keeps the disk small until `after`, and checks what it printed.
fn check(starter: &[&str], limit: &str, before: &str, after: &str) {
    let desk = Desk::new();
    desk.write("small/a.txt", "small\n");
    for number in 0..12_u32 {
        let content: Vec<u8> =
            (0..400_000_u32).map(|byte| (byte.wrapping_mul(2_654_435_761 + number) >> 13) as u8).collect();
        desk.write(format!("large/{number}"), content);
    }
    desk.write("large/alone", vec![7; 3 << 20]);
    let place = desk.path("disk");
    std::fs::create_dir(&place).unwrap();
    let script = SCRIPT.replace("$limit", limit).replace("$before", before).replace("$after", after);
    let mut words: Vec<&str> = starter.to_vec();
    words.extend(["sh", "-c", &script, "sh"]);
    let binary = desk.binary();
    words.extend([binary.to_str().unwrap(), place.to_str().unwrap()]);
    let ended = Ended::of(&mut crate::shell::program(&desk.project(), &words)).with(0);
    let told = ended.text();
    assert!(told.contains("\ncode 9\n"), "{ended}");
    assert!(told.contains("\nexec 125\n"), "{ended}");
    assert!(told.ends_with("small\n"), "{ended}");
    let document: serde_json::Value = serde_json::from_str(told.split_once("\ncode ").unwrap().0).unwrap();
    assert_eq!(text(&document["error"]["kind"]), "system", "{ended}");
}

#[test]
fn a_full_file_system_is_told_and_harms_nothing() {
    let starter: &[&str] = if is_root() {
        &["unshare", "--mount", "--"]
    } else {
        &["unshare", "--user", "--map-root-user", "--mount", "--"]
    };
    check(starter, r#"mount -t tmpfs -o size=3m tmpfs "$2""#, "", r#"mount -o remount,size=64m tmpfs "$2""#);
}

#[test]
fn a_bound_on_the_size_of_files_is_told_and_harms_nothing() {
    check(&[], "", "ulimit -S -f 1000", "ulimit -S -f unlimited");
}
