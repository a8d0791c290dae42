// SPDX-License-Identifier: Apache-2.0
//! Rederives the traffic between leaves from the ranks in the plan, and checks its circuits.
//!
//! The bytes between the ranks of a training job are computed with textbook formulas in floating point; only the
//! model's dimensions are shared with the planner. Matrices given per leaf are not rederived.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::plan::{PhasePlan, Plan, Rank};
use lightloom_units::id::{GpuId, LeafId};

use super::circuits::{Asked, Flows, check_step};
use super::{Violation, reinforcement};
use crate::rfabric::phases::Phase;
use crate::rfabric::step;
use crate::rfabric::workload::card::ModelCard;

const TOLERANCE: f64 = 1e-6;

#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    between: BTreeMap<(u32, u32), f64>,
    rings: f64,
    below: f64,
    interfaces: BTreeMap<GpuId, [f64; 2]>,
    usable_share: Option<f64>,
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) leaf: LeafId,
    pub(super) island: Option<u32>,
    pub(super) gpu: Option<GpuId>,
}

impl Sent {
    pub(super) fn send(&mut self, from: Place, to: Place, bytes: f64) {
        if from.island.is_some() && from.island == to.island {
            self.rings += bytes;
            return;
        }
        for (direction, gpu) in [from.gpu, to.gpu].into_iter().enumerate() {
            if let Some(gpu) = gpu {
                self.interfaces.entry(gpu).or_default()[direction] += bytes;
            }
        }
        if from.leaf == to.leaf {
            self.below += bytes;
        } else {
            *self.between.entry((from.leaf.0, to.leaf.0)).or_default() += bytes;
        }
    }

    fn total_between(&self) -> f64 {
        self.between.values().sum()
    }

    fn asked(self, rate: f64) -> Asked {
        let share = self.usable_share.unwrap_or(1.0);
        let most = self.interfaces.values().flatten().copied().fold(0.0, f64::max);
        let flows = self.between.into_iter().map(|(pair, bytes)| (pair, bytes / share)).collect();
        Asked { flows, interface_seconds: most * 8.0 / (share * rate) }
    }

    pub(super) fn total(&self) -> f64 {
        self.total_between() + self.rings + self.below
    }
}

pub(super) type Named = Vec<(String, Sent)>;

pub(super) fn check(fabric: &Fabric, faults: &FaultSet, plan: &Plan, found: &mut Vec<Violation>) {
    let Some(by_job) = expected(fabric, plan, found) else { return };
    let several = by_job.len() > 1;
    let lengths: Vec<usize> = by_job.iter().map(|(_, phases)| phases.len()).collect();
    let mut phases: Vec<(String, Sent)> = Vec::new();
    for (job, own) in by_job {
        for (name, sent) in own {
            phases.push((if several { format!("{job}/{name}") } else { name }, sent));
        }
    }
    if phases.len() != plan.phases.len() {
        found.push(Violation::metric("phases", plan.phases.len(), phases.len()));
        return;
    }
    for (stated, (name, sent)) in plan.phases.iter().zip(&phases) {
        if stated.name != *name {
            found.push(Violation::Network(format!(
                "phase {} has the name {name} in the fabric file",
                stated.name
            )));
        }
        compare(stated, sent, found);
    }
    let rate = fabric.dcn.link_rate().0 as f64;
    let asked: Vec<Asked> = phases.into_iter().map(|(_, sent)| sent.asked(rate)).collect();
    check_interfaces(fabric, plan, &asked, &lengths, found);
    match fabric.dcn.circuits() {
        Some(network) => {
            let network = network.without(faults);
            let findings = check_step(&network, &asked, &plan.phases, &plan.transitions);
            found.extend(findings.into_iter().map(Violation::Network));
        }
        None => match fabric.dcn.direct() {
            Some(network) => super::routes::check(network, faults, plan, &asked, found),
            None => check_packets(fabric, faults, plan, &asked, found),
        },
    }
    let has_routes = fabric.dcn.direct().is_some() || fabric.dcn.circuits().is_some();
    if !has_routes && plan.phases.iter().any(|phase| !phase.routes.is_empty()) {
        let text = "the plan has routes, but leaves are connected neither directly nor by circuits";
        found.push(Violation::Network(text.to_owned()));
    }
    check_step_time(plan, &lengths, found);
}

