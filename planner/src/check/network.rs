// SPDX-License-Identifier: Apache-2.0
//! Rederives the traffic between leaves from the ranks in the plan, and checks its circuits.
//!
//! The bytes between the ranks of a training job are computed with textbook formulas in floating point; only the
//! model's dimensions are shared with the planner. Matrices given per leaf are not rederived.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::plan::{PhasePlan, Plan, Rank};
use lightloom_units::id::{GpuId, LeafId};
use lightloom_units::{Bytes, Picoseconds};

use super::circuits::{Asked, Flows, check_step};
use super::{Violation, reinforcement};
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
    let phases: Vec<(String, Sent)> = by_job
        .into_iter()
        .flat_map(|(job, phases)| {
            let named = move |name| if several { format!("{job}/{name}") } else { name };
            phases.into_iter().map(move |(name, sent)| (named.clone()(name), sent))
        })
        .collect();
    if phases.len() != plan.phases.len() {
        let (stated, found_here) = (plan.phases.len().to_string(), phases.len().to_string());
        found.push(Violation::Metric { name: "phases", stated, found: found_here });
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
        let text =
            |time: Option<Picoseconds>| time.map_or("absent".to_owned(), |time| time.to_string());
        let (stated, found_here) = (text(plan.metrics.step_time_ps), text(step));
        found.push(Violation::Metric { name: "step_time_ps", stated, found: found_here });
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
    let mut refuse = |name, stated: f64, found_here: f64| {
        let (stated, found_here) = (stated.to_string(), found_here.to_string());
        found.push(Violation::Metric { name, stated, found: found_here });
    };
    for (phase, Asked { interface_seconds: least, .. }) in plan.phases.iter().zip(asked) {
        // Plans do not state interface times for steps given per leaf.
        let stated = phase.interface_ps.map_or(0.0, |time| time.as_secs_f64());
        if (stated - least).abs() > TOLERANCE * least.max(1e-6) {
            refuse("interface_ps", stated, *least);
        }
        if phase.duration_ps.as_secs_f64() < least * (1.0 - TOLERANCE) - 1e-12 {
            refuse("duration of a phase", phase.duration_ps.as_secs_f64(), *least);
        }
        if phase.lambda_upper_bound * least > 1.0 + TOLERANCE {
            refuse("lambda_upper_bound", phase.lambda_upper_bound, 1.0 / least);
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
        refuse("orchestration_gain_upper_bound", bound, most);
    }
}

fn compare(stated: &PhasePlan, sent: &Sent, found: &mut Vec<Violation>) {
    let mut near = |name, stated: u64, expected: f64| {
        if (stated as f64 - expected).abs() > TOLERANCE * expected.max(1e6) {
            found.push(Violation::Metric {
                name,
                stated: stated.to_string(),
                found: expected.to_string(),
            });
        }
    };
    near("demand_bytes", stated.demand_bytes.0, sent.total_between());
    near("ring_bytes", stated.ring_bytes.0, sent.rings);
    near("leaf_bytes", stated.leaf_bytes.0, sent.below);
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
                training(fabric, plan, (index, job), (raw, &card), found)?
            }
            Some(StepFile::Rl(raw)) if job.is_placed() => {
                let card = step::named_model(fabric, &raw.model).ok()?;
                reinforcement::expected(fabric, plan, (index, job), (raw, &card), found)?
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
    let sent = |demand: &crate::rfabric::demand::Demand| Sent {
        between: demand.flows().map(|(from, to, bytes)| ((from.0, to.0), bytes.0 as f64)).collect(),
        rings: demand.carried().rings.0 as f64,
        below: demand.carried().leaves.0 as f64,
        ..Sent::default()
    };
    Some(phases.iter().map(|phase| (phase.name.clone(), sent(&phase.demand))).collect())
}

pub(super) type Grid = BTreeMap<[u32; 4], Place>;

fn training(
    fabric: &Fabric,
    plan: &Plan,
    (index, job): (u32, &Job),
    (raw, card): (&MappingFile, &ModelCard),
    found: &mut Vec<Violation>,
) -> Option<Named> {
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
            let to = |at: [u32; 4]| self.grid[&at];
            if tp > 1 {
                let bytes = 8.0 * (tensor_ranks - 1.0) / tensor_ranks * residual * layers;
                sent.send(*place, to([(tensor + 1) % tp, context, data, stage]), bytes);
            }
            if cp > 1 {
                let bytes = 3.0 * (context_ranks - 1.0) * cache * layers / tensor_ranks;
                sent.send(*place, to([tensor, (context + 1) % cp, data, stage]), bytes);
            }
            let message = residual * f64::from(self.raw.micro_batches) / tensor_ranks;
            if stage + 1 < pp {
                sent.send(*place, to([tensor, context, data, stage + 1]), message);
            }
            if stage > 0 {
                sent.send(*place, to([tensor, context, data, stage - 1]), message);
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
        let of_stage = |bytes: Bytes| passes * bytes.0 as f64 / f64::from(tp) / f64::from(pp);
        let experts = of_stage(self.card.expert_bytes());
        let dense = of_stage(self.card.weight_bytes()) - experts;
        let held_apart = self.raw.ep.max(1);
        for (&[tensor, context, data, stage], place) in self.grid {
            let to = |context: u32, data: u32| self.grid[&[tensor, context, data, stage]];
            let next = (data * cp + context + 1) % replicas;
            let others = |ranks: u32| f64::from(ranks - 1) / f64::from(ranks);
            sent.send(*place, to(next % cp, next / cp), dense * others(replicas));
            let first = data % held_apart;
            let alike = (dp - first).div_ceil(held_apart) * cp;
            if alike > 1 {
                let bytes = experts / f64::from(held_apart) * others(alike);
                let after = if data + held_apart < dp { data + held_apart } else { first };
                let next = if context + 1 < cp { to(context + 1, data) } else { to(0, after) };
                sent.send(*place, next, bytes);
            }
        }
        sent
    }
}

fn between_domains(fabric: &Fabric, flows: &Flows) -> f64 {
    let Some(tree) = fabric.dcn.packet_tree().filter(|tree| tree.core_oversubscription > 1) else {
        return 0.0;
    };
    let gpus = tree.nodes_per_tor * u32::from(fabric.hbd.gpus_per_node());
    let uplinks = (gpus * tree.nics_per_gpu).div_ceil(tree.oversubscription);
    let cores = uplinks * tree.tors_per_domain.div_ceil(tree.core_oversubscription);
    let domain = |leaf: &u32| leaf / tree.tors_per_domain;
    let last = flows.keys().flat_map(|(from, to)| [domain(from), domain(to)]).max().unwrap_or(0);
    (0..=last).fold(0.0, |most: f64, own| {
        let bytes = |is_own: &dyn Fn(u32, u32) -> bool| -> f64 {
            let flows = flows.iter().filter(|((from, to), _)| is_own(domain(from), domain(to)));
            flows.map(|(_, bytes)| bytes).sum()
        };
        let sent = bytes(&|from, to| from == own && to != own);
        let received = bytes(&|from, to| to == own && from != own);
        most.max(sent.max(received) * 8.0 / (f64::from(cores) * tree.link_rate.0 as f64))
    })
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
    let rate = |leaf: u32| {
        let broken = faults.uplinks.iter().filter(|uplink| uplink.leaf.0 == leaf).count();
        whole * (1.0 - broken as f64 / f64::from(fabric.dcn.uplinks_of_leaf(per_node)))
    };
    for (phase, Asked { flows, interface_seconds }) in plan.phases.iter().zip(asked) {
        let leaves: BTreeSet<u32> = flows.keys().flat_map(|(from, to)| [*from, *to]).collect();
        let bits = |own: &dyn Fn(&(u32, u32)) -> bool| -> f64 {
            flows.iter().filter(|(pair, _)| own(pair)).map(|(_, bytes)| bytes * 8.0).sum()
        };
        let seconds = leaves.iter().fold(0.0, |most: f64, leaf| {
            let most_bits = bits(&|pair| pair.0 == *leaf).max(bits(&|pair| pair.1 == *leaf));
            most.max(most_bits / rate(*leaf))
        });
        let seconds = seconds.max(between_domains(fabric, flows)).max(*interface_seconds);
        let stated = phase.duration_ps.as_secs_f64();
        if (seconds - stated).abs() > TOLERANCE * seconds.max(1e-6) || !phase.circuits.is_empty() {
            let (stated, seconds) = (stated.to_string(), seconds.to_string());
            found.push(Violation::Metric { name: "duration of a phase", stated, found: seconds });
        }
    }
}
