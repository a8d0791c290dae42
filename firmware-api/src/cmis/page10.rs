// SPDX-License-Identifier: Apache-2.0
//! Page 10h: lane settings of the host.

use super::field::{BitField, LaneFlags, RegisterAddress};

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x10, offset)
}

/// Data paths to stop. Since CMIS 4, a one stops the lane (see [`super::rules::deinit_lanes`]).
pub const DATA_PATH_DEINIT: LaneFlags = LaneFlags::new(at(128));
/// Transmitters to turn off.
pub const TX_DISABLE: LaneFlags = LaneFlags::new(at(130));
/// Receiver outputs to turn off.
pub const RX_DISABLE: LaneFlags = LaneFlags::new(at(138));
/// Applies the staged set and reinitialises these lanes. Requires a single-byte write; reads as zero.
pub const APPLY_INIT: LaneFlags = LaneFlags::new(at(143));
/// Applies the staged set to these lanes immediately. Requires a single-byte write; reads as zero.
pub const APPLY_IMMEDIATE: LaneFlags = LaneFlags::new(at(144));
/// Staged configuration of a lane (0 to 7): application in bits 7:4, first lane in 3:1, explicit in 0.
pub const fn staged(lane: u8) -> BitField<LaneConfig> {
    assert!(lane < 8, "eight lanes a bank");
    BitField::byte(at(145 + lane))
}

/// One byte of the staged or active set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneConfig {
    /// Application number from 1; 0 for an unused lane.
    pub application: u8,
    /// First lane of the data path, 0 to 7.
    pub data_path: u8,
    /// Whether the host's signal integrity settings replace the application's settings.
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
