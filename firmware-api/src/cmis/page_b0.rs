// SPDX-License-Identifier: Apache-2.0
//! Page B0h, bank 0: path selection. **Vendor-specific, not part of CMIS.**
//!
//! Offsets 128 to 191 and outcome codes 0 to 6 match CMIS page 6Dh (media lane switching), with
//! *switch group* for *lane* and *path* for *redirection*. Hosts that support 6Dh need few changes.

use super::duration::Duration;
use super::field::{BitField, FlagBit, Number, RegisterAddress, TextField, U16s};
use crate::message::Capabilities;
use crate::path::{DataPathPolicy, GroupOutcome, Path};

/// Page number.
pub const PAGE: u8 = 0xb0;

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(PAGE, offset)
}

const fn of_group(first: u8, group: usize) -> RegisterAddress {
    assert!(group < 8, "eight groups at most");
    at(first + group as u8)
}

/// Maximum time from a fire request to its outcome.
pub const COMMIT_MAX: BitField<Duration> = BitField::bits(at(128), 7, 4);
/// Target path of a group. A host writes the paths of all eight groups in one write.
pub const fn wanted(group: usize) -> BitField<Path> {
    BitField::byte(of_group(136, group))
}
/// Arms the change if set, and disarms it if cleared.
pub const ENABLE: FlagBit = FlagBit::new(at(152), 0);
/// Writing a one starts a slow fire, if enabled; reads as zero.
pub const COMMIT: FlagBit = FlagBit::new(at(160), 0);
/// Outcome of the last fire request for a group.
pub const fn fire_outcome(group: usize) -> BitField<GroupOutcome> {
    BitField::byte(of_group(168, group))
}
/// Outcome of the last arm request for a group. [`GroupOutcome::Success`] means armed.
pub const fn arm_outcome(group: usize) -> BitField<GroupOutcome> {
    BitField::byte(of_group(176, group))
}
/// Last commanded path of a group.
pub const fn committed(group: usize) -> BitField<Path> {
    BitField::byte(of_group(184, group))
}
/// Contains [`MAGIC_TEXT`] on modules with this page.
pub const MAGIC: TextField<4> = TextField::new(at(192));
/// Value that identifies the page.
pub const MAGIC_TEXT: [u8; 4] = *b"OCS1";
/// Layout version: major and minor number, one nibble each.
pub const LAYOUT: BitField<u8> = BitField::byte(at(196));
/// Layout version that this file describes.
pub const LAYOUT_VERSION: u8 = 0x12;
/// Number of groups.
pub const GROUPS: BitField<u8> = BitField::byte(at(197));
/// Number of external paths per group.
pub const EXTERNAL_PATHS: BitField<u8> = BitField::byte(at(198));
/// Capability bits.
pub const CAPABILITIES: BitField<Capabilities> = BitField::byte(at(199));
/// Typical time in µs from a fire request until the light is on its new path.
pub const SWITCH_US: Number<u16> = Number::new(at(200));
/// Time in µs from the arrival of light until power readings are reliable.
pub const SETTLE_US: Number<u16> = Number::new(at(202));
/// Minimum time in µs between two switching operations of a group.
pub const DWELL_US: Number<u16> = Number::new(at(204));
/// Number of completed switching operations since power-on.
pub const GENERATION: Number<u32> = Number::new(at(208));
/// Transaction id of the armed change.
pub const TRANSACTION: Number<u32> = Number::new(at(212));
/// Data-path state that the armed change requires.
pub const POLICY: BitField<DataPathPolicy> = BitField::byte(at(216));
/// Received power on each external path in 0.1 µW, from path 1.
pub const TAPS: U16s = U16s::new(at(217));
/// The module's own link name, 0 after a restart. Since layout 1.1.
pub const LINK_NAME: Number<u32> = Number::new(at(233));
/// Link name that group 0 receives, or 0 without a signal. Since layout 1.1.
pub const NEIGHBOUR_NAME: Number<u32> = Number::new(at(248));
/// External path on which the neighbour sends. Since layout 1.1.
pub const NEIGHBOUR_PATH: BitField<u8> = BitField::byte(at(252));
/// Power-on path of a group, writable only with the password.
pub const fn power_on_path(group: usize) -> BitField<Path> {
    BitField::byte(of_group(240, group))
}

impl super::field::Coded for Capabilities {
    fn from_code(code: u8) -> Option<Self> {
        Some(Self(code))
    }
    fn code(self) -> u8 {
        self.0
    }
}

/// Bits of the latched custom flags, lower memory byte 13.
pub mod flag {
    /// A switching operation succeeded.
    pub const SWITCH_DONE: u8 = 1 << 0;
    /// A switching operation failed.
    pub const SWITCH_FAULT: u8 = 1 << 1;
    /// A group at rest has left its last commanded path.
    pub const UNEXPECTED_PATH: u8 = 1 << 2;
    /// The light is on the target path, but too weak.
    pub const POWER_LOW: u8 = 1 << 3;
    /// A fire request was ignored: wrong check byte or transaction, or no armed change.
    pub const FIRE_IGNORED: u8 = 1 << 4;
}

/// Encodes an outcome in the seven bits of lower memory byte 73; bit 6 marks codes from 128.
pub fn short_outcome(outcome: GroupOutcome) -> u8 {
    let code = outcome.code();
    code & 0x3f | code >> 7 << 6
}

/// Returns the bytes of a fast fire, for a single write at lower memory byte 64: the groups, the low half of
/// the transaction, and 0xFF minus the sum of these three bytes.
pub const fn fast_fire(groups: u8, transaction: u32) -> [u8; 4] {
    let [_, _, high, low] = transaction.to_be_bytes();
    [groups, high, low, 0xff - groups.wrapping_add(high).wrapping_add(low)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_fire_encoding_unchanged() {
        assert_eq!(fast_fire(0x01, 0xaabb_0203), [0x01, 0x02, 0x03, 0xf9]);
        assert_eq!(short_outcome(GroupOutcome::Success), 1);
        assert_eq!(short_outcome(GroupOutcome::HardwareFault), 0x40);
        assert_eq!(short_outcome(GroupOutcome::PowerLow), 0x42);
    }
}
