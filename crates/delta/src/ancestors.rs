//! Which common ancestors a three-way merge needs, and the common ancestors of those, down to the base.

use std::collections::HashMap;

use crate::lineage::History;

/// A set of step numbers, one bit each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StepSet(Vec<u64>);

impl StepSet {
    pub(crate) fn empty(steps: usize) -> Self {
        Self(vec![0; steps.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, step: usize) {
        self.0[step / 64] |= 1 << (step % 64);
    }

    pub(crate) fn contains(&self, step: usize) -> bool {
        self.0[step / 64] & (1 << (step % 64)) != 0
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    fn shared_with(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, two)| one & two).collect())
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn descending(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().rev().flat_map(|(index, word)| {
            (0..64).rev().filter(move |bit| word & (1 << bit) != 0).map(move |bit| index * 64 + bit)
        })
    }
}

/// A state that several steps share: the merge of the newest steps of a set that holds all their ancestors.
pub(crate) struct Meeting {
    /// The newest steps, none an ancestor of another. Empty means the base snapshot.
    pub(crate) members: Vec<usize>,
    pub(crate) is_member: StepSet,
    /// The meetings that are the common ancestors of any two members, each once.
    pub(crate) below: Vec<usize>,
    /// Per pair of member positions the common ancestors; empty where there is only one meeting below.
    pairs: HashMap<(usize, usize), usize>,
}

impl Meeting {
    /// The common ancestors of two members, given by their positions, the smaller one first.
    pub(crate) fn below_pair(&self, one: usize, two: usize) -> usize {
        self.pairs.get(&(one, two)).copied().unwrap_or(self.below[0])
    }
}

/// All meetings that a merge of everything in `history` needs. Each stands after those below it, the wanted
/// one is the last.
pub(crate) fn meetings(history: &History<'_>) -> Vec<Meeting> {
    let mut sets = vec![history.everything.clone()];
    let mut numbers = HashMap::from([(history.everything.clone(), 0)]);
    let mut meetings: Vec<Meeting> = Vec::new();
    while meetings.len() < sets.len() {
        let set = sets[meetings.len()].clone();
        let members = newest(history, &set);
        let mut is_member = StepSet::empty(history.ids.len());
        members.iter().for_each(|member| is_member.insert(*member));
        let (mut below, mut pairs) = (Vec::new(), HashMap::new());
        for (position, one) in members.iter().enumerate() {
            for (other, two) in members.iter().enumerate().skip(position + 1) {
                let shared = history.closures[*one].shared_with(&history.closures[*two]);
                let number = *numbers.entry(shared).or_insert_with_key(|shared| {
                    sets.push(shared.clone());
                    sets.len() - 1
                });
                pairs.insert((position, other), number);
            }
        }
        below.extend(pairs.values().copied());
        below.sort_unstable();
        below.dedup();
        if below.len() == 1 {
            pairs = HashMap::new();
        }
        meetings.push(Meeting { members, is_member, below, pairs });
    }
    smallest_first(&sets, meetings)
}

/// The steps of `set` that are no ancestor of another step in it.
fn newest(history: &History<'_>, set: &StepSet) -> Vec<usize> {
    let mut covered = StepSet::empty(history.ids.len());
    let mut members = Vec::new();
    for step in set.descending() {
        if !covered.contains(step) {
            members.push(step);
            covered.add_all(&history.closures[step]);
        }
    }
    members
}

/// What is shared by two members is smaller than the set they are in, so the size is an order of evaluation.
fn smallest_first(sets: &[StepSet], meetings: Vec<Meeting>) -> Vec<Meeting> {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|number| sets[*number].len());
    let mut places = vec![0; order.len()];
    for (place, number) in order.iter().enumerate() {
        places[*number] = place;
    }
    let mut slots: Vec<Option<Meeting>> = meetings.into_iter().map(Some).collect();
    order
        .iter()
        .filter_map(|number| slots[*number].take())
        .map(|mut meeting| {
            meeting.below.iter_mut().for_each(|number| *number = places[*number]);
            meeting.pairs.values_mut().for_each(|number| *number = places[*number]);
            meeting
        })
        .collect()
}
