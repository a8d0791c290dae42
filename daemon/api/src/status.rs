// SPDX-License-Identifier: Apache-2.0
//! Status of the daemon, with faults, dark circuits and remedies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::alarm::Alarm;
use crate::circuit::{CircuitView, DarkCircuits, LoopbackView, NoPlan};
use crate::device::{CrossedEnd, DeviceStatus};
use crate::diagnosis::NamedPart;
use crate::log::JournalDamage;
use crate::transaction::{OpenTransaction, PendingConfirm, Transaction};

/// Snapshot of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Status {
    /// Version of the daemon.
    pub daemon: String,
    /// Conditions that an operator must know about or act on, most urgent first. Empty if all is
    /// well.
    pub alarms: Vec<Alarm>,
    /// One line each for the plan, circuits, automatic changes and devices.
    pub summary: Vec<String>,
    /// Path of the daemon's fabric file.
    pub fabric: Option<String>,
    /// Leader and standbys, if several daemons serve one fabric. `None` for a single daemon.
    pub leadership: Option<LeadershipView>,
    /// Version of the owned state. Pass it as `expected_version` to an apply.
    pub version: u64,
    /// Number of observations and actions so far. Pass it as `since` to wait for the next one.
    pub changes: u64,
    /// Digest of the last committed plan.
    pub plan_sha256: String,
    /// The plan last applied by an operator, if bypasses or repairs have replaced it.
    pub applied: Option<AppliedPlan>,
    /// The open transaction.
    pub transaction: Option<OpenTransaction>,
    /// The pending confirmation.
    pub pending: Option<PendingConfirm>,
    /// Devices that a transaction left in an unwanted position, with the reason.
    pub attention: BTreeMap<String, String>,
    /// Remedy for each device; lists only commands that the daemon would accept now.
    pub attention_next: BTreeMap<String, String>,
    /// Remedy for drifted devices; lists only commands that would be accepted now.
    pub drifted_next: Option<String>,
    /// Drifted devices that lost power or restarted and have not moved since.
    pub restarted: Vec<String>,
    /// Devices that missed a rollback. The daemon restores them when they respond.
    pub owed: BTreeMap<String, OwedView>,
    /// Drain controls that stay drained at an operator's request.
    pub held: Vec<String>,
    /// Devices that these controls drain.
    pub held_off: Vec<String>,
    /// Number of records in the journal.
    pub journal_records: u64,
    /// Why writes to the journal fail, such as a full disk. Changes are refused meanwhile.
    pub journal_failure: Option<String>,
    /// Remedy for a journal that cannot be written.
    pub journal_next: Option<String>,
    /// Why writes to the audit log fail. Changes are refused meanwhile.
    pub audit_failure: Option<String>,
    /// Circuits of the plan between nodes, with their state. If no plan is known, the circuits
    /// between positions that the daemon has set or adopted.
    pub circuits: Vec<CircuitView>,
    /// Loopbacks that close a ring of the plan, and their state.
    pub loopbacks: Vec<LoopbackView>,
    /// Positions that differ from the plan, for a reason that the status does not show elsewhere.
    pub dark_circuits: Option<DarkCircuits>,
    /// The lit circuits, if no plan is applied.
    pub no_plan: Option<NoPlan>,
    /// Remedy if the plan in force was made from a different fabric file, which prevents bypasses.
    pub other_fabric: Option<String>,
    /// Stored state that cannot be read, such as plans of earlier versions.
    pub lost: Vec<LostState>,
    /// Known faults, including those that the plan does not bypass yet.
    pub broken: Vec<String>,
    /// The same faults with time and reason.
    pub broken_parts: Vec<BrokenPart>,
    /// Remedy for unbypassed faults; lists only commands that would be accepted now.
    pub broken_next: Option<String>,
    /// Fibres without light although both ends can be read, whether or not they are bypassed.
    pub dark_fibres: Vec<DarkFibreView>,
    /// Parts that are probably at fault, the best explanation first.
    pub named_parts: Vec<NamedPart>,
    /// Ends without light because their port was shut down, which is not a fault.
    pub shut: Vec<ShutPort>,
    /// Ends that receive light from the wrong port (crossed cables).
    pub crossed: Vec<CrossedEnd>,
    /// Devices that are also changed by another controller, with the evidence.
    pub contended: Vec<ContendedDevice>,
    /// Remaining automatic changes.
    pub bypass_budget: BypassBudget,
    /// Devices that are unreachable, or not read since they became reachable.
    pub unseen: Vec<String>,
    /// Devices that became unreachable together and still send light, and are not bypassed.
    pub management_lost: Option<ManagementLostView>,
    /// Nodes of jobs whose failure would go unnoticed, because no peer observes their light.
    pub unwitnessed: Option<UnwitnessedView>,
    /// Damage found when the journal was opened.
    pub journal_damage: Option<JournalDamage>,
    /// Every device.
    pub devices: Vec<DeviceStatus>,
    /// Recent transactions, newest first.
    pub transactions: Vec<Transaction>,
}

