// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_fabric::fault::Part;

use super::Control;
use crate::bypass::is_inside;
use crate::diagnosis::{Culprit, Named, Symptom, diagnose_beside};
use crate::state::{DeviceName, Now};

#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    pub named: Named,
    pub wall_ms: Option<u64>,
}

impl Control {
    /// Returns the faulty parts, beginning with the best explanation. Diagnoses of bypassed parts
    /// are kept until they are repaired or the daemon restarts.
    #[must_use]
    pub fn diagnoses(&self, now: &Now) -> Vec<Diagnosis> {
        let (mut links, mut loose) = self.controller.links(now);
        // Ignore devices that are unresponsive together or that this host cannot query.
        let lost = self.management_lost(now).map(|lost| lost.devices).unwrap_or_default();
        let lost: BTreeSet<&DeviceName> = lost.iter().chain(self.unasked()).collect();
        loose.retain(|module| !lost.contains(&module.module));
        for end in links.iter_mut().flat_map(|link| &mut link.ends) {
            end.now.answers |= lost.contains(&end.module);
        }
        let live = diagnose_beside(&links, &loose);
        let live: Vec<Diagnosis> =
            live.into_iter().map(|named| Diagnosis { named, wall_ms: None }).collect();
        let is_live =
            |kept: &&Diagnosis| live.iter().any(|live| live.named.culprit == kept.named.culprit);
        let broken = self.reported_or_found();
        let is_broken =
            |kept: &&Diagnosis| broken.keys().any(|part| concerns(&kept.named.culprit, part));
        // A device that responds again is no longer evidence of a fault.
        let answers = |symptom: &Symptom| match symptom {
            Symptom::Silent(module) => {
                let seen = self.controller.devices().get(module);
                seen.is_some_and(|seen| seen.up && seen.observed.is_some())
            }
            _ => false,
        };
        let is_over = |kept: &&Diagnosis| kept.named.evidence.iter().any(answers);
        let kept = self.diagnosed.iter().filter(is_broken);
        let kept = kept.filter(|kept| !is_live(kept) && !is_over(kept));
        let kept: Vec<Diagnosis> = kept.cloned().collect();
        live.into_iter().chain(kept).collect()
    }

    /// A bypass is urgent, so this function considers only the links of the affected nodes.
    pub(super) fn keep_diagnoses(&mut self, now: &Now, broken: &[(Part, String)]) {
        let broken: Vec<String> = broken.iter().map(|(part, _)| part.to_string()).collect();
        let nodes: BTreeSet<&str> =
            broken.iter().filter_map(|part| part.split(['/', '.']).next()).collect();
        let (links, loose) = self.controller.links_near(now, &nodes);
        let named = diagnose_beside(&links, &loose)
            .into_iter()
            .filter(|named| broken.iter().any(|part| concerns(&named.culprit, part)));
        for named in named {
            self.diagnosed.retain(|kept| kept.named.culprit != named.culprit);
            self.diagnosed.push(Diagnosis { named, wall_ms: Some(now.wall_ms) });
        }
        let known = self.reported_or_found();
        let known: Vec<&String> = known.keys().chain(&broken).collect();
        self.diagnosed.retain(|kept| known.iter().any(|part| concerns(&kept.named.culprit, part)));
    }
}

fn concerns(culprit: &Culprit, part: &str) -> bool {
    let near = |name: &str| is_inside(part, name) || is_inside(name, part);
    match culprit {
        Culprit::Node(node) => near(node),
        Culprit::Transceiver(module) | Culprit::Lane(module, _) | Culprit::Connector(module) => {
            near(module.as_str())
        }
        Culprit::Fibre(one, other) => near(one.as_str()) || near(other.as_str()),
        Culprit::SwitchPort(switch, _) => near(switch.as_str()),
    }
}
