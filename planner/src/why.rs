// SPDX-License-Identifier: Apache-2.0
//! Attributes every wasted GPU of a plan to a cause, and proves remedies by planning the changed fabric.
//!
//! The working nodes are divided into *places* that groups cannot leave: nodes connected by fibres, an island, or the
//! whole fabric. A failed part is tried as a remedy only for the places next to it.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::file::StepFile;
use lightloom_fabric::hbd::{Grouping, Hbd};
use lightloom_fabric::khop::{KhopRing, Position, Shape};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;
use petgraph::unionfind::UnionFind;
use serde::Serialize;

use crate::Options;

/// Why GPUs are wasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WasteCause {
    /// Failed parts: a repair makes the GPUs usable.
    Fault,
    /// The nodes are drained, or next to drained nodes.
    Drained,
    /// A choice: the reach K, spare nodes, or groups that keep peers below one ToR.
    Limit,
    /// The number of nodes is not a multiple of the group size.
    Shape,
}

/// A change that reduces the waste.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant documents its fields")]
pub enum WasteChange {
    /// Repair these parts, or return them to service if they are drained.
    Repair { parts: Vec<Part> },
    /// Place groups without regard to ToRs (`plan --separately`).
    IgnoreTors,
    /// Plan rings without spare nodes (`spare_per_ring: 0`).
    NoSpares,
    /// Use groups of `tp` GPUs for the job.
    GroupSize { job: String, tp: u32 },
    /// Add transceivers and fibres for this reach.
    Reach { k: u8 },
}

/// A change and its proven gain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WasteRemedy {
    /// The change.
    #[serde(flatten)]
    pub change: WasteChange,
    /// Additional GPUs in groups of the whole plan. Gains of several remedies do not add up.
    pub gpus_gained: u64,
}

/// Wasted GPUs with the same cause and remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WastedGpus {
    /// The cause.
    pub cause: WasteCause,
    /// Number of GPUs.
    pub gpus_wasted: u64,
    /// Their nodes.
    pub nodes: Vec<NodeId>,
    /// Remedies, cheapest first: fewest parts to return or repair, other settings, a longer reach.
    pub remedies: Vec<WasteRemedy>,
}

/// Attributes the wasted GPUs of `plan`, which was made with the same arguments. The numbers add up to the waste.
pub fn wasted(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    options: Options,
) -> Vec<WastedGpus> {
    if plan.metrics.gpus_wasted == 0 {
        return Vec::new();
    }
    let places = GroupPlaces::of(fabric, faults);
    let are_apart = places.0.iter().flatten().collect::<BTreeSet<_>>().len() > 1;
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let sizes = fabric.jobs.iter().filter(|job| job.is_placed());
    let smallest = sizes.map(|job| (job.tp / per_node).max(1) as usize).min();
    let study = RemedySearch { fabric, faults, options, in_groups: in_groups(plan) };
    let settings = study.settings();
    let (drained, parts) = (fabric.drained.failed_nodes(&fabric.hbd), fabric.drained.parts(fabric));
    let returned: Vec<WasteRemedy> = study.repair(parts.clone()).into_iter().collect();
    let passing: BTreeSet<NodeId> =
        plan.groups.iter().flat_map(|group| &group.passing).copied().collect();
    let mut rows: Vec<WastedGpus> = Vec::new();
    let mut idle: BTreeMap<u32, Vec<(NodeId, u64)>> = BTreeMap::new();
    for (node, gpus) in idle_gpus(fabric, faults, plan) {
        if drained.contains(&node) {
            add(&mut rows, WasteCause::Drained, &[(node, gpus)], returned.clone());
        } else if passing.contains(&node) {
            let spares = settings.iter().filter(|remedy| remedy.change == WasteChange::NoSpares);
            add(&mut rows, WasteCause::Limit, &[(node, gpus)], spares.cloned().collect());
        } else {
            idle.entry(places.of_node(fabric, node)).or_default().push((node, gpus));
        }
    }
    for (place, nodes) in idle {
        let repair = study.repair(places.next_to(fabric, faults, place));
        let has_room = smallest.is_some_and(|smallest| nodes.len() >= smallest);
        let mut remedies = settings.clone();
        remedies.retain(|remedy| match remedy.change {
            WasteChange::Reach { .. } => has_room || are_apart,
            WasteChange::IgnoreTors => has_room,
            _ => true,
        });
        let is_limit =
            remedies.iter().any(|one| !matches!(one.change, WasteChange::GroupSize { .. }));
        let cause = match repair.as_ref().map(|repair| &repair.change) {
            Some(WasteChange::Repair { parts: own })
                if own.iter().all(|part| parts.contains(part)) =>
            {
                WasteCause::Drained
            }
            Some(_) => WasteCause::Fault,
            None if is_limit => WasteCause::Limit,
            None => WasteCause::Shape,
        };
        remedies.splice(0..0, repair);
        add(&mut rows, cause, &nodes, remedies);
    }
    rows
}

