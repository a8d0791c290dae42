//! From what happened to the result: what felt which fault, and whether it was as expected.
//!
//! A group felt a fault if one of its collectives ended at another picosecond than in the run without
//! faults. Which fault: the ones that hit its links or moved it to other nodes; else the last before
//! its first moved ending.

use std::collections::BTreeSet;

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowRecord, VertexId};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Metrics;
use lightloom_planner::khop::{Layout, to_document};
use lightloom_units::id::{GpuId, GroupId, NodeId};
use lightloom_units::{Picoseconds, SimTime};

use super::collectives::bus_factor;
use super::head::{Head, Of};
use super::outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowEnd, FlowRow, Flows, GroupResult,
    Outcome, PlanResult, Stop,
};
use super::story::{Healing, Lane, StepRun, Told};
use super::{
    Comparison, Expectation, Figure, Finished, Scenario, ScenarioError, Strike, groups, links,
};
use crate::traffic::Workload;
use crate::traffic::felt::{Compared, Suspect};

/// Refuses expectations about groups that do not exist.
pub(super) fn require_groups(scenario: &Scenario, layout: &Layout) -> Result<(), ScenarioError> {
    let groups = layout.groups.iter().filter(|group| group.job.is_some()).count();
    let missing = scenario.expectations.iter().find_map(|expectation| match expectation {
        Expectation::Unaffected(group) if group.index() >= groups => Some(*group),
        _ => None,
    });
    missing.map_or(Ok(()), |group| Err(ScenarioError::NoSuchGroup { group, groups }))
}

/// What was run.
pub(super) struct Run<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) scenario: &'a Scenario,
    pub(super) workloads: &'a [Workload],
    pub(super) strikes: &'a [Strike],
    pub(super) threads: usize,
}

/// The result of a run, given the same run without faults.
pub(super) fn finish(run: &Run<'_>, told: Told, calm: Option<Told>) -> Finished {
    let outcome = outcome(run, &told, calm.as_ref().unwrap_or(&told));
    Finished { outcome, engine: told.engine, installed: told.installed }
}

fn outcome(run: &Run<'_>, told: &Told, calm: &Told) -> Outcome {
    let Run { fabric, scenario, workloads, strikes, threads } = *run;
    let moved = moved_lanes(told, calm);
    let beside = told.ran().zip(calm.ran());
    let beside = beside.map(|(here, calm)| Compared::new(workloads, here, calm));
    let metrics = to_document(fabric, &told.faults, scenario.seed, &told.layout).metrics;
    let groups = groups::results(told, calm);
    let flows: Vec<FlowRecord> = told.engine.records().collect();
    let (name, sha256, seed) = (&scenario.name, &fabric.sha256, scenario.seed);
    let of = Of { scenario: name, sha256, seed, threads };
    let mut outcome = Outcome {
        head: Head::new(of, told.ended, &told.engine.packets()),
        reuse: told.engine.reuse(),
        drops_by_priority: match scenario.switches.have_priorities() {
            true => told.engine.dropped_by_priority().to_vec(),
            false => Vec::new(),
        },
        collectives: collective_results(scenario, told, calm),
        flows: Flows::new(&flows),
        faults: fault_results(strikes, told, &moved, &groups),
        availability: groups::availability(&groups, told),
        goodput: groups::goodput(told, calm),
        groups,
        plan: Some(PlanResult {
            gpus_used: metrics.gpus_used,
            waste_ratio: metrics.waste_ratio,
            waste_ratio_lower_bound: metrics.waste_ratio_lower_bound,
            cross_tor_share: metrics.cross_tor_share,
        }),
        links: links::of_fabric(told),
        never_ended: told.stop.as_ref().is_some_and(|s| s.is_unwanted(scenario.ends_at_limit)),
        stop: told.stop.clone(),
        waiting: told.waiting.clone(),
        expectations: Vec::new(),
        flow_records: flow_rows(fabric, &flows),
    };
    if let Some(beside) = &beside {
        outcome.collectives.extend(beside.results());
        add_flows(&mut outcome.faults, strikes, told, beside);
    }
    let felt = Felt { told, strikes, moved: &moved, metrics: &metrics, beside: beside.as_ref() };
    outcome.expectations =
        scenario.expectations.iter().map(|expectation| felt.judge(expectation, &outcome)).collect();
    outcome
}

