// SPDX-License-Identifier: Apache-2.0
//! The plan document: which path every transceiver takes, which ring every group forms, which rank
//! sits where, which circuits every phase of a step has, and how one phase's become the next one's.
//! Written by the planner, read by the daemon, the emulator and the report.
//!
//! What a fabric does not have is absent: a network without optical switches has phases without
//! circuits, a fabric without transceivers has no `transceivers`.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::canonical;
use crate::fat_tree::CrossConnect;
use crate::fault::Part;
use crate::khop::{Path, Port};
use crate::provenance::{self, Inputs, VERSION};
use lightloom_units::id::{BundleId, GpuId, GroupId, LeafId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Dollars, Picoseconds, Watts};

mod after;
mod read;
mod sync;

pub use after::{PlanChange, Spelled};
pub use read::{ReadError, is_plan, read};
pub use sync::{MethodTimes, SyncChoice};

/// The version of the document this crate reads and writes.
pub const SCHEMA: &str = "lightloom.plan/v2";

/// The version before, which [`Plan::upgraded`] turns into this one.
pub const EARLIER_SCHEMA: &str = "lightloom.plan/v1";

/// What a plan document says of how it was made, which is not part of its identity.
const NOT_IDENTITY: &[&[&str]] = &[
    &["digest"],
    &["inputs"],
    &["metrics", "plan_seconds"],
    &["seed"],
    &["sensitivity"],
    &["version"],
    &["weight_sync"],
];

/// The identity of a plan: SHA-256, in hex, of its canonical JSON (docs/plan.md) without how it was made: two seeds
/// that find the same plan made one plan.
///
/// The same for a plan in memory, its file in any spelling, and the document that a client sends.
#[must_use]
pub fn digest(plan: &impl Serialize) -> String {
    // Only objects with keys that are no strings cannot be written, and no plan has one.
    provenance::sha256(&canonical::bytes(plan, NOT_IDENTITY).unwrap_or_default())
}

/// Whether `name` is the [digest] of this plan, or the one that earlier versions gave it, which counted its seed.
#[must_use]
pub fn is_called(plan: &impl Serialize, name: &str) -> bool {
    let earlier = || {
        let without: Vec<_> =
            NOT_IDENTITY.iter().copied().filter(|path| **path != ["seed"]).collect();
        provenance::sha256(&canonical::bytes(plan, &without).unwrap_or_default())
    };
    digest(plan) == name || earlier() == name
}

/// A plan, as `lightloom plan` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program that wrote it; empty where none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its [identity](digest), once it is written; empty before, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The files it was made from.
    #[serde(default, skip_serializing_if = "Inputs::is_empty")]
    pub inputs: Inputs,
    /// Name of the fabric.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// SHA-256 of the fabric file it is for.
    pub fabric_sha256: String,
    /// Seed of the draws that went into it.
    pub seed: Seed,
    /// What was broken when it was made: nodes, bundles and fibres.
    pub faults: Vec<Part>,
    /// What was asked for and what each job got, in order of placement.
    pub jobs: Vec<JobPlan>,
    /// Every group: those of jobs first, in rank order, then the spares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The path of every working bundle of every working node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transceivers: Vec<Transceiver>,
    /// The fibres of the high-bandwidth domain that carry light.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<Circuit>,
    /// Which GPU is which rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
    /// What each phase of the step sends between leaves, and over which circuits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhasePlan>,
    /// The changes between phases that have different circuits, the last into the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<TransitionPlan>,
    /// How new weights may reach the replicas, side by side, for each step of reinforcement learning. Empty after faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_sync: Vec<SyncChoice>,
    /// What could not be kept after faults, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<GivenUp>,
    /// What the plan is worth.
    pub metrics: Metrics,
}

impl Plan {
    /// The plan as it is written: with the files it was made from, the version and its digest.
    #[must_use]
    pub fn sealed(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        VERSION.clone_into(&mut self.version);
        self.digest = digest(&self);
        self
    }

