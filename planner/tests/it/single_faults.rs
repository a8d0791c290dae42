// SPDX-License-Identifier: Apache-2.0
//! A replan with the fewest moves after one more fault, on plans that many faults and repairs have
//! changed. The oracle is an integer program over sets of nodes on paths, derived from the cabling.
//!
//! Groups with a failed node must move or are lost. If others move, too, the oracle shows that no
//! placement keeps as many groups with fewer moves, and the planner must state this bound. A chain
//! that takes nodes of more healthy groups than may move is no candidate, which keeps the program
//! small.

use std::collections::{BTreeMap, BTreeSet};

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, variable};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{Hop, hops_are_compatible};
use lightloom_fabric::plan::{Group, Plan};
use lightloom_planner::joint::{MoveLimit, MoveReason};
use lightloom_testkit::cases;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rayon::prelude::*;

use crate::least_moves::{far, healthy, works};
use crate::replan_sequences::{CASES, Sequence, next};

struct Chains<'a> {
    fabric: &'a Fabric,
    faults: &'a FaultSet,
    /// The healthy group of each node.
    owner: BTreeMap<NodeId, usize>,
    /// Healthy groups that one chain may take nodes of.
    most: usize,
    found: BTreeSet<Vec<NodeId>>,
}

impl Chains<'_> {
    fn grow(&mut self, length: usize, path: &mut Vec<NodeId>, arrived: Option<Hop>) {
        let owners: BTreeSet<_> = path.iter().filter_map(|node| self.owner.get(node)).collect();
        if owners.len() > self.most {
            return;
        }
        if path.len() == length {
            let mut nodes = path.clone();
            nodes.sort_unstable();
            self.found.insert(nodes);
            return;
        }
        let k = i8::try_from(self.fabric.hbd.k()).expect("small");
        for hop in (-k..=k).filter(|hop| *hop != 0) {
            let fits =
                arrived.is_none_or(|back| hops_are_compatible(self.fabric.hbd.k(), -back, hop));
            let to = far(self.fabric, self.faults, path[path.len() - 1], hop);
            if let Some(to) = to.filter(|to| fits && !path.contains(to)) {
                path.push(to);
                self.grow(length, path, Some(hop));
                path.pop();
            }
        }
    }
}

/// Counts the groups of jobs by their number of nodes.
fn lengths(plan: &Plan) -> BTreeMap<usize, u32> {
    let mut counts = BTreeMap::new();
    for group in plan.groups.iter().filter(|group| group.job.is_some()) {
        *counts.entry(group.nodes.len()).or_default() += 1;
    }
    counts
}

/// Returns the least number of healthy groups that move if `kept` groups of each length are placed.
/// `None` if that takes more than `most` moves.
fn least_within(
    fabric: &Fabric,
    faults: &FaultSet,
    before: &Plan,
    kept: &BTreeMap<usize, u32>,
    most: usize,
) -> Option<usize> {
    let healthy: Vec<&Group> =
        healthy(fabric, faults, before).into_iter().map(|(group, _)| group).collect();
    let own =
        |(at, group): (usize, &&Group)| group.nodes.clone().into_iter().map(move |node| (node, at));
    let owner = healthy.iter().enumerate().flat_map(own).collect();
    let mut chains = Chains { fabric, faults, owner, most, found: BTreeSet::new() };
    for length in kept.keys() {
        for node in (0..fabric.hbd.nodes()).map(NodeId).filter(|node| works(fabric, faults, *node))
        {
            chains.grow(*length, &mut vec![node], None);
        }
    }
    let mut variables = ProblemVariables::new();
    let stays: Vec<_> = healthy.iter().map(|_| variables.add(variable().binary())).collect();
    let picked: Vec<_> = chains.found.iter().map(|_| variables.add(variable().binary())).collect();
    let mut used: BTreeMap<NodeId, Expression> = BTreeMap::new();
    let mut rings: BTreeMap<usize, Expression> = BTreeMap::new();
    let taken = healthy.iter().map(|group| &group.nodes).zip(&stays);
    for (nodes, taken) in taken.chain(chains.found.iter().zip(&picked)) {
        nodes.iter().for_each(|node| *used.entry(*node).or_default() += *taken);
        *rings.entry(nodes.len()).or_default() += *taken;
    }
    let stay: Expression = stays.iter().sum();
    let problem = variables.maximise(stay.clone());
    #[cfg(feature = "highs")]
    let mut model = problem.using(good_lp::solvers::highs::highs).set_threads(1);
    #[cfg(not(feature = "highs"))]
    let mut model = problem.using(good_lp::solvers::microlp::microlp);
    for uses in used.into_values() {
        model.add_constraint(constraint!(uses <= 1));
    }
    for (length, placed) in rings {
        let needed = kept.get(&length).copied().unwrap_or_default();
        model.add_constraint(constraint!(placed >= Expression::from(f64::from(needed))));
    }
    let all = healthy.len();
    model.add_constraint(constraint!(stay.clone() >= Expression::from((all - most) as f64)));
    let solution = model.solve().ok()?;
    Some(all - solution.eval(&stay).round() as usize)
}

#[test]
fn one_more_fault_moves_as_few_groups_as_the_oracle() {
    let faults = cases(4, 40);
    CASES.par_iter().for_each(|case| {
        let mut sequence = Sequence::new(case);
        let mut draws = Seed(70).stream(case.name, 1);
        let mut judged = 0;
        while judged < faults {
            let is_repair = sequence.draw(&mut draws);
            let known = sequence.known();
            let Sequence { fabric, now: before, .. } = &sequence;
            let after = next(fabric, before, &known, is_repair, MoveLimit::Least);
            let extra = after.moves.iter().filter(|moved| moved.why != MoveReason::Fault).count();
            judged += u32::from(after.groups_hit > 0);
            let kept = lengths(&after.plan);
            let fewer =
                (0..extra).find_map(|most| least_within(fabric, &known, before, &kept, most));
            assert_eq!(fewer, None, "{} around {:?}: {extra} moved", case.name, sequence.broken);
            assert_eq!(after.change.moved.at_least as usize, extra, "{}: bound", case.name);
            sequence.now = after.plan;
        }
        println!("{}: {judged} faults with the least moves, proven", case.name);
    });
}
