// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::dcn::{FatTree, Order};
use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{KhopRing, Shape};
use lightloom_fabric::plan::Plan;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) struct FabricSpec {
    pub nodes: u32,
    pub gpus_per_node: u8,
    pub k: u8,
    pub shape: Shape,
    pub order: Order,
    pub per_tor: u32,
    pub per_domain: u32,
    pub tp: u32,
}

impl Default for FabricSpec {
    fn default() -> Self {
        Self {
            nodes: 16,
            gpus_per_node: 4,
            k: 2,
            shape: Shape::Ring,
            order: Order::SubLines,
            per_tor: 4,
            per_domain: 8,
            tp: 16,
        }
    }
}

pub(crate) fn fabric(spec: &FabricSpec) -> Fabric {
    let line = spec.order.line(spec.nodes, spec.per_tor);
    let ring = KhopRing::new(spec.gpus_per_node, spec.k, spec.shape, line).unwrap();
    let tree = FatTree {
        nodes_per_tor: spec.per_tor,
        tors_per_domain: spec.per_domain,
        ..FatTree::default()
    };
    let job = Job {
        name: "all".into(),
        size: JobSize::All,
        tp: spec.tp,
        step: None,
        searched: None,
        least: None,
        nodes: None,
    };
    let fabric = Fabric::of_ring("test", ring, spec.order, tree, vec![job]);
    Fabric { sha256: "f".repeat(64), ..fabric }
}

/// Counts all and crossing inner hops of a job from the ranks in the document. Equal ranks of p
/// consecutive groups form a ring.
pub(crate) fn counted(document: &Plan, job: u32, per_tor: u32) -> (u64, u64) {
    let mut racks: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for rank in &document.ranks {
        racks.insert((rank.group.0, rank.tp), rank.gpu.node.0 / per_tor);
    }
    let mine: Vec<u32> =
        document.groups.iter().filter(|g| g.job == Some(job)).map(|g| g.id.0).collect();
    let (mut hops, mut crossing) = (0, 0);
    for set in mine.chunks(per_tor as usize) {
        if set.len() == 1 {
            continue;
        }
        for rank in 0..document.jobs[job as usize].tp {
            let around: Vec<u32> = set.iter().map(|group| racks[&(*group, rank)]).collect();
            let turned = around.iter().cycle().skip(1);
            hops += around.len() as u64;
            crossing += around.iter().zip(turned).filter(|(a, b)| a != b).count() as u64;
        }
    }
    (hops, crossing)
}

pub(crate) fn faults_of(fabric: &Fabric, names: &[&str]) -> FaultSet {
    FaultSet::of(fabric, names.iter().map(|name| name.parse().unwrap())).unwrap()
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    spec: FabricSpec,
    more_jobs: Vec<u32>,
    dead: Vec<prop::sample::Index>,
    bundles: Vec<(prop::sample::Index, u8)>,
    fibres: Vec<prop::sample::Index>,
}

impl Case {
    pub(crate) fn build(&self) -> (Fabric, FaultSet) {
        let mut fabric = fabric(&self.spec);
        for tp in &self.more_jobs {
            fabric.jobs.push(Job {
                name: format!("tp{tp}"),
                size: JobSize::All,
                tp: *tp,
                step: None,
                searched: None,
                least: None,
                nodes: None,
            });
        }
        let mut faults = FaultSet::none();
        let nodes = fabric.hbd.nodes() as usize;
        let node = |index: &prop::sample::Index| {
            lightloom_units::id::NodeId::from_index(index.index(nodes))
        };
        faults.nodes.extend(self.dead.iter().map(node));
        for (index, bundle) in &self.bundles {
            let bundle =
                lightloom_units::id::BundleId { node: node(index), bundle: bundle % self.spec.k };
            faults.bundles.insert(bundle);
        }
        let all: Vec<_> = fabric.hbd.fibres().collect();
        if !all.is_empty() {
            faults.fibres.extend(self.fibres.iter().map(|index| *index.get(&all)));
        }
        (fabric, faults)
    }
}

pub(crate) fn arbitrary_case() -> impl Strategy<Value = Case> {
    let spec = (1u32..40, 2u8..=8, 2u8..=8, any::<[bool; 2]>(), 1u32..6, 1u32..5).prop_flat_map(
        |(nodes, gpus_per_node, k, [ring, spread], per_tor, per_domain)| {
            let k = k.min(gpus_per_node);
            let gpus = u32::from(gpus_per_node);
            let tp = prop_oneof![1..=gpus, (1u32..6).prop_map(move |m| m * gpus)];
            tp.prop_map(move |tp| FabricSpec {
                nodes,
                gpus_per_node,
                k,
                shape: if ring { Shape::Ring } else { Shape::Line },
                order: if spread { Order::SubLines } else { Order::Sequential },
                per_tor,
                per_domain,
                tp,
            })
        },
    );
    (
        spec,
        prop::collection::vec(1u32..=2, 0..2),
        prop::collection::vec(index_strategy(), 0..8),
        prop::collection::vec((index_strategy(), 0u8..8), 0..3),
        prop::collection::vec(index_strategy(), 0..5),
    )
        .prop_map(|(spec, more_jobs, dead, bundles, fibres)| Case {
            spec,
            more_jobs,
            dead,
            bundles,
            fibres,
        })
}

fn index_strategy() -> impl Strategy<Value = prop::sample::Index> {
    any::<prop::sample::Index>()
}
