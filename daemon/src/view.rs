//! What the API says: outer twins of what the controller knows.

mod attention;
mod circuits;
mod contention;
mod log;
mod module;
mod moves;
pub mod phases;
mod shut;
mod silence;
mod watched;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::journal::Damage;
use crate::runtime::Runtime;
use crate::start::JOURNAL_FILE;
use lightloom_control::bypass::is_inside;
use lightloom_control::controller::{Crossed, DarkFibre, OWN_CHANGES_MAX, end_name};
use lightloom_control::drive::Verdict;
use lightloom_control::inventory::FibreEnd;
use lightloom_control::ledger::{Open, Past};
use lightloom_control::record::{Broken, Cause, TxnResult};
use lightloom_control::state::{DeviceName, Txn};

pub use attention::OwedView;
pub use circuits::{CircuitCounts, CircuitView, DarkCircuits, NoPlan};
pub use contention::ContendedDevice;
pub use log::{Log, LogRecord, log};
pub use module::{GroupView, ModuleView, module};
pub use moves::{DeviceBytes, Diff, MoveView, OtherChange, diff};
pub use shut::ShutPort;
pub use silence::when_known;
pub use watched::watched;

/// The daemon at one moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub daemon: String,
    /// Counts the changes of what is owned; name it when applying.
    pub version: u64,
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
    /// Devices that missed the undoing of a change and are brought back by the daemon itself.
    pub owed: BTreeMap<String, OwedView>,
    /// Levers that an operator holds drained.
    pub held: Vec<String>,
    /// Records in the journal.
    pub journal_records: u64,
    /// Why changes are refused, if they are: the journal cannot be written, or the disk is full.
    pub journal_failure: Option<String>,
    /// Why the audit log cannot be written, if so: changes are refused then, too.
    pub audit_failure: Option<String>,
    /// The circuits of the plan between nodes, and whether both ends stand at them; where no plan is
    /// known, those that what we set and adopted makes.
    pub circuits: Vec<CircuitView>,
    /// Circuits of the plan that do not stand, where nothing else in the status explains it.
    pub dark_circuits: Option<DarkCircuits>,
    /// That no plan is applied and nothing is lit.
    pub no_plan: Option<NoPlan>,
    /// Where the plan on the devices was made from another fabric file than the daemon has read, so that nothing
    /// can be bypassed: what to do.
    pub other_fabric: Option<String>,
    /// What is broken: the plan goes around it, or does not do so yet.
    pub broken: Vec<String>,
    /// The same, with since when and why.
    pub broken_parts: Vec<BrokenPart>,
    /// Fibres that are known to carry no light though both ends look into them, by the end that
    /// misses it; also where the policy is not to bypass them.
    pub dark_fibres: Vec<DarkFibreView>,
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
    /// Where the journal is damaged, if it was when it was opened.
    pub journal_damage: Option<JournalDamage>,
    /// Every device.
    pub devices: Vec<DeviceStatus>,
    /// The last transactions, newest first.
    pub transactions: Vec<Transaction>,
}

/// A plan that was applied, beside the one that is on the devices now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AppliedPlan {
    /// Its hash.
    pub plan_sha256: String,
    /// How many circuits it has.
    pub circuits: usize,
    /// Something is known to be broken that it does not go around.
    pub explained: bool,
}

/// A part that the plan goes around.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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

/// A fibre without light.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
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

/// An end that is lit by another than the fabric says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CrossedEnd {
    /// Who sees it, such as `n17/b0.2`.
    pub end: String,
    /// Whose light arrives.
    pub lit_by: String,
    /// Whose light should.
    pub should_be: String,
}

/// How often the daemon has changed something without being asked: bypasses, and drift put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BypassBudget {
    /// Within the last hour.
    pub used: usize,
    /// The most within an hour; then it only reports.
    pub per_hour: usize,
}

/// Where a journal is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalDamage {
    /// The file.
    pub file: String,
    /// Records before the damage, all of them good.
    pub readable: u64,
    /// The line at which it begins, from 1.
    pub line: u64,
    /// The byte at which that line begins, from 0.
    pub byte: u64,
    /// What is wrong there.
    pub reason: String,
    /// What a person can do.
    pub what_to_do: String,
}