/// `lengths` lists the number of phases per job. Circuits may change only if there is a single job.
fn check_step_time(plan: &Plan, lengths: &[usize], found: &mut Vec<Violation>) {
    let mut left = plan.phases.as_slice();
    let mut step = None;
    for length in lengths {
        let (own, others) = left.split_at(*length);
        step = step.max(Some(own.iter().map(|phase| phase.duration_ps).sum()));
        left = others;
    }
    if !plan.phases.is_empty() && plan.metrics.step_time_ps != step {
        let [stated, found_here] = [plan.metrics.step_time_ps, step]
            .map(|time| time.map_or("absent".to_owned(), |time| time.to_string()));
        found.push(Violation::metric("step_time_ps", stated, found_here));
    }
    let mut lit = plan.phases.iter().map(|phase| &phase.circuits).filter(|own| !own.is_empty());
    let first = lit.next();
    if lengths.len() > 1 && (lit.any(|own| Some(own) != first) || !plan.transitions.is_empty()) {
        let text =
            "circuits change between phases, but several jobs use them without synchronisation";
        found.push(Violation::Network(text.to_owned()));
    }
}

fn check_interfaces(
    fabric: &Fabric,
    plan: &Plan,
    asked: &[Asked],
    lengths: &[usize],
    found: &mut Vec<Violation>,
) {
    for (phase, Asked { interface_seconds: least, .. }) in plan.phases.iter().zip(asked) {
        // Plans do not state interface times for steps given per leaf.
        let stated = phase.interface_ps.map_or(0.0, |time| time.as_secs_f64());
        if (stated - least).abs() > TOLERANCE * least.max(1e-6) {
            found.push(Violation::metric("interface_ps", stated, least));
        }
        let duration = phase.duration_ps.as_secs_f64();
        if duration < least * (1.0 - TOLERANCE) - 1e-12 {
            found.push(Violation::metric("duration of a phase", duration, least));
        }
        if phase.lambda_upper_bound * least > 1.0 + TOLERANCE {
            let bound = phase.lambda_upper_bound;
            found.push(Violation::metric("lambda_upper_bound", bound, 1.0 / least));
        }
    }
    let metrics = &plan.metrics;
    let (Some(bound), Some(gain), Some(step)) =
        (metrics.orchestration_gain_upper_bound, metrics.orchestration_gain, metrics.step_time_ps)
    else {
        return;
    };
    if gain >= 1.0 || matches!(fabric.hbd.grouping(), Grouping::Island { .. }) {
        return;
    }
    let (mut left, mut least) = (asked, 0.0_f64);
    for length in lengths {
        let (own, others) = left.split_at(*length);
        least = least.max(own.iter().map(|asked| asked.interface_seconds).sum());
        left = others;
    }
    let most = 1.0 - least * (1.0 - gain) / step.as_secs_f64();
    if bound > most + TOLERANCE {
        found.push(Violation::metric("orchestration_gain_upper_bound", bound, most));
    }
}

fn compare(stated: &PhasePlan, sent: &Sent, found: &mut Vec<Violation>) {
    for (name, stated, expected) in [
        ("demand_bytes", stated.demand_bytes.0, sent.total_between()),
        ("ring_bytes", stated.ring_bytes.0, sent.rings),
        ("leaf_bytes", stated.leaf_bytes.0, sent.below),
    ] {
        if (stated as f64 - expected).abs() > TOLERANCE * expected.max(1e6) {
            found.push(Violation::metric(name, stated, expected));
        }
    }
}

pub(super) fn asked(fabric: &Fabric, plan: &Plan) -> Option<Vec<Asked>> {
    let phases = expected(fabric, plan, &mut Vec::new())?.into_iter().flat_map(|(_, own)| own);
    let rate = fabric.dcn.link_rate().0 as f64;
    Some(phases.map(|(_, sent)| sent.asked(rate)).collect())
}

fn expected(
    fabric: &Fabric,
    plan: &Plan,
    found: &mut Vec<Violation>,
) -> Option<Vec<(String, Named)>> {
    let mut by_job = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let phases = match &job.step {
            None => continue,
            Some(StepFile::Training(raw)) => {
                let card = step::model(fabric, job).ok()??;
                training(fabric, plan, index, raw, &card, found)?
            }
            Some(StepFile::Rl(raw)) if job.is_placed() => {
                let card = step::named_model(fabric, &raw.model).ok()?;
                reinforcement::expected(fabric, plan, index, raw, &card, found)?
            }
            Some(_) => as_read(fabric, job)?,
        };
        if !phases.is_empty() {
            by_job.push((job.name.clone(), phases));
        }
    }
    Some(by_job)
}

