// SPDX-License-Identifier: Apache-2.0
//! Effects of faults on traffic between hosts, found by comparing each flow with the run without
//! faults.
//!
//! A flow is affected if it ends at another picosecond than in the run without faults. If there is
//! a run without each fault, it is attributed to the faults without which it ends differently, or
//! that alone change it. Otherwise it is attributed to the faults that hit a link on its path, or
//! if none did, to the last fault that began before it ended.

use std::collections::BTreeSet;

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{FlowId, FlowRecord, VertexId};
use lightloom_units::{Picoseconds, SimTime};

use super::JudgedRun as Whole;
use super::bounds;
use super::cuts::Cuts;
use super::expectations::{Found, ended_by};
use crate::outcome::{FlowFigures, TrafficImpact, WorkloadResult};
use crate::run::RunLog;
use crate::run::workload::{Job, Repetition};
use crate::scenario::Traffic;

/// The workloads of one run, with their ends.
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

/// A flow that ended at another time than in the run without faults, with its workload and the
/// earlier end.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedFlow {
    pub(super) flow: FlowId,
    pub(super) workload: usize,
    pub(super) at: SimTime,
    place: Place,
}

/// Identifies a flow in every run of the same workloads: workload, repetition, range, and index in
/// the range.
type Place = [usize; 4];

/// A fault that began, with the flows on its links.
pub(super) struct SuspectFault<'a> {
    pub(super) at: SimTime,
    pub(super) hit: &'a [FlowId],
}

/// Two runs of the same workloads.
pub(super) struct Compared<'a> {
    workloads: &'a [Traffic],
    cuts: Cuts,
    here: WorkloadEnds<'a>,
    calm: WorkloadEnds<'a>,
    /// For each fault, the run without it, if there is one.
    without: Vec<Option<WorkloadEnds<'a>>>,
    /// For each fault, the run with only that fault. Empty if these were not run.
    alone: Vec<WorkloadEnds<'a>>,
    pub(super) moved: Vec<MovedFlow>,
}

impl<'a> Compared<'a> {
    /// Compares the traffic of a run with the run without faults.
    pub(super) fn of(whole: &Whole<'a>) -> Self {
        let (here, calm) = (WorkloadEnds::of(whole.log), WorkloadEnds::of(whole.baseline));
        let cuts = Cuts::of(&whole.start.substrate);
        let without = whole.without.iter().map(|one| one.log(whole.baseline).map(WorkloadEnds::of));
        Self {
            workloads: whole.traffic,
            cuts,
            here,
            calm,
            without: without.collect(),
            alone: whole.alone.iter().map(WorkloadEnds::of).collect(),
            moved: moved(here, calm),
        }
    }

    /// Returns one result for each repetition.
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
        // If a flow was abandoned, the repetition as a whole never ends.
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

