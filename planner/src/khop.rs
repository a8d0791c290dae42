// SPDX-License-Identifier: Apache-2.0
//! Plans k-hop rings by grouping GPUs into rings that bypass the faults of a fabric.
//!
//! ```text
//!   Fabric + FaultSet ──▶ Survey        usable nodes and fibres
//!                          │ grouping   chains of m nodes along the line (ignores the DCN)
//!                          │ placement  chooses chains so that equal ranks share a ToR
//!                          ▼
//!                        Layout         groups and the path of every bundle
//!                          │ document   ──▶ plan.json
//!                          └ replan     ──▶ the next layout with the least change
//! ```
//!
//! The design follows InfiniteHBD (arXiv 2502.03885). The paper does not publish its listings;
//! docs/khop.md lists our own design choices.

mod bound;
mod columns;
mod document;
mod exact;
mod grouping;
mod islands;
mod layout;
mod metrics;
mod packing;
mod placement;
mod replan;
mod ring;
mod sliding;
mod small;
mod spare;
mod survey;

pub use document::{DocumentError, from_document, to_document};
pub use exact::{ExactError, MAX_CANDIDATES, MostRings, SOLVER_SECONDS, most_groups};
pub use layout::{JobOutcome, Layout, RingGroup, Segment};
pub use metrics::{CrossTor, cross_tor};
pub use replan::{Change, GroupChange, MovedForOthers, replan, replan_after_repairs};
pub(crate) use replan::{groups_hit, matched, rebuilt};
pub use survey::{Bounds, MoveLimit, Survey};

use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Position;
use lightloom_fabric::plan::RingProof;

/// How rings are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Scans the line, then places chains to keep equal ranks under one ToR. Takes linear time.
    Scan,
    /// Maximises the number of rings by integer programming. Ignores ToRs; for small fabrics only.
    Exact,
    /// Scans the line and ignores ToRs. The baseline for placement.
    Blind,
}

/// Why planning failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum PlanError {
    #[error(
        "job `{job}` requests {wanted} GPUs in rings of {tp}{}, but only {possible} fit: \
         {healthy} of {total} GPUs are healthy",
        if *.with_spares { " with a spare node each (`spare_per_ring: 1`)" } else { "" }
    )]
    DoesNotFit {
        job: String,
        wanted: u64,
        tp: u32,
        possible: u64,
        healthy: u64,
        total: u64,
        with_spares: bool,
    },
    #[error(transparent)]
    Exact(#[from] ExactError),
}

/// Plans every job of `fabric` around `faults`, then forms spare rings from the nodes left over.
///
/// # Errors
/// Fails if a job does not fit, or if the fabric is too large for [`Method::Exact`].
pub fn plan(fabric: &Fabric, faults: &FaultSet, method: Method) -> Result<Layout, PlanError> {
    plan_leaving(fabric, faults, method, &[])
}

/// Like [`plan`], but keeps the nodes in `left` out of jobs. These nodes may still become spares.
pub(crate) fn plan_leaving(
    fabric: &Fabric,
    faults: &FaultSet,
    method: Method,
    left: &[lightloom_units::id::NodeId],
) -> Result<Layout, PlanError> {
    let survey = Survey::new(&fabric.hbd, faults);
    let mut layout = Layout::dark(fabric);
    let mut free = survey.alive().to_vec();
    for node in left {
        free[fabric.hbd.position_of(*node).index()] = false;
    }
    let mut proofs = vec![None; fabric.jobs.len()];
    // With spares, a ring is a run of adjacent nodes, and the scan already finds the maximum.
    let scans = method == Method::Scan || method == Method::Exact && spare::are_wanted(fabric);
    let placed = if scans && fabric.hbd.grouping() == Grouping::Line {
        together(fabric, &survey, &mut free)
    } else {
        in_turn(fabric, &survey, &mut free, method, &mut proofs)?
    };
    for (index, (job, groups)) in (0..).zip(fabric.jobs.iter().zip(placed)) {
        if job.is_placed() {
            require_fit(fabric, &survey, job, groups.len())?;
        }
        let bound = cross_tor_bound(fabric, &survey, job, &groups);
        layout.add_job(fabric, job, index, bound, groups, &mut free);
    }
    for node in left {
        let position = fabric.hbd.position_of(*node).index();
        free[position] = survey.alive()[position];
    }
    for tp in spare_sizes(&fabric.jobs) {
        let groups = any_groups(fabric, &survey, &free, tp);
        layout.add_groups(fabric, None, groups, &mut free);
    }
    for (job, proof) in layout.jobs.iter_mut().zip(proofs) {
        job.most_rings = proof;
    }
    Ok(layout)
}

