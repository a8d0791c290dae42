// SPDX-License-Identifier: Apache-2.0
//! The lines of a status between its alarms and its devices.

use crate::device::DeviceState;
use crate::status::{BypassBudget, LeadershipView, Status};
use crate::text::{NAMES_MAX, count, is_bundle, named, span};

/// Returns the lines in order.
pub fn summary(status: &Status) -> Vec<String> {
    let Status { plan_sha256: plan, version, journal_records: records, .. } = status;
    let plan = if plan.is_empty() { "none" } else { plan.get(..12).unwrap_or(plan) };
    let first = format!("version {version}, plan {plan}, {records} journal records");
    let leadership = status.leadership.as_ref().map(|view| {
        let LeadershipView { leader, epoch, standbys } = view;
        let standbys = if standbys.is_empty() { "none" } else { &standbys.join(", ") };
        format!("{leader} leads in epoch {epoch}; standing by: {standbys}")
    });
    let BypassBudget { used, per_hour } = status.bypass_budget;
    let budget =
        (used > 0).then(|| format!("automatic changes within the last hour: {used} of {per_hour}"));
    let unwitnessed = status.unwitnessed.as_ref().map(|view| {
        let nodes = named(view.nodes.clone(), NAMES_MAX);
        let after = span(view.heartbeat_ps as f64 / 1e12);
        format!(
            "no far end observes {nodes}: a failure there is reported after {after}, but not \
            bypassed"
        )
    });
    let as_wanted = status.devices.iter().filter(|device| device.state == DeviceState::AsWanted);
    let devices = format!(
        "{} of {} in the desired state",
        as_wanted.count(),
        count(status.devices.len(), "device")
    );
    let lines = [Some(first), leadership, circuits(status), budget, unwitnessed, Some(devices)];
    lines.into_iter().flatten().collect()
}

fn circuits(status: &Status) -> Option<String> {
    let (up, all) = status.circuits_up();
    if all == 0 {
        let has_modules = status.devices.iter().any(|device| is_bundle(&device.name));
        let is_bare = status.plan_sha256.is_empty() && has_modules;
        return is_bare.then(|| "circuits up: 0".to_owned());
    }
    let loopbacks = match status.loopbacks.len() {
        0 => String::new(),
        1 => ", including 1 loopback that closes a ring".to_owned(),
        several => format!(", including {several} loopbacks that close rings"),
    };
    let applied = status.applied.as_ref().map_or(0, |applied| applied.circuits);
    let more = match applied > status.circuits.len() {
        true => format!("; the applied plan has {} more", applied - status.circuits.len()),
        false => String::new(),
    };
    Some(format!("circuits up: {up} of {all} (both ends){loopbacks}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::LoopbackView;

    #[test]
    fn counts_loopbacks_in_singular_and_plural() {
        let with = |loopbacks| {
            let loopbacks =
                vec![LoopbackView { stands: true, ..LoopbackView::default() }; loopbacks];
            summary(&Status { loopbacks, ..Status::default() })[1].clone()
        };
        assert_eq!(
            with(1),
            "circuits up: 1 of 1 (both ends), including 1 loopback that closes a ring"
        );
        assert_eq!(
            with(2),
            "circuits up: 2 of 2 (both ends), including 2 loopbacks that close rings"
        );
    }
}
