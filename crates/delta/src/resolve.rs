//! What a path holds after a merge: three-way between any two heads, the same whatever their order.
//!
//! A head yields to another one where the head holds what their common ancestors hold. What the heads that
//! yield to none agree on is the result. The common ancestors of two steps are themselves merged in this way
//! first, as Git's recursive strategy does.

use std::collections::{BTreeMap, HashSet};

use crate::ancestors::{Meeting, meetings};
use crate::lineage::History;
use crate::view::{Value, View};

/// The merged value of one path.
#[derive(Debug, Clone)]
pub(crate) enum Outcome<'a> {
    Settled(Value<'a>),
    Clash(Clash<'a>),
}

/// Heads that disagree about a path.
#[derive(Debug, Clone)]
pub(crate) struct Clash<'a> {
    /// What the common ancestors hold, or the base where they have no one state.
    pub(crate) base: Value<'a>,
    /// The heads that yield to none, with what they hold.
    pub(crate) contenders: Vec<(usize, Value<'a>)>,
}

/// Answers for one merge, path by path.
pub(crate) struct Resolver<'a, 'h> {
    history: &'h History<'a>,
    base: View<'a>,
    meetings: Vec<Meeting>,
    /// The steps of any meeting that name a path in their delta.
    touching: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a, 'h> Resolver<'a, 'h> {
    pub(crate) fn new(base: View<'a>, history: &'h History<'a>) -> Self {
        let meetings = meetings(history);
        let members: HashSet<usize> = meetings.iter().flat_map(|meeting| &meeting.members).copied().collect();
        let mut touching: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for step in members {
            let changes = history.views[step].delta.map_or(&[][..], |delta| delta.changes());
            for change in changes {
                touching.entry(change.path().as_str()).or_default().push(step);
            }
        }
        Self { history, base, meetings, touching }
    }

    /// The heads that are no ancestor of another head.
    pub(crate) fn heads(&self) -> &[usize] {
        self.meetings.last().map_or(&[], |meeting| &meeting.members)
    }

    /// Every path that a step of any meeting names.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &'a str> {
        self.touching.keys().copied()
    }

    pub(crate) fn outcome(&self, path: &str) -> Outcome<'a> {
        let row = self.row(path);
        let mut known: Vec<Option<Value<'a>>> = Vec::with_capacity(self.meetings.len());
        for meeting in &self.meetings {
            known.push(self.meet(meeting, &known, &row));
        }
        match (known.last(), self.meetings.last()) {
            (Some(Some(value)), _) => Outcome::Settled(*value),
            (_, Some(meeting)) => Outcome::Clash(self.clash(meeting, &known, &row)),
            (_, None) => Outcome::Settled(row.base),
        }
    }

    /// What the common ancestors of the heads hold, where that is one value; the base's otherwise.
    pub(crate) fn ancestor_value(&self, path: &str) -> Value<'a> {
        let row = self.row(path);
        let mut known = Vec::with_capacity(self.meetings.len());
        for meeting in &self.meetings {
            known.push(self.meet(meeting, &known, &row));
        }
        let shared = self.meetings.last().and_then(|meeting| shared_value(meeting, &known));
        shared.flatten().unwrap_or(row.base)
    }

    fn row<'r>(&'r self, path: &'r str) -> Row<'a, 'r> {
        let listed = self.touching.get(path).map_or(&[][..], Vec::as_slice);
        let prefix = format!("{path}/");
        let touched_below =
            self.touching.range(prefix.as_str()..).next().is_some_and(|(next, _)| next.starts_with(&prefix));
        let base = self.base.value(path);
        let may_be_directory = touched_below || self.base.holds_below(path);
        Row { path, base, listed, unlisted: (!may_be_directory).then_some(base), views: &self.history.views }
    }

    fn meet(&self, meeting: &Meeting, known: &[Option<Value<'a>>], row: &Row<'a, '_>) -> Option<Value<'a>> {
        let distinct = row.distinct(meeting);
        match distinct[..] {
            [] => return Some(row.base),
            [value] => return Some(value),
            _ => {}
        }
        let candidates: Vec<Value<'a>> = match shared_value(meeting, known) {
            Some(ancestor) => {
                unyielding(&distinct, ancestor).into_iter().map(|position| distinct[position]).collect()
            }
            None => {
                let values: Vec<Value<'a>> = meeting.members.iter().map(|step| row.value(*step)).collect();
                unyielding_in_pairs(meeting, known, &values)
                    .into_iter()
                    .map(|position| values[position])
                    .collect()
            }
        };
        let (first, rest) = candidates.split_first()?;
        rest.iter().all(|value| value == first).then_some(*first)
    }

    fn clash(&self, meeting: &Meeting, known: &[Option<Value<'a>>], row: &Row<'a, '_>) -> Clash<'a> {
        let values: Vec<Value<'a>> = meeting.members.iter().map(|step| row.value(*step)).collect();
        let shared = shared_value(meeting, known);
        let mut positions: Vec<usize> = match shared {
            Some(ancestor) => unyielding(&values, ancestor),
            None => unyielding_in_pairs(meeting, known, &values),
        };
        if positions.is_empty() {
            positions = (0..values.len()).collect();
        }
        let contenders =
            positions.into_iter().map(|position| (meeting.members[position], values[position])).collect();
        Clash { base: shared.flatten().unwrap_or(row.base), contenders }
    }
}

/// One path with what is needed to tell its value in any step.
struct Row<'a, 'r> {
    path: &'r str,
    base: Value<'a>,
    /// The steps that name the path.
    listed: &'r [usize],
    /// What every other step holds, where no directory is in play and that is one value.
    unlisted: Option<Value<'a>>,
    views: &'r [View<'a>],
}

impl<'a> Row<'a, '_> {
    fn value(&self, step: usize) -> Value<'a> {
        self.views[step].value(self.path)
    }

    /// The values that the members hold, each once. It looks only at members that name the path, where it can.
    fn distinct(&self, meeting: &Meeting) -> Vec<Value<'a>> {
        let mut values: Vec<Value<'a>> = match self.unlisted {
            Some(unlisted) => {
                let members = self.listed.iter().filter(|step| meeting.is_member.contains(**step));
                let mut values: Vec<Value<'a>> = members.map(|step| self.value(*step)).collect();
                if values.len() < meeting.members.len() {
                    values.push(unlisted);
                }
                values
            }
            None => meeting.members.iter().map(|step| self.value(*step)).collect(),
        };
        if values.len() > 1 {
            let mut seen = HashSet::with_capacity(values.len());
            values.retain(|value| seen.insert(*value));
        }
        values
    }
}

