// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use lightloom_units::id::{GroupId, LeafId};
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use super::{JobLoss, Stage};

/// Effects of one fault, and the recovery from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultResult {
    /// Failed parts.
    pub parts: Vec<String>,
    /// Effect of the fault on the parts, as written in the scenario.
    pub effect: String,
    /// Start time of the fault. `None` if the run ended earlier.
    #[serde(rename = "at_ps")]
    pub at: Option<SimTime>,
    /// When the control plane detected the fault.
    #[serde(rename = "detected_ps")]
    pub detected: Option<SimTime>,
    /// When the new plan was ready.
    #[serde(rename = "replanned_ps")]
    pub replanned: Option<SimTime>,
    /// When all transceivers had light and all groups had resumed. `None` if that never happened.
    #[serde(rename = "restored_ps")]
    pub restored: Option<SimTime>,
    /// Why groups were not restored. `None` if no group is waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<NotRestored>,
    /// When the part was repaired. `None` if it never was.
    #[serde(rename = "repaired_ps")]
    pub repaired: Option<SimTime>,
    /// Number of bundles that switched paths.
    pub bundles_switched: usize,
    /// Shortest and longest dark time of a bundle.
    #[serde(rename = "dark_ps")]
    pub dark: Option<[Picoseconds; 2]>,
    /// Lock time of the receivers after switching, from the fabric file. `None` if no bundle switched.
    #[serde(rename = "relock_ps", default, skip_serializing_if = "Option::is_none")]
    pub relock: Option<Picoseconds>,
    /// Groups with collectives that the fault stopped or delayed.
    pub groups_affected: Vec<GroupId>,
    /// Groups not delayed by this fault. `None` without training jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_unaffected: Option<Vec<GroupId>>,
    /// Unit of `gpus_affected` and `gpus_lost`: hosts if the number of GPUs per host is unknown.
    #[serde(default, skip_serializing_if = "EndpointKind::is_gpus")]
    pub counted: EndpointKind,
    /// GPUs in the affected groups.
    pub gpus_affected: u64,
    /// GPUs taken out of service by the failed part or by the loss of their groups.
    pub gpus_lost: u64,
    /// Delay of the slowest affected group or workload. `None` if one did not finish.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// Recovery stages under the shipped daemon. Empty if the control plane is modelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Stage>,
    /// Losses of training jobs by cause. Omits jobs with unfinished steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<JobLoss>,
    /// Effects on host-to-host traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficImpact>,
    /// Effects on the phases of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseImpact>,
}

/// Why groups were not restored after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotRestored {
    /// A bundle in loopback stopped responding. No neighbour receives its light, so the node may
    /// still work behind a cut management line.
    InLoopback,
    /// Detected, but too few nodes are left to re-form the groups.
    NoNodes,
    /// Not detected before the run ended.
    NotDetected,
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InLoopback => {
                "an unresponsive bundle in loopback, indistinguishable from a cut management line"
            }
            Self::NoNodes => "detected, but too few nodes remain",
            Self::NotDetected => "not detected",
        })
    }
}

/// Kind of network endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// GPUs of a fabric.
    #[default]
    Gpus,
    /// Hosts of a network that the scenario defines.
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

/// Effects of a fault on phases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseImpact {
    /// Circuits that went dark or failed their test because of the fault, over the whole run.
    pub circuits_lost: usize,
    /// Changes prevented by a control plane outage.
    pub changes_missed: u32,
    /// Leaves connected to these circuits.
    pub leaves_affected: Vec<LeafId>,
    /// Additional packets lost in affected phases, relative to the run without faults.
    pub packets_lost: u64,
    /// Phases slowed by at least 0.1 %, as `step/phase`.
    pub phases_slowed: Vec<String>,
    /// Total delay of all steps. `None` if they did not finish.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
}

/// Effects of a fault on host-to-host flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficImpact {
    /// Flows on the failed links at the start of the fault.
    pub flows_hit: u64,
    /// Flows that ended at a different time, even by a picosecond, or never finished.
    pub flows_moved: u64,
    /// Flows abandoned because no alternative path exists.
    pub flows_given_up: u64,
    /// Workloads of the changed flows.
    pub workloads: Vec<String>,
    /// Source and destination hosts of the changed flows.
    pub hosts: Vec<String>,
}

impl FaultResult {
    /// Returns the names of the failed parts.
    pub fn what(&self) -> String {
        self.parts.join(", ")
    }
}

const FEW_GROUPS: usize = 8;

/// Returns the names of sorted groups, shortened to ranges such as `g0-g63` in long lists.
pub fn listed(groups: &[GroupId]) -> String {
    let stretches = groups.chunk_by(|a, b| groups.len() > FEW_GROUPS && a.0 + 1 == b.0);
    let names = stretches.map(|stretch| match stretch {
        [first, .., last] => format!("{first}-{last}"),
        _ => stretch.iter().map(ToString::to_string).collect(),
    });
    names.collect::<Vec<String>>().join(" ")
}

impl FaultResult {
    /// Losing idle GPUs has no effect.
    pub(crate) fn had_effect(&self) -> bool {
        let is_late = self.delay != Some(Picoseconds::ZERO);
        let is_affected = !self.groups_affected.is_empty() || self.gpus_affected > 0;
        let has_circuits = self.phases.as_ref().is_some_and(|phases| phases.circuits_lost > 0);
        is_late || is_affected || has_circuits || self.bundles_switched > 0
    }
}

impl fmt::Display for FaultResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        let effect =
            if self.effect == "down" { String::new() } else { format!(" ({})", self.effect) };
        let Some(at) = self.at else {
            return write!(f, "{what}{effect}: starts after the end of the run");
        };
        write!(f, "{what}{effect} at {at}: ")?;
        let groups = listed(&self.groups_affected);
        let is_planned = self.replanned.is_some() && self.traffic.is_none()
            || self.bundles_switched > 0
            || !groups.is_empty();
        match (is_planned, self.restored) {
            (_, None) if !self.had_effect() => f.write_str("no restoration needed")?,
            (true, restored) => {
                let [detected, replanned, restored] = [self.detected, self.replanned, restored]
                    .map(|time| time.map_or("never".to_owned(), |t| format!("+{}", t.since(at))));
                let switched = self.bundles_switched as u64;
                let switched = count(switched, "bundle switched", "bundles switched");
                write!(
                    f,
                    "detected {detected}, replanned {replanned}, restored {restored}; {switched}"
                )?;
            }
            (false, Some(restored)) => write!(f, "restored +{}", restored.since(at))?,
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
            Some(Picoseconds(0)) => f.write_str("; no delay")?,
            Some(delay) => write!(f, "; delayed by up to {delay}")?,
            None => f.write_str("; unfinished work")?,
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
                format!("{} with a different end time", count(self.flows_moved, "flow", "flows")),
            ),
            (
                self.flows_given_up,
                format!("{} abandoned", count(self.flows_given_up, "flow", "flows")),
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
            (changes, format!("{} prevented", count(changes, "circuit change", "circuit changes"))),
            (self.packets_lost, format!("{} lost", count(self.packets_lost, "packet", "packets"))),
            (slowed, format!("slowed {}", self.phases_slowed.join(", "))),
        ];
        what_happened(f, parts, "affected no phase")
    }
}

fn what_happened<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    parts: [(u64, String); N],
    nothing: &str,
) -> fmt::Result {
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(_, words)| words).collect();
    f.write_str(&if parts.is_empty() { nothing.to_owned() } else { parts.join(", ") })
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