    /// Returns, by fault, the flows attributed to it. Faults that are not suspects get none.
    pub(super) fn attributed(&self, suspects: &[Option<SuspectFault<'_>>]) -> Vec<Vec<MovedFlow>> {
        let places = |here, other| -> BTreeSet<Place> {
            moved(here, other).into_iter().map(|moved| moved.place).collect()
        };
        let without = self.without.iter().map(|other| other.map(|other| places(self.here, other)));
        let without: Vec<BTreeSet<Place>> = without.map(Option::unwrap_or_default).collect();
        let alone: Vec<BTreeSet<Place>> =
            self.alone.iter().map(|alone| places(*alone, self.calm)).collect();
        let by = |runs: &[BTreeSet<Place>], moved: &MovedFlow| -> Vec<usize> {
            (0..runs.len()).filter(|fault| runs[*fault].contains(&moved.place)).collect()
        };
        let mut affected = vec![Vec::new(); suspects.len()];
        for moved in &self.moved {
            let ways = [by(&without, moved), by(&alone, moved)];
            let found = ways.into_iter().find(|faults| !faults.is_empty());
            let faults = found.unwrap_or_else(|| causes(moved, suspects));
            faults.into_iter().for_each(|fault| affected[fault].push(*moved));
        }
        affected
    }

    /// Returns whether some flow ends differently than without faults, and still does in every run
    /// that leaves out one fault.
    pub(super) fn is_overdetermined(here: &RunLog, calm: &RunLog, without: &[&RunLog]) -> bool {
        let mut left: BTreeSet<Place> = moved(WorkloadEnds::of(here), WorkloadEnds::of(calm))
            .into_iter()
            .map(|moved| moved.place)
            .collect();
        for other in without {
            for moved in moved(WorkloadEnds::of(here), WorkloadEnds::of(other)) {
                left.remove(&moved.place);
            }
        }
        !left.is_empty()
    }

    /// Returns the impact of a fault that caused the flows in `moved` to end at another time.
    pub(super) fn impact(
        &self,
        (hit, given_up): (&[FlowId], &[FlowId]),
        moved: &[MovedFlow],
        name: &dyn Fn(VertexId) -> String,
    ) -> TrafficImpact {
        TrafficImpact {
            flows_hit: hit.len() as u64,
            flows_moved: moved.len() as u64,
            flows_given_up: given_up.len() as u64,
            workloads: workloads_of(moved)
                .into_iter()
                .map(|place| self.workloads[place].name.clone())
                .collect(),
            hosts: self.hosts_of(moved).into_iter().map(name).collect(),
        }
    }

    /// Returns the hosts at the ends of these flows.
    pub(super) fn hosts_of(&self, moved: &[MovedFlow]) -> BTreeSet<VertexId> {
        let records = moved.iter().map(|moved| self.here.engine.record(moved.flow));
        records.flat_map(|record| [record.source, record.destination]).collect()
    }

    /// Returns how much later the slowest workload of these flows ended because of `fault`. The run
    /// is compared with the one without `fault` if there is one, otherwise with the run without
    /// faults. If leaving out `fault` makes no difference, the run with only this fault is compared
    /// with the run without faults. `None` if a workload did not end.
    pub(super) fn delay(&self, fault: usize, moved: &[MovedFlow]) -> Option<Picoseconds> {
        let end = |ran: WorkloadEnds<'_>, place: usize| {
            let job = &ran.jobs[place];
            let is_whole = job.done && job.steps.iter().all(|step| given_up(ran, step) == 0);
            is_whole.then(|| job.steps.last().and_then(|step| step.end)).flatten()
        };
        let late = |with, without| -> Option<Picoseconds> {
            let late = |place| Some(end(with, place)?.0.saturating_sub(end(without, place)?.0));
            let delays: Option<Vec<u64>> = workloads_of(moved).into_iter().map(late).collect();
            Some(Picoseconds(delays?.into_iter().max().unwrap_or(0)))
        };
        let without = self.without.get(fault).copied().flatten().unwrap_or(self.calm);
        match (late(self.here, without), self.alone.get(fault)) {
            (Some(Picoseconds::ZERO), Some(alone)) => late(*alone, self.calm),
            (late, _) => late,
        }
    }

    /// Counts the hosts at an end of a flow that never arrived.
    pub(super) fn hosts_open(&self) -> usize {
        let records = self.open().map(|flow| self.here.engine.record(flow));
        let ends: BTreeSet<VertexId> =
            records.flat_map(|record| [record.source, record.destination]).collect();
        ends.len()
    }

    /// Returns the flows that never arrived.
    pub(super) fn open(&self) -> impl Iterator<Item = FlowId> {
        let flows =
            self.here.jobs.iter().flat_map(|job| job.steps.iter().flat_map(Repetition::flows));
        flows.filter(|flow| self.here.engine.record(*flow).end.is_none())
    }

    /// Returns a failed result if a selected workload never ended or had flows abandoned. A
    /// workload that waits for one that never ends has not begun, so it has no result.
    pub(super) fn incomplete(&self, of: impl Fn(&Traffic) -> bool) -> Option<Found> {
        let mine = || self.here.jobs.iter().zip(self.workloads).filter(|(_, one)| of(one));
        let open = mine().find(|(job, _)| !job.done);
        let never = |one: &Traffic| (false, format!("`{}` never ended", one.name), None);
        let flows = |job: &Job| job.steps.iter().map(|step| given_up(self.here, step)).sum();
        let cut = |(job, one): (&Job, &Traffic)| {
            let flows: usize = flows(job);
            let text = || format!("{flows} flows of `{}` were given up", one.name);
            (flows > 0).then(|| (false, text(), None))
        };
        open.map(|(_, one)| never(one)).or_else(|| mine().find_map(cut))
    }

