// SPDX-License-Identifier: Apache-2.0
//! The cost of a three-tier fat-tree relative to MixNet.

use super::claims::{Claim, Label, Section, Unit, near};
use super::why::{PublishedRange, Why, assumption, explain};
use crate::architecture::{Architecture, NicRate, Site, parse};
use crate::cost::{CostOutcome, MissingPrices, PriceList, cost};

const SENTENCE: &str = "MixNet: 2.3 times cheaper than a fat-tree at 400 Gb/s, and half the cost on average over \
     rates";

const RATES: [NicRate; 4] = [NicRate::G100, NicRate::G200, NicRate::G400, NicRate::G800];

pub fn mixnet(prices: &PriceList) -> Result<Vec<Claim>, MissingPrices> {
    let designs: Vec<Box<dyn Architecture>> =
        ["fat-tree:64:3", "mixnet"].map(|name| parse(name).expect("in the registry")).into();
    let mut read = Section::new("MixNet's published cost ratios", Label::Read);
    read.stands_for(SENTENCE);
    let mut sum = 0.0;
    for nic in RATES {
        let site = Site { gpus: 4_096, gpus_per_node: 8, nic };
        let costs: Vec<f64> = cost(&designs, &site, prices)?
            .iter()
            .map(|row| match &row.outcome {
                CostOutcome::Priced(figures) => figures.cost_per_gpu_usd,
                CostOutcome::CannotPrice { .. } => f64::NAN,
            })
            .collect();
        let ours = costs[0] / costs[1];
        sum += ours;
        if nic == NicRate::G400 {
            read.add("fat-tree ÷ MixNet at 400 Gb/s", Unit::Times, near(2.3, 0.05), ours);
        }
    }
    read.add("mean over the rates", Unit::Times, near(2.0, 0.05), sum / RATES.len() as f64);
    Ok(read.claims)
}

/// Varies the ratio at 400 Gb/s. The paper tabulates prices and network cards.
#[must_use]
pub fn why(prices: &PriceList) -> Vec<Why> {
    let ports = [(1, "that of the paper"), (0, "the lowest quoted"), (2, "the highest quoted")];
    let cards = [(true, "in the bill"), (false, "not in the bill")];
    let usd = |part: &str, level: usize| {
        let usd = prices.quote(part).map(|quote| &quote.usd);
        usd.map_or(f64::NAN, |usd| [usd.low, usd.mean, usd.high][level])
    };
    let why = explain(
        "MixNet: cost of a fat-tree at 400 Gb/s ÷ that of MixNet",
        None,
        PublishedRange::times(2.25, 2.35),
        vec![assumption("price of an optical port", &ports), assumption("network cards", &cards)],
        |choice| {
            let card = if cards[choice[1]].0 { usd("nic-400g", 1) } else { 0.0 };
            let (port, module) = (usd("switch-port-400g", 1), usd("dcn-optical-400g", 1));
            let tree = |share: f64| share * (TREE_PORTS * port + TREE_MODULES * module);
            let optical = 1.0 - ELECTRICAL;
            let light = optical * (module + usd("ocs-port", ports[choice[0]].0));
            (card + tree(1.0)) / (card + tree(ELECTRICAL) + light)
        },
    );
    vec![why]
}

/// Per end point. In MixNet, 2 of 8 network cards use such a tree.
const TREE_PORTS: f64 = 5.0;
const TREE_MODULES: f64 = 6.0;
const ELECTRICAL: f64 = 2.0 / 8.0;
