// SPDX-License-Identifier: Apache-2.0
//! Recommends a design by its cost per useful PFLOP-year over simulated months of operation.
//!
//! ```text
//!   buy file ──▶ Question ──┬─▶ faults, arrivals: drawn once, the same for all designs
//!   price file ─────────────┤        │
//!   designs × policies ─────┴──▶ run (jobs over faults) ──▶ Spent ──▶ Row ──▶ winner, Pareto, flips
//! ```
//!
//! Every GPU-picosecond is booked to exactly one account in [`Spent`], so waiting, faults and
//! fragmentation never overlap. Causes are the same as in monthly scenarios. Traffic between ToRs
//! and slower links lengthen the steps of jobs.

mod faults;
mod file;
mod queue;
mod run;
mod speed;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;

use lightloom_fabric::trace::{FaultTrace, NodesError};
use lightloom_planner::goodput::{Answer as JobAnswer, Goodput, Policy};
use lightloom_units::seed::Seed;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::architecture::{Architecture, Cluster, FaultPolicy, NicRate, parse};
use crate::compare::NodeFaultRatio;
use crate::cost::{CostFigures, CostOutcome, MissingPrices, PriceList, cost_of_one};

pub use faults::{arrivals, histories};
pub use file::{BuyFile, FaultModel, ReadFabric, RunningRecord, load_buy, refuse_buy};
pub use run::{Arrival, History, Rules, SlowExchange, SlowPart, Spent, run};
pub use speed::Speed;
use speed::StepTime;
use verdict::Elsewhere;
pub use verdict::{DrawFlip, FaultFlip, NextDesign, PriceFlip, Rival, Verdict};

