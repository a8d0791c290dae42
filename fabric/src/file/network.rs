// SPDX-License-Identifier: Apache-2.0
//! The network of leaves as a fabric file writes it: a packet core, banks of optical switches and what a
//! path may lose; and what it means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lower::warn_of_slow;
use super::step::{at_once, one};
use crate::document::{Check, codes};
use crate::fat_tree::{
    CrossConnect, ElectricalCore, FatTreeSpec, LeafPair, LossBudget, OcsBank,
    ReconfigurableFatTree, SwitchTiming,
};
use lightloom_units::id::{LeafId, OcsId};
use lightloom_units::{BitsPerSecond, Picoseconds, Text};

/// Leaves, a thin electrical core and banks of optical switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconfigurableFile {
    /// ToRs or rail switches.
    pub leaves: u32,
    /// GPUs below one leaf.
    pub gpus_per_leaf: u32,
    /// Rate of one circuit, each direction.
    pub circuit_rate: Text<BitsPerSecond>,
    /// Rate of one GPU's network interface; that of a circuit where it is not written.
    #[serde(default)]
    pub gpu_rate: Option<Text<BitsPerSecond>>,
    /// The packet network that is always there.
    pub electrical: ElectricalFile,
    /// One or two banks of optical switches.
    pub banks: Vec<BankFile>,
    /// How long a circuit takes.
    pub timing: TimingFile,
    /// What an optical path may lose.
    #[serde(default)]
    pub loss: LossFile,
    /// Pairs of leaves that no circuit may join.
    #[serde(default)]
    pub forbidden: Vec<PairFile>,
    /// Circuits of other jobs: they stay and are not ours to use.
    #[serde(default)]
    pub held: Vec<HeldFile>,
    /// Power or control domains over which the switches are spread in blocks of consecutive ids.
    #[serde(default = "one")]
    pub failure_domains: u32,
}

/// The packet network that is always there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectricalFile {
    /// Uplink rate of one leaf.
    pub rate_per_leaf: Text<BitsPerSecond>,
    /// How many times that exceeds what the core carries when all leaves send. 1 carries everything.
    pub oversubscription: f64,
}

/// A row of equal switches, each wired alike to every leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BankFile {
    /// What the operator calls it.
    pub name: String,
    /// Number of switches.
    pub switches: u32,
    /// Ports of one switch.
    pub ports_per_switch: u32,
    /// Ports that each leaf has on each switch. Even.
    pub ports_per_leaf: u32,
    /// Loss of one pass, in dB.
    #[serde(default)]
    pub insertion_loss_db: f64,
}

/// How long a circuit takes from decision to traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimingFile {
    /// Decision to command accepted.
    #[serde(default = "at_once")]
    pub control: Text<Picoseconds>,
    /// Mirrors, crystals or actuators moving.
    pub switching: Text<Picoseconds>,
    /// Receiver lock, link training and driver. Measured with an unmodified NIC: 5.7 s.
    #[serde(default = "at_once")]
    pub bring_up: Text<Picoseconds>,
}

/// What an optical path may lose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossFile {
    /// The most that transmitter and receiver tolerate, in dB.
    pub budget_db: f64,
    /// Connectors and fibre common to every path, in dB.
    pub path_db: f64,
    /// What single leaves lose on top.
    pub extra_db: Vec<ExtraLossFile>,
}

impl Default for LossFile {
    /// 4 dB, as of 400GBASE-FR4 with its fibre, and 1 dB of connectors.
    fn default() -> Self {
        Self { budget_db: 4.0, path_db: 1.0, extra_db: Vec::new() }
    }
}

/// What one leaf loses on top.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtraLossFile {
    /// The leaf.
    pub leaf: LeafId,
    /// Its loss, in dB.
    pub db: f64,
}

/// Two leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairFile {
    /// One.
    pub a: LeafId,
    /// The other.
    pub b: LeafId,
}

/// A cross-connect that another job holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldFile {
    /// The switch.
    pub ocs: OcsId,
    /// The leaf with the smaller id.
    pub a: LeafId,
    /// Its port on the switch.
    pub a_port: u32,
    /// The leaf with the larger id.
    pub b: LeafId,
    /// Its port on the switch.
    pub b_port: u32,
}

const FAT_TREE: &str = "/dcn/reconfigurable_fat_tree";

