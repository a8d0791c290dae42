// SPDX-License-Identifier: Apache-2.0
//! Faults and arrivals in a window, drawn once for all designs from rates or a resampled trace.

use lightloom_fabric::trace::{
    FaultTrace, Health, NodesError, Synthesis, Timeline, TraceTime, part_fault_probability,
};
use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::file::MS_PER_DAY;
use super::speed::StepTime;
use super::{Arrival, FaultModel, History, JobKind, Priced, Question, SlowExchange, SlowPart};
use crate::architecture::{Architecture, Cluster, PartLoss};

const DAY_MS: u64 = 86_400_000;
const SERVERS: u32 = 400;

pub fn histories(
    question: &Question,
    trace: Option<&FaultTrace>,
    seed: Seed,
    factors: &[f64],
) -> Result<Vec<History>, NodesError> {
    let synthetic;
    let trace = match (&question.faults, trace) {
        (FaultModel::Exponential(_), _) => None,
        (FaultModel::Trace(_), Some(trace)) => Some(trace),
        (FaultModel::Published(_) | FaultModel::Trace(_), _) => {
            synthetic = Synthesis::published(seed).with_servers(SERVERS).trace();
            Some(&synthetic)
        }
    };
    let window = TraceTime(question.window_ms);
    let arrivals = arrivals(&question.jobs, question.window_ms, seed);
    let histories = factors.iter().map(|factor| {
        let cluster = question.cluster;
        let faults = match (&question.faults, trace) {
            (FaultModel::Exponential(record), _) => {
                let mtbf_ms = record.node_mtbf_days * MS_PER_DAY / factor;
                exponential(cluster, window, mtbf_ms, record.repair_hours * MS_PER_DAY / 24.0, seed)
            }
            (_, Some(trace)) => resampled(trace, cluster, window, *factor, seed)?,
            (_, None) => Timeline::from_intervals(cluster.nodes, window, []),
        };
        let hits = hits(&faults, seed);
        Ok(History { faults, hits, arrivals: arrivals.clone(), slow: Vec::new() })
    });
    histories.collect()
}

/// The first job of each kind arrives at the start; later intervals are exponentially distributed.
pub fn arrivals(jobs: &[JobKind], window_ms: u64, seed: Seed) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for (job, kind) in (0..).zip(jobs) {
        let mut random = seed.stream("arrivals", job);
        let mut at = 0.0;
        while at < window_ms as f64 {
            let arrival = Arrival { at_ms: at as u64, gpus: kind.gpus, work_ms: kind.work_ms };
            arrivals.push((arrival.at_ms, job, arrival));
            at += drawn(&mut random, kind.every_ms);
        }
    }
    arrivals.sort_by_key(|(at, job, _)| (*at, *job));
    arrivals.into_iter().map(|(_, _, arrival)| arrival).collect()
}

fn drawn(random: &mut Stream, mean_ms: f64) -> f64 {
    (-(1.0 - random.random::<f64>()).ln() * mean_ms).max(1.0)
}

fn exponential(
    cluster: Cluster,
    window: TraceTime,
    mtbf_ms: f64,
    repair_ms: f64,
    seed: Seed,
) -> Timeline {
    let end = window.0 as f64;
    let mut intervals = Vec::new();
    if !mtbf_ms.is_finite() {
        return Timeline::from_intervals(cluster.nodes, window, intervals);
    }
    for node in 0..cluster.nodes {
        let mut random = seed.stream("exponential faults", u64::from(node));
        let mut at = drawn(&mut random, mtbf_ms);
        while at < end {
            let back = at + drawn(&mut random, repair_ms);
            intervals.push((NodeId(node), TraceTime(at as u64), TraceTime(back as u64)));
            at = back + drawn(&mut random, mtbf_ms);
        }
    }
    Timeline::from_intervals(cluster.nodes, window, intervals)
}

/// Draws the faults of each server from `factor` trace servers on average, with replacement. All
/// servers start on the same random day, which keeps simultaneous faults together. Each server
/// starts at a random hour, so that copies of one server do not fail at the same instant.
fn resampled(
    trace: &FaultTrace,
    cluster: Cluster,
    window: TraceTime,
    factor: f64,
    seed: Seed,
) -> Result<Timeline, NodesError> {
    let (gpus_per_server, gpus_per_node) = (trace.gpus_per_server, cluster.gpus_per_node);
    if !gpus_per_server.is_multiple_of(gpus_per_node) {
        return Err(NodesError::NotAPart { gpus_per_server, gpus_per_node });
    }
    let parts = gpus_per_server / gpus_per_node;
    let hit = part_fault_probability(trace.mean_ratio(), gpus_per_server, gpus_per_node);
    let mut by_server = vec![Vec::new(); trace.servers as usize];
    for fault in &trace.faults {
        by_server[fault.server.index()].push((fault.start.0, fault.end.0));
    }
    let period = trace.window.0.max(1);
    let begin = (seed.stream("begin in the trace", 0).random::<f64>() * period as f64) as u64;
    let rounds = window.0.div_ceil(period) + 1;
    let mut random = seed.stream("servers of the trace", 0);
    let mut intervals = Vec::new();
    for server in 0..cluster.nodes.div_ceil(parts) {
        let whole = factor.floor();
        let taken = whole as u32 + u32::from(random.random::<f64>() < factor - whole);
        for _ in 0..taken {
            let from = &by_server[random.random_range(0..trace.servers) as usize];
            let late = random.random_range(0..DAY_MS);
            for (round, (start, end)) in
                (0..rounds).flat_map(|round| from.iter().map(move |fault| (round, *fault)))
            {
                let [start, end] = [start, end]
                    .map(|at| TraceTime((at + late + round * period).saturating_sub(begin)));
                for part in 0..parts {
                    let node = server * parts + part;
                    if random.random_bool(hit) && node < cluster.nodes {
                        intervals.push((NodeId(node), start, end));
                    }
                }
            }
        }
    }
    Ok(Timeline::from_intervals(cluster.nodes, window, intervals))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) factor: f64,
    pub(super) seed: Seed,
}