/// Counts the GPUs in groups of `tp` GPUs if one job takes all of them. The scan of [`plan`] forms as many groups.
pub fn gpus_in_groups(fabric: &Fabric, faults: &FaultSet, tp: u32) -> u64 {
    let survey = Survey::new(&fabric.hbd, faults);
    let (free, per_node) = (survey.alive(), u32::from(fabric.hbd.gpus_per_node()));
    let groups = any_groups(fabric, &survey, free, tp);
    let nodes = (tp / per_node) as usize;
    let is_searched =
        nodes > 0 && fabric.hbd.grouping() == Grouping::Line && !spare::are_wanted(fabric);
    let more = is_searched.then(|| small::more_rings(&survey, free, nodes, groups.len())).flatten();
    let groups = more.unwrap_or(groups);
    groups.iter().map(|group| u64::from(group.gpus(fabric.hbd.gpus_per_node()))).sum()
}

fn spare_sizes(jobs: &[Job]) -> Vec<u32> {
    let placed = jobs.iter().filter(|job| job.is_placed());
    let mut sizes: Vec<u32> = placed.map(|job| job.tp).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    sizes
}

fn together(fabric: &Fabric, survey: &Survey<'_>, free: &mut [bool]) -> Vec<Vec<RingGroup>> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let mut placed: Vec<Vec<RingGroup>> = vec![Vec::new(); fabric.jobs.len()];
    let placed_jobs = (0..fabric.jobs.len()).filter(|job| fabric.jobs[*job].is_placed());
    let (mut limited, free_jobs): (Vec<usize>, Vec<usize>) = placed_jobs
        .partition(|job| fabric.jobs[*job].nodes.is_some() || fabric.jobs[*job].least.is_some());
    limited.sort_by_key(|job| fabric.jobs[*job].nodes.is_none());
    let (sized, rest): (Vec<usize>, Vec<usize>) =
        free_jobs.into_iter().partition(|job| groups_wanted(&fabric.jobs[*job]).is_some());
    let (first, small): (Vec<usize>, Vec<usize>) =
        sized.into_iter().partition(|job| fabric.jobs[*job].tp >= per_node);
    let turns = limited.into_iter().map(|job| vec![job]).chain([first]);
    let turns = turns.chain(small.into_iter().chain(rest).map(|job| vec![job]));
    for jobs in turns.filter(|jobs| !jobs.is_empty()) {
        let usable = usable(fabric, &fabric.jobs[jobs[0]], free);
        let groups = groups_of(fabric, survey, &usable, &jobs);
        for node in groups.iter().flatten().flat_map(|group| &group.nodes) {
            free[fabric.hbd.position_of(*node).index()] = false;
        }
        for (job, groups) in jobs.into_iter().zip(groups) {
            placed[job] = groups;
        }
    }
    placed
}

fn groups_of(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    jobs: &[usize],
) -> Vec<Vec<RingGroup>> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let first = &fabric.jobs[jobs[0]];
    if first.tp < per_node {
        let mut groups = placement::inside_nodes(fabric, survey, free, first.tp);
        groups.truncate(groups_wanted(first).unwrap_or(usize::MAX));
        return vec![groups];
    }
    let has_spare = spare::are_wanted(fabric);
    let needs = jobs.iter().map(|job| {
        let job = &fabric.jobs[*job];
        let length = (job.tp / per_node) as usize + usize::from(has_spare);
        let groups = groups_wanted(job);
        (length, groups.unwrap_or_else(|| packing::most_chains(fabric, survey, free, length).len()))
    });
    let needs: Vec<(usize, usize)> = needs.collect();
    let mut placed: Vec<Vec<RingGroup>> = Vec::new();
    for chains in placement::orchestrate(fabric, survey, free, &needs) {
        let groups = chains.iter().map(|chain| RingGroup::chain(&fabric.hbd, chain));
        let mut groups: Vec<RingGroup> = groups.collect();
        placement::deal(fabric, &mut groups);
        placed.push(groups);
    }
    if let ([(length, _)], [groups]) = (needs.as_slice(), placed.as_mut_slice()) {
        let wanted = groups_wanted(first).unwrap_or(usize::MAX);
        if groups.len() < wanted
            && !has_spare
            && let Some(mut more) = small::more_rings(survey, free, *length, groups.len())
        {
            more.truncate(wanted);
            more.sort_by_key(|group| group.nodes.iter().map(|node| fabric.dcn.tor_of(*node)).min());
            placement::deal(fabric, &mut more);
            *groups = more;
        }
        if let Some(better) = small::fewer_crossing(fabric, survey, free, *length, groups) {
            *groups = better;
        }
    }
    placed
}

