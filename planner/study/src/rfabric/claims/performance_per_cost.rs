// SPDX-License-Identifier: Apache-2.0
//! The full table of performance per cost relative to other fabrics, and RFabric's claims derived from it.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::{RfabricClaim, Source};
use crate::architecture::NicRate;
use crate::cost::{Level, PriceList};
use crate::rfabric::baselines::{BASELINES, Baseline, Parts};
use lightloom_planner::rfabric::one_hop::Effort;
use lightloom_planner::rfabric::phases::{Phase, candidates, schedule};

struct Comparison {
    baseline: &'static str,
    nic_gbps: u32,
    core_oversubscription: f64,
    ocs_price: Level,
    /// Share of a step that the 1:1 fat-tree would spend on communication.
    communication_share: f64,
    speedup: f64,
    cost_ratio: f64,
    performance_per_cost: f64,
}

/// Covers all baselines, price lists, core sizes and communication shares, because no single value
/// is representative. `None` if the price file lacks a part.
fn comparisons(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Option<Vec<Comparison>> {
    let effort = Effort::default();
    let mut rows = Vec::new();
    for core_oversubscription in [2.0, 4.0, 8.0] {
        let mut spec = fabric.spec().clone();
        spec.electrical.oversubscription = core_oversubscription;
        let fabric = ReconfigurableFatTree::new(spec).ok()?;
        let ours = schedule(&fabric, phases, &candidates(&fabric, phases, effort)).seconds;
        let full = Baseline::FatTree { oversubscription: 1 };
        let full = full.step_seconds(&fabric, phases, effort);
        for (name, baseline) in BASELINES {
            let theirs = baseline.step_seconds(&fabric, phases, effort);
            for (nic, ocs_price) in NicRate::ALL.into_iter().flat_map(|nic| {
                [Level::Low, Level::Mean, Level::High].map(|ocs_price| (nic, ocs_price))
            }) {
                let cost_ratio = baseline.parts(&fabric).dollars(prices, nic, ocs_price)?
                    / Parts::of(&fabric).dollars(prices, nic, ocs_price)?;
                for communication_share in [1.0, 0.5, 0.2] {
                    let compute = full / communication_share - full;
                    let speedup = (theirs + compute) / (ours + compute);
                    rows.push(Comparison {
                        baseline: name,
                        nic_gbps: nic.gbps(),
                        core_oversubscription,
                        ocs_price,
                        communication_share,
                        speedup,
                        cost_ratio,
                        performance_per_cost: speedup * cost_ratio,
                    });
                }
            }
        }
    }
    Some(rows)
}

pub(super) fn claims(
    base: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Vec<RfabricClaim> {
    let Some(table) = comparisons(base, phases, prices) else { return Vec::new() };
    let pairs = WANTED.iter().flat_map(|wanted| [1.0, 0.5].map(|share| (wanted, share)));
    pairs.filter_map(|(wanted, share)| claim(&table, wanted, share)).collect()
}

struct Wanted {
    baseline: &'static str,
    name: &'static str,
    why: &'static str,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        baseline: "3-tier fat-tree 1:1",
        name: "fat-tree",
        why: "a non-blocking tree is nearly as fast as any network, so the price decides",
    },
    Wanted {
        baseline: "3-tier fat-tree 3:1",
        name: "oversubscribed fat-tree",
        why: "the tree is cheaper and slower, so the share of communication decides",
    },
    Wanted {
        baseline: "2-tier rail-optimised",
        name: "rail-optimised",
        why: "two non-blocking tiers with as many ports as ours; the abstract covers only fat-trees",
    },
    Wanted {
        baseline: "one-shot topology",
        name: "TopoOpt-like",
        why: "both use the same parts, so only the time differs; the abstract covers only \
            fat-trees",
    },
];

fn claim(table: &[Comparison], wanted: &Wanted, communication_share: f64) -> Option<RfabricClaim> {
    let Wanted { baseline, name, why } = wanted;
    let alike = || {
        table.iter().filter(|row| {
            row.baseline == *baseline
                && row.nic_gbps == 400
                && (row.communication_share - communication_share).abs() < 1e-9
        })
    };
    let row = alike().find(|row| {
        row.ocs_price == Level::Mean && (row.core_oversubscription - 4.0).abs() < 1e-9
    })?;
    let (least, most) = alike().fold((f64::MAX, 0.0_f64), |(least, most), other| {
        let ours = other.performance_per_cost;
        (least.min(ours), most.max(ours))
    });
    Some(RfabricClaim {
        claim: format!(
            "RFabric: performance per cost compared with {name}, {:.0} % communication",
            100.0 * communication_share
        ),
        source: Source::Read,
        low: 2.2,
        high: Some(3.1),
        ours: row.performance_per_cost,
        note: format!(
            "speed {:.2}×, cost {:.2}× at 400G, MixNet's prices, a 4:1 core; over our prices of optical \
             ports and cores of 2:1 to 8:1 it is {least:.2} to {most:.2}; {why}; RFabric's prices and \
             port counts are not published",
            row.speedup, row.cost_ratio
        ),
    })
}