impl Draw {
    pub(super) fn with_parts(
        self,
        question: &Question,
        priced: &Priced<'_>,
        step: StepTime,
        history: &History,
    ) -> History {
        let mut history = history.clone();
        if question.parts.is_empty() || self.factor == 0.0 {
            return history;
        }
        let mut outages = intervals_of(&history.faults);
        let known = outages.len();
        let design: &dyn Architecture = priced.candidate.design.as_ref();
        let network = priced.candidate.network.as_deref();
        let bills = [
            (Some(design), Some(&priced.figures), (SlowExchange::Inside, step.inside)),
            (network, priced.network.as_ref(), (SlowExchange::Between, step.between)),
        ];
        for (design, figures, exchange) in bills {
            let (Some(design), Some(figures)) = (design, figures) else { continue };
            for line in &figures.bill {
                let units = line.count_per_gpu * f64::from(priced.cluster.gpus());
                let of = (design, line.part.as_str(), units, exchange);
                self.of_part(question, priced, of, &mut outages, &mut history.slow);
            }
        }
        if outages.len() > known {
            let window = TraceTime(question.window_ms);
            history.faults = Timeline::from_intervals(question.cluster.nodes, window, outages);
            history.hits = hits(&history.faults, self.seed);
        }
        history
    }

    /// Parts with the same name form one process; each fault hits a random GPU.
    fn of_part(
        self,
        question: &Question,
        priced: &Priced<'_>,
        (design, part, units, (exchange, takes)): (
            &dyn Architecture,
            &str,
            f64,
            (SlowExchange, f64),
        ),
        outages: &mut Vec<(NodeId, TraceTime, TraceTime)>,
        slow: &mut Vec<SlowPart>,
    ) {
        let Priced { candidate, cluster, .. } = *priced;
        let site = cluster.site(question.nic);
        let largest = question.jobs.iter().map(|job| job.gpus).max().unwrap_or(0);
        let interruption = f64::from(largest) * candidate.interruption_ms(question);
        let Some(rate) = question.parts.iter().find(|rate| rate.part == part) else { return };
        let losses = design.without(part, &site);
        let mean = rate.mtbf_ms / (units * self.factor).max(f64::MIN_POSITIVE);
        let mut random = self.seed.stream(&format!("faults of {part}"), 0);
        let mut at = drawn(&mut random, mean);
        while at < question.window_ms as f64 {
            let until = at + drawn(&mut random, rate.repair_ms);
            let (place, mut which): (f64, f64) = (random.random(), random.random());
            let loss = losses.iter().find(|(share, _)| {
                which -= share;
                which < 0.0
            });
            let (from_ms, until_ms) = (at as u64, until as u64);
            let out = match loss.map_or(PartLoss::Nothing, |(_, loss)| *loss) {
                PartLoss::Nothing => None,
                PartLoss::Slower { share, around } => {
                    let slower = takes * share / (1.0 - share);
                    let lasts = until - at;
                    let costs = slower * f64::from(largest) * lasts;
                    let around = around.filter(|gpus| {
                        costs > f64::from((*gpus).max(cluster.gpus_per_node)) * lasts + interruption
                    });
                    if around.is_none() {
                        slow.push(SlowPart { from_ms, until_ms, place, slower, exchange });
                    }
                    around
                }
                PartLoss::Out { gpus } => Some(gpus),
            };
            if let Some(gpus) = out {
                let gpu = (place * f64::from(cluster.gpus())) as u32 / gpus * gpus;
                let last = (gpu + gpus - 1).min(cluster.gpus() - 1);
                for node in gpu / cluster.gpus_per_node..=last / cluster.gpus_per_node {
                    outages.push((NodeId(node), TraceTime(from_ms), TraceTime(until_ms)));
                }
            }
            at += drawn(&mut random, mean);
        }
    }
}

fn hits(faults: &Timeline, seed: Seed) -> Vec<f64> {
    let mut random = seed.stream("which GPU a fault hits", 0);
    let mut last: Option<(TraceTime, f64)> = None;
    let hits = faults.changes().iter().map(|change| match last {
        Some((at, hit)) if at == change.at => hit,
        _ => last.insert((change.at, random.random())).1,
    });
    hits.collect()
}

fn intervals_of(faults: &Timeline) -> Vec<(NodeId, TraceTime, TraceTime)> {
    let mut open: Vec<Option<TraceTime>> = vec![None; faults.nodes() as usize];
    let mut intervals = Vec::new();
    for change in faults.changes() {
        let begun = &mut open[change.node.index()];
        match change.health {
            Health::Faulty => *begun = Some(change.at),
            Health::Healthy => {
                let from = begun.take();
                intervals.extend(from.map(|from| (change.node, from, change.at)));
            }
        }
    }
    let still = (0..).zip(open).filter_map(|(node, from)| Some((NodeId(node), from?)));
    intervals.extend(still.map(|(node, from)| (node, from, TraceTime(u64::MAX))));
    intervals
}