/// The network that `raw` describes, or a report of every mistake in it.
pub(super) fn lower(
    raw: &ReconfigurableFile,
    check: &mut Check<'_>,
) -> Option<ReconfigurableFatTree> {
    let spec = FatTreeSpec {
        leaves: raw.leaves,
        gpus_per_leaf: raw.gpus_per_leaf,
        gpu_rate: raw.gpu_rate.unwrap_or(raw.circuit_rate).0,
        circuit_rate: raw.circuit_rate.0,
        electrical: ElectricalCore {
            rate_per_leaf: raw.electrical.rate_per_leaf.0,
            oversubscription: raw.electrical.oversubscription,
        },
        banks: raw.banks.iter().map(bank).collect(),
        timing: SwitchTiming {
            control: raw.timing.control.0,
            switching: raw.timing.switching.0,
            bring_up: raw.timing.bring_up.0,
        },
        loss: LossBudget {
            budget_db: raw.loss.budget_db,
            path_db: raw.loss.path_db,
            extra_db: raw.loss.extra_db.iter().map(|extra| (extra.leaf, extra.db)).collect(),
        },
        forbidden: raw.forbidden.iter().map(|pair| (pair.a, pair.b)).collect(),
        held: raw.held.iter().map(held).collect(),
        failure_domains: raw.failure_domains,
    };
    let extra = spec.loss.extra_db.clone();
    warn_of_implausible(raw, check);
    let fabric = ReconfigurableFatTree::new(spec)
        .map_err(|problems| {
            for problem in problems {
                let pointer = problem.field.replace(['.', '['], "/").replace(']', "");
                let place = format!("{FAT_TREE}/{pointer}");
                check.error(codes::BAD_VALUE, &place, problem.problem).help(problem.fix);
            }
        })
        .ok();
    if let Some(fabric) = &fabric {
        warn_of_dark_banks(fabric, check);
        warn_of_lonely_leaves(fabric, &extra, check);
    }
    fabric
}

/// Ports of the largest optical switch that is sold or announced.
const LARGEST_SWITCH: u32 = 1024;

/// What nobody builds is likely a slip.
fn warn_of_implausible(raw: &ReconfigurableFile, check: &mut Check<'_>) {
    warn_of_slow(&format!("{FAT_TREE}/circuit_rate"), raw.circuit_rate.0, check);
    if let Some(rate) = raw.gpu_rate {
        warn_of_slow(&format!("{FAT_TREE}/gpu_rate"), rate.0, check);
    }
    for (index, bank) in raw.banks.iter().enumerate() {
        let ports = bank.ports_per_switch;
        if ports > LARGEST_SWITCH {
            let place = format!("{FAT_TREE}/banks/{index}/ports_per_switch");
            let message =
                format!("no optical switch has {ports} ports: the largest have {LARGEST_SWITCH}");
            check
                .warning(super::codes::IMPLAUSIBLE, &place, message)
                .help("write the ports of a switch that can be bought, and more switches");
        }
    }
}

/// A bank that no path admits is never lit, which is hardly meant.
fn warn_of_dark_banks(fabric: &ReconfigurableFatTree, check: &mut Check<'_>) {
    let spec = fabric.spec();
    for index in fabric.banks_without_circuits() {
        let bank = &spec.banks[index];
        let Some(least_db) = fabric.least_loss_over(index) else { continue };
        let place = format!("{FAT_TREE}/banks/{index}/insertion_loss_db");
        let message = format!(
            "no circuit can go over bank `{}`: its paths lose {least_db:.1} dB and more, and {:.1} dB are allowed",
            bank.name, spec.loss.budget_db
        );
        check
            .warning(codes::BAD_VALUE, &place, message)
            .help("its ports stay dark; remove it, or use optics with a larger budget");
    }
}

/// Leaves that no circuit can reach are planned over the core alone, which is hardly meant.
fn warn_of_lonely_leaves(
    fabric: &ReconfigurableFatTree,
    extra: &[(LeafId, f64)],
    check: &mut Check<'_>,
) {
    for leaf in fabric.leaves_without_circuits() {
        let lossy = extra.iter().position(|(lossy, _)| *lossy == leaf);
        let place = lossy.map_or(format!("{FAT_TREE}/forbidden"), |index| {
            format!("{FAT_TREE}/loss/extra_db/{index}")
        });
        let others =
            (0..fabric.spec().leaves).filter_map(|other| LeafPair::new(leaf, LeafId(other)));
        let least_db = others.filter_map(|pair| fabric.least_loss_db(pair)).reduce(f64::min);
        let message = format!(
            "no circuit can join {leaf} to any other leaf: {}",
            match least_db {
                Some(least) => format!(
                    "the best of its paths loses {least:.1} dB, and {:.1} dB are allowed",
                    fabric.spec().loss.budget_db
                ),
                None => "every pair is forbidden".to_owned(),
            }
        );
        check.warning(codes::BAD_VALUE, &place, message).help(
            "its traffic goes over the packet core alone; allow more loss or use a better path",
        );
    }
}

fn bank(raw: &BankFile) -> OcsBank {
    OcsBank {
        name: raw.name.clone(),
        switches: raw.switches,
        ports_per_switch: raw.ports_per_switch,
        ports_per_leaf: raw.ports_per_leaf,
        insertion_loss_db: raw.insertion_loss_db,
    }
}

fn held(raw: &HeldFile) -> CrossConnect {
    CrossConnect { ocs: raw.ocs, a_port: raw.a_port, b_port: raw.b_port, a: raw.a, b: raw.b }
}
