// SPDX-License-Identifier: Apache-2.0
//! Chooses which nodes stay idle. If a job does not need all nodes, using fewer nodes per leaf can
//! keep a stage or a set of replicas below one leaf.
//!
//! The search compares the layout that fills nodes in order with layouts of at most a given number
//! of nodes per leaf (with or without smaller leaves), with layouts of complete leaves on direct
//! networks, and with the layout that ignores leaves. The shortest estimated time between leaves
//! wins, and ties go to the first layout.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_units::id::NodeId;

use super::traffic::phases;
use super::{Options, PlanError, mapping, network};
use crate::khop::{self, Layout, Method};

/// Each attempt replans all groups, so the search is skipped on larger fabrics.
const MOST_NODES: u32 = 1_024;

const MOST_NODES_ONE_BY_ONE: u32 = 64;

/// With estimated times, idle nodes must reduce the time to less than this fraction.
const WORTH: f64 = 0.99;

/// A smaller gain suffices if the times are computed from the plan's routes.
const WORTH_OF_ROUTES: f64 = 1.0 - 1e-9;

pub(super) fn quickest(
    fabric: &Fabric,
    faults: &FaultSet,
    first: Layout,
    options: Options,
) -> Result<Layout, PlanError> {
    if options.method != Method::Scan || fabric.hbd.nodes() > MOST_NODES {
        return Ok(first);
    }
    let Some((used, seconds)) = estimate(fabric, faults, &first, options)? else {
        return Ok(first);
    };
    let needed = first.groups.iter().filter(|group| group.job.is_some());
    let needed = needed.map(|group| group.nodes.len()).sum();
    let worth = if fabric.dcn.direct().is_some() { WORTH_OF_ROUTES } else { WORTH };
    let search = Search { fabric, faults, used, options };
    let mut best = Best { seconds: seconds * worth, layout: first, idle: Vec::new() };
    for idle in idle_sets(fabric, faults, needed) {
        search.leaving(idle, &mut best);
    }
    // The layout that ignores leaves comes last, so that it loses ties.
    search.blind(&mut best);
    if fabric.hbd.nodes() <= MOST_NODES_ONE_BY_ONE {
        search.one_by_one(needed, &mut best);
    }
    Ok(best.layout)
}

struct Best {
    seconds: f64,
    layout: Layout,
    idle: Vec<NodeId>,
}

struct Search<'a> {
    fabric: &'a Fabric,
    faults: &'a FaultSet,
    used: u64,
    options: Options,
}

impl Search<'_> {
    fn blind(&self, best: &mut Best) {
        if let Ok(layout) = khop::plan(self.fabric, self.faults, Method::Blind) {
            self.offer(layout, Vec::new(), best);
        }
    }

    fn leaving(&self, idle: Vec<NodeId>, best: &mut Best) {
        if let Ok(layout) = khop::plan_leaving(self.fabric, self.faults, Method::Scan, &idle) {
            self.offer(layout, idle, best);
        }
    }

    fn offer(&self, layout: Layout, idle: Vec<NodeId>, best: &mut Best) {
        let found = estimate(self.fabric, self.faults, &layout, self.options).ok().flatten();
        if let Some((_, seconds)) =
            found.filter(|(gpus, seconds)| *gpus >= self.used && *seconds < best.seconds)
        {
            *best = Best { seconds, layout, idle };
        }
    }

    fn one_by_one(&self, needed: usize, best: &mut Best) {
        let failed = self.faults.failed_nodes(&self.fabric.hbd);
        let nodes = (0..self.fabric.hbd.nodes()).map(NodeId);
        let nodes: Vec<NodeId> = nodes.filter(|node| !failed.contains(node)).collect();
        loop {
            let (from, before) = (best.idle.clone(), best.seconds);
            if from.len() + needed >= nodes.len() {
                return;
            }
            for node in nodes.iter().filter(|node| !from.contains(node)) {
                let idle = from.iter().chain([node]).copied().collect();
                self.leaving(idle, best);
            }
            if best.seconds >= before {
                return;
            }
        }
    }
}

fn estimate(
    fabric: &Fabric,
    faults: &FaultSet,
    layout: &Layout,
    options: Options,
) -> Result<Option<(u64, f64)>, PlanError> {
    let mut layout = layout.clone();
    let mappings = mapping::mappings(fabric, &mut layout)?;
    if !super::has_placed_step(fabric) {
        return Ok(None);
    }
    layout.name_by_place();
    let plan = khop::to_document(fabric, faults, options.seed, &layout);
    let (used, mut ranks) = (plan.metrics.gpus_used, plan.ranks);
    mapping::rank_in_best_order(fabric, faults, &mut ranks, &layout, &mappings)?;
    Ok(Some((used, network::estimate(fabric, faults, &phases(fabric, &ranks)?).seconds)))
}

fn idle_sets(fabric: &Fabric, faults: &FaultSet, needed: usize) -> Vec<Vec<NodeId>> {
    let mut leaves: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    let failed = faults.failed_nodes(&fabric.hbd);
    for node in (0..fabric.hbd.nodes()).map(NodeId).filter(|node| !failed.contains(node)) {
        leaves.entry(fabric.dcn.tor_of(node).0).or_default().push(node);
    }
    let widest = leaves.values().map(Vec::len).max().unwrap_or(0);
    let mut sets = Vec::new();
    for most in (1..=widest).rev() {
        let beyond = leaves.values().flat_map(|leaf| leaf.iter().skip(most));
        let of_narrow = leaves.values().filter(|leaf| leaf.len() < most).flatten();
        let at_most: Vec<NodeId> = beyond.copied().collect();
        let exactly: Vec<NodeId> = at_most.iter().chain(of_narrow).copied().collect();
        let wide = leaves.values().filter(|leaf| leaf.len() >= most);
        let of_last = wide.skip(needed.div_ceil(most)).flat_map(|leaf| leaf.iter().take(most));
        let first: Vec<NodeId> = exactly.iter().chain(of_last).copied().collect();
        sets.extend([at_most, exactly, first]);
    }
    if fabric.dcn.direct().is_some() {
        sets.extend(along_cables(&leaves, &failed, fabric, needed));
    }
    sets.retain(|set| !set.is_empty());
    sets
}

const MOST_SKIPPED: usize = 16;

/// Returns the first leaves, or all blocks of 2, 4, 8 or 16 leaves with a failed node. Unless these stay
/// idle, the job may be shifted along the leaves and load some cables twice.
fn along_cables(
    leaves: &BTreeMap<u32, Vec<NodeId>>,
    failed: &BTreeSet<NodeId>,
    fabric: &Fabric,
    needed: usize,
) -> Vec<Vec<NodeId>> {
    let working: usize = leaves.values().map(Vec::len).sum();
    let mut sets: Vec<Vec<NodeId>> = (1..=MOST_SKIPPED)
        .map(|count| leaves.values().take(count).flatten().copied().collect())
        .collect();
    for size in [2, 4, 8, 16] {
        let broken: BTreeSet<u32> =
            failed.iter().map(|node| fabric.dcn.tor_of(*node).0 / size).collect();
        let idle = leaves.iter().filter(|(leaf, _)| broken.contains(&(*leaf / size)));
        sets.push(idle.flat_map(|(_, nodes)| nodes).copied().collect());
    }
    sets.retain(|idle| working - idle.len() >= needed);
    sets
}