    /// A plan of version 1 as one of this version: ranks know their job, and groups of a job are its replicas. Its
    /// digest was of what it said then, so it has none. Any other plan is left as it is.
    #[must_use]
    pub fn upgraded(mut self) -> Self {
        if self.schema != EARLIER_SCHEMA {
            return self;
        }
        SCHEMA.clone_into(&mut self.schema);
        self.digest.clear();
        let mut counted: BTreeMap<u32, u32> = BTreeMap::new();
        let mut replica_of = BTreeMap::new();
        for group in &self.groups {
            let Some(job) = group.job else { continue };
            let replicas = counted.entry(job).or_default();
            replica_of.insert(group.id, (job, *replicas));
            *replicas += 1;
        }
        for rank in &mut self.ranks {
            if let Some(&(job, replica)) = replica_of.get(&rank.group) {
                (rank.job, rank.dp) = (Some(job), replica);
            }
        }
        self
    }

    /// Whether it is what it was when its digest was written; where none was, nobody can tell.
    #[must_use]
    pub fn is_as_written(&self) -> bool {
        self.digest.is_empty() || is_called(self, &self.digest)
    }
}

/// What one job got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// GPUs of one group.
    pub tp: u32,
    /// GPUs it asked for; nothing where it asked for all.
    pub gpus_wanted: Option<u64>,
    /// GPUs it got.
    pub gpus: u64,
    /// Share of its inner data-parallel hops that cross ToRs (docs/metrics.md).
    pub cross_tor_share: f64,
    /// A share that no placement of as many rings goes below (docs/khop.md); `None` after a replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_lower_bound: Option<f64>,
    /// How the search for the most rings ended. `None` if the rings were not searched exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_rings: Option<RingProof>,
    /// How its mapping was found, where the fabric file asks for a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<Searched>,
    /// Placement constraints kept, in files of earlier versions: part of their identity, otherwise unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints_kept: Option<u32>,
    /// As `constraints_kept`: how many there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints_total: Option<u32>,
    /// As `constraints_kept`: what a placement along the line alone would cross.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_greedy: Option<f64>,
}

/// How the mapping of a job was found: what was searched for, over what, and what the mapping that was taken reaches by
/// the closed form of `lightloom mfu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searched {
    /// What is trained.
    pub model: String,
    /// Sequences of a step.
    pub sequences: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// On what.
    pub accelerator: String,
    /// Whose constants.
    pub constants: String,
    /// Mappings tried.
    pub tried: u64,
    /// GPUs of a group.
    pub tp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Expert-parallel ranks.
    pub ep: u32,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches of a step on one pipeline.
    pub micro_batches: u32,
    /// What of the forward pass is computed again.
    pub recompute: String,
    /// Seconds of a step.
    pub step_seconds: f64,
    /// Share of the GPUs' peak that useful operations take, attention over the full mask.
    pub mfu: f64,
}

/// How many rings of one size a search found on the nodes that earlier jobs left, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingProof {
    /// Rings found; the job takes no more than it asks for.
    pub rings: u64,
    /// No placement has more.
    pub at_most: u64,
    /// What ended the search.
    pub ended: RingSearch,
}

/// What ended the search for the most rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingSearch {
    /// The pieces of the line have nodes for no ring more.
    Counting,
    /// An integer program over all candidate rings was solved.
    IntegerProgram,
    /// The time limit of the integer program: the rings depend on the machine.
    TimeLimit,
}

/// One ring of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub id: GroupId,
    /// Index into `jobs` of the job it works for; nothing for a spare ring.
    pub job: Option<u32>,
    /// Its nodes in line order.
    pub nodes: Vec<NodeId>,
    /// Nodes between them, or at an end, that have no rank and only pass the light of the ring on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passing: Vec<NodeId>,
    /// Its GPUs in ring order.
    pub ring: Vec<GpuId>,
}

/// The path one bundle takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transceiver {
    /// The bundle.
    pub bundle: BundleId,
    /// Its path.
    pub path: Path,
}

/// One lit fibre.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circuit {
    /// Its lower end.
    pub a: Port,
    /// Its upper end.
    pub b: Port,
}

