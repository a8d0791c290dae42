// SPDX-License-Identifier: Apache-2.0
//! The network graph: hosts and switches connected by cables of two directed links each.
//!
//! A link consists of a wire and the output queue at its sending end. A host's output queue is its memory, which never
//! drops or marks packets. Hosts do not forward packets by default, so shortest paths run over switches only.

use std::sync::Arc;

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};
use rustc_hash::FxHashMap;

macro_rules! dense_index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            pub const fn index(self) -> usize {
                self.0 as usize
            }
            /// Panics if `index` does not fit in 32 bits.
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("a run has fewer than 2^32 items of each kind"))
            }
        }
    };
}
pub(crate) use dense_index;

dense_index! {
    VertexId
}
dense_index! {
    /// One direction of a cable. The two ids of a cable differ only in the lowest bit.
    LinkId
}

impl LinkId {
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VertexRole {
    Host,
    ForwardingHost,
    Switch,
}

impl VertexRole {
    pub const fn is_host(self) -> bool {
        !matches!(self, Self::Switch)
    }
    pub const fn forwards(self) -> bool {
        !matches!(self, Self::Host)
    }
}

/// Flows can be confined to a high-bandwidth domain, a data-centre network or one of its planes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plane(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    pub rate: BitsPerSecond,
    /// Propagation delay. The minimum over the network limits the length of windows.
    pub delay: Picoseconds,
    /// Capacity of the queue, including the packet in transmission. Packets that do not fit are
    /// dropped. `None` means two seconds of data at the link's rate. Ignored at hosts.
    pub queue: Option<Bytes>,
    /// Packets that meet at least this backlog get an ECN mark. Ignored at hosts.
    pub mark_from: Option<Bytes>,
    pub plane: Plane,
}

impl LinkSpec {
    pub const fn new(rate: BitsPerSecond, delay: Picoseconds) -> Self {
        Self { rate, delay, queue: None, mark_from: None, plane: Plane(0) }
    }
    pub const fn with_queue(mut self, capacity: Bytes, mark_from: Bytes) -> Self {
        self.queue = Some(capacity);
        self.mark_from = Some(mark_from);
        self
    }
    pub const fn in_plane(mut self, plane: Plane) -> Self {
        self.plane = plane;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub from: VertexId,
    pub to: VertexId,
    pub spec: LinkSpec,
}

pub(crate) const LONGEST_DELAY: Picoseconds = Picoseconds::from_micros(1_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("link {} has no propagation delay: give it at least 1 ps", link.0)]
    NoDelay { link: LinkId },
    #[error("link {} has a delay of {delay}, but at most {LONGEST_DELAY} can be emulated", link.0)]
    TooLong { link: LinkId, delay: Picoseconds },
    #[error("link {} has a rate of {rate}, but at least 10 Mb/s is required", link.0)]
    TooSlow { link: LinkId, rate: BitsPerSecond },
    #[error("link {} connects vertex {} to itself", link.0, vertex.0)]
    Loop { link: LinkId, vertex: VertexId },
    #[error("link {} ends at vertex {}, which does not exist", link.0, vertex.0)]
    NoSuchVertex { link: LinkId, vertex: VertexId },
    #[error("the network has no links")]
    Empty,
}

#[derive(Clone, Debug, Default)]
pub struct NetworkBuilder {
    roles: Vec<VertexRole>,
    links: Vec<Link>,
}

impl NetworkBuilder {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn add(&mut self, role: VertexRole) -> VertexId {
        self.roles.push(role);
        VertexId::from_index(self.roles.len() - 1)
    }
    pub fn connect(&mut self, a: VertexId, b: VertexId, spec: LinkSpec) -> LinkId {
        self.connect_unequal(a, b, spec, spec)
    }
    pub fn connect_unequal(
        &mut self,
        a: VertexId,
        b: VertexId,
        there: LinkSpec,
        back: LinkSpec,
    ) -> LinkId {
        let id = LinkId::from_index(self.links.len());
        self.links.push(Link { from: a, to: b, spec: there });
        self.links.push(Link { from: b, to: a, spec: back });
        id
    }
    /// Fails with the first link that cannot be emulated.
    pub fn build(self) -> Result<Network, NetworkError> {
        if self.links.is_empty() {
            return Err(NetworkError::Empty);
        }
        for (index, link) in self.links.iter().enumerate() {
            check(LinkId::from_index(index), link, self.roles.len())?;
        }
        let mut outgoing = vec![Vec::new(); self.roles.len()];
        for (index, link) in self.links.iter().enumerate() {
            outgoing[link.from.index()].push(LinkId::from_index(index));
        }
        let shortest_delay =
            self.links.iter().map(|link| link.spec.delay).min().expect("there are links");
        let kinds = self.kinds();
        let Self { roles, mut links } = self;
        links.shrink_to_fit();
        let inner =
            links.iter().zip(&kinds).filter(|(link, _)| roles[link.from.index()].forwards());
        let mut inner = inner.map(|(_, kind)| kind);
        let first = inner.next();
        let is_uniform = inner.all(|kind| Some(kind) == first);
        let parts = NetworkParts { roles, links, kinds, is_uniform, outgoing, shortest_delay };
        Ok(Network(Arc::new(parts)))
    }