/// What stands elsewhere than the ledger says, and how much of the fabric that answer speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DriftReport {
    /// Slots that stand elsewhere.
    pub slots: Vec<DriftedSlot>,
    /// Whether every device was seen and the ledger can be trusted: only then no slots mean no drift.
    pub complete: bool,
    /// Ends that are lit by others than the fabric says.
    pub crossed: Vec<CrossedEnd>,
    /// Devices that cannot be spoken of.
    pub unseen: Vec<String>,
    /// Why the ledger cannot be trusted.
    pub journal_damage: Option<JournalDamage>,
}

/// A transaction on its way.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OpenTransaction {
    /// Its number.
    pub txn: u32,
    /// Who asked.
    pub actor: String,
    /// Why: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// The same without the transaction that it speaks of.
    pub kind: Kind,
    /// In words: apply of which plan, bypass of what, back to what.
    pub summary: String,
    /// The transaction that it undoes, with everything after that.
    pub undoes: Option<u32>,
    /// Whether it goes back.
    pub going_back: bool,
    /// How many devices it names.
    pub devices: usize,
    /// The devices that do not answer and are waited for, and how much longer at most, in picoseconds.
    pub waits_for_ps: BTreeMap<String, u64>,
}

/// A confirm that is waited for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PendingConfirm {
    /// Of which transaction.
    pub txn: u32,
    /// Seconds until it is rolled back.
    pub seconds_left: f64,
    /// The same in whole picoseconds.
    pub left_ps: u64,
    /// When that is, Unix time in milliseconds by the clock as it stands now.
    pub until_unix_ms: u64,
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
    /// Who sends the light that arrives, by slot, where the device can tell: `n17/b0.2`.
    pub neighbours: BTreeMap<String, String>,
    /// Slots that stand elsewhere than the ledger says.
    pub drift: Vec<DriftedSlot>,
}

/// A slot in three columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
    /// Why: apply, bypass, repair, rollback to before 2.
    pub cause: String,
    /// The same without the transaction that it speaks of.
    pub kind: Kind,
    /// In words: apply of which plan, bypass of what, back to what.
    pub summary: String,
    /// Which plan.
    pub plan_sha256: String,
    /// When it began, Unix time in milliseconds.
    pub unix_ms: u64,
    /// As a whole: committed, rolled-back, aborted, partial; undone when a later one took it back.
    pub result: String,
    /// The same, and for what was committed whether it stays: confirm-pending, confirmed.
    pub state: String,
    /// When it is undone unless somebody confirms, Unix time in milliseconds.
    pub confirm_until_unix_ms: Option<u64>,
    /// The transaction that undid it.
    pub undone_by: Option<u32>,
    /// Parts that it goes around and its predecessor did not.
    pub broken: Vec<String>,
    /// Parts that its predecessor went around and it does not.
    pub repaired: Vec<String>,
    /// Of the last one: ends of its devices that are lit by others than the fabric says.
    pub crossed: Vec<CrossedEnd>,
    /// Of the last one, where it was aborted for devices that do not answer: when to ask again.
    pub when_known: Vec<String>,
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
    /// It did as it was asked, and the light of another is missing at it.
    pub unlit: bool,
}

/// What kind of change a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A plan or circuits.
    Apply,
    /// The next phase of the plan on the devices.
    Phase,
    /// An operator undoes changes.
    Rollback,
    /// A change that was not confirmed in time is undone.
    ConfirmTimeout,
    /// Around what is broken.
    Bypass,
    /// Parts that work again are used again.
    Repair,
    /// What somebody else moved is put back.
    Drift,
    /// A device that answers again gets what it missed.
    Deferred,
}

impl Kind {
    fn of(cause: &Cause) -> Self {
        match cause {
            Cause::Apply => Self::Apply,
            Cause::Phase => Self::Phase,
            Cause::Rollback(_) => Self::Rollback,
            Cause::ConfirmTimeout(_) => Self::ConfirmTimeout,
            Cause::Bypass => Self::Bypass,
            Cause::Repair => Self::Repair,
            Cause::Drift => Self::Drift,
            Cause::Owed(_) => Self::Deferred,
        }
    }
}

