//! The next plan of a whole fabric, with the least change in both halves.
//!
//! Groups that no fault touches stay, and so do their ranks. A group rebuilt keeps its coordinates. Where a job lost
//! groups, whole data-parallel replicas are given up, those that lost most; what survives of them takes the
//! place of what the others lost. Circuits stay where they are: one that lost a port is made again on another
//! switch. Only where that serves a phase much worse than new circuits could are circuits planned anew.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::StepFile;
use lightloom_fabric::plan::{GivenUp, Plan, Rank};
use lightloom_units::id::GroupId;

use super::mapping::Coordinates;
use super::{Options, PlanError, network, phases};
use crate::khop::{self, Change, DocumentError, GroupChange, Layout, Survey};

/// Why there is no next plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplanError {
    /// The plan in force is not one for this fabric.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The next one cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// The next plan, and what moves for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replanned {
    /// The plan.
    pub plan: Plan,
    /// Transceivers and groups that change.
    pub change: Change,
    /// Cross-connects that are made, over all phases.
    pub circuits_made: usize,
    /// Cross-connects that go, over all phases.
    pub circuits_removed: usize,
}

/// Plans `fabric` around `faults`, changing as little as possible of `before`. After repairs (`is_repair`) idle nodes
/// form spare groups again.
///
/// # Errors
/// If `before` is no plan for this fabric, or nothing can carry what the jobs send.
pub fn replan(
    fabric: &Fabric,
    before: &Plan,
    faults: &FaultSet,
    is_repair: bool,
    options: Options,
) -> Result<Replanned, ReplanError> {
    let (mut layout, _) = khop::from_document(fabric, before)?;
    let known = coordinates(before);
    let survey = Survey::new(&fabric.hbd, faults);
    let change = match is_repair {
        false => khop::replan(fabric, &survey, &mut layout),
        true => khop::replan_after_repairs(fabric, &survey, &mut layout),
    };
    let (ranked, given_up) = hand_on(fabric, &mut layout, &change, &known);
    let mut plan = khop::to_document(fabric, faults, before.seed, &layout);
    for rank in &mut plan.ranks {
        write(rank, ranked.get(&rank.group), fabric);
    }
    let sent = phases(fabric, &plan.ranks).map_err(ReplanError::from)?;
    let circuits: Vec<Vec<CrossConnect>> =
        before.phases.iter().map(|phase| phase.circuits.clone()).collect();
    let carried = network::carry_on(fabric, faults, &sent, &circuits, options)?;
    plan.given_up = before.given_up.iter().cloned().chain(given_up).collect();
    carried.write_into(&mut plan);
    let (circuits_made, circuits_removed) = changed(before, &plan);
    Ok(Replanned { plan, change, circuits_made, circuits_removed })
}

/// The coordinates of every group of a job, by its place.
fn coordinates(plan: &Plan) -> BTreeMap<usize, Coordinates> {
    let at = |rank: &Rank| Coordinates { pp: rank.pp, cp: rank.cp, dp: rank.dp };
    let ranks = plan.ranks.iter().filter(|rank| rank.job.is_some());
    ranks.map(|rank| (rank.group.index(), at(rank))).collect()
}

fn write(rank: &mut Rank, at: Option<&Coordinates>, fabric: &Fabric) {
    let (Some(job), Some(at)) = (rank.job, at) else { return };
    let ep = match fabric.jobs.get(job as usize).and_then(|job| job.step.as_ref()) {
        Some(StepFile::Training(raw)) => raw.ep,
        _ => 1,
    };
    (rank.pp, rank.cp, rank.dp, rank.ep) = (at.pp, at.cp, at.dp, at.dp % ep);
}