fn as_read(fabric: &Fabric, job: &Job) -> Option<Named> {
    let phases = step::phases(fabric, job).ok()?;
    let named = phases.iter().map(|Phase { name, demand, .. }| {
        let flows = demand.flows().map(|(from, to, bytes)| ((from.0, to.0), bytes.0 as f64));
        let sent = Sent {
            between: flows.collect(),
            rings: demand.carried().rings.0 as f64,
            below: demand.carried().leaves.0 as f64,
            ..Sent::default()
        };
        (name.clone(), sent)
    });
    Some(named.collect())
}

pub(super) type Grid = BTreeMap<[u32; 4], Place>;

fn training(
    fabric: &Fabric,
    plan: &Plan,
    index: u32,
    raw: &MappingFile,
    card: &ModelCard,
    found: &mut Vec<Violation>,
) -> Option<Named> {
    let job = &fabric.jobs[index as usize];
    let mut grid = Grid::new();
    for rank in plan.ranks.iter().filter(|rank| rank.job == Some(index)) {
        let Rank { gpu, group, tp, pp, dp, cp, ep, .. } = *rank;
        let place = Place {
            leaf: fabric.dcn.leaf_of(gpu),
            island: fabric.hbd.island_of(gpu, group.0),
            gpu: Some(gpu),
        };
        let twice = grid.insert([tp, cp, dp, pp], place).is_some();
        if twice || ep != dp % raw.ep {
            found.push(Violation::Coordinates { job: job.name.clone(), gpu });
            return None;
        }
    }
    let data = u32::try_from(grid.len()).ok()? / (job.tp * raw.cp * raw.pp).max(1);
    let sizes = [job.tp, raw.cp, data, raw.pp];
    let whole = grid.keys().all(|at| at.iter().zip(&sizes).all(|(rank, size)| rank < size));
    let all: u64 = sizes.iter().map(|size| u64::from(*size)).product();
    let fits = whole && all == grid.len() as u64 && raw.dp.is_none_or(|dp| dp == data);
    if !fits && plan.given_up.is_empty() {
        found.push(Violation::Dimensions { job: job.name.clone(), ranks: grid.len() });
        return None;
    }
    let step = Step { grid: &grid, sizes, raw, card };
    let phases = [
        ("micro-batches", step.micro_batches(), raw.usable_share),
        ("gradients", step.gradients(), raw.gradient_share()),
    ];
    let named = phases
        .map(|(name, sent, share)| (name.to_owned(), Sent { usable_share: Some(share), ..sent }));
    Some(named.to_vec())
}

pub(super) struct Step<'a> {
    pub(super) grid: &'a Grid,
    pub(super) sizes: [u32; 4],
    pub(super) raw: &'a MappingFile,
    pub(super) card: &'a ModelCard,
}

