// SPDX-License-Identifier: Apache-2.0
//! The groups of a plan and the path of every bundle.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fabric::{Job, JobSize};
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Path, Position};
use lightloom_fabric::plan::RingProof;
use lightloom_units::id::{BundleId, GroupId, NodeId};

use super::grouping::hop_up;
use super::metrics::{CrossTor, cross_tor};
use super::ring;

/// A group of adjacent GPUs in the GPU ring of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first GPU.
    pub first: u8,
    /// Number of consecutive GPUs from `first`, at most R − 1.
    pub gpus: u8,
}

/// The GPUs of one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingGroup {
    /// Does not change while the group exists. [`GroupId::default`] until the group is in a layout.
    pub id: GroupId,
    /// Index of the job. `None` for a spare ring.
    pub job: Option<u32>,
    /// Nodes in chain order.
    pub nodes: Vec<NodeId>,
    /// Hops between consecutive nodes, one fewer than `nodes`. Empty without fibres between them.
    pub hops: Vec<Hop>,
    /// Nodes in rank order, where rank = index × R + GPU. A replacement node inherits the rank.
    pub ranks: Vec<NodeId>,
    /// The GPUs of a group smaller than a node. `None` if the group uses its nodes entirely.
    pub segment: Option<Segment>,
    /// The pass-through node, which has no rank. `None` if all nodes have ranks.
    pub passing: Option<NodeId>,
}

impl RingGroup {
    pub(crate) fn chain(hbd: &Hbd, chain: &[Position]) -> Self {
        let nodes: Vec<NodeId> = chain.iter().map(|position| hbd.node_at(*position)).collect();
        let hops = match hbd.k() {
            0 => Vec::new(),
            _ => chain.windows(2).map(|pair| hop_up(pair[0], pair[1], hbd.nodes())).collect(),
        };
        let (id, ranks) = (GroupId::default(), nodes.clone());
        Self { id, job: None, ranks, nodes, hops, segment: None, passing: None }
    }
    pub(crate) fn inside(node: NodeId, segment: Segment) -> Self {
        Self {
            id: GroupId::default(),
            job: None,
            nodes: vec![node],
            hops: Vec::new(),
            ranks: vec![node],
            segment: Some(segment),
            passing: None,
        }
    }
    /// Counts the GPUs that have ranks, on nodes of `gpus_per_node` GPUs.
    pub fn gpus(&self, gpus_per_node: u8) -> u32 {
        match self.segment {
            Some(segment) => u32::from(segment.gpus),
            None => u32::try_from(self.ranks.len()).expect("bounded") * u32::from(gpus_per_node),
        }
    }
}

/// The result of planning one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Name of the job.
    pub name: String,
    /// GPUs per group.
    pub tp: u32,
    /// GPUs requested. `None` if the job takes all available GPUs.
    pub gpus_wanted: Option<u64>,
    /// Lower bound on the share of crossing inner hops. `None` if the layout was changed later.
    pub cross_tor_bound: Option<f64>,
    /// Whether the search proved that no more rings exist. `None` for other methods.
    pub most_rings: Option<RingProof>,
}

/// The groups and bundle paths of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    k: u8,
    paths: Vec<Path>,
    next_group: u32,
    /// Rings of jobs in rank order, followed by the spares.
    pub groups: Vec<RingGroup>,
    /// Results in the order of jobs in the file.
    pub jobs: Vec<JobOutcome>,
}

impl Layout {
    /// Creates a layout without groups, with every bundle in loopback (the power-on state).
    pub fn dark(fabric: &Fabric) -> Self {
        let bundles = fabric.hbd.nodes() as usize * usize::from(fabric.hbd.k());
        let paths = vec![Path::Loopback; bundles];
        Self { k: fabric.hbd.k(), paths, next_group: 0, groups: Vec::new(), jobs: Vec::new() }
    }