fn add(
    rows: &mut Vec<WastedGpus>,
    cause: WasteCause,
    at: &[(NodeId, u64)],
    remedies: Vec<WasteRemedy>,
) {
    let gpus_wasted: u64 = at.iter().map(|(_, gpus)| gpus).sum();
    let nodes = at.iter().map(|(node, _)| *node);
    match rows.iter_mut().find(|row| row.cause == cause && row.remedies == remedies) {
        Some(row) => {
            row.gpus_wasted += gpus_wasted;
            row.nodes.extend(nodes);
        }
        None => rows.push(WastedGpus { cause, gpus_wasted, nodes: nodes.collect(), remedies }),
    }
}

fn in_groups(plan: &Plan) -> u64 {
    plan.metrics.gpus_used + plan.metrics.gpus_spare
}

fn idle_gpus(fabric: &Fabric, faults: &FaultSet, plan: &Plan) -> Vec<(NodeId, u64)> {
    let mut left: BTreeMap<NodeId, u64> =
        fabric.installed().map(|node| (node, u64::from(fabric.hbd.gpus_per_node()))).collect();
    let drained = fabric.drained.failed_nodes(&fabric.hbd);
    for node in faults.failed_nodes(&fabric.hbd).difference(&drained) {
        left.remove(node);
    }
    for gpu in plan.groups.iter().flat_map(|group| &group.ring) {
        left.entry(gpu.node).and_modify(|gpus| *gpus -= 1);
    }
    left.into_iter().filter(|(_, gpus)| *gpus > 0).collect()
}

/// Settings and parts are tried on copies of the fabric.
struct RemedySearch<'a> {
    fabric: &'a Fabric,
    faults: &'a FaultSet,
    options: Options,
    in_groups: u64,
}

/// More parts next to one place are not tried one by one.
const MOST_PARTS: usize = 64;

impl RemedySearch<'_> {
    fn gain(&self, fabric: &Fabric, faults: &FaultSet, options: Options) -> u64 {
        let plan = crate::plan(fabric, faults, options);
        plan.map_or(0, |plan| in_groups(&plan).saturating_sub(self.in_groups))
    }

    fn gain_of_repairs(&self, parts: &[Part]) -> u64 {
        let mut faults = self.faults.clone();
        for part in parts {
            let _ = faults.remove(self.fabric, *part);
        }
        self.gain(self.fabric, &faults, self.options)
    }

    /// Returns the best single repair, or else a set without a part to spare.
    fn repair(&self, mut parts: Vec<Part>) -> Option<WasteRemedy> {
        parts.truncate(MOST_PARTS);
        let mut best = (Vec::new(), 0);
        for part in &parts {
            let gain = self.gain_of_repairs(&[*part]);
            if gain > best.1 {
                best = (vec![*part], gain);
            }
        }
        if best.1 == 0 && parts.len() > 1 && self.gain_of_repairs(&parts) > 0 {
            for part in parts.clone() {
                let fewer: Vec<Part> =
                    parts.iter().copied().filter(|other| *other != part).collect();
                if self.gain_of_repairs(&fewer) > 0 {
                    parts = fewer;
                }
            }
            best = (parts.clone(), self.gain_of_repairs(&parts));
        }
        let (parts, gpus_gained) = best;
        (gpus_gained > 0)
            .then_some(WasteRemedy { change: WasteChange::Repair { parts }, gpus_gained })
    }

    fn settings(&self) -> Vec<WasteRemedy> {
        let (fabric, options) = (self.fabric, self.options);
        let separately = Options { separately: true, ..options };
        let mut remedies = vec![self.remedy(WasteChange::IgnoreTors, fabric, separately)];
        if fabric.spare_per_ring > 0 {
            let changed = Fabric { spare_per_ring: 0, ..fabric.clone() };
            remedies.push(self.remedy(WasteChange::NoSpares, &changed, options));
        }
        for (index, job) in fabric.jobs.iter().enumerate() {
            let sizes = [job.tp / 2, job.tp * 2, job.tp / 4];
            for tp in sizes.into_iter().filter(|tp| fits(fabric, job, *tp)) {
                let mut changed = fabric.clone();
                changed.jobs[index].tp = tp;
                let change = WasteChange::GroupSize { job: job.name.clone(), tp };
                remedies.push(self.remedy(change, &changed, options));
            }
        }
        // Where fibres are missing, or their loss matters, longer ones may be impossible.
        let is_free = fabric.hbd.is_fully_cabled() && fabric.transceiver.light.is_none();
        if let Some(ring) = fabric.hbd.ring().filter(|_| is_free).and_then(longer) {
            let changed = Fabric { hbd: ring.into(), ..fabric.clone() };
            let change = WasteChange::Reach { k: fabric.hbd.k() + 1 };
            remedies.push(self.remedy(change, &changed, options));
        }
        remedies.retain(|remedy| remedy.gpus_gained > 0);
        remedies
    }

    fn remedy(&self, change: WasteChange, fabric: &Fabric, options: Options) -> WasteRemedy {
        WasteRemedy { change, gpus_gained: self.gain(fabric, self.faults, options) }
    }
}

