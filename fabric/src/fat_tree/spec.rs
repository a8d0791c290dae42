// SPDX-License-Identifier: Apache-2.0
//! The parameters of a reconfigurable fat-tree, as installed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use lightloom_units::id::{LeafId, LeafRange, OcsId, OcsPortId};
use lightloom_units::{BitsPerSecond, Picoseconds, Text, as_text};

/// Two different leaves, with the smaller id first. A circuit between them is bidirectional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeafPair {
    /// The leaf with the smaller id.
    pub a: LeafId,
    /// The leaf with the larger id.
    pub b: LeafId,
}

impl LeafPair {
    /// Returns the pair of `first` and `second`, or `None` if they are the same leaf.
    pub fn new(first: LeafId, second: LeafId) -> Option<Self> {
        (first != second).then(|| Self { a: first.min(second), b: first.max(second) })
    }
}

/// A row of identical switches with identical wiring to the leaves of the bank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BankFile")]
pub struct OcsBank {
    /// Operator's name for the bank.
    pub name: String,
    /// Number of switches.
    pub switches: u32,
    /// Ports of one switch.
    pub ports_per_switch: u32,
    /// Ports of each leaf on each switch. With an odd number, some sets of circuits cannot be formed.
    pub ports_per_leaf: u32,
    /// Model of the switches, as in the price file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Rate of one circuit over the bank per direction; defaults to the fabric's circuit rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_rate: Option<Text<BitsPerSecond>>,
    /// Leaves wired to the bank, such as `[leaf0..leaf7, leaf12]`; all leaves by default.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "in_order")]
    #[schemars(with = "Option<Vec<LeafRange>>")]
    pub leaves: Option<Vec<LeafId>>,
    /// Insertion loss of one pass through a switch, in dB.
    #[serde(default)]
    pub insertion_loss_db: f64,
    /// Whether circuits lead from a transmitter to a receiver, instead of both ways. The same for all banks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
}

/// Lists the leaves of all ranges in increasing order.
fn in_order<'de, D: Deserializer<'de>>(ranges: D) -> Result<Option<Vec<LeafId>>, D::Error> {
    let Some(ranges) = Option::<Vec<LeafRange>>::deserialize(ranges)? else { return Ok(None) };
    let all = ranges.iter().flat_map(|range| range.first.0..=range.last.0);
    let mut leaves: Vec<LeafId> = all.map(LeafId).collect();
    leaves.sort_unstable();
    Ok(Some(leaves))
}

impl OcsBank {
    /// Returns the position of `leaf` among the leaves of the bank, or `None` if it is not wired to the bank.
    pub fn place_of(&self, leaf: LeafId) -> Option<u32> {
        match &self.leaves {
            None => Some(leaf.0),
            Some(leaves) => leaves.binary_search(&leaf).ok().and_then(|at| u32::try_from(at).ok()),
        }
    }

    /// Returns the leaf that a port of every switch in the bank is wired to.
    pub fn leaf_at(&self, port: u32) -> Option<LeafId> {
        let place = port / self.ports_per_leaf;
        match &self.leaves {
            None => Some(LeafId(place)),
            Some(leaves) => leaves.get(place as usize).copied(),
        }
    }

    /// Returns the number of leaves that are wired to the bank, of `all` leaves.
    pub fn count_of(&self, all: u32) -> u32 {
        self.leaves.as_ref().map_or(all, |own| u32::try_from(own.len()).unwrap_or(u32::MAX))
    }
}

/// The delays between the controller's decision and the first useful bit on a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "TimingFile",
    description = "Delays of setting up a circuit, from the decision to traffic."
)]
pub struct SwitchTiming {
    /// Time from the decision until the switch accepts the command.
    #[serde(default, with = "as_text")]
    #[schemars(with = "Text<Picoseconds>")]
    pub control: Picoseconds,
    /// Time to move the mirrors, crystals or actuators.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<Picoseconds>")]
    pub switching: Picoseconds,
    /// Time for receiver lock, link training and the driver. An unmodified NIC took 5.7 s.
    #[serde(default, with = "as_text")]
    #[schemars(with = "Text<Picoseconds>")]
    pub bring_up: Picoseconds,
}

impl SwitchTiming {
    /// Returns delays without software and links.
    pub fn only_switching(switching: Picoseconds) -> Self {
        Self { control: Picoseconds::ZERO, switching, bring_up: Picoseconds::ZERO }
    }

    /// Returns the time from the decision to a circuit that carries traffic.
    pub fn total(self) -> Picoseconds {
        self.control + self.switching + self.bring_up
    }
}

/// Optical loss budget and the losses outside the switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "LossFile")]
pub struct LossBudget {
    /// Largest loss between transmitter and receiver, in dB.
    pub budget_db: f64,
    /// Loss of the connectors and fibre that are common to all paths, in dB.
    pub path_db: f64,
    /// Additional loss of individual leaves.
    pub extra_db: Vec<LeafLoss>,
    /// Additional loss of the fibres at individual switch ports. A port over which a circuit could exceed the budget
    /// stays dark.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortLoss>,
}

