// SPDX-License-Identifier: Apache-2.0
//! The plan document contains the path of every transceiver, the ring of every group, the GPU of every rank, the
//! circuits of every phase, and the transitions between phases. The planner writes it; the daemon, the emulator and the
//! report read it. Sections that do not apply to a fabric are omitted.

use serde::{Deserialize, Serialize};

use crate::canonical;
use crate::fat_tree::CrossConnect;
use crate::fault::Part;
use crate::khop::{Path, Port};
use crate::provenance::{self, Inputs, VERSION};
use lightloom_units::id::{BundleId, GpuId, GroupId, LeafId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds};

mod after;
mod read;
mod sync;

pub use after::{PlanChange, Spelled};
pub use read::{is_plan, read, schema_of};
pub use sync::{MethodTimes, SyncChoice};

/// The schema version that this crate reads and writes.
pub const SCHEMA: &str = "lightloom.plan/v2";

/// Members that describe how a plan was made, which are not part of its digest.
const NOT_IDENTITY: &[&[&str]] =
    &[&["digest"], &["inputs"], &["seed"], &["version"], &["weight_sync"], &["why"]];

/// Returns the SHA-256, in hex, of a plan's canonical JSON (docs/plan.md) without the members that
/// describe how it was made. Formatting does not affect the digest.
pub fn digest(plan: &impl Serialize) -> String {
    // Serialisation fails only for objects with non-string keys, which plans do not contain.
    provenance::sha256(&canonical::bytes(plan, NOT_IDENTITY).unwrap_or_default())
}

/// A plan, as written by `lightloom plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program that wrote the plan, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// [Digest](digest) of the written plan; empty before writing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Input files of the plan.
    #[serde(default, skip_serializing_if = "Inputs::is_empty")]
    pub inputs: Inputs,
    /// Name of the fabric.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// SHA-256 of the fabric file.
    pub fabric_sha256: String,
    /// Random seed used for planning.
    pub seed: Seed,
    /// Faults known at planning time.
    pub faults: Vec<Part>,
    /// Request and allocation of each job, in order of placement.
    pub jobs: Vec<JobPlan>,
    /// All groups, starting with the groups of jobs in rank order and ending with the spares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The path of every working bundle of every working node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transceivers: Vec<Transceiver>,
    /// Fibres of the high-bandwidth domain that carry light.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<Circuit>,
    /// GPU of every rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
    /// Traffic between leaves, and circuits, for each phase of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhasePlan>,
    /// Transitions between phases with different circuits, also from the last to the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<TransitionPlan>,
    /// Methods compared for each reinforcement learning step. Empty after a replan around faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_sync: Vec<SyncChoice>,
    /// Allocations lost to faults, with the reason for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<GivenUp>,
    /// Quality of the plan.
    pub metrics: Metrics,
}

impl Plan {
    /// Returns the plan in the form to write, with its input files, the program version and its digest.
    #[must_use]
    pub fn sealed(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        VERSION.clone_into(&mut self.version);
        self.digest = digest(&self);
        self
    }

    /// Returns whether the plan matches its digest; true for a plan without a digest.
    pub fn is_as_written(&self) -> bool {
        self.digest.is_empty() || digest(self) == self.digest
    }
}

/// Allocation of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPlan {
    /// Job name.
    pub name: String,
    /// GPUs per group.
    pub tp: u32,
    /// Requested GPUs. `None` if the job requests all GPUs.
    pub gpus_wanted: Option<u64>,
    /// Allocated GPUs.
    pub gpus: u64,
    /// Fraction of the job's inner data-parallel hops that cross ToRs (docs/metrics.md).
    pub cross_tor_share: f64,
    /// Lower bound on this fraction for any placement with as many rings (docs/khop.md). `None` after a replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_lower_bound: Option<f64>,
    /// Result of the exact search for the most rings. `None` if there was no exact search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_rings: Option<RingProof>,
    /// How the job's mapping was found, if the fabric file requests a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<Searched>,
}

/// How a job's mapping was found, and its performance by the closed form of `lightloom mfu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searched {
    /// Trained model.
    pub model: String,
    /// Sequences per step.
    pub sequences: u64,
    /// Tokens per sequence.
    pub sequence: u64,
    /// Accelerator.
    pub accelerator: String,
    /// Source of the performance constants.
    pub constants: String,
    /// Number of mappings tried.
    pub tried: u64,
    /// GPUs per group.
    pub tp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Expert-parallel ranks.
    pub ep: u32,
    /// Sequences per micro-batch.
    pub micro_batch: u32,
    /// Micro-batches per step and pipeline.
    pub micro_batches: u32,
    /// Activation recomputation policy.
    pub recompute: String,
    /// Step duration in seconds.
    pub step_seconds: f64,
    /// Model FLOPs utilisation, counting attention over the full mask.
    pub mfu: f64,
}

