// SPDX-License-Identifier: Apache-2.0
//! Derives the result of a run from its log.
//!
//! A group or flow is affected if its end time differs from the baseline (the run without faults), even by a
//! picosecond. Causes come from the log ([`account`]), so two runs are enough for any number of faults.

mod account;
mod bounds;
mod cuts;
mod expectations;
mod flows;
mod groups;
mod links;
mod losses;
mod phases;
mod shares;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowRecord, LinkId, VertexId};
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::Metrics as PlanMetrics;
use lightloom_planner::khop::to_document;
use lightloom_units::{Picoseconds, SimTime};

use crate::outcome::{
    EndpointKind, FaultResult, FlowFigures, FlowRow, NotRestored, Outcome, OutcomeHead,
    Percentiles, PlanResult, RunIdentity, Steps,
};
use crate::run::{FaultLog, RunLog, Waiting};
use crate::scenario::{FaultEvent, On, RunStart, Scenario, Traffic};
use flows::Compared;
use groups::GroupImpact;

pub(crate) struct JudgedRun<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) start: &'a RunStart,
    pub(crate) traffic: &'a [Traffic],
    pub(crate) log: &'a RunLog,
    pub(crate) baseline: &'a RunLog,
    pub(crate) scale: u64,
    pub(crate) threads: usize,
}

impl<'a> JudgedRun<'a> {
    fn longer(&self, time: Picoseconds) -> Picoseconds {
        Picoseconds(time.0.saturating_mul(self.scale))
    }

    fn moment(&self, time: SimTime) -> SimTime {
        SimTime(time.0.saturating_mul(self.scale))
    }

    fn faults(&self) -> impl Iterator<Item = (&'a FaultEvent, &'a FaultLog)> + use<'a> {
        self.start.events.iter().zip(&self.log.faults)
    }

    fn paused(&self, link: LinkId) -> Picoseconds {
        self.longer(Picoseconds(self.log.engine().port_count(link).paused_ps))
    }

    fn waits(&self, waiting: &Waiting) -> Waiting {
        Waiting { since: waiting.since.map(|since| self.moment(since)), ..waiting.clone() }
    }

    fn full_size(&self, flow: &FlowRecord) -> FlowRecord {
        FlowRecord {
            size: flow.size * self.scale,
            sent: flow.sent * self.scale,
            delivered: flow.delivered * self.scale,
            start: self.moment(flow.start),
            end: flow.end.map(|end| self.moment(end)),
            ..*flow
        }
    }
}

pub(crate) fn outcome(ran: &JudgedRun<'_>) -> Outcome {
    let JudgedRun { scenario, log, .. } = *ran;
    let metrics = plan_metrics(ran);
    let traffic = (!ran.traffic.is_empty()).then(|| Compared::of(ran));
    let groups = groups::results(log, ran.baseline);
    let flows: Vec<FlowRecord> = log.engine().records().map(|flow| ran.full_size(&flow)).collect();
    let phases = phases::results(ran);
    let steps = match log.trained.is_empty() {
        true => Steps::OfPhases(phases::steps(ran, &phases)),
        false => Steps::OfJobs(steps::results(ran)),
    };
    let (links, queues) = links::results(ran);
    let (name, sha256, seed) = (&scenario.name, &scenario.sha256, scenario.seed);
    let of = RunIdentity { scenario: name, sha256, seed, threads: ran.threads };
    let workloads = groups::workloads(ran).into_iter();
    let workloads = workloads.chain(traffic.iter().flat_map(Compared::results)).collect();
    let mut outcome = Outcome {
        head: OutcomeHead::new(of, ran.moment(log.ended), &log.engine().packets()),
        reuse: log.engine().reuse(),
        drops_by_priority: match scenario.switches.have_priorities() {
            true => log.engine().dropped_by_priority().to_vec(),
            false => Vec::new(),
        },
        scale: ran.scale,
        in_flight: scenario.phases.map(|phases| phases.in_flight),
        step_percentiles: Percentiles::of(steps.took().flatten().collect()),
        exchanges_reused: (!log.trained.is_empty()).then_some(log.rings.reused),
        ports: phases::port_time(ran),
        flows: FlowFigures::new(&flows),
        faults: faults(ran, traffic.as_ref(), &groups),
        metrics: shares::metrics(ran, traffic.as_ref()),
        plan: metrics.as_ref().map(|metrics| PlanResult {
            gpus_used: metrics.gpus_used,
            waste_ratio: metrics.waste_ratio,
            waste_ratio_lower_bound: metrics.waste_ratio_lower_bound,
            cross_tor_share: metrics.cross_tor_share,
        }),
        never_ended: log.stop.as_ref().is_some_and(|s| s.is_unwanted(scenario.ends_at_limit)),
        stop: log.stop.clone(),
        waiting: log.waiting.iter().map(|one| ran.waits(one)).collect(),
        expectations: Vec::new(),
        flow_records: flow_rows(ran, &flows),
        workloads,
        phases,
        steps,
        queues,
        lightloomd: ran.log.daemon.clone(),
        groups,
        links,
    };
    let verdict =
        expectations::ExpectationJudge { ran, traffic: traffic.as_ref(), plan: metrics.as_ref() };
    outcome.expectations =
        scenario.expectations.iter().map(|expected| verdict.judge(expected, &outcome)).collect();
    outcome
}

