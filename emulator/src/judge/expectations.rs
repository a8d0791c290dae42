// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::plan::Metrics as PlanMetrics;
use lightloom_units::id::GroupId;
use lightloom_units::{Picoseconds, SimTime};

use super::flows::Compared;
use super::{JudgedRun, groups};
use crate::nearest_rank::nearest_rank;
use crate::outcome::{ExpectationResult, Outcome, Percentiles, Stop};
use crate::scenario::{Comparison, Expectation, FaultEvent, Figure, When};

pub(super) type Found = (bool, String, Option<f64>);

pub(super) struct ExpectationJudge<'a> {
    pub(super) ran: &'a JudgedRun<'a>,
    pub(super) traffic: Option<&'a Compared<'a>>,
    pub(super) plan: Option<&'a PlanMetrics>,
}

impl ExpectationJudge<'_> {
    pub(super) fn judge(&self, expectation: &Expectation, outcome: &Outcome) -> ExpectationResult {
        let (passed, value, margin) = match expectation {
            Expectation::Figure { figure, comparison, bound, workload } => {
                let value = match workload {
                    Some(name) => self.fct_of(name, *figure, outcome),
                    None => self.figure(*figure, outcome),
                };
                let found = format!("{} = {}", figure.name(), figure.show(value));
                // JSON cannot represent infinity.
                let margin = Some(comparison.margin(value, *bound)).filter(|one| one.is_finite());
                (comparison.holds(value, *bound), found, margin)
            }
            Expectation::RestoredWithin(span) => {
                let tested = self.all_came_too_late(outcome.head.simulated);
                tested.unwrap_or_else(|| restored(&self.restorable(outcome), *span))
            }
            Expectation::CompletesWithin(span) => {
                let open = self.traffic.and_then(|traffic| traffic.incomplete(|_| true));
                let begins_late = !self.ran.scenario.phases_after.is_empty();
                let by = begins_late.then(|| self.ran.moment(self.ran.log.ended));
                open.unwrap_or_else(|| completes(outcome, by, *span))
            }
            Expectation::NoDrops { priority } => no_drops(outcome, *priority),
            Expectation::NoDeadlock => no_deadlock(outcome),
            Expectation::WorkloadUnaffected(name) => {
                self.traffic.map_or_else(|| no_workload(name), |traffic| traffic.unaffected(name))
            }
            Expectation::WorkloadCompletes { name, within } => self
                .traffic
                .map_or_else(|| no_workload(name), |traffic| traffic.completes(name, *within)),
            Expectation::Unaffected(group) => self.unaffected(*group),
        };
        let breached_by = match expectation {
            Expectation::RestoredWithin(span) => {
                let restorable = self.restorable(outcome).into_iter();
                let late = restorable.filter(|one| one.took.is_none_or(|took| took > *span));
                late.map(|one| one.fault).collect()
            }
            _ => Vec::new(),
        };
        ExpectationResult { expect: expectation.to_string(), passed, value, margin, breached_by }
    }

    fn unaffected(&self, group: GroupId) -> Found {
        let log = self.ran.log;
        let moved = groups::moved(log, self.ran.baseline);
        match moved.get(group.index()) {
            None => (false, format!("{group} does not exist in this run"), None),
            Some(None) if log.groups[group.index()].steps.is_empty() => {
                (false, format!("{group} never started a step"), None)
            }
            Some(None) => {
                let text =
                    format!("every completion time of {group} is the same as without faults");
                (true, text, None)
            }
            Some(Some(at)) => {
                let text = format!("{group} first differs from the run without faults at {at}");
                (false, text, None)
            }
        }
    }

    fn figure(&self, figure: Figure, outcome: &Outcome) -> f64 {
        let log = self.ran.log;
        let moved = groups::moved(log, self.ran.baseline);
        let moved = (0..moved.len()).filter(|group| moved[*group].is_some());
        let packets = &outcome.head.packets;
        match figure {
            Figure::WasteRatio => self.plan.map_or(f64::NAN, |metrics| metrics.waste_ratio),
            Figure::CrossTorShare => self.plan.map_or(f64::NAN, |metrics| metrics.cross_tor_share),
            Figure::GpusUsed => self.plan.map_or(f64::NAN, |metrics| metrics.gpus_used as f64),
            Figure::GpusAffected if log.groups.is_empty() => {
                self.traffic.map_or(0.0, |traffic| traffic.hosts_of(&traffic.moved).len() as f64)
            }
            Figure::GpusAffected => {
                moved.map(|group| f64::from(log.groups[group].gpus)).fold(0.0, |a, b| a + b)
            }
            Figure::GroupsAffected => moved.count() as f64,
            Figure::GpusLost => {
                outcome.faults.iter().map(|fault| fault.gpus_lost).sum::<u64>() as f64
            }
            Figure::Drops => packets.dropped as f64,
            Figure::Retransmissions => packets.retransmitted as f64,
            Figure::BundlesSwitched => {
                outcome.faults.iter().map(|f| f.bundles_switched).sum::<usize>() as f64
            }
            Figure::GroupsLost => log.groups.iter().filter(|group| group.lost).count() as f64,
            Figure::Availability => outcome.metrics.availability,
            Figure::Goodput => outcome.metrics.goodput,
            Figure::Lost => packets.lost as f64,
            Figure::Pauses => packets.pauses as f64,
            Figure::FctP50 => self.fct(outcome, 50),
            Figure::FctP99 => self.fct(outcome, 99),
            Figure::FctMax => self.fct(outcome, 100),
            Figure::StepP50 => step(outcome, |steps| steps.p50),
            Figure::StepP99 => step(outcome, |steps| steps.p99),
            Figure::StepMax => step(outcome, |steps| steps.max),
            Figure::QueueP99 => outcome.queues.p99_bytes.0 as f64,
            Figure::QueueMax => outcome.queues.max_bytes.0 as f64,
            Figure::Paused => outcome.queues.paused.0 as f64,
            Figure::PausedMax => outcome.queues.paused_max.0 as f64,
            Figure::BusBandwidth => {
                let whole = outcome.workloads.iter().filter(|one| one.restarts == 0);
                let says = whole.filter(|one| one.end.is_none() || one.busbw_bytes_per_s > 0.0);
                says.map(|one| one.busbw_bytes_per_s).reduce(f64::min).unwrap_or(0.0)
            }
        }
    }

    fn fct(&self, outcome: &Outcome, per_cent: usize) -> f64 {
        let open = self.traffic.map_or(0, |traffic| traffic.open().count());
        let ends = outcome.flow_records.iter();
        least(ends.filter_map(|flow| Some(flow.end?.since(flow.start))), open, per_cent)
    }

    fn fct_of(&self, name: &str, figure: Figure, outcome: &Outcome) -> f64 {
        let per_cent = match figure {
            Figure::FctP50 => 50,
            Figure::FctP99 => 99,
            _ => 100,
        };
        let own = outcome.flow_records.iter().filter(|flow| flow.workload.as_deref() == Some(name));
        let open = own.clone().filter(|flow| flow.end.is_none()).count();
        least(own.filter_map(|flow| Some(flow.end?.since(flow.start))), open, per_cent)
    }

    fn all_came_too_late(&self, end: SimTime) -> Option<Found> {
        let events: Vec<&FaultEvent> = self.ran.faults().map(|(event, _)| event).collect();
        let first = events.first()?;
        let When::At(at) = first.when else { return None };
        let are_late = events
            .iter()
            .all(|event| matches!(event.when, When::At(at) if at > end) && !event.from_start);
        let why = format!(
            "{} fails at {at}, after the run ended at {end}, so restoration was not tested",
            first.what()
        );
        are_late.then_some((false, why, None))
    }

    fn restorable(&self, outcome: &Outcome) -> Vec<Restorable> {
        let begun = self.ran.faults().enumerate().filter(|(_, (event, _))| !event.from_start);
        let mut restorable = Vec::new();
        for ((fault, (event, log)), result) in begun.zip(&outcome.faults) {
            let is_of_network = log.mattered.is_some() && !event.is_of_control();
            if is_of_network && result.had_effect() {
                let took = log.took();
                let took = took.map(|took| Picoseconds(took.0.saturating_mul(self.ran.scale)));
                restorable.push(Restorable { fault, what: event.what(), took });
            }
        }
        restorable
    }
}