/// Where one rank sits. Every rank counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// The GPU.
    pub gpu: GpuId,
    /// Its group.
    pub group: GroupId,
    /// Index into `jobs`. `None` in a spare group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// Its rank within the group: tensor parallelism. Version 1 calls it `rank`.
    #[serde(alias = "rank")]
    pub tp: u32,
    /// Its pipeline stage.
    #[serde(default)]
    pub pp: u32,
    /// Its data-parallel rank.
    #[serde(default)]
    pub dp: u32,
    /// Its context-parallel rank.
    #[serde(default)]
    pub cp: u32,
    /// Its expert-parallel rank: the data-parallel rank modulo the expert-parallel ranks.
    #[serde(default)]
    pub ep: u32,
}

/// One phase of the step: what crosses the leaves, and over what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    /// Its name.
    pub name: String,
    /// The job whose step it is a part of, where several jobs have one. `None` where one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its place in the step, from 0.
    pub order: u32,
    /// What the circuits were chosen for.
    pub topology: String,
    /// Bytes that it sends from leaf to leaf.
    pub demand_bytes: Bytes,
    /// Bytes that rings, or islands of the high-bandwidth domain, carry instead.
    #[serde(default)]
    pub ring_bytes: Bytes,
    /// Bytes between GPUs below one leaf, which no link between leaves sees.
    #[serde(default)]
    pub leaf_bytes: Bytes,
    /// The circuits, by switch and port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<CrossConnect>,
    /// The ways from leaf to leaf, where leaves are joined leaf to leaf, or where traffic over circuits passes through other
    /// leaves. Empty where what two leaves exchange takes their own circuits, and the packet core for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RoutePlan>,
    /// How often per second the demand is served.
    pub lambda: f64,
    /// What no choice of circuits, and no routes over them, exceed for this demand.
    pub lambda_upper_bound: f64,
    /// What proves the bound, where circuits are chosen. `None` where the interfaces of GPUs or a solver prove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// 1 − lambda / bound.
    pub gap: f64,
    /// 1 / lambda, with the switching before it that no slack hides: over circuits, uplinks, the core and the interfaces of
    /// GPUs, whichever takes longest. Version 1 calls it `time_ps`.
    #[serde(alias = "time_ps")]
    pub duration_ps: Picoseconds,
    /// What the network interfaces of its busiest GPU need at least, for all that no ring or island carries. The duration is
    /// never shorter. `None` where a step names leaves, not GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_ps: Option<Picoseconds>,
    /// What a solver said, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolverReport>,
}

/// One way from a leaf to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePlan {
    /// Where it begins.
    pub from: LeafId,
    /// Where it ends.
    pub to: LeafId,
    /// The leaves between, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<LeafId>,
    /// Which hop goes over the packet core, from 0; the others are circuits. `None` if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_hop: Option<u32>,
    /// Share of what the one sends to the other that takes it.
    pub weight: f64,
}

/// Prices of ports and uplinks that prove how fast a phase can be served. Whatever the circuits: what leaves exchange, times
/// the price of its cheapest path, costs no more than all ports and uplinks (docs/rfabric.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of optical ports. What is not named costs nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortPrice>,
    /// Of uplinks to the packet core. What is not named costs nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core: Vec<CorePrice>,
    /// Pairs of leaves whose directions bear other shares of the price of a circuit than their ports say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<PairShare>,
}

/// The price of one port that a leaf has on a bank, for a circuit's whole rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortPrice {
    /// The bank, from 0.
    pub bank: u32,
    /// The leaf.
    pub leaf: LeafId,
    /// Of each of its ports.
    pub price: f64,
    /// Share of it that traffic of the leaf bears; what it receives bears the rest.
    pub sending: f64,
}

/// The price of a leaf's uplinks to the packet core, at their whole rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePrice {
    /// The leaf.
    pub leaf: LeafId,
    /// Into the core.
    pub up: f64,
    /// Out of the core.
    pub down: f64,
}

