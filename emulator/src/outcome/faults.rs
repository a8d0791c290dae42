// SPDX-License-Identifier: Apache-2.0
//! What each fault did: to groups, to flows and to phases; and its line for people.

use std::fmt;

use lightloom_units::id::{GroupId, LeafId};
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use super::{JobLoss, Stage};

/// What one fault did, and how it was healed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultResult {
    /// What broke.
    pub parts: Vec<String>,
    /// How, as it is written.
    pub effect: String,
    /// When it broke. `None` if the run never came there.
    #[serde(rename = "at_ps")]
    pub at: Option<SimTime>,
    /// When the control plane knew.
    #[serde(rename = "detected_ps")]
    pub detected: Option<SimTime>,
    /// When the next plan was there.
    #[serde(rename = "replanned_ps")]
    pub replanned: Option<SimTime>,
    /// When the last transceiver was lit again and the last group went on; nothing if one never did.
    #[serde(rename = "restored_ps")]
    pub restored: Option<SimTime>,
    /// Why that never came, where groups still wait for it. `None` if it came, or none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<NotRestored>,
    /// When the part worked again. `None` if it never did.
    #[serde(rename = "repaired_ps")]
    pub repaired: Option<SimTime>,
    /// Bundles that switched.
    pub bundles_switched: usize,
    /// Shortest and longest time a bundle was dark.
    #[serde(rename = "dark_ps")]
    pub dark: Option<[Picoseconds; 2]>,
    /// How long its receivers then took until they passed bits on, as the fabric has it. `None` where no bundle switched.
    #[serde(rename = "relock_ps", default, skip_serializing_if = "Option::is_none")]
    pub relock: Option<Picoseconds>,
    /// Groups whose collectives it stopped or delayed.
    pub groups_affected: Vec<GroupId>,
    /// Groups of jobs that train which end every step at the same picosecond in a run without this fault. `None` if that
    /// was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_unaffected: Option<Vec<GroupId>>,
    /// What the next two figures count: hosts where nothing says how many GPUs a host has.
    #[serde(default, skip_serializing_if = "EndpointKind::is_gpus")]
    pub counted: EndpointKind,
    /// GPUs of these groups.
    pub gpus_affected: u64,
    /// GPUs that went out of service: those of the part that broke, and of groups that were lost.
    pub gpus_lost: u64,
    /// How much later than without faults the slowest of these groups, or of the workloads it moved, ended; nothing
    /// if one of them has work left.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// What the daemon did about it, stage by stage; empty where the control plane is assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Stage>,
    /// What jobs that train lost for it, cause by cause. Empty where no run without it is there, or a job has steps left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<JobLoss>,
    /// What it did to traffic between hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficImpact>,
    /// What it did to the phases of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseImpact>,
}

/// Why groups still wait for what follows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotRestored {
    /// A bundle in loopback fell silent. Its light reaches no neighbour that could miss it, and for the daemon silence alone
    /// is no death: the same is seen of a module that works behind a cut management line.
    InLoopback,
    /// It was detected, and too few nodes are left to form its groups again.
    NoNodes,
    /// It was not detected before the run ended.
    NotDetected,
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InLoopback => {
                "a silent bundle in loopback, which no neighbour can tell from a cut line"
            }
            Self::NoNodes => "detected, and too few nodes are left",
            Self::NotDetected => "not detected",
        })
    }
}

/// What stands at the ends of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// GPUs of a fabric.
    #[default]
    Gpus,
    /// Hosts of a network written in place.
    Hosts,
}

impl EndpointKind {
    fn is_gpus(&self) -> bool {
        *self == Self::Gpus
    }

    fn of(self, number: u64) -> String {
        match self {
            Self::Gpus => count(number, "GPU", "GPUs"),
            Self::Hosts => count(number, "host", "hosts"),
        }
    }
}

/// What a fault did to the phases of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseImpact {
    /// Circuits that lost their light or their test because of it, over the whole run.
    pub circuits_lost: usize,
    /// Changes that were missed, for there was no control plane to command them.
    pub changes_missed: u32,
    /// Leaves at the ends of these circuits.
    pub leaves_affected: Vec<LeafId>,
    /// Packets lost with this fault alone, beyond those without any.
    pub packets_lost: u64,
    /// Phases that took at least a thousandth longer with this fault alone than without, as
    /// `step/phase`.
    pub phases_slowed: Vec<String>,
    /// How much longer all steps took with this fault alone. `None` if they never ended.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
}

/// What a fault did to flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficImpact {
    /// Flows that were on its links when it happened.
    pub flows_hit: u64,
    /// Flows that ended at another picosecond than without faults, or not at all, for it.
    pub flows_moved: u64,
    /// Flows that were given up, for nothing leads around it.
    pub flows_given_up: u64,
    /// Workloads of the flows that moved.
    pub workloads: Vec<String>,
    /// Hosts at the ends of the flows that moved.
    pub hosts: Vec<String>,
}

impl FaultResult {
    /// What broke, as it is written.
    #[must_use]
    pub fn what(&self) -> String {
        self.parts.join(", ")
    }
}

