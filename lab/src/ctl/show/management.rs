// SPDX-License-Identifier: Apache-2.0
//! Management that is lost: what is silent together, and that nothing is moved for it.

use std::fmt::Write;

use lightloom_daemon_api::status::{ManagementLostView, UnwitnessedView};

use super::status::StatusAlarm;
use super::{count, named};
use crate::ctl::time;

/// How many names a line holds.
const NAMES_MAX: usize = 6;

/// What is said of it, first of all.
pub(super) fn alarm(lost: &ManagementLostView) -> StatusAlarm {
    let ManagementLostView { devices, of, lit, unasked, behind, since_unix_ms } = lost;
    let names = named(devices.clone(), NAMES_MAX);
    let since = time::clock_at(*since_unix_ms);
    let mut about = format!("no answer of {names} since {since}");
    if !behind.is_empty() {
        let _ = write!(about, "; all of {}", behind.join(", "));
    }
    if *unasked > 0 {
        let _ =
            write!(about, "; this machine cannot open the lines of {unasked}, see `trouble` below");
    }
    if *lit > 0 {
        let _ = write!(about, "; light of {lit} of them arrives at who answers");
    }
    (
        format!("MANAGEMENT LOST, {} of {of}", count(devices.len(), "device")),
        about,
        "nothing is moved, and it is over when they answer: look at what carries their lines, and at this machine"
            .into(),
    )
}

/// Nodes that are silent and whose light no peer would miss.
pub(super) fn unwitnessed(view: &UnwitnessedView) -> Option<StatusAlarm> {
    let first = view.silent.first()?;
    let about = format!(
        "no answer of {} for longer than {}, and no far end looks at a fibre of theirs",
        named(view.silent.clone(), NAMES_MAX),
        time::span(view.heartbeat_ps as f64 / 1e12)
    );
    let what = format!("SILENT, and nothing can testify, {}", count(view.silent.len(), "node"));
    Some((what, about, format!("if it is dead: lightloom ctl fault {first}")))
}

/// How long such a silence may last, for the body of the status.
pub(super) fn without_witness(view: &UnwitnessedView) -> String {
    format!(
        "no far end looks at {}: if one dies, its silence is said after {} and nothing is bypassed for it\n",
        named(view.nodes.clone(), NAMES_MAX),
        time::span(view.heartbeat_ps as f64 / 1e12)
    )
}
