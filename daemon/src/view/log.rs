// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::{damage_of, words};
use crate::cluster::JournalPlace;
use crate::journal::Damage;
use lightloom_control::drive::Verdict;
use lightloom_control::ledger::{Ledger, Past};
use lightloom_control::record::{Asked, Failed, Lease, Record};
use lightloom_control::state::{DeviceName, Txn};
use lightloom_daemon_api::log::{Log, LogRecord, RecordKind};

pub fn log(records: &[Record], damage: Option<&Damage>, place: &JournalPlace, last: usize) -> Log {
    let first = records.len().saturating_sub(last);
    let mut ledger = Ledger::default();
    let mut shown = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let known = ledger.failed.clone();
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

fn past(ledger: &Ledger, txn: Txn) -> Option<&Past> {
    ledger.history.iter().rev().find(|past| past.txn == txn)
}

fn told(
    record: &Record,
    detail: String,
    ledger: &Ledger,
    known: &BTreeMap<String, Failed>,
    moves: &BTreeSet<DeviceName>,
) -> String {
    match record {
        Record::Intent(intent) => words::of_intent(intent, known),
        Record::End { txn, result, ends, .. } => {
            let word = serde_json::json!(result);
            let there = ends.iter().filter(|(_, end)| end.verdict == Verdict::Applied);
            let moved = there.filter(|(device, _)| moves.contains(*device)).count();
            let ended = word.as_str().unwrap_or_default();
            let said = past(ledger, *txn)
                .map(|past| format!(": {}, by {}", words::of_past(past), past.actor));
            let said = said.unwrap_or_default();
            let trouble = if detail.is_empty() { detail } else { format!("; {detail}") };
            format!("{ended}{said}; {moved} of {} devices moved{trouble}", ends.len())
        }
        Record::Confirmed { txn, .. } => {
            let past = past(ledger, *txn);
            past.map(|past| format!("{}: confirmed", words::of_past(past))).unwrap_or_default()
        }
        _ => detail,
    }
}

fn log_record(line: u64, record: &Record) -> LogRecord {
    let asked = asked_of(record);
    let (what, wall_ms) = kind_and_time(record);
    LogRecord {
        line,
        unix_ms: Some(wall_ms).filter(|ms| *ms > 0),
        what,
        txn: txn_of(record).map(|txn| txn.0),
        actor: asked.map(|asked| asked.actor.to_string()),
        detail: detail_of(record),
        parts: parts_of(record),
    }
}

fn kind_and_time(record: &Record) -> (RecordKind, u64) {
    match record {
        Record::Started { wall_ms, .. } => (RecordKind::Started, *wall_ms),
        Record::Snapshot { .. } => (RecordKind::Snapshot, 0),
        Record::Plan(_) | Record::PlanAfter(_) => (RecordKind::Plan, 0),
        Record::Reported { wall_ms, .. } => (RecordKind::Reported, *wall_ms),
        Record::AuditKey { wall_ms, .. } => (RecordKind::AuditKey, *wall_ms),
        Record::Leased { wall_ms, .. } => (RecordKind::Leased, *wall_ms),
        Record::Intent(intent) => (RecordKind::Intent, intent.wall_ms),
        Record::Fire { wall_ms, .. } => (RecordKind::Fire, *wall_ms),
        Record::Turn { wall_ms, .. } => (RecordKind::Turn, *wall_ms),
        Record::End { wall_ms, .. } => (RecordKind::End, *wall_ms),
        Record::Confirmed { wall_ms, .. } => (RecordKind::Confirmed, *wall_ms),
        Record::Adopted { wall_ms, .. } => (RecordKind::Adopted, *wall_ms),
        Record::Held { wall_ms, .. } => (RecordKind::Held, *wall_ms),
        Record::Resumed { wall_ms, .. } => (RecordKind::Resumed, *wall_ms),
    }
}

fn txn_of(record: &Record) -> Option<Txn> {
    match record {
        Record::Intent(intent) => Some(intent.txn),
        Record::Fire { txn, .. }
        | Record::Turn { txn, .. }
        | Record::End { txn, .. }
        | Record::Confirmed { txn, .. } => Some(*txn),
        _ => None,
    }
}

fn asked_of(record: &Record) -> Option<&Asked> {
    match record {
        Record::Intent(intent) => Some(&intent.asked),
        Record::Reported { asked, .. }
        | Record::Leased { asked, .. }
        | Record::Confirmed { asked, .. }
        | Record::Adopted { asked, .. }
        | Record::Held { asked, .. }
        | Record::Resumed { asked, .. } => Some(asked),
        _ => None,
    }
}

fn detail_of(record: &Record) -> String {
    match record {
        Record::Started { daemon, .. } => daemon.clone(),
        Record::Snapshot { ledger, .. } => {
            format!("version {} after transaction {}", ledger.version, ledger.last_txn)
        }
        Record::Plan(plan) => plan.sha256().to_owned(),
        Record::PlanAfter(plan) => plan.sha256.clone(),
        Record::Reported { parts, .. } => {
            let why: BTreeSet<&str> = parts.values().map(|broken| broken.why.as_str()).collect();
            why.into_iter().collect::<Vec<_>>().join("; ")
        }
        Record::AuditKey { sha256, .. } => format!("SHA-256 {sha256}"),
        Record::Leased { lease: Some(Lease { job, within, .. }), .. } => {
            format!("job {job} for {} ms", within.0.div_ceil(1000))
        }
        Record::Leased { lease: None, .. } => "released".into(),
        Record::Turn { ends, .. } | Record::End { ends, .. } => {
            let said = ends.iter().filter(|(_, end)| !end.detail.is_empty());
            let said = said.map(|(device, end)| format!("{device}: {}", end.detail));
            said.collect::<Vec<_>>().join("; ")
        }
        Record::Adopted { positions, .. } => {
            let slots: usize = positions.values().map(BTreeMap::len).sum();
            format!("{slots} paths and cross-connects adopted; no circuit switched")
        }
        Record::Held { drained, .. } => if *drained { "drained" } else { "in use" }.into(),
        Record::Resumed { .. } => "the count of automatic changes was reset".into(),
        Record::Intent(_) | Record::Fire { .. } | Record::Confirmed { .. } => String::new(),
    }
}

fn parts_of(record: &Record) -> Vec<String> {
    match record {
        Record::Snapshot { ledger, .. } => names(ledger.owned.keys()),
        Record::Reported { parts, .. } => parts.keys().cloned().collect(),
        Record::Intent(intent) => names(intent.after.keys()),
        Record::Fire { wave, .. } => names(wave.keys()),
        Record::Turn { ends, .. } | Record::End { ends, .. } => names(ends.keys()),
        Record::Adopted { positions, .. } => names(positions.keys()),
        Record::Held { levers, .. } => {
            levers.iter().map(|(device, slot)| format!("{device}/{slot}")).collect()
        }
        _ => Vec::new(),
    }
}

fn names<'a>(devices: impl Iterator<Item = &'a DeviceName>) -> Vec<String> {
    devices.map(ToString::to_string).collect()
}