/// For each lane that did not end everything as in the calm run: when it first differed. A group that
/// only a repair made possible has nothing to differ from.
fn moved_lanes(told: &Told, calm: &Told) -> Vec<Option<SimTime>> {
    let differs = |here: &[StepRun], there: &[StepRun]| {
        let calm_end = |step: &StepRun| at_place(there, step.place).and_then(|step| step.end);
        let mut moved = here.iter().filter(|step| step.end != calm_end(step));
        let first = moved.next().map(|step| step.end.or(calm_end(step)).unwrap_or(told.ended));
        first.or((here.len() != there.len()).then_some(told.ended))
    };
    let first_difference = |(lane, calm_lane): (&Lane, &Lane)| {
        let job = lane.job as usize;
        let between = differs(&told.between[job].steps, &calm.between[job].steps);
        differs(&lane.steps, &calm_lane.steps).into_iter().chain(between).min()
    };
    let mut moved: Vec<_> = told.lanes.iter().zip(&calm.lanes).map(first_difference).collect();
    moved.resize(told.lanes.len(), None);
    moved
}

/// The step at a place of the program.
fn at_place(steps: &[StepRun], place: usize) -> Option<&StepRun> {
    steps.binary_search_by_key(&place, |step| step.place).ok().map(|index| &steps[index])
}

/// What each fault did. A lane that moved felt the faults that hit its links or moved it; a lane that no
/// fault hit felt the last ones before its first moved ending: of those that struck at the same
/// instant, the ones that hit its job, if any did.
fn fault_results(
    strikes: &[Strike],
    told: &Told,
    moved: &[Option<SimTime>],
    groups: &[GroupResult],
) -> Vec<FaultResult> {
    let hit: BTreeSet<usize> =
        told.healings.iter().flat_map(|healing| healing.lanes.iter().copied()).collect();
    let mut felt: Vec<BTreeSet<usize>> = told
        .healings
        .iter()
        .map(|healing| {
            let moved = |lane: &&usize| moved[**lane].is_some() || told.lanes[**lane].lost;
            healing.lanes.iter().filter(moved).copied().collect()
        })
        .collect();
    for (lane, at) in moved.iter().enumerate() {
        let Some(at) = at.filter(|_| !hit.contains(&lane)) else { continue };
        for fault in causes(told, strikes, lane, at) {
            felt[fault].insert(lane);
        }
    }
    let result = |((healing, strike), lanes): ((&Healing, &Strike), BTreeSet<usize>)| FaultResult {
        what: strike.what(),
        effect: strike.effect_name().to_owned(),
        at: healing.at,
        detected: healing.detected,
        replanned: healing.replanned,
        restored: healing.restored,
        bundles_switched: healing.bundles,
        dark: healing.dark,
        gpus_affected: lanes.iter().map(|lane| u64::from(told.lanes[*lane].gpus)).sum(),
        delay: lanes
            .iter()
            .map(|lane| groups[*lane].delay)
            .collect::<Option<Vec<_>>>()
            .and_then(|delays| delays.into_iter().max().or(Some(Picoseconds::ZERO))),
        groups_affected: lanes.into_iter().map(GroupId::from_index).collect(),
        gpus_lost: healing.gpus_lost,
        traffic: None,
        story: None,
    };
    let healings = told.healings.iter().zip(strikes).filter(|(_, strike)| !strike.from_start);
    healings.zip(felt).map(result).collect()
}

