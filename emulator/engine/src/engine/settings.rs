// SPDX-License-Identifier: Apache-2.0
//! What an engine is given besides the network, and why it refuses something.

use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds};

use super::flow::FlowId;
use super::marking::Marking;
use super::network::{LONGEST_DELAY, Link, LinkId, Network, VertexId};
use super::queueing::Queueing;
use super::route::RouteError;
use super::routes::MOST_PORTS;
use super::switching::Switching;
use crate::transport::Transport;

const LARGEST_PACKET: Bytes = Bytes(65_535);

/// The largest window in packets: 1.3 s at 400 Gb/s and 4 KiB.
pub(super) const MOST_IN_FLIGHT: u64 = 1 << 24;

/// What an engine is given besides the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Packet sizes, windows and recovery of all flows.
    pub transport: Transport,
    /// Decides which of several shortest paths a flow takes.
    pub seed: Seed,
    /// Real queues at switches, with priorities, pauses and trimming; nothing: one first-in first-out
    /// queue a port, which is faster.
    pub queueing: Option<Queueing>,
    /// Which packets long queues mark.
    pub marking: Marking,
    /// When switches begin to send a packet.
    pub switching: Switching,
    /// How long a host takes from the last bit of a packet for one of its flows to what it does because of it:
    /// the acknowledgement is put on the port, the sender takes the acknowledgement in, the gate of a
    /// message opens. The end of a flow ([`FlowRecord::end`](super::FlowRecord::end)) is the arrival of its last packet plus this,
    /// and [`PacketCount`](super::PacketCount) counts a packet as in flight until then; what a probe sees is the arrival itself. A
    /// host that takes one packet after the other at full rate is meant: delays do not add up. Pauses
    /// are obeyed, and packets of others passed on, at once.
    pub host_delay: Picoseconds,
    /// How many parts the network is cut into, to be advanced at once on the current rayon pool.
    /// The result does not depend on it.
    pub threads: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            seed: Seed(0),
            queueing: None,
            marking: Marking::Threshold,
            switching: Switching::StoreAndForward,
            host_delay: Picoseconds::ZERO,
            threads: 1,
        }
    }
}

impl EngineSettings {
    /// How long before the last bit of a packet is in it may go on by the second link, when it came by the
    /// first one.
    pub(crate) fn head_start(
        &self,
        network: &Network,
        (came, leaves): (Option<LinkId>, LinkId),
        size: Bytes,
    ) -> Picoseconds {
        let Link { from, spec, .. } = network.link(leaves);
        let Some(came) = came.filter(|_| !network.role(*from).is_host()) else {
            return Picoseconds::ZERO;
        };
        let rates = (network.link(came).spec.rate, spec.rate);
        self.switching.head_start(rates, (size, self.transport.header))
    }

    /// Whether packets of these sizes, and such switches, can be emulated over `network`.
    pub(crate) fn check(&self, network: &Network) -> Result<(), EngineError> {
        let vertices = (0..network.vertex_count()).map(VertexId::from_index);
        for vertex in vertices {
            let ports = network.outgoing(vertex).len();
            if ports > MOST_PORTS {
                return Err(EngineError::TooManyPorts { vertex, ports });
            }
        }
        let transport = &self.transport;
        let sizes = [transport.packet(), transport.acknowledgement];
        if let Some(&size) = sizes.iter().find(|size| **size > LARGEST_PACKET || size.0 == 0) {
            return Err(EngineError::PacketSize { size });
        }
        if transport.payload == Bytes::ZERO {
            return Err(EngineError::PacketSize { size: Bytes::ZERO });
        }
        if self.host_delay > LONGEST_DELAY {
            return Err(EngineError::HostDelay { delay: self.host_delay });
        }
        Ok(())
    }
}

/// Why the engine refuses something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Packet sizes out of range.
    #[error("packets of {size} cannot be emulated: data and header together must be 1 to 65,535 B")]
    PacketSize {
        /// Data and header.
        size: Bytes,
    },
    /// Places of ports are kept in 14 bits.
    #[error("vertex {} has {ports} links: at most {MOST_PORTS} can be emulated", vertex.0)]
    TooManyPorts {
        /// The vertex.
        vertex: VertexId,
        /// How many links leave it.
        ports: usize,
    },
    /// Packets carry their times modulo 4.4 s.
    #[error("hosts that take {delay} cannot be emulated: at most {LONGEST_DELAY}")]
    HostDelay {
        /// What was asked for.
        delay: Picoseconds,
    },
    /// Flows begin and end at hosts.
    #[error("vertex {} is no host: flows begin and end at hosts", vertex.0)]
    NotAHost {
        /// The vertex.
        vertex: VertexId,
    },
    /// A flow to itself.
    #[error("the flow begins and ends at vertex {}", vertex.0)]
    ToItself {
        /// The vertex.
        vertex: VertexId,
    },
    /// No way.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A gate on a flow that ends elsewhere.
    #[error("a flow from vertex {} cannot wait for flow {}, which ends elsewhere", source_vertex.0, gate.0)]
    GateElsewhere {
        /// Where the waiting flow begins.
        source_vertex: VertexId,
        /// The flow it should wait for.
        gate: FlowId,
    },
    /// A flow waits for acknowledgements that another host gets.
    #[error("a flow from vertex {} cannot wait for acknowledgements of flow {}, which begins elsewhere", source_vertex.0, awaited.0)]
    AwaitsElsewhere {
        /// Where the waiting flow begins.
        source_vertex: VertexId,
        /// The flow it should wait for.
        awaited: FlowId,
    },
    /// Packet numbers have 31 bits.
    #[error("a flow of {packets} packets is too long: fewer than 2^31 are possible")]
    TooLong {
        /// How many it would take.
        packets: u64,
    },
    /// Each end keeps account of what is in flight.
    #[error("a window of {packets} packets is too large: at most {MOST_IN_FLIGHT}")]
    WindowTooLarge {
        /// What was asked for or computed.
        packets: u64,
    },
}