/// Returns whether the fabric file may contain this group size.
fn fits(fabric: &Fabric, job: &Job, tp: u32) -> bool {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let is_inside = tp < per_node && fabric.spare_per_ring == 0;
    let is_whole = is_inside || tp.is_multiple_of(per_node);
    let stages = match &job.step {
        None => 1,
        Some(StepFile::Training(mapping)) if mapping.dp.is_none() => mapping.pp * mapping.cp,
        Some(_) => return false,
    };
    let whole = u64::from(tp) * u64::from(stages);
    let mut sizes = job.least.into_iter().chain(match job.size {
        JobSize::All => None,
        JobSize::Gpus(gpus) => Some(gpus),
    });
    tp > 0
        && is_whole
        && u64::from(tp) <= fabric.hbd.largest_group()
        && sizes.all(|gpus| gpus.is_multiple_of(whole))
}

fn longer(ring: &KhopRing) -> Option<KhopRing> {
    let line = (0..ring.nodes()).map(|place| ring.node_at(Position(place))).collect();
    KhopRing::new(ring.gpus_per_node(), ring.k() + 1, ring.shape(), line).ok()
}

/// The place of each working node, by position.
struct GroupPlaces(Vec<Option<u32>>);

impl GroupPlaces {
    fn of(fabric: &Fabric, faults: &FaultSet) -> Self {
        let hbd = &fabric.hbd;
        let failed = faults.failed_nodes(hbd);
        let works: Vec<bool> =
            (0..hbd.nodes()).map(|at| !failed.contains(&hbd.node_at(Position(at)))).collect();
        let mut joined = UnionFind::new(hbd.nodes() as usize);
        for fibre in hbd.fibres().filter(|fibre| !faults.fibres.contains(fibre)) {
            let far = hbd.neighbour(fibre.from, fibre.hops.cast_signed());
            if let Some(far) = far.filter(|far| works[fibre.from.index()] && works[far.index()]) {
                joined.union(fibre.from.0, far.0);
            }
        }
        let places = (0..hbd.nodes()).zip(works).map(|(position, works)| {
            works.then(|| match hbd.grouping() {
                Grouping::Line => joined.find(position),
                Grouping::Island { nodes } => position / nodes,
                Grouping::Anywhere => 0,
            })
        });
        Self(places.collect())
    }

    fn of_node(&self, fabric: &Fabric, node: NodeId) -> u32 {
        self.0[fabric.hbd.position_of(node).index()].expect("idle nodes work")
    }

    /// Returns the failed parts in or next to a place.
    fn next_to(&self, fabric: &Fabric, faults: &FaultSet, place: u32) -> Vec<Part> {
        let hbd = &fabric.hbd;
        let mut parts = faults.parts(fabric);
        parts.retain(|part| {
            let Some(node) = part.node() else { return false };
            if *part == Part::Node(node) && fabric.absent.contains(&node) {
                return false;
            }
            let at = hbd.position_of(node);
            match hbd.grouping() {
                // The far end of a fibre is within K nodes.
                Grouping::Line => self.around(hbd, at).contains(&place),
                Grouping::Island { nodes } => at.0 / nodes == place,
                Grouping::Anywhere => true,
            }
        });
        parts
    }

    /// Returns the places of the K nearest working nodes on both sides.
    fn around(&self, hbd: &Hbd, at: Position) -> BTreeSet<u32> {
        let (count, reach) = (hbd.nodes() as usize, usize::from(hbd.k()));
        let (ahead, behind) = match hbd.shape() {
            Shape::Ring => (count, count),
            Shape::Line => (count - at.index(), at.index() + 1),
        };
        let forwards = (0..ahead).map(|away| (at.index() + away) % count);
        let backwards = (0..behind).map(|away| (at.index() + count - away) % count);
        let after = forwards.filter_map(|to| self.0[to]).take(reach);
        after.chain(backwards.filter_map(|to| self.0[to]).take(reach)).collect()
    }
}
