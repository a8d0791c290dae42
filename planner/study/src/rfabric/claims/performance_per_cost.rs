// SPDX-License-Identifier: Apache-2.0
//! RFabric's claims of performance per cost relative to other fabrics.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::{RfabricClaim, Source};
use crate::architecture::NicRate;
use crate::cost::{Level, PriceList};
use crate::rfabric::baselines::{Baseline, Parts};
use lightloom_planner::rfabric::one_hop::Effort;
use lightloom_planner::rfabric::phases::{Phase, candidates, schedule};

type OurFabric = (ReconfigurableFatTree, f64);

/// Returns our fabric with a packet core of another size, and the seconds of its step.
fn core(
    base: &ReconfigurableFatTree,
    phases: &[Phase],
    oversubscription: f64,
) -> Option<OurFabric> {
    let mut spec = base.spec().clone();
    spec.electrical.oversubscription = oversubscription;
    let fabric = ReconfigurableFatTree::new(spec).ok()?;
    let found = candidates(&fabric, phases, Effort::default());
    let seconds = schedule(&fabric, phases, &found).seconds;
    Some((fabric, seconds))
}

pub(super) fn claims(
    base: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Vec<RfabricClaim> {
    let cores = [2.0, 4.0, 8.0].map(|ratio| core(base, phases, ratio));
    let Some(cores) = cores.into_iter().collect::<Option<Vec<_>>>() else { return Vec::new() };
    let pairs = WANTED.iter().flat_map(|wanted| [1.0, 0.5].map(|share| (wanted, share)));
    pairs.filter_map(|(wanted, share)| claim(&cores, phases, prices, wanted, share)).collect()
}

struct Wanted {
    baseline: Baseline,
    name: &'static str,
    why: &'static str,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        baseline: Baseline::FatTree { oversubscription: 1 },
        name: "fat-tree",
        why: "a non-blocking tree is nearly as fast as any network, so the price decides",
    },
    Wanted {
        baseline: Baseline::FatTree { oversubscription: 3 },
        name: "oversubscribed fat-tree",
        why: "the tree is cheaper and slower, so the share of communication decides",
    },
    Wanted {
        baseline: Baseline::RailOptimised,
        name: "rail-optimised",
        why: "two non-blocking tiers with as many ports as ours; the abstract covers only fat-trees",
    },
    Wanted {
        baseline: Baseline::OneShot,
        name: "TopoOpt-like",
        why: "both use the same parts, so only the time differs; the abstract covers only \
            fat-trees",
    },
];

/// Covers the prices of optical ports and core sizes, because no single value is representative. `None` if the price
/// file lacks a part.
fn claim(
    cores: &[OurFabric],
    phases: &[Phase],
    prices: &PriceList,
    wanted: &Wanted,
    communication_share: f64,
) -> Option<RfabricClaim> {
    let Wanted { baseline, name, why } = wanted;
    let mut found = Vec::new();
    for (fabric, ours) in cores {
        let [full, theirs] = [Baseline::FatTree { oversubscription: 1 }, *baseline]
            .map(|of| of.step_seconds(fabric, phases, Effort::default()));
        let compute = full / communication_share - full;
        let speedup = (theirs + compute) / (ours + compute);
        for ocs_price in [Level::Low, Level::Mean, Level::High] {
            let [theirs, ours] = [baseline.parts(fabric), Parts::of(fabric)]
                .map(|parts| parts.dollars(prices, NicRate::G400, ocs_price));
            found.push((speedup, theirs? / ours?));
        }
    }
    // The core of 4:1 at the mean price.
    let (speedup, cost_ratio) = *found.get(4)?;
    let all = found.iter().map(|(speedup, cost)| speedup * cost);
    let (least, most) =
        all.fold((f64::MAX, 0.0_f64), |(least, most), ours| (least.min(ours), most.max(ours)));
    Some(RfabricClaim {
        claim: format!(
            "RFabric: performance per cost compared with {name}, {:.0} % communication",
            100.0 * communication_share
        ),
        source: Source::Read,
        low: 2.2,
        high: Some(3.1),
        ours: speedup * cost_ratio,
        note: format!(
            "speed {speedup:.2}×, cost {cost_ratio:.2}× at 400G, MixNet's prices, a 4:1 core; over our prices of optical \
             ports and cores of 2:1 to 8:1 it is {least:.2} to {most:.2}; {why}; RFabric's prices and \
             port counts are not published"
        ),
    })
}