    /// Returns whether a workload completed within `within` of the start of the run.
    pub(super) fn completes(&self, name: &str, within: Picoseconds) -> Found {
        let jobs = self.here.jobs.iter().zip(self.workloads).filter(|(_, one)| one.name == name);
        let last = jobs.flat_map(|(job, _)| &job.steps).filter_map(|step| step.end).max();
        self.incomplete(|one| one.name == name)
            .unwrap_or_else(|| ended_by(last.unwrap_or_default(), within))
    }

    /// Returns whether every flow of a workload ended as in the run without faults.
    pub(super) fn unaffected(&self, name: &str) -> Found {
        let of_name = |moved: &&MovedFlow| self.workloads[moved.workload].name == name;
        match self.moved.iter().filter(of_name).map(|moved| moved.at).min() {
            None if self.is_silent(name) => {
                (false, format!("no flow of `{name}` ever began"), None)
            }
            None => {
                let text = format!("every flow of `{name}` ended as in the run without faults");
                (true, text, None)
            }
            Some(at) => {
                (false, format!("`{name}` first differs from the run without faults at {at}"), None)
            }
        }
    }

    /// Returns whether a workload sent nothing and so cannot be compared.
    fn is_silent(&self, name: &str) -> bool {
        let jobs = self.here.jobs.iter().zip(self.workloads);
        let mut mine = jobs.filter(|(_, workload)| workload.name == name);
        mine.all(|(job, _)| job.steps.iter().flat_map(Repetition::flows).next().is_none())
    }
}

fn moved(here: WorkloadEnds<'_>, calm: WorkloadEnds<'_>) -> Vec<MovedFlow> {
    let mut moved = Vec::new();
    for (workload, (job, calm_job)) in here.jobs.iter().zip(calm.jobs).enumerate() {
        for (repetition, (step, calm_step)) in job.steps.iter().zip(&calm_job.steps).enumerate() {
            // Compare range by range, because a task that never began has none.
            let stretches = step.flows.iter().cloned().zip(calm_step.flows.iter().cloned());
            let flows = stretches.enumerate().flat_map(|(stretch, (here, calm))| {
                here.zip(calm).enumerate().map(move |(number, both)| ((stretch, number), both))
            });
            for ((stretch, number), (flow, calm_flow)) in flows {
                let (flow, calm_flow) = (FlowId(flow), FlowId(calm_flow));
                let place = [workload, repetition, stretch, number];
                let (end, calm_end) =
                    (here.engine.record(flow).end, calm.engine.record(calm_flow).end);
                if end != calm_end {
                    let at = end.into_iter().chain(calm_end).min().unwrap_or(here.ended);
                    moved.push(MovedFlow { flow, workload, at, place });
                }
            }
        }
    }
    moved
}

/// Counts the flows of a repetition that were abandoned because no path was left.
fn given_up(ran: WorkloadEnds<'_>, step: &Repetition) -> usize {
    step.flows().filter(|flow| ran.engine.record(*flow).cancelled).count()
}

fn workloads_of(moved: &[MovedFlow]) -> BTreeSet<usize> {
    moved.iter().map(|moved| moved.workload).collect()
}

/// Returns the faults that caused a moved flow.
fn causes(moved: &MovedFlow, suspects: &[Option<SuspectFault<'_>>]) -> Vec<usize> {
    let there = || suspects.iter().enumerate().filter_map(|(at, one)| Some((at, one.as_ref()?)));
    let hit = there().filter(|(_, suspect)| suspect.hit.contains(&moved.flow));
    let hit: Vec<usize> = hit.map(|(fault, _)| fault).collect();
    if !hit.is_empty() {
        return hit;
    }
    let before = there().filter(|(_, suspect)| suspect.at <= moved.at);
    let last = before.max_by_key(|(_, suspect)| suspect.at);
    last.map(|(fault, _)| fault).into_iter().collect()
}
