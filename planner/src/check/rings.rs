// SPDX-License-Identifier: Apache-2.0
//! Checks that every group is a single cycle through all its GPUs.
//!
//! A connected graph is a cycle exactly if every vertex has degree two, so it suffices to check
//! degrees and connectivity (union-find over lit edges).

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::StepFile;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::{Group, Plan};
use lightloom_units::id::{BundleId, GpuId, GroupId, NodeId};
use petgraph::unionfind::UnionFind;
use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::links::Lit;

struct GpuGraph {
    gpus_per_node: u8,
    is_without_fibres: bool,
    neighbours: Vec<Vec<u32>>,
    parts: UnionFind<u32>,
    part_sizes: Vec<u32>,
}

impl GpuGraph {
    fn new(fabric: &Fabric, lit: &Lit) -> Self {
        let gpus = fabric.hbd.nodes() as usize * usize::from(fabric.hbd.gpus_per_node());
        let mut graph = Self {
            gpus_per_node: fabric.hbd.gpus_per_node(),
            is_without_fibres: fabric.hbd.k() == 0,
            neighbours: vec![Vec::with_capacity(2); gpus],
            parts: UnionFind::new(gpus),
            part_sizes: vec![0; gpus],
        };
        for node in (0..fabric.hbd.nodes()).map(NodeId) {
            for edge in 0..graph.gpus_per_node {
                graph.add_ring_edge(fabric, lit, node, edge);
            }
        }
        for gpu in 0..u32::try_from(gpus).expect("bounded by the fabric") {
            graph.part_sizes[graph.parts.find(gpu) as usize] += 1;
        }
        graph
    }

    /// Adds a circuit only at the end with the lower bundle identifier.
    fn add_ring_edge(&mut self, fabric: &Fabric, lit: &Lit, node: NodeId, edge: u8) {
        let [lower, upper] = self.ends_of(node, edge);
        let bundle = fabric.hbd.bundle_on_edge(edge).map(|bundle| BundleId { node, bundle });
        let Some(bundle) = bundle else {
            return self.join(lower, upper);
        };
        match (lit.path(bundle), lit.far_end(bundle)) {
            (Some(Path::Loopback), _) => self.join(lower, upper),
            (Some(_), Some(far)) if bundle < far.bundle => {
                let far_edge = fabric.hbd.ring_edge(far.bundle.bundle);
                let [far_lower, far_upper] = self.ends_of(far.bundle.node, far_edge);
                self.join(lower, far_lower);
                self.join(upper, far_upper);
            }
            _ => {}
        }
    }

    fn ends_of(&self, node: NodeId, edge: u8) -> [GpuId; 2] {
        [edge, edge + 1].map(|gpu| GpuId { node, gpu: gpu % self.gpus_per_node })
    }

    fn node_of(&self, gpu: u32) -> NodeId {
        NodeId(gpu / u32::from(self.gpus_per_node))
    }

    fn join(&mut self, a: GpuId, b: GpuId) {
        let (a, b) = (self.index(a), self.index(b));
        self.neighbours[a as usize].push(b);
        self.neighbours[b as usize].push(a);
        self.parts.union(a, b);
    }

    fn index(&self, gpu: GpuId) -> u32 {
        gpu.node.0 * u32::from(self.gpus_per_node) + u32::from(gpu.gpu)
    }
    fn joins_through(&self, from: GpuId, to: GpuId, passing: &[NodeId]) -> bool {
        let (from, to) = (self.index(from), self.index(to));
        let starts = self.neighbours[from as usize].iter();
        starts.filter(|gpu| passing.contains(&self.node_of(**gpu))).any(|start| {
            let (mut before, mut at) = (from, *start);
            for _ in 0..passing.len() * usize::from(self.gpus_per_node) {
                let next = self.neighbours[at as usize].iter().find(|gpu| **gpu != before);
                match next.copied() {
                    Some(gpu) if gpu == to => return true,
                    Some(gpu) if passing.contains(&self.node_of(gpu)) => (before, at) = (at, gpu),
                    _ => return false,
                }
            }
            false
        })
    }
    fn are_neighbours(&self, a: GpuId, b: GpuId) -> bool {
        self.neighbours[self.index(a) as usize].contains(&self.index(b))
    }
}