/// Adds to each fault what it did to the flows of workloads.
fn add_flows(faults: &mut [FaultResult], strikes: &[Strike], told: &Told, beside: &Compared<'_>) {
    let suspect =
        |(healing, strike): (&'_ Healing, &Strike)| healing.felt.filter(|_| !strike.from_start);
    let all = || told.healings.iter().zip(strikes);
    let suspects: Vec<Option<Suspect<'_>>> =
        all().map(|both| Some(Suspect { at: suspect(both)?, hit: &both.0.flows_hit })).collect();
    let name = |host| told.installed.vertex_name(host);
    let news = all().zip(beside.put_down(&suspects)).filter(|((_, strike), _)| !strike.from_start);
    for (fault, ((healing, _), moved)) in faults.iter_mut().zip(news) {
        let flows = (healing.flows_hit.as_slice(), healing.flows_given_up.as_slice());
        fault.delay = fault.delay.zip(beside.delay(&moved)).map(|(rings, flows)| rings.max(flows));
        fault.traffic = Some(beside.felt(flows, &moved, &name));
    }
}

/// The faults that a lane which none of them hit is put down to, when it first differed at `at`.
fn causes(told: &Told, strikes: &[Strike], lane: usize, at: SimTime) -> Vec<usize> {
    let struck = |fault: &usize| {
        told.healings[*fault].felt.is_some_and(|felt| felt <= at) && !strikes[*fault].from_start
    };
    let before: Vec<usize> = (0..told.healings.len()).filter(struck).collect();
    let last = before.iter().filter_map(|fault| told.healings[*fault].felt).max();
    let latest: Vec<usize> =
        before.into_iter().filter(|fault| told.healings[*fault].felt == last).collect();
    let job = told.lanes[lane].job;
    let hits_job =
        |fault: &usize| told.healings[*fault].lanes.iter().any(|hit| told.lanes[*hit].job == job);
    let mine: Vec<usize> = latest.iter().copied().filter(hits_job).collect();
    if mine.is_empty() { latest } else { mine }
}

fn collective_results(scenario: &Scenario, told: &Told, calm: &Told) -> Vec<CollectiveResult> {
    let mut results = Vec::new();
    for (index, lane) in told.lanes.iter().enumerate() {
        let group = Some(GroupId::from_index(index));
        let calm = calm.lanes.get(index).map_or(&[][..], |calm| &calm.steps);
        results.extend(results_of(scenario, group, &lane.steps, calm));
    }
    for (between, calm) in told.between.iter().zip(&calm.between) {
        results.extend(results_of(scenario, None, &between.steps, &calm.steps));
    }
    results
}

fn results_of<'a>(
    scenario: &'a Scenario,
    group: Option<GroupId>,
    steps: &'a [StepRun],
    calm: &'a [StepRun],
) -> impl Iterator<Item = CollectiveResult> + 'a {
    steps.iter().map(move |step| {
        let collective = &scenario.collectives[step.collective];
        let took =
            step.end.map(|end| end.since(step.start)).filter(|took| *took > Picoseconds::ZERO);
        let algbw = took.map_or(0.0, |took| collective.bytes.0 as f64 / took.as_secs_f64());
        CollectiveResult {
            name: collective.name.clone(),
            group,
            kind: collective.kind.name(),
            bytes: collective.bytes,
            start: step.start,
            end: step.end,
            ideal: step.ideal,
            end_without_faults: at_place(calm, step.place).and_then(|step| step.end),
            ranks: step.ranks,
            algbw_bytes_per_s: algbw,
            busbw_bytes_per_s: algbw * bus_factor(collective.kind, step.ranks),
            restarts: step.restarts,
        }
    })
}

/// GPUs are the first vertices of the network, in order.
fn flow_rows(fabric: &Fabric, flows: &[FlowRecord]) -> Vec<FlowRow<FlowEnd>> {
    let per_node = fabric.hbd.gpus_per_node();
    let gpu = |vertex: VertexId| {
        FlowEnd::Gpu(GpuId {
            node: NodeId(vertex.0 / u32::from(per_node)),
            gpu: u8::try_from(vertex.0 % u32::from(per_node)).expect("below R"),
        })
    };
    flows.iter().map(|flow| FlowRow::new(flow, gpu)).collect()
}

