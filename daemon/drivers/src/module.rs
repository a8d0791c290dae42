// SPDX-License-Identifier: Apache-2.0
//! What a transceiver says about itself beside where its light is: who it is, which firmware runs, and where
//! its light goes when its power comes back. Read, never written.

use lightloom_firmware_api::cmis::state::ModuleState;
use lightloom_firmware_api::cmis::{RegisterAddress, Registers, lower, page_b0};
use lightloom_firmware_api::message::{Identity, StatusReport};

use lightloom_control::state::Position;
use lightloom_daemon_api::module;

/// The first register and how many, read one after the other. Lower memory 4 to 13 is left out: its flags are
/// cleared by reading (CMIS 5.x, clear on read).
pub(super) const READS: [(RegisterAddress, u8); 4] = [
    (RegisterAddress::lower(0), 4),
    (RegisterAddress::lower(14), 4),
    (RegisterAddress::lower(39), 3),
    (RegisterAddress::page(page_b0::PAGE, 128), 128),
];

/// What is said of devices that are no transceivers.
pub const NO_MODULE: &str = "it is no transceiver that tells of itself";

/// What was read of a transceiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Vendor name of CMIS page 00h.
    pub vendor: String,
    /// Part number.
    pub part: String,
    /// Serial number.
    pub serial: String,
    /// Running firmware, major and minor.
    pub firmware: (u8, u8),
    /// The revision of CMIS that it speaks, as the two nibbles of lower memory byte 1.
    pub cmis: (u8, u8),
    /// Layout version of page B0h, as two nibbles.
    pub layout: (u8, u8),
    /// Its module state (CMIS module state machine).
    pub state: module::ModuleState,
    /// Temperature in °C.
    pub temperature_c: f64,
    /// Supply voltage in V.
    pub supply_v: f64,
    /// Completed switches since power-on.
    pub generation: u32,
    /// Starts of its firmware.
    pub boots: u16,
    /// Where the light of each group is.
    pub lit: Vec<Position>,
    /// Where it goes at power-on.
    pub at_power_on: Vec<Position>,
    /// The registers that were read, by their first address.
    pub registers: Vec<(RegisterAddress, Vec<u8>)>,
}

/// A host's copy of the registers that were read.
struct Copy<'a>(&'a [(RegisterAddress, Vec<u8>)]);

impl Registers for Copy<'_> {
    fn byte(&self, at: RegisterAddress) -> u8 {
        let inside = |(first, bytes): &(RegisterAddress, Vec<u8>)| {
            let same = first.page == at.page && first.bank == at.bank;
            let offset = usize::from(at.offset).checked_sub(usize::from(first.offset))?;
            bytes.get(offset).copied().filter(|_| same)
        };
        self.0.iter().find_map(inside).unwrap_or(0)
    }
}

impl Module {
    /// `registers` are those of [`READS`].
    pub(super) fn of(
        identity: &Identity,
        status: &StatusReport,
        registers: Vec<(RegisterAddress, Vec<u8>)>,
    ) -> Self {
        let copy = Copy(&registers);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let nibbles = |byte: u8| (byte >> 4, byte & 0xf);
        let groups = 0..usize::from(identity.groups);
        let position = |code: u8| Position(u32::from(code));
        let power_on =
            |group: usize| page_b0::power_on_path(group).get(&copy).map_or(0, |path| path.code());
        Self {
            vendor: text(&identity.vendor),
            part: text(&identity.part),
            serial: text(&identity.serial),
            firmware: identity.firmware,
            cmis: nibbles(lower::REVISION.get(&copy).unwrap_or(0)),
            layout: nibbles(identity.layout),
            state: state(lower::MODULE_STATE.get(&copy)),
            temperature_c: f64::from(lower::TEMPERATURE.get(&copy)) / 256.0,
            supply_v: f64::from(lower::SUPPLY.get(&copy)) / 10_000.0,
            generation: status.generation,
            boots: status.boots,
            lit: groups.clone().map(|group| position(status.active[group].code())).collect(),
            at_power_on: groups.map(|group| position(power_on(group))).collect(),
            registers,
        }
    }
}

fn state(state: Option<ModuleState>) -> module::ModuleState {
    match state {
        Some(ModuleState::LowPower) => module::ModuleState::LowPower,
        Some(ModuleState::PowerUp) => module::ModuleState::PowerUp,
        Some(ModuleState::Ready) => module::ModuleState::Ready,
        Some(ModuleState::PowerDown) => module::ModuleState::PowerDown,
        Some(ModuleState::Fault) => module::ModuleState::Fault,
        None => module::ModuleState::Unknown,
    }
}
