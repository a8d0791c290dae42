// SPDX-License-Identifier: Apache-2.0
//! Sends unsolicited events when a module's flags show loss or return of light.
//!
//! The two-byte flag summary in lower memory is read every [`LOOK_EVERY`], so the agent selects other pages only when a
//! flag is set. Reading clears a flag, and the module sets it again while its cause persists. Light has therefore
//! returned when the flag remains clear. No other program on the host may read these flags.

use std::time::Duration;

use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::message::EventKind;

use crate::memory::{BusError, ModuleMemory};

pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// CMIS requires a module to set a flag within this time after its cause.
const FLAG_WITHIN: Duration = Duration::from_millis(200);
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);
/// Register of the interrupt and module state; the flag summary of bank 0 follows.
const SUMMARY: RegisterAddress = RegisterAddress::lower(3);
/// Lane flags: bytes 134 to 153 of page 11h. Byte 147 shows loss of received light.
const FLAGS: RegisterAddress = RegisterAddress::page(0x11, 134);
const RX_LOS: usize = 147 - 134;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LightState {
    #[default]
    Unknown,
    Arrives,
    Gone,
}

#[derive(Clone, Debug, Default)]
pub struct LightWatch {
    light: LightState,
    missed_at: Duration,
    on_its_way: Option<(u16, Duration)>,
    last_number: u16,
    said: LightState,
}

impl LightWatch {
    pub fn moved(&mut self, now: Duration) {
        (self.light, self.said, self.missed_at) = (LightState::Unknown, LightState::Unknown, now);
    }

    pub fn acknowledged(&mut self, number: u16) {
        self.on_its_way.take_if(|(on_its_way, _)| *on_its_way == number);
    }

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
        if self.said == LightState::Unknown {
            self.said = self.light;
        }
        let kind = match (self.light == self.said, self.light) {
            (false, LightState::Gone) => EventKind::LightLost,
            (false, LightState::Arrives) => EventKind::LightBack,
            _ => return Ok(None),
        };
        if self.on_its_way.is_some_and(|(_, sent)| now < sent + ACKNOWLEDGED_WITHIN) {
            return Ok(None);
        }
        self.said = self.light;
        self.last_number = self.last_number.wrapping_add(1);
        self.on_its_way = Some((self.last_number, now));
        Ok(Some((self.last_number, kind)))
    }
}
