// SPDX-License-Identifier: Apache-2.0
//! The most rings that can exist, by integer programming: the yardstick for the fast methods.
//!
//! Every simple path of m usable nodes in the k-hop graph is a candidate, whichever way it runs
//! along the line, as long as no node needs two hops on one bundle. The program picks the most
//! candidates that share no node (set packing).

use std::collections::BTreeMap;

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, microlp, variable};
use lightloom_fabric::khop::{Hop, Position, hops_are_compatible};
use lightloom_units::id::GroupId;

use super::{RingGroup, Survey};

/// The most candidate rings that are searched.
pub const MAX_CANDIDATES: usize = 2_000;

/// Why the exact method gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExactError {
    /// More candidates than [`MAX_CANDIDATES`].
    #[error(
        "the exact method searches at most {MAX_CANDIDATES} candidate rings and this fabric has more: plan without it, or a smaller fabric"
    )]
    TooLarge,
    /// The solver gave up.
    #[error("the solver found no answer: {0}")]
    Solver(String),
}

/// As many rings of `length` nodes as can exist on the `free` and whole nodes.
///
/// # Errors
/// If there are more than [`MAX_CANDIDATES`] candidates, or the solver fails.
pub fn most_groups(
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
) -> Result<Vec<RingGroup>, ExactError> {
    let candidates = candidates(survey, free, length)?;
    let mut variables = ProblemVariables::new();
    let picked: Vec<_> = candidates.iter().map(|_| variables.add(variable().binary())).collect();
    let mut by_node: BTreeMap<u32, Expression> = BTreeMap::new();
    for (candidate, pick) in candidates.iter().zip(&picked) {
        for node in &candidate.nodes {
            *by_node.entry(node.0).or_default() += *pick;
        }
    }
    let objective: Expression = picked.iter().sum();
    let mut model = variables.maximise(objective).using(microlp);
    for (_, uses) in by_node {
        model = model.with(constraint!(uses <= 1));
    }
    let solution = model.solve().map_err(|error| ExactError::Solver(error.to_string()))?;
    let chosen = candidates.into_iter().zip(picked).filter(|(_, pick)| solution.value(*pick) > 0.5);
    Ok(chosen.map(|(candidate, _)| candidate).collect())
}

/// One ring for every set of nodes that can form one.
fn candidates(
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
) -> Result<Vec<RingGroup>, ExactError> {
    let mut search = Search { survey, free, length, found: BTreeMap::new() };
    for position in (0..survey.hbd().nodes()).map(Position) {
        if search.usable(position) {
            search.grow(&mut vec![position], &mut Vec::new())?;
        }
    }
    Ok(search.found.into_values().collect())
}

struct Search<'a> {
    survey: &'a Survey<'a>,
    free: &'a [bool],
    length: usize,
    found: BTreeMap<Vec<Position>, RingGroup>,
}

impl Search<'_> {
    fn usable(&self, position: Position) -> bool {
        self.free[position.index()] && self.survey.is_whole(position)
    }

    fn grow(&mut self, path: &mut Vec<Position>, hops: &mut Vec<Hop>) -> Result<(), ExactError> {
        if path.len() == self.length {
            return self.keep(path, hops);
        }
        let hbd = self.survey.hbd();
        let last = *path.last().expect("a path starts somewhere");
        let reach = Hop::try_from(hbd.k()).expect("K is at most 64");
        for hop in (-reach..=reach).filter(|hop| *hop != 0) {
            let fits = hops.last().is_none_or(|before| hops_are_compatible(hbd.k(), -before, hop));
            let Some(next) = hbd.neighbour(last, hop).filter(|next| {
                fits && self.usable(*next)
                    && self.survey.has_fibre(last, hop)
                    && !path.contains(next)
            }) else {
                continue;
            };
            path.push(next);
            hops.push(hop);
            self.grow(path, hops)?;
            path.pop();
            hops.pop();
        }
        Ok(())
    }

    fn keep(&mut self, path: &[Position], hops: &[Hop]) -> Result<(), ExactError> {
        let mut key = path.to_vec();
        key.sort_unstable();
        let nodes: Vec<_> =
            path.iter().map(|position| self.survey.hbd().node_at(*position)).collect();
        let group = RingGroup {
            passing: None,
            id: GroupId::default(),
            job: None,
            ranks: nodes.clone(),
            nodes,
            hops: hops.to_vec(),
            segment: None,
        };
        self.found.entry(key).or_insert(group);
        if self.found.len() > MAX_CANDIDATES { Err(ExactError::TooLarge) } else { Ok(()) }
    }
}
