// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::iter;

use lightloom_fabric::fault::Part;

use super::Facts;
use crate::diagnosis::{Culprit, Named, Symptom, diagnose};
use crate::replan::is_inside;
use crate::sightings::Links;
use crate::state::{DeviceName, Now};

#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    pub named: Named,
    pub wall_ms: Option<u64>,
}

/// Diagnoses of bypassed parts are kept until they are repaired or the daemon restarts.
pub(super) fn all(facts: Facts<'_>, kept: &[Diagnosis], now: &Now) -> Vec<Diagnosis> {
    let (mut links, mut loose) = links(facts, now).all();
    // Ignore devices that are unreachable together or that this host cannot query.
    let unreachable = facts.management_lost(now).map(|lost| lost.devices).unwrap_or_default();
    let lost: BTreeSet<&DeviceName> = unreachable.iter().chain(facts.unasked()).collect();
    loose.retain(|loose| !lost.contains(&loose.device));
    for end in links.iter_mut().flat_map(|link| &mut link.ends) {
        end.now.reachable |= lost.contains(&end.device);
    }
    let live = diagnose(&links, &loose);
    let mut all: Vec<Diagnosis> =
        live.into_iter().map(|named| Diagnosis { named, wall_ms: None }).collect();
    let failed = facts.failed_in_ledger();
    // A device that responds again is no longer evidence of a fault.
    let still = kept.iter().filter(|kept| {
        let Named { culprit, evidence, .. } = &kept.named;
        let mut unreachable = evidence.iter().filter_map(|symptom| match symptom {
            Symptom::Unreachable(device) => Some(device),
            _ => None,
        });
        failed.keys().any(|part| concerns(culprit, part))
            && all.iter().all(|live| live.named.culprit != *culprit)
            && !unreachable.any(|device| facts.sightings.is_read(device))
    });
    let still: Vec<Diagnosis> = still.cloned().collect();
    all.extend(still);
    all
}

/// A bypass is urgent, so this function considers only the links of the affected nodes.
pub(super) fn kept(
    facts: Facts<'_>,
    before: &[Diagnosis],
    now: &Now,
    failed: &[(Part, String)],
) -> Vec<Diagnosis> {
    let failed: Vec<String> = failed.iter().map(|(part, _)| part.to_string()).collect();
    let nodes: BTreeSet<&str> =
        failed.iter().filter_map(|part| part.split(['/', '.']).next()).collect();
    let (links, loose) = links(facts, now).near(&nodes);
    let mut kept = before.to_vec();
    for named in diagnose(&links, &loose) {
        if failed.iter().any(|part| concerns(&named.culprit, part)) {
            kept.retain(|kept| kept.named.culprit != named.culprit);
            kept.push(Diagnosis { named, wall_ms: Some(now.wall_ms) });
        }
    }
    let known = facts.failed_in_ledger();
    kept.retain(|kept| known.keys().chain(&failed).any(|part| concerns(&kept.named.culprit, part)));
    kept
}

fn links<'a>(facts: Facts<'a>, now: &'a Now) -> Links<'a> {
    Links { sightings: facts.sightings, ledger: facts.ledger, now }
}

fn concerns(culprit: &Culprit, part: &str) -> bool {
    let (name, other) = match culprit {
        Culprit::Node(node) => (node.as_str(), None),
        Culprit::Transceiver(device) | Culprit::Lane(device, _) | Culprit::Connector(device) => {
            (device.as_str(), None)
        }
        Culprit::Fibre(one, other) => (one.as_str(), Some(other.as_str())),
        Culprit::SwitchPort(switch, _) => (switch.as_str(), None),
    };
    let mut names = iter::once(name).chain(other);
    names.any(|name| is_inside(part, name) || is_inside(name, part))
}
