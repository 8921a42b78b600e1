//! Merges of dependency deltas: what joins, what conflicts, and what the conflict says.

mod fixture;

use coldframe_core::{Digest, Node, SourceSnapshot, WorkspaceDelta};
use coldframe_delta::{ConflictKind, DeltaErrorKind, Lineage, LineageStep, MergeError, merge_heads};
use fixture::{Item, Steps, Tree, entries, file, files, id, link, program, tree};
use proptest::prelude::*;

fn kinds(steps: &Steps, heads: &[&str]) -> Vec<(String, ConflictKind)> {
    steps
        .conflict(heads)
        .paths
        .into_iter()
        .map(|conflict| (conflict.path.to_string(), conflict.kind))
        .collect()
}

fn two_sides(base: Tree, left: Tree, right: Tree) -> Steps {
    Steps::new(base).step("left", &[], left).step("right", &[], right)
}

const BOTH: [&str; 2] = ["left", "right"];

#[test]
fn different_paths_and_equal_changes_merge() {
    let steps = two_sides(
        files([("l", "0"), ("r", "0"), ("same", "0")]),
        files([("l", "left"), ("r", "0"), ("same", "1"), ("new", "n")]),
        files([("l", "0"), ("r", "right"), ("same", "1"), ("new", "n")]),
    );
    let expected = files([("l", "left"), ("r", "right"), ("same", "1"), ("new", "n")]);
    assert_eq!(steps.merged(&BOTH), entries(&expected));
    let merged = steps.try_merge(&BOTH).unwrap();
    let mut parents: Vec<Digest> = steps.steps.values().map(|(delta, _)| delta.id()).collect();
    parents.sort_unstable();
    assert_eq!(merged.parents(), parents);
}

#[test]
fn every_conflicting_path_is_told_with_base_and_sides() {
    let steps = two_sides(
        files([("clash", "0"), ("gone", "0"), ("same", "0")]),
        files([("clash", "left"), ("same", "1"), ("new", "l")]),
        files([("clash", "right"), ("gone", "changed"), ("same", "1"), ("new", "r")]),
    );
    let conflict = steps.conflict(&BOTH);
    let told: Vec<(&str, ConflictKind)> =
        conflict.paths.iter().map(|conflict| (conflict.path.as_str(), conflict.kind)).collect();
    let expected = [
        ("clash", ConflictKind::Content),
        ("gone", ConflictKind::DeleteAgainstModify),
        ("new", ConflictKind::AddedDifferently),
    ];
    assert_eq!(told, expected);
    let gone = &conflict.paths[1];
    assert_eq!(gone.base, Some(fixture::node(&file("0"))));
    assert_eq!((gone.sides[0].step.as_str(), &gone.sides[0].node), ("left", &None));
    assert_eq!(gone.sides[1].step.as_str(), "right");
    assert_eq!(gone.sides[1].node, Some(fixture::node(&file("changed"))));
    let text = conflict.to_string();
    assert!(text.starts_with("3 paths are in conflict"), "{text}");
    assert!(text.contains(&Digest::of(b"left").short()) && text.contains("left: nothing"), "{text}");
}

#[test]
fn a_deletion_on_both_sides_merges_and_against_a_change_does_not() {
    let base = || files([("f", "0"), ("g", "0")]);
    let steps = two_sides(base(), files([("g", "0")]), files([("g", "0")]));
    assert_eq!(steps.merged(&BOTH), entries(&files([("g", "0")])));
    for (left, right) in [
        (files([("g", "0")]), files([("f", "1"), ("g", "0")])),
        (files([("f", "1"), ("g", "0")]), files([("g", "0")])),
    ] {
        let expected = [("f".to_owned(), ConflictKind::DeleteAgainstModify)];
        assert_eq!(kinds(&two_sides(base(), left, right), &BOTH), expected);
    }
}

#[test]
fn a_file_against_a_folder_of_that_name_names_both_paths() {
    let base = || files([("k", "0"), ("d/old", "0")]);
    let steps = two_sides(
        base(),
        files([("k", "0"), ("d/old", "0"), ("a", "file")]),
        files([("k", "0"), ("d/old", "0"), ("a/b.txt", "inside")]),
    );
    let kind = ConflictKind::FileAgainstDirectory;
    assert_eq!(kinds(&steps, &BOTH), [("a".to_owned(), kind), ("a/b.txt".to_owned(), kind)]);
    let conflict = steps.conflict(&BOTH);
    assert_eq!(conflict.paths[0].sides[1].node, Some(Node::Directory));
    assert_eq!(conflict.paths[1].sides.len(), 2);
}