impl Default for LossBudget {
    /// 4 dB as for 400GBASE-FR4 with its fibre, and 1 dB for connectors.
    fn default() -> Self {
        Self { budget_db: 4.0, path_db: 1.0, extra_db: Vec::new(), ports: Vec::new() }
    }
}

/// Additional loss of one leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExtraLossFile")]
pub struct LeafLoss {
    /// The leaf.
    pub leaf: LeafId,
    /// Additional loss, in dB.
    pub db: f64,
}

/// Additional loss of the fibre at one switch port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PortLossFile")]
pub struct PortLoss {
    /// The port.
    pub port: OcsPortId,
    /// Additional loss, in dB.
    pub db: f64,
}

/// The always-on packet network.
#[derive(Clone, Debug, PartialEq)]
pub struct ElectricalCore {
    /// Uplink rate of one leaf into the core.
    pub rate_per_leaf: BitsPerSecond,
    /// Uplink rates of leaves with other uplinks.
    pub other_rates: BTreeMap<LeafId, BitsPerSecond>,
    /// Ratio of the uplink rate to the core's capacity per leaf when all leaves send, at least 1.
    pub oversubscription: f64,
}

impl ElectricalCore {
    /// Returns the uplink rate of `leaf`.
    pub fn rate_of(&self, leaf: LeafId) -> BitsPerSecond {
        self.other_rates.get(&leaf).copied().unwrap_or(self.rate_per_leaf)
    }
}

/// A cross-connect between two ports of a switch, with the leaves wired to them. A one-way circuit leads from `a` to
/// `b`, which are then in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CrossConnect {
    /// The switch.
    pub ocs: OcsId,
    /// The port wired to leaf `a`.
    pub a_port: u32,
    /// The port wired to leaf `b`.
    pub b_port: u32,
    /// The leaf with the smaller id.
    pub a: LeafId,
    /// The leaf with the larger id.
    pub b: LeafId,
}

impl CrossConnect {
    /// Returns the circuit from `b` to `a`.
    pub fn reversed(self) -> Self {
        Self { a: self.b, b: self.a, a_port: self.b_port, b_port: self.a_port, ..self }
    }
}

/// State of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CircuitState {
    /// No cross-connect exists.
    Dark,
    /// The switch is moving.
    Switching,
    /// The path has light, but the link is not up yet.
    Training,
    /// Carries traffic.
    Up,
    /// The circuit could carry traffic, but no route uses it.
    Drained,
}

/// Unchecked parameters of a reconfigurable fat-tree.
#[derive(Clone, Debug, PartialEq)]
pub struct FatTreeSpec {
    /// Number of leaves (ToRs or rail switches).
    pub leaves: u32,
    /// GPUs under one leaf.
    pub gpus_per_leaf: u32,
    /// Rate of one GPU's network interface, which limits the traffic of a leaf.
    pub gpu_rate: BitsPerSecond,
    /// Rate of one circuit per direction, over banks without another rate.
    pub circuit_rate: BitsPerSecond,
    /// The always-on packet network.
    pub electrical: ElectricalCore,
    /// Banks of optical switches.
    pub banks: Vec<OcsBank>,
    /// Setup time of a circuit.
    pub timing: SwitchTiming,
    /// Optical loss budget.
    pub loss: LossBudget,
    /// Pairs of leaves that must not be connected by a circuit.
    pub forbidden: Vec<(LeafId, LeafId)>,
    /// Circuits that stay up. Plans must not use their ports for other circuits.
    pub held: Vec<CrossConnect>,
    /// Circuits of `held` that may carry traffic of the jobs. They are part of every phase.
    pub usable: Vec<CrossConnect>,
    /// Ports that something else than a leaf occupies. Circuits cannot use them, but they have not failed.
    pub occupied: Vec<OcsPortId>,
    /// Number of power or control domains of the switches, in blocks of consecutive ids.
    pub failure_domains: u32,
}

impl FatTreeSpec {
    /// Returns the rate of a circuit over `bank`.
    pub fn circuit_rate_over(&self, bank: &OcsBank) -> BitsPerSecond {
        bank.circuit_rate.map_or(self.circuit_rate, |own| own.0)
    }

    /// Returns the held circuits that carry no traffic of the jobs.
    pub fn held_for_others(&self) -> impl Iterator<Item = &CrossConnect> {
        self.held.iter().filter(|held| !self.usable.contains(held))
    }

    pub(super) fn bank(&self, ocs: OcsId) -> Option<&OcsBank> {
        let mut first = 0;
        self.banks.iter().find(|bank| {
            first += bank.switches;
            ocs.0 < first
        })
    }
}
