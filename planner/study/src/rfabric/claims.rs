// SPDX-License-Identifier: Apache-2.0
//! Claims about reconfigurable fabrics, recomputed with this planner.
//!
//! Published figures are measurements and simulations of whole systems; ours are communication
//! times from demand matrices. A verdict therefore judges the *shape* of a claim, and the note
//! states the assumptions. RFabric's own evaluation is also a simulation.

mod performance_per_cost;
mod why;

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::{
    ElectricalCore, FatTreeSpec, LossBudget, OcsBank, ReconfigurableFatTree, SwitchTiming,
};
use lightloom_fabric::file::{RlFile, SlackFile, WeightSyncFile};
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, Text};
use serde::Serialize;

use crate::cost::PriceList;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::one_hop::{self, Effort};
use lightloom_planner::rfabric::phases::{
    Phase, best_static, candidates, evaluators, schedule, seconds_with_change,
};
use lightloom_planner::rfabric::topology::Topology;
use lightloom_planner::rfabric::workload::card::ModelCard;
use lightloom_planner::rfabric::workload::rl_step::{RlStep, leaf_after_leaf};
use lightloom_planner::rfabric::workload::shapes;

pub use why::{OneShot, Open, PerCost};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Read,
    /// The paper states only the direction. We chose the range of agreement.
    BandOurs,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RfabricClaim {
    pub claim: String,
    pub source: Source,
    pub low: f64,
    /// Maximum value that agrees. `None` if there is no upper limit.
    pub high: Option<f64>,
    pub ours: f64,
    pub note: String,
}

impl RfabricClaim {
    pub fn agrees(&self) -> bool {
        self.ours >= self.low && self.high.is_none_or(|high| self.ours <= high)
    }
}

