// SPDX-License-Identifier: Apache-2.0

use lightloom_firmware_api::cmis::rules::{Revision, init_pending};
use lightloom_firmware_api::cmis::state::ModuleState;
use lightloom_firmware_api::cmis::{RegisterAddress, Registers, lower, page_b0, page00, page11};
use lightloom_firmware_api::message::{Identity, StatusReport};

use lightloom_control::state::Position;
use lightloom_daemon_api::module;

/// Lower memory 4 to 13 and page 11h 134 to 153 are omitted because reading clears their flags.
pub(super) const READS: [(RegisterAddress, u8); 5] = [
    (RegisterAddress::lower(0), 4),
    (RegisterAddress::lower(14), 4),
    (RegisterAddress::lower(39), 3),
    (RegisterAddress::page(page_b0::PAGE, 128), 128),
    (page11::INIT_PENDING.at, 1),
];

pub const NO_MODULE: &str = "it is not a transceiver that reports its identity";

#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    pub vendor: String,
    pub part: String,
    pub serial: String,
    pub firmware: (u8, u8),
    pub cmis: (u8, u8),
    pub layout: (u8, u8),
    pub state: module::ModuleState,
    pub temperature_c: f64,
    pub supply_v: f64,
    pub generation: u32,
    pub boots: u16,
    /// One bit per lane; `None` if the module's CMIS revision does not define it.
    pub init_pending: Option<u8>,
    pub lit: Vec<Position>,
    pub at_power_on: Vec<Position>,
    pub registers: Vec<(RegisterAddress, Vec<u8>)>,
}

struct Copy<'a>(&'a [(RegisterAddress, Vec<u8>)]);

impl Registers for Copy<'_> {
    fn byte(&self, at: RegisterAddress) -> u8 {
        let byte = self.0.iter().find_map(|(first, bytes)| {
            let same = first.page == at.page && first.bank == at.bank;
            let offset = usize::from(at.offset).checked_sub(usize::from(first.offset))?;
            bytes.get(offset).copied().filter(|_| same)
        });
        byte.unwrap_or(0)
    }
}

pub(crate) fn text(field: &[u8]) -> String {
    page00::characters(field).collect::<String>().trim().to_owned()
}

impl Module {
    pub(super) fn of(
        identity: &Identity,
        status: &StatusReport,
        registers: Vec<(RegisterAddress, Vec<u8>)>,
    ) -> Self {
        let copy = Copy(&registers);
        let pending = registers.iter().find(|(at, _)| *at == page11::INIT_PENDING.at);
        let pending = pending.and_then(|(_, bytes)| bytes.first().copied());
        let revision = lower::REVISION.get(&copy).unwrap_or(0);
        let [cmis, layout] = [revision, identity.layout].map(|byte| (byte >> 4, byte & 0xf));
        let groups = 0..usize::from(identity.groups);
        let lit = groups.clone().map(|group| status.active[group].code());
        let at_power_on = groups
            .map(|group| page_b0::power_on_path(group).get(&copy).map_or(0, |path| path.code()));
        Self {
            vendor: text(&identity.vendor),
            part: text(&identity.part),
            serial: text(&identity.serial),
            firmware: identity.firmware,
            cmis,
            layout,
            state: state(lower::MODULE_STATE.get(&copy)),
            temperature_c: f64::from(lower::TEMPERATURE.get(&copy)) / 256.0,
            supply_v: f64::from(lower::SUPPLY.get(&copy)) / 10_000.0,
            generation: status.generation,
            boots: status.boots,
            init_pending: pending.and_then(|lanes| init_pending(lanes, Revision(revision))),
            lit: lit.map(|code| Position(u32::from(code))).collect(),
            at_power_on: at_power_on.map(|code| Position(u32::from(code))).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_pending_lanes_only_where_the_revision_defines_them() {
        let (identity, status) = (Identity::default(), StatusReport::default());
        let pending = |revision: u8, registers: &[(RegisterAddress, Vec<u8>)]| {
            let first = (RegisterAddress::lower(0), vec![0x18, revision, 0, 0]);
            Module::of(&identity, &status, [&[first], registers].concat()).init_pending
        };
        let byte = (page11::INIT_PENDING.at, vec![0b101]);
        for (revision, expected) in [
            (0x30, None),
            (0x40, None),
            (0x52, None),
            (0x53, Some(0b101)),
            (0x54, Some(0b101)),
            (0x60, None),
        ] {
            assert_eq!(pending(revision, std::slice::from_ref(&byte)), expected, "{revision:02x}");
        }
        assert_eq!(pending(0x54, &[]), None, "the module has no page 11h");
    }
}
