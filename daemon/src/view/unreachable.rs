// SPDX-License-Identifier: Apache-2.0
//! Finds the unreachable devices that block a request, and when to retry the request.

use std::collections::{BTreeMap, BTreeSet};

use super::Knowledge;
use lightloom_control::drive::Site;
use lightloom_control::policy::OnFault;
use lightloom_control::state::{DeviceName, Micros};
use lightloom_daemon_api::status::{ManagementLostView, UnwitnessedView};
use lightloom_daemon_api::text::{NAMES_MAX, named};
use lightloom_drivers::tender::{BACKOFF_MAX, CONNECT_WITHIN};

type Said = BTreeMap<Kind, Vec<(DeviceName, Micros)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Unread,
    Reading,
    NotMissed,
    Reported,
    Tried,
}

pub(super) fn management_lost(known: &Knowledge<'_>) -> Option<ManagementLostView> {
    let now = &known.now;
    let lost = known.control.facts().management_lost(now)?;
    Some(ManagementLostView {
        devices: lost.devices.iter().map(ToString::to_string).collect(),
        of: known.control.sightings().devices().len(),
        lit: lost.lit,
        unasked: lost.unasked,
        behind: lost.behind.iter().map(ToString::to_string).collect(),
        since_unix_ms: now.wall_ms.saturating_sub((now.mono - lost.since).0 / 1000),
    })
}

pub(super) fn unwitnessed(known: &Knowledge<'_>) -> Option<UnwitnessedView> {
    let all = known.control.facts().unwitnessed(&known.now);
    let unreachable = all.iter().filter(|(_, is_unreachable)| **is_unreachable);
    let view = UnwitnessedView {
        nodes: all.keys().map(ToString::to_string).collect(),
        silent: unreachable.map(|(node, _)| node.to_string()).collect(),
        heartbeat_ps: known.control.setup().heartbeat.0.saturating_mul(1_000_000),
    };
    (!view.nodes.is_empty()).then_some(view)
}

pub fn when_known(known: &Knowledge<'_>, reasons: &[String]) -> Vec<String> {
    let devices = known.control.sightings().devices().iter();
    let unreachable = devices.filter(|(device, seen)| {
        let begins = format!("{device}: ");
        !seen.is_read() && reasons.iter().any(|reason| reason.starts_with(&begins))
    });
    when(known, &unreachable.map(|(device, _)| device.clone()).collect())
}

pub(super) fn when(known: &Knowledge<'_>, unreachable: &BTreeSet<DeviceName>) -> Vec<String> {
    let not_bypassed = known.control.not_bypassed(&known.now);
    let (mut said, mut lines) = (Said::new(), Vec::new());
    for device in unreachable {
        match not_bypassed.get(device.as_str()) {
            Some(broken) => {
                let next = match known.control.setup().on_fault {
                    OnFault::Bypass => String::new(),
                    OnFault::Report => {
                        format!(" (`on_fault: report`); bypass it: lightloom ctl fault {device}")
                    }
                };
                lines.push(format!("{device}: {}{next}", broken.why));
            }
            None => {
                let (kind, unreachable_for) = kind(known, device);
                said.entry(kind).or_default().push((device.clone(), unreachable_for));
            }
        }
    }
    lines.truncate(NAMES_MAX);
    lines.extend(said.iter().map(|(kind, devices)| line(known, *kind, devices)));
    lines
}

fn kind(known: &Knowledge<'_>, device: &DeviceName) -> (Kind, Micros) {
    let now = known.now.mono;
    let sightings = known.control.sightings();
    let since = match sightings.devices().get(device) {
        Some(seen) if seen.is_reachable() && seen.observed().is_none() => {
            return (Kind::Reading, Micros(0));
        }
        Some(seen) if seen.is_reachable() => now,
        Some(seen) if seen.trouble().is_some() => {
            sightings.unreachable_since(device).unwrap_or(now)
        }
        _ => return (Kind::Unread, Micros(0)),
    };
    let in_plan = known.control.plan().is_some_and(|plan| {
        plan.transceivers.iter().any(|t| t.bundle.to_string() == device.as_str())
    });
    let kind = match known.control.setup().on_fault {
        _ if !in_plan => Kind::Tried,
        OnFault::Bypass => Kind::NotMissed,
        OnFault::Report => Kind::Reported,
    };
    (kind, now - since)
}

fn line(known: &Knowledge<'_>, kind: Kind, devices: &[(DeviceName, Micros)]) -> String {
    let names: Vec<String> = devices.iter().map(|(device, _)| device.to_string()).collect();
    let shown = named(names.clone(), NAMES_MAX);
    let unreachable = devices.iter().map(|(_, unreachable)| *unreachable).min().unwrap_or_default();
    let replies = devices.iter();
    let replies = replies
        .map(|(device, _)| known.control.sightings().inventory().limits(device).reply_within);
    let fault = format!("lightloom ctl fault {}", names.join(" "));
    // Do not suggest bypassing devices that became unreachable together.
    let is_lost = known.control.facts().management_lost(&known.now).is_some();
    match kind {
        Kind::NotMissed | Kind::Reported if is_lost => format!(
            "{shown}: unresponsive for {} s, like many others: management is lost; retry when \
                they respond",
            unreachable.0 / 1_000_000,
        ),
        Kind::Unread => {
            let connect = CONNECT_WITHIN;
            format!(
                "{shown}: not read yet; its state is known at most {} s after the daemon starts: \
                    lightloom ctl wait, then retry",
                (connect + replies.max().unwrap_or_default()).0.div_ceil(1_000_000)
            )
        }
        Kind::Reading => format!(
            "{shown}: being read for the first time, which takes at most {} s: lightloom ctl \
                wait, then retry",
            replies.max().unwrap_or_default().0.div_ceil(1_000_000)
        ),
        Kind::NotMissed => format!(
            "{shown}: unresponsive for {} s, which is not treated as a fault: it is bypassed only \
                if neighbours report its light missing; retry when it responds, or bypass it: \
                {fault}",
            unreachable.0 / 1_000_000,
        ),
        Kind::Reported => format!(
            "{shown}: unresponsive for {} s; faults are only reported (`on_fault: report`); \
                bypass it: {fault}",
            unreachable.0 / 1_000_000,
        ),
        Kind::Tried => format!(
            "{shown}: unresponsive for {} s; retried at least every {} s: lightloom ctl wait {}, \
                then retry",
            unreachable.0 / 1_000_000,
            BACKOFF_MAX.0 / 1_000_000,
            names.join(" "),
        ),
    }
}
