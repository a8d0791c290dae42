// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LightSource;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FibreEnds {
    pub a: String,
    pub b: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "finding")]
pub enum CablingFinding {
    AsPlanned {
        at_a_mdbm: i32,
        at_b_mdbm: i32,
    },
    Weak {
        at_a_mdbm: i32,
        at_b_mdbm: i32,
        least_mdbm: i32,
    },
    OneWay {
        dark: String,
        power_mdbm: i32,
    },
    Elsewhere {
        at_a: LightSource,
        at_b: LightSource,
    },
    /// Neither end receives light. The cable is missing, broken, or connected to another path of
    /// the same module, which selects one path at a time.
    Missing,
    Untried {
        why: String,
    },
}

impl CablingFinding {
    pub fn is_good(&self) -> bool {
        matches!(self, Self::AsPlanned { .. })
    }
}

/// Two swapped plugs. Swapping them, or the plugs at the other ends, corrects both fibres.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Swap {
    pub plugs: [String; 2],
    pub or: [String; 2],
}

pub fn findings(
    planned: &[FibreEnds],
    found: &BTreeMap<String, LightSource>,
    least_mdbm: impl Fn(&FibreEnds) -> Option<i32>,
) -> Vec<(FibreEnds, CablingFinding)> {
    let not_free = LightSource::Untried {
        why: "it carries a circuit, or no device is configured for it".into(),
    };
    let findings = planned.iter().map(|fibre| {
        let [a, b] = [&fibre.a, &fibre.b].map(|end| found.get(end).unwrap_or(&not_free));
        (fibre.clone(), finding(fibre, [a, b], least_mdbm(fibre)))
    });
    findings.collect()
}

fn finding(
    fibre: &FibreEnds,
    [a, b]: [&LightSource; 2],
    least_mdbm: Option<i32>,
) -> CablingFinding {
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

fn arrives(at: &LightSource, from: &str) -> Option<i32> {
    match at {
        LightSource::End { end, power_mdbm } if end == from => Some(*power_mdbm),
        _ => None,
    }
}

fn is_wrong(at: &LightSource, from: &str) -> bool {
    match at {
        LightSource::End { end, .. } => end != from,
        LightSource::Stranger { .. } => true,
        LightSource::Nothing | LightSource::Untried { .. } => false,
    }
}

fn sorted(one: &str, other: &str) -> [String; 2] {
    let mut pair = [one.to_owned(), other.to_owned()];
    pair.sort();
    pair
}

fn joined<'a>(found: &'a BTreeMap<String, LightSource>, end: &str) -> Option<&'a str> {
    match found.get(end) {
        Some(LightSource::End { end, .. }) => Some(end.as_str()),
        _ => None,
    }
}

pub fn swaps(planned: &[FibreEnds], found: &BTreeMap<String, LightSource>) -> Vec<Swap> {
    let mut partner = BTreeMap::new();
    for fibre in planned {
        partner.insert(fibre.a.as_str(), fibre.b.as_str());
        partner.insert(fibre.b.as_str(), fibre.a.as_str());
    }
    let mut swaps: Vec<Swap> = Vec::new();
    for fibre in planned {
        // a is connected to x instead of b, and y to b although x should be connected to y.
        let Some(x) = joined(found, &fibre.a).filter(|x| *x != fibre.b) else { continue };
        let Some(y) = partner.get(x) else { continue };
        if joined(found, y) != Some(fibre.b.as_str()) {
            continue;
        }
        let swap = Swap { plugs: sorted(&fibre.b, x), or: sorted(&fibre.a, y) };
        if swaps.iter().all(|known| known.plugs != swap.plugs && known.or != swap.plugs) {
            swaps.push(swap);
        }
    }
    swaps
}
