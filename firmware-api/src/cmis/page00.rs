// SPDX-License-Identifier: Apache-2.0
//! Page 00h: who made the module.

use super::field::{Address, Field, Text};

const fn at(offset: u8) -> Address {
    Address::page(0x00, offset)
}

/// Vendor name.
pub const VENDOR: Text<16> = Text::new(at(129));
/// Vendor's organisation number (IEEE OUI).
pub const OUI: Text<3> = Text::new(at(145));
/// Part number.
pub const PART: Text<16> = Text::new(at(148));
/// Revision of the part.
pub const REVISION: Text<2> = Text::new(at(164));
/// Serial number.
pub const SERIAL: Text<16> = Text::new(at(166));
/// Date of manufacture, YYMMDD and two characters for the lot.
pub const DATE: Text<8> = Text::new(at(182));
/// Highest power, in steps of 0.25 W.
pub const POWER_MAX: Field<u8> = Field::byte(at(201));
/// Connector.
pub const CONNECTOR: Field<u8> = Field::byte(at(203));
/// Media technology.
pub const TECHNOLOGY: Field<u8> = Field::byte(at(212));
