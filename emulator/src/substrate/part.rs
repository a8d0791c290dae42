// SPDX-License-Identifier: Apache-2.0
//! Looks up parts by name.

use std::collections::BTreeSet;

use lightloom_engine::{LinkId, VertexId, VertexRole};
use lightloom_fabric::fault::{self, FaultError, FaultSet, Part as PlannedPart};
use lightloom_units::id::{BundleId, GpuId, LeafId, NodeId, OcsId, TorId};

use super::{DCN, RingCables, Substrate, both_ways};

/// A controlled port of an optical switch.
pub type OpticalPort = (OcsId, u32);

/// A part of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPart {
    /// Name of the part.
    pub name: String,
    /// Links in both directions, in order.
    pub links: Vec<LinkId>,
    /// Links to the interfaces of hosts.
    pub interfaces: Vec<LinkId>,
    /// Parts that a ring planner takes out of service after a failure.
    pub planned: Vec<PlannedPart>,
    /// Controlled ports on optical switches.
    pub ports: Vec<OpticalPort>,
    /// Indices of the hosts that stop after a failure.
    pub hosts: Vec<u32>,
    /// Leaves whose hosts belong to the part.
    pub leaves: Vec<LeafId>,
    /// Node at the failed end, if only light towards this node fails.
    pub towards: Option<NodeId>,
    /// Whether the part can ignore commands (a bundle, or a host or port with switchable circuits).
    pub is_commanded: bool,
    /// Whether the part is a packet switch.
    pub is_switch: bool,
    /// Whether the part is the control plane.
    pub is_control: bool,
}

impl NetworkPart {
    /// Returns whether the part is a whole controlled optical switch.
    pub fn is_optical_switch(&self) -> bool {
        !self.ports.is_empty() && self.name.parse::<OcsId>().is_ok()
    }

    /// Returns whether the part is a single transceiver bundle.
    pub fn is_bundle(&self) -> bool {
        matches!(self.planned[..], [PlannedPart::Bundle(_)])
    }

    /// Returns whether the part consists only of host interfaces.
    pub fn is_interface(&self) -> bool {
        let ends = self.interfaces.iter().flat_map(|link| both_ways(*link));
        let ends: Vec<LinkId> = ends.collect();
        !ends.is_empty() && self.links.iter().all(|link| ends.contains(link))
    }
}

/// A kind of part for random faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyPart {
    /// A node that works at the start of the run.
    Node,
    /// A bundle of a node.
    Bundle,
    /// A fibre between two bundles.
    Fibre,
    /// A host.
    Host,
    /// A switch.
    Switch,
    /// A cable.
    Cable,
    /// An optical switch.
    OpticalSwitch,
}

impl AnyPart {
    /// All kinds, with their names in scenarios.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Node, "any node"),
        (Self::Bundle, "any bundle"),
        (Self::Fibre, "any fibre"),
        (Self::Host, "any host"),
        (Self::Switch, "any switch"),
        (Self::Cable, "any cable"),
        (Self::OpticalSwitch, "any optical switch"),
    ];

    /// Looks up a kind by name.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text.trim()).map(|(any, _)| *any)
    }

    /// Returns the name used in scenarios.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(any, _)| *any == self).map_or("", |(_, name)| *name)
    }
}

/// Reasons why a part does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum NoSuchPart {
    #[error("`{name}` does not exist in this network: {there}")]
    Unknown { name: String, there: String },
    #[error(transparent)]
    Fabric(#[from] FaultError),
    #[error("{gpu} does not exist: a node has GPUs g0 to g{last}")]
    NoGpu { gpu: GpuId, last: u8 },
    #[error("`{host}` has interfaces nic0 to nic{last}")]
    NoNic { host: String, last: usize },
    #[error(transparent)]
    Fibre(fault::PartError),
    #[error("{tor} does not exist: the fabric has ToRs t0 to t{last}")]
    NoTor { tor: TorId, last: usize },
    #[error("there is no cable between `{from}` and `{to}`: `{from}` has cables to {there}")]
    NoCable { from: String, to: String, there: String },
    #[error("this network has {count} optical switches{}", if *count > 0 { ", from ocs0" } else { "" })]
    NoOcs { count: usize },
    #[error("`{name}` does not exist: {ocs} has ports p0 to p{last}")]
    NoPorts { name: String, ocs: OcsId, last: u32 },
}

