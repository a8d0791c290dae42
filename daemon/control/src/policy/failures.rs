// SPDX-License-Identifier: Apache-2.0
//! Decides whether a node or module has failed. An unreachable device is not enough evidence, because
//! a line, a terminal server or the daemon's own host may be at fault.
//!
//! * A device is unreachable, or all devices of a node are.
//! * No far end receives its light. Each has been dark for long enough and is a *witness*, or may
//!   itself have failed: it is unreachable and has a witness.
//! * Two witnesses are enough. They and the unreachable devices must not share a
//!   [failure domain](crate::management).
//! * A switch connected to all network interfaces of a node is a witness if their links are down.
//! * One witness is enough for devices with at most one circuit, unless a common cause exists.
//!
//! Management is lost if devices are unreachable without a witness. The daemon reports it first and
//! makes no changes, until the devices respond again.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Port;
use lightloom_units::id::{BundleId, NodeId};

use super::Facts;
use super::bypass::CROSSED;
use crate::drive::Site;
use crate::management::{Domain, Trouble};
use crate::replan;
use crate::sightings::{DarkFibre, Sight, Testimony};
use crate::state::{DeviceName, Micros, Now};

/// If at least one in this many devices is unreachable, individual lines are not the cause.
const SHARE: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementLost {
    pub devices: Vec<DeviceName>,
    pub lit: usize,
    pub behind: Vec<Domain>,
    pub unasked: usize,
    pub since: Micros,
}

/// An unreachable device, or all devices of an unreachable node, with the evidence for a failure.
struct Unreachable<'a> {
    devices: Vec<(BundleId, &'a DeviceName)>,
    testimonies: Vec<Testimony>,
    switches: Vec<&'a DeviceName>,
}

impl Unreachable<'_> {
    /// Returns the dark far ends, and the switches without a link to it.
    fn witnesses(&self) -> impl Iterator<Item = &DeviceName> {
        let dark = self.testimonies.iter().filter(|given| matches!(given.sight, Sight::Dark(_)));
        dark.map(|given| &given.far_end.0).chain(self.switches.iter().copied())
    }

    /// Returns the far ends without a reading that shows whether they receive its light.
    fn unknown(&self) -> impl Iterator<Item = &DeviceName> {
        let unknown = self.testimonies.iter().filter(|given| given.sight == Sight::Unknown);
        unknown.map(|given| &given.far_end.0)
    }

    fn is_lit(&self) -> bool {
        self.testimonies.iter().any(|given| given.sight == Sight::Lit)
    }

    fn faces(&self, other: &Unreachable<'_>) -> bool {
        self.unknown().any(|far| other.devices.iter().any(|(_, device)| *device == far))
    }

    fn why(&self) -> String {
        let mut seen = Vec::new();
        for Testimony { far_end, sight } in &self.testimonies {
            if let Sight::Dark(mdbm) = sight {
                let dbm = f64::from(*mdbm) / 1000.0;
                seen.push(format!("{} receives {dbm:.1} dBm from it", far_end.0));
            }
        }
        seen.extend(self.switches.iter().map(|switch| format!("{switch} has no link to it")));
        format!("unresponsive, and {}", seen.join(", "))
    }
}

impl<'a> Facts<'a> {
    pub(super) fn failed_modules(
        &self,
        now: &Now,
        dark: &[DarkFibre],
    ) -> BTreeMap<BundleId, String> {
        let dark = dark.iter().filter(|dark| dark.sender_is_unreachable);
        let dark = dark.filter_map(|dark| dark.sender.0.bundle());
        let unlinked = self.unlinked().filter(|node| self.node_stays_unreachable(now, *node));
        let nodes: BTreeSet<NodeId> = dark.map(|bundle| bundle.node).chain(unlinked).collect();
        let mut unreachable: Vec<Unreachable<'_>> =
            nodes.into_iter().flat_map(|node| self.unreachable_of(node)).collect();
        unreachable.retain(|one| one.witnesses().next().is_some() && !one.is_lit());
        // An unreachable far end must be explained by another one, which may be ruled out in turn.
        loop {
            let devices: BTreeSet<DeviceName> =
                unreachable.iter().flat_map(|s| &s.devices).map(|(_, d)| (*d).clone()).collect();
            let before = unreachable.len();
            unreachable.retain(|one| one.unknown().all(|far| devices.contains(far)));
            if unreachable.len() == before {
                break;
            }
        }
        let failed = joined(unreachable).into_iter().filter(|joined| self.have_failed(joined));
        let mut reasons = BTreeMap::new();
        for one in failed.flatten() {
            let why = one.why();
            for (bundle, device) in &one.devices {
                // A module in loopback is judged separately from one with a circuit.
                if one.testimonies.is_empty()
                    || !self.sightings.testimonies(device, self.ledger).is_empty()
                {
                    reasons.insert(*bundle, why.clone());
                }
            }
        }
        reasons
    }