/// How many past transactions a status lists.
const TRANSACTIONS_SHOWN: usize = 20;

/// The whole status.
#[must_use]
pub fn status(runtime: &Runtime) -> Status {
    let ledger = runtime.control.controller().ledger();
    let broken_parts = broken_parts(runtime);
    let circuits = circuits::all(runtime);
    let devices: Vec<DeviceStatus> =
        runtime.control.controller().devices().keys().map(|name| device(runtime, name)).collect();
    Status {
        daemon: env!("CARGO_PKG_VERSION").into(),
        version: ledger.version,
        plan_sha256: ledger.plan_sha256.clone(),
        applied: runtime.control.applied().map(|plan| AppliedPlan {
            plan_sha256: ledger.applied_sha256.clone(),
            circuits: plan.circuits.len(),
            explained: runtime.control.is_explained(plan),
        }),
        transaction: ledger.open.as_ref().map(|open| open_transaction(runtime, open)),
        pending: pending(runtime),
        attention: attention::reasons(runtime),
        attention_next: attention::nexts(runtime),
        drifted_next: attention::drifted_next(runtime, &drifted(&devices)),
        owed: attention::owed(runtime),
        held: ledger.held.iter().map(|(device, slot)| format!("{device}/{slot}")).collect(),
        journal_records: runtime.records,
        journal_failure: runtime.control.failed().map(str::to_owned).or_else(|| full_disk(runtime)),
        audit_failure: runtime.audit.failure(),
        dark_circuits: circuits::dark(runtime, &circuits),
        no_plan: circuits::no_plan(runtime, &circuits),
        other_fabric: circuits::other_fabric(runtime),
        circuits,
        broken: broken_parts.iter().map(|broken| broken.part.clone()).collect(),
        broken_parts,
        dark_fibres: dark_fibres(runtime),
        shut: shut::all(runtime),
        crossed: runtime
            .control
            .controller()
            .devices()
            .keys()
            .flat_map(|d| crossed(runtime, d))
            .collect(),
        contended: contention::all(runtime),
        bypass_budget: BypassBudget {
            used: runtime.control.controller().own_changes_spent(&runtime.clock.now()),
            per_hour: OWN_CHANGES_MAX,
        },
        unseen: unseen(runtime),
        journal_damage: journal_damage(runtime),
        devices,
        transactions: ledger
            .history
            .iter()
            .rev()
            .take(TRANSACTIONS_SHOWN)
            .map(|past| transaction(runtime, past))
            .collect(),
    }
}

fn drifted(devices: &[DeviceStatus]) -> Vec<DeviceName> {
    let drifted = devices.iter().filter(|device| device.state == "drifted");
    drifted.map(|device| DeviceName::from(device.name.as_str())).collect()
}

/// Circuits of the plan that do not stand, where nothing else explains it.
#[must_use]
pub fn circuits_dark(runtime: &Runtime) -> usize {
    let dark = circuits::dark(runtime, &circuits::all(runtime));
    dark.map_or(0, |dark| dark.circuits - dark.standing)
}

fn open_transaction(runtime: &Runtime, open: &Open) -> OpenTransaction {
    let waits_for = runtime.control.controller().waits_for(&runtime.clock.now()).into_iter();
    OpenTransaction {
        txn: open.intent.txn.0,
        actor: open.intent.asked.actor.to_string(),
        cause: cause_text(&open.intent.cause),
        kind: Kind::of(&open.intent.cause),
        summary: words::of_intent(&open.intent, &runtime.control.controller().ledger().broken),
        undoes: undone_by(open).map(|txn| txn.0),
        going_back: open.turned.is_some(),
        devices: open.intent.after.len(),
        waits_for_ps: waits_for
            .map(|(device, left)| (device.to_string(), left.0.saturating_mul(1_000_000)))
            .collect(),
    }
}

