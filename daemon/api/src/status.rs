// SPDX-License-Identifier: Apache-2.0
//! The daemon at one moment: what is broken, what has no light, what needs an operator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::alarm::Alarm;
use crate::circuit::{CircuitView, DarkCircuits, LoopbackView, NoPlan};
use crate::device::{CrossedEnd, DeviceStatus};
use crate::diagnosis::NamedPart;
use crate::log::JournalDamage;
use crate::transaction::{OpenTransaction, PendingConfirm, Transaction};

/// The daemon at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Status {
    /// The daemon's version.
    pub daemon: String,
    /// Everything that a person has to know or do, worst first. Empty if all is well.
    pub alarms: Vec<Alarm>,
    /// The fabric file of the daemon.
    pub fabric: Option<String>,
    /// Of several daemons for one fabric, who leads and who stands by; nothing where there is one.
    pub leadership: Option<LeadershipView>,
    /// Counts the changes of what is owned; name it when applying.
    pub version: u64,
    /// Counts all that was seen and done since the daemon was started; name it as `since` to wait for the next.
    pub changes: u64,
    /// The plan last committed.
    pub plan_sha256: String,
    /// The plan that somebody applied last, where bypasses and repairs have led to another.
    pub applied: Option<AppliedPlan>,
    /// The transaction on its way.
    pub transaction: Option<OpenTransaction>,
    /// The confirm that is waited for.
    pub pending: Option<PendingConfirm>,
    /// Devices a transaction left where nobody wanted them.
    pub attention: BTreeMap<String, String>,
    /// What to do about each of them: only what would be accepted now.
    pub attention_next: BTreeMap<String, String>,
    /// What to do about devices that stand elsewhere than the journal says: only what would be accepted now.
    pub drifted_next: Option<String>,
    /// Those of them that lost their power or were started again, and have moved no light since.
    pub restarted: Vec<String>,
    /// Devices that missed the undoing of a change and are brought back by the daemon itself.
    pub owed: BTreeMap<String, OwedView>,
    /// Drain controls that an operator holds drained.
    pub held: Vec<String>,
    /// The devices whose traffic they hold off.
    pub held_off: Vec<String>,
    /// Records in the journal.
    pub journal_records: u64,
    /// Why changes are refused, if they are: the journal cannot be written, or the disk is full.
    pub journal_failure: Option<String>,
    /// What to do about the journal that cannot be written.
    pub journal_next: Option<String>,
    /// Why the audit log cannot be written, if so: changes are refused then, too.
    pub audit_failure: Option<String>,
    /// The circuits of the plan between nodes, and whether both ends stand at them; where no plan is
    /// known, those that what we set and adopted makes.
    pub circuits: Vec<CircuitView>,
    /// The loopbacks that close a ring of the plan, and whether they are established.
    pub loopbacks: Vec<LoopbackView>,
    /// Positions of the plan that were read elsewhere, where nothing else in the status explains it.
    pub dark_circuits: Option<DarkCircuits>,
    /// That no plan is applied and nothing is lit.
    pub no_plan: Option<NoPlan>,
    /// Where the plan on the devices was made from another fabric file than the daemon has read, so that nothing
    /// can be bypassed: what to do.
    pub other_fabric: Option<String>,
    /// What the daemon should hold and cannot read: plans, reports of earlier versions.
    pub lost: Vec<LostState>,
    /// What is broken: the plan goes around it, or does not do so yet.
    pub broken: Vec<String>,
    /// The same, with since when and why.
    pub broken_parts: Vec<BrokenPart>,
    /// What to do about those that no plan goes around: only what would be accepted now.
    pub broken_next: Option<String>,
    /// Fibres that are known to carry no light though both ends look into them, by the end that
    /// misses it; also where the policy is not to bypass them.
    pub dark_fibres: Vec<DarkFibreView>,
    /// The parts that are probably at fault, the one that explains most first.
    pub named_parts: Vec<NamedPart>,
    /// Ends that send no light because their port was shut down: no fault, and nothing is moved for it.
    pub shut: Vec<ShutPort>,
    /// Ends that are lit by others than the fabric says: cables plugged in the wrong way round.
    pub crossed: Vec<CrossedEnd>,
    /// Devices that another controller changes as well, with the evidence.
    pub contended: Vec<ContendedDevice>,
    /// What the daemon may still change without being asked.
    pub bypass_budget: BypassBudget,
    /// Devices that cannot be talked to, or have not been read since they can.
    pub unseen: Vec<String>,
    /// Devices that fell silent together and whose light nobody misses: nothing is moved for it.
    pub management_lost: Option<ManagementLostView>,
    /// Nodes of jobs that no far end looks at, so that nobody would miss their light. `None` if there are none.
    pub unwitnessed: Option<UnwitnessedView>,
    /// Where the journal is damaged, if it was when it was opened.
    pub journal_damage: Option<JournalDamage>,
    /// Every device.
    pub devices: Vec<DeviceStatus>,
    /// The last transactions, newest first.
    pub transactions: Vec<Transaction>,
}

