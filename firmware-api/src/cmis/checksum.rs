// SPDX-License-Identifier: Apache-2.0
//! Page checksums: the low eight bits of the sum of the bytes.

use super::field::{RegisterAddress, Registers, RegistersMut};

/// A checksum byte and the bytes it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Page of the bytes.
    pub page: u8,
    /// First byte that the checksum covers.
    pub first: u8,
    /// Last byte that the checksum covers. The checksum byte follows it.
    pub last: u8,
}

impl Checksum {
    const fn at(self) -> RegisterAddress {
        RegisterAddress::page(self.page, self.last + 1)
    }

    /// Computes the checksum.
    pub fn expected(self, registers: &impl Registers) -> u8 {
        (self.first..=self.last)
            .map(|offset| registers.byte(RegisterAddress::page(self.page, offset)))
            .fold(0, u8::wrapping_add)
    }

    /// Returns whether the stored checksum is correct.
    pub fn holds(self, registers: &impl Registers) -> bool {
        registers.byte(self.at()) == self.expected(registers)
    }

    /// Stores the correct checksum.
    pub fn write(self, registers: &mut impl RegistersMut) {
        let expected = self.expected(registers);
        registers.set_byte(self.at(), expected);
    }
}

/// Page 00h: bytes 128 to 221, checksum in 222.
pub const PAGE_00: Checksum = Checksum { page: 0x00, first: 128, last: 221 };
/// Page 01h: bytes 130 to 254, checksum in 255. Excludes the version of the inactive firmware.
pub const PAGE_01: Checksum = Checksum { page: 0x01, first: 130, last: 254 };
/// Page 02h: bytes 128 to 254, checksum in 255.
pub const PAGE_02: Checksum = Checksum { page: 0x02, first: 128, last: 254 };
/// Vendor page B0h: bytes 192 to 206, checksum in 207.
pub const PAGE_B0: Checksum = Checksum { page: 0xb0, first: 192, last: 206 };
