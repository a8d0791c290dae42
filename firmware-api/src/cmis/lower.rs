// SPDX-License-Identifier: Apache-2.0
//! Lower memory: bytes 0 to 127, accessible without a page change.

use super::field::{BitField, FlagBit, LaneFlags, Nibbles, Number, RegisterAddress};
use super::state::ModuleState;
use crate::path::Path;

/// Module type: see [`identifier`].
pub const IDENTIFIER: BitField<u8> = BitField::byte(RegisterAddress::lower(0));
/// CMIS revision: major and minor number, one nibble each.
pub const REVISION: BitField<u8> = BitField::byte(RegisterAddress::lower(1));
/// Set if the application of a data path can be changed only while the path is deactivated.
pub const STEPPED_CONFIG_ONLY: FlagBit = FlagBit::new(RegisterAddress::lower(2), 6);
/// State of the module state machine.
pub const MODULE_STATE: BitField<ModuleState> = BitField::bits(RegisterAddress::lower(3), 3, 1);
/// Set while the interrupt line is *not* asserted.
pub const INTERRUPT_DEASSERTED: FlagBit = FlagBit::new(RegisterAddress::lower(3), 0);
/// Set while flags are set on page 11h of bank 0.
pub const SUMMARY_PAGE_11: FlagBit = FlagBit::new(RegisterAddress::lower(4), 0);
/// Latched: a CDB command of instance 1 has completed.
pub const CDB_COMPLETE: FlagBit = FlagBit::new(RegisterAddress::lower(8), 6);
/// Latched: the module state has changed.
pub const MODULE_STATE_CHANGED: FlagBit = FlagBit::new(RegisterAddress::lower(8), 0);
/// Latched vendor-specific flags: see [`super::page_b0::flag`].
pub const CUSTOM_FLAGS: LaneFlags = LaneFlags::new(RegisterAddress::lower(13));
/// Case temperature, 1/256 °C.
pub const TEMPERATURE: Number<i16> = Number::new(RegisterAddress::lower(14));
/// Supply voltage, 100 µV.
pub const SUPPLY: Number<u16> = Number::new(RegisterAddress::lower(16));
/// Enables the hardware low-power pin.
pub const LOW_POWER_ALLOW_HARDWARE: FlagBit = FlagBit::new(RegisterAddress::lower(26), 6);
/// Requests low power by software.
pub const LOW_POWER_REQUEST: FlagBit = FlagBit::new(RegisterAddress::lower(26), 4);
/// Restarts the module when a one is written; reads as zero.
pub const SOFTWARE_RESET: FlagBit = FlagBit::new(RegisterAddress::lower(26), 3);
/// Status of CDB instance 1: see [`super::cdb::CdbStatus`].
pub const CDB_STATUS: BitField<u8> = BitField::byte(RegisterAddress::lower(37));
/// Running firmware version, major and minor.
pub const FIRMWARE: [BitField<u8>; 2] =
    [BitField::byte(RegisterAddress::lower(39)), BitField::byte(RegisterAddress::lower(40))];

/// Vendor-specific: first of the four bytes of a fast fire, which selects the groups.
pub const FAST_FIRE: RegisterAddress = RegisterAddress::lower(64);
/// Vendor-specific: active path of each group; group 0 is the low half of the first byte.
pub const ACTIVE_PATHS: Nibbles<Path> = Nibbles::new(RegisterAddress::lower(68));
/// Vendor-specific: groups that are switching.
pub const BUSY_GROUPS: LaneFlags = LaneFlags::new(RegisterAddress::lower(72));
/// Vendor-specific: worst outcome of the last fire request ([`super::page_b0::short_outcome`]).
pub const FIRE_OUTCOME: BitField<u8> = BitField::bits(RegisterAddress::lower(73), 6, 0);
/// Vendor-specific: set by a restart and cleared by reading.
pub const RESTARTED: FlagBit = FlagBit::new(RegisterAddress::lower(73), 7);
/// Vendor-specific: number of completed switching operations since power-on.
pub const GENERATION: Number<u32> = Number::new(RegisterAddress::lower(74));

/// Media type, which determines the meaning of media ids: see [`media_type`].
pub const MEDIA_TYPE: BitField<u8> = BitField::byte(RegisterAddress::lower(85));
/// Addresses the four-byte application descriptor `number`, from 0.
pub const fn application(number: u8) -> RegisterAddress {
    assert!(number < 8, "lower memory contains eight descriptors");
    RegisterAddress::lower(86 + 4 * number)
}
/// Host id that ends the list of applications.
pub const APPLICATIONS_END: u8 = 0xff;
/// Password entry, write-only.
pub const PASSWORD: Number<u32> = Number::new(RegisterAddress::lower(122));
/// Bank select.
pub const BANK_SELECT: BitField<u8> = BitField::byte(RegisterAddress::lower(126));
/// Page select. Writing it changes the page.
pub const PAGE_SELECT: BitField<u8> = BitField::byte(RegisterAddress::lower(127));

/// Media type codes (SFF-8024). Hosts cannot find applications on a module with an undefined media type.
pub mod media_type {
    /// Single-mode fibre.
    pub const SINGLE_MODE: u8 = 0x02;
}

/// Identifiers that common hosts recognise as CMIS modules.
pub mod identifier {
    /// QSFP-DD.
    pub const QSFP_DD: u8 = 0x18;
    /// OSFP.
    pub const OSFP: u8 = 0x19;
}

/// Maximum delay of a flag. Before that, a clear flag is not conclusive.
pub const FLAG_MAX_MS: u64 = 200;