fn plan_metrics(ran: &JudgedRun<'_>) -> Option<PlanMetrics> {
    let On::Fabric(fabric) = &ran.scenario.on else { return None };
    let (layout, faults) = ran.log.layout.as_ref()?;
    Some(to_document(fabric, faults, ran.scenario.seed, layout).metrics)
}

fn relock(scenario: &Scenario) -> Option<Picoseconds> {
    let On::Fabric(fabric) = &scenario.on else { return None };
    Some(fabric.transceiver.relock)
}

fn flow_rows(ran: &JudgedRun<'_>, flows: &[FlowRecord]) -> Vec<FlowRow> {
    let mut names: BTreeMap<VertexId, Arc<str>> = BTreeMap::new();
    let mut workloads: Vec<Option<Arc<str>>> = vec![None; flows.len()];
    for (job, traffic) in ran.log.jobs.iter().zip(ran.traffic) {
        let name: Arc<str> = traffic.name.as_str().into();
        for flow in job.steps.iter().flat_map(crate::run::workload::Repetition::flows) {
            workloads[flow.index()] = Some(name.clone());
        }
    }
    let mut rows = Vec::with_capacity(flows.len());
    for (flow, workload) in flows.iter().zip(workloads) {
        for end in [flow.source, flow.destination] {
            names.entry(end).or_insert_with(|| ran.start.substrate.name(end).into());
        }
        rows.push(FlowRow::new(flow, |end| names[&end].clone(), workload));
    }
    rows
}

fn faults(
    ran: &JudgedRun<'_>,
    traffic: Option<&Compared<'_>>,
    groups: &[crate::outcome::GroupResult],
) -> Vec<FaultResult> {
    let losses = losses::of_faults(ran);
    let impacts = groups::impacts(ran, groups, &losses);
    let moved = traffic.map(|traffic| traffic.attributed(ran));
    let phases = phases::impacts(ran);
    let mut results = Vec::new();
    for (at, (event, log)) in ran.faults().enumerate() {
        if event.from_start {
            continue;
        }
        let GroupImpact { groups, gpus, delay, unaffected } = impacts[at].clone();
        let phase = phases.as_ref().map(|phases| phases[at].clone());
        let moved = traffic.zip(moved.as_ref().map(|moved| &moved[at]));
        let late = moved.map(|(traffic, moved)| traffic.delay(moved));
        let slowed = phase.as_ref().map(|phase| phase.delay);
        let delay = [late, slowed].into_iter().flatten().fold(delay, |a, b| {
            let (a, b) = (a?, b?);
            Some(a.max(b))
        });
        let hosts = match (&ran.log.layout, moved) {
            (None, Some((traffic, moved))) => traffic.hosts_of(moved).len() as u64,
            _ => gpus,
        };
        let mut result = FaultResult {
            parts: event.parts.iter().map(|part| part.name.clone()).collect(),
            effect: event.effect.name().to_owned(),
            at: log.at.map(|time| ran.moment(time)),
            detected: log.detected.map(|time| ran.moment(time)),
            replanned: log.replanned.map(|time| ran.moment(time)),
            restored: log.restored.map(|time| ran.moment(time)),
            not_restored: not_restored(ran, event, log, delay),
            repaired: log.repaired.map(|time| ran.moment(time)),
            timeline: crate::outcome::Stage::bars(log.mattered.unwrap_or_default(), &log.timeline),
            bundles_switched: log.bundles,
            dark: log.dark,
            relock: log.dark.and(relock(ran.scenario)),
            groups_affected: groups,
            groups_unaffected: unaffected,
            counted: match ran.start.substrate.rings {
                Some(_) => EndpointKind::Gpus,
                None => EndpointKind::Hosts,
            },
            gpus_affected: hosts,
            gpus_lost: log.gpus_lost,
            traffic: moved.map(|(traffic, moved)| traffic.impact(log, moved, &ran.start.substrate)),
            phases: phase,
            losses: losses[at].clone(),
            delay,
        };
        if !event.is_of_control() && !result.had_effect() {
            result.restored = None;
        }
        results.push(result);
    }
    results
}

fn not_restored(
    ran: &JudgedRun<'_>,
    event: &FaultEvent,
    log: &FaultLog,
    delay: Option<Picoseconds>,
) -> Option<NotRestored> {
    let waits = log.at.is_some() && log.restored.is_none() && delay.is_none();
    if !waits || log.groups.is_empty() {
        return None;
    }
    let layout = ran.log.layout.as_ref().map(|(layout, _)| layout);
    let mut planned = event.planned().into_iter();
    let is_looped = planned.any(|part| match part {
        Part::Bundle(bundle) => layout.is_some_and(|of| of.path(bundle) == Path::Loopback),
        _ => false,
    });
    Some(match log.detected {
        Some(_) => NotRestored::NoNodes,
        None if is_looped && ran.log.daemon.is_some() => NotRestored::InLoopback,
        None => NotRestored::NotDetected,
    })
}