pub const FAULT_FACTORS: [f64; 6] = [0.0, 0.25, 0.5, 2.0, 4.0, 8.0];
pub const OTHER_DRAWS: u64 = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct JobKind {
    pub name: String,
    pub gpus: u32,
    pub work_ms: u64,
    pub every_ms: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartRate {
    pub part: String,
    pub mtbf_ms: f64,
    pub repair_ms: f64,
}

#[derive(Debug)]
pub struct Candidate {
    pub design: Box<dyn Architecture>,
    pub network: Option<Arc<dyn Architecture>>,
    pub policy: FaultPolicy,
    pub spares: u32,
    pub answer: JobAnswer,
    pub least: f64,
    pub restart_ms: u64,
}

#[derive(Debug)]
pub struct Question {
    pub name: String,
    pub cluster: Cluster,
    pub window_ms: u64,
    pub budget_usd: Option<f64>,
    pub usual_network: Option<String>,
    pub nic: NicRate,
    pub candidates: Vec<Candidate>,
    pub tp: u32,
    pub peak_tflops: f64,
    pub mfu: f64,
    pub step: i128,
    /// Path of the result for [`Question::take_step`]. `None` if the file states the step.
    pub step_from: Option<String>,
    pub speed: Speed,
    pub jobs: Vec<JobKind>,
    pub checkpoint_every_ms: u64,
    pub checkpoint_ms: u64,
    pub outage_ms: u64,
    pub faults: FaultModel,
    pub parts: Vec<PartRate>,
    pub running: RunningRecord,
}

/// A step and its exposed communication, as read from a row in a result of `lightloom mfu`.
#[derive(Clone, Debug, Deserialize)]
pub struct PlannedStep {
    pub gpus: u32,
    arch: String,
    tp: u32,
    ep: u32,
    step_seconds: f64,
    mfu: f64,
    tp_exposed_seconds: f64,
    ep_exposed_seconds: f64,
    dp_exposed_seconds: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PlannedSteps {
    pub model: String,
    pub accelerator: String,
    pub rows: Vec<PlannedStep>,
}

impl Question {
    pub fn take_step(&mut self, planned: &PlannedStep) -> Result<(), String> {
        if planned.tp != self.tp {
            let (theirs, ours) = (planned.tp, self.tp);
            return Err(format!("its groups have {theirs} GPUs, but `workload.tp` is {ours}"));
        }
        let exchanges = planned.ep_exposed_seconds > 0.0;
        if exchanges && planned.ep != self.tp {
            let (theirs, ours) = (planned.ep, self.tp);
            return Err(format!(
                "its expert groups have {theirs} GPUs, but `workload.tp` is {ours}"
            ));
        }
        let site = self.cluster.site(self.nic);
        if let Ok(design) = parse(&planned.arch) {
            let (arch, ours) = (&planned.arch, self.speed.at_gbytes_per_s);
            if let Ok(theirs) = design.bill(&site).map(|bill| bill.gbytes_per_s_per_gpu)
                && (theirs / ours - 1.0).abs() > 0.01
            {
                return Err(format!(
                    "its all-to-all runs at the {theirs} GB/s of {arch}, but `at_gbytes_per_s` is {ours}"
                ));
            }
            if exchanges && design.mean_hops(self.tp) > 1.0 {
                return Err(format!(
                    "its all-to-all takes several hops in {arch}: use a step of a switched domain"
                ));
            }
        }
        let before = self.step as f64 / 1e12;
        for candidate in &mut self.candidates {
            // The copy interval is fixed in seconds, so its number of steps changes.
            if let JobAnswer::InMemory { every, .. } = &mut candidate.answer {
                let steps = f64::from(*every) * before / planned.step_seconds;
                *every = steps.round().clamp(1.0, 1e9) as u32;
            }
        }
        self.step = ((planned.step_seconds * 1e12).round() as i128).max(1);
        self.mfu = planned.mfu;
        self.speed.tensor_parallel = planned.tp_exposed_seconds / planned.step_seconds;
        self.speed.expert_parallel = planned.ep_exposed_seconds / planned.step_seconds;
        self.speed.data_parallel = planned.dp_exposed_seconds / planned.step_seconds;
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuyError {
    #[error("{0}: add it to the price file")]
    Prices(#[from] MissingPrices),
    #[error("the price file has no part `gpu`: add its price in US dollars")]
    NoGpuPrice,
    #[error("network `{0}`: {1}: use a larger network or omit `network`")]
    Network(String, String),
    #[error(transparent)]
    Trace(#[from] NodesError),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub design: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub design: String,
    /// Policy for faulty nodes, followed by the jobs' response unless it is the usual one.
    pub policy: String,
    pub gpus: u32,
    pub capex_usd: f64,
    /// Cost of the window in dollars, for energy and its share of the purchase price.
    pub cost_usd: f64,
    pub cost_low_usd: f64,
    pub cost_high_usd: f64,
    pub power_mw: f64,
    pub useful_pflop_years: f64,
    pub usd_per_pflop_year: Option<f64>,
    pub step_stretch: f64,
    /// Share of inner hops that cross ToRs; included in `step_stretch`.
    pub cross_tor_share: f64,
    pub jobs_finished: u32,
    pub interruptions: u64,
    pub shares: Shares,
    pub goodput: Goodput,
    pub is_pareto: bool,
    /// Adds up to `capex_usd`.
    pub purchase: Vec<PurchasedPart>,
    #[serde(skip)]
    pub(crate) parts: Vec<(String, f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PurchasedPart {
    pub part: String,
    pub usd: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    pub useful: f64,
    pub redone: f64,
    pub restarting: f64,
    pub checkpoint: f64,
    pub slower: f64,
    /// Free GPUs in groups that a waiting job could use if there were more of them.
    pub waiting: f64,
    pub idle: f64,
    pub fragmented: f64,
    pub faulty: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub verdict: Verdict,
    pub node_fault_ratio: NodeFaultRatio,
    pub rows: Vec<Row>,
    pub left_out: Vec<LeftOut>,
    pub parts_without_watts: Vec<String>,
}

impl Answer {
    pub fn winners(&self) -> Vec<String> {
        verdict::winners(&self.rows)
    }
}

pub(crate) struct Priced<'a> {
    pub(crate) candidate: &'a Candidate,
    pub(crate) cluster: Cluster,
    pub(crate) figures: CostFigures,
    pub(crate) network: Option<CostFigures>,
    pub(crate) gpu_usd: [f64; 3],
}

/// `trace` is required for [`FaultModel::Trace`].
pub fn buy(
    question: &Question,
    prices: &PriceList,
    trace: Option<&FaultTrace>,
    seed: Seed,
) -> Result<Answer, BuyError> {
    let (priced, mut left_out) = price(question, prices)?;
    let factors: Vec<f64> = std::iter::once(1.0).chain(FAULT_FACTORS).collect();
    let mut histories = histories(question, trace, seed, &factors)?;
    let others: Vec<u64> = (1..=OTHER_DRAWS).map(|more| seed.0.wrapping_add(more)).collect();
    for other in &others {
        histories.extend(faults::histories(question, trace, Seed(*other), &[1.0])?);
    }
    let of_factors = factors.iter().map(|factor| faults::Draw { factor: *factor, seed });
    let of_others = others.iter().map(|other| faults::Draw { factor: 1.0, seed: Seed(*other) });
    let draws: Vec<faults::Draw> = of_factors.chain(of_others).collect();
    let fault_ratio = NodeFaultRatio::of(std::slice::from_ref(&histories[0].faults));
    let tasks: Vec<(usize, usize)> = (0..histories.len())
        .flat_map(|history| (0..priced.len()).map(move |design| (history, design)))
        .collect();
    // A design has the same step under all its policies.
    let clusters: Vec<(String, Cluster)> =
        priced.iter().map(|one| (one.candidate.name(question), one.cluster)).collect();
    let first: Vec<usize> =
        clusters.iter().filter_map(|own| clusters.iter().position(|other| other == own)).collect();
    let steps: Vec<StepTime> = tasks
        .par_iter()
        .map(|(history, design)| match first[*design] == *design {
            true => question.speed.step(question, &priced[*design], &histories[*history], seed),
            false => StepTime::default(),
        })
        .collect();
    let rows: Vec<Row> = tasks
        .into_par_iter()
        .map(|(history, design)| {
            let step = steps[history * first.len() + first[design]];
            let priced = &priced[design];
            let history = draws[history].with_parts(question, priced, step, &histories[history]);
            row(question, priced, &history, step)
        })
        .collect();
    let mut by_history = rows.chunks(priced.len().max(1)).map(<[Row]>::to_vec);
    let mut rows = by_history.next().unwrap_or_default();
    let elsewhere = Elsewhere {
        rates: FAULT_FACTORS
            .into_iter()
            .zip(by_history.by_ref().take(FAULT_FACTORS.len()))
            .collect(),
        draws: others.into_iter().zip(by_history).collect(),
    };
    verdict::mark_pareto(&mut rows);
    rows.sort_by(verdict::cheaper);
    left_out.sort_by(|a, b| (&a.design, &a.why).cmp(&(&b.design, &b.why)));
    let of_designs = priced.iter().flat_map(|priced| &priced.figures.parts_without_watts);
    let of_networks = priced.iter().flat_map(|p| &p.network).flat_map(|n| &n.parts_without_watts);
    let parts: BTreeSet<&String> = of_designs.chain(of_networks).collect();
    let verdict = verdict::judge(question, &rows, &elsewhere, prices);
    Ok(Answer {
        verdict,
        node_fault_ratio: fault_ratio,
        rows,
        left_out,
        parts_without_watts: parts.into_iter().cloned().collect(),
    })
}

fn price<'a>(
    question: &'a Question,
    prices: &PriceList,
) -> Result<(Vec<Priced<'a>>, Vec<LeftOut>), BuyError> {
    let quote = prices.quote("gpu").ok_or(BuyError::NoGpuPrice)?;
    let gpu_usd = [quote.usd.low, quote.usd.mean, quote.usd.high];
    let site = question.cluster.site(question.nic);
    let (mut priced, mut left_out) = (Vec::new(), Vec::new());
    let mut missing = MissingPrices(Default::default());
    for candidate in &question.candidates {
        let network = match &candidate.network {
            None => None,
            Some(network) => match cost_of_one(network.as_ref(), &site, prices)? {
                CostOutcome::Priced(figures) => Some(*figures),
                CostOutcome::CannotPrice { cannot_price } => {
                    return Err(BuyError::Network(network.name(), cannot_price));
                }
            },
        };
        let design = format!("{} ({})", candidate.name(question), candidate.label());
        let figures = match cost_of_one(candidate.design.as_ref(), &site, prices) {
            Err(lacking) => {
                for (part, designs) in lacking.0 {
                    missing.0.entry(part).or_default().extend(designs);
                }
                continue;
            }
            Ok(CostOutcome::CannotPrice { cannot_price }) => {
                left_out.push(LeftOut { design, why: cannot_price });
                continue;
            }
            Ok(CostOutcome::Priced(figures)) => *figures,
        };
        let each = gpu_usd[1]
            + figures.cost_per_gpu_usd
            + network.as_ref().map_or(0.0, |network| network.cost_per_gpu_usd);
        match affordable(question, candidate, each) {
            Ok(cluster) => {
                priced.push(Priced { candidate, cluster, figures, network, gpu_usd });
            }
            Err(why) => left_out.push(LeftOut { design, why }),
        }
    }
    if missing.0.is_empty() { Ok((priced, left_out)) } else { Err(missing.into()) }
}

fn affordable(question: &Question, candidate: &Candidate, each: f64) -> Result<Cluster, String> {
    let asked = question.cluster;
    let bought = question.budget_usd.map_or(asked.nodes, |budget| {
        let nodes = budget / each / f64::from(asked.gpus_per_node);
        // Despite rounding, the price of n nodes must buy n nodes.
        ((nodes * (1.0 + 1e-12)).floor() as u32).min(asked.nodes)
    });
    let cluster = Cluster { nodes: bought, ..asked };
    let state = candidate
        .design
        .usable_under(candidate.policy, candidate.spares, cluster, question.tp)
        .map_err(|why| why.to_string())?;
    let largest = question.jobs.iter().max_by_key(|job| job.gpus).expect("a workload has jobs");
    let usable = state.usable_gpus();
    if usable < largest.gpus {
        return Err(format!(
            "{} GPUs contain {usable} in groups of {} even without faults, but job `{}` needs {}",
            cluster.gpus(),
            question.tp,
            largest.name,
            largest.gpus
        ));
    }
    Ok(cluster)
}

fn row(
    question: &Question,
    priced: &Priced<'_>,
    history: &History,
    StepTime { stretch, cross_tor_share, .. }: StepTime,
) -> Row {
    let Priced { candidate, cluster, .. } = *priced;
    let every = picoseconds(question.checkpoint_every_ms) as f64 / (question.step as f64 * stretch);
    let rules = Rules {
        tp: question.tp,
        policy: candidate.policy,
        spares: candidate.spares,
        stretch,
        step: question.step,
        job: Policy {
            every: every.round().clamp(1.0, 1e9) as u32,
            load: picoseconds(candidate.restart_ms),
            write: picoseconds(question.checkpoint_ms),
            answer: candidate.answer,
        },
        least: candidate.least,
        outage: picoseconds(question.outage_ms),
    };
    let spent = run(candidate.design.as_ref(), cluster, &rules, history)
        .expect("designs that cannot hold the groups were left out");
    verdict::row(question, priced, &spent, stretch, cross_tor_share)
}

pub(crate) fn picoseconds(ms: u64) -> i128 {
    i128::from(ms) * run::MILLISECOND
}

fn milliseconds(ps: i128) -> f64 {
    ps as f64 / run::MILLISECOND as f64
}

impl Candidate {
    fn name(&self, question: &Question) -> String {
        match &self.network {
            Some(network) if Some(network.name()) != question.usual_network => {
                format!("{} on {}", self.design.name(), network.name())
            }
            _ => self.design.name(),
        }
    }

    fn interruption_ms(&self, question: &Question) -> f64 {
        let again = question.checkpoint_every_ms as f64 / 2.0;
        let step = milliseconds(question.step);
        let answered = match self.answer {
            JobAnswer::Restart => self.restart_ms as f64 + again,
            JobAnswer::InMemory { every, load, .. } => {
                milliseconds(load) + again.min(f64::from(every) * step / 2.0)
            }
            JobAnswer::Migrate { takes } => milliseconds(takes) + step / 2.0,
            JobAnswer::Elastic { reform, rejoin, .. } => milliseconds(reform + rejoin) + step / 2.0,
        };
        question.outage_ms as f64 + answered
    }

    fn label(&self) -> String {
        let mut label = self.policy.to_string();
        if self.policy == FaultPolicy::Backup && self.spares != 1 {
            label += &format!(" of {} nodes", self.spares);
        }
        if self.answer.name() != self.policy.usual_answer() {
            label += &format!(", {}", self.answer.name());
        }
        label
    }
}