#[test]
fn a_folder_turned_into_a_file_conflicts_with_every_change_inside() {
    let steps = two_sides(
        files([("k", "0"), ("d/old", "0"), ("d/same", "0")]),
        files([("k", "0"), ("d", "now a file")]),
        files([("k", "0"), ("d/old", "changed"), ("d/same", "0"), ("d/new", "added")]),
    );
    let kind = ConflictKind::FileAgainstDirectory;
    let expected = ["d", "d/new", "d/old"].map(|path| (path.to_owned(), kind));
    assert_eq!(kinds(&steps, &BOTH), expected);
    let untouched = files([("k", "1"), ("d/old", "0"), ("d/same", "0")]);
    let steps = steps.step("calm", &[], untouched);
    assert_eq!(steps.merged(&["left", "calm"]), entries(&files([("k", "1"), ("d", "now a file")])));
}

#[test]
fn a_file_turned_into_a_folder_conflicts_with_its_change_and_not_with_its_deletion() {
    let base = || files([("a", "0")]);
    let folder = || files([("a/x", "1")]);
    let steps = two_sides(base(), folder(), files([("a", "2")]));
    let kind = ConflictKind::FileAgainstDirectory;
    assert_eq!(kinds(&steps, &BOTH), [("a".to_owned(), kind), ("a/x".to_owned(), kind)]);
    assert_eq!(two_sides(base(), folder(), Tree::new()).merged(&BOTH), entries(&folder()));
    let other = files([("a/y", "2")]);
    assert_eq!(
        two_sides(base(), folder(), other).merged(&BOTH),
        entries(&files([("a/x", "1"), ("a/y", "2")]))
    );
}

#[test]
fn a_folder_deleted_on_one_side_holds_only_what_the_other_side_adds() {
    let steps = two_sides(
        files([("k", "0"), ("d/old", "0")]),
        files([("k", "0")]),
        files([("k", "0"), ("d/old", "0"), ("d/new", "1")]),
    );
    assert_eq!(steps.merged(&BOTH), entries(&files([("k", "0"), ("d/new", "1")])));
}

#[test]
fn a_folder_emptied_by_two_sides_stays_and_one_removed_by_a_side_goes() {
    let base = || files([("d/e/one", "1"), ("d/e/two", "2"), ("k", "")]);
    let one = files([("d/e/two", "2"), ("k", "")]);
    let two = files([("d/e/one", "1"), ("k", "")]);
    let steps = two_sides(base(), one.clone(), two).step("removed", &[], files([("k", "")]));
    assert_eq!(steps.merged(&BOTH), entries(&tree([("d/e", Item::Directory), ("k", file(""))])));
    assert_eq!(steps.merged(&["left", "right", "removed"]), entries(&files([("k", "")])));
}

#[test]
fn an_empty_directory_gives_way_to_entries() {
    let empty = || tree([("d", Item::Directory)]);
    let filled = || files([("d/x", "1")]);
    assert_eq!(two_sides(empty(), filled(), Tree::new()).merged(&BOTH), entries(&filled()));
    assert_eq!(two_sides(empty(), filled(), files([("d/y", "2")])).merged(&BOTH).len(), 2);
    assert_eq!(two_sides(Tree::new(), empty(), filled()).merged(&BOTH), entries(&filled()));
    let emptied = two_sides(filled(), empty(), files([("d/x", "1"), ("d/y", "2")]));
    assert_eq!(emptied.merged(&BOTH), entries(&files([("d/y", "2")])));
    let as_file = two_sides(Tree::new(), empty(), files([("d", "file")]));
    assert_eq!(kinds(&as_file, &BOTH), [("d".to_owned(), ConflictKind::FileAgainstDirectory)]);
}

