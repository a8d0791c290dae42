// SPDX-License-Identifier: Apache-2.0
//! Short runs that measure the loss due to a failure at a random instant of the second step.

use std::sync::Arc;

use lightloom_fabric::fabric::JobSize;
use lightloom_fabric::file::StepFile;
use lightloom_fabric::trace::NodesError;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime, Text};
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::Serialize;

use super::{
    Cause, JobLossSample, LossSample, LossTable, LossesFrom, PartChange, Policy, Replicas,
    TrainedJob, changes, known,
};
use crate::EmulateError;
use crate::emulate::run_alone;
use crate::run::workload::{TrainLog, TrainStepLog};
use crate::run::{FaultLog, RunLog};
use crate::scenario::{
    Case, Checkpoints, ControlDelays, Effect, FailureSource, FaultEvent, KnownLosses, KnownRun, On,
    Restart, RunStart, Scenario, Span, TrainStep, When, plan,
};
use crate::shipped::MakeControl;
use crate::stages::StageName;
use crate::substrate::AnyPart;

/// Recovery finishes by the third step, so the last step shows the slowdown until the repair.
const STEPS: u32 = 4;
const FAILS_IN: usize = 1;

/// Cases with this many failed nodes also represent higher numbers.
const OUT_MAX: usize = 1;

/// A finished case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseRun {
    /// What results store.
    #[serde(flatten)]
    pub run: KnownRun,
    /// Losses by job.
    #[serde(skip)]
    pub sample: LossSample,
}

/// A scenario prepared for the runs that measure its losses.
#[derive(Clone, Debug)]
pub struct Prepared {
    scenario: Scenario,
    /// Scenario of a short run. Checkpoint reads and steps since the last checkpoint are added later, by the month.
    short: Scenario,
    start: RunStart,
    calm: Vec<TrainLog>,
    jobs: Vec<TrainedJob>,
    gpus: u64,
    gpus_per_node: u64,
    losses_from: Option<LossesFrom>,
}

impl Prepared {
    /// Plans the fabric and runs its jobs without failures. Returns `None` if the scenario has no time span.
    pub fn of(scenario: &Scenario, maker: &MakeControl) -> Result<Option<Self>, EmulateError> {
        let (Some(span), On::Fabric(_)) = (&scenario.span, &scenario.on) else {
            return Ok(None);
        };
        let mut short = scenario.clone();
        for train in &mut short.train {
            train.steps = STEPS;
            let (every, load, write) = (1, Text(Picoseconds::ZERO), None);
            let is_whole = train.restart.rolls_back_to().is_some();
            let at_once = Restart::Checkpoint(Checkpoints { every, load, write });
            train.restart = if is_whole { at_once } else { Restart::Barrier };
        }
        let start = plan(&short)?;
        if let Some(known) = &span.losses {
            return Self::of_known(scenario, short, start, known).map(Some);
        }
        let calm = run_alone(&short, &start, &[], maker)?.trained;
        let mut jobs = Vec::new();
        for (log, train) in calm.iter().zip(&scenario.train) {
            let took = log.steps.last().and_then(took).ok_or(EmulateError::NeverEnds)?;
            let policy = Policy::from(train.restart);
            let replicas = replicas(&log.step, &start, took);
            let replicas = match policy.answer.is_elastic() {
                true => with_fewer(&short, log, replicas, maker)?,
                false => replicas,
            };
            jobs.push(TrainedJob {
                name: log.name.clone(),
                gpus: log.step.owned.mapping.gpus(),
                closed_form: log.closed_form.step_seconds,
                step: took.0.into(),
                mfu: log.step.mfu(took),
                policy,
                replicas,
            });
        }
        let trained: Vec<u32> = calm.iter().map(|log| log.step.job).collect();
        let (gpus, gpus_per_node) = gpus_of_bill(scenario, &start, &trained);
        let (scenario, losses_from) = (scenario.clone(), None);
        Ok(Some(Self { scenario, short, start, calm, jobs, gpus, gpus_per_node, losses_from }))
    }

