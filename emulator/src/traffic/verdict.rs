//! From what happened to the result: which hosts felt which fault, and whether it was as expected.

use lightloom_engine::{FlowRecord, VertexId};
use lightloom_units::SimTime;

use super::felt::{Compared, Moved, Suspect};
use super::spot::Spot;
use super::story::{CLASSES, Felt, Told};
use super::{Plant, TrafficScenario};
use crate::scenario::head::{Head, Of, share};
use crate::scenario::outcome::{ExpectationResult, FaultResult, FlowEnd, FlowRow, Flows, Outcome};
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
    let flows = Compared::new(&scenario.workloads, told.ran(), calm.ran());
    let verdict = Verdict { scenario, strikes, told, flows };
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
        collectives: verdict.flows.results(),
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

struct Verdict<'a> {
    scenario: &'a TrafficScenario,
    strikes: &'a [Strike<Spot>],
    told: &'a Told,
    flows: Compared<'a>,
}

impl Verdict<'_> {
    fn faults(&self) -> Vec<FaultResult> {
        let suspects = self.strikes.iter().zip(&self.told.felt).map(|(strike, felt)| {
            let counts = felt.struck && !strike.from_start;
            counts.then_some(Suspect { at: strike.at, hit: &felt.hit })
        });
        let suspects: Vec<_> = suspects.collect();
        let felt = self.flows.put_down(&suspects);
        let all = self.strikes.iter().zip(&self.told.felt).zip(felt);
        let news = all.filter(|((strike, _), _)| !strike.from_start);
        news.map(|((strike, what), moved)| self.fault(strike, what, &moved)).collect()
    }

    fn fault(&self, strike: &Strike<Spot>, felt: &Felt, moved: &[Moved]) -> FaultResult {
        let plant = &self.scenario.plant;
        let name = |host| plant.name(host).to_owned();
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
            gpus_affected: self.flows.hosts_of(moved).len() as u64,
            gpus_lost: felt.hosts_lost.len() as u64,
            delay: self.flows.delay(moved),
            traffic: Some(self.flows.felt((&felt.hit, &felt.given_up), moved, &name)),
            story: None,
        }
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
            Expectation::CompletesWithin(span) => {
                self.flows.incomplete(|_| true).unwrap_or_else(|| judge::completes(outcome, *span))
            }
            Expectation::WorkloadCompletes { name, within } => self.flows.completes(name, *within),
            Expectation::NoDrops { priority } => judge::no_drops(outcome, *priority),
            Expectation::NoDeadlock => judge::no_deadlock(outcome),
            Expectation::WorkloadUnaffected(name) => self.flows.unaffected(name),
            Expectation::Unaffected(group) => (false, format!("there is no {group} here"), None),
        };
        let breached_by = judge::breached_by(expectation, || self.patients());
        ExpectationResult { expect: expectation.to_string(), passed, value, margin, breached_by }
    }

    fn figure(&self, figure: Figure, outcome: &Outcome) -> f64 {
        match figure {
            Figure::GpusAffected => self.flows.hosts_of(&self.flows.moved).len() as f64,
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
