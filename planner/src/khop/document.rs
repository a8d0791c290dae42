// SPDX-License-Identifier: Apache-2.0
//! Conversion between [`Layout`] and the plan document.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::{FaultError, FaultSet};
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Path, Port, hop_for_port};
use lightloom_fabric::plan::{Circuit, Group, JobPlan, Metrics, Plan, Rank, SCHEMA, Transceiver};
use lightloom_units::gcd;
use lightloom_units::id::{BundleId, GpuId, GroupId, NodeId};
use lightloom_units::seed::Seed;

use super::metrics::CrossTor;
use super::{JobOutcome, Layout, RingGroup, Segment, Survey, spare};

/// Converts `layout` to a document that is not yet [sealed](Plan::sealed).
pub fn to_document(fabric: &Fabric, faults: &FaultSet, seed: Seed, layout: &Layout) -> Plan {
    Plan {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        digest: String::new(),
        inputs: Default::default(),
        name: fabric.name.clone(),
        fabric_sha256: fabric.sha256.clone(),
        seed,
        faults: faults.parts(fabric),
        jobs: (0..)
            .zip(&layout.jobs)
            .map(|(index, job)| job_plan(fabric, layout, index, job))
            .collect(),
        groups: layout.groups.iter().map(|group| group_entry(fabric, layout, group)).collect(),
        transceivers: working_bundles(faults, layout).collect(),
        circuits: circuits(&fabric.hbd, faults, layout).collect(),
        ranks: ranks(&fabric.hbd, layout),
        phases: Vec::new(),
        transitions: Vec::new(),
        given_up: Vec::new(),
        weight_sync: Vec::new(),
        metrics: metrics(fabric, faults, layout),
    }
}

fn job_plan(fabric: &Fabric, layout: &Layout, index: u32, job: &JobOutcome) -> JobPlan {
    JobPlan {
        name: job.name.clone(),
        tp: job.tp,
        gpus_wanted: job.gpus_wanted,
        gpus: layout.groups_of(index).count() as u64 * u64::from(job.tp),
        cross_tor_share: layout.cross_tor(fabric, index).share(),
        cross_tor_share_lower_bound: job.cross_tor_bound,
        most_rings: job.most_rings,
        searched: fabric.jobs.get(index as usize).and_then(|job| job.searched.clone()),
    }
}

fn group_entry(fabric: &Fabric, layout: &Layout, group: &RingGroup) -> Group {
    Group {
        id: group.id,
        job: group.job,
        nodes: group.nodes.iter().copied().filter(|node| Some(*node) != group.passing).collect(),
        passing: group.passing.into_iter().collect(),
        ring: layout.ring(&fabric.hbd, group),
    }
}

fn working_bundles<'a>(
    faults: &'a FaultSet,
    layout: &'a Layout,
) -> impl Iterator<Item = Transceiver> + 'a {
    layout
        .paths()
        .filter(|(bundle, _)| {
            !faults.nodes.contains(&bundle.node) && !faults.bundles.contains(bundle)
        })
        .map(|(bundle, path)| Transceiver { bundle, path })
}

fn circuits<'a>(
    hbd: &'a Hbd,
    faults: &'a FaultSet,
    layout: &'a Layout,
) -> impl Iterator<Item = Circuit> + 'a {
    working_bundles(faults, layout).filter_map(|transceiver| {
        let a = selected_port(transceiver.bundle, transceiver.path)?;
        let rises = hop_for_port(hbd.k(), a.bundle.bundle, a.path)? > 0;
        let b = hbd.peer(a)?;
        let answered =
            layout.path(b.bundle) == b.selects() && !faults.nodes.contains(&b.bundle.node);
        (rises && answered).then_some(Circuit { a, b })
    })
}

pub(super) fn selected_port(bundle: BundleId, path: Path) -> Option<Port> {
    match path {
        Path::Loopback => None,
        Path::External1 => Some(Port { bundle, path: 1 }),
        Path::External2 => Some(Port { bundle, path: 2 }),
    }
}

/// Treats each group as a replica; a mapping may assign other dimensions later.
fn ranks(hbd: &Hbd, layout: &Layout) -> Vec<Rank> {
    let mut counted = vec![0; layout.jobs.len()];
    let mut ranks = Vec::new();
    for group in &layout.groups {
        let dp = group.job.map_or(0, |job| {
            counted[job as usize] += 1;
            counted[job as usize] - 1
        });
        let RingGroup { id, job, .. } = *group;
        let gpus = (0..).zip(gpus_by_rank(hbd, group));
        ranks.extend(gpus.map(|(tp, gpu)| Rank {
            gpu,
            group: id,
            job,
            tp,
            pp: 0,
            dp,
            cp: 0,
            ep: 0,
        }));
    }
    ranks
}

