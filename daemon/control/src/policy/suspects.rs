// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use super::Control;
use super::faults::Around;
use crate::bypass;
use crate::desired;
use crate::state::{DeviceName, Now};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_units::id::BundleId;

impl Control {
    pub(super) fn all_to_avoid(
        &self,
        broken: &[(Part, String)],
        repaired: &[Part],
        now: &Now,
    ) -> Vec<Around> {
        let named = |(part, why): &(Part, String)| Around::named(*part, why.clone());
        let mut around: Vec<Around> = broken.iter().map(named).collect();
        let Some(installed) = self.replannable() else { return around };
        let faults = self.plan.iter().flat_map(|plan| plan.faults.iter().copied());
        let reported = broken.iter().map(|(part, _)| *part);
        let Ok(known) = FaultSet::of(installed, faults.chain(reported)) else { return around };
        let path = |sha256: &str, bundle: BundleId| {
            let plan = self.controller.ledger().plan_named(sha256)?;
            let found = plan.transceivers.iter().find(|found| found.bundle == bundle)?;
            u8::try_from(desired::position(found.path).0).ok()
        };
        let history = self.controller.ledger().history.iter().rev();
        let suspects = bypass::suspects(history, path).into_iter();
        let mut more: BTreeMap<Part, Around> =
            suspects.map(|(part, why)| (part, Around { part, why, suspected: true })).collect();
        for (part, _) in broken {
            let Part::Bundle(bundle) = part else { continue };
            let beside =
                |(_, device): &(_, &DeviceName)| self.controller.is_silent_beside(device, now);
            for (sibling, _) in self.of_node(*bundle).filter(beside) {
                let why = format!("suspect: unresponsive, like {bundle} of the same node");
                more.insert(
                    Part::Bundle(sibling),
                    Around { part: Part::Bundle(sibling), why, suspected: true },
                );
            }
        }
        for (name, before) in &self.controller.ledger().reported {
            if let Ok(part) = name.parse() {
                more.insert(part, Around::named(part, before.why.clone()));
            }
        }
        around.extend(more.into_values().filter(|Around { part, .. }| {
            bypass::is_news(installed, &known, *part) && !repaired.contains(part)
        }));
        around
    }
}