#[test]
fn links_and_modes_are_part_of_a_path() {
    let base = || tree([("f", file("0"))]);
    let with = |item: Item| tree([("f", item)]);
    let told = |left: Item, right: Item| kinds(&two_sides(base(), with(left), with(right)), &BOTH)[0].1;
    assert_eq!(told(link("x"), file("1")), ConflictKind::LinkAgainstFile);
    assert_eq!(told(link("x"), link("y")), ConflictKind::Content);
    assert_eq!(told(program("0"), file("1")), ConflictKind::Mode);
    assert_eq!(told(program("1"), file("1")), ConflictKind::Mode);
    let same = two_sides(base(), with(program("0")), with(program("0")));
    assert_eq!(same.merged(&BOTH), entries(&with(program("0"))));
    let one = two_sides(base(), with(program("0")), base());
    assert_eq!(one.merged(&BOTH), entries(&with(program("0"))));
}

#[test]
fn names_that_differ_only_in_case_or_form_conflict() {
    let steps = two_sides(Tree::new(), files([("Readme", "l"), ("caf\u{e9}", "")]), {
        files([("README", "r"), ("cafe\u{301}", "")])
    });
    let kind = ConflictKind::TwinNames;
    let told = kinds(&steps, &BOTH);
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, told)| *told == kind), "{told:?}");
    let rename = || files([("readme", "0")]);
    let renamed = two_sides(files([("README", "0")]), rename(), rename());
    assert_eq!(renamed.merged(&BOTH), entries(&rename()));
}

#[test]
fn a_renaming_in_case_meets_the_name_that_another_side_brought_back() {
    let steps = Steps::new(files([("README", "0")]))
        .step("a", &[], Tree::new())
        .step("b", &["a"], files([("readme", "1")]))
        .step("c", &["a"], files([("README", "0")]));
    let told = kinds(&steps, &["b", "c"]);
    assert_eq!(told, ["README", "readme"].map(|path| (path.to_owned(), ConflictKind::TwinNames)));
}

#[test]
fn a_diamond_merges_to_the_later_edit() {
    let steps = Steps::new(files([("f", "0"), ("g", "0")]))
        .step("a", &[], files([("f", "1"), ("g", "0")]))
        .step("b", &["a"], files([("f", "2"), ("g", "0")]))
        .step("c", &["a"], files([("f", "1"), ("g", "0"), ("h", "c")]));
    assert_eq!(steps.merged(&["b", "c"]), entries(&files([("f", "2"), ("g", "0"), ("h", "c")])));
}

#[test]
fn a_later_revert_wins_over_the_unchanged_older_edit() {
    let steps = Steps::new(files([("f", "0"), ("g", "0")]))
        .step("a", &[], files([("f", "1"), ("x", "added")]))
        .step("b", &["a"], files([("f", "0"), ("g", "0")]))
        .step("c", &["a"], files([("f", "1"), ("x", "added"), ("h", "c")]));
    let merged = steps.try_merge(&["b", "c"]).unwrap();
    let paths: Vec<&str> = merged.changes().iter().map(|change| change.path().as_str()).collect();
    assert_eq!(paths, ["h"], "what the later step took back does not return");
    assert_eq!(steps.merged(&["a", "b"]), entries(&files([("f", "0"), ("g", "0")])));
}

#[test]
fn a_step_that_is_an_ancestor_of_another_head_drops_out() {
    let steps = Steps::new(files([("f", "0")]))
        .step("a", &[], files([("f", "1")]))
        .step("b", &["a"], files([("f", "2")]))
        .step("c", &["b"], files([("f", "3")]));
    let merged = steps.try_merge(&["a", "c", "c"]).unwrap();
    assert_eq!(merged.parents(), [steps.steps[&id("c")].0.id()]);
    assert_eq!(merged.state(), steps.steps[&id("c")].0.state());
}

#[test]
fn three_heads_of_two_families_merge_whatever_their_names() {
    for names in [["p", "q", "r"], ["r", "q", "p"], ["q", "r", "p"], ["r", "p", "q"]] {
        let steps = Steps::new(files([("f", "0")]))
            .step("a", &[], files([("f", "1")]))
            .step(names[0], &["a"], files([("f", "0")]))
            .step(names[1], &["a"], files([("f", "1")]))
            .step(names[2], &[], files([("f", "9")]));
        assert_eq!(steps.merged(&names), entries(&files([("f", "9")])), "{names:?}");
    }
}

