// SPDX-License-Identifier: Apache-2.0
//! Derives alarms from a status: conditions that an operator must know about or act on, with the
//! commands that fix them. `lightloom ctl` and the web page show the same alarms.

mod change;
mod devices;
mod faults;
mod plan;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::device::DeviceStatus;
use crate::status::{BypassBudget, Status};
use crate::text::{NAMES_MAX, named, span};

pub use change::{damage, next as after_change, troubles, way};
pub use devices::{crossed, unreachable_names};
pub use faults::since;

const FREE_SPACE: &str = "circuits stay lit and devices are still read: free space or repair the \
    disk, and lightloomd resumes automatically";

/// A condition that an operator must know about or act on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Alarm {
    /// The condition in capitals, with the number of affected parts.
    pub what: String,
    /// The affected parts, and the reason.
    pub about: String,
    /// The remedy, with at least one command.
    pub next: String,
}

impl Alarm {
    fn new(what: impl Into<String>, about: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), about: about.into(), next: next.into() }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  {}", self.what, self.about, self.next)
    }
}

/// Formats a Unix time in milliseconds as `2026-11-21 18:32:28` in a time zone.
pub type Moment = fn(u64) -> String;

fn clock_at(moment: Moment, unix_ms: u64) -> String {
    let text = moment(unix_ms);
    text.split_once(' ').map_or(text.clone(), |(_, clock)| clock.to_owned())
}

/// Returns all alarms of a status, most urgent first. Empty if all is well.
pub fn alarms(status: &Status, moment: Moment) -> Vec<Alarm> {
    let mut alarms = of_the_daemon(status, moment);
    let open = change::undoing(status);
    alarms.extend(open.clone());
    alarms.extend(change::pending(status, moment));
    alarms.extend(no_standby(status));
    alarms.extend(devices::of_changes(status));
    // With a damaged journal all other changes are refused, so no remedies are offered.
    if status.journal_damage.is_some() {
        return alarms;
    }
    // Other alarms already cover unreachable and deferred devices.
    let lost = status.management_lost.iter().flat_map(|lost| &lost.devices);
    let known: BTreeSet<&String> = lost.chain(status.owed.keys()).collect();
    let rest = status.devices.iter().filter(|device| !known.contains(&device.name));
    let rest: Vec<&DeviceStatus> = rest.collect();
    if status.journal_failure.is_some() {
        alarms.extend(devices::troubles(&rest, status));
        return alarms;
    }
    alarms.extend(devices::contended(&status.contended, moment));
    alarms.extend(devices::troubles(&rest, status));
    alarms.extend(status.unwitnessed.as_ref().and_then(devices::unwitnessed));
    alarms.extend(crossed(&status.crossed, status.fabric.as_deref()));
    alarms.extend(change::did_not_take(status));
    alarms.extend(plan::dark_circuits(status));
    alarms.extend(faults::without_light(status));
    alarms.extend(faults::shut_down(&status.shut, moment));
    alarms.extend(faults::around_faults(status, moment));
    alarms.extend(faults::probably(status, moment));
    alarms.extend(plan::other_fabric(status));
    alarms.extend(plan::fewer_than_applied(status));
    alarms.extend(plan::no_plan(status));
    alarms.extend(change::on_the_way(status).filter(|_| open.is_none()));
    alarms.extend(held(status));
    alarms
}

fn of_the_daemon(status: &Status, moment: Moment) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    alarms.extend(status.management_lost.as_ref().map(|lost| devices::management(lost, moment)));
    alarms.extend(no_bypass_left(status));
    let watch = "follow its state: lightloom ctl watch";
    if let Some((about, next)) = status.journal_damage.as_ref().map(damage) {
        let next = format!("{next}; see its records: lightloom ctl journal --records");
        let what = "JOURNAL DAMAGED, changes are refused";
        alarms.push(Alarm::new(what, about, next));
    } else if let Some(why) = &status.journal_failure {
        let next = status.journal_next.as_deref().unwrap_or(FREE_SPACE);
        let next = format!("{next}; {watch}");
        alarms.push(Alarm::new("JOURNAL CANNOT BE WRITTEN, changes are refused", why, next));
    }
    if let Some(why) = &status.audit_failure {
        let what = "AUDIT LOG CANNOT BE WRITTEN, changes are refused";
        alarms.push(Alarm::new(what, why, format!("{FREE_SPACE}; {watch}")));
    }
    if status.devices.is_empty() {
        let next = "list transceivers and switches in the daemon's file (`lightloom init \
            --daemon FABRIC` creates one) and restart the daemon";
        alarms.push(Alarm::new("NO DEVICES", "this daemon drives no devices", next));
    }
    let lost = status.lost.iter();
    alarms.extend(
        lost.map(|lost| Alarm::new("LOST", format!("{}: {}", lost.what, lost.why), &lost.next)),
    );
    alarms
}

fn no_bypass_left(status: &Status) -> Option<Alarm> {
    let BypassBudget { used, per_hour } = status.bypass_budget;
    let about = format!("{used} automatic changes within an hour");
    let next = "find out why: lightloom ctl journal; then: lightloom ctl resume; or bypass it yourself: lightloom ctl fault PART";
    (per_hour > 0 && used >= per_hour)
        .then(|| Alarm::new("NO BYPASS LEFT, further faults are only reported", about, next))
}

fn no_standby(status: &Status) -> Option<Alarm> {
    let of = status.leadership.as_ref().filter(|of| of.standbys.is_empty())?;
    let about = format!("`{}` is the only daemon: if it fails, no fault is bypassed", of.leader);
    let next = "start one on another host with the same devices and `etcd.prefix`: lightloomd \
        --config FILE";
    Some(Alarm::new("NO STANDBY", about, next))
}

fn held(status: &Status) -> Option<Alarm> {
    let of = if status.held_off.is_empty() { "DEVICE" } else { &status.held_off.join(" ") };
    let next = format!("restore traffic: lightloom ctl undrain {of}");
    let about = named(status.held.clone(), NAMES_MAX);
    (!status.held.is_empty()).then(|| Alarm::new("HELD DRAINED", about, next))
}

fn span_ps(ps: u64) -> String {
    span(ps as f64 / 1e12)
}
