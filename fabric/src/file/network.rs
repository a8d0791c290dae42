// SPDX-License-Identifier: Apache-2.0
//! The section of the fabric file for a reconfigurable fat-tree, and its conversion.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lower::warn_of_slow;
use super::step::one;
use crate::document::{Check, codes};
use crate::fat_tree::{
    CrossConnect, ElectricalCore, FatTreeSpec, LeafPair, LossBudget, OcsBank,
    ReconfigurableFatTree, SwitchTiming,
};
use lightloom_units::id::{LeafId, OcsId, OcsPortId};
use lightloom_units::{BitsPerSecond, Text, gcd};

/// Leaves, a thin electrical core and banks of optical switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconfigurableFile {
    /// Number of leaves (ToRs or rail switches).
    pub leaves: u32,
    /// GPUs under one leaf.
    pub gpus_per_leaf: u32,
    /// Rate of one circuit per direction, over banks without another rate.
    pub circuit_rate: Text<BitsPerSecond>,
    /// Rate of one GPU's network interface; defaults to the circuit rate.
    #[serde(default)]
    pub gpu_rate: Option<Text<BitsPerSecond>>,
    /// The always-on packet network.
    pub electrical: ElectricalFile,
    /// Banks of optical switches.
    pub banks: Vec<OcsBank>,
    /// Setup time of a circuit.
    pub timing: SwitchTiming,
    /// Optical loss budget.
    #[serde(default)]
    pub loss: LossBudget,
    /// Pairs of leaves that must not be connected by a circuit.
    #[serde(default)]
    pub forbidden: Vec<PairFile>,
    /// Circuits that stay up, such as those of other jobs. Plans do not use their ports for other circuits.
    #[serde(default)]
    pub held: Vec<HeldFile>,
    /// Switch ports that something else than a leaf occupies, such as a tap or another network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupied: Vec<OcsPortId>,
    /// Number of power or control domains of the switches, in blocks of consecutive ids.
    #[serde(default = "one")]
    pub failure_domains: u32,
}

/// The always-on packet network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectricalFile {
    /// Uplink rate of one leaf.
    pub rate_per_leaf: Text<BitsPerSecond>,
    /// Leaves with another uplink rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<UplinkRateFile>,
    /// Ratio of uplink rate to core capacity per leaf when all leaves send; 1 is non-blocking.
    pub oversubscription: f64,
}

/// The uplink rate of one leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UplinkRateFile {
    /// The leaf.
    pub leaf: LeafId,
    /// Its rate over all its uplinks.
    pub rate: Text<BitsPerSecond>,
}

/// A pair of leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairFile {
    /// One leaf.
    pub a: LeafId,
    /// The other leaf.
    pub b: LeafId,
}

/// A cross-connect that stays up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldFile {
    /// The switch.
    pub ocs: OcsId,
    /// The leaf with the smaller id.
    pub a: LeafId,
    /// Switch port wired to leaf `a`.
    pub a_port: u32,
    /// The leaf with the larger id.
    pub b: LeafId,
    /// Switch port wired to leaf `b`.
    pub b_port: u32,
    /// Whether jobs may send traffic over the circuit. It is then part of every phase.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub usable: bool,
}

impl ReconfigurableFile {
    /// Returns the GPUs per node and the number of nodes if the file has no domain: nodes are as large as possible, up
    /// to 8 GPUs.
    pub(super) fn nodes(&self) -> (u8, Option<u32>) {
        let per_node = gcd(self.gpus_per_leaf.into(), 8).max(1) as u8;
        (per_node, self.leaves.checked_mul(self.gpus_per_leaf / u32::from(per_node)))
    }
}

const FAT_TREE: &str = "/dcn/reconfigurable_fat_tree";

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
            other_rates: other_rates(raw, check),
            oversubscription: raw.electrical.oversubscription,
        },
        banks: raw.banks.clone(),
        timing: raw.timing,
        loss: raw.loss.clone(),
        forbidden: raw.forbidden.iter().map(|pair| (pair.a, pair.b)).collect(),
        held: raw.held.iter().map(held).collect(),
        usable: raw.held.iter().filter(|held| held.usable).map(held).collect(),
        occupied: raw.occupied.clone(),
        failure_domains: raw.failure_domains,
    };
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
        warn_of_lonely_leaves(fabric, check);
        warn_of_dark_ports(raw, fabric, check);
    }
    fabric
}

/// Also reports unknown leaves, because only the file has their location.
fn other_rates(raw: &ReconfigurableFile, check: &mut Check<'_>) -> BTreeMap<LeafId, BitsPerSecond> {
    let mut rates = BTreeMap::new();
    for (index, own) in raw.electrical.uplinks.iter().enumerate() {
        let (leaf, last) = (own.leaf, raw.leaves.saturating_sub(1));
        let (message, help) = if leaf.0 > last {
            (format!("{leaf} does not exist"), format!("use leaf0 to leaf{last}"))
        } else if rates.insert(leaf, own.rate.0).is_some() {
            (format!("{leaf} is listed twice"), "list each leaf once".to_owned())
        } else {
            continue;
        };
        let place = format!("{FAT_TREE}/electrical/uplinks/{index}");
        check.error(codes::BAD_VALUE, &place, message).help(help);
    }
    rates
}

