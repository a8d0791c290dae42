// SPDX-License-Identifier: Apache-2.0
//! Decides whether a node or module has failed. Missing replies are not enough evidence, because a
//! line, a terminal server or the daemon's own host may be at fault.
//!
//! ```text
//!    n8 ──dark──▶ n9 (silent) ◀──dark── n10       two witnesses: n9 is dead
//!    n8 ──dark──▶ n9 (silent) ◀──lit─── n10       n9 sends light: its fibre or one module, and lost management
//!    n8 ──dark──▶ n9 (silent) ◀──────── n10 (silent, seen lit by n11)    one witness: nothing moves
//!                 n9 (silent) ◀─no link─ t0                  a group inside n9: no circuit, its switch is the witness
//! ```
//!
//! * A *suspect* is an unresponsive module, or a node whose modules are all unresponsive.
//! * No far end receives the suspect's light, and each has missed it for long enough.
//! * Independent witnesses and the suspect do not share a [failure domain](crate::management).
//! * A switch connected to all network interfaces of a node is a witness if their links are down.
//! * One witness is enough for a suspect with at most one circuit, unless a common cause exists.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::id::{BundleId, NodeId};

use super::Control;
use crate::controller::{DarkFibre, Sight, Testimony};
use crate::state::{DeviceName, Micros, Now};

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

impl Control {
    pub(super) fn deaths(&self, now: &Now, dark: &[DarkFibre]) -> BTreeMap<BundleId, String> {
        let far = dark.iter().filter(|fibre| fibre.far_is_down).map(|fibre| &fibre.far.0);
        let far = far.filter_map(|far| far.as_str().parse::<BundleId>().ok()).map(|b| b.node);
        let unlinked = self.unlinked().filter(|node| self.is_surely_silent(now, *node));
        let nodes: BTreeSet<NodeId> = far.chain(unlinked).collect();
        let mut suspects: Vec<Suspect<'_>> =
            nodes.into_iter().flat_map(|node| self.suspects(node)).collect();
        // Leave out suspects that send light or that no far end misses.
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
                suspect.circuits.is_empty() || !self.controller.testimonies(device).is_empty()
            };
            let modules: Vec<BundleId> =
                suspect.modules.iter().filter(|m| lit(m)).map(|(bundle, _)| *bundle).collect();
            modules.into_iter().map(move |bundle| (bundle, why.clone()))
        };
        dead.flatten().flat_map(of).collect()
    }

    fn suspects(&self, node: NodeId) -> Vec<Suspect<'_>> {
        let devices = self.controller.devices();
        let is_up = |name: &DeviceName| devices.get(name).is_some_and(|seen| seen.up);
        let (up, silent): (Vec<_>, Vec<_>) =
            self.modules_of(node).partition(|(_, name)| is_up(name));
        match up.is_empty() {
            true => vec![self.suspect(silent, self.no_link(node).collect())],
            false => silent.into_iter().map(|module| self.suspect(vec![module], vec![])).collect(),
        }
    }

    fn suspect<'a>(
        &self,
        modules: Vec<(BundleId, &'a DeviceName)>,
        switches: Vec<&'a DeviceName>,
    ) -> Suspect<'a> {
        let circuits = modules.iter().flat_map(|(_, name)| self.controller.testimonies(name));
        Suspect { circuits: circuits.collect(), modules, switches }
    }

    fn unlinked(&self) -> impl Iterator<Item = NodeId> {
        let hosts = &self.controller.inventory().hosts;
        let down = self.controller.down_devices().filter(|_| !hosts.is_empty());
        let modules = down.filter_map(|(name, _)| name.as_str().parse::<BundleId>().ok());
        let nodes: BTreeSet<NodeId> = modules.map(|module| module.node).collect();
        nodes.into_iter().filter(|node| self.no_link(*node).next().is_some())
    }

    /// Uses readings since all modules of the node became unresponsive; empty if a module responds.
    pub(super) fn no_link(&self, node: NodeId) -> impl Iterator<Item = &DeviceName> {
        let devices = self.controller.devices();
        let since = |name: &DeviceName| {
            devices.get(name).filter(|seen| !seen.up).map(|seen| seen.down_since)
        };
        let silent: Option<Vec<Micros>> =
            self.modules_of(node).map(|(_, name)| since(name)).collect();
        let silent_since = silent.and_then(|silent| silent.into_iter().max());
        let switches = self.controller.inventory().hosts.get(&node).into_iter().flatten();
        switches.filter(move |switch| {
            let Some(since) = silent_since else { return false };
            let seen = devices.get(*switch).filter(|seen| seen.up && seen.read_at >= since);
            let read = seen.and_then(|seen| seen.observed.as_ref());
            read.is_some_and(|read| read.unlinked.contains(&node))
        })
    }

    pub(super) fn modules_of(&self, node: NodeId) -> impl Iterator<Item = (BundleId, &DeviceName)> {
        let [first, last] = [0, u8::MAX].map(|bundle| BundleId { node, bundle });
        self.setup.modules.range(first..=last).map(|(bundle, name)| (*bundle, name))
    }

    fn is_surely_silent(&self, now: &Now, node: NodeId) -> bool {
        self.modules_of(node).all(|(_, name)| self.controller.is_silent(now, name))
    }

    pub(super) fn waits_for_hello(&self, now: &Now) -> bool {
        self.unlinked().any(|node| !self.is_surely_silent(now, node))
    }

    fn is_dead(&self, group: &[Suspect<'_>]) -> bool {
        let management = &self.controller.inventory().management;
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
