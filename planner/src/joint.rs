// SPDX-License-Identifier: Apache-2.0
//! One plan for a whole fabric: rings, ranks, the traffic that is left between leaves, and circuits for it.
//!
//! ```text
//!   Fabric + FaultSet ──▶ khop      groups of GPUs, so that equal ranks can share a leaf
//!                          │ idle      nodes that are better left idle
//!                          │ mapping   which group is which pipeline stage and data-parallel rank
//!                          │ traffic   what rings carry, what stays below a leaf, what is left
//!                          │ network   circuits for what is left, phase by phase
//!                          │ bound     what no placement can beat
//!                          ▼
//!                        Plan ──▶ check
//! ```
//!
//! The two halves meet in the mapping: of all orders of the parallel dimensions over the placed groups, the one
//! is taken whose traffic between leaves takes the least time. Groups that follow one another share leaves,
//! so the dimension that changes fastest stays below them.

mod bound;
mod idle;
mod mapping;
mod network;
mod replan;
mod routes;
pub mod sync;
mod traffic;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{Metrics, Plan};
use lightloom_units::Picoseconds;
use lightloom_units::seed::Seed;

use crate::khop::{self, Layout, Method};
use crate::rfabric::exact::Limits;
use crate::rfabric::one_hop::Effort;
use crate::rfabric::step::Mistake;
pub use crate::rfabric::step::{load, load_any_version, load_with};

pub use mapping::{Dimension, Mapping, MappingError};
pub use replan::{Bounds, RanksChanged, ReplanError, Replanned, replan, replan_within};
pub use traffic::{phases, phases_between_gpus};

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How groups are found.
    pub method: Method,
    /// How hard to try for each choice of circuits.
    pub effort: Effort,
    /// Solve every phase by integer programming as well, within these limits.
    pub exact: Option<Limits>,
    /// Plan each half alone, too, to say what planning both together gains.
    pub compare: bool,
    /// Plan each half alone: groups along the line without regard to leaves, ranks in the order in which frameworks count
    /// them, circuits for what then comes out.
    pub separately: bool,
    /// Named in the plan; nothing is drawn from it.
    pub seed: Seed,
}

impl Default for Options {
    fn default() -> Self {
        let effort = Effort::default();
        Self {
            method: Method::Scan,
            effort,
            exact: None,
            compare: true,
            separately: false,
            seed: Seed::USUAL,
        }
    }
}