/// The coordinates of every group of the next layout, and what jobs had to give up.
fn hand_on(
    fabric: &Fabric,
    layout: &mut Layout,
    change: &Change,
    known: &BTreeMap<usize, Coordinates>,
) -> (BTreeMap<GroupId, Coordinates>, Vec<GivenUp>) {
    let lost = |place: &usize| {
        change.groups.iter().any(|change| {
            matches!(change, GroupChange::Lost { job: Some(_), group, .. } if group == place)
        })
    };
    // Groups of jobs stand first and keep their order, so those that were not lost follow one another.
    let mut at: Vec<Option<Coordinates>> =
        known.iter().filter(|(place, _)| !lost(place)).map(|(_, at)| Some(*at)).collect();
    at.resize(layout.groups.len().max(at.len()), None);
    let mut given_up = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let own: Vec<usize> = (0..layout.groups.len())
            .filter(|place| layout.groups[*place].job == Some(index))
            .collect();
        match &job.step {
            Some(StepFile::Training(raw)) => {
                let per_replica = (raw.pp * raw.cp) as usize;
                let most = (own.len() / per_replica) as u32 / raw.ep * raw.ep;
                let before = own.iter().filter_map(|place| at[*place]).map(|at| at.dp + 1).max();
                let wanted = raw.dp.or(before).unwrap_or(most);
                let dp = most.min(wanted);
                let left = shrink(layout, &own, &mut at, (raw.pp, raw.cp, dp));
                let gone = u64::from(wanted.saturating_sub(dp)) * per_replica as u64;
                if gone > 0 {
                    given_up.push(GivenUp {
                        job: job.name.clone(),
                        gpus: gone * u64::from(job.tp),
                        why: format!(
                            "{} groups of {} GPUs are left: {dp} of {wanted} data-parallel replicas fit, and {left} groups are spare",
                            own.len(), job.tp
                        ),
                    });
                }
            }
            _ => {
                for (number, place) in (0..).zip(own) {
                    at[place] = Some(Coordinates { dp: number, ..Coordinates::default() });
                }
            }
        }
    }
    let order = layout.order_by_job();
    let ranked = order.iter().enumerate().filter_map(|(new, old)| {
        at[*old]
            .filter(|_| layout.groups[new].job.is_some())
            .map(|at| (GroupId::from_index(new), at))
    });
    (ranked.collect(), given_up)
}

/// Fits a job's groups to `dp` replicas: the fullest replicas stay, what is left of the others fills their holes, and
/// what is left then is made spare. Returns how many groups that are.
fn shrink(
    layout: &mut Layout,
    own: &[usize],
    at: &mut [Option<Coordinates>],
    (pp, cp, dp): (u32, u32, u32),
) -> usize {
    let mut members: BTreeMap<u32, usize> = BTreeMap::new();
    for at in own.iter().filter_map(|place| at[*place]) {
        *members.entry(at.dp).or_default() += 1;
    }
    let mut replicas: Vec<(usize, u32)> =
        members.into_iter().map(|(dp, groups)| (groups, dp)).collect();
    replicas.sort_unstable_by_key(|(groups, dp)| (std::cmp::Reverse(*groups), *dp));
    replicas.truncate(dp as usize);
    let mut kept: Vec<u32> = replicas.into_iter().map(|(_, dp)| dp).collect();
    kept.sort_unstable();
    // A replica whose number is still valid keeps it; the others take the numbers that are free.
    let mut free: Vec<u32> = (0..dp).filter(|number| !kept.contains(number)).rev().collect();
    let mut number_of = BTreeMap::new();
    for replica in kept {
        let number = if replica < dp { Some(replica) } else { free.pop() };
        number_of.extend(number.map(|number| (replica, number)));
    }
    let mut holes: std::collections::BTreeSet<(u32, u32, u32)> =
        (0..dp).flat_map(|d| (0..pp).flat_map(move |p| (0..cp).map(move |c| (d, p, c)))).collect();
    let mut homeless = Vec::new();
    for &place in own {
        let renumbered =
            at[place].and_then(|at| number_of.get(&at.dp).map(|dp| Coordinates { dp: *dp, ..at }));
        match renumbered {
            Some(new) if holes.remove(&(new.dp, new.pp, new.cp)) => at[place] = Some(new),
            _ => homeless.push(place),
        }
    }
    let mut left = 0;
    for place in homeless {
        match holes.pop_first() {
            Some((dp, pp, cp)) => at[place] = Some(Coordinates { pp, cp, dp }),
            None => {
                layout.groups[place].job = None;
                left += 1;
            }
        }
    }
    left
}

/// Cross-connects made and removed from plan to plan, phase by phase.
fn changed(before: &Plan, after: &Plan) -> (usize, usize) {
    let mut made = 0;
    let mut removed = 0;
    for phase in &after.phases {
        let old = before.phases.iter().find(|old| old.name == phase.name);
        let old: std::collections::BTreeSet<CrossConnect> =
            old.into_iter().flat_map(|old| old.circuits.iter().copied()).collect();
        let new: std::collections::BTreeSet<CrossConnect> =
            phase.circuits.iter().copied().collect();
        made += new.difference(&old).count();
        removed += old.difference(&new).count();
    }
    (made, removed)
}