/// Groups that are written one by one.
const FEW_GROUPS: usize = 8;

/// Groups in order, by name; many as stretches: `g0-g63`.
#[must_use]
pub fn listed(groups: &[GroupId]) -> String {
    let stretches = groups.chunk_by(|a, b| groups.len() > FEW_GROUPS && a.0 + 1 == b.0);
    let name = |stretch: &[GroupId]| match stretch {
        [first, .., last] => format!("{first}-{last}"),
        _ => stretch.iter().map(ToString::to_string).collect(),
    };
    stretches.map(name).collect::<Vec<String>>().join(" ")
}

impl FaultResult {
    /// Returns whether a group, a host or a phase was affected.
    pub(crate) fn had_effect(&self) -> bool {
        let ended_later = self.delay != Some(Picoseconds::ZERO);
        ended_later || !self.groups_affected.is_empty() || self.gpus_affected + self.gpus_lost > 0
    }
}

/// One line: when it was known, planned around and restored, and what it affected.
impl fmt::Display for FaultResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        let effect =
            if self.effect == "down" { String::new() } else { format!(" ({})", self.effect) };
        let Some(at) = self.at else { return write!(f, "{what}{effect}: never reached") };
        write!(f, "{what}{effect} at {at}: ")?;
        let since = |time: Option<SimTime>| {
            time.map_or("never".to_owned(), |t| format!("+{}", t.since(at)))
        };
        let groups = listed(&self.groups_affected);
        let is_planned = self.replanned.is_some() && self.traffic.is_none()
            || self.bundles_switched > 0
            || !groups.is_empty();
        match (is_planned, self.restored) {
            (true, restored) => write!(
                f,
                "detected {}, replanned {}, restored {}; {}",
                since(self.detected),
                since(self.replanned),
                since(restored),
                count(self.bundles_switched as u64, "bundle switched", "bundles switched"),
            )?,
            (false, Some(restored)) => write!(f, "restored +{}", restored.since(at))?,
            (false, None) if !self.had_effect() => f.write_str("nothing to restore")?,
            (false, None) => f.write_str("not restored")?,
        }
        if let Some([least, most]) = self.dark {
            write!(f, ", dark for {least} to {most}")?;
            match self.relock.unwrap_or_default() {
                Picoseconds::ZERO => f.write_str(" (relock 0 s)")?,
                relock => write!(f, ", then {relock} to relock")?,
            }
        }
        if !groups.is_empty() {
            let gpus = count(self.gpus_affected, "GPU", "GPUs");
            write!(f, "; affected {groups} ({gpus})")?;
        } else if self.traffic.is_none() && self.phases.is_none() {
            f.write_str("; affected no group")?;
        }
        if let Some(traffic) = &self.traffic {
            write!(f, "; {traffic}")?;
        }
        if let Some(phases) = &self.phases {
            write!(f, "; {phases}")?;
        }
        if self.gpus_lost > 0 {
            write!(f, "; {} out of service", self.counted.of(self.gpus_lost))?;
        }
        match self.delay {
            Some(Picoseconds(0)) => f.write_str("; nothing ended later")?,
            Some(delay) => write!(f, "; {delay} late at most")?,
            None => f.write_str("; work left undone")?,
        }
        self.not_restored.map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

impl fmt::Display for TrafficImpact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = count(self.hosts.len() as u64, "host", "hosts");
        let parts = [
            (self.flows_hit, format!("{} on its links", count(self.flows_hit, "flow", "flows"))),
            (
                self.flows_moved,
                format!("{} ended at another time", count(self.flows_moved, "flow", "flows")),
            ),
            (
                self.flows_given_up,
                format!("{} given up", count(self.flows_given_up, "flow", "flows")),
            ),
            (
                self.workloads.len() as u64,
                format!("affected {hosts} of {}", self.workloads.join(", ")),
            ),
        ];
        what_happened(f, parts, "affected no flow")
    }
}

impl fmt::Display for PhaseImpact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [circuits, leaves, changes] = [
            self.circuits_lost as u64,
            self.leaves_affected.len() as u64,
            u64::from(self.changes_missed),
        ];
        let slowed = self.phases_slowed.len() as u64;
        let parts = [
            (circuits, format!("{} lost", count(circuits, "circuit", "circuits"))),
            (leaves, format!("{} affected", count(leaves, "leaf", "leaves"))),
            (changes, format!("{} of circuits missed", count(changes, "change", "changes"))),
            (self.packets_lost, format!("{} lost", count(self.packets_lost, "packet", "packets"))),
            (slowed, format!("slowed {}", self.phases_slowed.join(", "))),
        ];
        what_happened(f, parts, "affected no phase")
    }
}

/// Of what can happen, what did; `nothing` where none of it did.
fn what_happened<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    parts: [(u64, String); N],
    nothing: &str,
) -> fmt::Result {
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(_, words)| words).collect();
    f.write_str(&if parts.is_empty() { nothing.to_owned() } else { parts.join(", ") })
}

/// A number with its noun.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
