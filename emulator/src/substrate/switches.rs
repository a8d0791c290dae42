// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::{EngineSettings, LinkSpec, Marking, Queueing, Switching};
use lightloom_units::Bytes;

/// Settings of all packet switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSwitches {
    /// Capacity of one queue. `None` means two seconds of data at the link rate.
    pub queue: Option<Bytes>,
    /// Queue length at which marking starts.
    pub mark_from: Bytes,
    /// Selects the packets to mark.
    pub marking: Marking,
    /// Priority queues. `None` means one first-in first-out queue per port.
    pub queueing: Option<Queueing>,
    /// When a switch starts to forward a packet.
    pub switching: Switching,
}

impl Default for PacketSwitches {
    /// 1 MiB per port, with marking above an eighth. This assumption is of the same order as a 100
    /// µs share of the buffer in a 51.2 Tb/s switch.
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
    pub const fn on(&self, mut link: LinkSpec) -> LinkSpec {
        link.queue = self.queue;
        link.mark_from = Some(self.mark_from);
        link
    }
    /// Returns whether priorities have separate queues.
    pub const fn have_priorities(&self) -> bool {
        self.queueing.is_some()
    }
    /// Returns whether queues can pause their senders.
    pub fn pause(&self) -> bool {
        self.queueing.is_some_and(|queueing| queueing.pause.is_some())
    }
}
