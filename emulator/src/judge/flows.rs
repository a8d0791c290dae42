// SPDX-License-Identifier: Apache-2.0
//! Effects of faults on host-to-host traffic, compared with the baseline (the run without faults).
//!
//! An affected flow is attributed to the active faults on its route. If there are none, it is
//! attributed to the earliest active fault that hit other flows.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{FlowId, FlowRecord, LinkId, VertexId};
use lightloom_units::{Picoseconds, SimTime};

use super::JudgedRun as Whole;
use super::bounds;
use super::cuts::Cuts;
use super::expectations::{Found, ended_by};
use crate::outcome::{FlowFigures, TrafficImpact, WorkloadResult};
use crate::run::workload::{Job, Repetition};
use crate::run::{FaultLog, RunLog};
use crate::scenario::{FaultEvent, Traffic};
use crate::substrate::Substrate;

#[derive(Clone, Copy)]
pub(super) struct WorkloadEnds<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) engine: &'a IslandEngine<Watch>,
    pub(super) ended: SimTime,
}

impl<'a> WorkloadEnds<'a> {
    fn of(log: &'a RunLog) -> Self {
        Self { jobs: &log.jobs, engine: log.engine(), ended: log.ended }
    }
}

/// A flow whose end time differs from the baseline. `at` is the earlier of the two end times.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedFlow {
    pub(super) flow: FlowId,
    pub(super) workload: usize,
    pub(super) at: SimTime,
}

pub(super) struct Compared<'a> {
    workloads: &'a [Traffic],
    cuts: Cuts,
    here: WorkloadEnds<'a>,
    calm: WorkloadEnds<'a>,
    pub(super) moved: Vec<MovedFlow>,
}

impl<'a> Compared<'a> {
    pub(super) fn of(whole: &Whole<'a>) -> Self {
        let (here, calm) = (WorkloadEnds::of(whole.log), WorkloadEnds::of(whole.baseline));
        let cuts = Cuts::of(&whole.start.substrate);
        Self { workloads: whole.traffic, cuts, here, calm, moved: moved(here, calm) }
    }

    pub(super) fn results(&self) -> Vec<WorkloadResult> {
        let mut results = Vec::new();
        for (place, job) in self.here.jobs.iter().enumerate() {
            let calm = &self.calm.jobs[place].steps;
            let steps = job.steps.iter().enumerate();
            results.extend(steps.map(|(at, step)| self.result(place, step, calm.get(at))));
        }
        results
    }

    fn result(&self, place: usize, step: &Repetition, calm: Option<&Repetition>) -> WorkloadResult {
        let workload = &self.workloads[place];
        let records: Vec<FlowRecord> =
            step.flows().map(|flow| self.here.engine.record(flow)).collect();
        let end = step.end.filter(|_| given_up(self.here, step) == 0);
        let took = end.map(|end| end.since(step.start)).filter(|took| *took > Picoseconds::ZERO);
        let bound = bounds::tightest(&self.cuts, self.here.engine, step);
        let algbw = took.map_or(0.0, |took| step.size.0 as f64 / took.as_secs_f64());
        WorkloadResult {
            name: workload.name.clone(),
            group: None,
            kind: workload.run.name(),
            bytes: step.size,
            start: step.start,
            end,
            ideal: step.ideal,
            lower_bound: bound.time,
            lower_bound_of: bound.of,
            end_without_faults: calm.and_then(|step| step.end),
            algbw_bytes_per_s: algbw,
            busbw_bytes_per_s: algbw * workload.run.bus_factor(step.ranks as usize),
            restarts: 0,
            ranks: step.ranks,
            flows: Some(FlowFigures::new(&records)),
        }
    }

    pub(super) fn attributed(&self, ran: &Whole<'_>) -> Vec<Vec<MovedFlow>> {
        let links: Vec<Vec<LinkId>> = ran.start.events.iter().map(FaultEvent::links).collect();
        let logs = &ran.log.faults;
        let hit: Vec<BTreeSet<FlowId>> =
            logs.iter().map(|log| log.flows_hit.iter().copied().collect()).collect();
        let mut affected = vec![Vec::new(); links.len()];
        for moved in &self.moved {
            let start = self.here.engine.record(moved.flow).start;
            let routes = LazyCell::new(|| self.here.engine.paths(moved.flow));
            let faults = (0..links.len()).filter(|fault| {
                ran.began(*fault).is_some_and(|at| at < moved.at && logs[*fault].over() > start)
                    && (hit[*fault].contains(&moved.flow)
                        || routes.links().iter().any(|link| {
                            let mut both = [*link, link.reverse()].into_iter();
                            both.any(|link| links[*fault].binary_search(&link).is_ok())
                        }))
            });
            let mut faults: Vec<usize> = faults.collect();
            if faults.is_empty() {
                let from = start.min(moved.at);
                faults.extend(ran.culprit(
                    from,
                    moved.at,
                    &|fault| !hit[fault].is_empty(),
                    &|_| true,
                ));
            }
            faults.into_iter().for_each(|fault| affected[fault].push(*moved));
        }
        affected
    }

