// SPDX-License-Identifier: Apache-2.0
//! Runs that the table of losses is made of: some steps, a part that fails at a drawn instant of the second, and nodes that
//! failed at the start.

use lightloom_fabric::trace::NodesError;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::Serialize;

use super::month::{Policy, TrainedJob};
use super::{Cause, JobLossSample, LossSample, LossTable, PartChange, changes};
use crate::EmulateError;
use crate::emulate::run_alone;
use crate::run::workload::{TrainLog, TrainStepLog};
use crate::run::{FaultLog, RunLog};
use crate::scenario::{
    ControlDelays, Effect, FailureSource, FaultEvent, On, Restart, RunStart, Scenario, Span, Train,
    When, plan,
};
use crate::shipped::MakeControl;
use crate::stages::StageName;
use crate::substrate::AnyPart;

/// Steps of a run. In the first one nodes fail that are out already, in the second the part fails that is measured; what its
/// answer leaves for the third is over in it, and the last one is as long as those until the repair.
const STEPS: u32 = 4;
/// The step in which the part fails.
const FAILS_IN: usize = 1;

/// With more nodes out than this, the runs with so many stand for all.
const OUT_MAX: usize = 1;

/// A run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The kind of part that fails.
    #[serde(serialize_with = "by_name")]
    pub part: AnyPart,
    /// Nodes that are out already.
    pub out: usize,
    /// Which of the runs of this kind, from 0.
    pub number: u32,
}

fn by_name<S: serde::Serializer>(part: &AnyPart, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(part.name())
}

/// What was run for a case, so that it can be run again by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseRun {
    /// Which case.
    #[serde(flatten)]
    pub case: Case,
    /// Nodes that fail at 0 s.
    pub failed_at_start: Vec<String>,
    /// The part that fails.
    pub fails: String,
    /// Its place among those of its kind.
    #[serde(skip)]
    pub place: usize,
    /// When.
    #[serde(rename = "at_ps")]
    pub at: SimTime,
    /// What it cost.
    #[serde(skip)]
    pub sample: LossSample,
}

/// A scenario over a span, made ready for the runs that its losses are taken from.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// As it was read.
    scenario: Scenario,
    /// A run of it: some steps, where whole steps since a checkpoint and its reading are left to the month.
    short: Scenario,
    start: RunStart,
    /// What it does without failures.
    calm: Vec<TrainLog>,
    jobs: Vec<TrainedJob>,
    gpus: u64,
    gpus_per_node: u64,
}

impl Prepared {
    /// Plans the fabric and runs its jobs once without failures. `None` if the scenario has no span.
    ///
    /// # Errors
    /// If it cannot be planned or run.
    pub fn of(scenario: &Scenario, maker: &dyn MakeControl) -> Result<Option<Self>, EmulateError> {
        let (Some(_), On::Fabric(fabric)) = (&scenario.span, &scenario.on) else {
            return Ok(None);
        };
        let mut short = scenario.clone();
        for train in &mut short.train {
            train.steps = STEPS;
            if let Restart::Checkpoint { every, load, .. } = &mut train.restart {
                (*every, *load) = (1, Picoseconds::ZERO);
            }
        }
        let start = plan(&short)?;
        let calm = run_alone((&short, &start), &[], maker)?.trained;
        let job = |(log, train): (&TrainLog, &Train)| {
            let took = took(log.steps.last()?)?;
            Some(TrainedJob {
                name: log.name.clone(),
                gpus: log.step.bare.mapping.gpus(),
                step: took.0.into(),
                mfu: log.step.mfu(took),
                policy: Policy::from(train.restart),
            })
        };
        let jobs: Option<Vec<TrainedJob>> = calm.iter().zip(&scenario.train).map(job).collect();
        let Some(jobs) = jobs else { return Err(EmulateError::NeverEnds) };
        let trained: Vec<u32> = calm.iter().map(|log| log.step.job).collect();
        let ranks = start.plan.iter().flat_map(|(plan, _)| &plan.ranks);
        let others = ranks.filter(|rank| rank.job.is_some_and(|job| !trained.contains(&job)));
        let gpus = fabric.hbd.gpus() - others.count() as u64;
        let gpus_per_node = u64::from(fabric.hbd.gpus_per_node());
        let scenario = scenario.clone();
        Ok(Some(Self { scenario, short, start, calm, jobs, gpus, gpus_per_node }))
    }

