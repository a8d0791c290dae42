// SPDX-License-Identifier: Apache-2.0
//! Photonic rails (Opus, arXiv 2602.12521) are rails with optical switches.
//!
//! The abstract states ratios but no bill of materials. It leaves open the packet network, its rate and prices, and
//! whether modules and network cards are included, so every combination is computed.

use super::claims::{Claim, Label, Section, Unit, near};
use super::why::{Assumption, PublishedRange, Why, assumption, explain};
use crate::cost::PriceList;

const COST: &str = "Opus: a network of photonic rails costs a quarter";
const POWER: &str = "Opus: a network of photonic rails takes 23 times less power";

const HALF: f64 = 0.5;

#[derive(Clone, Copy)]
struct OpenBill {
    tiers: f64,
    copper_to_hosts: bool,
    bills_nic: bool,
    bills_modules: bool,
    rate: &'static str,
    /// 0 for low, 1 for mean, 2 for high.
    ocs: usize,
}

const TIERS: [(f64, &str); 2] = [(2.0, "two tiers"), (3.0, "three tiers")];
const HOSTS: [(bool, &str); 2] = [(false, "two modules"), (true, "copper")];
const NICS: [(bool, &str); 2] = [(false, "not in the bill"), (true, "in the bill")];
const MODULES: [(bool, &str); 2] = [(true, "in the bill"), (false, "not in the bill")];
const RATES: [(&str, &str); 4] =
    [("400g", "400 Gb/s"), ("100g", "100 Gb/s"), ("200g", "200 Gb/s"), ("800g", "800 Gb/s")];
const LEVELS: [(usize, &str); 3] = [(1, "mean"), (0, "low"), (2, "high")];

impl OpenBill {
    /// Packet network ÷ photonic rails. `None` if `of` lacks a part.
    fn ratio(self, of: impl Fn(&str, usize) -> Option<f64>) -> Option<f64> {
        let part = |kind: &str| of(&format!("{kind}-{}", self.rate), 1);
        let nic = if self.bills_nic { part("nic")? } else { 0.0 };
        let module = if self.bills_modules { part("dcn-optical")? } else { 0.0 };
        let to_hosts = if self.copper_to_hosts { 2.0 } else { 0.0 };
        let packets = (2.0 * self.tiers - 1.0) * part("switch-port")?
            + (2.0 * self.tiers - to_hosts) * module;
        Some((nic + packets) / (nic + module + of("ocs-port", self.ocs)?))
    }
}

fn open(choice: &[usize]) -> OpenBill {
    OpenBill {
        tiers: TIERS[choice[0]].0,
        copper_to_hosts: HOSTS[choice[1]].0,
        bills_modules: MODULES[choice[2]].0,
        ocs: LEVELS[choice[3]].0,
        bills_nic: choice.get(4).is_some_and(|nic| NICS[*nic].0),
        rate: choice.get(5).map_or("400g", |rate| RATES[*rate].0),
    }
}

fn assumptions() -> Vec<Assumption> {
    vec![
        assumption("the packet network", &TIERS),
        assumption("its links to hosts", &HOSTS),
        assumption("modules", &MODULES),
        assumption("an optical port", &LEVELS),
    ]
}

#[must_use]
pub fn why(prices: &PriceList) -> Vec<Why> {
    let usd = |part: &str, level: usize| {
        let usd = &prices.quote(part)?.usd;
        Some([usd.low, usd.mean, usd.high][level])
    };
    let watts = |part: &str, level: usize| {
        let watts = prices.quote(part)?.watts.as_ref()?;
        Some([watts.low, watts.mean, watts.high][level])
    };
    let mut with_cards = assumptions();
    with_cards.extend([assumption("network cards", &NICS), assumption("rate", &RATES)]);
    let around = |value: f64| PublishedRange::times(value - HALF, value + HALF);
    let cost = explain(
        "Opus: cost of a packet network ÷ that of photonic rails",
        Some(COST),
        around(4.0),
        with_cards,
        |choice| open(choice).ratio(usd).unwrap_or(f64::NAN),
    );
    let power = explain(
        "Opus: power of a packet network at 400 Gb/s ÷ that of photonic rails",
        Some(POWER),
        around(23.0),
        assumptions(),
        |choice| open(choice).ratio(watts).unwrap_or(f64::NAN),
    );
    vec![cost, power]
}

/// Our values use the first choice of every open parameter.
#[must_use]
pub fn opus(whys: &[Why]) -> Vec<Claim> {
    let mut section = Section::new("Photonic rails, as in the abstract", Label::Read);
    for (why, sentence, value) in [(&whys[0], COST, 4.0), (&whys[1], POWER, 23.0)] {
        section.stands_for(sentence);
        section.add(&why.claim, Unit::Times, near(value, HALF), why.ours);
    }
    section.claims
}