    fn kinds(&self) -> Vec<u32> {
        let mut known = FxHashMap::default();
        let kinds = self.links.iter().map(|Link { from, spec, .. }| {
            let next = known.len() as u32;
            let is_host = self.roles[from.index()].is_host();
            *known.entry((spec.rate, spec.delay, is_host)).or_insert(next)
        });
        kinds.collect()
    }
}

fn check(id: LinkId, link: &Link, vertices: usize) -> Result<(), NetworkError> {
    for vertex in [link.from, link.to] {
        if vertex.index() >= vertices {
            return Err(NetworkError::NoSuchVertex { link: id, vertex });
        }
    }
    if link.from == link.to {
        return Err(NetworkError::Loop { link: id, vertex: link.from });
    }
    if link.spec.delay == Picoseconds::ZERO {
        return Err(NetworkError::NoDelay { link: id });
    }
    if link.spec.delay > LONGEST_DELAY {
        return Err(NetworkError::TooLong { link: id, delay: link.spec.delay });
    }
    if link.spec.rate < BitsPerSecond(10_000_000) {
        return Err(NetworkError::TooSlow { link: id, rate: link.spec.rate });
    }
    Ok(())
}

/// Its parts are shared by all copies.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<NetworkParts>);

#[derive(Debug, Default)]
struct NetworkParts {
    roles: Vec<VertexRole>,
    links: Vec<Link>,
    kinds: Vec<u32>,
    /// Whether all links from vertices that forward are of one kind.
    is_uniform: bool,
    outgoing: Vec<Vec<LinkId>>,
    shortest_delay: Picoseconds,
}

impl Network {
    pub fn vertex_count(&self) -> usize {
        self.0.roles.len()
    }
    pub fn role(&self, vertex: VertexId) -> VertexRole {
        self.0.roles[vertex.index()]
    }
    pub fn links(&self) -> &[Link] {
        &self.0.links
    }
    pub fn link(&self, link: LinkId) -> &Link {
        &self.0.links[link.index()]
    }
    pub(crate) fn are_alike(&self, one: &[LinkId], other: &[LinkId]) -> bool {
        let kind = |link: &LinkId| self.0.kinds[link.index()];
        one.iter().map(kind).eq(other.iter().map(kind))
    }
    /// Whether paths of equal length over the same first link are [alike](Self::are_alike).
    pub(crate) fn is_uniform(&self) -> bool {
        self.0.is_uniform
    }
    pub fn outgoing(&self, vertex: VertexId) -> &[LinkId] {
        &self.0.outgoing[vertex.index()]
    }
    pub fn shortest_delay(&self) -> Picoseconds {
        self.0.shortest_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unsupported_networks_by_name() {
        let good = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let build = |spec: LinkSpec, same: bool| {
            let mut builder = NetworkBuilder::new();
            let a = builder.add(VertexRole::Host);
            let b = builder.add(VertexRole::Host);
            builder.connect(a, if same { a } else { b }, spec);
            builder.build().map(|_| ())
        };
        assert_eq!(build(good, false), Ok(()));
        assert!(matches!(build(good, true), Err(NetworkError::Loop { .. })));
        let no_delay = LinkSpec { delay: Picoseconds::ZERO, ..good };
        assert!(matches!(build(no_delay, false), Err(NetworkError::NoDelay { .. })));
        let long = LinkSpec { delay: Picoseconds::from_micros(1_000_001), ..good };
        assert!(matches!(build(long, false), Err(NetworkError::TooLong { .. })));
        let slow = LinkSpec { rate: BitsPerSecond(9_999_999), ..good };
        assert!(matches!(build(slow, false), Err(NetworkError::TooSlow { .. })));
        assert!(matches!(NetworkBuilder::new().build(), Err(NetworkError::Empty)));
    }
}
