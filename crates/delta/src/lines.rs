//! Which lines two texts share, in bounded time.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices};

/// Above this many differing lines, old and new together, only lines that are unique on both sides tie the
/// texts together, and what lies between two such lines is searched by itself.
const SEARCHED_LINES: usize = 40_000;

/// The lines of a text. A line ends at LF alone; the last one may lack it.
pub(crate) fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

/// How to get from one text to the other, as runs of equal, deleted, inserted and replaced lines. The same
/// texts give the same answer on every machine: the bound is a number of lines, never a time.
pub(crate) fn compare<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> Vec<DiffOp> {
    let mut numbers: HashMap<&'a [u8], u32> = HashMap::new();
    let (old, new) = (numbered(old, &mut numbers), numbered(new, &mut numbers));
    let mut equal = Runs::default();
    search(&old, &new, &mut equal);
    equal.into_ops(old.len(), new.len())
}

/// Gives equal lines equal numbers, so that each line is hashed once and compared in one step afterwards.
fn numbered<'a>(lines: &[&'a [u8]], numbers: &mut HashMap<&'a [u8], u32>) -> Vec<u32> {
    let number_of = |line: &&'a [u8]| {
        let next = u32::try_from(numbers.len()).expect("four thousand million lines do not fit into memory");
        *numbers.entry(line).or_insert(next)
    };
    lines.iter().map(number_of).collect()
}

fn search(old: &[u32], new: &[u32], equal: &mut Runs) {
    let start = old.iter().zip(new).take_while(|(one, two)| one == two).count();
    let rest = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = rest.take_while(|(one, two)| one == two).count();
    let (old_middle, new_middle) = (start..old.len() - end, start..new.len() - end);
    equal.push(0, 0, start);
    if old_middle.len() + new_middle.len() <= SEARCHED_LINES {
        search_thoroughly(old, old_middle, new, new_middle, equal);
    } else {
        let (mut old_start, mut new_start) = (start, start);
        let mut anchors = unique_in_both(old, old_middle.clone(), new, new_middle.clone());
        anchors.push((old_middle.end, new_middle.end));
        for (old_anchor, new_anchor) in anchors {
            let (old_gap, new_gap) = (old_start..old_anchor, new_start..new_anchor);
            if old_gap.len() + new_gap.len() <= SEARCHED_LINES {
                search_thoroughly(old, old_gap, new, new_gap, equal);
            }
            if old_anchor < old_middle.end && new_anchor < new_middle.end {
                equal.push(old_anchor, new_anchor, 1);
            }
            (old_start, new_start) = (old_anchor + 1, new_anchor + 1);
        }
    }
    equal.push(old.len() - end, new.len() - end, end);
}

fn search_thoroughly(
    old: &[u32],
    old_range: Range<usize>,
    new: &[u32],
    new_range: Range<usize>,
    equal: &mut Runs,
) {
    if old_range.is_empty() || new_range.is_empty() {
        return;
    }
    let (old_start, new_start) = (old_range.start, new_range.start);
    for operation in capture_diff_slices(Algorithm::Myers, &old[old_range], &new[new_range]) {
        if operation.tag() == DiffTag::Equal {
            let (in_old, in_new) = (operation.old_range(), operation.new_range());
            equal.push(old_start + in_old.start, new_start + in_new.start, in_old.len());
        }
    }
}

/// The longest chain of lines that are unique on both sides and stand in the same order there.
fn unique_in_both(
    old: &[u32],
    old_range: Range<usize>,
    new: &[u32],
    new_range: Range<usize>,
) -> Vec<(usize, usize)> {
    #[derive(Default)]
    struct Seen {
        old: usize,
        old_count: u32,
        new: usize,
        new_count: u32,
    }
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    for index in old_range {
        let line = seen.entry(old[index]).or_default();
        (line.old, line.old_count) = (index, line.old_count + 1);
    }
    for index in new_range {
        let line = seen.entry(new[index]).or_default();
        (line.new, line.new_count) = (index, line.new_count + 1);
    }
    let mut pairs: Vec<(usize, usize)> = seen
        .into_values()
        .filter(|line| line.old_count == 1 && line.new_count == 1)
        .map(|line| (line.old, line.new))
        .collect();
    pairs.sort_unstable();
    longest_rising(&pairs)
}

