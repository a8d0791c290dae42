// SPDX-License-Identifier: Apache-2.0
//! Finds the failed transceiver, lane, fibre, connector, switch port or node from measurements.
//!
//! Each part predicts symptoms. The best explanation predicts most of the observed symptoms and
//! few others. These symptoms are then removed, and the search continues with the rest.
//!
//! The diagnosis is a pure function for reports. Bypasses do not depend on it.

mod parts;
mod symptoms;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::state::{DeviceName, Slot};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortReading {
    pub reachable: bool,
    pub stands: bool,
    /// Power that each lane sends, as measured by the module, in 1/1000 dBm; empty if unknown.
    pub sent: Vec<i32>,
    /// Power at the end of the fibre, before the module's receiver, in 1/1000 dBm.
    pub tap: Option<i32>,
    /// Power that each lane receives, in 1/1000 dBm; empty if unknown.
    pub received: Vec<i32>,
    /// Bit error rate before correction, as 1/1000 of the decimal logarithm; empty if unknown.
    pub errors: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct End {
    pub node: String,
    pub device: DeviceName,
    pub now: PortReading,
    pub usual: PortReading,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortOnTheWay {
    pub slot: Slot,
    pub stands: bool,
    /// Current and usual power that arrives from its module, in 1/1000 dBm.
    pub arrives: Option<(i32, i32)>,
    /// Current and usual power that leaves towards its module, in 1/1000 dBm.
    pub leaves: Option<(i32, i32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OverSwitch {
    pub switch: DeviceName,
    pub ports: [PortOnTheWay; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loose {
    pub node: String,
    pub device: DeviceName,
    pub reachable: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub ends: [End; 2],
    pub over: Option<OverSwitch>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    Node(String),
    Transceiver(DeviceName),
    Lane(DeviceName, usize),
    Fibre(DeviceName, DeviceName),
    Connector(DeviceName),
    SwitchPort(DeviceName, Slot),
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Transceiver(device) => write!(f, "transceiver {device}"),
            Self::Lane(device, lane) => write!(f, "lane {} of {device}", lane + 1),
            Self::Fibre(one, other) => write!(f, "fibre between {one} and {other}"),
            Self::Connector(device) => write!(f, "connector at {device}"),
            Self::SwitchPort(switch, slot) => write!(f, "port {slot} of {switch}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symptom {
    Unreachable(DeviceName),
    SendsNothing(DeviceName),
    LaneSendsNothing(DeviceName, usize),
    Deaf(DeviceName),
    Strayed(DeviceName),
    Dark(DeviceName, DeviceName),
    Weak(DeviceName, DeviceName),
    Tilted(DeviceName, DeviceName),
    LaneWeak(DeviceName, DeviceName, usize),
    LaneErrors(DeviceName, usize),
    Errors(DeviceName),
    PortStrayed(DeviceName, Slot),
    PortMisses(DeviceName, Slot),
    PortLoses(DeviceName, Slot),
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(device) => write!(f, "{device} does not answer"),
            Self::SendsNothing(device) => write!(f, "{device} reports that it sends no light"),
            Self::LaneSendsNothing(device, lane) => {
                write!(f, "{device} reports that lane {} sends no light", lane + 1)
            }
            Self::Deaf(device) => write!(f, "light reaches {device} but not its lanes"),
            Self::Strayed(device) => write!(f, "{device} is not at the path it was set to"),
            Self::Dark(at, from) => write!(f, "no light from {from} arrives at {at}"),
            Self::Weak(at, from) => write!(f, "less light from {from} arrives at {at}"),
            Self::Tilted(at, from) => {
                write!(
                    f,
                    "less light from {from} arrives at {at}, with the largest loss at long \
                    wavelengths"
                )
            }
            Self::LaneWeak(at, from, lane) => {
                write!(f, "less light from {from} arrives at {at}, on lane {} only", lane + 1)
            }
            Self::LaneErrors(at, lane) => {
                write!(
                    f,
                    "more bit errors at {at} on lane {} only, with normal received power",
                    lane + 1
                )
            }
            Self::Errors(at) => {
                write!(f, "more bit errors at {at} than its received power explains")
            }
            Self::PortStrayed(switch, slot) => {
                write!(f, "port {slot} of {switch} is not in position")
            }
            Self::PortMisses(switch, slot) => {
                write!(f, "too little light arrives at port {slot} of {switch}")
            }
            Self::PortLoses(switch, slot) => {
                write!(f, "too little light leaves port {slot} of {switch}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub culprit: Culprit,
    pub evidence: Vec<Symptom>,
    pub second: Option<Culprit>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = self.evidence.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{}: {evidence}", self.culprit)?;
        match &self.second {
            Some(second) => write!(f, "; or else {second}"),
            None => Ok(()),
        }
    }
}

const NAMED_MAX: usize = 16;

fn near_symptoms(links: &[Link], loose: &[Loose]) -> Vec<Link> {
    let odd = links.iter().filter(|link| !symptoms::of(std::slice::from_ref(link)).is_empty());
    let nodes = odd.flat_map(|link| &link.ends).map(|end| end.node.as_str());
    let unreachable = loose.iter().filter(|loose| !loose.reachable);
    let nodes: BTreeSet<&str> = nodes.chain(unreachable.map(|one| one.node.as_str())).collect();
    let near =
        links.iter().filter(|link| link.ends.iter().any(|end| nodes.contains(end.node.as_str())));
    near.cloned().collect()
}

pub fn diagnose(links: &[Link], loose: &[Loose]) -> Vec<Named> {
    let mut left = symptoms::of(links);
    let unreachable = loose.iter().filter(|loose| !loose.reachable);
    left.extend(unreachable.map(|loose| Symptom::Unreachable(loose.device.clone())));
    if left.is_empty() {
        return Vec::new();
    }
    let explanations = parts::explanations(&near_symptoms(links, loose), loose);
    let mut named: Vec<Named> = Vec::new();
    let mut explained = BTreeSet::new();
    while !left.is_empty() && named.len() < NAMED_MAX {
        let mut scores: BTreeMap<&Culprit, (i32, &parts::Explanation)> = BTreeMap::new();
        for explanation in &explanations {
            let Some(score) = explanation.score(&left, &explained) else { continue };
            let best = scores.entry(&explanation.culprit).or_insert((score, explanation));
            if score > best.0 {
                *best = (score, explanation);
            }
        }
        let best =
            scores.iter().max_by_key(|(culprit, (score, _))| (*score, std::cmp::Reverse(*culprit)));
        let Some((&culprit, &(_, explanation))) = best else { break };
        let evidence: Vec<Symptom> =
            explanation.predicts().filter(|symptom| left.contains(*symptom)).cloned().collect();
        let others = scores.iter().filter(|(other, (_, explanation))| {
            **other != culprit && explanation.predicts().any(|s| evidence.contains(s))
        });
        let next = others.max_by_key(|(_, (score, _))| *score);
        let second = next.map(|(culprit, _)| (*culprit).clone());
        left.retain(|symptom| !evidence.contains(symptom) && !explanation.implies(symptom));
        explained.extend(explanation.predicts().cloned());
        named.push(Named { culprit: culprit.clone(), evidence, second });
    }
    named
}
