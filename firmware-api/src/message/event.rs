// SPDX-License-Identifier: Apache-2.0
//! Unsolicited events (since 1.2). An event contains the state at the time of sending, so a host receives the
//! current state even if it missed earlier events.

use super::{PayloadBuffer, Power};
use crate::path::{GROUPS_MAX, Path};
use crate::wire::{Reader, Writer};

/// Kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The active path has been dark for the debounce time.
    #[default]
    LightLost,
    /// The active path has had light again for the debounce time.
    LightBack,
    /// A group at rest has left its last commanded path or returned to it.
    Moved,
    /// The firmware has restarted, and armed changes are lost.
    Restarted,
}

impl EventKind {
    const fn code(self) -> u8 {
        match self {
            Self::LightLost => 1,
            Self::LightBack => 2,
            Self::Moved => 3,
            Self::Restarted => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::LightLost),
            2 => Some(Self::LightBack),
            3 => Some(Self::Moved),
            4 => Some(Self::Restarted),
            _ => None,
        }
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

impl Event {
    /// Encodes the payload, and returns its length.
    pub fn encode(&self, out: &mut PayloadBuffer) -> usize {
        let mut writer = Writer::new(out);
        writer.u8(self.kind.code()).u8(self.group).u8(self.active.code()).u16(self.power.0);
        writer.u16(self.boots).u32(self.uptime_ms).u16(self.skipped);
        writer.length()
    }

    /// Returns `None` for events that this version does not know.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let event = Self {
            kind: EventKind::from_code(reader.u8()?)?,
            group: reader.u8().filter(|&group| usize::from(group) < GROUPS_MAX)?,
            active: Path::from_code(reader.u8()?)?,
            power: Power(reader.u16()?),
            boots: reader.u16()?,
            uptime_ms: reader.u32()?,
            skipped: reader.u16()?,
        };
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

impl EventsReport {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(u8::from(self.enabled)).u16(self.debounce_us).u16(self.repeat_ms);
        writer.u32(self.answer_us);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            enabled: reader.u8().filter(|&enabled| enabled <= 1)? == 1,
            debounce_us: reader.u16()?,
            repeat_ms: reader.u16()?,
            answer_us: reader.u32()?,
        })
    }
}
