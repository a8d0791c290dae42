// SPDX-License-Identifier: Apache-2.0
//! Effects of faults on each group: delay, downtime, and the remaining share of useful time.

use std::collections::BTreeSet;

use lightloom_units::id::GroupId;
use lightloom_units::{Picoseconds, SimTime};

use super::shares::Share;
use super::{JudgedRun, Without};
use crate::outcome::{GroupResult, WorkloadResult};
use crate::run::RunLog;
use crate::run::workload::{GroupLog, StepLog};
use crate::scenario::Scenario;

pub(super) fn results(log: &RunLog, baseline: &RunLog) -> Vec<GroupResult> {
    let moved = moved(log, baseline);
    let result = |(index, group): (usize, &GroupLog)| {
        let end = end(log, group);
        let there = baseline.groups.get(index);
        let end_without_faults = there.and_then(|there| self::end(baseline, there));
        GroupResult {
            group: GroupId::from_index(index),
            gpus: group.gpus,
            end,
            end_without_faults,
            delay: end
                .zip(end_without_faults)
                .map(|(end, calm)| Picoseconds(end.0.saturating_sub(calm.0))),
            down: group.down,
            lost: group.lost,
            unaffected: (!is_idle(log, group)).then(|| moved[index].is_none() && !group.lost),
            step_ends: match log.trained.is_empty() {
                true => Vec::new(),
                false => group.steps.iter().map(|step| step.end).collect(),
            },
        }
    };
    log.groups.iter().enumerate().map(result).collect()
}

/// Returns the collectives of a group and those between its job's groups, in order.
fn steps<'a>(log: &'a RunLog, group: &'a GroupLog) -> impl Iterator<Item = &'a StepLog> {
    group.steps.iter().chain(&log.between[group.job as usize])
}

/// Returns when a group finished all its work, or `None` if it did not.
fn end(log: &RunLog, group: &GroupLog) -> Option<SimTime> {
    let all_done = !group.lost && group.is_through(log.program_length);
    all_done.then(|| steps(log, group).filter_map(|step| step.end).max()).flatten()
}

/// Returns the end of the time counted for a group: its own end, or the end of the run if it has
/// work left.
fn counted_until(log: &RunLog, group: &GroupLog) -> SimTime {
    end(log, group).unwrap_or(log.ended)
}

/// Returns whether a group has no work because its job does not run.
fn is_idle(log: &RunLog, group: &GroupLog) -> bool {
    group.is_through(log.program_length) && steps(log, group).next().is_none()
}

/// Returns the share of the groups' time without downtime caused by faults, weighted by GPUs.
pub(super) fn availability(log: &RunLog) -> Share {
    let mut share = Share::default();
    for group in log.groups.iter().filter(|group| !is_idle(log, group)) {
        let time = counted_until(log, group).0 as f64;
        let weight = f64::from(group.gpus);
        share.whole += weight * time;
        share.part += weight * (time - group.down.0 as f64).max(0.0);
    }
    share
}

/// Returns the share of the groups' time that the same work takes without faults, weighted by GPUs.
pub(super) fn goodput(log: &RunLog, baseline: &RunLog) -> Share {
    let mut share = Share::default();
    let both = log.groups.iter().zip(&baseline.groups);
    for (group, there) in both.filter(|(group, _)| !is_idle(log, group)) {
        let last = steps(log, group).filter(|step| step.end.is_some()).map(|step| step.place).max();
        let without = last.and_then(|last| {
            let done = steps(baseline, there).filter(|step| step.place <= last);
            done.filter_map(|step| step.end).max()
        });
        let weight = f64::from(group.gpus);
        share.part += weight * without.unwrap_or_default().0 as f64;
        share.whole += weight * counted_until(log, group).0 as f64;
    }
    share
}

/// Returns, by group, when it first differed from the run without faults, or `None` if it never
/// did. A group that was formed only after a repair cannot differ.
pub(super) fn moved(log: &RunLog, baseline: &RunLog) -> Vec<Option<SimTime>> {
    let differs = |here: &[StepLog], there: &[StepLog]| {
        let calm_end = |step: &StepLog| at_place(there, step.place).and_then(|step| step.end);
        let mut moved = here.iter().filter(|step| step.end != calm_end(step));
        let first = moved.next().map(|step| step.end.or(calm_end(step)).unwrap_or(log.ended));
        first.or((here.len() != there.len()).then_some(log.ended))
    };
    let first_difference = |(group, there): (&GroupLog, &GroupLog)| {
        let job = group.job as usize;
        let between = differs(&log.between[job], &baseline.between[job]);
        differs(&group.steps, &there.steps).into_iter().chain(between).min()
    };
    let both = log.groups.iter().zip(&baseline.groups);
    let mut moved: Vec<_> = both.map(first_difference).collect();
    moved.resize(log.groups.len(), None);
    moved
}

