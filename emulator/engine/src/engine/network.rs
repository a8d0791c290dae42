// SPDX-License-Identifier: Apache-2.0
//! The graph packets travel on: hosts and switches joined by cables of two directed links.
//!
//! Every link is one output queue at its sending end followed by a wire. A host's own output queue
//! is its memory: it never drops and never marks. Hosts do not forward, unless set to, so a
//! shortest path runs over switches only.

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};
use rustc_hash::FxHashMap;

macro_rules! dense_index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in arrays indexed by this id.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
            /// The id of array position `index`.
            ///
            /// # Panics
            /// If `index` does not fit 32 bits.
            #[must_use]
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("a run holds fewer than 2^32 of anything"))
            }
        }
    };
}
pub(crate) use dense_index;

dense_index! {
    /// A host (or GPU, or NIC) or a switch of the engine's graph, in order of creation.
    VertexId
}
dense_index! {
    /// One direction of a cable. The two directions of a cable differ in the lowest bit.
    LinkId
}

impl LinkId {
    /// The other direction of the same cable: the way acknowledgements go.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// What a vertex does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VertexRole {
    /// Sends and receives flows.
    Host,
    /// Sends and receives flows, and lets the flows of others pass through.
    ForwardingHost,
    /// Passes packets on.
    Switch,
}

impl VertexRole {
    /// Whether flows may begin and end here.
    #[must_use]
    pub const fn is_host(self) -> bool {
        !matches!(self, Self::Switch)
    }
    /// Whether shortest paths may lead through.
    #[must_use]
    pub const fn forwards(self) -> bool {
        !matches!(self, Self::Host)
    }
}

/// Which of several separate networks a link belongs to: the high-bandwidth domain, the
/// data-centre network, one plane of a multi-plane network. A flow can be kept to one plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plane(pub u8);

/// One direction of a cable with the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    /// How fast bits go onto the wire.
    pub rate: BitsPerSecond,
    /// How long the wire is. The smallest of a network bounds the engine's window.
    pub delay: Picoseconds,
    /// How much may wait in the queue, the packet being sent included; a packet that does not
    /// fit is dropped. `None`: what takes two seconds to send. Not used at hosts.
    pub queue: Option<Bytes>,
    /// Backlog at arrival from which packets are marked (explicit congestion notification).
    /// `None`: never. Not used at hosts.
    pub mark_from: Option<Bytes>,
    /// The network the link belongs to.
    pub plane: Plane,
}

impl LinkSpec {
    /// A link with an unbounded queue that never marks, in plane 0.
    #[must_use]
    pub const fn new(rate: BitsPerSecond, delay: Picoseconds) -> Self {
        Self { rate, delay, queue: None, mark_from: None, plane: Plane(0) }
    }
    /// The same link with a queue of `capacity` that marks from a backlog of `mark_from`.
    #[must_use]
    pub const fn with_queue(mut self, capacity: Bytes, mark_from: Bytes) -> Self {
        self.queue = Some(capacity);
        self.mark_from = Some(mark_from);
        self
    }
    /// The same link in another plane.
    #[must_use]
    pub const fn in_plane(mut self, plane: Plane) -> Self {
        self.plane = plane;
        self
    }
}

/// A link with its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The vertex whose output port this is.
    pub from: VertexId,
    /// The vertex packets arrive at.
    pub to: VertexId,
    /// Rate, delay and queue.
    pub spec: LinkSpec,
}

/// The longest delay of a link or a host that can be emulated.
pub(crate) const LONGEST_DELAY: Picoseconds = Picoseconds::from_micros(1_000_000);