pub(super) fn check(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    lit: &Lit,
    found: &mut Vec<Violation>,
) {
    let graph = GpuGraph::new(fabric, lit);
    let mut group_of = vec![None; graph.neighbours.len()];
    let failed = faults.failed_nodes(&fabric.hbd);
    let mut names = BTreeSet::new();
    let mut is_spare_before = false;
    for group in &plan.groups {
        if !names.insert(group.id) {
            found.push(Violation::GroupTwice { group: group.id });
        }
        if is_spare_before && group.job.is_some() {
            found.push(Violation::GroupOutOfPlace { group: group.id });
        }
        is_spare_before |= group.job.is_none();
        let before = found.len();
        check_parts(fabric, &failed, plan, group, found);
        if found.len() == before {
            claim_gpus(&graph, group, &mut group_of, found);
            check_ring(&graph, group, found);
            check_island(fabric, group, found);
        }
    }
    check_ranks(plan, found);
    check_replicas(fabric, plan, found);
}

/// If a job has only data-parallel groups, the plan must list them in replica order.
fn check_replicas(fabric: &Fabric, plan: &Plan, found: &mut Vec<Violation>) {
    let replica: BTreeMap<GroupId, [u32; 4]> =
        plan.ranks.iter().map(|rank| (rank.group, [rank.dp, rank.pp, rank.cp, rank.ep])).collect();
    let mut counted: BTreeMap<u32, u32> = BTreeMap::new();
    for group in &plan.groups {
        let Some(job) = group.job else { continue };
        let number = counted.entry(job).or_default();
        let step = fabric.jobs.get(job as usize).and_then(|job| job.step.as_ref());
        let is_mapped = matches!(step, Some(StepFile::Training(_)));
        if !is_mapped && replica.get(&group.id) != Some(&[*number, 0, 0, 0]) {
            found.push(Violation::GroupOutOfPlace { group: group.id });
        }
        *number += 1;
    }
}

fn check_parts(
    fabric: &Fabric,
    failed: &BTreeSet<NodeId>,
    plan: &Plan,
    group: &Group,
    found: &mut Vec<Violation>,
) {
    let nodes = group.nodes.iter().copied().filter(|node| node.0 >= fabric.hbd.nodes());
    found.extend(nodes.map(Violation::NoSuchNode));
    let passing = group.passing.iter().copied().filter(|node| node.0 >= fabric.hbd.nodes());
    found.extend(passing.map(Violation::NoSuchNode));
    let gpus = group.ring.iter().copied();
    let outside = gpus
        .filter(|gpu| gpu.node.0 >= fabric.hbd.nodes() || gpu.gpu >= fabric.hbd.gpus_per_node());
    found.extend(outside.map(Violation::NoSuchGpu));
    let broken = group.nodes.iter().filter(|node| failed.contains(node));
    found.extend(broken.map(|node| Violation::BrokenNodeUsed { group: group.id, node: *node }));
    if let Some(job) = group.job {
        let own = fabric.jobs.get(job as usize).and_then(|job| job.nodes.as_ref());
        let foreign = group.nodes.iter().find(|node| own.is_some_and(|own| !own.contains(node)));
        found.extend(foreign.map(|node| Violation::NodeOfOthers { group: group.id, node: *node }));
        match plan.jobs.get(job as usize) {
            None => found.push(Violation::NoSuchJob { group: group.id, job }),
            Some(entry) if group.ring.len() != entry.tp as usize => {
                let gpus = group.ring.len();
                found.push(Violation::GroupSize { group: group.id, gpus, tp: entry.tp });
            }
            Some(_) => {}
        }
    }
}

