// SPDX-License-Identifier: Apache-2.0
//! Page 02h: thresholds of the monitors. Offsets are recalled, not read: check before relying on
//! them with a foreign module.

use super::field::{Address, Number};

const fn at(offset: u8) -> Address {
    Address::page(0x02, offset)
}

/// Temperature alarm above, 1/256 °C.
pub const TEMPERATURE_HIGH: Number<i16> = Number::new(at(128));
/// Temperature alarm below, 1/256 °C.
pub const TEMPERATURE_LOW: Number<i16> = Number::new(at(130));
/// Received power alarm above, 0.1 µW.
pub const RX_POWER_HIGH: Number<u16> = Number::new(at(192));
/// Received power alarm below, 0.1 µW.
pub const RX_POWER_LOW: Number<u16> = Number::new(at(194));