/// The value of all meetings below where they agree: `Some(None)` where they agree to be in conflict.
fn shared_value<'a>(meeting: &Meeting, known: &[Option<Value<'a>>]) -> Option<Option<Value<'a>>> {
    let (first, rest) = meeting.below.split_first()?;
    rest.iter().all(|number| known[*number] == known[*first]).then_some(known[*first])
}

/// True where a head that holds `value` yields to one that holds `other`. `None` is a state in conflict.
///
/// Apart from a head that changed nothing, one that only took away what was there yields: to a directory that
/// the other put in the place of a file, and to a file or a link in the place of a directory. Both sides
/// took the old thing away, and one of them alone put something there.
fn yields(value: Value<'_>, other: Value<'_>, ancestor: Option<Value<'_>>) -> bool {
    if Some(value) == ancestor || Some(other) == ancestor || value == other {
        return Some(value) == ancestor && value != other;
    }
    value == Value::Absent && (other == Value::Directory || ancestor == Some(Value::Directory))
}

/// The positions of the values that yield to no other one, where all have the same ancestor.
fn unyielding(values: &[Value<'_>], ancestor: Option<Value<'_>>) -> Vec<usize> {
    let absent_yields = values.iter().any(|other| yields(Value::Absent, *other, ancestor));
    let stays = |value: Value<'_>| Some(value) != ancestor && !(value == Value::Absent && absent_yields);
    (0..values.len()).filter(|position| stays(values[*position])).collect()
}

/// The positions of the members that yield to no other one.
fn unyielding_in_pairs(meeting: &Meeting, known: &[Option<Value<'_>>], values: &[Value<'_>]) -> Vec<usize> {
    let mut out = vec![false; values.len()];
    for one in 0..values.len() {
        for two in one + 1..values.len() {
            if values[one] != values[two] {
                let ancestor = known[meeting.below_pair(one, two)];
                out[one] |= yields(values[one], values[two], ancestor);
                out[two] |= yields(values[two], values[one], ancestor);
            }
        }
    }
    (0..values.len()).filter(|position| !out[*position]).collect()
}
