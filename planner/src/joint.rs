// SPDX-License-Identifier: Apache-2.0
//! Plans the rings, ranks, and circuits between leaves of a whole fabric.
//!
//! ```text
//!   Fabric + FaultSet ──▶ khop      groups of GPUs, so that equal ranks can share a leaf
//!                          │ idle      nodes to leave idle because that makes the step shorter
//!                          │ mapping   pipeline stage and data-parallel rank of each group
//!                          │ traffic   traffic on rings, below leaves, and between leaves
//!                          │ network   circuits for the traffic between leaves, phase by phase
//!                          │ bound     lower bound over all placements
//!                          ▼
//!                        Plan ──▶ check
//! ```
//!
//! The planner tries every order of the parallel dimensions and picks the one with the shortest
//! communication time between leaves. Consecutive groups share leaves, so the traffic of the
//! fastest-changing dimension stays below them.

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
use crate::rfabric::CarriedStep;
use crate::rfabric::exact::Limits;
use crate::rfabric::one_hop::Effort;
use crate::rfabric::step::Mistake;
pub use crate::rfabric::step::{load, load_with};

pub use crate::khop::{Bounds, MoveLimit};
pub use mapping::{Dimension, Mapping, MappingError};
pub use replan::{
    CurvePoint, MoveReason, MovedGroup, RanksChanged, ReplanError, Replanned, replan,
    replan_within, stages, step_over_cold,
};
pub use traffic::{phases, phases_between_gpus};

/// Planning options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How rings are found.
    pub method: Method,
    /// Search effort per set of circuits.
    pub effort: Effort,
    /// Also solve every phase by integer programming within these limits.
    pub exact: Option<Limits>,
    /// Also plan groups and circuits separately, to report the gain of joint planning.
    pub compare: bool,
    /// Plan groups and circuits separately. Groups then ignore leaves, and ranks are in the usual order.
    pub separately: bool,
    /// The seed recorded in the plan; the planner itself is deterministic.
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

/// Maximum number of GPUs in one plan.
pub const MOST_GPUS: u64 = 4_194_304;

/// Why planning failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum PlanError {
    #[error(
        "{0} GPUs exceed the maximum of {MOST_GPUS} per plan, which lists and checks every rank; \
         plan a separately cabled part of the fabric, or evaluate the design with `lightloom compare`"
    )]
    TooLarge(u64),
    #[error(transparent)]
    Groups(#[from] khop::PlanError),
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error("job `{job}`: {}", mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>().join("; "))]
    Step { job: String, mistakes: Vec<Mistake> },
    #[error(transparent)]
    Network(#[from] crate::rfabric::plan::PlanError),
}