    /// The same with another control plane.
    ///
    /// # Errors
    /// If that cannot be run.
    pub fn with_control(
        &self,
        control: ControlDelays,
        maker: &dyn MakeControl,
    ) -> Result<Self, EmulateError> {
        let mut other = self.clone();
        (other.scenario.control, other.short.control) = (control, control);
        other.calm = run_alone((&other.short, &other.start), &[], maker)?.trained;
        Ok(other)
    }

    /// The same jobs with other failures.
    #[must_use]
    pub(super) fn with_scenario(&self, scenario: Scenario) -> Self {
        Self { scenario, ..self.clone() }
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The span.
    ///
    /// # Panics
    /// Never: nothing is prepared without one.
    #[must_use]
    pub fn span(&self) -> &Span {
        self.scenario.span.as_ref().expect("a span is what it was prepared for")
    }

    /// A table of its jobs, without runs.
    #[must_use]
    pub fn table(&self) -> LossTable {
        LossTable::new(self.jobs.clone(), self.gpus, self.gpus_per_node)
    }

    /// What fails when, under a seed.
    ///
    /// # Errors
    /// If the trace does not fit the fabric.
    pub fn changes(&self, seed: Seed) -> Result<Vec<PartChange>, NodesError> {
        let count = |part| self.start.substrate.count(part);
        changes(self.span(), &count, self.gpus_per_node as u32, seed)
    }

    /// Every run that the table is made of. Where no node is to spare, a node that fails needs none: a job waits.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let parts = match &self.span().failures {
            FailureSource::Trace { .. } => vec![AnyPart::Node],
            FailureSource::Rates(rates) => rates.iter().map(|rate| rate.part).collect(),
        };
        let spare = self.table().spare_nodes();
        let most = |part| match part {
            AnyPart::Node => spare.min(OUT_MAX + 1),
            _ => 1,
        };
        let samples = self.span().samples;
        let of = |part| {
            let numbers = move |out| (0..samples).map(move |number| Case { part, out, number });
            (0..most(part)).flat_map(numbers)
        };
        parts.into_iter().flat_map(of).collect()
    }

    /// Runs a case.
    ///
    /// # Errors
    /// If the engine or the control plane refuses something.
    pub fn run(&self, case: &Case, maker: &dyn MakeControl) -> Result<CaseRun, EmulateError> {
        let label = format!("cases of {} with {} out", case.part.name(), case.out);
        // Every part in turn, so that each is run as often as the others.
        let mut places: Vec<usize> = (0..self.start.substrate.count(case.part)).collect();
        places.shuffle(&mut self.short.seed.stream(&label, u64::MAX));
        let place = places[case.number as usize % places.len()];
        let mut random = self.short.seed.stream(&label, u64::from(case.number));
        let nodes = self.start.substrate.count(AnyPart::Node);
        let mut out: Vec<usize> = Vec::new();
        while out.len() < case.out {
            let node = random.random_range(0..nodes);
            if !out.contains(&node) && (case.part != AnyPart::Node || node != place) {
                out.push(node);
            }
        }
        let late: f64 = random.random();
        // Instants are spread evenly over the step, so that fewer runs do.
        let share = (f64::from(case.number) + late) / f64::from(self.span().samples);
        self.run_with(case, (&out, place), share, maker)
    }

    fn run_with(
        &self,
        case: &Case,
        (out, place): (&[usize], usize),
        share: f64,
        maker: &dyn MakeControl,
    ) -> Result<CaseRun, EmulateError> {
        let mut events: Vec<FaultEvent> = Vec::new();
        for node in out {
            events.extend(self.failure(AnyPart::Node, *node, SimTime::START));
        }
        let before = match out.is_empty() {
            true => self.calm.clone(),
            false => run_alone((&self.short, &self.start), &events, maker)?.trained,
        };
        // The job whose step is looked at is the first one: where there are several, the step of the longest.
        let step = before.iter().filter_map(|log| log.steps.get(FAILS_IN));
        let step = step.filter_map(|step| Some((step.start, took(step)?)));
        let (begins, takes) = step.max_by_key(|(_, takes)| *takes).unwrap_or_default();
        let at = begins + Picoseconds((takes.0 as f64 * share) as u64);
        events.extend(self.failure(case.part, place, at));
        let log = run_alone((&self.short, &self.start), &events, maker)?;
        let sample = sample(&log, &before, &self.calm);
        let name = |node: &usize| NodeId::from_index(*node).to_string();
        Ok(CaseRun {
            case: *case,
            failed_at_start: out.iter().map(name).collect(),
            place,
            fails: events.last().map(FaultEvent::what).unwrap_or_default(),
            at,
            sample,
        })
    }

    fn failure(&self, part: AnyPart, place: usize, at: SimTime) -> Option<FaultEvent> {
        let parts = vec![self.start.substrate.part_at(part, place)?];
        let (effect, when) = (Effect::Down, When::At(at));
        Some(FaultEvent { parts, effect, when, lasts: None, from_start: false })
    }
}

