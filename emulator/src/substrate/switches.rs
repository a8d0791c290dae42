// SPDX-License-Identifier: Apache-2.0
//! How packet switches queue: one queue a port, or priorities with one buffer, pauses and trimming.

use lightloom_engine::{EngineSettings, LinkSpec, Marking, Queueing, Switching};
use lightloom_units::Bytes;

/// The packet switches of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSwitches {
    /// What may wait in one queue. `None`: what takes two seconds to send.
    pub queue: Option<Bytes>,
    /// Backlog from which packets are marked.
    pub mark_from: Bytes,
    /// Which of them.
    pub marking: Marking,
    /// Real queues with priorities. `None`: one first-in first-out queue a port.
    pub queueing: Option<Queueing>,
    /// When they begin to send a packet.
    pub switching: Switching,
}

impl Default for PacketSwitches {
    /// 1 MiB a port, marked from an eighth of it, the order of a 100 µs buffer share of a 51.2 Tb/s
    /// switch. An assumption.
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
    /// The engine's settings that follow from these switches; all else as it is by default.
    pub(crate) fn settings(&self) -> EngineSettings {
        let Self { queueing, marking, switching, .. } = *self;
        EngineSettings { queueing, marking, switching, ..EngineSettings::default() }
    }
    /// The cable with these queues.
    #[must_use]
    pub const fn on(&self, mut link: LinkSpec) -> LinkSpec {
        link.queue = self.queue;
        link.mark_from = Some(self.mark_from);
        link
    }
    /// Whether priorities are kept apart.
    #[must_use]
    pub const fn have_priorities(&self) -> bool {
        self.queueing.is_some()
    }
    /// Whether a queue can ask its senders to pause.
    #[must_use]
    pub fn pause(&self) -> bool {
        self.queueing.is_some_and(|queueing| queueing.pause.is_some())
    }
}
