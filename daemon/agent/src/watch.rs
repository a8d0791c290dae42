// SPDX-License-Identifier: Apache-2.0
//! Light that goes and comes back, from the flags of a module: what an agent says unasked.
//!
//! The bytes that say whether there is a flag are in the lower memory: two of them are read each [`LOOK_EVERY`], and no page
//! is turned while nothing happens. A flag stays until it is read and is raised again while its cause lasts, so light is
//! back once it stays away. Reading clears it: no other program hears of it.

use std::time::Duration;

use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::message::EventKind;

use crate::memory::{BusError, ModuleMemory};

/// The time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A flag is raised at the latest so long after its cause (CMIS): without one until then, light is back.
const FLAG_WITHIN: Duration = Duration::from_millis(200);
/// The next event waits so long for the one before.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);
/// Interrupt and module state, then which pages of bank 0 have flags.
const SUMMARY: RegisterAddress = RegisterAddress::lower(3);
/// The flags of the lanes: 134 to 153 of page 11h, loss of received light at 147.
const FLAGS: RegisterAddress = RegisterAddress::page(0x11, 134);
const RX_LOS: usize = 147 - 134;

/// What is known of the light that a module receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LightState {
    /// Nothing since it was moved.
    #[default]
    Unknown,
    Arrives,
    Gone,
}

/// The watch over one module's light, while a daemon listens.
#[derive(Clone, Debug, Default)]
pub struct LightWatch {
    light: LightState,
    /// When light was last missing.
    missed_at: Duration,
    /// One that has not been acknowledged, and when it was sent.
    on_its_way: Option<(u16, Duration)>,
    last_number: u16,
    /// What was said last.
    said: LightState,
}

impl LightWatch {
    /// The module was moved: what it sees from now on is no news.
    pub fn moved(&mut self, now: Duration) {
        (self.light, self.said, self.missed_at) = (LightState::Unknown, LightState::Unknown, now);
    }

    /// An event has arrived.
    pub fn acknowledged(&mut self, number: u16) {
        self.on_its_way.take_if(|(on_its_way, _)| *on_its_way == number);
    }

    /// Looks; the number and kind of an event, if there is one to send.
    ///
    /// # Errors
    /// The bus's.
    pub fn look(
        &mut self,
        memory: &mut dyn ModuleMemory,
    ) -> Result<Option<(u16, EventKind)>, BusError> {
        let mut summary = [0; 2];
        memory.read(SUMMARY, &mut summary)?;
        let (now, is_flagged) = (memory.now(), summary[1] & 1 == 1);
        let mut is_lost = false;
        if is_flagged {
            let mut flags = [0; 20];
            memory.read(FLAGS, &mut flags)?;
            is_lost = flags[RX_LOS] != 0;
        }
        match (is_lost, self.light) {
            (true, _) => (self.light, self.missed_at) = (LightState::Gone, now),
            (false, LightState::Gone | LightState::Unknown)
                if now >= self.missed_at + FLAG_WITHIN =>
            {
                self.light = LightState::Arrives;
            }
            _ => {}
        }
        // What it sees first after a move is what it sees.
        if self.said == LightState::Unknown {
            self.said = self.light;
        }
        let kind = match (self.light == self.said, self.light) {
            (false, LightState::Gone) => EventKind::LightLost,
            (false, LightState::Arrives) => EventKind::LightBack,
            _ => return Ok(None),
        };
        // Its line loses nothing: an acknowledgement that does not come was lost on its way here.
        if self.on_its_way.is_some_and(|(_, sent)| now < sent + ACKNOWLEDGED_WITHIN) {
            return Ok(None);
        }
        self.said = self.light;
        self.last_number = self.last_number.wrapping_add(1);
        self.on_its_way = Some((self.last_number, now));
        Ok(Some((self.last_number, kind)))
    }
}
