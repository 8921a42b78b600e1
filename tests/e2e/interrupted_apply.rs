//! Applying a delta that is cut short: killed at any moment the folder comes back whole.

use std::time::Instant;

use crate::desk::Desk;
use crate::{shell, tree};

const ROUNDS: u32 = 6;
const FILES: u32 = 250;

#[test]
fn an_apply_that_was_killed_is_undone_by_the_next_one() {
    let desk = Desk::new();
    for number in 0..FILES {
        desk.write(format!("folder-{}/file-{number}", number % 7), format!("old {number}\n"));
    }
    let script = "for file in */file-*; do echo new >> $file; done; rm folder-3/file-*; mkdir more; \
                  for n in $(seq 1 200); do echo $n > more/$n; done";
    let id = desk.changed_by(script);
    let base = tree::read(&desk.project());
    let copy = desk.path("copy");
    let folder = copy.to_str().unwrap();
    tree::copy(&desk.project(), &copy);
    let began = Instant::now();
    desk.run(&["delta", "apply", &id, folder]).with(0);
    let span = began.elapsed();
    let result = tree::read(&copy);

    let mut undone = 0;
    for round in 0..ROUNDS {
        std::fs::remove_dir_all(&copy).unwrap();
        tree::copy(&desk.project(), &copy);
        let delay = shell::moment(span, round, ROUNDS);
        shell::kill_after(desk.command(&["delta", "apply", &id, folder]), delay);
        let next = desk.run(&["delta", "apply", "--dry-run", &id, folder]);
        let found = tree::read(&copy);
        let expected = match next.code {
            Some(0) => &base,
            Some(7) => &result,
            _ => panic!("killed after {delay:?}: {next}"),
        };
        let differing = tree::differing(&found, expected);
        assert!(differing.is_empty(), "killed after {delay:?}: {differing:?} is neither base nor result");
        undone += u32::from(next.code == Some(0));
        if next.code == Some(0) {
            desk.run(&["delta", "apply", &id, folder]).with(0);
            assert!(tree::read(&copy) == result, "killed after {delay:?}");
        }
    }
    assert!(undone > 0, "no kill hit an apply");
}