impl Step<'_> {
    pub(super) fn micro_batches(&self) -> Sent {
        let [tp, cp, _, pp] = self.sizes;
        let layers = f64::from(self.card.layers / pp) * f64::from(self.raw.micro_batches);
        let tokens = f64::from(self.raw.tokens) / f64::from(cp);
        let residual = self.card.token_bytes().0 as f64 * tokens;
        let cache =
            f64::from(self.card.cache_elements_per_layer * self.card.element_bytes) * tokens;
        let [tensor_ranks, context_ranks] = [tp, cp].map(f64::from);
        let mut sent = Sent::default();
        for (at, place) in self.grid {
            let [tensor, context, data, stage] = *at;
            if tp > 1 {
                let bytes = 8.0 * (tensor_ranks - 1.0) / tensor_ranks * residual * layers;
                let next = self.grid[&[(tensor + 1) % tp, context, data, stage]];
                sent.send(*place, next, bytes);
            }
            if cp > 1 {
                let bytes = 3.0 * (context_ranks - 1.0) * cache * layers / tensor_ranks;
                let next = self.grid[&[tensor, (context + 1) % cp, data, stage]];
                sent.send(*place, next, bytes);
            }
            let message = residual * f64::from(self.raw.micro_batches) / tensor_ranks;
            if stage + 1 < pp {
                sent.send(*place, self.grid[&[tensor, context, data, stage + 1]], message);
            }
            if stage > 0 {
                sent.send(*place, self.grid[&[tensor, context, data, stage - 1]], message);
            }
            self.send_to_experts(&mut sent, *at, *place, residual / tensor_ranks);
        }
        sent
    }

    /// Each mixture-of-experts layer has four all-to-alls, one for dispatch and one for combine in each direction.
    fn send_to_experts(&self, sent: &mut Sent, at: [u32; 4], place: Place, residual: f64) {
        let (Some(experts), ranks @ 2..) = (self.card.experts, self.raw.ep) else { return };
        let [tensor, context, data, stage] = at;
        let layers = f64::from(experts.layers / self.sizes[3]) * f64::from(self.raw.micro_batches);
        let to_each = 4.0 * residual * f64::from(experts.top_k) * layers / f64::from(ranks);
        let first = data / ranks * ranks;
        for peer in (first..first + ranks).filter(|peer| *peer != data) {
            sent.send(place, self.grid[&[tensor, context, peer, stage]], to_each);
        }
    }

    pub(super) fn gradients(&self) -> Sent {
        let [tp, cp, dp, pp] = self.sizes;
        let replicas = cp * dp;
        let mut sent = Sent::default();
        if replicas < 2 {
            return sent;
        }
        let passes = match self.raw.sharding {
            ShardingFile::Replicated => 2.0,
            ShardingFile::Sharded => 3.0,
        };
        let [experts, all] = [self.card.expert_bytes(), self.card.weight_bytes()]
            .map(|bytes| passes * bytes.0 as f64 / f64::from(tp) / f64::from(pp));
        let dense = all - experts;
        let held_apart = self.raw.ep.max(1);
        for (&[tensor, context, data, stage], place) in self.grid {
            let next = (data * cp + context + 1) % replicas;
            let to = self.grid[&[tensor, next % cp, next / cp, stage]];
            sent.send(*place, to, dense * share_of_others(replicas));
            let first = data % held_apart;
            let alike = (dp - first).div_ceil(held_apart) * cp;
            if alike > 1 {
                let bytes = experts / f64::from(held_apart) * share_of_others(alike);
                let after = if data + held_apart < dp { data + held_apart } else { first };
                let [next, data] = if context + 1 < cp { [context + 1, data] } else { [0, after] };
                sent.send(*place, self.grid[&[tensor, next, data, stage]], bytes);
            }
        }
        sent
    }
}

fn share_of_others(ranks: u32) -> f64 {
    f64::from(ranks - 1) / f64::from(ranks)
}

fn between_domains(fabric: &Fabric, flows: &Flows) -> f64 {
    let Some(tree) = fabric.dcn.packet_tree().filter(|tree| tree.core_oversubscription > 1) else {
        return 0.0;
    };
    let gpus = tree.nodes_per_tor * u32::from(fabric.hbd.gpus_per_node());
    let uplinks = (gpus * tree.nics_per_gpu).div_ceil(tree.oversubscription);
    let cores = uplinks * tree.tors_per_domain.div_ceil(tree.core_oversubscription);
    let most = most_bits(flows, |leaf| leaf / tree.tors_per_domain).into_values();
    most.fold(0.0, f64::max) / (f64::from(cores) * tree.link_rate.0 as f64)
}

/// Returns the bits that each place sends to or receives from others, whichever is more.
fn most_bits(flows: &Flows, place_of: impl Fn(u32) -> u32) -> BTreeMap<u32, f64> {
    let mut bits: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
    for ((from, to), bytes) in flows {
        let [from, to] = [*from, *to].map(&place_of);
        if from != to {
            bits.entry(from).or_default()[0] += bytes * 8.0;
            bits.entry(to).or_default()[1] += bytes * 8.0;
        }
    }
    bits.into_iter().map(|(place, [sent, received])| (place, sent.max(received))).collect()
}

fn check_packets(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    asked: &[Asked],
    found: &mut Vec<Violation>,
) {
    let per_node = fabric.hbd.gpus_per_node();
    let whole = fabric.dcn.packet_rate_of_leaf(per_node);
    for (phase, Asked { flows, interface_seconds }) in plan.phases.iter().zip(asked) {
        let mut seconds = between_domains(fabric, flows).max(*interface_seconds);
        for (leaf, bits) in most_bits(flows, |leaf| leaf) {
            let broken = faults.uplinks.iter().filter(|uplink| uplink.leaf.0 == leaf).count();
            let uplinks = f64::from(fabric.dcn.uplinks_of_leaf(per_node));
            seconds = seconds.max(bits / (whole * (1.0 - broken as f64 / uplinks)));
        }
        let stated = phase.duration_ps.as_secs_f64();
        if (seconds - stated).abs() > TOLERANCE * seconds.max(1e-6) || !phase.circuits.is_empty() {
            found.push(Violation::metric("duration of a phase", stated, seconds));
        }
    }
}