/// Number of rings of one size that a search found on the remaining nodes, and an upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingProof {
    /// Rings found. The job uses no more than it requests.
    pub rings: u64,
    /// Upper bound for any placement.
    pub at_most: u64,
    /// Reason the search ended.
    pub ended: RingSearch,
}

/// Reason the search for the most rings ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingSearch {
    /// The segments of the line have too few nodes for another ring.
    Counting,
    /// An integer program over all candidate rings was solved.
    IntegerProgram,
    /// The integer program reached its time limit, so the result depends on the machine.
    TimeLimit,
}

/// A ring of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Ring id.
    pub id: GroupId,
    /// Index of its job in `jobs`. `None` for a spare ring.
    pub job: Option<u32>,
    /// Nodes in line order.
    pub nodes: Vec<NodeId>,
    /// Nodes between or next to the ring's nodes that have no rank and only forward light.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passing: Vec<NodeId>,
    /// GPUs in ring order.
    pub ring: Vec<GpuId>,
}

/// The path setting of one bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transceiver {
    /// Bundle.
    pub bundle: BundleId,
    /// Path setting.
    pub path: Path,
}

/// A fibre that carries light.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circuit {
    /// Lower end.
    pub a: Port,
    /// Upper end.
    pub b: Port,
}

/// The location of one rank. All rank indices start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// GPU of the rank.
    pub gpu: GpuId,
    /// Group of the rank.
    pub group: GroupId,
    /// Index into `jobs`. `None` in a spare group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// Tensor-parallel rank (rank within the group).
    pub tp: u32,
    /// Pipeline stage.
    #[serde(default)]
    pub pp: u32,
    /// Data-parallel rank.
    #[serde(default)]
    pub dp: u32,
    /// Context-parallel rank.
    #[serde(default)]
    pub cp: u32,
    /// Expert-parallel rank, which is the data-parallel rank modulo the expert-parallel size.
    #[serde(default)]
    pub ep: u32,
}

/// One phase of the step, with its traffic between leaves and the circuits that carry it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    /// Phase name.
    pub name: String,
    /// Job of the phase's step; `None` if only one job has a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Index in the step, from 0.
    pub order: u32,
    /// Name of the topology of the circuits.
    pub topology: String,
    /// Bytes sent between leaves.
    pub demand_bytes: Bytes,
    /// Bytes carried by rings or islands of the high-bandwidth domain.
    #[serde(default)]
    pub ring_bytes: Bytes,
    /// Bytes between GPUs under the same leaf, which do not use links between leaves.
    #[serde(default)]
    pub leaf_bytes: Bytes,
    /// Circuits, by switch and port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<CrossConnect>,
    /// Routes between leaves if leaves are directly connected or traffic over circuits transits
    /// other leaves. Empty if each pair uses only its own circuits and the packet core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RoutePlan>,
    /// How many times per second the network can carry the demand.
    pub lambda: f64,
    /// Upper bound on `lambda` for any choice of circuits and routes.
    pub lambda_upper_bound: f64,
    /// Dual prices that prove the bound. `None` if GPU interfaces or a solver prove the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// `1 - lambda / lambda_upper_bound`.
    pub gap: f64,
    /// Duration: 1 / lambda plus the preceding switching time that is not hidden by slack. It is
    /// limited by the slowest of circuits, uplinks, core and GPU interfaces.
    pub duration_ps: Picoseconds,
    /// Lower bound on the duration, given by the time that the busiest GPU's network interfaces need for traffic
    /// outside rings and islands. `None` if the step refers to leaves instead of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_ps: Option<Picoseconds>,
    /// Result of the solver, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolverReport>,
}

/// A route from one leaf to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePlan {
    /// Source leaf.
    pub from: LeafId,
    /// Destination leaf.
    pub to: LeafId,
    /// Transit leaves in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<LeafId>,
    /// Index of the hop over the packet core, from 0; `None` if all hops are circuits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_hop: Option<u32>,
    /// Fraction of the pair's traffic that uses this route.
    pub weight: f64,
}

impl RoutePlan {
    /// Returns both leaves of each hop, and whether it uses the packet core.
    pub fn hops(&self) -> impl Iterator<Item = (usize, usize, bool)> + '_ {
        let starts = std::iter::once(&self.from).chain(&self.via);
        let ends = self.via.iter().chain([&self.to]);
        let is_core = |number| self.core_hop == Some(number);
        (0..).zip(starts.zip(ends)).map(move |(at, (a, b))| (a.index(), b.index(), is_core(at)))
    }
}

/// Dual prices that bound the rate of a phase. The demands of all pairs, each at the price of the
/// cheapest path, cost no more than all ports and uplinks together (docs/rfabric.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Prices of optical ports. Unlisted ports cost nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortPrice>,
    /// Prices of uplinks to the packet core. Unlisted uplinks cost nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core: Vec<CorePrice>,
    /// Leaf pairs that split a circuit's price differently than the `sending` of their ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<PairShare>,
}