/// The longest subsequence whose second numbers rise, by patience sorting.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut tops: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let pile = tops.partition_point(|top| pairs[*top].1 < pair.1);
        before.push(pile.checked_sub(1).map(|left| tops[left]));
        if pile == tops.len() {
            tops.push(index);
        } else {
            tops[pile] = index;
        }
    }
    let mut chain = Vec::with_capacity(tops.len());
    let mut next = tops.last().copied();
    while let Some(index) = next {
        chain.push(pairs[index]);
        next = before[index];
    }
    chain.reverse();
    chain
}

/// Runs of equal lines, in order.
#[derive(Default)]
struct Runs(Vec<(usize, usize, usize)>);

impl Runs {
    fn push(&mut self, old: usize, new: usize, length: usize) {
        if length == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.0 + last.2 == old && last.1 + last.2 == new => last.2 += length,
            _ => self.0.push((old, new, length)),
        }
    }

    fn into_ops(self, old_length: usize, new_length: usize) -> Vec<DiffOp> {
        let (mut old_index, mut new_index) = (0, 0);
        let mut operations = Vec::new();
        for (old, new, length) in self.0.into_iter().chain([(old_length, new_length, 0)]) {
            let (old_len, new_len) = (old - old_index, new - new_index);
            match (old_len, new_len) {
                (0, 0) => {}
                (_, 0) => operations.push(DiffOp::Delete { old_index, old_len, new_index }),
                (0, _) => operations.push(DiffOp::Insert { old_index, new_index, new_len }),
                _ => operations.push(DiffOp::Replace { old_index, old_len, new_index, new_len }),
            }
            if length > 0 {
                operations.push(DiffOp::Equal { old_index: old, new_index: new, len: length });
            }
            (old_index, new_index) = (old + length, new + length);
        }
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rebuilt(old: &[&[u8]], new: &[&[u8]]) -> Vec<u8> {
        let mut result = Vec::new();
        let mut expected_old = 0;
        for operation in compare(old, new) {
            assert_eq!(operation.old_range().start, expected_old);
            expected_old = operation.old_range().end;
            let equal = operation.tag() == DiffTag::Equal;
            let lines = if equal { &old[operation.old_range()] } else { &new[operation.new_range()] };
            lines.iter().for_each(|line| result.extend_from_slice(line));
        }
        assert_eq!(expected_old, old.len());
        result
    }

    #[test]
    fn a_huge_text_keeps_its_anchors_and_ends_soon() {
        let old: Vec<String> = (0..60_000).map(|number| format!("{number}\n")).collect();
        let mut new = old.clone();
        new[5] = "first\n".to_owned();
        new[59_990] = "last\n".to_owned();
        let (old_text, new_text) = (old.concat().into_bytes(), new.concat().into_bytes());
        let (old, new) = (lines(&old_text), lines(&new_text));
        assert_eq!(rebuilt(&old, &new), new_text);
        let changed: usize = compare(&old, &new)
            .iter()
            .filter(|operation| operation.tag() != DiffTag::Equal)
            .map(|operation| operation.old_range().len())
            .sum();
        assert_eq!(changed, 2);
    }

    #[test]
    fn a_huge_text_without_anchors_is_replaced() {
        let old: Vec<u8> = b"x\ny\n".repeat(30_000);
        let new: Vec<u8> = b"y\nz\nx\n".repeat(30_000);
        assert_eq!(rebuilt(&lines(&old), &lines(&new)), new);
    }

    proptest! {
        #[test]
        fn the_operations_give_the_new_text(old in "[abc\n]{0,40}", new in "[abc\n]{0,40}") {
            prop_assert_eq!(rebuilt(&lines(old.as_bytes()), &lines(new.as_bytes())), new.as_bytes());
        }

        #[test]
        fn anchors_rise_on_both_sides(order in Just((0usize..30).collect::<Vec<_>>()).prop_shuffle()) {
            let pairs: Vec<(usize, usize)> = order.into_iter().enumerate().collect();
            let chain = longest_rising(&pairs);
            prop_assert!(chain.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
            prop_assert!(!chain.is_empty());
        }
    }
}
