// SPDX-License-Identifier: Apache-2.0
//! What a module says unasked: light lost, back, moved, restarted. Since 1.2.
//!
//! An event is a state, not a history: it says what is so when it is sent. So a module needs room for one event on its
//! way, whatever its light does, and a host that missed some has missed nothing that still holds.

use super::{PayloadBuffer, Power};
use crate::path::{GROUPS_MAX, Path};
use crate::wire::{Reader, Writer};

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Light arrived on the selected path and has been gone for the debounce time.
    #[default]
    LightLost,
    /// It has been back for the debounce time.
    LightBack,
    /// The light of a group at rest is not where it was last brought to, or is again.
    Moved,
    /// The firmware has started anew: what was armed is gone.
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

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Of which group; 0 where it concerns the whole module.
    pub group: u8,
    /// Where the light of the group is; dark while it moves.
    pub active: Path,
    /// What arrives there.
    pub power: Power,
    /// Restarts since manufacture, as in the status: events of one start have numbers of their own.
    pub boots: u16,
    /// Milliseconds since the last restart, when it happened.
    pub uptime_ms: u32,
    /// Changes of light since the event before that were not sent, because they were over before they could be.
    pub skipped: u16,
}

impl Event {
    /// Writes the payload and returns its length.
    pub fn encode(&self, out: &mut PayloadBuffer) -> usize {
        let mut writer = Writer::new(out);
        writer.u8(self.kind.code()).u8(self.group).u8(self.active.code()).u16(self.power.0);
        writer.u16(self.boots).u32(self.uptime_ms).u16(self.skipped);
        writer.length()
    }

    /// Reads a payload. `None` if it is no event that this version knows.
    #[must_use]
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

/// What a module promises of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsReport {
    /// Whether it sends them.
    pub enabled: bool,
    /// How long light has to be gone, or back, in µs.
    pub debounce_us: u16,
    /// An event that is not acknowledged is sent again after this time, then after twice as long and so on, in ms.
    pub repeat_ms: u16,
    /// The longest time until a status is answered, in µs. Shorter than what every request may take, so that a
    /// host soon knows that a module is dead. 0: not promised.
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
