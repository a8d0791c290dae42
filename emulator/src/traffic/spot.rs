//! What a fault of a traffic scenario hits, by the names of its network.

use std::fmt;

use lightloom_engine::{LinkId, VertexId};

use super::network::Plant;
use crate::scenario::Effect;

/// A part of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// A host with all its interfaces.
    Host(VertexId),
    /// One interface of a host: its cable of this number, from 0.
    Nic(VertexId, u32),
    /// A switch.
    Switch(VertexId),
    /// A switch and the hosts on it: one correlated domain.
    Rack(VertexId),
    /// A cable.
    Cable(LinkId),
    /// An optical switch with all its circuits.
    Ocs(u32),
    /// A host that the seed draws.
    AnyHost,
    /// A switch that the seed draws.
    AnySwitch,
    /// A cable that the seed draws.
    AnyCable,
    /// What leads flows around what is dark.
    Control,
}

/// Why a network has no such part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpotError {
    /// Nothing of this name.
    #[error(
        "`{name}` names nothing in this network: it has hosts {hosts} and switches {switches}; write a host or switch by \
         name, an interface `{example}/nic0`, a cable `A-B` by its ends, `rack S`, `ocs3`, `any host`, `any switch`, \
         `any cable` or `control`"
    )]
    Unknown {
        /// As written.
        name: String,
        /// Hosts there are.
        hosts: String,
        /// Switches there are.
        switches: String,
        /// A host.
        example: String,
    },
    /// Two known ends without a cable.
    #[error("there is no cable between `{from}` and `{to}`: those of `{from}` lead to {there}")]
    NoCable {
        /// One end.
        from: String,
        /// The other.
        to: String,
        /// Where cables lead instead.
        there: String,
    },
    /// A host with fewer interfaces.
    #[error("`{host}` has interfaces nic0 to nic{last}")]
    NoNic {
        /// The host.
        host: String,
        /// Its last interface.
        last: usize,
    },
    /// An optical switch that is not there.
    #[error("this network has {count} optical switches{}", if *count > 0 { ", from ocs0" } else { "" })]
    NoOcs {
        /// How many there are.
        count: usize,
    },
}

impl Plant {
    /// The part of this name.
    ///
    /// # Errors
    /// What there is instead.
    pub fn spot(&self, text: &str) -> Result<Spot, SpotError> {
        match text {
            "any host" => return Ok(Spot::AnyHost),
            "any switch" => return Ok(Spot::AnySwitch),
            "any cable" => return Ok(Spot::AnyCable),
            "control" => return Ok(Spot::Control),
            _ => {}
        }
        if let Some(vertex) = self.vertex(text) {
            let is_host = self.place_of(vertex).is_some();
            return Ok(if is_host { Spot::Host(vertex) } else { Spot::Switch(vertex) });
        }
        let unknown = || self.unknown(text);
        if let Some(switch) = text.strip_prefix("rack ") {
            let switch = self.vertex(switch.trim()).filter(|at| self.place_of(*at).is_none());
            return switch.map(Spot::Rack).ok_or_else(unknown);
        }
        if let Some((host, nic)) = text.split_once("/nic") {
            let vertex = self.vertex(host).filter(|at| self.place_of(*at).is_some());
            let (vertex, nic) = vertex.zip(nic.parse::<u32>().ok()).ok_or_else(unknown)?;
            let last = self.network.outgoing(vertex).len().saturating_sub(1);
            let exists = (nic as usize) < self.network.outgoing(vertex).len();
            let missing = SpotError::NoNic { host: host.to_owned(), last };
            return if exists { Ok(Spot::Nic(vertex, nic)) } else { Err(missing) };
        }
        if let Some(number) = text.strip_prefix("ocs").and_then(|rest| rest.parse::<u32>().ok()) {
            let count = self.circuits.len();
            let exists = (number as usize) < count;
            return if exists { Ok(Spot::Ocs(number)) } else { Err(SpotError::NoOcs { count }) };
        }
        let (from, to) = text.split_once('-').ok_or_else(unknown)?;
        let (one, other) = self.vertex(from).zip(self.vertex(to)).ok_or_else(unknown)?;
        let leads = |link: &&LinkId| self.network.link(**link).to == other;
        let cable = self.network.outgoing(one).iter().find(leads);
        cable.map(|link| Spot::Cable(*link)).ok_or_else(|| self.no_cable((one, from), to))
    }

    fn no_cable(&self, (one, from): (VertexId, &str), to: &str) -> SpotError {
        const SHOWN: usize = 8;
        let ends = self.network.outgoing(one).iter().map(|link| self.network.link(*link).to);
        let mut names: Vec<&str> = ends.map(|end| self.name(end)).collect();
        names.dedup();
        let mut there = names[..names.len().min(SHOWN)].join(", ");
        if names.len() > SHOWN {
            there += &format!(" and {} more", names.len() - SHOWN);
        }
        SpotError::NoCable { from: from.to_owned(), to: to.to_owned(), there }
    }

