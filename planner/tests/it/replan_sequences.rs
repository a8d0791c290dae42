// SPDX-License-Identifier: Apache-2.0
//! Sequences of faults and repairs. A replan with a few more moves than necessary must keep the step
//! about as short as a plan from scratch, and must be as good again after all repairs.
//!
//! Moves are counted from the plan documents alone. Every group with a failed node must move or is
//! lost, so the number of these groups is a lower bound on the moves.

use crate::joint_fabric;
use std::collections::{BTreeMap, BTreeSet};

use joint_fabric::{fabric, faults};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::joint::{Bounds, MoveLimit, Replanned, replan_within};
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::id::{GpuId, GroupId};
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use rayon::prelude::*;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    hbd: &'static str,
    dcn: &'static str,
    /// Name, GPUs, ring size, replicas and pipeline stages of each job.
    jobs: [(&'static str, u32, u32, u32, u32); 3],
}

pub(crate) const CASES: [Case; 5] = [
    Case {
        name: "leaf72",
        hbd: "{khop: {nodes: 72, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 8}}",
        jobs: [("a", 96, 16, 6, 1), ("b", 64, 8, 8, 1), ("c", 32, 4, 8, 1)],
    },
    Case {
        name: "leaf128",
        hbd: "{khop: {nodes: 128, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 8}}",
        jobs: [("a", 192, 16, 12, 1), ("b", 128, 8, 16, 1), ("c", 128, 32, 4, 1)],
    },
    Case {
        name: "line128",
        hbd: "{khop: {nodes: 128, gpus_per_node: 4, k: 2, shape: line}}",
        dcn: "{fat_tree: {nodes_per_tor: 4, tors_per_domain: 8}}",
        jobs: [("a", 192, 16, 12, 1), ("b", 128, 8, 16, 1), ("c", 64, 16, 2, 2)],
    },
    Case {
        name: "pp96",
        hbd: "{khop: {nodes: 96, gpus_per_node: 8, k: 4}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 8, oversubscription: 8}}",
        jobs: [("a", 256, 32, 4, 2), ("b", 192, 16, 12, 1), ("c", 128, 16, 8, 1)],
    },
    Case {
        name: "two80",
        hbd: "{khop: {nodes: 80, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 2}}",
        jobs: [("a", 128, 16, 8, 1), ("b", 96, 8, 12, 1), ("c", 32, 16, 2, 1)],
    },
];

fn of_case(case: &Case) -> Fabric {
    let job = |(name, gpus, tp, dp, pp): &(&str, u32, u32, u32, u32)| {
        format!(
            "  - {{name: {name}, gpus: {gpus}, tp: {tp}, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, \
             micro_batches: 8, tokens: 4096}}}}}}\n"
        )
    };
    let jobs: String = case.jobs.iter().map(job).collect();
    let Case { name, hbd, dcn, .. } = case;
    fabric(&format!(
        "kind: fabric\nversion: 2\nname: {name}\nhbd: {hbd}\ndcn: {dcn}\njobs:\n{jobs}"
    ))
}

/// The GPU of each rank of each group of a job.
fn placed(plan: &Plan) -> BTreeMap<GroupId, Vec<GpuId>> {
    let mut all: BTreeMap<GroupId, Vec<(u32, GpuId)>> = BTreeMap::new();
    for rank in plan.ranks.iter().filter(|rank| rank.job.is_some()) {
        all.entry(rank.group).or_default().push((rank.tp, rank.gpu));
    }
    let in_order = |mut own: Vec<(u32, GpuId)>| {
        own.sort_unstable();
        own.into_iter().map(|(_, gpu)| gpu).collect()
    };
    all.into_iter().map(|(group, own)| (group, in_order(own))).collect()
}

fn step(plan: &Plan) -> f64 {
    plan.metrics.step_time_ps.expect("a step").as_secs_f64()
}

fn options() -> Options {
    Options { compare: false, ..Options::default() }
}

pub(crate) fn next(
    fabric: &Fabric,
    before: &Plan,
    faults: &FaultSet,
    is_repair: bool,
    limit: MoveLimit,
) -> Replanned {
    let bounds = Bounds { limit, ..Bounds::default() };
    let next = replan_within(fabric, before, faults, is_repair, &bounds, options());
    let next = next.expect("a next plan");
    if let Err(found) = check(fabric, faults, &next.plan) {
        panic!("{}: {found:?}", fabric.name);
    }
    next
}

#[derive(Default)]
struct Tally {
    compared: usize,
    /// Events after which the step is at most 5 % longer than in a plan from scratch.
    close: usize,
    /// The longest step, as a multiple of the step in a plan from scratch.
    worst: f64,
    moves: usize,
    /// Lower bound on the moves.
    least: usize,
    /// Shares of hops that cross ToRs after compared repairs, and in plans from scratch.
    crossing: (f64, f64),
}

pub(crate) struct Sequence {
    pub(crate) fabric: Fabric,
    pub(crate) now: Plan,
    pub(crate) broken: Vec<String>,
    tally: Tally,
}

impl Sequence {
    pub(crate) fn new(case: &Case) -> Self {
        let fabric = of_case(case);
        let now = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
        Self { fabric, now, broken: Vec::new(), tally: Tally::default() }
    }

    /// Draws a fault or a repair. Returns whether it is a repair.
    pub(crate) fn draw(&mut self, draws: &mut Stream) -> bool {
        let nodes = self.fabric.hbd.nodes();
        let is_full = self.broken.len() > nodes as usize / 12;
        let is_repair = !self.broken.is_empty() && (is_full || draws.random_range(0..100) < 45);
        if is_repair {
            self.broken.swap_remove(draws.random_range(0..self.broken.len()));
        } else {
            let part = format!("n{}", draws.random_range(0..nodes));
            if !self.broken.contains(&part) {
                self.broken.push(part);
            }
        }
        is_repair
    }

    pub(crate) fn known(&self) -> FaultSet {
        let names: Vec<&str> = self.broken.iter().map(String::as_str).collect();
        faults(&self.fabric, &names)
    }

    fn event(&mut self, draws: &mut Stream, is_compared: bool) {
        let is_repair = self.draw(draws);
        let at = format!("{} around {:?}", self.fabric.name, self.broken);
        let known = self.known();
        let limit = MoveLimit::BeyondHit(2);
        let Replanned { plan: after, moves, change, .. } =
            next(&self.fabric, &self.now, &known, is_repair, limit);
        let (was, is) = (placed(&self.now), placed(&after));
        let dead = known.failed_nodes(&self.fabric.hbd);
        let is_hit = |own: &&Vec<GpuId>| own.iter().any(|gpu| dead.contains(&gpu.node));
        let hit = was.values().filter(is_hit).count();
        let differs =
            |(group, own): &(&GroupId, &Vec<GpuId>)| is.get(*group).is_some_and(|now| now != *own);
        let moved: BTreeSet<GroupId> = was.iter().filter(differs).map(|(id, _)| *id).collect();
        // More groups move only if the lost ones need their places.
        let most = hit + 2.max(change.moved.at_least as usize);
        assert!(moved.len() <= most, "{at}: {} groups move, {hit} are hit", moved.len());
        assert!(moved.iter().all(|id| moves.iter().any(|stated| stated.group == *id)), "{at}");
        self.tally.moves += moved.len();
        self.tally.least += hit;
        if is_compared {
            let cold = plan(&self.fabric, &known, options()).expect("a plan");
            assert!(after.metrics.gpus_used >= cold.metrics.gpus_used, "{at}: groups are lost");
            let ratio = step(&after) / step(&cold);
            if is_repair {
                self.tally.crossing.0 += after.metrics.cross_tor_share;
                self.tally.crossing.1 += cold.metrics.cross_tor_share;
            }
            self.tally.compared += 1;
            self.tally.close += usize::from(ratio <= 1.05);
            self.tally.worst = self.tally.worst.max(ratio);
        }
        self.now = after;
    }
}

/// Repairs everything after the sequence, in one step with up to eight moves, and one part after the
/// other with two moves each.
fn assert_it_heals(mut sequence: Sequence, first: &Plan) {
    let Sequence { fabric, now, .. } = &sequence;
    let healed = next(fabric, now, &FaultSet::none(), true, MoveLimit::Heal(8));
    assert!(healed.moves.len() <= 8, "{}", fabric.name);
    assert!(step(&healed.plan) <= 1.01 * step(first), "{}", fabric.name);
    let share = |plan: &Plan| plan.metrics.cross_tor_share;
    assert!(share(&healed.plan) <= share(now), "{}", fabric.name);
    println!("{}: crossing {:.3}, healed {:.3}", fabric.name, share(now), share(&healed.plan));
    let cold = next(fabric, now, &FaultSet::none(), true, MoveLimit::Cold);
    assert_eq!(step(&cold.plan), step(first), "{}", fabric.name);
    assert!(share(&cold.plan) <= share(first) + 1e-9, "{}", fabric.name);
    let mut shares = vec![share(now)];
    while sequence.broken.pop().is_some() {
        let (fabric, known) = (&sequence.fabric, sequence.known());
        let repaired = next(fabric, &sequence.now, &known, true, MoveLimit::BeyondHit(2));
        assert!(repaired.moves.len() <= 2, "{}", fabric.name);
        shares.push(share(&repaired.plan));
        sequence.now = repaired.plan;
    }
    println!("{}: crossing with each repair {shares:.3?}", sequence.fabric.name);
    assert!(shares.last() <= shares.first(), "{}", sequence.fabric.name);
}

#[test]
fn replanning_stays_close_to_a_cold_plan_and_heals() {
    let (events, apart) = cases((20, 5), (1_000, 1));
    CASES.par_iter().for_each(|case| {
        let mut sequence = Sequence::new(case);
        let first = sequence.now.clone();
        let mut draws = Seed(69).stream(case.name, 0);
        for event in 0..events {
            sequence.event(&mut draws, event % apart == apart - 1);
        }
        let Tally { compared, close, worst, moves, least, crossing } = &sequence.tally;
        println!("{}: crossing after repairs {crossing:.3?}", case.name);
        println!(
            "{}: {close} of {compared} close, worst {worst:.3}, {moves} moves, at least {least}",
            case.name
        );
        assert!(close * 100 >= compared * 95, "{}: {close} of {compared}", case.name);
        assert!(*worst <= 1.2, "{}: {worst}", case.name);
        assert!(*moves <= 3 * least, "{}: {moves} moves for {least}", case.name);
        assert_it_heals(sequence, &first);
    });
}
