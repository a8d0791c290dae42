// SPDX-License-Identifier: Apache-2.0
//! Decides whether a node or module has failed. Missing replies are not enough evidence, because a
//! line, a terminal server or the daemon's own host may be at fault.
//!
//! * A *suspect* is an unresponsive module, or a node whose modules are all unresponsive.
//! * No far end receives the suspect's light, and each has missed it for long enough.
//! * Two far ends are enough witnesses. They and the suspect must not share a
//!   [failure domain](crate::management).
//! * A switch connected to all network interfaces of a node is a witness if their links are down.
//! * One witness is enough for a suspect with at most one circuit, unless a common cause exists.
//!
//! Management is lost if devices are unresponsive without a witness. The daemon reports it first and
//! makes no changes, until the devices respond again.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Port;
use lightloom_units::id::{BundleId, NodeId};

use super::Facts;
use super::bypasses::CROSSED;
use crate::bypass;
use crate::drive::Site;
use crate::management::{Domain, Trouble};
use crate::sightings::{DarkFibre, Sight, Sighting, Testimony};
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

struct Suspect<'a> {
    modules: Vec<(BundleId, &'a DeviceName)>,
    circuits: Vec<Testimony>,
    switches: Vec<&'a DeviceName>,
}

impl Suspect<'_> {
    fn missed_by(&self) -> impl Iterator<Item = &DeviceName> {
        let dark = |circuit: &&Testimony| matches!(circuit.sight, Sight::Dark(_));
        let far = self.circuits.iter().filter(dark).map(|circuit| &circuit.witness.0);
        far.chain(self.switches.iter().copied())
    }

    fn unseen(&self) -> impl Iterator<Item = &DeviceName> {
        let unseen = |circuit: &&Testimony| circuit.sight == Sight::Nothing;
        self.circuits.iter().filter(unseen).map(|circuit| &circuit.witness.0)
    }

    fn is_lit(&self) -> bool {
        self.circuits.iter().any(|circuit| circuit.sight == Sight::Lit)
    }
}

