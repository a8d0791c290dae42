// SPDX-License-Identifier: Apache-2.0
//! Computes two published ratios for all values of the parameters that the papers leave open.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_planner::rfabric::one_hop::Effort;
use lightloom_planner::rfabric::phases::{Phase, best_static, candidates, schedule};
use lightloom_units::Picoseconds;

use super::{layers_spread, mixnet_region};
use crate::architecture::NicRate;
use crate::cost::{Level, PriceList};
use crate::rfabric::baselines::{Baseline, Parts};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Open {
    pub bills_nic: bool,
    pub copper_to_hosts: bool,
    pub core: f64,
    pub ocs: Level,
    pub tiers: u32,
    pub communication: f64,
    pub rate: NicRate,
}

pub struct PerCost<'a> {
    base: &'a ReconfigurableFatTree,
    phases: &'a [Phase],
    prices: &'a PriceList,
    /// Our fabric, its step time and the step time of the tree, by oversubscription in per cent.
    planned: BTreeMap<u64, (ReconfigurableFatTree, f64, f64)>,
}

impl<'a> PerCost<'a> {
    pub fn new(
        base: &'a ReconfigurableFatTree,
        phases: &'a [Phase],
        prices: &'a PriceList,
    ) -> Self {
        Self { base, phases, prices, planned: BTreeMap::new() }
    }

    pub fn figure(&mut self, open: Open) -> Option<f64> {
        let (base, phases) = (self.base, self.phases);
        let planned = self.planned.entry((open.core * 100.0) as u64).or_insert_with(|| {
            let mut spec = base.spec().clone();
            spec.electrical.oversubscription = open.core;
            let fabric = ReconfigurableFatTree::new(spec)
                .expect("the fabric stays valid with a thinner core");
            let effort = Effort::default();
            let ours = schedule(&fabric, phases, &candidates(&fabric, phases, effort)).seconds;
            let tree = Baseline::FatTree { oversubscription: 1 };
            let theirs = tree.step_seconds(&fabric, phases, effort);
            (fabric, ours, theirs)
        });
        let (fabric, ours, theirs) = planned;
        let compute = *theirs / open.communication - *theirs;
        let speedup = (*theirs + compute) / (*ours + compute);
        let tree = match open.tiers {
            2 => Baseline::RailOptimised,
            _ => Baseline::FatTree { oversubscription: 1 },
        };
        let theirs = dollars(tree.parts(fabric), self.prices, open)?;
        Some(speedup * theirs / dollars(Parts::of(fabric), self.prices, open)?)
    }
}

/// A copper link needs unidirectional cables of 200 Gb/s for both directions.
fn dollars(parts: Parts, prices: &PriceList, open: Open) -> Option<f64> {
    let [nic, module] = ["nic", "dcn-optical"]
        .map(|part| prices.quote(&open.rate.part(part)).map(|quote| quote.usd.mean));
    let mut usd = parts.dollars(prices, open.rate, open.ocs)?;
    if !open.bills_nic {
        usd -= nic?;
    }
    if open.copper_to_hosts {
        let cables = 2.0 * f64::from(open.rate.gbps()) / 200.0;
        usd += cables * prices.quote("copper-200g")?.usd.mean - 2.0 * module?;
    }
    Some(usd)
}

/// Parameters of MixNet's comparison of one topology per job with one per layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneShot {
    pub spread: f64,
    pub layers: u64,
    /// Computation before each layer, which can hide changes.
    pub compute_ms: u64,
}

impl OneShot {
    /// Step time with one topology per job ÷ one per layer, on a region like MixNet's.
    pub fn figure(self) -> f64 {
        let region = mixnet_region();
        let compute = Picoseconds::from_millis(self.compute_ms);
        let phases = layers_spread(region.leaves(), self.layers, compute, self.spread);
        let all = candidates(&region, &phases, Effort::default());
        best_static(&region, &phases, &all).seconds / schedule(&region, &phases, &all).seconds
    }
}
