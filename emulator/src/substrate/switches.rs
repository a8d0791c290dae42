// SPDX-License-Identifier: Apache-2.0
//! Queues of packet switches: one queue per port, or priorities with a shared buffer, pauses and
//! trimming.

use lightloom_engine::{EngineSettings, LinkSpec, Marking, Queueing, Switching};
use lightloom_units::Bytes;

/// The packet switches of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSwitches {
    /// Capacity of one queue. `None` means two seconds of data at the link rate.
    pub queue: Option<Bytes>,
    /// The queue length at which marking starts.
    pub mark_from: Bytes,
    /// Which packets are marked.
    pub marking: Marking,
    /// Queues with priorities. `None` means one first-in first-out queue per port.
    pub queueing: Option<Queueing>,
    /// When a switch begins to send a packet.
    pub switching: Switching,
}

impl Default for PacketSwitches {
    /// Returns 1 MiB per port, with marking from an eighth of it on. This is an assumption of the
    /// same order as a 100 µs buffer share in a 51.2 Tb/s switch.
    fn default() -> Self {
        Self {
            queue: Some(Bytes(1 << 20)),
            mark_from: Bytes(1 << 17),
            marking: Marking::Threshold,
            queueing: None,
            switching: Switching::StoreAndForward,
        }
    }
}

impl PacketSwitches {
    pub(crate) fn settings(&self) -> EngineSettings {
        let Self { queueing, marking, switching, .. } = *self;
        EngineSettings { queueing, marking, switching, ..EngineSettings::default() }
    }
    /// Returns the cable with these queues.
    #[must_use]
    pub const fn on(&self, mut link: LinkSpec) -> LinkSpec {
        link.queue = self.queue;
        link.mark_from = Some(self.mark_from);
        link
    }
    /// Returns whether priorities have separate queues.
    #[must_use]
    pub const fn have_priorities(&self) -> bool {
        self.queueing.is_some()
    }
    /// Returns whether a queue can pause its senders.
    #[must_use]
    pub fn pause(&self) -> bool {
        self.queueing.is_some_and(|queueing| queueing.pause.is_some())
    }
}