fn claim_gpus(
    graph: &GpuGraph,
    group: &Group,
    group_of: &mut [Option<GroupId>],
    found: &mut Vec<Violation>,
) {
    let passing = group
        .passing
        .iter()
        .flat_map(|node| (0..graph.gpus_per_node).map(|gpu| GpuId { node: *node, gpu }));
    for gpu in group.ring.iter().copied().chain(passing) {
        let owner = &mut group_of[graph.index(gpu) as usize];
        if let Some(first) = owner.replace(group.id) {
            found.push(Violation::GpuInTwoGroups { gpu, first, second: group.id });
        }
    }
}

fn check_ring(graph: &GpuGraph, group: &Group, found: &mut Vec<Violation>) {
    let inside_one_node = group.ring.len() < usize::from(graph.gpus_per_node);
    let mut nodes: Vec<NodeId> = group.ring.iter().map(|gpu| gpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut listed = group.nodes.clone();
    listed.sort_unstable();
    let whole = nodes.len() * usize::from(graph.gpus_per_node) == group.ring.len();
    if nodes != listed || !(whole || inside_one_node && nodes.len() == 1) {
        found.push(Violation::RingIncomplete { group: group.id });
        return;
    }
    if graph.is_without_fibres {
        return;
    }
    if !inside_one_node {
        check_cycle(graph, group, found);
    }
    let closing = if inside_one_node { None } else { Some((group.ring.len() - 1, 0)) };
    let pairs = (1..group.ring.len()).map(|i| (i - 1, i)).chain(closing);
    for (from, to) in pairs.map(|(a, b)| (group.ring[a], group.ring[b])) {
        if !graph.are_neighbours(from, to) && !graph.joins_through(from, to, &group.passing) {
            found.push(Violation::NotNeighbours { group: group.id, from, to });
        }
    }
}

fn check_island(fabric: &Fabric, group: &Group, found: &mut Vec<Violation>) {
    let Some(&first) = group.ring.first() else { return };
    let island = fabric.hbd.island_of(first, group.id.0);
    for &gpu in &group.ring {
        if fabric.hbd.island_of(gpu, group.id.0) != island {
            found.push(Violation::OtherIsland { group: group.id, gpu, first });
        }
    }
}

fn check_cycle(graph: &GpuGraph, group: &Group, found: &mut Vec<Violation>) {
    let part = graph.parts.find(graph.index(group.ring[0]));
    let passing = group.passing.len() * usize::from(graph.gpus_per_node);
    if graph.part_sizes[part as usize] as usize != group.ring.len() + passing {
        found.push(Violation::NotOneCycle { group: group.id, gpu: group.ring[0] });
    }
    for gpu in &group.ring {
        let neighbours = graph.neighbours[graph.index(*gpu) as usize].len();
        if neighbours != 2 {
            found.push(Violation::Degree { group: group.id, gpu: *gpu, neighbours });
        } else if graph.parts.find(graph.index(*gpu)) != part {
            found.push(Violation::NotOneCycle { group: group.id, gpu: *gpu });
        }
    }
}

fn check_ranks(plan: &Plan, found: &mut Vec<Violation>) {
    let mut ranked: Vec<Vec<Option<GpuId>>> =
        plan.groups.iter().map(|group| vec![None; group.ring.len()]).collect();
    let places: BTreeMap<GroupId, usize> =
        plan.groups.iter().enumerate().map(|(place, group)| (group.id, place)).collect();
    for rank in &plan.ranks {
        let place = places.get(&rank.group).copied();
        let slot = place.and_then(|place| ranked[place].get_mut(rank.tp as usize));
        if slot.is_none_or(|slot| slot.replace(rank.gpu).is_some()) {
            found.push(Violation::Ranks { group: rank.group });
        }
    }
    for (group, ranked) in plan.groups.iter().zip(ranked) {
        let mut ring: Vec<Option<GpuId>> = group.ring.iter().copied().map(Some).collect();
        let mut ranked = ranked;
        ring.sort_unstable();
        ranked.sort_unstable();
        if ring != ranked {
            found.push(Violation::Ranks { group: group.id });
        }
    }
}
