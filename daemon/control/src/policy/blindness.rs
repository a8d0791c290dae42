// SPDX-License-Identifier: Apache-2.0
//! Detects lost management: devices that are unresponsive without a witness. The daemon reports it
//! first and makes no changes, until the devices respond again.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use lightloom_units::id::{BundleId, NodeId};

use super::Control;
use crate::controller::{Seen, Sight};
use crate::management::{Domain, Trouble};
use crate::state::{DeviceName, Micros, Now};

/// If at least one in this many devices is unresponsive, individual lines are not the cause.
const SHARE: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementLost {
    pub devices: Vec<DeviceName>,
    pub lit: usize,
    pub behind: Vec<Domain>,
    pub unasked: usize,
    pub since: Micros,
}

impl Control {
    #[must_use]
    pub fn management_lost(&self, now: &Now) -> Option<ManagementLost> {
        let silent = self.blind().into_iter().filter(|name| self.controller.is_silent(now, name));
        let silent: BTreeSet<&DeviceName> = silent.collect();
        let shared = self.controller.inventory().management.shared().into_iter();
        let behind =
            shared.filter(|(_, devices)| devices.iter().all(|name| silent.contains(*name)));
        let behind: Vec<Domain> = behind.map(|(domain, _)| domain.clone()).collect();
        if behind.is_empty() && !self.is_share(silent.len()) {
            return None;
        }
        let since = silent.iter().filter_map(|name| Some(self.unreachable(name)?.0)).min();
        Some(ManagementLost {
            lit: silent.iter().filter(|name| self.controller.sends_light(name)).count(),
            unasked: self.unasked().filter(|name| silent.contains(name)).count(),
            devices: silent.into_iter().cloned().collect(),
            behind,
            since: since.unwrap_or(now.mono),
        })
    }

    /// Returns the nodes of jobs whose failure would go unnoticed, because no far end faces their
    /// fibres and no managed switch is connected to them. The value is whether the node has been
    /// unresponsive for longer than a heartbeat.
    #[must_use]
    pub fn unwitnessed(&self, now: &Now) -> BTreeMap<NodeId, bool> {
        let groups = self.plan.iter().flat_map(|plan| &plan.groups);
        let nodes: BTreeSet<NodeId> = groups
            .filter(|group| group.job.is_some())
            .flat_map(|group| &group.nodes)
            .copied()
            .collect();
        let of = |node: NodeId| {
            let mut modules = self.modules_of(node).map(|(_, name)| name).peekable();
            modules.peek()?;
            let is_plugged = self.controller.inventory().hosts.contains_key(&node);
            let (mut is_seen, mut is_silent) = (is_plugged, true);
            for name in modules {
                is_seen |= !self.controller.testimonies(name).is_empty();
                let since = self.unreachable(name).map(|(since, _)| since);
                is_silent &= since.is_some_and(|since| since + self.setup.heartbeat <= now.mono);
            }
            (!is_seen).then_some((node, is_silent))
        };
        nodes.into_iter().filter_map(of).collect()
    }

    pub(super) fn is_in_common(&self, own: &BTreeSet<&DeviceName>) -> bool {
        let management = &self.controller.inventory().management;
        let silent = self.blind().into_iter().filter(|name| !own.contains(name));
        let silent: Vec<&DeviceName> = silent.collect();
        let shares = |name: &&DeviceName| own.iter().any(|own| management.share(own, name));
        silent.iter().any(shares) || self.is_share(silent.len())
    }

    pub(super) fn unasked(&self) -> impl Iterator<Item = &DeviceName> {
        let is_local = |seen: &Seen| seen.trouble.as_ref().is_some_and(Trouble::is_local);
        let devices = self.controller.down_devices();
        devices.filter(move |(_, seen)| is_local(seen)).map(|(name, _)| name)
    }

    fn is_share(&self, silent: usize) -> bool {
        silent > 1 && silent * SHARE >= self.controller.inventory().devices.len()
    }

    fn blind(&self) -> Vec<&DeviceName> {
        let devices = self.controller.down_devices();
        let is_expected = |name: &DeviceName| {
            let Ok(bundle) = name.as_str().parse::<BundleId>() else { return true };
            !self.goes_around(Part::Bundle(bundle)) && !self.is_missed(bundle, name)
        };
        devices.map(|(name, _)| name).filter(|name| is_expected(name)).collect()
    }

    fn is_missed(&self, bundle: BundleId, name: &DeviceName) -> bool {
        let misses = |name: &DeviceName| {
            let circuits = self.controller.testimonies(name);
            circuits.iter().any(|circuit| matches!(circuit.sight, Sight::Dark(_)))
        };
        misses(name)
            || self.of_node(bundle).any(|(_, name)| misses(name))
            || self.no_link(bundle.node).next().is_some()
    }
}
