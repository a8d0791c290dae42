// SPDX-License-Identifier: Apache-2.0

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

/// Corresponds to 1.3 s of 4 KiB packets at 400 Gb/s.
pub(super) const MOST_IN_FLIGHT: u64 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    pub transport: Transport,
    /// The seed also selects among shortest paths.
    pub seed: Seed,
    /// `None` for one FIFO queue per port, which is faster.
    pub queueing: Option<Queueing>,
    pub marking: Marking,
    pub switching: Switching,
    /// Time from the last bit of a packet for one of the host's flows to the reaction: an acknowledgement is queued or
    /// processed, or a gate opens. It delays the end of a flow ([`FlowRecord::end`](super::FlowRecord::end)); until
    /// then, [`PacketCount`](super::PacketCount) counts the packet as in flight. Hosts process packets in a pipeline at
    /// full rate, so delays do not add up. Pauses and packets in transit are not delayed.
    pub host_delay: Picoseconds,
    /// Threads of the current rayon pool. Does not affect the result.
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
    /// How long before its last bit arrives a packet may start to leave over the second link.
    pub(crate) fn head_start(
        &self,
        network: &Network,
        came: Option<LinkId>,
        leaves: LinkId,
        size: Bytes,
    ) -> Picoseconds {
        let Link { from, spec, .. } = network.link(leaves);
        let Some(came) = came.filter(|_| !network.role(*from).is_host()) else {
            return Picoseconds::ZERO;
        };
        let comes = network.link(came).spec.rate;
        self.switching.head_start(comes, spec.rate, size, self.transport.header)
    }

    /// Only bounded queues know their length when a packet leaves, which telemetry reports.
    pub(crate) fn queues(&self) -> Option<Queueing> {
        let reports = self.transport.congestion.reads_telemetry();
        self.queueing.or_else(|| reports.then(Queueing::default))
    }

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("packets of {size} cannot be emulated: data and header together must be 1 to 65,535 B")]
    PacketSize { size: Bytes },
    #[error("vertex {} has {ports} links, but at most {MOST_PORTS} can be emulated", vertex.0)]
    TooManyPorts { vertex: VertexId, ports: usize },
    #[error("a host delay of {delay} cannot be emulated: use at most {LONGEST_DELAY}")]
    HostDelay { delay: Picoseconds },
    #[error("vertex {} is not a host: flows begin and end at hosts", vertex.0)]
    NotAHost { vertex: VertexId },
    #[error("the flow begins and ends at vertex {}", vertex.0)]
    ToItself { vertex: VertexId },
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error("a flow from vertex {} cannot wait for flow {}, which ends elsewhere", source_vertex.0, gate.0)]
    GateElsewhere { source_vertex: VertexId, gate: FlowId },
    #[error("a flow from vertex {} cannot wait for acknowledgements of flow {}, which begins elsewhere", source_vertex.0, awaited.0)]
    AwaitsElsewhere { source_vertex: VertexId, awaited: FlowId },
    #[error("a flow of {packets} packets is too long: fewer than 2^31 are possible")]
    TooLong { packets: u64 },
    #[error("a window of {packets} packets is too large: at most {MOST_IN_FLIGHT}")]
    WindowTooLarge { packets: u64 },
}
