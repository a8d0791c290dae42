//! From what happened to the result: which hosts felt which fault, and whether it was as expected.
//!
//! A flow felt a fault if it ended at another picosecond than in the run without faults. Which fault: the
//! ones that hit a link of its way; if none did, the last one that struck before it ended.

use std::collections::BTreeSet;

use lightloom_fabric::units::{Picoseconds, SimTime};

use super::spot::Spot;
use super::story::{CLASSES, Felt, Step, Told};
use super::{Plant, TrafficScenario};
use crate::engine::{FlowId, FlowRecord, VertexId};
use crate::scenario::head::{Head, Of, share};
use crate::scenario::outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowEnd, FlowRow, Flows, Outcome, TrafficFelt,
};
use crate::scenario::{Expectation, Figure, Strike, judge, links};

/// The result of a run, given the same run without faults.
pub(super) fn outcome(
    scenario: &TrafficScenario,
    strikes: &[Strike<Spot>],
    threads: usize,
    told: &Told,
    calm: Option<&Told>,
) -> Outcome {
    let calm = calm.unwrap_or(told);
    let verdict = Verdict { scenario, strikes, told, calm, moved: moved(told, calm) };
    let flows: Vec<FlowRecord> = told.engine.records().collect();
    let (name, sha256, seed) = (&scenario.name, &scenario.sha256, scenario.seed);
    let of = Of { scenario: name, sha256, seed, threads };
    let plant = &scenario.plant;
    let name = |link| plant.link_name(link);
    let mut outcome = Outcome {
        head: Head::new(of, told.ended, &told.engine.packets()),
        drops_by_priority: match scenario.switches.have_priorities() {
            true => told.engine.dropped_by_priority().to_vec(),
            false => Vec::new(),
        },
        collectives: verdict.collectives(),
        flows: Flows::new(&flows),
        faults: verdict.faults(),
        groups: Vec::new(),
        reuse: None,
        plan: None,
        availability: verdict.availability(),
        goodput: share(calm.ended.0 as f64, told.ended.0 as f64),
        links: links::results(&links::Watched {
            engine: &told.engine,
            ended: told.ended,
            classes: &told.classes,
            names: &CLASSES,
            link_name: &name,
        }),
        never_ended: told.stop.as_ref().is_some_and(|s| s.is_unwanted(scenario.ends_at_limit)),
        stop: told.stop.clone(),
        waiting: told.waiting.clone(),
        expectations: Vec::new(),
        flow_records: flow_rows(plant, &flows),
    };
    outcome.expectations =
        scenario.expectations.iter().map(|expected| verdict.judge(expected, &outcome)).collect();
    outcome
}

fn flow_rows(plant: &Plant, flows: &[FlowRecord]) -> Vec<FlowRow<FlowEnd>> {
    let names: Vec<std::sync::Arc<str>> =
        plant.hosts.iter().map(|host| plant.name(*host).into()).collect();
    let name = |vertex: VertexId| {
        let place = plant.place_of(vertex).expect("flows end at hosts");
        FlowEnd::Host(names[place as usize].clone())
    };
    flows.iter().map(|flow| FlowRow::new(flow, name)).collect()
}

/// Flows that ended otherwise than in the calm run, with the earlier of their two ends.
fn moved(told: &Told, calm: &Told) -> Vec<(FlowId, usize, SimTime)> {
    let mut moved = Vec::new();
    for (workload, (here, there)) in told.jobs.iter().zip(&calm.jobs).enumerate() {
        for (step, calm_step) in here.steps.iter().zip(&there.steps) {
            for (flow, calm_flow) in flows_of(step).zip(flows_of(calm_step)) {
                let (end, calm_end) =
                    (told.engine.record(flow).end, calm.engine.record(calm_flow).end);
                if end != calm_end {
                    let at = end.into_iter().chain(calm_end).min().unwrap_or(told.ended);
                    moved.push((flow, workload, at));
                }
            }
        }
    }
    moved
}

fn flows_of(step: &Step) -> impl Iterator<Item = FlowId> + '_ {
    step.flows.iter().cloned().flatten().map(FlowId)
}

/// Flows of a step that were cancelled because nothing led to their end any more.
fn given_up(told: &Told, step: &Step) -> usize {
    flows_of(step).filter(|flow| told.engine.record(*flow).cancelled).count()
}

struct Verdict<'a> {
    scenario: &'a TrafficScenario,
    strikes: &'a [Strike<Spot>],
    told: &'a Told,
    calm: &'a Told,
    /// Flows that moved, with their workload and since when.
    moved: Vec<(FlowId, usize, SimTime)>,
}