#[test]
fn several_common_ancestors_are_merged_first() {
    let crossed = |left: &str, right: &str| {
        Steps::new(files([("f", "0"), ("g", "0")]))
            .step("a", &[], files([("f", "1"), ("g", "0")]))
            .step("b", &[], files([("f", "0"), ("g", "1")]))
            .step("left", &["a", "b"], files([("f", left), ("g", "1")]))
            .step("right", &["a", "b"], files([("f", right), ("g", "1")]))
    };
    assert_eq!(crossed("1", "2").merged(&BOTH), entries(&files([("f", "2"), ("g", "1")])));
    assert_eq!(crossed("0", "1").merged(&BOTH), entries(&files([("f", "0"), ("g", "1")])));
    assert_eq!(kinds(&crossed("2", "3"), &BOTH), [("f".to_owned(), ConflictKind::Content)]);
}

#[test]
fn common_ancestors_in_conflict_excuse_nobody() {
    let steps = Steps::new(files([("f", "0")]))
        .step("a", &[], files([("f", "1")]))
        .step("b", &[], files([("f", "2")]))
        .step("left", &["a", "b"], files([("f", "1")]))
        .step("right", &["a", "b"], files([("f", "2")]))
        .step("agree", &["a", "b"], files([("f", "1")]));
    assert_eq!(kinds(&steps, &BOTH), [("f".to_owned(), ConflictKind::Content)]);
    assert_eq!(steps.merged(&["left", "agree"]), entries(&files([("f", "1")])));
}

#[test]
fn a_side_is_told_by_the_step_that_wrote_it() {
    let steps = Steps::new(files([("f", "0")]))
        .step("writer", &[], files([("f", "1")]))
        .step("left", &["writer"], files([("f", "1"), ("l", "")]))
        .step("right", &[], files([("f", "2")]));
    let conflict = steps.conflict(&BOTH);
    let told: Vec<&str> = conflict.paths[0].sides.iter().map(|side| side.step.as_str()).collect();
    assert_eq!(told, ["right", "writer"]);
}