/// The share of the price of a circuit that one direction bears; the other bears the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairShare {
    /// Over this bank, from 0,
    pub bank: u32,
    /// from this leaf
    pub from: LeafId,
    /// to this one.
    pub to: LeafId,
    /// From 0 to 1.
    pub share: f64,
}

/// What integer and linear programming say about a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolverReport {
    /// The rate of the best topology that the solver found; nothing where it found none in time.
    pub lambda: Option<f64>,
    /// What no topology exceeds: the solver's bound where it finished, else what was known before.
    pub lambda_upper_bound: f64,
    /// Whether it stopped at its time limit: then `lambda` is its incumbent, and depends on the machine.
    pub hit_time_limit: bool,
    /// Whether traffic took one hop in what was solved: then the bound is of one hop alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_one_hop: bool,
    /// In plans of earlier versions: the rate with routes over several circuits. A phase has its routes now.
    #[serde(default, skip_serializing)]
    pub lambda_multi_hop: Option<f64>,
}

/// How the circuits of one phase become those of the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionPlan {
    /// The phase that ends.
    pub from: String,
    /// The phase that begins.
    pub to: String,
    /// What to do, in order; a stage touches one failure domain.
    pub stages: Vec<Stage>,
    /// Circuits that keep their light throughout.
    pub circuits_kept: usize,
    /// From the first command to the last circuit up.
    pub dark_time_ps: Picoseconds,
    /// What of it the slack before the phase does not hide.
    pub exposed_ps: Picoseconds,
    /// The least share of the live demand's rate that is left in any stage.
    pub floor: f64,
}

/// One stage: circuits that go, then circuits that come. All of one failure domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Removed.
    pub remove: Vec<CrossConnect>,
    /// Added.
    pub add: Vec<CrossConnect>,
}

/// What could not be kept after faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    /// The job.
    pub job: String,
    /// GPUs that it has no longer.
    pub gpus: u64,
    /// Why, in a sentence.
    pub why: String,
}

/// What a plan is worth. Every metric is defined in docs/metrics.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// All GPUs installed.
    pub gpus_total: u64,
    /// GPUs of faulty nodes.
    pub gpus_faulty: u64,
    /// GPUs in rings that work for a job.
    pub gpus_used: u64,
    /// GPUs in complete rings that no job wants.
    pub gpus_spare: u64,
    /// Healthy GPUs without a rank in a complete ring.
    pub gpus_wasted: u64,
    /// Those of them on nodes that pass the light of a ring on. `None` where no ring has such a node by design.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_passing: Option<u64>,
    /// Rings that have lost the node that passes their light on, or a fibre past one of their nodes. `None` as `gpus_passing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings_without_spare: Option<u64>,
    /// `gpus_wasted / gpus_total`.
    pub waste_ratio: f64,
    /// What even an ideal switch over all GPUs would waste.
    pub waste_ratio_lower_bound: f64,
    /// Share of inner data-parallel hops that cross ToRs, over all jobs.
    pub cross_tor_share: f64,
    /// A share that no placement of as many rings goes below (docs/khop.md). `None` after a replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_lower_bound: Option<f64>,
    /// Interconnect cost of one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_gpu_usd: Option<Dollars>,
    /// Interconnect power of one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_per_gpu_w: Option<Watts>,
    /// Communication time between leaves of one step, with the switching that no slack hides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time_ps: Option<Picoseconds>,
    /// The same with the best single choice of circuits for all phases. `None` if none serves them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_step_time_ps: Option<Picoseconds>,
    /// Share of port-time without light over one step, slack included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dark_port_time_share: Option<f64>,
    /// Share of the step's communication time that planning both halves together saves,
    /// over planning each alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestration_gain: Option<f64>,
    /// What no placement exceeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestration_gain_upper_bound: Option<f64>,
    /// Read and dropped: files of earlier versions note here how long planning took.
    #[serde(default, skip_serializing, deserialize_with = "dropped")]
    pub plan_seconds: (),
}

fn dropped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(drop)
}

#[cfg(test)]
mod tests;
