//! The journal's records for people: when, what, who, which devices.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use utoipa::ToSchema;

use super::{JournalDamage, cause_text, damage_of};
use crate::drive::PartEnd;
use crate::journal::read_all;
use crate::record::Record;
use crate::state::DeviceName;

/// The journal's file, record by record, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Log {
    /// How many records can be read.
    pub readable: u64,
    /// The last of them, oldest first.
    pub records: Vec<LogRecord>,
    /// Where the damage begins, if there is any.
    pub damage: Option<JournalDamage>,
}

/// One record of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogRecord {
    /// Its line, from 1.
    pub line: u64,
    /// When, Unix time in milliseconds; nothing in journals that did not write it down.
    pub unix_ms: Option<u64>,
    /// What: started, snapshot, intent, fire, turn, end, confirmed, adopted, held.
    pub what: String,
    /// Of which transaction.
    pub txn: Option<u32>,
    /// Who asked.
    pub actor: Option<String>,
    /// In words: why, or how it ended.
    pub detail: String,
    /// The devices it speaks of.
    pub parts: Vec<String>,
}

/// The journal in `bytes`, its last records in words.
#[must_use]
pub fn log(bytes: &[u8], file: &Path, last: usize) -> Log {
    let (records, _, damage) = read_all::<Record>(bytes);
    let first = records.len().saturating_sub(last);
    let shown = records.iter().enumerate().skip(first);
    Log {
        readable: records.len() as u64,
        records: shown.map(|(index, record)| log_record(index as u64 + 1, record)).collect(),
        damage: damage.map(|damage| damage_of(&damage, file)),
    }
}

fn log_record(line: u64, record: &Record) -> LogRecord {
    let names = |devices: &mut dyn Iterator<Item = &DeviceName>| -> Vec<String> {
        devices.map(ToString::to_string).collect()
    };
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let troubles = |parts: &BTreeMap<DeviceName, PartEnd>| {
        let said = parts.iter().filter(|(_, part)| !part.detail.is_empty());
        said.map(|(device, part)| format!("{device}: {}", part.detail))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let (what, wall_ms, txn, asked, detail, parts) = match record {
        Record::Started { daemon, wall_ms } => {
            ("started", *wall_ms, None, None, daemon.clone(), Vec::new())
        }
        Record::Snapshot { ledger, .. } => {
            let detail =
                format!("version {} after transaction {}", ledger.version, ledger.last_txn);
            ("snapshot", 0, None, None, detail, names(&mut ledger.owned.keys()))
        }
        Record::Intent(intent) => {
            let parts = names(&mut intent.after.keys());
            let cause = cause_text(&intent.cause);
            ("intent", intent.wall_ms, Some(intent.txn), Some(&intent.asked), cause, parts)
        }
        Record::Fire { txn, wave, wall_ms } => {
            ("fire", *wall_ms, Some(*txn), None, String::new(), names(&mut wave.keys()))
        }
        Record::Turn { txn, parts, wall_ms } => {
            ("turn", *wall_ms, Some(*txn), None, troubles(parts), names(&mut parts.keys()))
        }
        Record::End { txn, result, parts, wall_ms, .. } => {
            let detail =
                [word(serde_json::json!(result)), troubles(parts)].join(" ").trim().to_owned();
            ("end", *wall_ms, Some(*txn), None, detail, names(&mut parts.keys()))
        }
        Record::Confirmed { txn, asked, wall_ms } => {
            ("confirmed", *wall_ms, Some(*txn), Some(asked), String::new(), Vec::new())
        }
        Record::Adopted { asked, positions, wall_ms } => {
            ("adopted", *wall_ms, None, Some(asked), String::new(), names(&mut positions.keys()))
        }
        Record::Held { asked, levers, drained, wall_ms } => {
            let detail = if *drained { "drained" } else { "in use" };
            let parts = levers.iter().map(|(device, slot)| format!("{device}/{slot}")).collect();
            ("held", *wall_ms, None, Some(asked), detail.into(), parts)
        }
    };
    LogRecord {
        line,
        unix_ms: Some(wall_ms).filter(|ms| *ms > 0),
        what: what.into(),
        txn: txn.map(|txn| txn.0),
        actor: asked.map(|asked| asked.actor.clone()),
        detail,
        parts,
    }
}