impl Status {
    /// How many circuits of the plan are up, and how many there are; a loopback that closes a ring counts as one.
    #[must_use]
    pub fn circuits_up(&self) -> (usize, usize) {
        let circuits = self.circuits.iter().map(|circuit| circuit.stands);
        let all = circuits.chain(self.loopbacks.iter().map(|loopback| loopback.stands));
        all.fold((0, 0), |(up, of), stands| (up + usize::from(stands), of + 1))
    }
}

/// Which of several daemons leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeadershipView {
    /// What the leader is called: the daemon that answers.
    pub leader: String,
    /// Grows with each leader.
    pub epoch: u64,
    /// What those are called that stand by, as of the last renewal of the leader's lease.
    pub standbys: Vec<String>,
}

/// Something that the daemon should hold and cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LostState {
    /// A plan by its digest, or a file.
    pub what: String,
    /// What is wrong with it, and what it costs.
    pub why: String,
    /// What to do.
    pub next: String,
}

/// A plan that was applied, beside the one that is on the devices now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct AppliedPlan {
    /// Its hash.
    pub plan_sha256: String,
    /// How many circuits it has.
    pub circuits: usize,
    /// Something is known to be broken that it does not go around.
    pub explained: bool,
    /// How to get it back: only what would be accepted now.
    pub next: Option<String>,
}

/// A daemon that does not say so raises no alarm.
impl Default for AppliedPlan {
    fn default() -> Self {
        Self { plan_sha256: String::new(), circuits: 0, explained: true, next: None }
    }
}

/// A device that missed the undoing of a change and is brought back by the daemon itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OwedView {
    /// What it missed: `the undoing of 2`.
    pub what: String,
    /// Why it missed it.
    pub why: String,
    /// What can be done meanwhile.
    pub next: String,
}

/// A part that the plan goes around.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BrokenPart {
    /// A node `n17`, a bundle `n17/b0`, or a fibre by its lower port `n17/b0.2`.
    pub part: String,
    /// Since when that is known, Unix time in milliseconds; nothing where nobody wrote it down.
    pub since_unix_ms: Option<u64>,
    /// Who or what says so; empty where nobody wrote it down.
    pub why: String,
    /// The plan on the devices goes around it.
    pub bypassed: bool,
}

/// A daemon that does not say so lists only what the plan goes around.
impl Default for BrokenPart {
    fn default() -> Self {
        Self { part: String::new(), since_unix_ms: None, why: String::new(), bypassed: true }
    }
}

/// A fibre without light.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DarkFibreView {
    /// The end that misses it, such as `n17/b0.2`.
    pub near: String,
    /// The end that should send it.
    pub far: String,
    /// What arrives.
    pub power_dbm: f64,
    /// The far end cannot be talked to either.
    pub far_is_down: bool,
    /// Whose light the far end sees, where that is another's: crossed cables, and not this fibre.
    pub far_lit_by: Option<String>,
}

/// An end that sends no light because its port was shut down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ShutPort {
    /// Which, such as `n17/b0.2`.
    pub end: String,
    /// Who misses its light.
    pub far: String,
    /// What the module says.
    pub why: String,
    /// Since when it was read to say so, Unix time in milliseconds.
    pub since_unix_ms: u64,
}

/// Nodes of jobs that no far end looks at: their groups lie inside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UnwitnessedView {
    /// All of them.
    pub nodes: Vec<String>,
    /// Those of them that are silent for longer than the heartbeat.
    pub silent: Vec<String>,
    /// How long a silence lasts before it is said, in ps.
    pub heartbeat_ps: u64,
}

/// Devices that fell silent together and whose light nobody misses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ManagementLostView {
    /// Which.
    pub devices: Vec<String>,
    /// How many devices there are.
    pub of: usize,
    /// How many of the silent ones are seen to have light by who answers.
    pub lit: usize,
    /// How many of them this machine cannot ask: their lines are missing, or another program has them.
    pub unasked: usize,
    /// What all devices behind it are silent of, such as `server ts0`.
    pub behind: Vec<String>,
    /// Since when the first of them is silent, Unix time in milliseconds.
    pub since_unix_ms: u64,
}

/// A device that another controller changes as well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ContendedDevice {
    /// The device.
    pub device: String,
    /// What was changed, where to, how often and within which time; who holds the claim on it.
    pub evidence: String,
    /// How often what the daemon restored was changed again.
    pub times: u32,
    /// When that was first seen, Unix time in milliseconds; 0 where only a claim is known.
    pub first_unix_ms: u64,
    /// When it was last seen, Unix time in milliseconds; 0 where only a claim is known.
    pub last_unix_ms: u64,
    /// The daemon restores nothing on it any more.
    pub stopped: bool,
    /// What to do.
    pub next: String,
}

/// How often the daemon has changed something without being asked: bypasses, and drift put back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BypassBudget {
    /// Within the last hour.
    pub used: usize,
    /// The most within an hour; then it only reports.
    pub per_hour: usize,
}
