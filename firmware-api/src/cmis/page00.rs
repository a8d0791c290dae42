// SPDX-License-Identifier: Apache-2.0
//! Page 00h: manufacturer information.

use super::field::{BitField, RegisterAddress, TextField};

/// Decodes a text field. Modules may pad it with spaces, 00h or non-printable bytes.
pub fn characters(field: &[u8]) -> impl Iterator<Item = char> + '_ {
    field.iter().map(|byte| char::from(*byte)).filter(|c| (' '..='~').contains(c))
}

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x00, offset)
}

/// Vendor name.
pub const VENDOR: TextField<16> = TextField::new(at(129));
/// Part number.
pub const PART: TextField<16> = TextField::new(at(148));
/// Part revision.
pub const REVISION: TextField<2> = TextField::new(at(164));
/// Serial number.
pub const SERIAL: TextField<16> = TextField::new(at(166));
/// Manufacturing date as YYMMDD, followed by two characters for the lot.
pub const DATE: TextField<8> = TextField::new(at(182));
/// Power class minus one, 0 to 7: see [`power_class`].
pub const POWER_CLASS: BitField<u8> = BitField::bits(at(200), 7, 5);
/// Maximum power, in steps of 0.25 W.
pub const POWER_MAX: BitField<u8> = BitField::byte(at(201));
/// Connector type: see [`connector`].
pub const CONNECTOR: BitField<u8> = BitField::byte(at(203));
/// Media technology: see [`technology`].
pub const TECHNOLOGY: BitField<u8> = BitField::byte(at(212));

/// Returns the code of the lowest QSFP-DD or OSFP power class for `watts`. Hosts never request low power from class 1.
pub const fn power_class(watts: u8) -> u8 {
    match watts {
        0..=1 => 0,
        2..=3 => 1,
        4..=7 => 2,
        8 => 3,
        9..=10 => 4,
        11..=12 => 5,
        13..=14 => 6,
        _ => 7,
    }
}

/// Media technology codes.
pub mod technology {
    /// Externally modulated laser at 1310 nm.
    pub const EML_1310_NM: u8 = 0x06;
    /// Any other technology.
    pub const OTHERS: u8 = 0x08;
}

/// Connector codes (SFF-8024).
pub mod connector {
    /// MPO with two rows of sixteen fibres.
    pub const MPO_2X16: u8 = 0x0d;
}