fn warn_of_dark_ports(
    raw: &ReconfigurableFile,
    fabric: &ReconfigurableFatTree,
    check: &mut Check<'_>,
) {
    for (index, own) in raw.loss.ports.iter().enumerate() {
        let is_dark = fabric.dead_ports(own.port.ocs).any(|port| port == own.port.port);
        if is_dark && !raw.occupied.contains(&own.port) {
            let message = format!(
                "{} stays dark: a circuit over it could lose more than {:.1} dB",
                own.port, raw.loss.budget_db
            );
            check
                .warning(codes::BAD_VALUE, &format!("{FAT_TREE}/loss/ports/{index}"), message)
                .help("clean or replace the fibre, or use optics with a larger budget");
        }
    }
}

const LARGEST_SWITCH: u32 = 1024;

fn warn_of_implausible(raw: &ReconfigurableFile, check: &mut Check<'_>) {
    warn_of_slow(&format!("{FAT_TREE}/circuit_rate"), raw.circuit_rate.0, check);
    if let Some(rate) = raw.gpu_rate {
        warn_of_slow(&format!("{FAT_TREE}/gpu_rate"), rate.0, check);
    }
    for (index, bank) in raw.banks.iter().enumerate() {
        if let Some(rate) = bank.circuit_rate {
            warn_of_slow(&format!("{FAT_TREE}/banks/{index}/circuit_rate"), rate.0, check);
        }
        let ports = bank.ports_per_switch;
        let leaves = bank.count_of(raw.leaves).max(1);
        let most = ports / leaves;
        if most > bank.ports_per_leaf {
            let place = format!("{FAT_TREE}/banks/{index}/ports_per_leaf");
            let left = ports - leaves * bank.ports_per_leaf;
            let message = format!("{left} of the {ports} ports of each switch are not wired");
            check.warning(super::codes::IMPLAUSIBLE, &place, message).help(format!(
                "use `ports_per_leaf: {most}`, wire more leaves to the bank, or use smaller switches"
            ));
        }
        if ports > LARGEST_SWITCH {
            let place = format!("{FAT_TREE}/banks/{index}/ports_per_switch");
            let message =
                format!("no optical switch has {ports} ports: the largest have {LARGEST_SWITCH}");
            check
                .warning(super::codes::IMPLAUSIBLE, &place, message)
                .help("use the port count of an available switch, and more switches");
        }
    }
}

/// A bank whose paths all exceed the loss budget is never used, which is probably unintended.
fn warn_of_dark_banks(fabric: &ReconfigurableFatTree, check: &mut Check<'_>) {
    let spec = fabric.spec();
    for index in fabric.banks_without_circuits() {
        let bank = &spec.banks[index];
        let Some(least_db) = fabric.least_loss_over(index) else { continue };
        let place = format!("{FAT_TREE}/banks/{index}/insertion_loss_db");
        let message = format!(
            "no circuit can use bank `{}`: its paths lose at least {least_db:.1} dB, but {:.1} dB \
                are allowed",
            bank.name, spec.loss.budget_db
        );
        check
            .warning(codes::BAD_VALUE, &place, message)
            .help("its ports stay dark; remove it, or use optics with a larger budget");
    }
}

/// Leaves without possible circuits only use the core, which is probably unintended.
fn warn_of_lonely_leaves(fabric: &ReconfigurableFatTree, check: &mut Check<'_>) {
    for leaf in fabric.leaves_without_circuits() {
        let lossy = fabric.spec().loss.extra_db.iter().position(|lossy| lossy.leaf == leaf);
        let place = lossy.map_or(format!("{FAT_TREE}/forbidden"), |index| {
            format!("{FAT_TREE}/loss/extra_db/{index}")
        });
        let others =
            (0..fabric.spec().leaves).filter_map(|other| LeafPair::new(leaf, LeafId(other)));
        let least_db = others.filter_map(|pair| fabric.least_loss_db(pair)).reduce(f64::min);
        let message = format!(
            "{leaf} cannot be connected to any other leaf by a circuit: {}",
            match least_db {
                Some(least) => format!(
                    "its best path loses {least:.1} dB, but {:.1} dB are allowed",
                    fabric.spec().loss.budget_db
                ),
                None => "all pairs are forbidden".to_owned(),
            }
        );
        check
            .warning(codes::BAD_VALUE, &place, message)
            .help("its traffic uses only the packet core; allow more loss or use a better path");
    }
}

fn held(raw: &HeldFile) -> CrossConnect {
    CrossConnect { ocs: raw.ocs, a_port: raw.a_port, b_port: raw.b_port, a: raw.a, b: raw.b }
}
