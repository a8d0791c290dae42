// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::{damage_of, words};
use crate::cluster::JournalPlace;
use crate::journal::Damage;
use lightloom_control::drive::{PartEnd, Verdict};
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Broken, Lease, Record};
use lightloom_control::state::{DeviceName, Txn};
use lightloom_daemon_api::log::{Log, LogRecord, RecordKind};

#[must_use]
pub fn log(records: &[Record], damage: Option<&Damage>, place: &JournalPlace, last: usize) -> Log {
    let first = records.len().saturating_sub(last);
    let mut ledger = Ledger::default();
    let mut shown = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let known = ledger.broken.clone();
        let open = ledger.open.as_ref();
        let moves = open.map(|open| open.intent.after.keys().cloned().collect());
        ledger.apply(record);
        if index >= first {
            let mut one = log_record(index as u64 + 1, record);
            one.detail = told(record, one.detail, &ledger, &known, &moves.unwrap_or_default());
            shown.push(one);
        }
    }
    Log {
        readable: records.len() as u64,
        records: shown,
        damage: damage.map(|damage| damage_of(damage, place)),
    }
}

fn told(
    record: &Record,
    detail: String,
    ledger: &Ledger,
    known: &BTreeMap<String, Broken>,
    moves: &BTreeSet<DeviceName>,
) -> String {
    let of = |txn: Txn| {
        let past = ledger.history.iter().rev().find(|past| past.txn == txn);
        past.map(|past| (words::of_past(past), past))
    };
    match record {
        Record::Intent(intent) => words::of_intent(intent, known),
        Record::End { txn, result, parts, .. } => {
            let word = serde_json::json!(result);
            let there = parts.iter().filter(|(_, part)| part.verdict == Verdict::Applied);
            let moved = there.filter(|(device, _)| moves.contains(*device)).count();
            let ended = word.as_str().unwrap_or_default();
            let said = of(*txn).map(|(words, past)| format!(": {words}, by {}", past.actor));
            let said = said.unwrap_or_default();
            let trouble = if detail.is_empty() { detail } else { format!("; {detail}") };
            format!("{ended}{said}; {moved} of {} devices moved{trouble}", parts.len())
        }
        Record::Confirmed { txn, .. } => {
            of(*txn).map(|(words, _)| format!("{words}: confirmed")).unwrap_or_default()
        }
        _ => detail,
    }
}

fn log_record(line: u64, record: &Record) -> LogRecord {
    let names = |devices: &mut dyn Iterator<Item = &DeviceName>| -> Vec<String> {
        devices.map(ToString::to_string).collect()
    };
    let troubles = |parts: &BTreeMap<DeviceName, PartEnd>| {
        let said = parts.iter().filter(|(_, part)| !part.detail.is_empty());
        said.map(|(device, part)| format!("{device}: {}", part.detail))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let (what, wall_ms, txn, asked, detail, parts) = match record {
        Record::Started { daemon, wall_ms } => {
            (RecordKind::Started, *wall_ms, None, None, daemon.clone(), Vec::new())
        }
        Record::Snapshot { ledger, .. } => {
            let detail =
                format!("version {} after transaction {}", ledger.version, ledger.last_txn);
            (RecordKind::Snapshot, 0, None, None, detail, names(&mut ledger.owned.keys()))
        }
        Record::Plan(plan) => {
            let detail = plan.sha256().to_owned();
            (RecordKind::Plan, 0, None, None, detail, Vec::new())
        }
        Record::PlanAfter(plan) => {
            (RecordKind::Plan, 0, None, None, plan.sha256.clone(), Vec::new())
        }
        Record::Reported { asked, parts, wall_ms } => {
            let why: BTreeSet<&str> = parts.values().map(|broken| broken.why.as_str()).collect();
            let detail = why.into_iter().collect::<Vec<_>>().join("; ");
            let parts = parts.keys().cloned().collect();
            (RecordKind::Reported, *wall_ms, None, Some(asked), detail, parts)
        }
        Record::AuditKey { sha256, wall_ms } => {
            (RecordKind::AuditKey, *wall_ms, None, None, format!("SHA-256 {sha256}"), Vec::new())
        }
        Record::Leased { asked, lease, wall_ms } => {
            let detail = match lease {
                Some(Lease { job, within, .. }) => {
                    format!("job {job} for {} ms", within.0.div_ceil(1000))
                }
                None => "released".into(),
            };
            (RecordKind::Leased, *wall_ms, None, Some(asked), detail, Vec::new())
        }
        Record::Intent(intent) => {
            let parts = names(&mut intent.after.keys());
            let (txn, asked) = (Some(intent.txn), Some(&intent.asked));
            (RecordKind::Intent, intent.wall_ms, txn, asked, String::new(), parts)
        }
        Record::Fire { txn, wave, wall_ms } => {
            (RecordKind::Fire, *wall_ms, Some(*txn), None, String::new(), names(&mut wave.keys()))
        }
        Record::Turn { txn, parts, wall_ms } => (
            RecordKind::Turn,
            *wall_ms,
            Some(*txn),
            None,
            troubles(parts),
            names(&mut parts.keys()),
        ),
        Record::End { txn, parts, wall_ms, .. } => {
            (RecordKind::End, *wall_ms, Some(*txn), None, troubles(parts), names(&mut parts.keys()))
        }
        Record::Confirmed { txn, asked, wall_ms } => {
            (RecordKind::Confirmed, *wall_ms, Some(*txn), Some(asked), String::new(), Vec::new())
        }
        Record::Adopted { asked, positions, wall_ms } => {
            let slots: usize = positions.values().map(BTreeMap::len).sum();
            let detail = format!("{slots} paths and cross-connects adopted; no circuit switched");
            (RecordKind::Adopted, *wall_ms, None, Some(asked), detail, names(&mut positions.keys()))
        }
        Record::Held { asked, levers, drained, wall_ms } => {
            let detail = if *drained { "drained" } else { "in use" };
            let parts = levers.iter().map(|(device, slot)| format!("{device}/{slot}")).collect();
            (RecordKind::Held, *wall_ms, None, Some(asked), detail.into(), parts)
        }
        Record::Resumed { asked, wall_ms } => {
            let detail = "the count of automatic changes was reset".into();
            (RecordKind::Resumed, *wall_ms, None, Some(asked), detail, Vec::new())
        }
    };
    LogRecord {
        line,
        unix_ms: Some(wall_ms).filter(|ms| *ms > 0),
        what,
        txn: txn.map(|txn| txn.0),
        actor: asked.map(|asked| asked.actor.to_string()),
        detail,
        parts,
    }
}