/// Uses the ports and the core of `base`. Each claim has separate timing and demands, except that
/// performance per cost uses `phases`.
pub fn rfabric(
    base: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Vec<RfabricClaim> {
    let mut claims = Vec::new();
    claims.extend(delay_claims(base.spec()));
    claims.push(one_shot_claim(
        &mixnet_region(),
        ONE_SHOT_LAYERS,
        "MixNet: one topology per job (TopoOpt) ÷ one per layer, mixture",
        "communication of 8 layers with separate gates on 8 servers of 8 GPUs, 2 interfaces on the packet \
         network and 6 on circuits as in the paper; the skew of its gates is not published",
    ));
    claims.push(one_shot_claim(
        base,
        2,
        "the same with larger leaves and two layers",
        "leaves of this fabric: GPU interfaces limit a phase before its circuits do, so following the gates gains nothing",
    ));
    claims.extend(mixture_step_claim(base));
    claims.push(slow_link_claim(base, phases));
    claims.extend(actina_claims(base.spec()));
    claims.extend(performance_per_cost::claims(base, phases, prices));
    claims
}

/// Gates are independent per layer. Each layer follows an expert computation of duration `compute`.
fn gated_layers(leaves: usize, count: u64, compute: Picoseconds) -> Vec<Phase> {
    layers_spread(leaves, count, compute, shapes::GATE_SPREAD)
}

fn layers_spread(leaves: usize, count: u64, compute: Picoseconds, spread: f64) -> Vec<Phase> {
    (0..count)
        .map(|layer| Phase {
            job: None,
            name: format!("layer {layer}"),
            demand: shapes::moe_spread(leaves, Seed(100 + layer), spread),
            slack: compute,
        })
        .collect()
}

/// Step time including computation if circuits change for every layer, even if that does not pay off.
pub(crate) fn forced_seconds(spec: &FatTreeSpec, delay: Picoseconds, compute: Picoseconds) -> f64 {
    let mut spec = spec.clone();
    spec.timing = SwitchTiming::only_switching(delay);
    spec.failure_domains = 1;
    let fabric =
        ReconfigurableFatTree::new(spec).expect("the fabric stays valid with another delay");
    let phases = gated_layers(fabric.leaves(), 2, compute);
    let plans: Vec<Topology> = phases
        .iter()
        .map(|phase| one_hop::plan(&fabric, &phase.demand, Effort::default()).topology)
        .collect();
    let of_phases = phases.iter().zip(evaluators(&fabric, &phases)).zip(&plans);
    let seconds = of_phases.zip(plans.iter().rev()).map(|(((phase, evaluator), to), from)| {
        seconds_with_change(phase, &evaluator, from, to, delay.as_secs_f64())
    });
    seconds.sum::<f64>() + 2.0 * compute.as_secs_f64()
}

fn delay_claims(spec: &FatTreeSpec) -> Vec<RfabricClaim> {
    let compute = Picoseconds::from_millis(100);
    let ideal = forced_seconds(spec, Picoseconds::ZERO, compute);
    let note = "circuits follow each of two mixture layers; 100 ms of expert computation before \
                each, as MixNet reports for its models";
    [(25, 1.0, Some(1.05)), (100, 1.0, Some(1.10)), (1_000, 1.5, None), (10_000, 3.0, None)]
        .into_iter()
        .map(|(delay_ms, low, high)| RfabricClaim {
            claim: format!("MixNet's delay curve: step at {delay_ms} ms ÷ step at 0 ms"),
            source: Source::BandOurs,
            low,
            high,
            ours: forced_seconds(spec, Picoseconds::from_millis(delay_ms), compute) / ideal,
            note: note.into(),
        })
        .collect()
}

const ONE_SHOT_LAYERS: u64 = 8;

/// A region as in section 5 of the MixNet paper, with servers of 8 GPUs that have 2 interfaces on a
/// non-blocking packet network and 6 on circuits, switched in 25 ms.
fn mixnet_region() -> ReconfigurableFatTree {
    let rate = BitsPerSecond::from_gbps(400);
    let spec = FatTreeSpec {
        leaves: 8,
        gpus_per_leaf: 8,
        gpu_rate: rate,
        circuit_rate: rate,
        electrical: ElectricalCore {
            rate_per_leaf: BitsPerSecond::from_gbps(800),
            other_rates: BTreeMap::new(),
            oversubscription: 1.0,
        },
        banks: vec![OcsBank {
            name: "region".into(),
            model: None,
            switches: 3,
            ports_per_switch: 16,
            ports_per_leaf: 2,
            insertion_loss_db: 1.0,
            circuit_rate: None,
            leaves: None,
            one_way: false,
        }],
        timing: SwitchTiming::only_switching(Picoseconds::from_millis(25)),
        loss: LossBudget::default(),
        forbidden: vec![],
        held: vec![],
        usable: vec![],
        occupied: vec![],
        failure_domains: 1,
    };
    ReconfigurableFatTree::new(spec).expect("MixNet's region is sound")
}

fn one_shot_claim(
    base: &ReconfigurableFatTree,
    layers: u64,
    claim: &str,
    note: &str,
) -> RfabricClaim {
    let phases = gated_layers(base.leaves(), layers, Picoseconds::from_millis(100));
    let all = candidates(base, &phases, Effort::default());
    let one_shot = best_static(base, &phases, &all).seconds;
    let planned = schedule(base, &phases, &all).seconds;
    RfabricClaim {
        claim: claim.into(),
        source: Source::Read,
        low: 1.3,
        high: Some(1.5),
        ours: one_shot / planned,
        note: note.into(),
    }
}

fn mixture_step_claim(base: &ReconfigurableFatTree) -> Option<RfabricClaim> {
    let gpus_per_leaf = base.spec().gpus_per_leaf;
    let half = base.leaves() as u32 / 2 * gpus_per_leaf;
    let [trainer, pool] = leaf_after_leaf([half, half], gpus_per_leaf, base.leaves()).ok()?;
    let slack = SlackFile {
        gradients: Text(Picoseconds::from_millis(20)),
        weight_sync: Text(Picoseconds::from_millis(300)),
        ..SlackFile::default()
    };
    let raw = RlFile {
        model: "deepseek-v3".to_owned(),
        trainer_gpus: half,
        generation_gpus: half,
        tp: 1,
        pp: 2,
        ep: 64,
        expert_skew: 0.3,
        samples: half,
        tokens_per_sample: 4096,
        replica_gpus: 2 * gpus_per_leaf,
        tail_replica_gpus: None,
        migrated_share: 0.02,
        weight_sync: WeightSyncFile::default(),
        slack,
        seed: 0,
    };
    let card = ModelCard::named(&raw.model).expect("the model is shipped");
    let step = RlStep { card, trainer, pool, raw };
    let phases = step.phases(base.leaves()).ok()?;
    let all = candidates(base, &phases, Effort::default());
    let one_shot = best_static(base, &phases, &all).seconds;
    let planned = schedule(base, &phases, &all).seconds;
    Some(RfabricClaim {
        claim: "the same over a whole step of training and generation of a mixture".into(),
        source: Source::BandOurs,
        low: 1.3,
        high: Some(1.5),
        ours: one_shot / planned,
        note:
            "a model like DeepSeek-V3, all-to-all, gradients and weight synchronisation; not the \
               paper's models"
                .into(),
    })
}

fn slow_link_claim(base: &ReconfigurableFatTree, phases: &[Phase]) -> RfabricClaim {
    let mut spec = base.spec().clone();
    spec.timing.bring_up = Picoseconds::from_millis(5_700);
    let fabric =
        ReconfigurableFatTree::new(spec).expect("the fabric stays valid with another delay");
    let all = candidates(&fabric, phases, Effort::default());
    let chosen = schedule(&fabric, phases, &all);
    RfabricClaim {
        claim: "with 5.7 s until the link is usable (MixNet, measured): changes per step".into(),
        source: Source::BandOurs,
        low: 0.0,
        high: Some(0.0),
        ours: chosen.changes() as f64,
        note: "must be one static topology; DELTA draws the same conclusion".into(),
    }
}

/// The longest switching time in seconds at which circuit changes between shift steps of `size` per leaf pay off.
pub(crate) fn break_even_seconds(spec: &FatTreeSpec, size: Bytes) -> f64 {
    let mut spec = spec.clone();
    spec.leaves = 8;
    spec.banks.truncate(1);
    spec.banks[0].switches = 1;
    spec.electrical.rate_per_leaf = BitsPerSecond(spec.circuit_rate.0 / 4);
    spec.electrical.oversubscription = 1.0;
    spec.failure_domains = 1;
    spec.held.clear();
    spec.usable.clear();
    spec.forbidden.clear();
    spec.loss.extra_db.clear();
    let phases: Vec<Phase> = (1..8)
        .map(|shift| {
            let mut demand = Demand::none(8);
            for from in 0..8 {
                demand.add(LeafId(from), LeafId((from + shift) % 8), size);
            }
            Phase { job: None, name: format!("shift {shift}"), demand, slack: Picoseconds::ZERO }
        })
        .collect();
    let (mut low, mut high) = (1e-9, 100.0);
    for _ in 0..24 {
        let middle = f64::sqrt(low * high);
        spec.timing = SwitchTiming::only_switching(Picoseconds((middle * 1e12) as u64));
        let fabric = ReconfigurableFatTree::new(spec.clone()).expect("a small fabric is sound");
        let all = candidates(&fabric, &phases, Effort::default());
        let chosen = schedule(&fabric, &phases, &all);
        if chosen.changes() > 0 { low = middle } else { high = middle }
    }
    low
}

fn actina_claims(spec: &FatTreeSpec) -> Vec<RfabricClaim> {
    let steps = [
        (
            "ACTINA: switching time (µs) at which changes inside a collective stop paying off",
            4,
            Source::Read,
            0.0,
            Some(100.0),
        ),
        (
            "switching time (µs) at which changes between phases of 10 GiB per leaf stop paying off",
            10_240,
            Source::BandOurs,
            10_000.0,
            None,
        ),
    ];
    steps
        .into_iter()
        .map(|(claim, mebibytes, source, low, high)| {
            let size = Bytes(mebibytes << 20);
            let ours = 1e6 * break_even_seconds(spec, size);
            let same = match source {
                Source::Read => {
                    let same = Bytes((size.0 as f64 * 100.0 / ours) as u64);
                    let there = 1e6 * break_even_seconds(spec, same);
                    format!(", which the paper's abstract does not state: {same} give {there:.0} µs")
                }
                _ => String::new(),
            };
            RfabricClaim {
                claim: claim.into(),
                source,
                low,
                high,
                ours,
                note: format!(
                    "an all-to-all of 8 leaves in 7 shifts of {mebibytes} MiB, 2 circuits per leaf, a core of a \
                     quarter of a circuit; break-even grows with the shift{same}"
                ),
            }
        })
        .collect()
}