/// Price of a leaf's ports on one bank, each at the full circuit rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortPrice {
    /// Bank index, from 0.
    pub bank: u32,
    /// Leaf.
    pub leaf: LeafId,
    /// Price of each of the leaf's ports.
    pub price: f64,
    /// Fraction of the price charged to traffic that the leaf sends, rather than receives.
    pub sending: f64,
}

/// Price of a leaf's uplinks to the packet core, at their full rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePrice {
    /// Leaf.
    pub leaf: LeafId,
    /// Price of sending into the core.
    pub up: f64,
    /// Price of receiving from the core.
    pub down: f64,
}

/// The fraction of a circuit's price charged to one direction, rather than the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairShare {
    /// Bank index, from 0.
    pub bank: u32,
    /// Source leaf.
    pub from: LeafId,
    /// Destination leaf.
    pub to: LeafId,
    /// Fraction from 0 to 1.
    pub share: f64,
}

/// Results of integer and linear programming for a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolverReport {
    /// Rate of the best topology found. `None` if the solver found no topology in time.
    pub lambda: Option<f64>,
    /// The solver's upper bound if it finished, otherwise the previously known bound.
    pub lambda_upper_bound: f64,
    /// Whether the solver reached its time limit, so that `lambda` depends on the machine.
    pub hit_time_limit: bool,
    /// Whether the model allows only single-hop routes, so that the bound applies only to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_one_hop: bool,
}

/// The change from the circuits of one phase to those of the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionPlan {
    /// Previous phase.
    pub from: String,
    /// Next phase.
    pub to: String,
    /// Stages in order of execution. Each stage changes one failure domain.
    pub stages: Vec<Stage>,
    /// Number of circuits that stay lit throughout.
    pub circuits_kept: usize,
    /// Time from the first command until the last circuit is up.
    pub dark_time_ps: Picoseconds,
    /// Part of the dark time that is not hidden by the slack before the phase.
    pub exposed_ps: Picoseconds,
    /// Duration of the next phase on the previous circuits; absent if they cannot serve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_ps: Option<Picoseconds>,
    /// Smallest fraction of the current demand's rate that remains available in any stage.
    pub floor: f64,
}

/// One stage, which removes and then adds circuits, all in one failure domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Circuits to remove.
    pub remove: Vec<CrossConnect>,
    /// Circuits to add.
    pub add: Vec<CrossConnect>,
}

/// One stage of the change from a plan to its successor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeStage {
    /// Phases on the cross-connects that change. Empty if bundles switch.
    pub phases: Vec<String>,
    /// Bundles that switch, with their new paths.
    pub bundles: Vec<Transceiver>,
    /// Cross-connects that change, all in one failure domain.
    pub circuits: Stage,
    /// Number of circuits that stay up during the stage: fibres of the high-bandwidth domain if
    /// bundles switch, otherwise cross-connects.
    pub circuits_up: usize,
    /// Fraction of the next plan's capacity that is available during the stage: groups of jobs with
    /// an unchanged ring, or the rate of the phase that loses most.
    pub capacity: f64,
}

/// An allocation lost to faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    /// Job name.
    pub job: String,
    /// GPUs that the job lost.
    pub gpus: u64,
    /// Reason, as a sentence.
    pub why: String,
}

/// Quality metrics of a plan, defined in docs/metrics.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// All installed GPUs.
    pub gpus_total: u64,
    /// GPUs of failed nodes.
    pub gpus_faulty: u64,
    /// GPUs in rings allocated to jobs.
    pub gpus_used: u64,
    /// GPUs in complete rings that no job requests.
    pub gpus_spare: u64,
    /// Healthy GPUs without a rank in a complete ring.
    pub gpus_wasted: u64,
    /// Wasted GPUs in nodes that forward a ring's light; `None` if no ring has such a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_passing: Option<u64>,
    /// Rings without a forwarding node or a fibre past a node. `None` if `gpus_passing` is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings_without_spare: Option<u64>,
    /// `gpus_wasted / gpus_total`.
    pub waste_ratio: f64,
    /// Waste ratio with an ideal switch between all GPUs.
    pub waste_ratio_lower_bound: f64,
    /// Fraction of inner data-parallel hops that cross ToRs, over all jobs.
    pub cross_tor_share: f64,
    /// Lower bound on this fraction for any placement with as many rings (docs/khop.md). `None` after a replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_lower_bound: Option<f64>,
    /// Time per step for communication between leaves, including switching that is not hidden by slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time_ps: Option<Picoseconds>,
    /// Step time with the best fixed set of circuits; `None` if no fixed set serves all phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_step_time_ps: Option<Picoseconds>,
    /// Fraction of the time of a step, including slack, that ports spend without light, averaged over all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dark_port_time_share: Option<f64>,
    /// Fraction of the step's communication time saved by planning both layers jointly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestration_gain: Option<f64>,
    /// Upper bound on the gain for any placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestration_gain_upper_bound: Option<f64>,
}

#[cfg(test)]
mod tests;