    /// Returns the path of `bundle`.
    pub fn path(&self, bundle: BundleId) -> Path {
        self.paths[self.slot(bundle)]
    }
    pub(crate) fn set_path(&mut self, bundle: BundleId, path: Path) {
        let slot = self.slot(bundle);
        self.paths[slot] = path;
    }
    fn slot(&self, bundle: BundleId) -> usize {
        bundle.node.index() * usize::from(self.k) + usize::from(bundle.bundle)
    }
    /// Iterates over all bundles in node order.
    pub fn paths(&self) -> impl Iterator<Item = (BundleId, Path)> + '_ {
        let nodes = self.paths.chunks(usize::from(self.k).max(1)).enumerate();
        nodes.flat_map(|(node, paths)| {
            let node = NodeId::from_index(node);
            (0u8..).zip(paths).map(move |(bundle, path)| (BundleId { node, bundle }, *path))
        })
    }

    pub(crate) fn light(&mut self, hbd: &Hbd, group: &RingGroup) {
        if self.k == 0 {
            return;
        }
        for (place, node) in group.nodes.iter().enumerate() {
            let back = place.checked_sub(1).map(|before| -group.hops[before]);
            let forward = group.hops.get(place).copied();
            for bundle in 0..self.k {
                let id = BundleId { node: *node, bundle };
                self.set_path(id, bundle_path(hbd, *node, bundle, [back, forward]));
            }
        }
    }

    pub(crate) fn add_groups(
        &mut self,
        fabric: &Fabric,
        job: Option<u32>,
        groups: Vec<RingGroup>,
        free: &mut [bool],
    ) {
        for mut group in groups {
            for node in &group.nodes {
                free[fabric.hbd.position_of(*node).index()] = false;
            }
            self.light(&fabric.hbd, &group);
            group.id = self.next_id();
            group.job = job;
            self.groups.push(group);
        }
    }

    pub(crate) fn add_job(
        &mut self,
        fabric: &Fabric,
        job: &Job,
        index: u32,
        cross_tor_bound: f64,
        groups: Vec<RingGroup>,
        free: &mut [bool],
    ) {
        self.jobs.push(JobOutcome {
            name: job.name.clone(),
            tp: job.tp,
            gpus_wanted: match job.size {
                JobSize::All => None,
                JobSize::Gpus(gpus) => Some(gpus),
            },
            cross_tor_bound: Some(cross_tor_bound),
            most_rings: None,
        });
        self.add_groups(fabric, Some(index), groups, free);
    }

    pub(crate) fn release(&mut self, job: u32, kept: usize) {
        let mut number = 0;
        for group in self.groups.iter_mut().filter(|group| group.job == Some(job)) {
            number += 1;
            if number > kept {
                group.job = None;
            }
        }
        self.order_by_job();
    }

    pub(crate) fn order_by_job(&mut self) {
        self.groups.sort_by_key(|group| group.job.is_none());
    }

    pub(crate) fn next_id(&mut self) -> GroupId {
        let id = GroupId(self.next_group);
        self.next_group += 1;
        id
    }

    pub(crate) fn keep_ids(&mut self, ids: impl Iterator<Item = GroupId>) {
        let next = ids.map(|id| id.0.saturating_add(1)).max();
        self.next_group = self.next_group.max(next.unwrap_or(0));
    }

    /// Numbers the groups of a new plan, which has no identifiers to preserve.
    pub(crate) fn name_by_place(&mut self) {
        for (group, id) in self.groups.iter_mut().zip(0..) {
            group.id = GroupId(id);
        }
    }

    /// Iterates over the groups of one job, in rank order.
    pub fn groups_of(&self, job: u32) -> impl Iterator<Item = &RingGroup> {
        self.groups.iter().filter(move |group| group.job == Some(job))
    }

    /// Returns the GPUs of `group` in ring order.
    pub fn ring(&self, hbd: &Hbd, group: &RingGroup) -> Vec<lightloom_units::id::GpuId> {
        let mut ring = self.way_of_light(hbd, group);
        ring.retain(|gpu| Some(gpu.node) != group.passing);
        ring
    }

    /// Returns the GPUs on the light path of `group`, including pass-through GPUs.
    pub fn way_of_light(&self, hbd: &Hbd, group: &RingGroup) -> Vec<lightloom_units::id::GpuId> {
        ring::walk(hbd, self, group)
    }

    /// Counts the inner data-parallel hops of one job, and how many of them cross ToRs.
    pub fn cross_tor(&self, fabric: &Fabric, job: u32) -> CrossTor {
        cross_tor(&fabric.dcn, self.groups_of(job).map(|group| group.ranks.as_slice()))
    }
}

pub(crate) fn bundle_path(hbd: &Hbd, node: NodeId, bundle: u8, hops: [Option<Hop>; 2]) -> Path {
    let ports = hops.into_iter().flatten().map(|hop| hbd.port(node, hop));
    let mut lit = ports.filter(|port| port.bundle.bundle == bundle);
    let path = lit.next().map_or(Path::Loopback, |port| port.selects());
    assert!(lit.next().is_none(), "{node}: one bundle cannot hold two hops");
    path
}

/// Counts the bundles of `node` whose path in `layout` differs from the one that `hops` need.
pub(crate) fn switched_bundles(
    hbd: &Hbd,
    layout: &Layout,
    node: NodeId,
    hops: [Option<Hop>; 2],
) -> u32 {
    let switched = (0..hbd.k()).filter(|bundle| {
        let id = BundleId { node, bundle: *bundle };
        layout.path(id) != bundle_path(hbd, node, *bundle, hops)
    });
    u32::try_from(switched.count()).expect("at most K")
}
