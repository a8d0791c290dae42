// SPDX-License-Identifier: Apache-2.0
//! The parts that are named as being at fault: which, by what evidence, what else it could be, what to do.

use std::fmt::Write;

use lightloom_daemon_api::diagnosis::{NamedPart, PartKind};

use super::status::StatusAlarm;
use crate::ctl::time;

/// More parts than so many are not listed one by one.
const LISTED_MAX: usize = 6;
/// So much evidence is shown of each.
const EVIDENCE_MAX: usize = 4;

/// One alarm for each part that is named.
pub(super) fn alarms(parts: &[NamedPart]) -> Vec<StatusAlarm> {
    let mut alarms: Vec<StatusAlarm> = parts.iter().take(LISTED_MAX).map(alarm).collect();
    if let Some(more) = parts.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        alarms.push((
            format!("{more} MORE PARTS ARE PROBABLY AT FAULT"),
            "each with its evidence in the status".into(),
            "see them: lightloom ctl status --format json".into(),
        ));
    }
    alarms
}

fn alarm(part: &NamedPart) -> StatusAlarm {
    let evidence = &part.evidence;
    let mut about = evidence.iter().take(EVIDENCE_MAX).cloned().collect::<Vec<_>>().join("; ");
    if let Some(more) = evidence.len().checked_sub(EVIDENCE_MAX).filter(|more| *more > 0) {
        let _ = write!(about, "; and {more} more");
    }
    if let Some(since) = part.since_unix_ms {
        let _ = write!(about, " (when it was bypassed, {})", time::clock_at(since));
    }
    let second = part.second.as_ref().map(|second| format!("; if not, {second} is next"));
    let next = match &part.kind {
        PartKind::Node => "look at the power of the node",
        PartKind::Transceiver => "look at its power and its line, then exchange the transceiver",
        PartKind::Lane => "exchange the transceiver when its light can be spared",
        PartKind::Fibre => "measure the fibre, then exchange it",
        PartKind::Connector => "clean the connector and look again",
        PartKind::SwitchPort => "use another port of the switch",
        PartKind::Other(_) => "look at it",
    };
    let what = format!("PROBABLY AT FAULT, {}", part.part);
    (what, about, format!("{next}{}", second.unwrap_or_default()))
}