    pub(super) fn impact(
        &self,
        log: &FaultLog,
        moved: &[MovedFlow],
        substrate: &Substrate,
    ) -> TrafficImpact {
        let hosts = self.hosts_of(moved).into_iter();
        TrafficImpact {
            flows_hit: log.flows_hit.len() as u64,
            flows_moved: moved.len() as u64,
            flows_given_up: log.flows_given_up.len() as u64,
            workloads: workloads_of(moved)
                .into_iter()
                .map(|place| self.workloads[place].name.clone())
                .collect(),
            hosts: hosts.map(|host| substrate.name(host).to_owned()).collect(),
        }
    }

    pub(super) fn hosts_of(&self, moved: &[MovedFlow]) -> BTreeSet<VertexId> {
        let records = moved.iter().map(|moved| self.here.engine.record(moved.flow));
        records.flat_map(|record| [record.source, record.destination]).collect()
    }

    pub(super) fn delay(&self, moved: &[MovedFlow]) -> Option<Picoseconds> {
        let late = workloads_of(moved).into_iter().map(|place| {
            let [here, calm] = [self.here, self.calm].map(|ran| {
                let job = &ran.jobs[place];
                let is_whole = job.done && job.steps.iter().all(|step| given_up(ran, step) == 0);
                is_whole.then(|| job.steps.last().and_then(|step| step.end)).flatten()
            });
            Some(here?.0.saturating_sub(calm?.0))
        });
        let delays: Option<Vec<u64>> = late.collect();
        Some(Picoseconds(delays?.into_iter().max().unwrap_or(0)))
    }

    pub(super) fn hosts_open(&self) -> usize {
        let records = self.open().map(|flow| self.here.engine.record(flow));
        let ends: BTreeSet<VertexId> =
            records.flat_map(|record| [record.source, record.destination]).collect();
        ends.len()
    }

    pub(super) fn open(&self) -> impl Iterator<Item = FlowId> {
        let flows =
            self.here.jobs.iter().flat_map(|job| job.steps.iter().flat_map(Repetition::flows));
        flows.filter(|flow| self.here.engine.record(*flow).end.is_none())
    }

    /// A workload that waits for an unfinished one has not started, so it is not reported.
    pub(super) fn incomplete(&self, of: impl Fn(&Traffic) -> bool) -> Option<Found> {
        let mine = self.here.jobs.iter().zip(self.workloads).filter(|(_, one)| of(one));
        if let Some((_, one)) = mine.clone().find(|(job, _)| !job.done) {
            return Some((false, format!("`{}` never ended", one.name), None));
        }
        let mut flows = mine.map(|(job, one)| {
            (job.steps.iter().map(|step| given_up(self.here, step)).sum::<usize>(), &one.name)
        });
        let (flows, name) = flows.find(|(flows, _)| *flows > 0)?;
        Some((false, format!("{flows} flows of `{name}` were abandoned"), None))
    }

    pub(super) fn completes(&self, name: &str, within: Picoseconds) -> Found {
        let jobs = self.here.jobs.iter().zip(self.workloads).filter(|(_, one)| one.name == name);
        let last = jobs.flat_map(|(job, _)| &job.steps).filter_map(|step| step.end).max();
        self.incomplete(|one| one.name == name)
            .unwrap_or_else(|| ended_by(last.unwrap_or_default(), within))
    }

    pub(super) fn unaffected(&self, name: &str) -> Found {
        let moved = self.moved.iter().filter(|moved| self.workloads[moved.workload].name == name);
        match moved.map(|moved| moved.at).min() {
            None if self.is_silent(name) => {
                (false, format!("no flow of `{name}` ever started"), None)
            }
            None => {
                let text =
                    format!("every flow of `{name}` ended at the same time as without faults");
                (true, text, None)
            }
            Some(at) => {
                (false, format!("`{name}` first differs from the run without faults at {at}"), None)
            }
        }
    }

    fn is_silent(&self, name: &str) -> bool {
        let jobs = self.here.jobs.iter().zip(self.workloads);
        let mut mine = jobs.filter(|(_, workload)| workload.name == name);
        mine.all(|(job, _)| job.steps.iter().flat_map(Repetition::flows).next().is_none())
    }
}

fn moved(here: WorkloadEnds<'_>, calm: WorkloadEnds<'_>) -> Vec<MovedFlow> {
    let mut moved = Vec::new();
    for (workload, (job, calm_job)) in here.jobs.iter().zip(calm.jobs).enumerate() {
        let steps = job.steps.iter().zip(&calm_job.steps);
        // A task that never started has no range, so compare range by range.
        let stretches = steps.flat_map(|(step, calm)| step.flows.iter().zip(&calm.flows));
        let flows = stretches.flat_map(|(here, calm)| here.clone().zip(calm.clone()));
        for (flow, calm_flow) in flows.map(|(flow, calm)| (FlowId(flow), FlowId(calm))) {
            let (end, calm_end) = (here.engine.record(flow).end, calm.engine.record(calm_flow).end);
            if end != calm_end {
                let at = end.into_iter().chain(calm_end).min().unwrap_or(here.ended);
                moved.push(MovedFlow { flow, workload, at });
            }
        }
    }
    moved
}

fn given_up(ran: WorkloadEnds<'_>, step: &Repetition) -> usize {
    step.flows().filter(|flow| ran.engine.record(*flow).cancelled).count()
}

fn workloads_of(moved: &[MovedFlow]) -> BTreeSet<usize> {
    moved.iter().map(|moved| moved.workload).collect()
}
