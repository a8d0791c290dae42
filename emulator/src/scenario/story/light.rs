//! Which links carry light: those that the bundles at their ends select and no fault has put out.

use std::collections::BTreeMap;

use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkChange, LinkId, VertexId};
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Path;
use lightloom_planner::khop::RingGroup;
use lightloom_units::id::BundleId;
use rustc_hash::FxHashMap;

use super::super::Target;
use super::super::installed::{Carrier, DCN, HBD};
use super::Story;

/// What decides about light, besides the plan.
#[derive(Default)]
pub(super) struct Light {
    /// The path that each bundle that was ever switched holds in hardware; nothing while it is dark.
    pub(super) held: BTreeMap<BundleId, Option<Path>>,
    /// How many faults have put a link out.
    struck: FxHashMap<LinkId, u32>,
}

impl Story<'_> {
    /// Puts out what the first plan does not light and what is broken from the start.
    pub(super) fn light_the_plan(&mut self) {
        for part in self.control.known.parts(self.fabric) {
            let links = self.links_of(Target::Part(part));
            self.count_struck(&links, 1);
        }
        let links: Vec<LinkId> = self
            .engine
            .network()
            .links()
            .iter()
            .enumerate()
            .map(|(index, _)| LinkId::from_index(index))
            .filter(|link| !self.passes(*link))
            .collect();
        self.change(&links, LinkChange::Down);
    }

    /// Links, both directions, of what a fault hits.
    pub(super) fn links_of(&self, target: Target) -> Vec<LinkId> {
        let network = self.engine.network();
        let mut links = self.installed.links_of_target(self.fabric, network, target);
        links.sort_unstable();
        links.dedup();
        links
    }

    pub(super) fn change(&mut self, links: &[LinkId], change: LinkChange) {
        let now = self.engine.now();
        for link in links {
            self.engine.change_link(now, *link, change);
        }
    }

    /// The path that a bundle holds in hardware; nothing while it is dark.
    pub(super) fn held(&self, bundle: BundleId) -> Option<Path> {
        self.light.held.get(&bundle).copied().unwrap_or_else(|| Some(self.layout.path(bundle)))
    }

    /// Lets a bundle hold a path in hardware, or none.
    pub(super) fn hold(&mut self, bundle: BundleId, path: Option<Path>) {
        self.light.held.insert(bundle, path);
        let links = self.links_of(Target::Part(Part::Bundle(bundle)));
        self.refresh(&links);
    }

    /// Whether a link carries packets.
    pub(super) fn passes(&self, link: LinkId) -> bool {
        let selected = match self.installed.carrier(link) {
            Carrier::Always => true,
            Carrier::Loopback(bundle) => self.held(bundle) == Some(Path::Loopback),
            Carrier::Fibre(a, b) => [a, b].iter().all(|p| self.held(p.bundle) == Some(p.selects())),
        };
        selected && self.light.struck.get(&link).is_none_or(|count| *count == 0)
    }

    /// Makes the engine's links what they should be.
    pub(super) fn refresh(&mut self, links: &[LinkId]) {
        for link in links {
            let change = if self.passes(*link) { LinkChange::Up } else { LinkChange::Down };
            self.change(&[*link], change);
        }
    }

    fn count_struck(&mut self, links: &[LinkId], more: u32) {
        for link in links {
            *self.light.struck.entry(*link).or_default() += more;
        }
    }

    /// A fault puts links out.
    pub(super) fn put_out(&mut self, links: &[LinkId]) {
        self.count_struck(links, 1);
        self.refresh(links);
    }

    /// A fault lets links go.
    pub(super) fn let_go(&mut self, links: &[LinkId]) {
        for link in links {
            let count = self.light.struck.get_mut(link).expect("what is let go was put out");
            *count -= 1;
        }
        self.refresh(links);
    }

    /// Whether every link of a group's ring carries light.
    pub(super) fn is_ready(&self, group: &RingGroup) -> bool {
        self.broken.is_calm() || self.ring_links(group).is_some()
    }

    /// The links of a group's ring, one direction; nothing while one of them is dark.
    fn ring_links(&self, group: &RingGroup) -> Option<Vec<LinkId>> {
        let ring = self.layout.ring(&self.fabric.hbd, group);
        let members: Vec<VertexId> = ring.iter().map(|gpu| self.installed.vertex(*gpu)).collect();
        // A group inside a node is a line: its ends are joined over its own links.
        let hops = if group.segment.is_some() { ring.len() - 1 } else { ring.len() };
        (0..hops)
            .map(|place| self.lit_link(members[place], members[(place + 1) % members.len()]))
            .collect()
    }

    fn lit_link(&self, from: VertexId, to: VertexId) -> Option<LinkId> {
        let network = self.engine.network();
        let mut links = network.outgoing(from).iter().copied();
        links.find(|link| {
            let ends = network.link(*link);
            ends.to == to && ends.spec.plane == HBD && self.passes(*link)
        })
    }

    /// Links, both directions, that a lane's collectives use: its ring, and its interfaces where the
    /// job reduces between groups.
    pub(super) fn links_of_lane(&self, lane: usize) -> Vec<LinkId> {
        let group = self.group_of(lane);
        let mut links = self.ring_links(&group).unwrap_or_default();
        if self.scenario.collectives.iter().any(|collective| collective.kind.is_between_groups()) {
            let network = self.engine.network();
            for gpu in self.layout.ring(&self.fabric.hbd, &group) {
                let vertex = self.installed.vertex(gpu);
                links.extend(
                    network
                        .outgoing(vertex)
                        .iter()
                        .copied()
                        .filter(|link| network.link(*link).spec.plane == DCN),
                );
            }
        }
        links.extend(links.clone().into_iter().map(LinkId::reverse));
        links.sort_unstable();
        links
    }
}
