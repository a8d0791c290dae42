//! What the API says: outer twins of what the controller knows.

mod moves;

use std::collections::BTreeMap;

use lightloom_fabric::khop::Port;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::record::{Cause, Past};
use crate::runtime::Runtime;
use crate::state::{DeviceName, Position, Slot, at};

pub use moves::{DeviceBytes, Diff, MoveView, diff};

/// The daemon at one moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub daemon: String,
    /// Counts the changes of what is owned; name it when applying.
    pub version: u64,
    /// The plan last committed.
    pub plan_sha256: String,
    /// The transaction on its way.
    pub transaction: Option<OpenTransaction>,
    /// The confirm that is waited for.
    pub pending: Option<PendingConfirm>,
    /// Devices a transaction left where nobody wanted them.
    pub attention: BTreeMap<String, String>,
    /// Levers that an operator holds drained.
    pub held: Vec<String>,
    /// Records in the journal.
    pub journal_records: u64,
    /// Why changes are refused, if they are.
    pub journal_failure: Option<String>,
    /// The circuits of the plan between nodes, and whether both ends stand at them.
    pub circuits: Vec<CircuitView>,
    /// What the plan goes around.
    pub broken: Vec<String>,
    /// Every device.
    pub devices: Vec<DeviceStatus>,
    /// The last transactions, newest first.
    pub transactions: Vec<Transaction>,
}

/// A transaction on its way.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OpenTransaction {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// Whether it goes back.
    pub going_back: bool,
    /// How many devices it names.
    pub devices: usize,
}

/// A confirm that is waited for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PendingConfirm {
    /// Of which transaction.
    pub txn: u32,
    /// Seconds until it is rolled back.
    pub seconds_left: f64,
}

/// One device.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Who it says it is.
    pub identity: String,
    /// Whether it can be talked to.
    pub up: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// Whether its light is on a transaction's way, settling, as wanted, or lost sight of.
    pub state: &'static str,
    /// Slot to position, as last read. Lit slots only.
    pub slots: BTreeMap<String, u32>,
    /// Output power in dBm by slot, where measured.
    pub power_dbm: BTreeMap<String, f64>,
    /// Slots that stand elsewhere than the ledger says.
    pub drift: Vec<DriftedSlot>,
}

/// A slot in three columns.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DriftedSlot {
    /// The device.
    pub device: String,
    /// The slot.
    pub slot: u32,
    /// Where the ledger says it stands, 0 dark.
    pub ledger: u32,
    /// Where it was read.
    pub device_says: u32,
}

/// A transaction that is over.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Transaction {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub cause: String,
    /// Which plan.
    pub plan_sha256: String,
    /// When it began, Unix time in milliseconds.
    pub unix_ms: u64,
    /// As a whole: committed, rolled-back, aborted, partial.
    pub result: String,
    /// Device by device, those with something to say first.
    pub devices: Vec<DeviceResult>,
}

/// How one device came out of a transaction.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DeviceResult {
    /// The device.
    pub device: String,
    /// applied, untouched, refused, failed, unknown, rolled-back.
    pub verdict: String,
    /// Why.
    pub detail: String,
}

/// A circuit of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CircuitView {
    /// One end, such as `n17/b0.2`.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Both ends stand at it.
    pub stands: bool,
}

/// How many past transactions a status lists.
const TRANSACTIONS_SHOWN: usize = 20;

/// The whole status.
#[must_use]
pub fn status(runtime: &Runtime) -> Status {
    let ledger = runtime.controller.ledger();
    let now = runtime.clock.now();
    Status {
        daemon: env!("CARGO_PKG_VERSION").into(),
        version: ledger.version,
        plan_sha256: ledger.plan_sha256.clone(),
        transaction: ledger.open.as_ref().map(|open| OpenTransaction {
            txn: open.intent.txn.0,
            actor: open.intent.asked.actor.clone(),
            going_back: open.turned.is_some(),
            devices: open.intent.after.len(),
        }),
        pending: ledger.pending.as_ref().map(|pending| PendingConfirm {
            txn: pending.txn.0,
            seconds_left: (pending.deadline(&now) - now.mono).as_secs_f64(),
        }),
        attention: ledger.attention.iter().map(|(d, why)| (d.to_string(), why.clone())).collect(),
        held: ledger.held.iter().map(|(device, slot)| format!("{device}/{slot}")).collect(),
        journal_records: runtime.records,
        journal_failure: runtime.failed.clone(),
        circuits: circuits(runtime),
        broken: runtime.plan.iter().flat_map(|p| &p.faults).map(ToString::to_string).collect(),
        devices: runtime.controller.devices().keys().map(|d| device(runtime, d)).collect(),
        transactions: ledger.history.iter().rev().take(TRANSACTIONS_SHOWN).map(past).collect(),
    }
}

