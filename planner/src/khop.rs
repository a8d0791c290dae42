//! The k-hop ring planner: from a fabric and its faults to rings of GPUs that route around them.
//!
//! ```text
//!   Fabric + FaultSet ──▶ Survey        what can be used
//!                          │ grouping   chains of m nodes along the line (DCN-free)
//!                          │ placement  which chains, so that equal ranks share a ToR
//!                          ▼
//!                        Layout         groups and the path of every bundle
//!                          │ document   ──▶ plan.json
//!                          └ replan     ──▶ the next layout with the least change
//! ```
//!
//! Structure after InfiniteHBD (arXiv 2502.03885); its listings were not available, and every
//! choice made here is named in docs/khop.md.

mod document;
mod exact;
mod grouping;
mod islands;
mod layout;
mod metrics;
mod placement;
mod replan;
mod ring;
mod survey;

pub use document::{DocumentError, from_document, to_document};
pub use exact::{ExactError, MAX_CANDIDATES, most_groups};
pub use layout::{JobOutcome, Layout, RingGroup, Segment};
pub use metrics::{CrossTor, cross_tor};
pub use replan::{Change, GroupChange, replan, replan_after_repairs};
pub use survey::Survey;

use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Position;

use placement::{Demand, Placement};

/// How rings are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Scan and dynamic program along the line, then placement over the ToRs: linear in the nodes.
    Scan,
    /// The true maximum number of rings by integer programming; small fabrics only. Ignores ToRs.
    Exact,
    /// The scan alone, without regard to ToRs: what placement is compared with.
    Blind,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The job wants more than can be grouped.
    #[error(
        "job `{job}` wants {wanted} GPUs in rings of {tp}, but only {possible} fit: {healthy} of {total} GPUs are healthy"
    )]
    DoesNotFit {
        /// The job.
        job: String,
        /// GPUs it wants.
        wanted: u64,
        /// GPUs of one ring.
        tp: u32,
        /// GPUs that fit.
        possible: u64,
        /// GPUs of working nodes.
        healthy: u64,
        /// GPUs installed.
        total: u64,
    },
    /// The exact method cannot take a fabric of this size.
    #[error(transparent)]
    Exact(#[from] ExactError),
}

/// Plans every job of `fabric` around `faults`, then makes spare rings of what is left.
///
/// # Errors
/// If a job does not fit, or if [`Method::Exact`] is asked of a fabric too large for it.
pub fn plan(fabric: &Fabric, faults: &FaultSet, method: Method) -> Result<Layout, PlanError> {
    let survey = Survey::new(&fabric.hbd, faults);
    let mut layout = Layout::dark(fabric);
    let mut free = survey.alive().to_vec();
    for (index, job) in (0..).zip(&fabric.jobs) {
        if !job.is_placed() {
            layout.add_job(fabric, job, index, &Placement::unconstrained(), Vec::new(), &mut free);
            continue;
        }
        let (placement, groups) = place(fabric, &survey, &free, job, method)?;
        require_fit(fabric, &survey, job, groups.len())?;
        layout.add_job(fabric, job, index, &placement, groups, &mut free);
    }
    for tp in spare_sizes(&fabric.jobs) {
        let groups = any_groups(fabric, &survey, &free, tp);
        layout.add_groups(fabric, None, groups, &mut free);
    }
    Ok(layout)
}

/// Spare rings have the sizes that jobs use, the largest first.
fn spare_sizes(jobs: &[Job]) -> Vec<u32> {
    let placed = jobs.iter().filter(|job| job.is_placed());
    let mut sizes: Vec<u32> = placed.map(|job| job.tp).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    sizes
}

fn place(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    job: &Job,
    method: Method,
) -> Result<(Placement, Vec<RingGroup>), PlanError> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let wanted = match job.size {
        JobSize::All => None,
        JobSize::Gpus(gpus) => {
            Some(usize::try_from(gpus.div_ceil(u64::from(job.tp))).unwrap_or(usize::MAX))
        }
    };
    if job.tp < per_node {
        let mut groups = placement::inside_nodes(fabric, survey, free, job.tp);
        groups.truncate(wanted.unwrap_or(usize::MAX));
        return Ok((Placement::unconstrained(), groups));
    }
    let nodes_per_group = (job.tp / per_node) as usize;
    if fabric.hbd.grouping() != Grouping::Line || method == Method::Blind {
        let mut groups = any_groups(fabric, survey, free, job.tp);
        groups.truncate(wanted.unwrap_or(usize::MAX));
        return Ok((Placement::unconstrained(), groups));
    }
    if method == Method::Exact {
        let mut groups = most_groups(survey, free, nodes_per_group)?;
        groups.truncate(wanted.unwrap_or(usize::MAX));
        return Ok((Placement::unconstrained(), groups));
    }
    let demand = Demand { nodes_per_group, groups: wanted };
    let mut placement = placement::orchestrate(fabric, survey, free, demand);
    let mut chains = std::mem::take(&mut placement.chains);
    chains.truncate(wanted.unwrap_or(usize::MAX));
    let mut groups: Vec<RingGroup> =
        chains.into_iter().map(|chain| RingGroup::chain(&fabric.hbd, &chain)).collect();
    placement::deal_ranks(&fabric.dcn, &mut groups);
    Ok((placement, groups))
}

fn any_groups(fabric: &Fabric, survey: &Survey<'_>, free: &[bool], tp: u32) -> Vec<RingGroup> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    if tp < per_node {
        return placement::inside_nodes(fabric, survey, free, tp);
    }
    let nodes = (tp / per_node) as usize;
    let chains = match fabric.hbd.grouping() {
        Grouping::Line => grouping::chains_on_line(survey, free, nodes),
        Grouping::Island { nodes: island } => islands::groups(survey, free, nodes, island),
        Grouping::Anywhere => islands::groups(survey, free, nodes, fabric.hbd.nodes()),
    };
    chains.into_iter().map(|chain| RingGroup::chain(&fabric.hbd, &chain)).collect()
}

fn require_fit(
    fabric: &Fabric,
    survey: &Survey<'_>,
    job: &Job,
    groups: usize,
) -> Result<(), PlanError> {
    let possible = groups as u64 * u64::from(job.tp);
    match job.size {
        JobSize::Gpus(wanted) if possible < wanted => Err(PlanError::DoesNotFit {
            job: job.name.clone(),
            wanted,
            tp: job.tp,
            possible,
            healthy: survey.healthy_gpus(),
            total: fabric.hbd.gpus(),
        }),
        _ => Ok(()),
    }
}

/// A chain of nodes along the line: consecutive ones are joined by a fibre.
pub(crate) type Chain = Vec<Position>;