impl Verdict<'_> {
    fn collectives(&self) -> Vec<CollectiveResult> {
        let mut results = Vec::new();
        for (place, job) in self.told.jobs.iter().enumerate() {
            let workload = &self.scenario.workloads[place];
            for (number, step) in job.steps.iter().enumerate() {
                // What was given up never arrived: the rest may have ended, the whole has not.
                let end = step.end.filter(|_| given_up(self.told, step) == 0);
                let took = end.map(|end| end.since(step.start));
                let took = took.filter(|took| *took > Picoseconds::ZERO);
                let algbw = took.map_or(0.0, |took| step.size.0 as f64 / took.as_secs_f64());
                let calm = self.calm.jobs[place].steps.get(number);
                results.push(CollectiveResult {
                    name: workload.name.clone(),
                    group: None,
                    kind: workload.run.name(),
                    bytes: step.size,
                    start: step.start,
                    end,
                    ideal: step.ideal,
                    end_without_faults: calm.and_then(|step| step.end),
                    algbw_bytes_per_s: algbw,
                    busbw_bytes_per_s: algbw * workload.run.bus_factor(step.ranks as usize),
                    restarts: 0,
                    ranks: step.ranks,
                });
            }
        }
        results
    }

    fn faults(&self) -> Vec<FaultResult> {
        let mut felt: Vec<Vec<&(FlowId, usize, SimTime)>> = vec![Vec::new(); self.strikes.len()];
        for moved in &self.moved {
            for fault in self.causes(moved) {
                felt[fault].push(moved);
            }
        }
        let all = self.strikes.iter().zip(&self.told.felt).zip(felt);
        let news = all.filter(|((strike, _), _)| !strike.from_start);
        news.map(|((strike, what), moved)| self.fault(strike, what, &moved)).collect()
    }

    /// The faults that a moved flow is put down to.
    fn causes(&self, (flow, _, at): &(FlowId, usize, SimTime)) -> Vec<usize> {
        let felt = &self.told.felt;
        let hits =
            |fault: &usize| felt[*fault].hit.contains(flow) && !self.strikes[*fault].from_start;
        let hit: Vec<usize> = (0..felt.len()).filter(hits).collect();
        if !hit.is_empty() {
            return hit;
        }
        let before = |fault: &usize| {
            let strike = &self.strikes[*fault];
            felt[*fault].struck && strike.at <= *at && !strike.from_start
        };
        let last = (0..felt.len()).filter(before).max_by_key(|fault| self.strikes[*fault].at);
        last.into_iter().collect()
    }

    fn fault(
        &self,
        strike: &Strike<Spot>,
        felt: &Felt,
        moved: &[&(FlowId, usize, SimTime)],
    ) -> FaultResult {
        let plant = &self.scenario.plant;
        let mut hosts = BTreeSet::new();
        for (flow, ..) in moved {
            let record = self.told.engine.record(*flow);
            hosts.extend([record.source, record.destination]);
        }
        let workloads: BTreeSet<usize> = moved.iter().map(|(_, workload, _)| *workload).collect();
        let delays = workloads.iter().map(|place| self.delay(*place));
        FaultResult {
            what: self.what(strike),
            effect: strike.effect_name().to_owned(),
            at: strike.at,
            detected: felt.detected,
            replanned: felt.detected,
            restored: felt.restored,
            bundles_switched: 0,
            dark: None,
            groups_affected: Vec::new(),
            gpus_affected: hosts.len() as u64,
            gpus_lost: felt.hosts_lost.len() as u64,
            delay: delays
                .collect::<Option<Vec<_>>>()
                .and_then(|delays| delays.into_iter().max().or(Some(Picoseconds::ZERO))),
            traffic: Some(TrafficFelt {
                flows_hit: felt.hit.len() as u64,
                flows_moved: moved.len() as u64,
                flows_given_up: felt.given_up.len() as u64,
                workloads: workloads
                    .into_iter()
                    .map(|place| self.scenario.workloads[place].name.clone())
                    .collect(),
                hosts: hosts.into_iter().map(|host| plant.name(host).to_owned()).collect(),
            }),
            story: None,
        }
    }

    /// How much later than in the calm run a workload ended; nothing if it did not.
    fn delay(&self, workload: usize) -> Option<Picoseconds> {
        let end = |told: &Told| {
            let job = &told.jobs[workload];
            job.done.then(|| job.steps.last().and_then(|step| step.end)).flatten()
        };
        let (end, calm) = (end(self.told)?, end(self.calm)?);
        Some(Picoseconds(end.0.saturating_sub(calm.0)))
    }

    /// Share of the hosts' time in which they had a cable that was not dark.
    fn availability(&self) -> f64 {
        let ended = self.told.ended;
        let all = ended.0 as f64 * self.scenario.plant.hosts.len() as f64;
        let out =
            |(since, until): &(SimTime, SimTime)| until.0.min(ended.0).saturating_sub(since.0);
        let lost: u64 = self.told.out_of_service.iter().map(out).sum();
        share(all - lost as f64, all)
    }

    fn judge(&self, expectation: &Expectation, outcome: &Outcome) -> ExpectationResult {
        let (passed, value, margin) = match expectation {
            Expectation::Figure { figure, comparison, bound } => {
                judge::compared(*figure, *comparison, *bound, self.figure(*figure, outcome))
            }
            Expectation::RestoredWithin(span) => judge::restored(&self.patients(), *span),
            Expectation::CompletesWithin(span) => self.completes(outcome, *span),
            Expectation::NoDrops { priority } => judge::no_drops(outcome, *priority),
            Expectation::NoDeadlock => judge::no_deadlock(outcome),
            Expectation::WorkloadUnaffected(name) => self.unaffected(name),
            Expectation::Unaffected(group) => (false, format!("there is no {group} here"), None),
        };
        let breached_by = judge::breached_by(expectation, || self.patients());
        ExpectationResult { expect: expectation.to_string(), passed, value, margin, breached_by }
    }

    /// A workload that waits for one that never ends has not begun, so it has no result.
    fn completes(&self, outcome: &Outcome, span: Picoseconds) -> judge::Found {
        match self.told.jobs.iter().position(|job| !job.done) {
            Some(place) => {
                (false, format!("`{}` never ended", self.scenario.workloads[place].name), None)
            }
            None => self.given_up().unwrap_or_else(|| judge::completes(outcome, span)),
        }
    }

    /// The first workload of which flows were given up.
    fn given_up(&self) -> Option<judge::Found> {
        self.told.jobs.iter().zip(&self.scenario.workloads).find_map(|(job, workload)| {
            let flows: usize = job.steps.iter().map(|step| given_up(self.told, step)).sum();
            let text = || format!("{flows} flows of `{}` were given up", workload.name);
            (flows > 0).then(|| (false, text(), None))
        })
    }

    fn unaffected(&self, name: &str) -> judge::Found {
        let of_name = |(_, workload, _): &&(FlowId, usize, SimTime)| {
            self.scenario.workloads[*workload].name == name
        };
        match self.moved.iter().filter(of_name).map(|(.., at)| *at).min() {
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

    /// Whether a workload sent nothing, so that there is nothing to compare.
    fn is_silent(&self, name: &str) -> bool {
        let jobs = self.told.jobs.iter().zip(&self.scenario.workloads);
        let mut mine = jobs.filter(|(_, workload)| workload.name == name);
        mine.all(|(job, _)| job.steps.iter().flat_map(flows_of).next().is_none())
    }

    fn figure(&self, figure: Figure, outcome: &Outcome) -> f64 {
        let hosts = || {
            let ends = self.moved.iter().flat_map(|(flow, ..)| {
                let record = self.told.engine.record(*flow);
                [record.source, record.destination]
            });
            ends.collect::<BTreeSet<_>>().len()
        };
        match figure {
            Figure::GpusAffected => hosts() as f64,
            Figure::GpusLost => {
                outcome.faults.iter().map(|fault| fault.gpus_lost).sum::<u64>() as f64
            }
            Figure::Drops => outcome.head.packets.dropped as f64,
            Figure::Lost => outcome.head.packets.lost as f64,
            Figure::Retransmissions => outcome.head.packets.retransmitted as f64,
            Figure::Availability => outcome.availability,
            Figure::Goodput => outcome.goodput,
            // Refused where the file is read.
            _ => f64::NAN,
        }
    }

    /// Faults that struck and that there is something to heal of.
    fn patients(&self) -> Vec<judge::Patient> {
        let is_patient = |(fault, felt): &(usize, &Felt)| {
            let strike = &self.strikes[*fault];
            felt.struck && !strike.from_start && !strike.targets.contains(&Spot::Control)
        };
        let patient = |(fault, felt): (usize, &Felt)| judge::Patient {
            fault,
            what: self.what(&self.strikes[fault]),
            took: felt.restored.map(|restored| restored.since(self.strikes[fault].at)),
        };
        self.told.felt.iter().enumerate().filter(is_patient).map(patient).collect()
    }

    fn what(&self, strike: &Strike<Spot>) -> String {
        let name = |spot: &Spot| self.scenario.plant.spot_name(*spot);
        strike.targets.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