fn step(outcome: &Outcome, pick: fn(&Percentiles) -> Picoseconds) -> f64 {
    let all = outcome.steps.took().all(|took| took.is_some());
    let took = outcome.step_percentiles.as_ref().filter(|_| all).map(pick);
    took.map_or(f64::INFINITY, |took| took.0 as f64)
}

struct Restorable {
    fault: usize,
    what: String,
    took: Option<Picoseconds>,
}

fn restored(faults: &[Restorable], span: Picoseconds) -> Found {
    if let Some(never) = faults.iter().find(|one| one.took.is_none()) {
        return (false, format!("{} was never restored", never.what), None);
    }
    match faults.iter().filter_map(|one| one.took).max() {
        None => (true, "no fault had an effect".to_owned(), None),
        Some(longest) => {
            let margin = time_margin(longest, span);
            (longest <= span, format!("the slowest restoration took {longest}"), Some(margin))
        }
    }
}

fn time_margin(took: Picoseconds, bound: Picoseconds) -> f64 {
    Comparison::AtMost.margin(took.as_secs_f64(), bound.as_secs_f64())
}

fn no_workload(name: &str) -> Found {
    (false, format!("workload `{name}` does not exist in this run"), None)
}

fn no_drops(outcome: &Outcome, priority: Option<u8>) -> Found {
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

fn no_deadlock(outcome: &Outcome) -> Found {
    match &outcome.stop {
        Some(stop @ Stop::Deadlock { .. }) => (false, stop.to_string(), None),
        _ => (true, "no PFC deadlock occurred".to_owned(), None),
    }
}

fn completes(outcome: &Outcome, ended: Option<SimTime>, span: Picoseconds) -> Found {
    let unfinished = outcome.workloads.iter().find(|workload| workload.end.is_none());
    if let Some(workload) = unfinished {
        let group = workload.group.map_or(String::new(), |group| format!(" of {group}"));
        return (false, format!("`{}`{group} never ended", workload.name), None);
    }
    let steps = outcome.steps.of_jobs();
    if let Some(step) = steps.iter().find(|step| step.end.is_none()) {
        return (false, format!("step {} of job `{}` never ended", step.index, step.job), None);
    }
    let ends = outcome.workloads.iter().filter_map(|workload| workload.end);
    let last = ends.chain(steps.iter().filter_map(|step| step.end)).max().unwrap_or_default();
    if outcome.steps.of_phases().is_empty() {
        return ended_by(last, span);
    }
    let took: Option<Picoseconds> = outcome.steps.took().sum();
    match took {
        None => (false, "some bytes never arrived".to_owned(), None),
        Some(_) if ended.is_some() => ended_by(ended.unwrap_or_default(), span),
        Some(took) if took >= last.since(SimTime::START) => {
            (took <= span, format!("all steps took {took}"), Some(time_margin(took, span)))
        }
        Some(_) => ended_by(last, span),
    }
}

pub(super) fn ended_by(last: SimTime, span: Picoseconds) -> Found {
    let took = last.since(SimTime::START);
    (took <= span, format!("the last workload ended at {last}"), Some(time_margin(took, span)))
}

fn least(took: impl Iterator<Item = Picoseconds>, open: usize, per_cent: usize) -> f64 {
    let mut took: Vec<Picoseconds> = took.collect();
    took.sort_unstable();
    let place = nearest_rank(took.len() + open, per_cent);
    took.get(place).map_or(f64::INFINITY, |took| took.0 as f64)
}
