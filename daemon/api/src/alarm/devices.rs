// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use super::{Alarm, Moment, clock_at, span_ps};
use crate::device::{CrossedEnd, DeviceState, DeviceStatus};
use crate::status::{ContendedDevice, ManagementLostView, Status, UnwitnessedView};
use crate::text::{NAMES_MAX, count, named, natural};

const ENDS_MAX: usize = 4;

pub(super) fn of_changes(status: &Status) -> Vec<Alarm> {
    let attention = status.attention.iter().map(|(device, why)| {
        let next = status.attention_next.get(device);
        let next = next.map_or("see details: lightloom ctl status", String::as_str);
        Alarm::new(format!("{device} NEEDS ACTION"), why, next)
    });
    let deferred = status.owed.iter().map(|(device, deferred)| {
        let what = format!("{device} DEFERRED its part of {}", deferred.what);
        let next = match deferred.next.contains("lightloom ctl") {
            true => deferred.next.clone(),
            false => format!("{}: lightloom ctl wait {device}", deferred.next),
        };
        Alarm::new(what, &deferred.why, next)
    });
    attention.chain(deferred).collect()
}

fn in_state<'a>(
    all: &'a [&DeviceStatus],
    state: DeviceState,
) -> impl Iterator<Item = &'a DeviceStatus> {
    all.iter().copied().filter(move |device| device.state == state)
}

pub(super) fn troubles(all: &[&DeviceStatus], status: &Status) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let restarted = &status.restarted;
    let next = status.drifted_next.as_ref().filter(|_| status.journal_failure.is_none());
    if !restarted.is_empty() {
        let (up, of) = status.circuits_up();
        let names = named(restarted.clone(), NAMES_MAX);
        let what =
            format!("RESTARTED, {} out of step with the journal", count(restarted.len(), "device"));
        let about = format!("circuits up: {up} of {of}; no device has moved since: {names}");
        let next = next.map_or("see where: lightloom ctl drift", String::as_str);
        alarms.push(Alarm::new(what, about, next));
    }
    let unseen: Vec<&DeviceStatus> = in_state(all, DeviceState::Unseen).collect();
    if !unseen.is_empty() {
        let wait = match unseen.len() {
            1..=NAMES_MAX => unseen.iter().map(|device| format!(" {}", device.name)).collect(),
            _ => String::new(),
        };
        let next = format!(
            "check its management line, power and address; the daemon keeps trying: lightloom ctl wait{wait}"
        );
        let what = format!("UNSEEN, {}", count(unseen.len(), "device"));
        alarms.push(Alarm::new(what, unreachable_names(&unseen), next));
    }
    let drifted: Vec<String> = in_state(all, DeviceState::Drifted)
        .map(|device| device.name.clone())
        .filter(|name| !restarted.contains(name))
        .collect();
    if drifted.is_empty() {
        return alarms;
    }
    let (count, names) = (count(drifted.len(), "device"), named(drifted, NAMES_MAX));
    // In version 0, no position has been set or adopted yet, so the light predates the daemon.
    alarms.push(match status.version {
        0 => Alarm::new(
            format!("NOT ADOPTED, {count} with light that this daemon never set"),
            names,
            "accept its positions (nothing moves): lightloom ctl adopt all; see where: lightloom ctl drift",
        ),
        _ => Alarm::new(
            format!("DRIFTED, {count} out of step with the journal"),
            names,
            match next {
                Some(next) => format!("see where: lightloom ctl drift; {next}"),
                None => "see where: lightloom ctl drift".to_owned(),
            },
        ),
    });
    alarms
}