fn circuits(runtime: &Runtime) -> Vec<CircuitView> {
    let stands = |port: Port| {
        let device = runtime.config.bundles.get(&port.bundle)?;
        let seen = runtime.controller.devices().get(device)?;
        let observed = seen.observed.as_ref().filter(|_| seen.up)?;
        Some(at(&observed.positions, Slot(0)) == Position(u32::from(port.path)))
    };
    let of = |circuit: &lightloom_fabric::plan::Circuit| CircuitView {
        a: circuit.a.to_string(),
        b: circuit.b.to_string(),
        stands: [circuit.a, circuit.b].into_iter().all(|port| stands(port) == Some(true)),
    };
    runtime.plan.iter().flat_map(|plan| &plan.circuits).map(of).collect()
}

fn device(runtime: &Runtime, name: &DeviceName) -> DeviceStatus {
    let seen = &runtime.controller.devices()[name];
    let contact = runtime.contacts.get(name).cloned().unwrap_or_default();
    let observed = seen.observed.clone().unwrap_or_default();
    let ledger = runtime.controller.ledger();
    let moving = ledger.open.as_ref().is_some_and(|open| open.intent.after.contains_key(name));
    let state = match () {
        () if !seen.up || seen.observed.is_none() => "unseen",
        () if moving => "moving",
        () if !observed.tuning.is_empty() => "tuning",
        () if ledger.attention.contains_key(name) => "attention",
        () if !seen.drift.is_empty() => "drifted",
        () => "as-wanted",
    };
    DeviceStatus {
        name: name.to_string(),
        identity: contact.identity,
        up: seen.up,
        trouble: contact.trouble,
        state,
        slots: observed.positions.iter().map(|(s, p)| (s.to_string(), p.0)).collect(),
        power_dbm: observed
            .power_mdbm
            .iter()
            .map(|(slot, mdbm)| (slot.to_string(), f64::from(*mdbm) / 1000.0))
            .collect(),
        drift: drift_of(runtime, name),
    }
}

fn drift_of(runtime: &Runtime, name: &DeviceName) -> Vec<DriftedSlot> {
    let of = |drift: &crate::controller::Drift| DriftedSlot {
        device: name.to_string(),
        slot: drift.slot.0,
        ledger: drift.wanted.0,
        device_says: drift.observed.0,
    };
    runtime.controller.devices()[name].drift.iter().map(of).collect()
}

/// Every slot that stands elsewhere.
#[must_use]
pub fn drift(runtime: &Runtime) -> Vec<DriftedSlot> {
    runtime.controller.devices().keys().flat_map(|name| drift_of(runtime, name)).collect()
}

/// A transaction that is over.
#[must_use]
pub fn past(past: &Past) -> Transaction {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut devices: Vec<DeviceResult> = past
        .parts
        .iter()
        .map(|(device, part)| DeviceResult {
            device: device.to_string(),
            verdict: word(serde_json::json!(part.verdict)),
            detail: part.detail.clone(),
        })
        .collect();
    devices.sort_by_key(|device| device.detail.is_empty());
    Transaction {
        txn: past.txn.0,
        actor: past.actor.clone(),
        cause: match &past.cause {
            Cause::Apply => "apply".into(),
            Cause::Rollback(txn) => format!("rollback to before {txn}"),
            Cause::ConfirmTimeout(txn) => format!("{txn} was not confirmed in time"),
            Cause::Bypass => "bypass".into(),
            Cause::Drift => "drift".into(),
        },
        plan_sha256: past.plan_sha256.clone(),
        unix_ms: past.wall_ms,
        result: word(serde_json::json!(past.result)),
        devices,
    }
}