/// Returns the step at a place of the program.
fn at_place(steps: &[StepLog], place: usize) -> Option<&StepLog> {
    steps.binary_search_by_key(&place, |step| step.place).ok().map(|index| &steps[index])
}

/// The impact of a fault on groups.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupImpact {
    pub(super) groups: Vec<GroupId>,
    pub(super) gpus: u64,
    /// How much later the slowest of them ended. `None` if one has work left.
    pub(super) delay: Option<Picoseconds>,
    /// Groups with work that end everything at the same picosecond without the fault. `None` if
    /// that run was not made.
    pub(super) unaffected: Option<Vec<GroupId>>,
}

/// Returns, by fault, its impact on groups. If there are runs without each fault, these decide.
/// Otherwise a changed group was affected by the faults that hit its links or moved it. If no fault
/// hit it, it was affected by the last ones before its first changed end; among faults of the same
/// instant, those that hit its job take precedence.
pub(super) fn impacts(ran: &JudgedRun<'_>, results: &[GroupResult]) -> Vec<GroupImpact> {
    let log = ran.log;
    let affected = match ran.without.is_empty() {
        true => by_hits(ran),
        false => by_removal(ran),
    };
    let impact = |(fault, groups): (usize, BTreeSet<usize>)| GroupImpact {
        gpus: groups.iter().map(|group| u64::from(log.groups[*group].gpus)).sum(),
        delay: groups
            .iter()
            .map(|group| delay(ran, fault, &results[*group]))
            .collect::<Option<Vec<_>>>()
            .and_then(|delays| delays.into_iter().max().or(Some(Picoseconds::ZERO))),
        unaffected: ran.without.get(fault).and_then(|without| without.log(ran.baseline)).map(
            |_| {
                let others = (0..log.groups.len()).filter(|group| !groups.contains(group));
                let at_work = others.filter(|group| !is_idle(log, &log.groups[*group]));
                at_work.map(GroupId::from_index).collect()
            },
        ),
        groups: groups.into_iter().map(GroupId::from_index).collect(),
    };
    affected.into_iter().enumerate().map(impact).collect()
}

/// Returns, by fault, the groups that ended differently and that it hit or moved, and those that
/// ended differently after it without being hit by any fault.
fn by_hits(ran: &JudgedRun<'_>) -> Vec<BTreeSet<usize>> {
    let log = ran.log;
    let moved = moved(log, ran.baseline);
    let hit: BTreeSet<usize> = log.faults.iter().flat_map(|fault| fault.groups.clone()).collect();
    // A plan moves groups even if they have no work.
    let is_affected = |group: &&usize| {
        moved.get(**group).is_some_and(|moved| moved.is_some() || log.groups[**group].lost)
    };
    let affected = log.faults.iter().map(|f| f.groups.iter().filter(is_affected).copied());
    let mut affected: Vec<BTreeSet<usize>> = affected.map(Iterator::collect).collect();
    for (group, at) in moved.iter().enumerate() {
        let Some(at) = at.filter(|_| !hit.contains(&group)) else { continue };
        for fault in causes(ran, group, at) {
            affected[fault].insert(group);
        }
    }
    affected
}

/// Returns, by fault, the groups that end a step at another picosecond without it. If several
/// faults are each enough to delay a group, leaving one out changes nothing. Such a group counts
/// for the faults that delay it in separate runs, or if there are none, for all faults that had
/// begun.
fn by_removal(ran: &JudgedRun<'_>) -> Vec<BTreeSet<usize>> {
    let log = ran.log;
    let without = |group: usize| {
        let differs = move |other: &Without| {
            let other = other.log(ran.baseline);
            other.is_some_and(|other| fate(other, group) != fate(log, group))
        };
        (0..ran.without.len()).filter(move |fault| differs(&ran.without[*fault]))
    };
    let moved = moved(log, ran.baseline);
    let mut affected = vec![BTreeSet::new(); log.faults.len()];
    for (group, at) in moved.iter().enumerate() {
        let mut causes: Vec<usize> = without(group).collect();
        if let (true, Some(at)) = (causes.is_empty(), at) {
            let alone = ran.alone.iter().enumerate();
            let alone = alone.filter(|(_, other)| fate(other, group) != fate(ran.baseline, group));
            causes = alone.map(|(fault, _)| fault).collect();
            if causes.is_empty() {
                causes = began_before(ran, *at);
            }
        }
        for fault in causes {
            affected[fault].insert(group);
        }
    }
    affected
}