/// Returns the free nodes that a job may use, by position.
fn usable(fabric: &Fabric, job: &Job, free: &[bool]) -> Vec<bool> {
    let may_use = |position: u32| {
        let nodes = job.nodes.as_ref();
        nodes.is_none_or(|nodes| nodes.contains(&fabric.hbd.node_at(Position(position))))
    };
    (0..).zip(free).map(|(position, free)| *free && may_use(position)).collect()
}

fn groups_wanted(job: &Job) -> Option<usize> {
    match job.size {
        JobSize::All => None,
        JobSize::Gpus(gpus) => {
            Some(usize::try_from(gpus.div_ceil(u64::from(job.tp.max(1)))).unwrap_or(usize::MAX))
        }
    }
}

fn in_turn(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &mut [bool],
    method: Method,
    proofs: &mut [Option<RingProof>],
) -> Result<Vec<Vec<RingGroup>>, ExactError> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let mut placed = vec![Vec::new(); fabric.jobs.len()];
    let line = fabric.hbd.grouping() == Grouping::Line;
    let mut order: Vec<usize> = (0..fabric.jobs.len()).collect();
    order.sort_by_key(|job| fabric.jobs[*job].nodes.is_none());
    for index in order {
        let job = &fabric.jobs[index];
        let usable = usable(fabric, job, free);
        let mut groups = if !job.is_placed() {
            Vec::new()
        } else if method == Method::Exact && line && job.tp >= per_node {
            let most = most_groups(survey, &usable, (job.tp / per_node) as usize, SOLVER_SECONDS)?;
            proofs[index] = Some(most.proof);
            most.groups
        } else {
            any_groups(fabric, survey, &usable, job.tp)
        };
        groups.truncate(groups_wanted(job).unwrap_or(usize::MAX));
        for node in groups.iter().flat_map(|group| &group.nodes) {
            free[fabric.hbd.position_of(*node).index()] = false;
        }
        placed[index] = groups;
    }
    Ok(placed)
}

fn cross_tor_bound(fabric: &Fabric, survey: &Survey<'_>, job: &Job, placed: &[RingGroup]) -> f64 {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    if job.tp < per_node || fabric.hbd.grouping() != Grouping::Line {
        return 0.0;
    }
    let (length, groups) = ((job.tp / per_node) as usize, placed.len());
    let alone = usize::from(groups % fabric.dcn.nodes_per_tor().max(1) as usize == 1);
    let hops = (groups - alone.min(groups)) * length;
    let mut crossing = bound::least_crossing(fabric, survey, length, groups);
    if spare::are_wanted(fabric) {
        let side_by_side = bound::least_crossing_with_spares(fabric, survey, length, groups);
        crossing = crossing.max(side_by_side);
    }
    let run = length + usize::from(spare::are_wanted(fabric));
    crossing = crossing.max(small::least_crossing(fabric, survey, run, placed).unwrap_or(0));
    CrossTor { hops: hops as u64, crossing }.share()
}

fn any_groups(fabric: &Fabric, survey: &Survey<'_>, free: &[bool], tp: u32) -> Vec<RingGroup> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    if tp < per_node {
        return placement::inside_nodes(fabric, survey, free, tp);
    }
    let nodes = (tp / per_node) as usize;
    if spare::are_wanted(fabric) {
        return spare::rings(fabric, survey, free, nodes);
    }
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
    let wanted = match job.size {
        JobSize::Gpus(wanted) => job.least.unwrap_or(wanted),
        JobSize::All => job.least.unwrap_or(0),
    };
    if possible >= wanted {
        return Ok(());
    }
    Err(PlanError::DoesNotFit {
        job: job.name.clone(),
        wanted,
        tp: job.tp,
        possible,
        healthy: survey.healthy_gpus(),
        total: fabric.gpus(),
        with_spares: spare::are_wanted(fabric) && job.tp >= u32::from(fabric.hbd.gpus_per_node()),
    })
}

pub(crate) type Chain = Vec<Position>;