/// The transaction that this one undoes, with everything after that.
fn undone_by(open: &Open) -> Option<Txn> {
    match open.intent.cause {
        Cause::Rollback(txn) | Cause::ConfirmTimeout(txn) => Some(txn),
        _ => None,
    }
}

/// The confirm that is waited for; none any more once its undo is on its way, for then it would be refused.
fn pending(runtime: &Runtime) -> Option<PendingConfirm> {
    let ledger = runtime.control.controller().ledger();
    let pending = ledger.pending.as_ref().filter(|pending| {
        let undone = ledger.open.as_ref().and_then(undone_by);
        undone.is_none_or(|first| first > pending.txn)
    })?;
    let now = runtime.clock.now();
    let left = pending.deadline(&now) - now.mono;
    Some(PendingConfirm {
        txn: pending.txn.0,
        seconds_left: left.as_secs_f64(),
        left_ps: left.0.saturating_mul(1_000_000),
        until_unix_ms: pending.until_unix_ms(&now),
    })
}

fn broken_parts(runtime: &Runtime) -> Vec<BrokenPart> {
    let mut broken = runtime.control.broken();
    broken.extend(runtime.control.not_bypassed(&runtime.clock.now()));
    broken.into_iter().map(|broken| part(runtime, broken)).collect()
}

fn part(runtime: &Runtime, (part, broken): (String, Broken)) -> BrokenPart {
    BrokenPart {
        bypassed: part.parse().is_ok_and(|part| runtime.control.goes_around(part)),
        part,
        since_unix_ms: Some(broken.wall_ms).filter(|ms| *ms > 0),
        why: broken.why,
    }
}

fn dark_fibres(runtime: &Runtime) -> Vec<DarkFibreView> {
    let broken = runtime.control.broken();
    let known = |end: &FibreEnd| {
        let inside = |part: &String| is_inside(&end_name(end), part);
        broken.keys().any(inside)
    };
    let dark = runtime.control.controller().dark_fibres().into_iter();
    let dark = dark.filter(|dark| !known(&dark.near) && !known(&dark.far));
    let of = |dark: DarkFibre| DarkFibreView {
        near: end_name(&dark.near),
        far: end_name(&dark.far),
        power_dbm: f64::from(dark.power_mdbm) / 1000.0,
        far_is_down: dark.far_is_down,
        far_lit_by: dark.far_lit_by,
    };
    dark.map(of).collect()
}

fn crossed(runtime: &Runtime, device: &DeviceName) -> Vec<CrossedEnd> {
    let of = |crossed: Crossed| CrossedEnd {
        end: end_name(&crossed.end),
        lit_by: crossed.lit_by,
        should_be: end_name(&crossed.should_be),
    };
    runtime.control.controller().crossed(device).into_iter().map(of).collect()
}

/// Devices of which it is not known where they stand.
#[must_use]
pub fn unseen(runtime: &Runtime) -> Vec<String> {
    let devices = runtime.control.controller().devices().iter();
    let unseen = devices.filter(|(_, seen)| !seen.up || seen.observed.is_none());
    unseen.map(|(name, _)| name.to_string()).collect()
}

fn journal_damage(runtime: &Runtime) -> Option<JournalDamage> {
    let damage = runtime.damage.as_ref()?;
    Some(damage_of(damage, &runtime.config.file.state_dir.join(JOURNAL_FILE)))
}

/// What is wrong with a journal, for people.
#[must_use]
pub fn damage_of(damage: &Damage, file: &Path) -> JournalDamage {
    JournalDamage {
        file: file.display().to_string(),
        readable: damage.line as u64 - 1,
        line: damage.line as u64,
        byte: damage.byte as u64,
        reason: damage.reason.clone(),
        what_to_do: Damage::WHAT_TO_DO.into(),
    }
}

