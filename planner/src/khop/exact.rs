// SPDX-License-Identifier: Apache-2.0
//! Finds the maximum number of rings by integer programming, as a reference for the fast methods.
//!
//! The candidates are all simple paths of m usable nodes in the k-hop graph, including paths that
//! turn back, except paths on which a node needs two hops on one bundle. The program selects as
//! many disjoint candidates as possible (set packing).

use std::collections::BTreeMap;

use good_lp::solvers::SolutionStatus;
use good_lp::{Expression, ProblemVariables, constraint, variable};
use lightloom_fabric::khop::{Hop, Position, hops_are_compatible};
use lightloom_fabric::plan::{RingProof, RingSearch};
use lightloom_units::id::GroupId;

use super::grouping::chains_on_line;
use super::{RingGroup, Survey};
use crate::solver::{Limits, SOLVER};

/// Time limit of the solver in seconds. On timeout, the better result of solver and scan is used.
pub const SOLVER_SECONDS: f64 = 20.0;

/// Maximum number of candidate rings.
pub const MAX_CANDIDATES: usize = 2_000;

/// There are more than [`MAX_CANDIDATES`] candidates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the exact method searches at most {MAX_CANDIDATES} candidate rings, but this fabric has more: use another method or a smaller fabric"
)]
pub struct ExactError;

/// Rings found by the exact method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MostRings {
    /// The rings found.
    pub groups: Vec<RingGroup>,
    /// Whether the search proved that there are no more rings.
    pub proof: RingProof,
}

/// Finds as many rings of `length` nodes as possible among the `free` nodes whose bundles all work.
/// If the solver takes longer than `seconds`, returns the best rings found and an upper bound.
///
/// # Errors
/// Fails if counting nodes is inconclusive and there are more than [`MAX_CANDIDATES`] candidates.
pub fn most_groups(
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
    seconds: f64,
) -> Result<MostRings, ExactError> {
    let chains = chains_on_line(survey, free, length).into_iter();
    let mut groups: Vec<RingGroup> =
        chains.map(|chain| RingGroup::chain(survey.hbd(), &chain)).collect();
    let mut at_most = by_counting(survey, free, length);
    let mut ended = RingSearch::Counting;
    if groups.len() != at_most {
        let candidates = candidates(survey, free, length, usize::MAX)?;
        let (picked, is_proven) = pack(&candidates, seconds);
        if is_proven || picked.len() > groups.len() {
            groups = picked;
        }
        if is_proven {
            (at_most, ended) = (groups.len(), RingSearch::IntegerProgram);
        } else if groups.len() != at_most {
            ended = RingSearch::TimeLimit;
        }
    }
    let proof = RingProof { rings: groups.len() as u64, at_most: at_most as u64, ended };
    Ok(MostRings { groups, proof })
}

pub(super) fn by_counting(survey: &Survey<'_>, free: &[bool], length: usize) -> usize {
    pieces(survey, free).iter().map(|piece| piece.len() / length).sum()
}

pub(super) fn pieces(survey: &Survey<'_>, free: &[bool]) -> Vec<Vec<Position>> {
    let hbd = survey.hbd();
    let reach = Hop::try_from(hbd.k()).expect("K is at most 64");
    let mut seen = vec![false; free.len()];
    let mut pieces = Vec::new();
    for start in (0..hbd.nodes()).map(Position).filter(|start| survey.is_usable(*start, free)) {
        if std::mem::replace(&mut seen[start.index()], true) {
            continue;
        }
        let (mut piece, mut next) = (Vec::new(), vec![start]);
        while let Some(position) = next.pop() {
            piece.push(position);
            for hop in (-reach..=reach).filter(|hop| *hop != 0) {
                let joined = hbd.neighbour(position, hop).filter(|to| {
                    survey.is_usable(*to, free)
                        && survey.has_fibre(position, hop)
                        && !seen[to.index()]
                });
                if let Some(to) = joined {
                    seen[to.index()] = true;
                    next.push(to);
                }
            }
        }
        piece.sort_unstable();
        pieces.push(piece);
    }
    pieces
}

/// Returns as many disjoint candidates as possible, and whether there are proven to be no more.
fn pack(candidates: &[RingGroup], seconds: f64) -> (Vec<RingGroup>, bool) {
    let mut variables = ProblemVariables::new();
    let picked: Vec<_> = candidates.iter().map(|_| variables.add(variable().binary())).collect();
    let mut by_node: BTreeMap<u32, Expression> = BTreeMap::new();
    for (candidate, pick) in candidates.iter().zip(&picked) {
        for node in &candidate.nodes {
            *by_node.entry(node.0).or_default() += *pick;
        }
    }
    let objective: Expression = picked.iter().sum();
    // The objective is an integer, so a gap of less than one ring proves optimality.
    let gap = 0.5 / candidates.len().max(1) as f32;
    let constraints = by_node.into_values().map(|uses| constraint!(uses <= 1)).collect();
    let problem = variables.maximise(objective);
    let Some(solution) = SOLVER.solve(problem, constraints, Limits { gap, seconds }) else {
        return (Vec::new(), false);
    };
    let is_proven = !matches!(solution.status(), SolutionStatus::TimeLimit);
    let chosen = candidates.iter().zip(picked).filter(|(_, pick)| solution.value(*pick) > 0.5);
    (chosen.map(|(candidate, _)| candidate.clone()).collect(), is_proven)
}

pub(super) fn candidates(
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
    most_paths: usize,
) -> Result<Vec<RingGroup>, ExactError> {
    let found = BTreeMap::new();
    let mut search = Search { survey, free, length, most_paths, found };
    for position in (0..survey.hbd().nodes()).map(Position) {
        if survey.is_usable(position, free) {
            search.grow(&mut vec![position], &mut Vec::new())?;
        }
    }
    Ok(search.found.into_values().collect())
}

struct Search<'a> {
    survey: &'a Survey<'a>,
    free: &'a [bool],
    length: usize,
    most_paths: usize,
    found: BTreeMap<Vec<Position>, RingGroup>,
}

impl Search<'_> {
    fn grow(&mut self, path: &mut Vec<Position>, hops: &mut Vec<Hop>) -> Result<(), ExactError> {
        self.most_paths = self.most_paths.checked_sub(1).ok_or(ExactError)?;
        if path.len() == self.length {
            return self.keep(path, hops);
        }
        let hbd = self.survey.hbd();
        let last = *path.last().expect("a path starts somewhere");
        let reach = Hop::try_from(hbd.k()).expect("K is at most 64");
        for hop in (-reach..=reach).filter(|hop| *hop != 0) {
            let fits = hops.last().is_none_or(|before| hops_are_compatible(hbd.k(), -before, hop));
            let Some(next) = hbd.neighbour(last, hop).filter(|next| {
                fits && self.survey.is_usable(*next, self.free)
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
        if self.found.len() > MAX_CANDIDATES { Err(ExactError) } else { Ok(()) }
    }
}
