// SPDX-License-Identifier: Apache-2.0
//! What is wrong with the cabling, fibre by fibre, and which two plugs to exchange.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LightSource;

/// A fibre that the fabric has, by the names of its ends: `n0/b0.1`, `n1/b1.1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FibreEnds {
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
}

/// What light says of a fibre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "finding")]
pub enum CablingFinding {
    /// It joins its two ends, with so much power at each in 1/1000 dBm.
    AsPlanned {
        /// What arrives at the first end.
        at_a_mdbm: i32,
        /// What arrives at the second.
        at_b_mdbm: i32,
    },
    /// As planned, and less light arrives at an end than the budget allows.
    Weak {
        /// What arrives at the first end.
        at_a_mdbm: i32,
        /// What arrives at the second.
        at_b_mdbm: i32,
        /// The least that should.
        least_mdbm: i32,
    },
    /// Light passes one way alone: a dirty or broken fibre of the pair.
    OneWay {
        /// Where none arrives.
        dark: String,
        /// What arrives at the other end.
        power_mdbm: i32,
    },
    /// One end or both are joined with another.
    Elsewhere {
        /// What lights the first end.
        at_a: LightSource,
        /// What lights the second end.
        at_b: LightSource,
    },
    /// No light arrives at either end from anywhere: no cable, a broken one, or one that leads to another path of its
    /// own module, which looks into one at a time.
    Missing,
    /// One end was not tried.
    Untried {
        /// Why.
        why: String,
    },
}

impl CablingFinding {
    /// Whether the fibre may be used.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self, Self::AsPlanned { .. })
    }
}

/// Two plugs in each other's places: exchanging them puts two fibres right, and so does exchanging those at the other
/// ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Swap {
    /// Two plugs.
    pub plugs: [String; 2],
    /// Or these two instead.
    pub or: [String; 2],
}

/// What is found of each planned fibre. `least_mdbm` is what has to arrive within its budget, where that is known.
#[must_use]
pub fn findings(
    planned: &[FibreEnds],
    found: &BTreeMap<String, LightSource>,
    least_mdbm: impl Fn(&FibreEnds) -> Option<i32>,
) -> Vec<(FibreEnds, CablingFinding)> {
    let not_free = LightSource::Untried {
        why: "it carries a circuit, or no device is configured for it".into(),
    };
    let of = |fibre: &FibreEnds| {
        let [a, b] = [&fibre.a, &fibre.b].map(|end| found.get(end).unwrap_or(&not_free));
        (fibre.clone(), finding(fibre, [a, b], least_mdbm(fibre)))
    };
    planned.iter().map(of).collect()
}

fn finding(
    fibre: &FibreEnds,
    [a, b]: [&LightSource; 2],
    least_mdbm: Option<i32>,
) -> CablingFinding {
    let arrives = |at: &LightSource, from: &str| match at {
        LightSource::End { end, power_mdbm } if end == from => Some(*power_mdbm),
        _ => None,
    };
    let is_wrong = |at: &LightSource, from: &str| match at {
        LightSource::End { end, .. } => end != from,
        LightSource::Stranger { .. } => true,
        LightSource::Nothing | LightSource::Untried { .. } => false,
    };
    if is_wrong(a, &fibre.b) || is_wrong(b, &fibre.a) {
        return CablingFinding::Elsewhere { at_a: a.clone(), at_b: b.clone() };
    }
    let untried = [(&fibre.a, a), (&fibre.b, b)].into_iter().find_map(|(end, at)| match at {
        LightSource::Untried { why } => Some(format!("{end}: {why}")),
        _ => None,
    });
    match (arrives(a, &fibre.b), arrives(b, &fibre.a), untried) {
        (_, _, Some(why)) => CablingFinding::Untried { why },
        (Some(at_a_mdbm), Some(at_b_mdbm), _) => match least_mdbm {
            Some(least_mdbm) if at_a_mdbm.min(at_b_mdbm) < least_mdbm => {
                CablingFinding::Weak { at_a_mdbm, at_b_mdbm, least_mdbm }
            }
            _ => CablingFinding::AsPlanned { at_a_mdbm, at_b_mdbm },
        },
        (Some(power_mdbm), None, _) => CablingFinding::OneWay { dark: fibre.b.clone(), power_mdbm },
        (None, Some(power_mdbm), _) => CablingFinding::OneWay { dark: fibre.a.clone(), power_mdbm },
        (None, None, _) => CablingFinding::Missing,
    }
}

/// Plugs whose exchange puts two fibres right: an end is joined with one whose own partner is joined with its own.
#[must_use]
pub fn swaps(planned: &[FibreEnds], found: &BTreeMap<String, LightSource>) -> Vec<Swap> {
    let mut partner = BTreeMap::new();
    for fibre in planned {
        partner.insert(fibre.a.as_str(), fibre.b.as_str());
        partner.insert(fibre.b.as_str(), fibre.a.as_str());
    }
    let joined = |end: &str| match found.get(end) {
        Some(LightSource::End { end, .. }) => Some(end.as_str()),
        _ => None,
    };
    let mut swaps: Vec<Swap> = Vec::new();
    for fibre in planned {
        // a is joined with x and not with b; x should be joined with y, and y is joined with b.
        let Some(x) = joined(&fibre.a).filter(|x| *x != fibre.b) else { continue };
        let Some(y) = partner.get(x) else { continue };
        if joined(y) != Some(fibre.b.as_str()) {
            continue;
        }
        let pair = |one: &str, other: &str| {
            let mut pair = [one.to_owned(), other.to_owned()];
            pair.sort();
            pair
        };
        let swap = Swap { plugs: pair(&fibre.b, x), or: pair(&fibre.a, y) };
        if swaps.iter().all(|known| known.plugs != swap.plugs && known.or != swap.plugs) {
            swaps.push(swap);
        }
    }
    swaps
}