fn took(step: &TrainStepLog) -> Option<Picoseconds> {
    step.end.map(|end| end.since(step.start))
}

/// What the last fault of a run cost its jobs, against the run without it, and what steps then take longer than in the run
/// without any.
fn sample(log: &RunLog, before: &[TrainLog], calm: &[TrainLog]) -> LossSample {
    let fault = log.faults.last();
    let jobs = log.trained.iter().zip(before).zip(calm);
    LossSample {
        jobs: jobs.map(|((log, before), calm)| loss(log, (before, calm), fault?)).collect(),
    }
}

/// The same for one job. `None` if it has steps left.
fn loss(
    log: &TrainLog,
    (before, calm): (&TrainLog, &TrainLog),
    fault: &FaultLog,
) -> Option<JobLossSample> {
    let at = FAILS_IN;
    let end = |log: &TrainLog| Some(i128::from(log.steps.last()?.end?.0));
    let late = end(log)? - end(before)?;
    if log.steps.len() != before.steps.len() {
        return None;
    }
    let length = |log: &TrainLog| Some(i128::from(took(log.steps.last()?)?.0));
    let step = length(log)?;
    let slower = step - length(before)?;
    // Steps after the one in which the job began again are as long as the last one.
    let is_in_next = |step: &TrainStepLog| {
        step.restarts > 0 || fault.restored.is_some_and(|restored| restored > step.start)
    };
    let is_spilled = log.steps.get(at + 1).is_some_and(is_in_next);
    let after = log.steps.len() - at - 1 - usize::from(is_spilled);
    let once = late - slower * after as i128;
    let more = |part: fn(&TrainStepLog) -> u64| {
        let sum = |log: &TrainLog| log.steps[at..].iter().map(|s| i128::from(part(s))).sum();
        let (with, without): (i128, i128) = (sum(log), sum(before));
        with - without
    };
    let (outage, again) = (more(|step| step.why.fault.0), more(|step| step.why.restart.0));
    let mut causes = stages(fault, outage);
    causes.extend([(Cause::DoneAgain, again), (Cause::Disturbed, once - outage - again)]);
    causes.retain(|(_, time)| *time != 0);
    Some(JobLossSample { once: causes, slower: step - length(calm)? })
}

/// An outage, stage by stage; what goes beyond the stages comes last.
fn stages(fault: &FaultLog, outage: i128) -> Vec<(Cause, i128)> {
    let assumed = [
        (StageName::Detected, fault.detected),
        (StageName::Planned, fault.replanned),
        (StageName::Relocked, fault.restored),
    ];
    let mut ends = fault.timeline.clone();
    if ends.is_empty() {
        ends.extend(assumed.into_iter().filter_map(|(stage, end)| Some((stage, end?))));
    }
    let mut last = fault.mattered.or(fault.at).unwrap_or_default();
    let mut left = outage;
    let mut causes = Vec::new();
    for (stage, end) in ends {
        let time = i128::from(end.max(last).since(last).0).min(left.max(0));
        last = end.max(last);
        left -= time;
        causes.push((Cause::Stage(stage), time));
    }
    causes.push((Cause::Outage, left));
    causes
}
