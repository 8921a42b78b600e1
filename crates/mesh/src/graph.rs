//! The graph of a workflow's steps: who waits for whom, and that nobody waits for himself.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::Id;

/// The edges by the index of the step in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    index: BTreeMap<Id, usize>,
    dependencies: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
}

/// Why the edges are no graph. Steps are named by index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GraphError {
    /// The step names one that does not exist.
    Unknown { step: usize, name: Id },
    /// The steps wait for each other in a circle, each for the next.
    Cycle(Vec<usize>),
}

impl Graph {
    /// Builds the graph of steps with unique ids and their direct dependencies.
    pub(crate) fn new(steps: &[(Id, Vec<Id>)]) -> Result<Self, GraphError> {
        let index: BTreeMap<Id, usize> =
            steps.iter().enumerate().map(|(at, (id, _))| (id.clone(), at)).collect();
        let mut graph = Self {
            index,
            dependencies: Vec::with_capacity(steps.len()),
            dependents: vec![Vec::new(); steps.len()],
        };
        for (step, (_, names)) in steps.iter().enumerate() {
            let mut dependencies = Vec::with_capacity(names.len());
            for name in names {
                let unknown = || GraphError::Unknown { step, name: name.clone() };
                let dependency = *graph.index.get(name).ok_or_else(unknown)?;
                dependencies.push(dependency);
                graph.dependents[dependency].push(step);
            }
            graph.dependencies.push(dependencies);
        }
        match graph.cycle() {
            None => Ok(graph),
            Some(steps) => Err(GraphError::Cycle(steps)),
        }
    }

    pub(crate) fn index_of(&self, id: &Id) -> Option<usize> {
        self.index.get(id).copied()
    }

    pub(crate) fn dependencies(&self, step: usize) -> &[usize] {
        &self.dependencies[step]
    }

    pub(crate) fn dependents(&self, step: usize) -> &[usize] {
        &self.dependents[step]
    }

    /// Every step that this one waits for, directly or not.
    pub(crate) fn ancestors(&self, step: usize) -> BTreeSet<usize> {
        reach(&self.dependencies, step)
    }

    /// Every step that waits for this one, directly or not.
    pub(crate) fn descendants(&self, step: usize) -> BTreeSet<usize> {
        reach(&self.dependents, step)
    }

    fn cycle(&self) -> Option<Vec<usize>> {
        let mut unmet: Vec<usize> = self.dependencies.iter().map(Vec::len).collect();
        let mut free: Vec<usize> = (0..unmet.len()).filter(|step| unmet[*step] == 0).collect();
        while let Some(step) = free.pop() {
            for dependent in &self.dependents[step] {
                unmet[*dependent] -= 1;
                if unmet[*dependent] == 0 {
                    free.push(*dependent);
                }
            }
        }
        let mut at = unmet.iter().position(|count| *count > 0)?;
        // Each step that is left waits for another one that is left, so this walk must come round.
        let mut walk = Vec::new();
        let mut met = BTreeMap::new();
        loop {
            if let Some(start) = met.insert(at, walk.len()) {
                return Some(walk.split_off(start));
            }
            walk.push(at);
            at = self.dependencies[at].iter().copied().find(|next| unmet[*next] > 0)?;
        }
    }
}

fn reach(edges: &[Vec<usize>], start: usize) -> BTreeSet<usize> {
    let mut met = BTreeSet::new();
    let mut open = vec![start];
    while let Some(step) = open.pop() {
        open.extend(edges[step].iter().copied().filter(|next| met.insert(*next)));
    }
    met
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(edges: &[(&str, &[&str])]) -> Result<Graph, GraphError> {
        let id = |text: &&str| Id::parse(*text).unwrap();
        let steps: Vec<_> = edges.iter().map(|(step, on)| (id(step), on.iter().map(id).collect())).collect();
        Graph::new(&steps)
    }

    #[test]
    fn a_diamond_has_its_ancestors_and_descendants() {
        let graph = build(&[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])]).unwrap();
        assert_eq!(graph.ancestors(3), BTreeSet::from([0, 1, 2]));
        assert_eq!(graph.descendants(0), BTreeSet::from([1, 2, 3]));
        assert!(graph.ancestors(0).is_empty());
    }

    #[test]
    fn circles_and_unknown_names_are_found() {
        let on_itself = build(&[("a", &["a"])]).unwrap_err();
        assert_eq!(on_itself, GraphError::Cycle(vec![0]));
        let GraphError::Cycle(circle) =
            build(&[("a", &[]), ("b", &["d", "a"]), ("c", &["b"]), ("d", &["c"]), ("e", &["d"])])
                .unwrap_err()
        else {
            panic!()
        };
        assert_eq!(circle, [1, 3, 2], "without the steps before and after the circle");
        let GraphError::Unknown { step, name } = build(&[("a", &["x"])]).unwrap_err() else { panic!() };
        assert_eq!((step, name.as_str()), (0, "x"));
    }
}
