// SPDX-License-Identifier: Apache-2.0
//! Checks job names and sizes, rank coordinates, rates, dark times and gains.
//!
//! Values that follow from the document must match it. Three values would require another search and are only compared
//! with a bound. These are the step time on one topology, the gain of joint planning, and the minimum change.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, JobSize};
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::plan::{PhasePlan, Plan, TransitionPlan};
use lightloom_units::id::GroupId;

use super::Violation;

/// Times are rounded to picoseconds and rates to nine digits.
const TOLERANCE: f64 = 1e-6;

pub(super) fn check(fabric: &Fabric, plan: &Plan, found: &mut Vec<Violation>) {
    let mut claims = Claims { found };
    claims.jobs(fabric, plan);
    claims.ranks(plan);
    for (place, phase) in plan.phases.iter().enumerate() {
        claims.phase(place, phase, &plan.transitions);
    }
    if let Some(network) = fabric.dcn.circuits() {
        claims.changes(network, plan);
    }
    claims.shares(plan);
    claims.gains(plan);
}

struct Claims<'a> {
    found: &'a mut Vec<Violation>,
}

impl Claims<'_> {
    fn hold(&mut self, name: &'static str, is_so: bool, stated: f64, found: impl ToString) {
        if !is_so {
            self.found.push(Violation::metric(name, stated, found));
        }
    }

    fn say(&mut self, is_so: bool, text: impl FnOnce() -> String) {
        if !is_so {
            self.found.push(Violation::Network(text()));
        }
    }

    fn jobs(&mut self, fabric: &Fabric, plan: &Plan) {
        for (job, stated) in fabric.jobs.iter().zip(&plan.jobs) {
            let wanted = match job.size {
                JobSize::All => None,
                JobSize::Gpus(gpus) => Some(gpus),
            };
            let is_enough = stated.gpus >= job.least.unwrap_or(0) || !plan.given_up.is_empty();
            self.say(is_enough, || format!("job `{}` has fewer GPUs than it needs", job.name));
            self.say(stated.searched == job.searched, || {
                format!(
                    "job `{}`: plan and file disagree on whether a search found the mapping",
                    job.name
                )
            });
            let is_it =
                (&stated.name, stated.tp, stated.gpus_wanted) == (&job.name, job.tp, wanted);
            self.say(is_it, || {
                let size = |gpus: Option<u64>| gpus.map_or("all".to_owned(), |gpus| gpus.to_string());
                format!(
                    "job `{}` with tp {} requests {} GPUs in the plan, but the file has `{}` with tp {} and {}",
                    stated.name,
                    stated.tp,
                    size(stated.gpus_wanted),
                    job.name,
                    job.tp,
                    size(wanted)
                )
            });
        }
    }

    fn ranks(&mut self, plan: &Plan) {
        let jobs: BTreeMap<GroupId, Option<u32>> =
            plan.groups.iter().map(|group| (group.id, group.job)).collect();
        let mut first = BTreeMap::new();
        for rank in &plan.ranks {
            let at = [rank.pp, rank.dp, rank.cp, rank.ep];
            let of_group = *first.entry(rank.group).or_insert(at);
            let is_spare = rank.job.is_none() && at != [0; 4];
            let is_it = jobs.get(&rank.group) == Some(&rank.job) && at == of_group && !is_spare;
            self.say(is_it, || {
                format!(
                    "{}: {} does not have the coordinates and the job of its group",
                    rank.group, rank.gpu
                )
            });
        }
    }

    fn phase(&mut self, place: usize, phase: &PhasePlan, transitions: &[TransitionPlan]) {
        self.say(phase.order as usize == place, || {
            format!("phase {} has order {}, but is at position {place}", phase.name, phase.order)
        });
        let PhasePlan { lambda, lambda_upper_bound: bound, gap, .. } = *phase;
        let is_silent = phase.duration_ps.0 == 0;
        if is_silent {
            let is_it = [lambda, bound, gap] == [0.0; 3] || !lambda.is_finite();
            self.say(is_it, || format!("phase {} has a rate but no traffic", phase.name));
            return;
        }
        let open = if bound > 0.0 { 1.0 - lambda / bound } else { 0.0 };
        self.hold("gap", (gap - open).abs() < TOLERANCE, gap, open);
        self.hold("lambda", lambda <= bound * (1.0 + TOLERANCE), lambda, bound);
        let mut changes = transitions.iter().filter(|change| change.to == phase.name);
        let exposed: f64 =
            changes.by_ref().map(|change| change.exposed_ps.as_secs_f64()).fold(0.0, f64::max);
        let (took, least) = (phase.duration_ps.as_secs_f64(), 1.0 / lambda);
        let is_so = took >= least * (1.0 - TOLERANCE) - 1e-12
            && took <= (least + exposed) * (1.0 + TOLERANCE) + 1e-12;
        self.hold("duration of a phase", is_so, took, least);
    }

    fn changes(&mut self, network: &ReconfigurableFatTree, plan: &Plan) {
        let stage = network.spec().timing.total();
        let mut moved = 0;
        for change in &plan.transitions {
            let dark = stage * change.stages.len() as u64;
            let (dark, stated) = (dark.as_secs_f64(), change.dark_time_ps.as_secs_f64());
            self.hold("dark_time_ps", (dark - stated).abs() < 1e-12, stated, dark);
            let exposed = change.exposed_ps.as_secs_f64();
            self.hold("exposed_ps", exposed <= dark, exposed, format!("{dark} at most"));
            let is_share = (0.0..=1.0).contains(&change.floor);
            self.hold("floor", is_share, change.floor, "a share");
            moved +=
                change.stages.iter().map(|at| at.remove.len().max(at.add.len())).sum::<usize>();
        }
        let (Some(share), Some(step)) =
            (plan.metrics.dark_port_time_share, plan.metrics.step_time_ps)
        else {
            return;
        };
        let ports = network.optical_ports() as usize * network.leaves();
        let dark = 2.0 * moved as f64 * stage.as_secs_f64();
        let most = dark / (ports as f64 * step.as_secs_f64()).max(f64::MIN_POSITIVE);
        let is_so =
            share >= 0.0 && (share > 0.0) == (moved > 0) && share <= most * (1.0 + TOLERANCE);
        self.hold("dark_port_time_share", is_so, share, format!("{most} at most"));
    }

    fn shares(&mut self, plan: &Plan) {
        let of_jobs =
            plan.jobs.iter().map(|job| (job.cross_tor_share, job.cross_tor_share_lower_bound));
        let all = (plan.metrics.cross_tor_share, plan.metrics.cross_tor_share_lower_bound);
        for (share, bound) in of_jobs.chain([all]) {
            let Some(bound) = bound else { continue };
            let is_so = (0.0..=share + TOLERANCE).contains(&bound);
            self.hold("cross_tor_share_lower_bound", is_so, bound, format!("{share} at most"));
        }
    }

    fn gains(&mut self, plan: &Plan) {
        let metrics = &plan.metrics;
        if let Some(fixed) = metrics.static_step_time_ps {
            let mut of_jobs: BTreeMap<Option<&str>, f64> = BTreeMap::new();
            for phase in plan.phases.iter().filter(|phase| phase.lambda_upper_bound > 0.0) {
                let least = 1.0 / phase.lambda_upper_bound;
                *of_jobs.entry(phase.job.as_deref()).or_default() += least;
            }
            let least = of_jobs.values().copied().fold(0.0, f64::max);
            let fixed = fixed.as_secs_f64();
            let is_so = fixed >= least * (1.0 - TOLERANCE) - 1e-12;
            self.hold("static_step_time_ps", is_so, fixed, format!("{least} s at least"));
        }
        let bound = metrics.orchestration_gain_upper_bound;
        if let Some(gain) = metrics.orchestration_gain {
            let most = bound.unwrap_or(1.0).min(1.0);
            let text = format!("{most} at most");
            self.hold("orchestration_gain", gain <= most + TOLERANCE, gain, text);
        }
        let is_so = bound.is_none_or(|bound| bound <= 1.0 && metrics.orchestration_gain.is_some());
        self.hold("orchestration_gain_upper_bound", is_so, bound.unwrap_or(0.0), "1 at most");
    }
}