struct Felt<'a> {
    told: &'a Told,
    strikes: &'a [Strike],
    moved: &'a [Option<SimTime>],
    metrics: &'a Metrics,
    /// What ran beside the rings.
    beside: Option<&'a Compared<'a>>,
}

impl Felt<'_> {
    fn judge(&self, expectation: &Expectation, outcome: &Outcome) -> ExpectationResult {
        let (passed, value, margin) = match expectation {
            Expectation::Figure { figure, comparison, bound } => {
                compared(*figure, *comparison, *bound, self.figure(*figure, outcome))
            }
            Expectation::RestoredWithin(span) => restored(&self.patients(), *span),
            Expectation::CompletesWithin(span) => self
                .beside
                .and_then(|beside| beside.incomplete(|_| true))
                .unwrap_or_else(|| completes(outcome, *span)),
            Expectation::NoDrops { priority } => no_drops(outcome, *priority),
            Expectation::NoDeadlock => no_deadlock(outcome),
            Expectation::WorkloadUnaffected(name) => {
                self.beside.map_or_else(|| no_workload(name), |beside| beside.unaffected(name))
            }
            Expectation::WorkloadCompletes { name, within } => self
                .beside
                .map_or_else(|| no_workload(name), |beside| beside.completes(name, *within)),
            Expectation::Unaffected(group) => match self.moved[group.index()] {
                None if self.told.lanes[group.index()].steps.is_empty() => {
                    (false, format!("{group} never began anything"), None)
                }
                None => (
                    true,
                    format!("every completion time of {group} is that of the run without faults"),
                    None,
                ),
                Some(at) => (
                    false,
                    format!("{group} first differs from the run without faults at {at}"),
                    None,
                ),
            },
        };
        let breached_by = breached_by(expectation, || self.patients());
        ExpectationResult { expect: expectation.to_string(), passed, value, margin, breached_by }
    }

    fn figure(&self, figure: Figure, outcome: &Outcome) -> f64 {
        let lanes = &self.told.lanes;
        let moved = || (0..lanes.len()).filter(|lane| self.moved[*lane].is_some());
        match figure {
            Figure::WasteRatio => self.metrics.waste_ratio,
            Figure::CrossTorShare => self.metrics.cross_tor_share,
            Figure::GpusUsed => self.metrics.gpus_used as f64,
            Figure::GpusAffected => {
                moved().map(|lane| f64::from(lanes[lane].gpus)).fold(0.0, |a, b| a + b)
            }
            Figure::GroupsAffected => moved().count() as f64,
            Figure::GpusLost => {
                outcome.faults.iter().map(|fault| fault.gpus_lost).sum::<u64>() as f64
            }
            Figure::Drops => outcome.head.packets.dropped as f64,
            Figure::Retransmissions => outcome.head.packets.retransmitted as f64,
            Figure::BundlesSwitched => {
                outcome.faults.iter().map(|f| f.bundles_switched).sum::<usize>() as f64
            }
            Figure::GroupsLost => lanes.iter().filter(|lane| lane.lost).count() as f64,
            Figure::Availability => outcome.availability,
            Figure::Goodput => outcome.goodput,
            Figure::Lost => outcome.head.packets.lost as f64,
        }
    }

    /// Faults that there is something to heal of: not those of the control plane itself, nor those that
    /// nobody has noticed because they did nothing yet.
    fn patients(&self) -> Vec<Patient> {
        let is_patient = |(index, healing): &(usize, &Healing)| {
            let strike = &self.strikes[*index];
            healing.felt.is_some() && !strike.is_of_control() && !strike.from_start
        };
        let patient = |(fault, healing): (usize, &Healing)| Patient {
            fault,
            what: self.strikes[fault].what(),
            took: healing.took(),
        };
        self.told.healings.iter().enumerate().filter(is_patient).map(patient).collect()
    }
}