impl Substrate {
    /// Looks up a part by name.
    ///
    /// # Errors
    /// Fails if there is no such part, and lists the existing ones.
    pub fn part(&self, text: &str) -> Result<NetworkPart, NoSuchPart> {
        let text = text.trim();
        if text == "control" {
            return Ok(NetworkPart {
                name: text.to_owned(),
                is_control: true,
                ..NetworkPart::default()
            });
        }
        if let Some(part) = self.optical_part(text) {
            return part;
        }
        if let Some(part) = self.rings.as_ref().and_then(|rings| self.ring_part(rings, text)) {
            return part;
        }
        if let Some(vertex) = self.vertex(text) {
            return Ok(self.vertex_part(text, vertex));
        }
        if let Some(name) = text.strip_prefix("rack ") {
            let switch = self.vertex(name.trim()).filter(|at| self.place_of(*at).is_none());
            let switch = switch.ok_or_else(|| self.unknown(text))?;
            return Ok(self.rack(switch));
        }
        if let Some(number) = text.strip_prefix("plane").and_then(|rest| rest.parse::<u8>().ok()) {
            return self.plane(text, number);
        }
        if let Some((host, nic)) = text.split_once("/nic") {
            return self.interface(text, host, nic);
        }
        if let Some(number) = text.strip_prefix("ocs").and_then(|rest| rest.parse::<usize>().ok()) {
            let cables = self.patched.get(number);
            let cables = cables.ok_or(NoSuchPart::NoOcs { count: self.patched.len() })?;
            return Ok(self.of_links(text, cables.iter().copied().flat_map(both_ways)));
        }
        self.cable(text)
    }

    /// Returns the number of parts of a kind.
    pub fn count(&self, any: AnyPart) -> usize {
        match any {
            AnyPart::Node => self.rings.as_ref().map_or(0, |r| r.fabric.hbd.nodes() as usize),
            AnyPart::Bundle => self
                .rings
                .as_ref()
                .map_or(0, |r| r.fabric.hbd.nodes() as usize * usize::from(r.fabric.hbd.k())),
            AnyPart::Fibre => self.rings.as_ref().map_or(0, |r| r.fabric.hbd.fibres().count()),
            AnyPart::Host => self.hosts.len(),
            AnyPart::Switch => self.switches().count(),
            AnyPart::Cable => self.network.links().len() / 2,
            AnyPart::OpticalSwitch => match &self.circuits {
                Some(circuits) => circuits.network().switches(),
                None => self.patched.len(),
            },
        }
    }

    /// Returns the part of a kind with this index, or `None` if the index is too large.
    pub fn part_at(&self, any: AnyPart, place: usize) -> Option<NetworkPart> {
        if place >= self.count(any) {
            return None;
        }
        match any {
            AnyPart::OpticalSwitch => self.part(&format!("ocs{place}")).ok(),
            AnyPart::Node => self.part(&NodeId::from_index(place).to_string()).ok(),
            AnyPart::Bundle => {
                let k = usize::from(self.rings.as_ref()?.fabric.hbd.k());
                let (node, bundle) = (NodeId::from_index(place / k), (place % k) as u8);
                self.part(&BundleId { node, bundle }.to_string()).ok()
            }
            AnyPart::Fibre => {
                let hbd = &self.rings.as_ref()?.fabric.hbd;
                let (port, _) = hbd.ports(hbd.fibres().nth(place)?);
                self.part(&port.to_string()).ok()
            }
            AnyPart::Host => {
                Some(self.vertex_part(self.name(self.hosts[place]), self.hosts[place]))
            }
            AnyPart::Switch => {
                self.switches().nth(place).map(|at| self.vertex_part(self.name(at), at))
            }
            AnyPart::Cable => {
                let link = LinkId::from_index(2 * place);
                let ends = self.network.link(link);
                let name = format!("{}-{}", self.name(ends.from), self.name(ends.to));
                Some(self.of_links(&name, both_ways(link)))
            }
        }
    }