impl<'a> Facts<'a> {
    pub(super) fn deaths(&self, now: &Now, dark: &[DarkFibre]) -> BTreeMap<BundleId, String> {
        let far = dark.iter().filter(|fibre| fibre.far_is_down).map(|fibre| &fibre.far.0);
        let far = far.filter_map(|far| far.as_str().parse::<BundleId>().ok()).map(|b| b.node);
        let unlinked = self.unlinked().filter(|node| self.is_surely_silent(now, *node));
        let nodes: BTreeSet<NodeId> = far.chain(unlinked).collect();
        let mut suspects: Vec<Suspect<'_>> =
            nodes.into_iter().flat_map(|node| self.suspects(node)).collect();
        suspects.retain(|suspect| suspect.missed_by().next().is_some() && !suspect.is_lit());
        loop {
            let members: BTreeSet<DeviceName> =
                suspects.iter().flat_map(|s| &s.modules).map(|(_, d)| (*d).clone()).collect();
            let before = suspects.len();
            suspects.retain(|suspect| suspect.unseen().all(|far| members.contains(far)));
            if suspects.len() == before {
                break;
            }
        }
        let dead = joined(suspects).into_iter().filter(|group| self.is_dead(group));
        let why = |suspect: &Suspect<'_>| {
            let of = |circuit: &Testimony| match circuit.sight {
                Sight::Dark(mdbm) => {
                    let (near, dbm) = (&circuit.witness.0, f64::from(mdbm) / 1000.0);
                    Some(format!("{near} receives {dbm:.1} dBm from it"))
                }
                _ => None,
            };
            let no_link = |switch: &&DeviceName| format!("{switch} has no link to it");
            let links = suspect.switches.iter().map(no_link);
            let seen: Vec<String> = suspect.circuits.iter().filter_map(of).chain(links).collect();
            format!("unresponsive, and {}", seen.join(", "))
        };
        let of = |suspect: Suspect<'_>| {
            let why = why(&suspect);
            // A module in loopback is judged separately from one with a circuit.
            let lit = |(_, device): &(BundleId, &DeviceName)| {
                suspect.circuits.is_empty()
                    || !self.sightings.testimonies(device, self.ledger).is_empty()
            };
            let modules: Vec<BundleId> =
                suspect.modules.iter().filter(|m| lit(m)).map(|(bundle, _)| *bundle).collect();
            modules.into_iter().map(move |bundle| (bundle, why.clone()))
        };
        dead.flatten().flat_map(of).collect()
    }

    fn suspects(&self, node: NodeId) -> Vec<Suspect<'_>> {
        let (up, silent): (Vec<_>, Vec<_>) =
            self.modules_of(node).partition(|(_, name)| self.sightings.is_up(name));
        match up.is_empty() {
            true => vec![self.suspect(silent, self.no_link(node).collect())],
            false => silent.into_iter().map(|module| self.suspect(vec![module], vec![])).collect(),
        }
    }

    fn suspect(
        &self,
        modules: Vec<(BundleId, &'a DeviceName)>,
        switches: Vec<&'a DeviceName>,
    ) -> Suspect<'a> {
        let circuits =
            modules.iter().flat_map(|(_, name)| self.sightings.testimonies(name, self.ledger));
        Suspect { circuits: circuits.collect(), modules, switches }
    }

    fn unlinked(&self) -> impl Iterator<Item = NodeId> {
        let hosts = &self.sightings.inventory().hosts;
        let down = self.sightings.down().filter(|_| !hosts.is_empty());
        let modules = down.filter_map(|(name, _)| name.as_str().parse::<BundleId>().ok());
        let nodes: BTreeSet<NodeId> = modules.map(|module| module.node).collect();
        nodes.into_iter().filter(|node| self.no_link(*node).next().is_some())
    }

    /// Uses readings since all modules of the node became unresponsive; empty if a module responds.
    pub(super) fn no_link(&self, node: NodeId) -> impl Iterator<Item = &DeviceName> {
        let silent: Option<Vec<Micros>> =
            self.modules_of(node).map(|(_, name)| self.sightings.down_since(name)).collect();
        let since = silent.and_then(|silent| silent.into_iter().max());
        let switches = self.sightings.inventory().hosts.get(&node).into_iter().flatten();
        switches.filter(move |switch| {
            let read = since.and_then(|since| self.sightings.reading_since(switch, since));
            read.is_some_and(|read| read.unlinked.contains(&node))
        })
    }

    pub(super) fn modules_of(&self, node: NodeId) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        let [first, last] = [0, u8::MAX].map(|bundle| BundleId { node, bundle });
        self.setup.modules.range(first..=last).map(|(bundle, name)| (*bundle, name))
    }

    fn is_surely_silent(&self, now: &Now, node: NodeId) -> bool {
        self.modules_of(node).all(|(_, name)| self.sightings.is_silent(now, name))
    }

    pub(super) fn waits_for_hello(&self, now: &Now) -> bool {
        self.unlinked().any(|node| !self.is_surely_silent(now, node))
    }

    fn is_dead(&self, group: &[Suspect<'_>]) -> bool {
        let management = &self.sightings.inventory().management;
        let modules = || group.iter().flat_map(|suspect| &suspect.modules);
        let apart =
            |witness: &&DeviceName| !modules().any(|(_, module)| management.share(witness, module));
        let witnesses: Vec<&DeviceName> =
            group.iter().flat_map(Suspect::missed_by).filter(apart).collect();
        let two = witnesses.iter().enumerate().any(|(index, one)| {
            witnesses[..index].iter().any(|other| !management.share(one, other))
        });
        let own = modules().map(|(_, name)| *name).collect();
        let circuits: usize = group.iter().map(|suspect| suspect.circuits.len()).sum();
        two || (circuits <= 1 && !witnesses.is_empty() && !self.is_in_common(&own))
    }

    #[must_use]
    pub fn management_lost(&self, now: &Now) -> Option<ManagementLost> {
        let silent = self.blind().into_iter().filter(|name| self.sightings.is_silent(now, name));
        let silent: BTreeSet<&DeviceName> = silent.collect();
        let shared = self.sightings.inventory().management.shared().into_iter();
        let behind =
            shared.filter(|(_, devices)| devices.iter().all(|name| silent.contains(*name)));
        let behind: Vec<Domain> = behind.map(|(domain, _)| domain.clone()).collect();
        if behind.is_empty() && !self.is_share(silent.len()) {
            return None;
        }
        let since = silent.iter().filter_map(|name| self.unreachable(name)).min();
        Some(ManagementLost {
            lit: silent.iter().filter(|name| self.sightings.sends_light(name, self.ledger)).count(),
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
            let is_plugged = self.sightings.inventory().hosts.contains_key(&node);
            let (mut is_seen, mut is_silent) = (is_plugged, true);
            for name in modules {
                is_seen |= !self.sightings.testimonies(name, self.ledger).is_empty();
                let since = self.unreachable(name);
                is_silent &= since.is_some_and(|since| since + self.setup.heartbeat <= now.mono);
            }
            (!is_seen).then_some((node, is_silent))
        };
        nodes.into_iter().filter_map(of).collect()
    }

    pub(super) fn is_in_common(&self, own: &BTreeSet<&DeviceName>) -> bool {
        let management = &self.sightings.inventory().management;
        let silent = self.blind().into_iter().filter(|name| !own.contains(name));
        let silent: Vec<&DeviceName> = silent.collect();
        let shares = |name: &&DeviceName| own.iter().any(|own| management.share(own, name));
        silent.iter().any(shares) || self.is_share(silent.len())
    }

    pub(super) fn unasked(&self) -> impl Iterator<Item = &DeviceName> {
        let is_local = |seen: &Sighting| seen.trouble().is_some_and(Trouble::is_local);
        let devices = self.sightings.down();
        devices.filter(move |(_, seen)| is_local(seen)).map(|(name, _)| name)
    }

    fn is_share(&self, silent: usize) -> bool {
        silent > 1 && silent * SHARE >= self.sightings.inventory().devices.len()
    }

    fn blind(&self) -> Vec<&DeviceName> {
        let devices = self.sightings.down();
        let is_expected = |name: &DeviceName| {
            let Ok(bundle) = name.as_str().parse::<BundleId>() else { return true };
            !self.goes_around(Part::Bundle(bundle)) && !self.is_missed(bundle, name)
        };
        devices.map(|(name, _)| name).filter(|name| is_expected(name)).collect()
    }

    fn is_missed(&self, bundle: BundleId, name: &DeviceName) -> bool {
        let misses = |name: &DeviceName| {
            let circuits = self.sightings.testimonies(name, self.ledger);
            circuits.iter().any(|circuit| matches!(circuit.sight, Sight::Dark(_)))
        };
        misses(name)
            || self.of_node(bundle).any(|(_, name)| misses(name))
            || self.no_link(bundle.node).next().is_some()
    }

    fn detected(&self, now: &Now) -> BTreeMap<Part, String> {
        let bundle = |device: &DeviceName| device.as_str().parse::<BundleId>().ok();
        let known = self.reported_or_found();
        let mut broken: BTreeMap<Part, String> = known
            .iter()
            .filter_map(|(name, broken)| Some((name.parse().ok()?, broken.why.clone())))
            .collect();
        let dark = self.sightings.dark_fibres(self.ledger);
        for (bundle, why) in self.deaths(now, &dark) {
            broken.entry(Part::Bundle(bundle)).or_insert(why);
        }
        for fibre in dark.iter().filter(|fibre| !fibre.far_is_down) {
            let ((near, _, position), (far, ..)) = (&fibre.near, &fibre.far);
            let dbm = f64::from(fibre.power_mdbm) / 1000.0;
            if let (Some(bundle), Some(_)) = (bundle(near), bundle(far)) {
                let path = u8::try_from(position.0).unwrap_or(u8::MAX);
                let far = match &fibre.far_lit_by {
                    None => format!("{far} is set to this fibre"),
                    Some(other) => format!("{far} is lit by {other}: {CROSSED}"),
                };
                let why = format!("{near} receives {dbm:.1} dBm, and {far}");
                broken.insert(Part::Fibre(Port { bundle, path }), why);
            }
        }
        let silent = broken.keys().filter_map(|part| match part {
            Part::Bundle(bundle) if !known.contains_key(&part.to_string()) => Some(*bundle),
            _ => None,
        });
        let silent: Vec<BundleId> =
            silent.filter(|bundle| self.down_since(*bundle).is_some()).collect();
        for bundle in silent {
            for (sibling, _) in self.of_node(bundle).filter(|one| self.joins(now, bundle, one.1)) {
                let why = format!("unresponsive, like {bundle} of the same node");
                broken.entry(Part::Bundle(sibling)).or_insert(why);
            }
        }
        broken
    }

    fn joins(&self, now: &Now, bundle: BundleId, device: &DeviceName) -> bool {
        self.sightings.down_since(device).is_some()
            && !self.awaits_verdict(now, bundle, device)
            && !self.sightings.is_silent_beside(device, now)
            && !self.sightings.sends_light(device, self.ledger)
    }

    fn down_since(&self, bundle: BundleId) -> Option<Micros> {
        self.sightings.down_since(self.setup.modules.get(&bundle)?)
    }

    pub(super) fn of_node(
        &self,
        bundle: BundleId,
    ) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        self.modules_of(bundle.node).filter(move |(other, _)| *other != bundle)
    }

    fn awaits_verdict(&self, now: &Now, bundle: BundleId, device: &DeviceName) -> bool {
        if self.sightings.is_silent_beside(device, now) {
            return false;
        }
        let Some(since) = self.down_since(bundle) else { return false };
        let since = self.sightings.down_since(device).map_or(since, |down| since.max(down));
        let limits = self.sightings.inventory().limits(device);
        let waits = Micros(2 * (limits.silent_within + limits.read_within).0);
        now.mono < since + waits && self.sightings.may_be_silent(device, since, now, self.ledger)
    }

    /// Waits for another module of the node that may have failed, so that one change bypasses both.
    pub(super) fn waits_for_siblings(&self, now: &Now, broken: &[(Part, String)]) -> bool {
        let named = |sibling: BundleId| broken.iter().any(|(p, _)| *p == Part::Bundle(sibling));
        broken.iter().any(|(part, _)| {
            let Part::Bundle(bundle) = *part else { return false };
            let mut siblings = self.of_node(bundle).filter(|(sibling, _)| !named(*sibling));
            siblings.any(|(_, device)| self.awaits_verdict(now, bundle, device))
        })
    }

    pub(super) fn news(&self, now: &Now) -> Vec<(Part, String)> {
        let known = self.plan.and_then(|plan| self.covered(plan));
        let (Some(installed), Some(mut known)) = (self.replannable(), known) else {
            return Vec::new();
        };
        let mut broken: Vec<(Part, String)> = self.detected(now).into_iter().collect();
        broken.retain(|(part, _)| {
            bypass::is_news(installed, &known, *part)
                && known.insert(installed, *part).unwrap_or(false)
        });
        broken
    }

    pub(super) fn waits_for_all(&self, now: &Now) -> bool {
        let Some(asked) = self.asked_all else { return false };
        self.setup.modules.values().any(|device| {
            let within = self.sightings.inventory().limits(device).read_within;
            let is_awaited =
                self.sightings.is_up(device) && !self.sightings.is_read_since(device, asked);
            now.mono < asked + within + within && is_awaited
        })
    }
}

fn joined(suspects: Vec<Suspect<'_>>) -> Vec<Vec<Suspect<'_>>> {
    let mut groups: Vec<Vec<Suspect<'_>>> = Vec::new();
    for suspect in suspects {
        let touches = |group: &Vec<Suspect<'_>>| {
            let faces = |one: &Suspect<'_>, other: &Suspect<'_>| {
                one.unseen().any(|far| other.modules.iter().any(|(_, name)| *name == far))
            };
            group.iter().any(|other| faces(&suspect, other))
        };
        let (joins, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(touches);
        groups = rest;
        groups.push(joins.into_iter().flatten().chain([suspect]).collect());
    }
    groups
}