impl Status {
    /// Returns the number of planned circuits and loopbacks that are up, and their total.
    pub fn circuits_up(&self) -> (usize, usize) {
        let circuits = self.circuits.iter().map(|circuit| circuit.stands);
        let all = circuits.chain(self.loopbacks.iter().map(|loopback| loopback.stands));
        all.fold((0, 0), |(up, of), stands| (up + usize::from(stands), of + 1))
    }
}

/// The leader among several daemons, and its standbys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeadershipView {
    /// Name of the leader, which sent this response.
    pub leader: String,
    /// Increases with each new leader.
    pub epoch: u64,
    /// Names of the standbys as of the leader's last lease renewal.
    pub standbys: Vec<String>,
}

/// Stored state that the daemon cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LostState {
    /// The digest of a plan, or a file.
    pub what: String,
    /// The problem with it, and the consequence.
    pub why: String,
    /// Remedy.
    pub next: String,
}

/// The plan last applied by an operator, if another one is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct AppliedPlan {
    /// Digest of the plan.
    pub plan_sha256: String,
    /// Number of circuits in the plan.
    pub circuits: usize,
    /// Whether another plan is in force because this one does not bypass a known fault.
    pub explained: bool,
    /// How to return to it; lists only commands that would be accepted now.
    pub next: Option<String>,
}

/// Older daemons send no `explained`; the default avoids an alarm.
impl Default for AppliedPlan {
    fn default() -> Self {
        Self { plan_sha256: String::new(), circuits: 0, explained: true, next: None }
    }
}

/// A device that missed a rollback. The daemon restores it when it responds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OwedView {
    /// The change that the device missed, such as `the undo of 2`.
    pub what: String,
    /// Why the device missed it.
    pub why: String,
    /// Options for the operator in the meantime.
    pub next: String,
}

/// A known fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BrokenPart {
    /// A node `n17`, a bundle `n17/b0`, or a fibre by its lower port `n17/b0.2`.
    pub part: String,
    /// Time of the report, Unix time in milliseconds. `None` if it was not recorded.
    pub since_unix_ms: Option<u64>,
    /// Source and reason of the report; empty if not recorded.
    pub why: String,
    /// The healthy rings and circuits that its bypass moved; empty if none.
    pub price: String,
    /// Whether the plan in force bypasses the part.
    pub bypassed: bool,
}

/// Older daemons list only bypassed faults, so `bypassed` is true by default.
impl Default for BrokenPart {
    fn default() -> Self {
        let [part, why, price] = [const { String::new() }; 3];
        Self { part, since_unix_ms: None, why, price, bypassed: true }
    }
}

/// A fibre without light.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DarkFibreView {
    /// The receiving end, such as `n17/b0.2`.
    pub near: String,
    /// The sending end.
    pub far: String,
    /// Received power in dBm.
    pub power_dbm: f64,
    /// Whether the sending device is unreachable as well.
    pub far_is_down: bool,
    /// If a cable is crossed, the port whose light the far end receives.
    pub far_lit_by: Option<String>,
}

/// An end that sends no light because its port was shut down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ShutPort {
    /// The end, such as `n17/b0.2`.
    pub end: String,
    /// The end that receives no light from it.
    pub far: String,
    /// Reason that the module reports.
    pub why: String,
    /// Unix time in milliseconds when this was first read.
    pub since_unix_ms: u64,
}

/// Nodes of jobs that no peer observes because their groups lie entirely inside the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UnwitnessedView {
    /// All such nodes.
    pub nodes: Vec<String>,
    /// Nodes that have been unreachable for longer than the heartbeat.
    pub silent: Vec<String>,
    /// How long a node must be unreachable before it is reported, in ps.
    pub heartbeat_ps: u64,
}

/// Devices that became unreachable together while their light is still present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ManagementLostView {
    /// The unreachable devices.
    pub devices: Vec<String>,
    /// Total number of devices.
    pub of: usize,
    /// Number of unreachable devices whose light is received by a reachable one.
    pub lit: usize,
    /// Number of devices that this host cannot query because the serial line is missing or in use.
    pub unasked: usize,
    /// Common points of failure, such as `server ts0`, with only unreachable devices.
    pub behind: Vec<String>,
    /// Unix time in milliseconds when the first device became unreachable.
    pub since_unix_ms: u64,
}

/// A device that is also changed by another controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ContendedDevice {
    /// Device name.
    pub device: String,
    /// Target, count and time window of the other controller's changes, or the holder of a claim.
    pub evidence: String,
    /// How often the other controller changed a position again after the daemon had restored it.
    pub times: u32,
    /// First occurrence, Unix time in milliseconds. 0 if there is only a claim.
    pub first_unix_ms: u64,
    /// Last occurrence, Unix time in milliseconds. 0 if there is only a claim.
    pub last_unix_ms: u64,
    /// Whether the daemon has stopped restoring this device.
    pub stopped: bool,
    /// Remedy.
    pub next: String,
}

/// Automatic changes (bypasses and restored drift) within the last hour, and their limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BypassBudget {
    /// Changes within the last hour.
    pub used: usize,
    /// Maximum number of changes per hour. Above it, the daemon only reports faults and drift.
    pub per_hour: usize,
}