    fn switches(&self) -> impl Iterator<Item = VertexId> + '_ {
        let all = (0..self.network.vertex_count()).map(VertexId::from_index);
        all.filter(|at| !self.network.role(*at).is_host())
    }

    fn around(&self, vertex: VertexId) -> impl Iterator<Item = LinkId> + '_ {
        self.network.outgoing(vertex).iter().copied().flat_map(both_ways)
    }

    fn of_links(&self, name: &str, links: impl IntoIterator<Item = LinkId>) -> NetworkPart {
        let mut links: Vec<LinkId> = links.into_iter().collect();
        links.sort_unstable();
        links.dedup();
        let interfaces = links.iter().copied().filter(|link| {
            let ends = self.network.link(*link);
            let is_interface = self.rings.is_none() || ends.spec.plane == DCN;
            is_interface && self.place_of(ends.to).is_some()
        });
        let interfaces = interfaces.collect();
        NetworkPart { name: name.to_owned(), links, interfaces, ..NetworkPart::default() }
    }

    fn vertex_part(&self, name: &str, vertex: VertexId) -> NetworkPart {
        let host = self.place_of(vertex);
        let nodes = self.rings.iter().flat_map(|rings| match rings.gpu(vertex) {
            Some(gpu) => vec![gpu.node],
            None => rings.nodes_of_island(vertex),
        });
        NetworkPart {
            is_switch: self.network.role(vertex) == VertexRole::Switch,
            hosts: host.into_iter().collect(),
            planned: nodes.map(PlannedPart::Node).collect(),
            ..self.of_links(name, self.around(vertex))
        }
    }

    pub(crate) fn keep_towards(&self, part: &mut NetworkPart, end: &str) {
        part.links.retain(|link: &LinkId| self.name(self.network.link(*link).to) == end);
        let end_at = part.links.first().map(|link| self.network.link(*link).to);
        let gpu = end_at.and_then(|end| self.rings.as_ref()?.gpu(end));
        part.towards = gpu.map(|gpu| gpu.node);
        if part.towards.is_none() {
            // Light towards a switch is not part of a ring.
            part.planned.clear();
        }
        part.name = format!("{} towards {end}", part.name);
    }

    pub(crate) fn ends_of(&self, part: &NetworkPart) -> BTreeSet<&str> {
        part.links.iter().map(|link| self.name(self.network.link(*link).to)).collect()
    }

    fn rack(&self, switch: VertexId) -> NetworkPart {
        let ends = self.network.outgoing(switch).iter().map(|link| self.network.link(*link).to);
        let hosts: Vec<VertexId> = ends.filter(|end| self.place_of(*end).is_some()).collect();
        let links = self.around(switch).chain(hosts.iter().flat_map(|host| self.around(*host)));
        let part = self.of_links(&format!("rack {}", self.name(switch)), links);
        let gpus = self.rings.iter().flat_map(|rings| hosts.iter().filter_map(|at| rings.gpu(*at)));
        let mut nodes: Vec<NodeId> = gpus.map(|gpu| gpu.node).collect();
        nodes.dedup();
        let hosts = hosts.iter().filter_map(|host| self.place_of(*host)).collect();
        NetworkPart { planned: nodes.into_iter().map(PlannedPart::Node).collect(), hosts, ..part }
    }

    fn plane(&self, text: &str, number: u8) -> Result<NetworkPart, NoSuchPart> {
        let links = self.network.links();
        let last = links.iter().map(|link| link.spec.plane.0).max().unwrap_or(0);
        if last == 0 || number > last || self.rings.is_some() {
            return Err(self.unknown(text));
        }
        let own = (0..links.len()).filter(|at| links[*at].spec.plane.0 == number);
        Ok(self.of_links(text, own.map(LinkId::from_index)))
    }

    fn interface(&self, text: &str, host: &str, nic: &str) -> Result<NetworkPart, NoSuchPart> {
        let vertex = self.vertex(host).filter(|at| self.place_of(*at).is_some());
        let (vertex, nic) =
            vertex.zip(nic.parse::<usize>().ok()).ok_or_else(|| self.unknown(text))?;
        let cables = self.network.outgoing(vertex);
        match cables.get(nic) {
            Some(cable) => Ok(self.of_links(text, both_ways(*cable))),
            None => Err(NoSuchPart::NoNic {
                host: host.to_owned(),
                last: cables.len().saturating_sub(1),
            }),
        }
    }

    fn cable(&self, text: &str) -> Result<NetworkPart, NoSuchPart> {
        let (from, to) = text.split_once('-').ok_or_else(|| self.unknown(text))?;
        let ends = self.vertex(from).zip(self.vertex(to));
        let (one, other) = ends.ok_or_else(|| self.unknown(text))?;
        let mut cables = self.network.outgoing(one).iter();
        let cable = cables.find(|link| self.network.link(**link).to == other);
        let cable = cable.ok_or_else(|| self.no_cable(one, from, to))?;
        // A GPU that loses its island's switch takes the node out of the plan.
        let island = [&one, &other].into_iter().find(|at: &&VertexId| {
            self.rings.as_ref().is_some_and(|rings| !rings.nodes_of_island(**at).is_empty())
        });
        let gpus = [one, other].into_iter().filter_map(|at| self.rings.as_ref()?.gpu(at));
        let nodes = gpus.filter(|_| island.is_some()).map(|gpu| PlannedPart::Node(gpu.node));
        Ok(NetworkPart { planned: nodes.collect(), ..self.of_links(text, both_ways(*cable)) })
    }

    fn no_cable(&self, one: VertexId, from: &str, to: &str) -> NoSuchPart {
        const SHOWN: usize = 8;
        let ends = self.network.outgoing(one).iter().map(|link| self.network.link(*link).to);
        let mut names: Vec<&str> = ends.map(|end| self.name(end)).collect();
        names.dedup();
        let mut there = names[..names.len().min(SHOWN)].join(", ");
        if names.len() > SHOWN {
            there += &format!(" and {} more", names.len() - SHOWN);
        }
        NoSuchPart::NoCable { from: from.to_owned(), to: to.to_owned(), there }
    }

    fn ring_part(&self, rings: &RingCables, text: &str) -> Option<Result<NetworkPart, NoSuchPart>> {
        if let Ok(tor) = text.strip_prefix("rack ").unwrap_or(text).trim().parse::<TorId>() {
            let last = rings.tors.len().checked_sub(1)?;
            let Some(vertex) = rings.tors.get(tor.index()) else {
                return Some(Err(NoSuchPart::NoTor { tor, last }));
            };
            let whole = text.starts_with("rack ");
            return Some(Ok(if whole {
                self.rack(*vertex)
            } else {
                self.vertex_part(text, *vertex)
            }));
        }
        if let Ok(gpu) = text.replacen("/nic", "/g", 1).parse::<GpuId>() {
            return Some(self.gpu_part(rings, text, gpu));
        }
        let planned = match text.parse::<PlannedPart>() {
            Ok(planned) => planned,
            Err(error) => {
                let of_bundle =
                    text.rsplit_once('.').is_some_and(|(b, _)| b.parse::<BundleId>().is_ok());
                return of_bundle.then_some(Err(NoSuchPart::Fibre(error)));
            }
        };
        planned.node()?;
        Some(self.planned_part(rings, planned))
    }

    fn gpu_part(
        &self,
        rings: &RingCables,
        text: &str,
        gpu: GpuId,
    ) -> Result<NetworkPart, NoSuchPart> {
        FaultSet::of(&rings.fabric, [PlannedPart::Node(gpu.node)])?;
        let last = rings.fabric.hbd.gpus_per_node() - 1;
        let is_nic = text.contains("/nic");
        if gpu.gpu > last {
            return Err(match is_nic {
                true => NoSuchPart::NoNic { host: gpu.node.to_string(), last: usize::from(last) },
                false => NoSuchPart::NoGpu { gpu, last },
            });
        }
        let vertex = rings.vertex(gpu);
        let whole = self.vertex_part(text, vertex);
        if !is_nic {
            return Ok(whole);
        }
        let around = self.around(vertex);
        let interface = around.filter(|link| self.network.link(*link).spec.plane == DCN);
        let part = self.of_links(text, interface);
        Ok(NetworkPart { planned: whole.planned, ..part })
    }

    fn planned_part(
        &self,
        rings: &RingCables,
        planned: PlannedPart,
    ) -> Result<NetworkPart, NoSuchPart> {
        FaultSet::of(&rings.fabric, [planned])?;
        let name = planned.to_string();
        let part = match planned {
            PlannedPart::Node(node) => {
                let gpus = (0..rings.fabric.hbd.gpus_per_node()).map(|gpu| GpuId { node, gpu });
                let vertices: Vec<VertexId> = gpus.map(|gpu| rings.vertex(gpu)).collect();
                let part = self.of_links(&name, vertices.iter().flat_map(|at| self.around(*at)));
                NetworkPart {
                    hosts: vertices.iter().filter_map(|at| self.place_of(*at)).collect(),
                    ..part
                }
            }
            PlannedPart::Bundle(bundle) => {
                let part = self.of_links(&name, rings.all_links_of(bundle));
                NetworkPart { is_commanded: true, ..part }
            }
            PlannedPart::Fibre(port) => {
                self.of_links(&name, rings.links_of(port.bundle, port.selects()))
            }
            PlannedPart::Ocs(_) | PlannedPart::OcsPort(_) | PlannedPart::Uplink(_) => {
                return Err(self.unknown(&name));
            }
        };
        Ok(NetworkPart { planned: vec![planned], ..part })
    }

    fn optical_part(&self, text: &str) -> Option<Result<NetworkPart, NoSuchPart>> {
        let network = self.circuits.as_ref()?.network();
        if let Some(leaf) = text.strip_suffix("/gpus").and_then(|leaf| leaf.parse::<LeafId>().ok())
        {
            let circuits = self.circuits.as_ref()?;
            let exists = leaf.index() < network.leaves();
            return exists.then(|| {
                let part = self.of_links(text, circuits.interface(leaf));
                let place = self.place_of(circuits.host(leaf.index()));
                Ok(NetworkPart { hosts: place.into_iter().collect(), leaves: vec![leaf], ..part })
            });
        }
        let (ocs, ports) = text.split_once("/p").map_or((text, None), |(o, p)| (o, Some(p)));
        let ocs = ocs.parse::<OcsId>().ok()?;
        if ocs.index() >= network.switches() {
            return Some(Err(NoSuchPart::NoOcs { count: network.switches() }));
        }
        let last = network.bank(ocs).ports_per_switch - 1;
        let range = match ports {
            None => Some((0, last)),
            Some(ports) => {
                let (first, end) = ports.split_once("..").unwrap_or((ports, ports));
                let end = end.strip_prefix('p').unwrap_or(end);
                first.parse::<u32>().ok().zip(end.parse::<u32>().ok())
            }
        };
        let range = range.filter(|(first, end)| first <= end && *end <= last);
        let Some((first, end)) = range else {
            return Some(Err(NoSuchPart::NoPorts { name: text.to_owned(), ocs, last }));
        };
        let ports = (first..=end).map(|port| (ocs, port)).collect();
        Some(Ok(NetworkPart {
            name: text.to_owned(),
            ports,
            is_commanded: true,
            ..NetworkPart::default()
        }))
    }

    fn unknown(&self, name: &str) -> NoSuchPart {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| self.name(*host)).collect();
        let switches: Vec<&str> = self.switches().map(|at| self.name(at)).collect();
        let example = hosts.first().copied().unwrap_or("h0").to_owned();
        let [hosts, switches] = [hosts, switches].map(|names| match names.as_slice() {
            [] => "none".to_owned(),
            [one] => format!("`{one}`"),
            [first, .., last] => format!("`{first}` to `{last}`"),
        });
        let mut there = match &self.rings {
            Some(_) => "use a node `n17`, a GPU `n17/g2`, its interface `n17/nic2`, a bundle `n17/b0`, a fibre \
                        `n17/b0.2`, a ToR `t3`, everything under it `rack t3`, `any node` or `control`"
                .to_owned(),
            None => format!(
                "it has hosts {hosts} and switches {switches}; use a host or switch by name, an interface `{example}/nic0`, a cable \
                 `A-B` by its ends, `rack S`, `ocs3`, `any host`, `any switch`, `any cable`, `any optical switch` or `control`",
            ),
        };
        let last = self.network.links().iter().map(|link| link.spec.plane.0).max().unwrap_or(0);
        if self.rings.is_none() && last > 0 {
            there += &format!(", or a plane `plane0` to `plane{last}`");
        }
        if self.rings.as_ref().is_some_and(|rings| !rings.islands.is_empty()) {
            there += "; the switch of an island `hbd0`, a GPU's cable to it `n17/g2-hbd0`";
        }
        if self.circuits.is_some() {
            there += "; an optical switch `ocs3`, `any optical switch`, a port of it `ocs3/p7`, a board `ocs3/p0..p15`, the GPUs of a leaf \
                      `leaf2/gpus`";
        }
        NoSuchPart::Unknown { name: name.to_owned(), there }
    }
}