    fn unreachable_of(&self, node: NodeId) -> Vec<Unreachable<'_>> {
        let (reachable, unreachable): (Vec<_>, Vec<_>) =
            self.modules_of(node).partition(|(_, device)| self.sightings.is_reachable(device));
        match reachable.is_empty() {
            true => vec![self.evidence(unreachable, self.no_link(node).collect())],
            false => unreachable.into_iter().map(|one| self.evidence(vec![one], vec![])).collect(),
        }
    }

    fn evidence(
        &self,
        devices: Vec<(BundleId, &'a DeviceName)>,
        switches: Vec<&'a DeviceName>,
    ) -> Unreachable<'a> {
        let testimonies =
            devices.iter().flat_map(|(_, device)| self.sightings.testimonies(device, self.ledger));
        Unreachable { testimonies: testimonies.collect(), devices, switches }
    }

    fn unlinked(&self) -> impl Iterator<Item = NodeId> {
        let hosts = &self.sightings.inventory().hosts;
        let unreachable = self.sightings.unreachable().filter(|_| !hosts.is_empty());
        let bundles = unreachable.filter_map(|(device, _)| device.bundle());
        let nodes: BTreeSet<NodeId> = bundles.map(|bundle| bundle.node).collect();
        nodes.into_iter().filter(|node| self.no_link(*node).next().is_some())
    }

    /// Uses readings since all modules of the node became unreachable; empty if a module responds.
    pub(super) fn no_link(&self, node: NodeId) -> impl Iterator<Item = &DeviceName> {
        let modules = self.modules_of(node);
        let since: Option<Vec<Micros>> =
            modules.map(|(_, device)| self.sightings.unreachable_since(device)).collect();
        let since = since.and_then(|since| since.into_iter().max());
        let switches = self.sightings.inventory().hosts.get(&node).into_iter().flatten();
        switches.filter(move |switch| {
            let read = since.and_then(|since| self.sightings.reading_since(switch, since));
            read.is_some_and(|read| read.unlinked.contains(&node))
        })
    }

    pub(super) fn modules_of(&self, node: NodeId) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        let [first, last] = [0, u8::MAX].map(|bundle| BundleId { node, bundle });
        self.setup.modules.range(first..=last).map(|(bundle, device)| (*bundle, device))
    }

    fn node_stays_unreachable(&self, now: &Now, node: NodeId) -> bool {
        self.modules_of(node).all(|(_, device)| self.sightings.stays_unreachable(now, device))
    }

    pub(super) fn waits_for_hello(&self, now: &Now) -> bool {
        self.unlinked().any(|node| !self.node_stays_unreachable(now, node))
    }

    fn have_failed(&self, unreachable: &[Unreachable<'_>]) -> bool {
        let management = &self.sightings.inventory().management;
        let devices: BTreeSet<&DeviceName> =
            unreachable.iter().flat_map(|one| &one.devices).map(|(_, device)| *device).collect();
        let mut witnesses: Vec<&DeviceName> =
            unreachable.iter().flat_map(Unreachable::witnesses).collect();
        witnesses.retain(|witness| !devices.iter().any(|device| management.share(witness, device)));
        let two = witnesses.iter().enumerate().any(|(index, one)| {
            witnesses[..index].iter().any(|other| !management.share(one, other))
        });
        let circuits: usize = unreachable.iter().map(|one| one.testimonies.len()).sum();
        two || (circuits <= 1 && !witnesses.is_empty() && !self.is_in_common(&devices))
    }

    pub fn management_lost(&self, now: &Now) -> Option<ManagementLost> {
        let unexplained = self.unexplained().into_iter();
        let lost: BTreeSet<&DeviceName> =
            unexplained.filter(|device| self.sightings.stays_unreachable(now, device)).collect();
        let mut shared = self.sightings.inventory().management.shared();
        shared.retain(|_, devices| devices.iter().all(|device| lost.contains(*device)));
        let behind: Vec<Domain> = shared.into_keys().cloned().collect();
        if behind.is_empty() && !self.is_share(lost.len()) {
            return None;
        }
        let since = lost.iter().filter_map(|device| self.sightings.unreachable_since(device)).min();
        let lit = lost.iter().filter(|device| self.sightings.is_lit(device, self.ledger));
        Some(ManagementLost {
            lit: lit.count(),
            unasked: self.unasked().filter(|device| lost.contains(device)).count(),
            devices: lost.into_iter().cloned().collect(),
            behind,
            since: since.unwrap_or(now.mono),
        })
    }

    /// Returns the nodes of jobs whose failure would go unnoticed, because no far end faces their
    /// fibres and no managed switch is connected to them. The value is whether the node has been
    /// unreachable for longer than a heartbeat.
    pub fn unwitnessed(&self, now: &Now) -> BTreeMap<NodeId, bool> {
        let groups = self.plan.iter().flat_map(|plan| &plan.groups);
        let nodes: BTreeSet<NodeId> = groups
            .filter(|group| group.job.is_some())
            .flat_map(|group| &group.nodes)
            .copied()
            .collect();
        let mut unwitnessed = BTreeMap::new();
        for node in nodes {
            let devices: Vec<&DeviceName> =
                self.modules_of(node).map(|(_, device)| device).collect();
            let is_plugged = self.sightings.inventory().hosts.contains_key(&node);
            let mut testimonies =
                devices.iter().flat_map(|device| self.sightings.testimonies(device, self.ledger));
            if devices.is_empty() || is_plugged || testimonies.next().is_some() {
                continue;
            }
            let is_unreachable = devices.iter().all(|device| {
                let since = self.sightings.unreachable_since(device);
                since.is_some_and(|since| since + self.setup.heartbeat <= now.mono)
            });
            unwitnessed.insert(node, is_unreachable);
        }
        unwitnessed
    }

    fn is_in_common(&self, devices: &BTreeSet<&DeviceName>) -> bool {
        let management = &self.sightings.inventory().management;
        let mut others = self.unexplained();
        others.retain(|other| !devices.contains(other));
        self.is_share(others.len())
            || others.iter().any(|other| devices.iter().any(|own| management.share(own, other)))
    }

    pub(super) fn unasked(&self) -> impl Iterator<Item = &DeviceName> {
        let unreachable = self.sightings.unreachable();
        let local = unreachable.filter(|(_, seen)| seen.trouble().is_some_and(Trouble::is_local));
        local.map(|(device, _)| device)
    }

    fn is_share(&self, unreachable: usize) -> bool {
        unreachable > 1 && unreachable * SHARE >= self.sightings.inventory().devices.len()
    }

    /// Returns the unreachable devices that are not bypassed and have no witness.
    fn unexplained(&self) -> Vec<&DeviceName> {
        let unreachable = self.sightings.unreachable().map(|(device, _)| device);
        let unexplained = unreachable.filter(|device| {
            device.bundle().is_none_or(|bundle| {
                !self.is_bypassed(Part::Bundle(bundle)) && !self.has_witness(bundle, device)
            })
        });
        unexplained.collect()
    }

    fn has_witness(&self, bundle: BundleId, device: &DeviceName) -> bool {
        let others = self.of_node(bundle).map(|(_, other)| other);
        let mut testimonies = std::iter::once(device)
            .chain(others)
            .flat_map(|device| self.sightings.testimonies(device, self.ledger));
        testimonies.any(|given| matches!(given.sight, Sight::Dark(_)))
            || self.no_link(bundle.node).next().is_some()
    }

    /// Returns the failed parts of the ledger and those that the readings show now, with reasons.
    fn failed(&self, now: &Now) -> BTreeMap<Part, String> {
        let known = self.failed_in_ledger();
        let mut failed: BTreeMap<Part, String> = known
            .iter()
            .filter_map(|(name, failed)| Some((name.parse().ok()?, failed.why.clone())))
            .collect();
        let dark = self.sightings.dark_fibres(self.ledger);
        for (bundle, why) in self.failed_modules(now, &dark) {
            failed.entry(Part::Bundle(bundle)).or_insert(why);
        }
        for fibre in dark.iter().filter(|fibre| !fibre.sender_is_unreachable) {
            let ((receiver, _, position), (sender, ..)) = (&fibre.receiver, &fibre.sender);
            let dbm = f64::from(fibre.power_mdbm) / 1000.0;
            if let (Some(bundle), Some(_)) = (receiver.bundle(), sender.bundle()) {
                let path = u8::try_from(position.0).unwrap_or(u8::MAX);
                let sender = match &fibre.sender_lit_by {
                    None => format!("{sender} is set to this fibre"),
                    Some(other) => format!("{sender} is lit by {other}: {CROSSED}"),
                };
                let why = format!("{receiver} receives {dbm:.1} dBm, and {sender}");
                failed.insert(Part::Fibre(Port { bundle, path }), why);
            }
        }
        let unreachable = failed.keys().filter_map(|part| match part {
            Part::Bundle(bundle) if !known.contains_key(&part.to_string()) => {
                self.bundle_unreachable_since(*bundle).map(|_| *bundle)
            }
            _ => None,
        });
        let unreachable: Vec<BundleId> = unreachable.collect();
        for bundle in unreachable {
            for (other, device) in self.of_node(bundle) {
                if self.fails_with_node(now, bundle, device) {
                    let why = format!("unresponsive, like {bundle} of the same node");
                    failed.entry(Part::Bundle(other)).or_insert(why);
                }
            }
        }
        failed
    }

    fn fails_with_node(&self, now: &Now, bundle: BundleId, device: &DeviceName) -> bool {
        self.sightings.unreachable_since(device).is_some()
            && !self.is_undecided(now, bundle, device)
            && !self.sightings.skips_hello_with_node(device, now)
            && !self.sightings.is_lit(device, self.ledger)
    }

    fn bundle_unreachable_since(&self, bundle: BundleId) -> Option<Micros> {
        self.sightings.unreachable_since(self.setup.modules.get(&bundle)?)
    }

    pub(super) fn of_node(
        &self,
        bundle: BundleId,
    ) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        self.modules_of(bundle.node).filter(move |(other, _)| *other != bundle)
    }

    fn is_undecided(&self, now: &Now, bundle: BundleId, device: &DeviceName) -> bool {
        if self.sightings.skips_hello_with_node(device, now) {
            return false;
        }
        let Some(since) = self.bundle_unreachable_since(bundle) else { return false };
        let since = self.sightings.unreachable_since(device).map_or(since, |own| since.max(own));
        let limits = self.sightings.inventory().limits(device);
        let waits = Micros(2 * (limits.reconnect_within + limits.read_within).0);
        now.mono < since + waits && self.sightings.is_undecided(device, since, now, self.ledger)
    }

    /// Waits for other modules of a node that may have failed, so that one change bypasses all.
    pub(super) fn waits_for_node(&self, now: &Now, failed: &[(Part, String)]) -> bool {
        failed.iter().any(|(part, _)| {
            let Part::Bundle(bundle) = *part else { return false };
            self.of_node(bundle).any(|(other, device)| {
                let is_named = failed.iter().any(|(part, _)| *part == Part::Bundle(other));
                !is_named && self.is_undecided(now, bundle, device)
            })
        })
    }

    pub(super) fn not_yet_bypassed(&self, now: &Now) -> Vec<(Part, String)> {
        let known = self.plan.and_then(|plan| self.covered(plan));
        let (Some(installed), Some(mut known)) = (self.replannable(), known) else {
            return Vec::new();
        };
        let mut failed: Vec<(Part, String)> = self.failed(now).into_iter().collect();
        failed.retain(|(part, _)| {
            replan::is_news(installed, &known, *part)
                && known.insert(installed, *part).unwrap_or(false)
        });
        failed
    }

    pub(super) fn waits_for_all(&self, now: &Now) -> bool {
        let Some(asked) = self.asked_all else { return false };
        self.setup.modules.values().any(|device| {
            let within = self.sightings.inventory().limits(device).read_within;
            let is_awaited =
                self.sightings.is_reachable(device) && !self.sightings.is_read_since(device, asked);
            now.mono < asked + within + within && is_awaited
        })
    }
}

/// Joins unreachable devices that are far ends of each other.
fn joined(unreachable: Vec<Unreachable<'_>>) -> Vec<Vec<Unreachable<'_>>> {
    let mut joined: Vec<Vec<Unreachable<'_>>> = Vec::new();
    for one in unreachable {
        let (joins, rest): (Vec<_>, Vec<_>) =
            joined.into_iter().partition(|all| all.iter().any(|other| one.faces(other)));
        joined = rest;
        joined.push(joins.into_iter().flatten().chain([one]).collect());
    }
    joined
}