#[test]
fn hostile_names_cannot_forge_lines_of_the_message() {
    let named = |content| tree([("x\n  \u{1b}[2Jy: ok", link(content))]);
    let text = two_sides(Tree::new(), named("a\nb"), named("c")).conflict(&BOTH).to_string();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn many_conflicts_are_all_in_the_value_and_counted_in_the_message() {
    let all = |content: &str| -> Tree { (0..60).map(|n| (format!("f{n:02}"), file(content))).collect() };
    let conflict = two_sides(all("0"), all("1"), all("2")).conflict(&BOTH);
    assert_eq!(conflict.paths.len(), 60);
    assert!(conflict.to_string().ends_with("and 10 more"), "{conflict}");
}

#[test]
fn no_heads_give_an_empty_delta() {
    let merged = Steps::new(files([("f", "0")])).try_merge(&[]).unwrap();
    assert!(merged.is_empty() && merged.parents().is_empty());
}

#[test]
fn what_does_not_belong_together_is_refused_with_its_reason() {
    let steps = Steps::new(files([("f", "0")])).step("a", &["missing"], files([("f", "1")]));
    assert!(
        matches!(steps.try_merge(&["a"]), Err(MergeError::UnknownStep { step }) if step == id("missing"))
    );
    let steps = Steps::new(files([("f", "0")]))
        .step("a", &["c"], files([("f", "1")]))
        .step("b", &["a"], files([("f", "1")]))
        .step("c", &["b"], files([("f", "1")]))
        .step("top", &["c"], files([("f", "1")]));
    match steps.try_merge(&["top"]) {
        Err(MergeError::Cycle { steps }) => assert_eq!(steps, [id("c"), id("b"), id("a")]),
        other => panic!("expected a cycle, got {other:?}"),
    }
    let base: SourceSnapshot = fixture::snapshot(&files([("f", "0")]));
    let foreign = WorkspaceDelta::new(Digest::of(b"other"), vec![], vec![], vec![]).unwrap();
    let lineage = Lineage { steps: [(id("a"), LineageStep { delta: &foreign, depends_on: vec![] })].into() };
    let error = merge_heads(&base, &lineage, &[id("a")]).unwrap_err();
    assert_eq!(error.kind(), DeltaErrorKind::Contract);
    assert!(error.to_string().contains("step a"), "{error}");
}

#[test]
fn a_long_chain_and_a_wide_fan_merge_without_deep_recursion() {
    let mut steps = Steps::new(files([("f", "0")]));
    let mut before: Vec<String> = Vec::new();
    for layer in 0..300 {
        let names: Vec<String> = (0..2).map(|side| format!("s{layer}-{side}")).collect();
        let depends_on: Vec<&str> = before.iter().map(String::as_str).collect();
        for name in &names {
            steps = steps.step(name, &depends_on, files([("f", "1")]));
        }
        before = names;
    }
    let heads: Vec<&str> = before.iter().map(String::as_str).collect();
    assert_eq!(steps.merged(&heads), entries(&files([("f", "1")])));
}

/// A plain three-way merge of two trees by paths alone, to compare with.
fn three_way(base: &Tree, left: &Tree, right: &Tree) -> Option<Tree> {
    let mut merged = Tree::new();
    for path in base.keys().chain(left.keys()).chain(right.keys()) {
        let (base, left, right) = (base.get(path), left.get(path), right.get(path));
        let item = if left == right || right == base {
            left
        } else if left == base {
            right
        } else {
            return None;
        };
        if let Some(item) = item {
            merged.insert(path.clone(), item.clone());
        }
    }
    Some(merged)
}

fn only_files(tree: &Tree) -> Tree {
    tree.iter()
        .filter(|(_, item)| **item != Item::Directory)
        .map(|(path, item)| (path.clone(), item.clone()))
        .collect()
}

fn is_legal(tree: &Tree) -> bool {
    tree.keys().all(|path| !fixture::holds_below(tree, path))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_sides_merge_as_a_plain_three_way_merge_does((base, sides) in fixture::any_edits(2)) {
        let steps = two_sides(base.clone(), sides[0].clone(), sides[1].clone());
        let plain = three_way(&only_files(&base), &only_files(&sides[0]), &only_files(&sides[1]));
        match steps.try_merge(&BOTH) {
            Ok(merged) => {
                let entries: Vec<_> = merged
                    .apply_to(&steps.base)
                    .unwrap()
                    .into_iter()
                    .filter(|entry| entry.node != Node::Directory)
                    .collect();
                prop_assert_eq!(Some(entries), plain.map(|tree| fixture::entries(&tree)));
            }
            Err(MergeError::Conflict(conflict)) => {
                let with_directories = three_way(&base, &sides[0], &sides[1]);
                let clean = plain.is_some_and(|tree| is_legal(&tree))
                    && with_directories.is_some_and(|tree| is_legal(&tree));
                prop_assert!(!clean, "{}", conflict);
                prop_assert!(conflict.paths.windows(2).all(|pair| pair[0].path < pair[1].path));
                prop_assert!(conflict.paths.iter().all(|path| !path.sides.is_empty()));
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
        let reversed = steps.try_merge(&["right", "left"]);
        prop_assert_eq!(format!("{:?}", steps.try_merge(&BOTH)), format!("{:?}", reversed));
    }

    #[test]
    fn one_head_gives_its_own_state((base, sides) in fixture::any_edits(1)) {
        let steps = Steps::new(base).step("only", &[], sides[0].clone());
        prop_assert_eq!(steps.try_merge(&["only"]).unwrap().state(), steps.steps[&id("only")].0.state());
    }

    #[test]
    fn the_names_of_steps_decide_nothing(
        (base, trees) in fixture::any_edits(5),
        edges in proptest::collection::vec(any::<bool>(), 10),
        names in Just(vec!["m", "n", "o", "p", "q"]).prop_shuffle(),
    ) {
        let build = |names: &[&str]| {
            let mut steps = Steps::new(base.clone());
            let mut edge = edges.iter();
            for (number, tree) in trees.iter().enumerate() {
                let depends_on: Vec<&str> =
                    names[..number].iter().filter(|_| *edge.next().unwrap()).copied().collect();
                steps = steps.step(names[number], &depends_on, tree.clone());
            }
            match steps.try_merge(&names[2..]) {
                Ok(merged) => Ok(merged.id()),
                Err(MergeError::Conflict(conflict)) => {
                    let told = |path: &coldframe_delta::PathConflict| {
                        (path.path.clone(), path.kind, path.base.clone(), path.sides.len())
                    };
                    Err(conflict.paths.iter().map(told).collect::<Vec<_>>())
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        prop_assert_eq!(build(&["a", "b", "c", "d", "e"]), build(&names));
    }
}