/// Plans every job of `fabric` around `faults`.
///
/// # Errors
/// Fails if a job does not fit, or if the network cannot carry its traffic.
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
    // Groups that ignore leaves can need more circuits than there are.
    let alone = alone(fabric, faults, Options { exact: None, ..options }).ok();
    let step_alone = alone.as_ref().and_then(|plan| plan.metrics.step_time_ps);
    let step_alone = step_alone.unwrap_or(Picoseconds::ZERO);
    let is_routed = best.plan.phases.iter().any(|phase| !phase.routes.is_empty());
    if step > step_alone || (is_routed && fabric.dcn.circuits().is_some()) {
        // The estimates were wrong or ignore routes through other leaves, so try the separate plan, also with the best order of ranks.
        let groups = khop::plan(fabric, faults, Method::Blind)?;
        if let Ok((ranked, mapped)) = complete(fabric, faults, groups, options) {
            best.offer(ranked, &mapped);
            alone.into_iter().for_each(|alone| best.offer(alone, &mapped));
        }
    }
    if options.method != Method::Scan {
        // The exact method maximises the number of rings, which can make the step slower.
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

struct Quickest {
    plan: Plan,
    mappings: Vec<Mapping>,
}

impl Quickest {
    fn offer(&mut self, plan: Plan, mappings: &[Mapping]) {
        let (offered, own) = (&plan.metrics, &self.plan.metrics);
        if offered.gpus_used >= own.gpus_used && offered.step_time_ps < own.step_time_ps {
            self.plan = plan;
            self.mappings = mappings.to_vec();
        }
    }

    /// Candidates must have the same number of groups, so that the mappings still apply.
    fn offer_alike(&mut self, plan: Plan) {
        if plan.metrics.gpus_used == self.plan.metrics.gpus_used {
            let mappings = self.mappings.clone();
            self.offer(plan, &mappings);
        }
    }
}

const MOST_NODES_MENDED: u32 = 256;

fn mended(fabric: &Fabric, faults: &FaultSet, best: &Quickest, options: Options) -> Option<Plan> {
    // On direct networks, the search over idle nodes has already tried these placements.
    let is_tried = fabric.dcn.direct().is_some();
    let unbroken = FaultSet { nodes: fabric.absent.clone(), ..FaultSet::none() };
    if *faults == unbroken || is_tried || fabric.hbd.nodes() > MOST_NODES_MENDED {
        return None;
    }
    let options = Options { compare: false, ..options };
    let whole = plan(fabric, &unbroken, options).ok()?;
    if whole.metrics.step_time_ps >= best.plan.metrics.step_time_ps {
        return None;
    }
    let mended = replan(fabric, &whole, faults, false, options).ok()?.plan;
    mended.given_up.is_empty().then_some(mended)
}

fn complete(
    fabric: &Fabric,
    faults: &FaultSet,
    mut layout: Layout,
    options: Options,
) -> Result<(Plan, Vec<Mapping>), PlanError> {
    let mappings = mapping::mappings(fabric, &mut layout)?;
    layout.name_by_place();
    let mut plan = khop::to_document(fabric, faults, options.seed, &layout);
    let ranks = &mut plan.ranks;
    let orders = match options.separately {
        true => vec![(0.0, mappings.clone())],
        false => mapping::rank_in_best_order(fabric, faults, ranks, &layout, &mappings)?,
    };
    let is_small = fabric.hbd.nodes() <= MOST_NODES_IN_ORDERS && fabric.dcn.circuits().is_some();
    let mut best = None::<Result<CarriedStep, PlanError>>;
    for (least, order) in orders {
        let planned = best.as_ref().and_then(|best| best.as_ref().ok());
        let step = planned.map(|planned| planned.step_time_ps.unwrap_or_default());
        // No circuits are faster than the estimate.
        if step.is_some_and(|step| !is_small || step.as_secs_f64() <= least) {
            break;
        }
        let mut ranks = plan.ranks.clone();
        mapping::rank(fabric, &mut ranks, &layout, &order);
        let found = network::carry(fabric, faults, &phases(fabric, &ranks)?, options);
        let is_better = match &found {
            Ok(found) => step.is_none_or(|step| found.step_time_ps < Some(step)),
            Err(_) => best.is_none(),
        };
        if is_better {
            (plan.ranks, best) = (ranks, Some(found));
        }
    }
    best.expect("every job has an order")?.write_into(&mut plan);
    Ok((plan, mappings))
}

/// Maximum number of nodes with circuits planned for several orders of ranks.
const MOST_NODES_IN_ORDERS: u32 = 64;

fn has_placed_step(fabric: &Fabric) -> bool {
    fabric.jobs.iter().any(|job| job.is_placed() && job.step.is_some())
}

fn alone(fabric: &Fabric, faults: &FaultSet, options: Options) -> Result<Plan, PlanError> {
    let groups = khop::plan(fabric, faults, Method::Blind)?;
    let options = Options { separately: true, ..options };
    complete(fabric, faults, groups, options).map(|(plan, _)| plan)
}

fn state_gain(metrics: &mut Metrics, step: Picoseconds, alone: Picoseconds, least: Option<f64>) {
    let alone = alone.as_secs_f64();
    if alone <= 0.0 {
        return;
    }
    metrics.orchestration_gain = Some(1.0 - step.as_secs_f64() / alone);
    metrics.orchestration_gain_upper_bound = least.map(|least| 1.0 - least / alone);
}