/// Lists the first devices by name, each with the reason why it is unreachable.
pub fn unreachable_names(devices: &[&DeviceStatus]) -> String {
    let mut sorted = devices.to_vec();
    sorted.sort_by_cached_key(|device| natural(&device.name));
    let shown = sorted.iter().take(NAMES_MAX).map(|DeviceStatus { name, trouble, .. }| {
        let why = trouble.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{name}{why}")
    });
    let shown: Vec<String> = shown.collect();
    let more = devices.len().saturating_sub(NAMES_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &more
}

pub(super) fn management(lost: &ManagementLostView, moment: Moment) -> Alarm {
    let ManagementLostView { devices, of, lit, unasked, behind, since_unix_ms } = lost;
    let names = named(devices.clone(), NAMES_MAX);
    let mut about = format!("no answer from {names} since {}", clock_at(moment, *since_unix_ms));
    if !behind.is_empty() {
        let _ = write!(about, "; all of {}", behind.join(", "));
    }
    if *unasked > 0 {
        let _ = write!(
            about,
            "; this host cannot open the management lines of {unasked}, see `trouble` below"
        );
    }
    if *lit > 0 {
        let _ = write!(about, "; the far ends of {lit} of them still receive light");
    }
    let what = format!("MANAGEMENT LOST, {} of {of}", count(devices.len(), "device"));
    let next = "no circuits are switched, and the alarm clears when the devices respond: check their \
        management lines and this host; then: lightloom ctl wait";
    Alarm::new(what, about, next)
}

pub(super) fn unwitnessed(view: &UnwitnessedView) -> Option<Alarm> {
    let first = view.silent.first()?;
    let about = format!(
        "no answer from {} for longer than {}, and no other device can see their light",
        named(view.silent.clone(), NAMES_MAX),
        span_ps(view.heartbeat_ps)
    );
    let what = format!("SILENT without a witness, {}", count(view.silent.len(), "node"));
    Some(Alarm::new(what, about, format!("if it has failed, run: lightloom ctl fault {first}")))
}

pub(super) fn contended(
    contended: &[ContendedDevice],
    moment: Moment,
) -> impl Iterator<Item = Alarm> {
    contended.iter().map(move |known| {
        let stopped = if known.stopped { "; restores are stopped" } else { "" };
        let last = match known.last_unix_ms {
            0 => String::new(),
            last => format!(", last at {}", clock_at(moment, last)),
        };
        let what = format!("ANOTHER CONTROLLER changes {}", known.device);
        Alarm::new(what, format!("{}{last}{stopped}", known.evidence), &known.next)
    })
}

/// `fabric` is the path of the fabric file. `None` if all ends receive the expected light.
pub fn crossed(crossed: &[CrossedEnd], fabric: Option<&str>) -> Option<Alarm> {
    let mut ends: Vec<&CrossedEnd> = crossed.iter().collect();
    ends.sort_by_cached_key(|end| natural(&end.end));
    let first = *ends.first()?;
    let about = ends.iter().map(|CrossedEnd { end, lit_by, should_be }| {
        format!("{end} is lit by {lit_by} instead of {should_be}")
    });
    let about = named(about.collect(), ENDS_MAX);
    let around = fibres(&ends).join(" ");
    let find = commission(fabric);
    // If another end receives the light for this end, the two cables are swapped.
    let look = match ends.iter().find(|end| end.lit_by == first.should_be) {
        Some(other) => format!("swap the cables of {} and {} back", first.end, other.end),
        None => "trace the cables".to_owned(),
    };
    let next = format!("{look}; {find}; or bypass: lightloom ctl fault {around}");
    Some(Alarm::new(format!("CROSSED CABLES? {}", count(ends.len(), "end")), about, next))
}

pub(super) fn commission(fabric: Option<&str>) -> String {
    format!("find swapped plugs: lightloom ctl commission {}", fabric.unwrap_or("FABRIC"))
}

fn fibres<'a>(ends: &[&'a CrossedEnd]) -> Vec<&'a str> {
    let mut named: Vec<(&str, &str)> = Vec::new();
    for CrossedEnd { end, should_be: far, .. } in ends.iter().copied() {
        if !named.contains(&(far, end)) {
            named.push((end, far));
        }
    }
    named.into_iter().map(|(end, _)| end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_two_swapped_cables_and_the_next_step() {
        let end = |ends: [&str; 3]| {
            let [end, lit_by, should_be] = ends.map(str::to_owned);
            CrossedEnd { end, lit_by, should_be }
        };
        assert_eq!(crossed(&[], None), None);
        let pair = [
            ["n1/b0.1", "n6/b1.1", "n5/b1.1"],
            ["n2/b0.1", "n5/b1.1", "n6/b1.1"],
            ["n5/b1.1", "n2/b0.1", "n1/b0.1"],
            ["n6/b1.1", "n1/b0.1", "n2/b0.1"],
        ];
        let Alarm { what, about, next } = crossed(&pair.map(end), Some("ring.yaml")).unwrap();
        assert_eq!(what, "CROSSED CABLES? 4 ends");
        assert!(about.starts_with("n1/b0.1 is lit by n6/b1.1 instead of n5/b1.1, n2/b0.1 is"));
        let typed = "swap the cables of n1/b0.1 and n2/b0.1 back; find swapped plugs: lightloom \
            ctl commission ring.yaml; or bypass: lightloom ctl fault n1/b0.1 n2/b0.1";
        assert_eq!(next, typed);
        let Alarm { next, .. } = crossed(&[end(pair[0])], None).unwrap();
        let typed = "trace the cables; find swapped plugs: lightloom ctl commission FABRIC; or \
            bypass: lightloom ctl fault n1/b0.1";
        assert_eq!(next, typed);
    }
}
