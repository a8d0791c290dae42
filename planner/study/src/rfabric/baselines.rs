// SPDX-License-Identifier: Apache-2.0
//! The communication time per step and the bill of the baselines for a reconfigurable fabric.
//!
//! All baselines have the fabric's GPUs, leaves and demand. Electrical trees are evaluated with a
//! wider core and no circuits; optical baselines choose circuits differently.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::BitsPerSecond;

use crate::architecture::NicRate;
use crate::cost::{Level, PriceList};
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::one_hop::Effort;
use lightloom_planner::rfabric::phases::{Phase, best_static, candidates};
use lightloom_planner::rfabric::topology::Topology;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    FatTree {
        /// Downlink ÷ uplink bandwidth of a leaf; 1 is non-blocking.
        oversubscription: u32,
    },
    /// A non-blocking two-tier electrical tree with one rail per GPU of a node.
    RailOptimised,
    /// The best single topology for the whole step, like TopoOpt with one topology per job.
    OneShot,
}

impl Baseline {
    pub fn step_seconds(
        self,
        fabric: &ReconfigurableFatTree,
        phases: &[Phase],
        effort: Effort,
    ) -> f64 {
        match self {
            Self::FatTree { oversubscription } => electrical(fabric, phases, oversubscription),
            Self::RailOptimised => electrical(fabric, phases, 1),
            Self::OneShot => {
                best_static(fabric, phases, &candidates(fabric, phases, effort)).seconds
            }
        }
    }

    pub fn parts(self, fabric: &ReconfigurableFatTree) -> Parts {
        match self {
            Self::FatTree { oversubscription } => {
                let above = 1.0 / f64::from(oversubscription);
                Parts::new(1.0 + 4.0 * above, 2.0 + 4.0 * above, 0.0)
            }
            Self::RailOptimised => Parts::new(3.0, 4.0, 0.0),
            Self::OneShot => Parts::of(fabric),
        }
    }
}

/// Network parts per GPU at the rate of its single network card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    pub switch_ports: f64,
    pub modules: f64,
    pub ocs_ports: f64,
}

impl Parts {
    fn new(switch_ports: f64, modules: f64, ocs_ports: f64) -> Self {
        Self { switch_ports, modules, ocs_ports }
    }

    /// The link to the leaf needs a port and two modules. Each optical port of the leaf needs a switch port, a module
    /// and an optical switch port. The GPU's share of the packet core adds three ports and three modules.
    pub fn of(fabric: &ReconfigurableFatTree) -> Self {
        let spec = fabric.spec();
        let optical = f64::from(fabric.optical_ports()) / f64::from(spec.gpus_per_leaf);
        let core = fabric.electrical_rate() / fabric.host_rate();
        Self::new(1.0 + optical + 3.0 * core, 2.0 + optical + 3.0 * core, optical)
    }

    /// Dollars per GPU with its network card, at mean prices except for ports of optical switches, where sources differ most. `None` if a price is missing.
    pub fn dollars(&self, prices: &PriceList, rate: NicRate, ocs: Level) -> Option<f64> {
        let [nic, switch_port, module] = ["nic", "switch-port", "dcn-optical"]
            .map(|part| prices.quote(&rate.part(part)).map(|quote| quote.usd.mean));
        let ocs_port = prices.quote("ocs-port")?.usd.at(ocs);
        let modules = self.modules * module?;
        Some(nic? + self.switch_ports * switch_port? + modules + self.ocs_ports * ocs_port)
    }
}

/// A leaf's uplink rate is the full rate of its GPUs divided by the oversubscription.
fn electrical(fabric: &ReconfigurableFatTree, phases: &[Phase], oversubscription: u32) -> f64 {
    let mut spec = fabric.spec().clone();
    spec.electrical.rate_per_leaf = BitsPerSecond(fabric.host_rate() as u64);
    spec.electrical.oversubscription = f64::from(oversubscription);
    let tree = ReconfigurableFatTree::new(spec).expect("the fabric stays valid with a wider core");
    let dark = Topology::dark(fabric.leaves());
    phases.iter().map(|phase| 1.0 / Evaluator::new(&tree, &phase.demand).lambda(&dark)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_planner::rfabric::phases::{evaluators, schedule};
    use lightloom_planner::rfabric::testkit::{fabric, spec};
    use lightloom_planner::rfabric::workload::shapes;
    use lightloom_units::Picoseconds;
    use lightloom_units::seed::Seed;

    fn phases(leaves: usize) -> Vec<Phase> {
        [("moe", shapes::moe(leaves, Seed(1))), ("sync", shapes::weight_sync(leaves, Seed(1)))]
            .map(|(name, demand)| Phase {
                job: None,
                name: name.into(),
                demand,
                slack: Picoseconds::from_millis(500),
            })
            .to_vec()
    }

    #[test]
    fn no_network_beats_the_non_blocking_tree_and_planning_beats_fixed_circuits() {
        let mut spec = spec(32, 16);
        spec.gpus_per_leaf = 16;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let phases = phases(32);
        let effort = Effort::default();
        let seconds = |baseline: Baseline| baseline.step_seconds(&fabric, &phases, effort);
        let planned = schedule(&fabric, &phases, &candidates(&fabric, &phases, effort)).seconds;
        let best = seconds(Baseline::FatTree { oversubscription: 1 });
        assert!(planned < seconds(Baseline::OneShot) && planned >= best * (1.0 - 1e-9));
        let three = seconds(Baseline::FatTree { oversubscription: 3 });
        assert!((three / best - 3.0).abs() < 1e-6);
    }

    #[test]
    fn planned_circuits_beat_the_uniform_mesh_two_to_ten_times() {
        for leaves in [32, 64, 128] {
            let fabric = fabric(leaves, leaves / 2);
            for phase in phases(leaves as usize) {
                let evaluator = &evaluators(&fabric, std::slice::from_ref(&phase))[0];
                let mesh = evaluator.lambda(&Topology::uniform_mesh(&fabric));
                let planned = lightloom_planner::rfabric::one_hop::plan(
                    &fabric,
                    &phase.demand,
                    Effort::default(),
                );
                let times = planned.lambda / mesh;
                assert!((2.0..=10.0).contains(&times), "{} at {leaves}: {times}", phase.name);
            }
        }
    }

    #[test]
    fn quarter_rate_core_has_the_reference_part_counts() {
        let mut spec = spec(16, 8);
        spec.gpus_per_leaf = 8;
        spec.electrical.rate_per_leaf = BitsPerSecond::from_gbps(3_200);
        spec.electrical.oversubscription = 4.0;
        let parts = Parts::of(&ReconfigurableFatTree::new(spec).unwrap());
        assert!((parts.switch_ports - 2.75).abs() < 1e-9);
        assert!((parts.modules - 3.75).abs() < 1e-9);
        assert!((parts.ocs_ports - 1.0).abs() < 1e-9);
    }
}