fn device(runtime: &Runtime, name: &DeviceName) -> DeviceStatus {
    let seen = &runtime.control.controller().devices()[name];
    let contact = runtime.contacts.get(name).cloned().unwrap_or_default();
    let observed = seen.observed.clone().unwrap_or_default();
    let ledger = runtime.control.controller().ledger();
    let moving = ledger.open.as_ref().is_some_and(|open| open.intent.after.contains_key(name));
    let state = match () {
        () if !seen.up || seen.observed.is_none() => "unseen",
        () if moving => "moving",
        () if !observed.tuning.is_empty() => "tuning",
        () if ledger.attention.contains_key(name) => "attention",
        () if !seen.drift.is_empty() => "drifted",
        () if !runtime.control.controller().crossed(name).is_empty() => "crossed",
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
        neighbours: observed
            .neighbours
            .iter()
            .map(|(slot, seen)| (slot.to_string(), seen.clone()))
            .collect(),
        drift: drift_of(runtime, name),
    }
}

fn drift_of(runtime: &Runtime, name: &DeviceName) -> Vec<DriftedSlot> {
    let of = |drift: &lightloom_control::controller::Drift| DriftedSlot {
        device: name.to_string(),
        slot: drift.slot.0,
        ledger: drift.wanted.0,
        device_says: drift.observed.0,
    };
    runtime.control.controller().devices()[name].drift.iter().map(of).collect()
}

fn full_disk(runtime: &Runtime) -> Option<String> {
    let why = runtime.short_of_space()?;
    Some(format!("the disk is full ({why}): only what is on its way is brought to its end"))
}

/// Every slot that stands elsewhere, and what cannot be spoken of.
#[must_use]
pub fn drift(runtime: &Runtime) -> DriftReport {
    let devices = || runtime.control.controller().devices().keys();
    let (unseen, journal_damage) = (unseen(runtime), journal_damage(runtime));
    DriftReport {
        slots: devices().flat_map(|name| drift_of(runtime, name)).collect(),
        crossed: devices().flat_map(|name| crossed(runtime, name)).collect(),
        complete: unseen.is_empty() && journal_damage.is_none() && !runtime.blind,
        unseen,
        journal_damage,
    }
}

/// A transaction that is over, and whether it stays.
#[must_use]
pub fn transaction(runtime: &Runtime, past: &Past) -> Transaction {
    let mut shown = self::past(past);
    if runtime.control.controller().ledger().last_txn == past.txn {
        shown.crossed = past.parts.keys().flat_map(|name| crossed(runtime, name)).collect();
        if past.result == TxnResult::Aborted {
            let unknown = past.parts.iter().filter(|(_, part)| part.verdict == Verdict::Unknown);
            let silent = unknown.map(|(device, _)| device.clone()).collect();
            shown.when_known = silence::when(runtime, &silent);
        }
    }
    if let Some(pending) = pending(runtime).filter(|pending| pending.txn == past.txn.0) {
        shown.state = "confirm-pending".into();
        shown.confirm_until_unix_ms = Some(pending.until_unix_ms);
    }
    shown
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
            unlit: part.unlit,
        })
        .collect();
    devices.sort_by_key(|device| device.detail.is_empty());
    let result = match past.undone_by {
        Some(_) => "undone".into(),
        None => word(serde_json::json!(past.result)),
    };
    Transaction {
        txn: past.txn.0,
        actor: past.actor.to_string(),
        cause: cause_text(&past.cause),
        kind: Kind::of(&past.cause),
        summary: words::of_past(past),
        plan_sha256: past.plan_sha256.clone(),
        unix_ms: past.wall_ms,
        state: match past.confirmed_ms {
            Some(_) if past.undone_by.is_none() => "confirmed".into(),
            _ => result.clone(),
        },
        result,
        confirm_until_unix_ms: None,
        undone_by: past.undone_by.map(|txn| txn.0),
        broken: words::news(&past.broken_after, &past.broken_before),
        repaired: words::news(&past.broken_before, &past.broken_after),
        crossed: Vec::new(),
        when_known: Vec::new(),
        devices,
    }
}

fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::Apply => "apply".into(),
        Cause::Phase => "phase".into(),
        Cause::Rollback(txn) => format!("rollback to before {txn}"),
        Cause::ConfirmTimeout(txn) => format!("{txn} was not confirmed in time"),
        Cause::Bypass => "bypass".into(),
        Cause::Repair => "repair".into(),
        Cause::Drift => "drift".into(),
        Cause::Owed(txn) => format!("owed since {txn}"),
    }
}
