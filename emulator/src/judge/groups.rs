// SPDX-License-Identifier: Apache-2.0
//! Effects of faults on each group: delay, downtime, and the share of useful time.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::id::GroupId;
use lightloom_units::{Picoseconds, SimTime};

use super::JudgedRun;
use super::shares::Share;
use crate::outcome::{GroupResult, JobLoss, WorkloadResult};
use crate::run::RunLog;
use crate::run::workload::{GroupLog, StepLog};
use crate::scenario::Scenario;

pub(super) fn results(log: &RunLog, baseline: &RunLog) -> Vec<GroupResult> {
    let moved = moved(log, baseline);
    let results = log.groups.iter().enumerate().map(|(index, group)| {
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
    });
    results.collect()
}

fn steps<'a>(log: &'a RunLog, group: &'a GroupLog) -> impl Iterator<Item = &'a StepLog> {
    group.steps.iter().chain(&log.between[group.job as usize])
}

fn end(log: &RunLog, group: &GroupLog) -> Option<SimTime> {
    let all_done = !group.lost && group.is_through(log.program_length);
    all_done.then(|| steps(log, group).filter_map(|step| step.end).max()).flatten()
}

fn counted_until(log: &RunLog, group: &GroupLog) -> SimTime {
    end(log, group).unwrap_or(log.ended)
}

fn is_idle(log: &RunLog, group: &GroupLog) -> bool {
    group.is_through(log.program_length) && steps(log, group).next().is_none()
}

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

/// Groups that were formed only after a repair have no baseline, so they never differ.
pub(super) fn moved(log: &RunLog, baseline: &RunLog) -> Vec<Option<SimTime>> {
    let both = log.groups.iter().zip(&baseline.groups);
    let first = both.map(|(group, there)| {
        let job = group.job as usize;
        let between = first_difference(&log.between[job], &baseline.between[job], log.ended);
        let own = first_difference(&group.steps, &there.steps, log.ended);
        own.into_iter().chain(between).min()
    });
    let mut moved: Vec<_> = first.collect();
    moved.resize(log.groups.len(), None);
    moved
}

fn first_difference(here: &[StepLog], there: &[StepLog], ended: SimTime) -> Option<SimTime> {
    let ends = here.iter().map(|step| {
        let calm = at_place(there, step.place);
        (step.end, calm.and_then(|calm| calm.end))
    });
    let mut moved = ends.filter(|(end, calm)| end != calm);
    let first = moved.next().map(|(end, calm)| end.or(calm).unwrap_or(ended));
    first.or((here.len() != there.len()).then_some(ended))
}

fn at_place(steps: &[StepLog], place: usize) -> Option<&StepLog> {
    steps.binary_search_by_key(&place, |step| step.place).ok().map(|index| &steps[index])
}

#[derive(Clone, Debug, Default)]
pub(super) struct GroupImpact {
    pub(super) groups: Vec<GroupId>,
    pub(super) gpus: u64,
    pub(super) delay: Option<Picoseconds>,
    pub(super) unaffected: Option<Vec<GroupId>>,
}

pub(super) fn impacts(
    ran: &JudgedRun<'_>,
    results: &[GroupResult],
    losses: &[Vec<JobLoss>],
) -> Vec<GroupImpact> {
    let log = ran.log;
    let late: BTreeMap<(usize, &str), i64> = losses
        .iter()
        .enumerate()
        .flat_map(|(fault, losses)| {
            losses.iter().map(move |loss| ((fault, loss.job.as_str()), loss.late))
        })
        .collect();
    let mut late_in_all: BTreeMap<&str, i64> = BTreeMap::new();
    for ((_, job), late) in &late {
        *late_in_all.entry(job).or_default() += (*late).max(0);
    }
    let jobs = log.groups.iter().map(|group| {
        let mut jobs = log.trained.iter();
        jobs.find(|job| job.step.job == group.job).map(|job| job.name.as_str())
    });
    let jobs: Vec<Option<&str>> = jobs.collect();
    let moved = moved(log, ran.baseline);
    let mut affected = by_hits(ran, &moved);
    for (fault, groups) in affected.iter_mut().enumerate() {
        let moved = (0..moved.len()).filter(|group| moved[*group].is_some());
        groups.extend(
            moved.filter(|group| jobs[*group].is_some_and(|job| late.contains_key(&(fault, job)))),
        );
    }
    let impacts = affected.into_iter().enumerate().map(|(fault, groups)| {
        let delays = groups.iter().map(|group| {
            let others = jobs[*group].map_or(0, |job| {
                let own = late.get(&(fault, job)).copied().unwrap_or(0);
                late_in_all.get(job).copied().unwrap_or(0) - own.max(0)
            });
            let delay = results[*group].delay?;
            Some(Picoseconds(delay.0.saturating_sub(others.cast_unsigned())))
        });
        let delays = delays.collect::<Option<Vec<_>>>();
        GroupImpact {
            gpus: groups.iter().map(|group| u64::from(log.groups[*group].gpus)).sum(),
            delay: delays.and_then(|delays| delays.into_iter().max().or(Some(Picoseconds::ZERO))),
            unaffected: (!log.trained.is_empty()).then(|| {
                let others = (0..log.groups.len()).filter(|group| !groups.contains(group));
                let at_work = others.filter(|group| !is_idle(log, &log.groups[*group]));
                at_work.map(GroupId::from_index).collect()
            }),
            groups: groups.into_iter().map(GroupId::from_index).collect(),
        }
    });
    impacts.collect()
}

fn by_hits(ran: &JudgedRun<'_>, moved: &[Option<SimTime>]) -> Vec<BTreeSet<usize>> {
    let log = ran.log;
    let hit: BTreeSet<usize> = log.faults.iter().flat_map(|fault| fault.groups.clone()).collect();
    let affected = log.faults.iter().map(|fault| {
        // A plan can also move idle groups.
        let groups = fault.groups.iter().copied().filter(|group| {
            moved.get(*group).is_some_and(|moved| moved.is_some() || log.groups[*group].lost)
        });
        groups.collect()
    });
    let mut affected: Vec<BTreeSet<usize>> = affected.collect();
    for (group, at) in moved.iter().enumerate() {
        let Some(at) = at.filter(|_| !hit.contains(&group)) else { continue };
        let job = log.groups[group].job;
        let hits_job = log
            .faults
            .iter()
            .map(|fault| fault.groups.iter().any(|hit| log.groups[*hit].job == job));
        let hits_job: Vec<bool> = hits_job.collect();
        if let Some(fault) = ran.culprit(at, at, &|fault| hits_job[fault], &|_| true) {
            affected[fault].insert(group);
        }
    }
    affected
}

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
            kind: collective.operation(),
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
            busbw_bytes_per_s: algbw * collective.kind.bus_factor(step.ranks as usize),
            restarts: step.restarts,
            flows: None,
        }
    })
}
