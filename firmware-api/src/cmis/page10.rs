// SPDX-License-Identifier: Apache-2.0
//! Page 10h: what the host wants of the lanes.

use super::field::{BitField, LaneFlags, RegisterAddress};

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x10, offset)
}

/// Data paths that shall stop: 1 = deinit from CMIS 4 on. See [`super::rules::deinit_lanes`].
pub const DATA_PATH_DEINIT: LaneFlags = LaneFlags::new(at(128));
/// Transmitters that shall be off.
pub const TX_DISABLE: LaneFlags = LaneFlags::new(at(130));
/// Receiver outputs that shall be off.
pub const RX_DISABLE: LaneFlags = LaneFlags::new(at(138));
/// Apply the staged set and restart these lanes; one single-byte write, reads zero.
pub const APPLY_INIT: LaneFlags = LaneFlags::new(at(143));
/// Apply the staged set to these lanes at once; one single-byte write, reads zero.
pub const APPLY_IMMEDIATE: LaneFlags = LaneFlags::new(at(144));
/// Staged configuration of lane `lane`, 0 to 7: application 7:4, first lane 3:1, explicit 0.
#[must_use]
pub const fn staged(lane: u8) -> BitField<LaneConfig> {
    assert!(lane < 8, "eight lanes a bank");
    BitField::byte(at(145 + lane))
}

/// One byte of the staged or active set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneConfig {
    /// Which application, from 1; 0: the lane is not used.
    pub application: u8,
    /// First lane of the data path, 0 to 7.
    pub data_path: u8,
    /// Signal integrity as the host says, not as the application says.
    pub explicit: bool,
}

impl super::field::Coded for LaneConfig {
    fn from_code(code: u8) -> Option<Self> {
        Some(Self { application: code >> 4, data_path: code >> 1 & 0x07, explicit: code & 1 == 1 })
    }
    fn code(self) -> u8 {
        self.application << 4 | (self.data_path & 0x07) << 1 | u8::from(self.explicit)
    }
}
