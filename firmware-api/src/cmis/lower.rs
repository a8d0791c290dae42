// SPDX-License-Identifier: Apache-2.0
//! Lower memory, bytes 0 to 127: always there, no page change needed.

use super::field::{BitField, FlagBit, LaneFlags, Nibbles, Number, RegisterAddress};
use super::state::{ModuleState, PathCode};

/// What the module is: see [`identifier`].
pub const IDENTIFIER: BitField<u8> = BitField::byte(RegisterAddress::lower(0));
/// CMIS revision, major nibble and minor nibble.
pub const REVISION: BitField<u8> = BitField::byte(RegisterAddress::lower(1));
/// No pages at all.
pub const FLAT_MEMORY: FlagBit = FlagBit::new(RegisterAddress::lower(2), 7);
/// An application may only be changed on deactivated data paths.
pub const STEPPED_CONFIG_ONLY: FlagBit = FlagBit::new(RegisterAddress::lower(2), 6);
/// The module state machine.
pub const MODULE_STATE: BitField<ModuleState> = BitField::bits(RegisterAddress::lower(3), 3, 1);
/// Set while the interrupt line is *not* asserted.
pub const INTERRUPT_DEASSERTED: FlagBit = FlagBit::new(RegisterAddress::lower(3), 0);
/// Bank 0 has flags on page 11h.
pub const SUMMARY_PAGE_11: FlagBit = FlagBit::new(RegisterAddress::lower(4), 0);
/// Latched: a CDB command of instance 1 ended.
pub const CDB_COMPLETE: FlagBit = FlagBit::new(RegisterAddress::lower(8), 6);
/// Latched: the module state changed.
pub const MODULE_STATE_CHANGED: FlagBit = FlagBit::new(RegisterAddress::lower(8), 0);
/// Latched custom flags: ours are [`super::page_b0::flag`].
pub const CUSTOM_FLAGS: LaneFlags = LaneFlags::new(RegisterAddress::lower(13));
/// Case temperature, 1/256 °C.
pub const TEMPERATURE: Number<i16> = Number::new(RegisterAddress::lower(14));
/// Supply voltage, 100 µV.
pub const SUPPLY: Number<u16> = Number::new(RegisterAddress::lower(16));
/// The hardware low-power pin is obeyed.
pub const LOW_POWER_ALLOW_HARDWARE: FlagBit = FlagBit::new(RegisterAddress::lower(26), 6);
/// Low power is requested by software.
pub const LOW_POWER_REQUEST: FlagBit = FlagBit::new(RegisterAddress::lower(26), 4);
/// Write one to restart the module; reads zero.
pub const SOFTWARE_RESET: FlagBit = FlagBit::new(RegisterAddress::lower(26), 3);
/// Status of CDB instance 1: see [`super::cdb::CdbStatus`].
pub const CDB_STATUS: BitField<u8> = BitField::byte(RegisterAddress::lower(37));
/// Running firmware, major and minor.
pub const FIRMWARE: [BitField<u8>; 2] =
    [BitField::byte(RegisterAddress::lower(39)), BitField::byte(RegisterAddress::lower(40))];
/// Why the module is in the fault state.
pub const FAULT_CAUSE: BitField<u8> = BitField::byte(RegisterAddress::lower(41));

/// Ours, in the custom bytes: groups to fire (fast form), first of four bytes.
pub const FAST_FIRE: RegisterAddress = RegisterAddress::lower(64);
/// Ours: the path each group's light takes, group 0 in the low half of the first byte.
pub const ACTIVE_PATHS: Nibbles<PathCode> = Nibbles::new(RegisterAddress::lower(68));
/// Ours: groups whose light is moving.
pub const BUSY_GROUPS: LaneFlags = LaneFlags::new(RegisterAddress::lower(72));
/// Ours: the worst outcome of the last fire, as [`super::page_b0::short_outcome`] codes it.
pub const FIRE_OUTCOME: BitField<u8> = BitField::bits(RegisterAddress::lower(73), 6, 0);
/// Ours, cleared by reading: the module restarted since this byte was last read.
pub const RESTARTED: FlagBit = FlagBit::new(RegisterAddress::lower(73), 7);
/// Ours: completed switches since power-on.
pub const GENERATION: Number<u32> = Number::new(RegisterAddress::lower(74));

/// Kind of media, which says how media ids are read: see [`media_type`].
pub const MEDIA_TYPE: BitField<u8> = BitField::byte(RegisterAddress::lower(85));
/// Application descriptor `number` (0 is the first), four bytes.
#[must_use]
pub const fn application(number: u8) -> RegisterAddress {
    assert!(number < 8, "eight descriptors are in lower memory");
    RegisterAddress::lower(86 + 4 * number)
}
/// The host id that ends the list of applications.
pub const APPLICATIONS_END: u8 = 0xff;
/// Password entry, write-only.
pub const PASSWORD: Number<u32> = Number::new(RegisterAddress::lower(122));
/// Bank select.
pub const BANK_SELECT: BitField<u8> = BitField::byte(RegisterAddress::lower(126));
/// Page select: the write to it makes the change.
pub const PAGE_SELECT: BitField<u8> = BitField::byte(RegisterAddress::lower(127));

/// Codes of media types (SFF-8024). A host finds no application on a module whose type is undefined.
pub mod media_type {
    /// Multimode fibre.
    pub const MULTIMODE: u8 = 0x01;
    /// Single-mode fibre.
    pub const SINGLE_MODE: u8 = 0x02;
}

/// Identifiers that common hosts recognise as CMIS modules. A host may ignore a module with
/// another one.
pub mod identifier {
    /// QSFP-DD.
    pub const QSFP_DD: u8 = 0x18;
    /// OSFP.
    pub const OSFP: u8 = 0x19;
    /// SFP-DD.
    pub const SFP_DD: u8 = 0x1a;
    /// DSFP.
    pub const DSFP: u8 = 0x1b;
    /// QSFP with CMIS.
    pub const QSFP_CMIS: u8 = 0x1e;
}

/// Time from reset to a bus that answers, at most (CMIS management initialisation).
pub const RESET_TO_READY_MAX_MS: u64 = 2_000;
/// Hold-off after a write to volatile bytes, at most.
pub const VOLATILE_WRITE_MAX_MS: u64 = 10;
/// Hold-off after a write to non-volatile bytes, at most.
pub const NON_VOLATILE_WRITE_MAX_MS: u64 = 80;
/// Time from a condition to its raised flag, at most: a clear flag proves nothing before.
pub const FLAG_MAX_MS: u64 = 200;