pub(crate) fn gpus_by_rank(hbd: &Hbd, group: &RingGroup) -> Vec<GpuId> {
    match group.segment {
        Some(Segment { first, gpus }) => (first..first + gpus)
            .map(|gpu| GpuId { node: group.ranks[0], gpu: gpu % hbd.gpus_per_node() })
            .collect(),
        None => group
            .ranks
            .iter()
            .flat_map(|node| (0..hbd.gpus_per_node()).map(|gpu| GpuId { node: *node, gpu }))
            .collect(),
    }
}

fn metrics(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> Metrics {
    let survey = Survey::new(&fabric.hbd, faults);
    let (mut used, mut spare) = (0, 0);
    for group in &layout.groups {
        let gpus = u64::from(group.gpus(fabric.hbd.gpus_per_node()));
        *(if group.job.is_some() { &mut used } else { &mut spare }) += gpus;
    }
    let drained = fabric.drained_nodes(faults) as u64 * u64::from(fabric.hbd.gpus_per_node());
    let (total, healthy) = (fabric.gpus(), survey.healthy_gpus() + drained);
    // If every step names its leaves, no job is placed, so placement cannot waste GPUs.
    let is_placed = fabric.jobs.is_empty() || fabric.jobs.iter().any(Job::is_placed);
    let wasted = if is_placed { healthy - used - spare } else { 0 };
    let has_spares = spare::are_wanted(fabric);
    let passing = layout.groups.iter().filter(|group| group.passing.is_some()).count() as u64;
    let rings = layout.groups.iter().filter(|group| group.segment.is_none());
    let without_spare =
        rings.filter(|group| !spare::stands_in_for_all(fabric, &survey, group)).count() as u64;
    let crossing: CrossTor =
        (0..).zip(&layout.jobs).map(|(job, _)| layout.cross_tor(fabric, job)).sum();
    Metrics {
        gpus_total: total,
        gpus_faulty: total - healthy,
        gpus_used: used,
        gpus_spare: spare,
        gpus_wasted: wasted,
        gpus_passing: has_spares.then(|| passing * u64::from(fabric.hbd.gpus_per_node())),
        rings_without_spare: has_spares.then_some(without_spare),
        waste_ratio: wasted as f64 / total as f64,
        waste_ratio_lower_bound: unavoidable(layout, healthy, drained) as f64 / total as f64,
        cross_tor_share: crossing.share(),
        cross_tor_share_lower_bound: crossing_bound(fabric, layout),
        step_time_ps: None,
        static_step_time_ps: None,
        dark_port_time_share: None,
        orchestration_gain: None,
        orchestration_gain_upper_bound: None,
    }
}

fn crossing_bound(fabric: &Fabric, layout: &Layout) -> Option<f64> {
    let mut all = (0.0, 0_u64);
    for (index, job) in (0..).zip(&layout.jobs) {
        let hops = layout.cross_tor(fabric, index).hops;
        all = (all.0 + job.cross_tor_bound? * hops as f64, all.1 + hops);
    }
    let (bound, hops) = all;
    (!layout.jobs.is_empty()).then(|| if hops == 0 { 0.0 } else { bound / hops as f64 })
}

fn unavoidable(layout: &Layout, healthy: u64, drained: u64) -> u64 {
    let divisor = layout.jobs.iter().map(|job| u64::from(job.tp)).fold(0, gcd);
    if divisor == 0 { 0 } else { drained + (healthy - drained) % divisor }
}

/// Why a document is not a plan for this fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum DocumentError {
    #[error("this is `{0}`, not `{SCHEMA}`: make a new plan with this version")]
    Schema(String),
    #[error(
        "the plan is for fabric {plan:.12}…, not for {fabric:.12}…: make a new plan, or use its fabric file"
    )]
    OtherFabric { plan: String, fabric: String },
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error("{what} does not exist in this fabric")]
    NoSuchPart { what: String },
    #[error("{group}: no selected fibre connects {from} and {to}")]
    NotJoined { group: GroupId, from: NodeId, to: NodeId },
    #[error("{group}: its GPUs do not each have exactly one rank")]
    Ranks { group: GroupId },
}

/// Reads the layout and the faults from `plan`.
///
/// Reads only the fields that replanning needs; [`crate::check`] validates the plan.
///
/// # Errors
/// Fails if the plan is for another fabric or version, or if its parts contradict each other.
pub fn from_document(fabric: &Fabric, plan: &Plan) -> Result<(Layout, FaultSet), DocumentError> {
    if plan.schema != SCHEMA {
        return Err(DocumentError::Schema(plan.schema.clone()));
    }
    if plan.fabric_sha256 != fabric.sha256 {
        let (plan, fabric) = (plan.fabric_sha256.clone(), fabric.sha256.clone());
        return Err(DocumentError::OtherFabric { plan, fabric });
    }
    let faults = FaultSet::of(fabric, plan.faults.iter().copied())?;
    let mut layout = Layout::dark(fabric);
    for transceiver in &plan.transceivers {
        let bundle = transceiver.bundle;
        if bundle.node.0 >= fabric.hbd.nodes() || bundle.bundle >= fabric.hbd.k() {
            return Err(DocumentError::NoSuchPart { what: bundle.to_string() });
        }
        layout.set_path(bundle, transceiver.path);
    }
    layout.jobs = plan.jobs.iter().map(outcome).collect();
    let ranked = nodes_by_rank(fabric, plan)?;
    for (group, ranks) in plan.groups.iter().zip(ranked) {
        let group = read_group(fabric, &layout, group, ranks)?;
        layout.groups.push(group);
    }
    layout.keep_ids(plan.groups.iter().map(|group| group.id));
    Ok((layout, faults))
}