    /// Whether the part of this name can be hit in this way, or what can; parts that are not there can.
    ///
    /// # Errors
    /// What the effect is for.
    pub fn allows(&self, name: &str, effect: &Effect) -> Result<(), &'static str> {
        let Ok(spot) = self.spot(name) else { return Ok(()) };
        match (effect, spot) {
            (Effect::Down | Effect::Slower(_), Spot::Control) => Ok(()),
            (_, Spot::Control) => Err("the control plane can be `down` or `slower`"),
            (Effect::Slower(_), _) => Err("only the control plane (`control`) can be `slower`"),
            (Effect::Stuck, Spot::Host(_) | Spot::AnyHost) if self.exchange.is_some() => Ok(()),
            (Effect::Stuck, _) => Err(
                "only a host that changes its circuit (`network: {exchange: …}`) can be `stuck`",
            ),
            _ => Ok(()),
        }
    }

    fn unknown(&self, name: &str) -> SpotError {
        let some = |names: Vec<&str>| match names.as_slice() {
            [] => "none".to_owned(),
            [one] => format!("`{one}`"),
            [first, .., last] => format!("`{first}` to `{last}`"),
        };
        let hosts: Vec<&str> = self.hosts.iter().map(|host| self.name(*host)).collect();
        let switches = (0..self.network.vertex_count()).map(VertexId::from_index);
        let switches = switches.filter(|at| self.place_of(*at).is_none()).map(|at| self.name(at));
        SpotError::Unknown {
            name: name.to_owned(),
            example: hosts.first().copied().unwrap_or("h0").to_owned(),
            hosts: some(hosts),
            switches: some(switches.collect()),
        }
    }

    /// How a part is called.
    #[must_use]
    pub fn spot_name(&self, spot: Spot) -> String {
        let link = |link: LinkId| self.network.link(link);
        match spot {
            Spot::Host(at) | Spot::Switch(at) => self.name(at).to_owned(),
            Spot::Nic(host, nic) => format!("{}/nic{nic}", self.name(host)),
            Spot::Rack(switch) => format!("rack {}", self.name(switch)),
            Spot::Cable(cable) => {
                format!("{}-{}", self.name(link(cable).from), self.name(link(cable).to))
            }
            Spot::Ocs(number) => format!("ocs{number}"),
            Spot::AnyHost | Spot::AnySwitch | Spot::AnyCable | Spot::Control => spot.to_string(),
        }
    }

    /// What the seed draws for a part that leaves the choice to it; `choice` is below one.
    pub(super) fn draw(&self, spot: Spot, choice: f64) -> Option<Spot> {
        let one_of = |count: usize| (count as f64 * choice) as usize;
        match spot {
            Spot::AnyHost => self.hosts.get(one_of(self.hosts.len())).map(|at| Spot::Host(*at)),
            Spot::AnySwitch => {
                let all = (0..self.network.vertex_count()).map(VertexId::from_index);
                let all: Vec<_> = all.filter(|at| self.place_of(*at).is_none()).collect();
                all.get(one_of(all.len())).map(|at| Spot::Switch(*at))
            }
            Spot::AnyCable => {
                let cable = one_of(self.network.links().len() / 2);
                Some(Spot::Cable(LinkId::from_index(2 * cable)))
            }
            other => Some(other),
        }
    }

    /// The links, both directions, that a fault of a part hits.
    #[must_use]
    pub fn links_of(&self, spot: Spot) -> Vec<LinkId> {
        let both = |link: &LinkId| [*link, link.reverse()];
        let around = |at: VertexId| self.network.outgoing(at).iter().flat_map(both);
        match spot {
            Spot::Host(at) | Spot::Switch(at) => around(at).collect(),
            Spot::Nic(host, nic) => both(&self.network.outgoing(host)[nic as usize]).to_vec(),
            Spot::Rack(switch) => {
                let mut links: Vec<LinkId> = around(switch).collect();
                links.extend(self.hosts_on(switch).flat_map(around));
                links.sort_unstable();
                links.dedup();
                links
            }
            Spot::Cable(cable) => both(&cable).to_vec(),
            Spot::Ocs(number) => self.circuits[number as usize].iter().flat_map(both).collect(),
            Spot::AnyHost | Spot::AnySwitch | Spot::AnyCable | Spot::Control => Vec::new(),
        }
    }

    fn hosts_on(&self, switch: VertexId) -> impl Iterator<Item = VertexId> + '_ {
        let ends = self.network.outgoing(switch).iter().map(|link| self.network.link(*link).to);
        ends.filter(|end| self.place_of(*end).is_some())
    }
}

impl fmt::Display for Spot {
    /// Without the names of a network: for parts that have none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyHost => f.write_str("any host"),
            Self::AnySwitch => f.write_str("any switch"),
            Self::AnyCable => f.write_str("any cable"),
            Self::Control => f.write_str("control"),
            other => write!(f, "{other:?}"),
        }
    }
}