/// Why a network cannot be emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Windows are as long as the shortest delay.
    #[error("link {} has no propagation delay: give it at least 1 ps", link.0)]
    NoDelay {
        /// The link.
        link: LinkId,
    },
    /// Packets carry their times modulo 4.4 s.
    #[error("link {} takes {delay} from end to end: delays up to {LONGEST_DELAY} can be emulated", link.0)]
    TooLong {
        /// The link.
        link: LinkId,
        /// Its delay.
        delay: Picoseconds,
    },
    /// Packet times are kept in 32 bits where that is enough.
    #[error("link {} runs at {rate}: rates from 10 Mb/s can be emulated", link.0)]
    TooSlow {
        /// The link.
        link: LinkId,
        /// Its rate.
        rate: BitsPerSecond,
    },
    /// A cable needs two ends.
    #[error("link {} leads from vertex {} to itself", link.0, vertex.0)]
    Loop {
        /// The link.
        link: LinkId,
        /// Both its ends.
        vertex: VertexId,
    },
    /// An end that was never made.
    #[error("link {} ends at vertex {}, which does not exist", link.0, vertex.0)]
    NoSuchVertex {
        /// The link.
        link: LinkId,
        /// The missing end.
        vertex: VertexId,
    },
    /// Nothing to emulate.
    #[error("the network has no links")]
    Empty,
}

/// A network under construction.
#[derive(Clone, Debug, Default)]
pub struct NetworkBuilder {
    roles: Vec<VertexRole>,
    links: Vec<Link>,
}

impl NetworkBuilder {
    /// An empty network.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a vertex.
    pub fn add(&mut self, role: VertexRole) -> VertexId {
        self.roles.push(role);
        VertexId::from_index(self.roles.len() - 1)
    }
    /// Joins `a` and `b` by a cable that is the same in both directions. Returns the link from
    /// `a` to `b`; [`LinkId::reverse`] is the other one.
    pub fn connect(&mut self, a: VertexId, b: VertexId, spec: LinkSpec) -> LinkId {
        self.connect_unequal(a, b, spec, spec)
    }
    /// Joins `a` and `b` by a cable with its own properties in each direction.
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
    /// Checks the network and indexes it.
    ///
    /// # Errors
    /// The first link that cannot be emulated, see [`NetworkError`].
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
        Ok(Network { roles: self.roles, links: self.links, kinds, outgoing, shortest_delay })
    }

    /// By link: a number that links have in common which take equally long.
    fn kinds(&self) -> Vec<u32> {
        let mut known = FxHashMap::default();
        let kind = |Link { from, spec, .. }: &Link| {
            let next = known.len() as u32;
            let is_host = self.roles[from.index()].is_host();
            *known.entry((spec.rate, spec.delay, is_host)).or_insert(next)
        };
        self.links.iter().map(kind).collect()
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

/// A checked network.
#[derive(Clone, Debug)]
pub struct Network {
    roles: Vec<VertexRole>,
    links: Vec<Link>,
    kinds: Vec<u32>,
    outgoing: Vec<Vec<LinkId>>,
    shortest_delay: Picoseconds,
}

impl Network {
    /// How many vertices there are.
    #[must_use]
    pub fn vertex_count(&self) -> usize {
        self.roles.len()
    }
    /// What `vertex` does.
    #[must_use]
    pub fn role(&self, vertex: VertexId) -> VertexRole {
        self.roles[vertex.index()]
    }
    /// All links, by id.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }
    /// One link.
    #[must_use]
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.index()]
    }
    /// Whether packets take equally long over both paths while they are idle.
    pub(crate) fn are_alike(&self, one: &[LinkId], other: &[LinkId]) -> bool {
        let kind = |link: &LinkId| self.kinds[link.index()];
        one.iter().map(kind).eq(other.iter().map(kind))
    }
    /// The links that leave `vertex`, in order of id. Their reverses are those that enter it.
    #[must_use]
    pub fn outgoing(&self, vertex: VertexId) -> &[LinkId] {
        &self.outgoing[vertex.index()]
    }
    /// The shortest propagation delay: nothing sent now arrives anywhere earlier than this.
    #[must_use]
    pub fn shortest_delay(&self) -> Picoseconds {
        self.shortest_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_emulated_is_refused_by_name() {
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