fn outcome(job: &JobPlan) -> JobOutcome {
    JobOutcome {
        name: job.name.clone(),
        tp: job.tp,
        gpus_wanted: job.gpus_wanted,
        cross_tor_bound: job.cross_tor_share_lower_bound,
        most_rings: job.most_rings,
    }
}

fn nodes_by_rank(fabric: &Fabric, plan: &Plan) -> Result<Vec<Vec<NodeId>>, DocumentError> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let mut ranked: Vec<Vec<Option<NodeId>>> =
        plan.groups.iter().map(|group| vec![None; group.nodes.len()]).collect();
    let places: BTreeMap<GroupId, usize> =
        plan.groups.iter().enumerate().map(|(place, group)| (group.id, place)).collect();
    for rank in &plan.ranks {
        let place = places.get(&rank.group).copied();
        let slot = place
            .and_then(|place| ranked.get_mut(place))
            .and_then(|nodes| nodes.get_mut((rank.tp / per_node) as usize))
            .ok_or(DocumentError::Ranks { group: rank.group })?;
        *slot = Some(rank.gpu.node);
    }
    let complete = plan.groups.iter().zip(ranked).map(|(group, nodes)| {
        let nodes: Option<Vec<NodeId>> = nodes.into_iter().collect();
        nodes.ok_or(DocumentError::Ranks { group: group.id })
    });
    complete.collect()
}

fn read_group(
    fabric: &Fabric,
    layout: &Layout,
    group: &Group,
    ranks: Vec<NodeId>,
) -> Result<RingGroup, DocumentError> {
    let hbd = &fabric.hbd;
    for node in group.nodes.iter().chain(&group.passing) {
        if node.0 >= hbd.nodes() {
            return Err(DocumentError::NoSuchPart { what: node.to_string() });
        }
    }
    let passing = group.passing.first().copied();
    let (nodes, hops) = match (hbd.k(), passing) {
        (0, _) => (group.nodes.clone(), Vec::new()),
        (_, None) => {
            let hops = hops_along(hbd, layout, &group.nodes)
                .map_err(|(from, to)| DocumentError::NotJoined { group: group.id, from, to })?;
            (group.nodes.clone(), hops)
        }
        (_, Some(node)) => with_passing(hbd, layout, group, node)?,
    };
    let segment = (group.ring.len() < usize::from(hbd.gpus_per_node())).then(|| Segment {
        first: group.ring.first().map_or(0, |gpu| gpu.gpu),
        gpus: u8::try_from(group.ring.len()).expect("fewer than a node's GPUs"),
    });
    let Group { id, job, .. } = *group;
    Ok(RingGroup { id, job, nodes, hops, ranks, segment, passing })
}

fn hops_along(hbd: &Hbd, layout: &Layout, nodes: &[NodeId]) -> Result<Vec<Hop>, (NodeId, NodeId)> {
    let pairs = nodes.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.map(|(from, to)| lit_hop(hbd, layout, from, to).ok_or((from, to))).collect()
}

fn with_passing(
    hbd: &Hbd,
    layout: &Layout,
    group: &Group,
    passing: NodeId,
) -> Result<(Vec<NodeId>, Vec<Hop>), DocumentError> {
    let chains = (0..=group.nodes.len()).rev().map(|place| {
        let mut nodes = group.nodes.clone();
        nodes.insert(place, passing);
        nodes
    });
    let joined = chains.filter_map(|nodes| Some((hops_along(hbd, layout, &nodes).ok()?, nodes)));
    let best = joined.min_by_key(|(hops, _)| hops.iter().any(|hop| *hop < 0));
    let from = group.nodes.last().copied().unwrap_or(passing);
    let not_joined = DocumentError::NotJoined { group: group.id, from, to: passing };
    best.map(|(hops, nodes)| (nodes, hops)).ok_or(not_joined)
}

fn lit_hop(hbd: &Hbd, layout: &Layout, from: NodeId, to: NodeId) -> Option<Hop> {
    let ports = (0..hbd.k()).filter_map(|bundle| {
        let bundle = BundleId { node: from, bundle };
        selected_port(bundle, layout.path(bundle))
    });
    ports.into_iter().find_map(|port| {
        let far = hbd.peer(port).filter(|far| far.bundle.node == to)?;
        (layout.path(far.bundle) == far.selects())
            .then(|| hop_for_port(hbd.k(), port.bundle.bundle, port.path))
            .flatten()
    })
}