/// GPUs of one plan at most.
pub const MOST_GPUS: u64 = 4_194_304;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// More GPUs than a plan takes.
    #[error(
        "{0} GPUs are more than the {MOST_GPUS} that one plan takes: it has a rank for each GPU, and is proven as a \
         whole; plan a part of the fabric that is cabled alone, or ask `lightloom compare` what such a design is worth"
    )]
    TooLarge(u64),
    /// A job finds no GPUs.
    #[error(transparent)]
    Groups(#[from] khop::PlanError),
    /// A job's parallel dimensions do not fit what it got.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// A step that makes no sense on this fabric.
    #[error("job `{job}`: {}", mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>().join("; "))]
    Step {
        /// The job.
        job: String,
        /// What is wrong with its step.
        mistakes: Vec<Mistake>,
    },
    /// The network cannot carry a phase.
    #[error(transparent)]
    Network(#[from] crate::rfabric::plan::PlanError),
}

/// Plans every job of `fabric` around `faults`.
///
/// # Errors
/// If a job does not fit, or the network cannot carry what it sends.
pub fn plan(fabric: &Fabric, faults: &FaultSet, options: Options) -> Result<Plan, PlanError> {
    if fabric.hbd.gpus() > MOST_GPUS {
        return Err(PlanError::TooLarge(fabric.hbd.gpus()));
    }
    if options.separately {
        return alone(fabric, faults, options);
    }
    let layout = khop::plan(fabric, faults, options.method)?;
    let layout = idle::quickest(fabric, faults, layout, options)?;
    let (best, mappings) = complete(fabric, faults, layout, options)?;
    let is_compared = options.compare && has_placed_step(fabric);
    let Some(step) = best.metrics.step_time_ps.filter(|_| is_compared) else { return Ok(best) };
    let mut best = Quickest { plan: best, mappings };
    let alone = alone(fabric, faults, Options { exact: None, ..options })?;
    let step_alone = alone.metrics.step_time_ps.unwrap_or(Picoseconds::ZERO);
    if step > step_alone {
        // Estimates were wrong. What each half plans alone is in hand, and its groups with ranks in their best order.
        let groups = khop::plan(fabric, faults, Method::Blind)?;
        let (ranked, mapped) = complete(fabric, faults, groups, options)?;
        best.offer(ranked, &mapped);
        best.offer(alone, &mapped);
    }
    if options.method != Method::Scan {
        // Exact groups leave leaves least often. Groups placed for the step can have a shorter one.
        let scanned = Options { method: Method::Scan, compare: false, ..options };
        let mut scanned = plan(fabric, faults, scanned)?;
        for (scanned, exact) in scanned.jobs.iter_mut().zip(&best.plan.jobs) {
            scanned.most_rings = exact.most_rings;
        }
        best.offer_alike(scanned);
    }
    if let Some(mended) = mended(fabric, faults, &best, options) {
        best.offer_alike(mended);
    }
    let Quickest { plan: mut best, mappings } = best;
    let step = best.metrics.step_time_ps.unwrap_or(step);
    let least = bound::least_seconds(fabric, faults, &mappings, &best.phases);
    state_gain(&mut best.metrics, step, step_alone, least);
    Ok(best)
}

/// The plan with the shortest step so far, and how its jobs are mapped.
struct Quickest {
    plan: Plan,
    mappings: Vec<Mapping>,
}

impl Quickest {
    /// Takes `plan` if it is quicker and uses no fewer GPUs.
    fn offer(&mut self, plan: Plan, mappings: &[Mapping]) {
        let (offered, own) = (&plan.metrics, &self.plan.metrics);
        if offered.gpus_used >= own.gpus_used && offered.step_time_ps < own.step_time_ps {
            self.plan = plan;
            self.mappings = mappings.to_vec();
        }
    }

    /// Takes `plan` if it is quicker and its jobs have as many groups, so that they are mapped alike.
    fn offer_alike(&mut self, plan: Plan) {
        if plan.metrics.gpus_used == self.plan.metrics.gpus_used {
            let mappings = self.mappings.clone();
            self.offer(plan, &mappings);
        }
    }
}

/// Nodes up to which a plan around faults is also made from the plan without them.
const MOST_NODES_MENDED: u32 = 256;

/// The plan without faults, mended: where its step is shorter than the best so far, its groups may be better placed.
fn mended(fabric: &Fabric, faults: &FaultSet, best: &Quickest, options: Options) -> Option<Plan> {
    // Where leaves are joined leaf to leaf, every idle node has been tried already.
    let is_tried = fabric.dcn.direct().is_some();
    if faults.is_empty() || is_tried || fabric.hbd.nodes() > MOST_NODES_MENDED {
        return None;
    }
    let options = Options { compare: false, ..options };
    let whole = plan(fabric, &FaultSet::none(), options).ok()?;
    if whole.metrics.step_time_ps >= best.plan.metrics.step_time_ps {
        return None;
    }
    let mended = replan(fabric, &whole, faults, false, options).ok()?.plan;
    mended.given_up.is_empty().then_some(mended)
}

/// The plan of a fabric whose groups are placed: ranks, traffic and circuits; and how its jobs are mapped.
fn complete(
    fabric: &Fabric,
    faults: &FaultSet,
    mut layout: Layout,
    options: Options,
) -> Result<(Plan, Vec<Mapping>), PlanError> {
    let mappings = mapping::mappings(fabric, &mut layout)?;
    layout.name_by_place();
    let mut plan = khop::to_document(fabric, faults, options.seed, &layout);
    mapping::rank_in_best_order(fabric, faults, &mut plan.ranks, &layout, &mappings)?;
    let sent = phases(fabric, &plan.ranks)?;
    network::carry(fabric, faults, &sent, options)?.write_into(&mut plan);
    Ok((plan, mappings))
}

/// Whether some job's step sends between GPUs that are placed.
fn has_placed_step(fabric: &Fabric) -> bool {
    fabric.jobs.iter().any(|job| job.is_placed() && job.step.is_some())
}

/// The plan of a fabric when each half is planned alone, by the same optimiser.
fn alone(fabric: &Fabric, faults: &FaultSet, options: Options) -> Result<Plan, PlanError> {
    let mut layout = khop::plan(fabric, faults, Method::Blind)?;
    let mappings = mapping::mappings(fabric, &mut layout)?;
    layout.name_by_place();
    let mut plan = khop::to_document(fabric, faults, options.seed, &layout);
    mapping::rank(fabric, &mut plan.ranks, &layout, &mappings);
    let sent = phases(fabric, &plan.ranks)?;
    network::carry(fabric, faults, &sent, options)?.write_into(&mut plan);
    Ok(plan)
}

fn state_gain(metrics: &mut Metrics, step: Picoseconds, alone: Picoseconds, least: Option<f64>) {
    let alone = alone.as_secs_f64();
    if alone <= 0.0 {
        return;
    }
    metrics.orchestration_gain = Some(1.0 - step.as_secs_f64() / alone);
    metrics.orchestration_gain_upper_bound = least.map(|least| 1.0 - least / alone);
}