/// Returns how much later a group ended because of a fault, compared with the run without it if
/// that differs for the group.
fn delay(ran: &JudgedRun<'_>, fault: usize, result: &GroupResult) -> Option<Picoseconds> {
    let group = result.group.index();
    let other = ran.without.get(fault).and_then(|without| without.log(ran.baseline));
    let other = other.filter(|other| fate(other, group) != fate(ran.log, group));
    let Some(other) = other else { return result.delay };
    let without = end(other, &other.groups[group])?;
    Some(Picoseconds(result.end?.0.saturating_sub(without.0)))
}

/// Returns the ends of a group's steps, including the collectives between groups, and whether the
/// group is lost.
fn fate(log: &RunLog, group: usize) -> Option<(Vec<Option<SimTime>>, bool)> {
    let group = log.groups.get(group)?;
    Some((steps(log, group).map(|step| step.end).collect(), group.lost))
}

/// Returns whether some group ended differently than without faults, and still does in every run
/// that leaves out one fault.
pub(super) fn is_overdetermined(log: &RunLog, baseline: &RunLog, without: &[&RunLog]) -> bool {
    let is_same = |other: &RunLog, group| fate(other, group) == fate(log, group);
    let is_enough = |group: usize| {
        !is_same(baseline, group) && without.iter().all(|other| is_same(other, group))
    };
    (0..log.groups.len()).any(is_enough)
}

/// Returns the faults of the run that had taken effect by `at`.
fn began_before(ran: &JudgedRun<'_>, at: SimTime) -> Vec<usize> {
    let log = ran.log;
    let began = |fault: &usize| {
        let mattered = log.faults[*fault].mattered;
        mattered.is_some_and(|time| time <= at) && !ran.start.events[*fault].from_start
    };
    (0..log.faults.len()).filter(began).collect()
}

/// Returns the faults that affected a group that no fault hit and that first differed at `at`.
fn causes(ran: &JudgedRun<'_>, group: usize, at: SimTime) -> Vec<usize> {
    let log = ran.log;
    let before = began_before(ran, at);
    let last = before.iter().filter_map(|fault| log.faults[*fault].mattered).max();
    let latest: Vec<usize> =
        before.into_iter().filter(|fault| log.faults[*fault].mattered == last).collect();
    let job = log.groups[group].job;
    let hits_job =
        |fault: &usize| log.faults[*fault].groups.iter().any(|hit| log.groups[*hit].job == job);
    let mine: Vec<usize> = latest.iter().copied().filter(hits_job).collect();
    if mine.is_empty() { latest } else { mine }
}

/// Returns one result for every collective of every group and for every collective between groups.
pub(super) fn workloads(ran: &JudgedRun<'_>) -> Vec<WorkloadResult> {
    let (log, baseline) = (ran.log, ran.baseline);
    let mut results = Vec::new();
    for (index, group) in log.groups.iter().enumerate() {
        let there = baseline.groups.get(index).map_or(&[][..], |there| &there.steps);
        let group_id = Some(GroupId::from_index(index));
        results.extend(results_of(ran.scenario, group_id, &group.steps, there));
    }
    for (between, there) in log.between.iter().zip(&baseline.between) {
        results.extend(results_of(ran.scenario, None, between, there));
    }
    results
}

fn results_of<'a>(
    scenario: &'a Scenario,
    group: Option<GroupId>,
    steps: &'a [StepLog],
    baseline: &'a [StepLog],
) -> impl Iterator<Item = WorkloadResult> + 'a {
    // Steps of a training job are not collectives; they are reported separately.
    let collectives = steps
        .iter()
        .filter_map(move |step| Some((step, scenario.collectives.get(step.collective)?)));
    collectives.map(move |(step, collective)| {
        let took =
            step.end.map(|end| end.since(step.start)).filter(|took| *took > Picoseconds::ZERO);
        let algbw = took.map_or(0.0, |took| collective.bytes.0 as f64 / took.as_secs_f64());
        WorkloadResult {
            name: collective.name.clone(),
            group,
            kind: collective.kind.name(),
            bytes: collective.bytes,
            start: step.start,
            end: step.end,
            ideal: step.ideal,
            lower_bound: step.ideal.max(step.interface),
            lower_bound_of: if step.interface > step.ideal { "an interface" } else { "path" }
                .to_owned(),
            end_without_faults: at_place(baseline, step.place).and_then(|step| step.end),
            ranks: step.ranks,
            algbw_bytes_per_s: algbw,
            busbw_bytes_per_s: algbw * collective.kind.bus_factor(step.ranks),
            restarts: step.restarts,
            flows: None,
        }
    })
}