fn no_workload(name: &str) -> Found {
    (false, format!("there is no workload `{name}` here"), None)
}

/// A fault that there is something to heal of.
pub(crate) struct Patient {
    /// Its place among the faults.
    pub(crate) fault: usize,
    /// What broke.
    pub(crate) what: String,
    /// How long it took until it was healed; nothing if it never was.
    pub(crate) took: Option<Picoseconds>,
}

/// Whether every fault was healed in time.
pub(crate) fn restored(patients: &[Patient], span: Picoseconds) -> Found {
    if let Some(never) = patients.iter().find(|patient| patient.took.is_none()) {
        return (false, format!("{} was never healed", never.what), None);
    }
    match patients.iter().filter_map(|patient| patient.took).max() {
        None => (true, "nothing struck in this run".to_owned(), None),
        Some(longest) => {
            let margin = time_margin(longest, span);
            (longest <= span, format!("the slowest took {longest}"), Some(margin))
        }
    }
}

/// Faults that were not healed in the time an expectation gives them.
pub(crate) fn breached_by(
    expectation: &Expectation,
    patients: impl FnOnce() -> Vec<Patient>,
) -> Vec<usize> {
    let Expectation::RestoredWithin(span) = expectation else { return Vec::new() };
    let is_late = |patient: &Patient| patient.took.is_none_or(|took| took > *span);
    patients().into_iter().filter(is_late).map(|patient| patient.fault).collect()
}

/// Whether an expectation came true, what was found, and how far inside its bound that is.
pub(crate) type Found = (bool, String, Option<f64>);

/// How far inside its bound a time is.
pub(crate) fn time_margin(took: Picoseconds, bound: Picoseconds) -> f64 {
    Comparison::AtMost.margin(took.as_secs_f64(), bound.as_secs_f64())
}

/// Whether no packet, or none of a priority, found a queue full.
pub(crate) fn no_drops(outcome: &Outcome, priority: Option<u8>) -> Found {
    let (drops, of) = match priority {
        None => (outcome.head.packets.dropped, String::new()),
        Some(priority) => {
            let of_priority = outcome.drops_by_priority.get(usize::from(priority));
            (of_priority.copied().unwrap_or(0), format!(" of priority {priority}"))
        }
    };
    let margin = Comparison::AtMost.margin(drops as f64, 0.0);
    (drops == 0, format!("{drops} packets{of} dropped"), Some(margin))
}

/// Whether no ports paused each other in a circle.
pub(crate) fn no_deadlock(outcome: &Outcome) -> Found {
    match &outcome.stop {
        Some(stop @ Stop::Deadlock { .. }) => (false, stop.to_string(), None),
        _ => (true, "no ports paused each other in a circle".to_owned(), None),
    }
}

/// Whether a figure keeps its bound.
pub(crate) fn compared(figure: Figure, comparison: Comparison, bound: f64, value: f64) -> Found {
    let found = format!("{} = {value}", figure.name());
    (comparison.holds(value, bound), found, Some(comparison.margin(value, bound)))
}

pub(crate) fn completes(outcome: &Outcome, span: Picoseconds) -> Found {
    let unfinished = outcome.collectives.iter().find(|collective| collective.end.is_none());
    if let Some(collective) = unfinished {
        let group = collective.group.map_or(String::new(), |group| format!(" of {group}"));
        return (false, format!("`{}`{group} never ended", collective.name), None);
    }
    let last = outcome
        .collectives
        .iter()
        .filter_map(|collective| collective.end)
        .max()
        .unwrap_or_default();
    ended_by(last, span)
}

/// Whether the last of several ends came so soon after the start of the run.
pub(crate) fn ended_by(last: SimTime, span: Picoseconds) -> Found {
    let took = last.since(SimTime::START);
    (took <= span, format!("the last ended at {last}"), Some(time_margin(took, span)))
}
