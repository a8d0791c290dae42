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
use lightloom_units::seed::Seed;
use rand::RngExt;

struct Case {
    name: &'static str,
    hbd: &'static str,
    dcn: &'static str,
    /// Name, GPUs, ring size, replicas and pipeline stages of each job.
    jobs: [(&'static str, u32, u32, u32, u32); 3],
}

const CASES: [Case; 5] = [
    Case {
        name: "leaf64",
        hbd: "{khop: {nodes: 64, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 8}}",
        jobs: [("a", 96, 16, 6, 1), ("b", 64, 8, 8, 1), ("c", 32, 4, 8, 1)],
    },
    Case {
        name: "leaf256",
        hbd: "{khop: {nodes: 256, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 8}}",
        jobs: [("a", 384, 16, 24, 1), ("b", 256, 8, 32, 1), ("c", 256, 32, 8, 1)],
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
        name: "two64",
        hbd: "{khop: {nodes: 64, gpus_per_node: 4, k: 3}}",
        dcn: "{leaf_spine: {nodes_per_leaf: 4, oversubscription: 2}}",
        jobs: [("a", 64, 16, 4, 1), ("b", 96, 8, 12, 1), ("c", 32, 16, 2, 1)],
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

fn next(
    fabric: &Fabric,
    before: &Plan,
    faults: &FaultSet,
    is_repair: bool,
    limit: MoveLimit,
) -> Plan {
    let bounds = Bounds { limit, ..Bounds::default() };
    let options = Options { compare: false, ..Options::default() };
    let Replanned { plan: next, .. } =
        replan_within(fabric, before, faults, is_repair, &bounds, options).expect("a next plan");
    if let Err(found) = check(fabric, faults, &next) {
        panic!("{}: {found:?}", fabric.name);
    }
    next
}

#[derive(Default)]
struct Tally {
    events: usize,
    close: usize,
    worst: f64,
    moves: usize,
    least: usize,
}

fn sequence(case: &Case, events: u32) -> Tally {
    let fabric = of_case(case);
    let nodes = fabric.hbd.nodes();
    let mut draws = Seed(69).stream(case.name, 0);
    let mut now = plan(&fabric, &FaultSet::none(), Options::default()).expect("a plan");
    let first = step(&now);
    let mut broken: Vec<String> = Vec::new();
    let mut tally = Tally::default();
    for event in 0..events {
        let is_repair = !broken.is_empty()
            && (draws.random_range(0..100) < 45 || broken.len() > nodes as usize / 12);
        let part = match is_repair {
            true => broken.swap_remove(draws.random_range(0..broken.len())),
            false => format!("n{}", draws.random_range(0..nodes)),
        };
        if !is_repair && broken.contains(&part) {
            continue;
        }
        let at = format!("{} {event} {part}", case.name);
        if !is_repair {
            broken.push(part.clone());
        }
        let known = faults(&fabric, &broken.iter().map(String::as_str).collect::<Vec<_>>());
        let after = next(&fabric, &now, &known, is_repair, MoveLimit::BeyondHit(2));
        let t0 = std::time::Instant::now();
        let cold = plan(
            &fabric,
            &known,
            Options { compare: std::env::var("FULL").is_ok(), ..Options::default() },
        )
        .expect("a plan");
        let t1 = t0.elapsed();
        let t0 = std::time::Instant::now();
        let _ = next(&fabric, &now, &known, is_repair, MoveLimit::BeyondHit(2));
        let t2 = t0.elapsed();
        let t0 = std::time::Instant::now();
        let _ = next(&fabric, &now, &known, is_repair, MoveLimit::Least);
        let t3 = t0.elapsed();
        let (was, is) = (placed(&now), placed(&after));
        let dead: BTreeSet<_> = known.failed_nodes(&fabric.hbd);
        let hit = was.values().filter(|own| own.iter().any(|gpu| dead.contains(&gpu.node))).count();
        let moved =
            was.iter().filter(|(group, own)| is.get(group).is_some_and(|now| now != *own)).count();
        assert!(moved <= hit + 2, "{at}: {moved} groups move, {hit} are hit");
        assert!(after.metrics.gpus_used >= cold.metrics.gpus_used, "{at}: groups are lost");
        let ratio = step(&after) / step(&cold);
        if std::env::var("SHOW").is_ok() {
            println!(
                "{at}: step {:.2} cold {:.2} ratio {ratio:.3} xtor {:.3} {:.3} moved {moved} hit {hit} cold {t1:?} next {t2:?} least {t3:?}",
                step(&after) * 1e3,
                step(&cold) * 1e3,
                after.metrics.cross_tor_share,
                cold.metrics.cross_tor_share
            );
        }
        tally.events += 1;
        tally.close += usize::from(ratio <= 1.05);
        tally.worst = tally.worst.max(ratio);
        tally.moves += moved;
        tally.least += hit;
        now = after;
    }
    let healed = next(&fabric, &now, &FaultSet::none(), true, MoveLimit::Total(8));
    println!(
        "{}: {} events, {} close, worst {:.3}, {} moves, {} at least, healed {:.3}",
        case.name,
        tally.events,
        tally.close,
        tally.worst,
        tally.moves,
        tally.least,
        step(&healed) / first
    );
    tally
}

#[test]
fn replanning_stays_close_to_a_cold_plan() {
    let events = std::env::var("N").map_or_else(|_| cases(40, 1_000), |n| n.parse().unwrap());
    for case in CASES.iter().filter(|case| std::env::var("ONLY").map_or(true, |n| n == case.name)) {
        let tally = sequence(case, events);
        if std::env::var("SHOW").is_ok() {
            continue;
        }
        assert!(
            tally.close * 100 >= tally.events * 95,
            "{}: {} of {}",
            case.name,
            tally.close,
            tally.events
        );
        assert!(tally.worst <= 1.2, "{}: {}", case.name, tally.worst);
        assert!(
            tally.moves <= 3 * tally.least,
            "{}: {} for {}",
            case.name,
            tally.moves,
            tally.least
        );
    }
}
