// SPDX-License-Identifier: Apache-2.0
//! Independent plan checker.
//!
//! It rederives every circuit from the cabling and the plan document. It also checks groups, ranks and metrics.
//!
//! The checker shares only the parsers of models and steps with the planner, so it does not inherit search bugs.

pub(crate) mod circuits;
mod claims;
mod links;
mod network;
mod numbers;
mod reinforcement;
mod rings;
mod routes;
mod spares;
mod stages;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::{Plan, SCHEMA, digest};
use lightloom_units::id::{BundleId, GpuId, GroupId, NodeId};

pub use stages::check_stages;

/// A rule violated by the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum Violation {
    #[error("the document is `{0}`, not `{SCHEMA}`")]
    Schema(String),
    #[error("the plan is for another fabric (sha256 {0})")]
    OtherFabric(String),
    #[error(
        "`digest` is {stated}, but this content has {found}: the file was edited; make a new plan, or delete \
         `digest` to use it unchanged"
    )]
    Changed { stated: String, found: String },
    #[error("{0} does not exist in this fabric")]
    NoSuchNode(NodeId),
    #[error("{0} does not exist in this fabric")]
    NoSuchBundle(BundleId),
    #[error("{0} does not exist in this fabric")]
    NoSuchGpu(GpuId),
    #[error("{0} has failed, but the plan sets it")]
    BrokenBundleUsed(BundleId),
    #[error("{0} is set twice")]
    BundleSetTwice(BundleId),
    #[error("the plan does not set {0}, which works")]
    BundleNotSet(BundleId),
    #[error("{0} is lit, but no working fibre is plugged into it")]
    NoFibre(Port),
    #[error("{0} is lit, but {1} at the far end does not select this fibre")]
    NotAnswered(Port, Port),
    #[error("the circuit {0} – {1} is listed, but the bundles do not form it")]
    CircuitNotMade(Port, Port),
    #[error("the bundles form {made} circuits, but the plan lists {listed}")]
    CircuitCount { made: usize, listed: usize },
    #[error("{group}: {node} has failed")]
    BrokenNodeUsed { group: GroupId, node: NodeId },
    #[error("{group}: must precede the spares, in the order of the job's data-parallel ranks")]
    GroupOutOfPlace { group: GroupId },
    #[error("two groups have the id {group}")]
    GroupTwice { group: GroupId },
    #[error("{group}: job {job} does not exist")]
    NoSuchJob { group: GroupId, job: u32 },
    #[error("{gpu} is in both {first} and {second}")]
    GpuInTwoGroups { gpu: GpuId, first: GroupId, second: GroupId },
    #[error("{group}: {gpu} has {neighbours} lit neighbours, not 2")]
    Degree { group: GroupId, gpu: GpuId, neighbours: usize },
    #[error(
        "{group}: its GPUs do not form a single cycle: {gpu} is on another cycle, or there are extra GPUs"
    )]
    NotOneCycle { group: GroupId, gpu: GpuId },
    #[error("{group}: {from} and {to} are adjacent in its ring, but no lit edge connects them")]
    NotNeighbours { group: GroupId, from: GpuId, to: GpuId },
    #[error("{group}: the ring must list every GPU of its nodes exactly once")]
    RingIncomplete { group: GroupId },
    #[error("{group}: its ring has {gpus} GPUs, but the job needs {tp}")]
    GroupSize { group: GroupId, gpus: usize, tp: u32 },
    #[error("{group}: its job may not use {node}")]
    NodeOfOthers { group: GroupId, node: NodeId },
    #[error("{group}: the ranks must number the group's GPUs from 0 without gaps or repeats")]
    Ranks { group: GroupId },
    #[error("{group}: {gpu} is not on the island of {first}")]
    OtherIsland { group: GroupId, gpu: GpuId, first: GpuId },
    #[error("job {job}: {gpu} has duplicate ranks or a wrong expert-parallel rank")]
    Coordinates { job: String, gpu: GpuId },
    #[error(
        "job {job}: {ranks} ranks do not match its tensor, context, data and pipeline dimensions"
    )]
    Dimensions { job: String, ranks: usize },
    #[error(
        "{group}: {node} is a pass-through node, but rings of this fabric have {allowed} of them"
    )]
    NotASpare { group: GroupId, node: NodeId, allowed: u8 },
    #[error("{group}: pass-through node {node} has a rank in the group or has failed")]
    SpareUsed { group: GroupId, node: NodeId },
    #[error(
        "{group}: if {node} fails, no fibre connects {a} and {b} over the other path of these bundles"
    )]
    NoWayPast { group: GroupId, node: NodeId, a: BundleId, b: BundleId },
    #[error("{0}")]
    Network(String),
    #[error("{name} is {stated} in the plan, but {found} when computed from its contents")]
    Metric { name: &'static str, stated: String, found: String },
}

impl Violation {
    fn metric(name: &'static str, stated: impl ToString, found: impl ToString) -> Self {
        Self::Metric { name, stated: stated.to_string(), found: found.to_string() }
    }
}

/// Counts of the checked parts of a valid plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Number of rings, each a single cycle.
    pub rings: usize,
    /// Number of GPUs in these rings.
    pub gpus: usize,
    /// Circuits selected at both ends.
    pub circuits: usize,
    /// Bundles whose path was checked.
    pub bundles: usize,
    /// Ranks whose traffic was rederived.
    pub ranks: usize,
    /// Phases with matching traffic, circuits and rate.
    pub phases: usize,
    /// Cross-connects on optical switches over all phases.
    pub cross_connects: usize,
}

/// Checks `plan` for `fabric` with `faults`.
///
/// # Errors
/// Returns all violations, or only the mismatch if the plan is for another fabric or version.
pub fn check(fabric: &Fabric, faults: &FaultSet, plan: &Plan) -> Result<Verdict, Vec<Violation>> {
    let mut found = Vec::new();
    if plan.schema != SCHEMA {
        found.push(Violation::Schema(plan.schema.clone()));
    }
    if plan.fabric_sha256 != fabric.sha256 {
        found.push(Violation::OtherFabric(plan.fabric_sha256.clone()));
    }
    if !found.is_empty() {
        return Err(found);
    }
    let lit = links::check(fabric, faults, plan, &mut found);
    rings::check(fabric, faults, plan, &lit, &mut found);
    let cannot_stand_in = spares::check(fabric, faults, plan, &lit, &mut found);
    numbers::check(fabric, faults, plan, cannot_stand_in, &mut found);
    network::check(fabric, faults, plan, &mut found);
    claims::check(fabric, plan, &mut found);
    if !plan.is_as_written() {
        let (stated, found_now) = (plan.digest.clone(), digest(plan));
        found.push(Violation::Changed { stated, found: found_now });
    }
    if !found.is_empty() {
        return Err(found);
    }
    Ok(Verdict {
        rings: plan.groups.len(),
        gpus: plan.groups.iter().map(|group| group.ring.len()).sum(),
        circuits: plan.circuits.len(),
        bundles: plan.transceivers.len(),
        ranks: plan.ranks.len(),
        phases: plan.phases.len(),
        cross_connects: plan.phases.iter().map(|phase| phase.circuits.len()).sum(),
    })
}
