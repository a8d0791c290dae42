// SPDX-License-Identifier: Apache-2.0
//! Page 01h: advertised features.

use super::duration::Duration;
use super::field::{BitField, FlagBit, RegisterAddress};

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x01, offset)
}

/// Supported optional pages.
pub const PAGES: BitField<u8> = BitField::byte(at(142));
/// Maximum time to stop a data path.
pub const DATA_PATH_DEINIT: BitField<Duration> = BitField::bits(at(144), 7, 4);
/// Maximum time to start a data path.
pub const DATA_PATH_INIT: BitField<Duration> = BitField::bits(at(144), 3, 0);
/// Transmitters can be disabled (10h:130).
pub const TX_DISABLE_SUPPORTED: FlagBit = FlagBit::new(at(155), 1);
/// Receiver outputs can be disabled (10h:138).
pub const RX_DISABLE_SUPPORTED: FlagBit = FlagBit::new(at(156), 1);
/// The receiver loss-of-signal flag (11h:147) is supported.
pub const RX_LOS_SUPPORTED: FlagBit = FlagBit::new(at(158), 1);
/// Case temperature is measured (lower memory 14).
pub const TEMPERATURE_SUPPORTED: FlagBit = FlagBit::new(at(159), 0);
/// Supply voltage is measured (lower memory 16).
pub const SUPPLY_SUPPORTED: FlagBit = FlagBit::new(at(159), 1);
/// Laser bias is measured (11h:170) in units of 2 µA, because the scale in bits 4:3 is 0.
pub const TX_BIAS_SUPPORTED: FlagBit = FlagBit::new(at(160), 0);
/// Transmitted power is measured (11h:154).
pub const TX_POWER_SUPPORTED: FlagBit = FlagBit::new(at(160), 1);
/// Received power is measured (11h:186).
pub const RX_POWER_SUPPORTED: FlagBit = FlagBit::new(at(160), 2);
/// Number of CDB instances, 0 to 2.
pub const CDB_INSTANCES: BitField<u8> = BitField::bits(at(163), 7, 6);
/// CDB commands run in the background, while other registers remain readable.
pub const CDB_BACKGROUND: FlagBit = FlagBit::new(at(163), 5);
/// CDB busy time as `max(1, X) · 160 ms`.
pub const CDB_BUSY_LONG: BitField<u8> = BitField::bits(at(165), 4, 0);
/// CDB busy time as `80 − min(80, X) ms`.
pub const CDB_BUSY_SHORT: BitField<u8> = BitField::bits(at(166), 6, 0);
/// Maximum duration of the transition to low power.
pub const MODULE_POWER_DOWN: BitField<Duration> = BitField::bits(at(167), 7, 4);
/// Maximum duration of the transition to full power.
pub const MODULE_POWER_UP: BitField<Duration> = BitField::bits(at(167), 3, 0);
/// Maximum time to turn a transmitter off.
pub const TX_TURN_OFF: BitField<Duration> = BitField::bits(at(168), 7, 4);
/// Maximum time to turn a transmitter on.
pub const TX_TURN_ON: BitField<Duration> = BitField::bits(at(168), 3, 0);
/// Page change time: 10 ms is halved this many times (see [`super::rules::page_change_bound`]).
pub const PAGE_CHANGE: BitField<u8> = BitField::bits(at(169), 3, 0);
/// Addresses the media lanes at which application `number` (from 0) may begin.
pub const fn media_lanes(number: u8) -> RegisterAddress {
    assert!(number < 15, "fifteen applications at most");
    at(176 + number)
}
