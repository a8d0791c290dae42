// SPDX-License-Identifier: Apache-2.0
//! Fabrics for tests and benches that compare planners.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::{
    ElectricalCore, FatTreeSpec, LossBudget, OcsBank, ReconfigurableFatTree, SwitchTiming,
};
use lightloom_units::{BitsPerSecond, Picoseconds};

use super::CarriedStep;
use super::demand::Demand;
#[cfg(test)]
use super::workload::card::ModelCard;
use crate::check::circuits::{Asked, check_step};

/// Returns the checker's findings about the circuits of `step`.
pub fn check(
    network: &ReconfigurableFatTree,
    demands: &[Demand],
    step: &CarriedStep,
) -> Vec<String> {
    let rate = network.spec().gpu_rate.0 as f64;
    let asked = |demand: &Demand| Asked {
        flows: demand
            .flows()
            .map(|(from, to, bytes)| ((from.0, to.0), demand.bits(bytes) / 8.0))
            .collect(),
        interface_seconds: demand.interface_seconds(rate).unwrap_or(0.0),
    };
    let asked: Vec<Asked> = demands.iter().map(asked).collect();
    check_step(network, &asked, &step.phases, &step.transitions)
}

/// Builds the fabric of [`spec`] with two ports per leaf and switch.
pub fn fabric(leaves: u32, ports: u32) -> ReconfigurableFatTree {
    wired(leaves, ports, 2)
}

fn wired(leaves: u32, ports: u32, ports_per_leaf: u32) -> ReconfigurableFatTree {
    let mut spec = spec(leaves, ports);
    spec.banks[0].switches = ports / ports_per_leaf;
    spec.banks[0].ports_per_switch = ports_per_leaf * leaves;
    spec.banks[0].ports_per_leaf = ports_per_leaf;
    ReconfigurableFatTree::new(spec).expect("a sound fabric")
}

/// A fabric with `ports` 400G optical ports per leaf and a tenth of their bandwidth in the core.
pub fn spec(leaves: u32, ports: u32) -> FatTreeSpec {
    FatTreeSpec {
        leaves,
        gpus_per_leaf: 2 * ports,
        gpu_rate: BitsPerSecond::from_gbps(400),
        circuit_rate: BitsPerSecond::from_gbps(400),
        electrical: ElectricalCore {
            rate_per_leaf: BitsPerSecond::from_gbps(40 * u64::from(ports)),
            other_rates: BTreeMap::new(),
            oversubscription: 1.0,
        },
        banks: vec![OcsBank {
            name: "core".into(),
            model: None,
            switches: ports / 2,
            ports_per_switch: 2 * leaves,
            ports_per_leaf: 2,
            insertion_loss_db: 1.0,
            circuit_rate: None,
            leaves: None,
            one_way: false,
        }],
        timing: SwitchTiming {
            control: Picoseconds::ZERO,
            switching: Picoseconds::from_millis(10),
            bring_up: Picoseconds::ZERO,
        },
        loss: LossBudget::default(),
        forbidden: vec![],
        held: vec![],
        usable: vec![],
        occupied: vec![],
        failure_domains: 4.min(ports / 2),
    }
}

/// A dense model whose 72.7 billion weights divide evenly.
#[cfg(test)]
pub(crate) fn dense_card() -> ModelCard {
    ModelCard {
        name: "dense".into(),
        parameters: 72_700_000_000,
        layers: 80,
        hidden: 8192,
        cache_elements_per_layer: 2 * 8 * 128,
        element_bytes: 2,
        experts: None,
    }
}