    fn of_known(
        scenario: &Scenario,
        short: Scenario,
        start: RunStart,
        known: &KnownLosses,
    ) -> Result<Self, EmulateError> {
        let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
            return Err(EmulateError::NeverEnds);
        };
        let is_own = known.fabric_sha256 == scenario.sha256;
        let (mut jobs, mut trained) = (Vec::new(), Vec::new());
        let (mut gpus_then, mut stretched) = (Vec::new(), Vec::new());
        for train in &scenario.train {
            let step = TrainStep::of(train, fabric, plan).ok();
            let (Some(step), Some(then)) = (step, known.job(&train.job)) else {
                return Err(EmulateError::NeverEnds);
            };
            let closed_form = step.closed_form().step_seconds;
            let stretch = if is_own { 1.0 } else { closed_form / then.closed_form_seconds };
            let took = Picoseconds((then.step_ps as f64 * stretch) as u64);
            let fewer = then.step_with_fewer_ps;
            let fewer = fewer.map(|then| Picoseconds((then as f64 * stretch) as u64));
            let replicas = replicas(&step, &start, took);
            let step_with_fewer = fewer.unwrap_or(took).0.into();
            trained.push(step.job);
            gpus_then.push(then.gpus);
            stretched.push(stretch);
            jobs.push(TrainedJob {
                name: train.job.clone(),
                gpus: step.owned.mapping.gpus(),
                step: took.0.into(),
                closed_form,
                mfu: step.mfu(took),
                policy: Policy::from(train.restart),
                replicas: Replicas { step_with_fewer, ..replicas },
            });
        }
        let (gpus, gpus_per_node) = gpus_of_bill(scenario, &start, &trained);
        let losses_from = Some(LossesFrom {
            file: known.file.clone(),
            control: known.control.clone(),
            gpus: gpus_then,
            stretched,
            stand_in: !is_own,
        });
        let (scenario, calm) = (scenario.clone(), Vec::new());
        Ok(Self { scenario, short, start, calm, jobs, gpus, gpus_per_node, losses_from })
    }

    /// Returns the source of reused losses. `None` if they are measured in runs of this scenario.
    pub fn losses_from(&self) -> Option<&LossesFrom> {
        self.losses_from.as_ref()
    }

    pub(super) fn known_runs(&self) -> Option<Vec<CaseRun>> {
        let (known, from) = (self.span().losses.as_ref()?, self.losses_from.as_ref()?);
        Some(known::runs(known, &self.jobs, from))
    }

    /// Replaces the control plane.
    pub fn with_control(
        &self,
        control: ControlDelays,
        maker: &MakeControl,
    ) -> Result<Self, EmulateError> {
        let mut other = self.clone();
        (other.scenario.control, other.short.control) = (control, control);
        other.calm = run_alone(&other.short, &other.start, &[], maker)?.trained;
        Ok(other)
    }

    pub(super) fn with_scenario(&self, scenario: Scenario) -> Self {
        Self { scenario, ..self.clone() }
    }

    /// Returns the original scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the time span of the scenario.
    pub fn span(&self) -> &Span {
        self.scenario.span.as_ref().expect("the scenario was prepared for a span")
    }

    /// Returns an empty loss table for the scenario's jobs.
    pub fn table(&self) -> LossTable {
        LossTable::new(self.jobs.clone(), self.gpus, self.gpus_per_node)
    }

    /// Returns the failures and repairs drawn with `seed`.
    pub fn changes(&self, seed: Seed) -> Result<Vec<PartChange>, NodesError> {
        let substrate = &self.start.substrate;
        changes(self.span(), &|part| substrate.count(part), self.gpus_per_node as u32, seed)
    }

    /// Returns the cases for the loss table. Without spare nodes, node failures are included only
    /// for elastic jobs, because all other jobs wait for a repair.
    pub fn cases(&self) -> Vec<Case> {
        let parts = match &self.span().failures {
            FailureSource::Trace { .. } => vec![AnyPart::Node],
            FailureSource::Rates(rates) => rates.iter().map(|rate| rate.part).collect(),
        };
        let spare = self.table().spare_nodes();
        let elastic = usize::from(self.jobs.iter().any(|job| job.policy.answer.is_elastic()));
        let mut cases = Vec::new();
        for part in parts {
            let is_node = part == AnyPart::Node;
            let most = if is_node { spare.min(OUT_MAX + 1).max(elastic) } else { 1 };
            for out in 0..most {
                let samples = 0..self.span().samples;
                cases.extend(samples.map(|number| Case { part, out, number }));
            }
        }
        cases
    }

    /// Executes a case.
    pub fn run(&self, case: &Case, maker: &MakeControl) -> Result<CaseRun, EmulateError> {
        let label = format!("cases of {} with {} out", case.part.name(), case.out);
        // Rotate through the parts, so that all of them fail equally often.
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
        // Spread the failures evenly over the step to reduce the number of runs.
        let share = (f64::from(case.number) + late) / f64::from(self.span().samples);
        self.run_with(case, &out, place, share, maker)
    }

    fn run_with(
        &self,
        case: &Case,
        out: &[usize],
        place: usize,
        share: f64,
        maker: &MakeControl,
    ) -> Result<CaseRun, EmulateError> {
        let mut events: Vec<FaultEvent> = Vec::new();
        for node in out {
            events.extend(self.failure(AnyPart::Node, *node, SimTime::START));
        }
        let before = match out.is_empty() {
            true => self.calm.clone(),
            false => run_alone(&self.short, &self.start, &events, maker)?.trained,
        };
        let step = before.iter().filter_map(|log| log.steps.get(FAILS_IN));
        let step = step.filter_map(|step| Some((step.start, took(step)?)));
        let (begins, takes) = step.max_by_key(|(_, takes)| *takes).unwrap_or_default();
        let at = begins + Picoseconds((takes.0 as f64 * share) as u64);
        events.extend(self.failure(case.part, place, at));
        let log = run_alone(&self.short, &self.start, &events, maker)?;
        let sample = self.sample(case.part, place, &log, &before);
        let losses = self.jobs.iter().zip(&sample.jobs);
        let losses = losses.filter_map(|(job, loss)| Some(known::written(job, loss.as_ref()?)));
        let run = KnownRun {
            case: *case,
            failed_at_start: out.iter().map(|node| NodeId::from_index(*node).to_string()).collect(),
            fails: events.last().map(FaultEvent::what).unwrap_or_default(),
            place,
            at_ps: at,
            losses: losses.collect(),
        };
        Ok(CaseRun { run, sample })
    }

    /// Returns each job's loss due to the last fault, relative to the run without this fault, and
    /// the slowdown of later steps relative to the run without any fault.
    fn sample(&self, part: AnyPart, place: usize, log: &RunLog, before: &[TrainLog]) -> LossSample {
        let fault = log.faults.last();
        let jobs = log.trained.iter().zip(before).zip(&self.calm).zip(&self.jobs);
        let losses = jobs.map(|(((log, before), calm), job)| {
            let fault = fault?;
            if part == AnyPart::Node && job.policy.answer.is_elastic() {
                let is_hit = !job.replicas.of_node[place].is_empty();
                return loss_of_elastic(log, before, calm, fault, is_hit);
            }
            loss(log, before, calm, fault)
        });
        LossSample { jobs: losses.collect() }
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

fn gpus_of_bill(scenario: &Scenario, start: &RunStart, trained: &[u32]) -> (u64, u64) {
    let On::Fabric(fabric) = &scenario.on else { return (0, 1) };
    let ranks = start.plan.iter().flat_map(|plan| &plan.0.ranks);
    let others = ranks.filter(|rank| rank.job.is_some_and(|job| !trained.contains(&job)));
    let gpus = fabric.gpus() - others.count() as u64;
    (gpus, u64::from(fabric.hbd.gpus_per_node()))
}

fn replicas(trained: &TrainStep, start: &RunStart, step: Picoseconds) -> Replicas {
    let mut of_node = vec![Vec::new(); start.substrate.count(AnyPart::Node)];
    let ranks = start.plan.iter().flat_map(|plan| &plan.0.ranks);
    for rank in ranks.filter(|rank| rank.job == Some(trained.job)) {
        let replicas: &mut Vec<u32> = &mut of_node[rank.gpu.node.index()];
        if !replicas.contains(&rank.dp) {
            replicas.push(rank.dp);
        }
    }
    let count = trained.owned.mapping.data;
    Replicas { count, step_with_fewer: step.0.into(), of_node }
}

fn with_fewer(
    short: &Scenario,
    log: &TrainLog,
    replicas: Replicas,
    maker: &MakeControl,
) -> Result<Replicas, EmulateError> {
    let mut fewer = short.clone();
    let On::Fabric(fabric) = &mut fewer.on else { return Ok(replicas) };
    let job = &mut Arc::make_mut(fabric).jobs[log.step.job as usize];
    let gpus = log.step.owned.mapping.gpus();
    job.size = JobSize::Gpus(gpus - gpus / u64::from(replicas.count.max(1)));
    if let Some(StepFile::Training(mapping)) = &mut job.step {
        mapping.dp = Some(replicas.count.saturating_sub(1));
    }
    fewer.plan = None;
    let start = plan(&fewer)?;
    let trained = run_alone(&fewer, &start, &[], maker)?.trained;
    let own = trained.iter().find(|one| one.name == log.name);
    let step = own.and_then(|log| took(log.steps.last()?)).ok_or(EmulateError::NeverEnds)?;
    Ok(Replicas { step_with_fewer: step.0.into(), ..replicas })
}

fn loss_of_elastic(
    log: &TrainLog,
    before: &TrainLog,
    calm: &TrainLog,
    fault: &FaultLog,
    is_hit: bool,
) -> Option<JobLossSample> {
    // Other failed nodes can still slow the job's steps.
    let slower = loss(log, before, calm, fault).map_or(0, |loss| loss.slower);
    if !is_hit {
        return Some(JobLossSample { once: Vec::new(), slower });
    }
    let at = fault.at?;
    let under_way = before.steps.iter().rfind(|step| step.start <= at)?;
    let known = fault.timeline.iter().filter(|(stage, _)| *stage <= StageName::Detected);
    let known: Vec<(StageName, SimTime)> = known.copied().collect();
    let detected = fault.detected.map(|end| (StageName::Detected, end));
    let ends = if known.is_empty() { detected.into_iter().collect() } else { known };
    let mut once = Vec::new();
    let mut last = at;
    for (stage, end) in ends {
        once.push((Cause::Stage(stage), i128::from(end.max(last).since(last).0)));
        last = end.max(last);
    }
    once.push((Cause::DoneAgain, i128::from(at.since(under_way.start).0)));
    once.retain(|(_, time)| *time != 0);
    Some(JobLossSample { once, slower })
}

fn loss(
    log: &TrainLog,
    before: &TrainLog,
    calm: &TrainLog,
    fault: &FaultLog,
) -> Option<JobLossSample> {
    let at = FAILS_IN;
    let late = i128::from(log.steps.last()?.end?.0) - i128::from(before.steps.last()?.end?.0);
    if log.steps.len() != before.steps.len() {
        return None;
    }
    let [step, without, calm] =
        [log, before, calm].map(|log| Some(i128::from(took(log.steps.last()?)?.0)));
    let (step, calm) = (step?, calm?);
    let slower = step - without?;
    // Assumes that steps after the restart take as long as the last one.
    let is_spilled = log.steps.get(at + 1).is_some_and(|step: &TrainStepLog| {
        step.restarts > 0 || fault.restored.is_some_and(|restored| restored > step.start)
    });
    let after = log.steps.len() - at - 1 - usize::from(is_spilled);
    let once = late - slower * after as i128;
    let (mut outage, mut again) = (0, 0);
    for (with, without) in log.steps[at..].iter().zip(&before.steps[at..]) {
        outage += i128::from(with.why.parts.fault.0) - i128::from(without.why.parts.fault.0);
        again += i128::from(with.why.parts.restart.0) - i128::from(without.why.parts.restart.0);
    }
    let mut causes = stages(fault, outage);
    causes.extend([(Cause::DoneAgain, again), (Cause::Disturbed, once - outage - again)]);
    causes.retain(|(_, time)| *time != 0);
    Some(JobLossSample { once: causes, slower: step - calm })
}

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
