// SPDX-License-Identifier: Apache-2.0
//! Unsolicited events (since 1.2). An event contains the state at the time of sending, so a host receives the
//! current state even if it missed earlier events.

use super::{PayloadBuffer, Power};
use crate::path::{GROUPS_MAX, Path};
use crate::wire::{Reader, Writer, codes, fields};

codes! {
    /// Kind of an event.
    #[derive(Default)]
    EventKind {
        /// The active path has been dark for the debounce time.
        #[default]
        LightLost = 1,
        /// The active path has had light again for the debounce time.
        LightBack = 2,
        /// A group at rest has left its last commanded path or returned to it.
        Moved = 3,
        /// The firmware has restarted, and armed changes are lost.
        Restarted = 4,
    }
}

/// An event from a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Affected group; 0 for events of the whole module.
    pub group: u8,
    /// Current path of the group; dark while it is switching.
    pub active: Path,
    /// Received power on that path.
    pub power: Power,
    /// Number of restarts since manufacture. Event numbers are unique until the next restart.
    pub boots: u16,
    /// Time from the last restart to the event in milliseconds.
    pub uptime_ms: u32,
    /// Number of light changes since the previous event that were too short to be reported.
    pub skipped: u16,
}

fields!(Event { kind, group, active, power, boots, uptime_ms, skipped });

impl Event {
    /// Encodes the payload, and returns its length.
    pub fn encode(&self, out: &mut PayloadBuffer) -> usize {
        Writer::new(out).put(*self).length()
    }

    /// Returns `None` for events that this version does not know.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let event = reader.get().filter(|event: &Self| usize::from(event.group) < GROUPS_MAX)?;
        reader.done(event)
    }
}

/// Event settings of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsReport {
    /// Whether events are enabled.
    pub enabled: bool,
    /// Debounce time for loss and return of light, in µs.
    pub debounce_us: u16,
    /// Time in milliseconds until an unacknowledged event is sent again, which doubles with each retry.
    pub repeat_ms: u16,
    /// Maximum time to answer a status request, in µs; 0 if the module does not guarantee one.
    pub answer_us: u32,
}

fields!(EventsReport { enabled, debounce_us, repeat_ms, answer_us });
