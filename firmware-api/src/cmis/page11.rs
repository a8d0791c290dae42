// SPDX-License-Identifier: Apache-2.0
//! Page 11h: lane status. Only one program may read it, because reading clears latched flags.
//!
//! Four independent implementations use these offsets; a fifth places the flags one byte higher
//! (docs/firmware-api.md, disagreement 1).

use super::field::{BitField, LaneFlags, Nibbles, RegisterAddress, U16s};
use super::page10::LaneConfig;
use super::state::{ConfigStatus, DataPathState};

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x11, offset)
}

/// State of each lane's data path.
pub const DATA_PATH_STATE: Nibbles<DataPathState> = Nibbles::new(at(128));
/// Receiver outputs that are on.
pub const RX_OUTPUT: LaneFlags = LaneFlags::new(at(132));
/// Transmitters that are on.
pub const TX_OUTPUT: LaneFlags = LaneFlags::new(at(133));
/// Latched: the data path has reached a steady state.
pub const STATE_CHANGED: LaneFlags = LaneFlags::new(at(134));
/// Latched: transmitter fault.
pub const TX_FAULT: LaneFlags = LaneFlags::new(at(135));
/// Latched: loss of the host's signal.
pub const TX_LOS: LaneFlags = LaneFlags::new(at(136));
/// Latched: loss of lock to the host's signal.
pub const TX_LOL: LaneFlags = LaneFlags::new(at(137));
/// Latched: loss of received light.
pub const RX_LOS: LaneFlags = LaneFlags::new(at(147));
/// Latched: loss of lock to the received signal.
pub const RX_LOL: LaneFlags = LaneFlags::new(at(148));
/// Transmitted power, 0.1 µW.
pub const TX_POWER: U16s = U16s::new(at(154));
/// Laser bias, 2 µA.
pub const TX_BIAS: U16s = U16s::new(at(170));
/// Received power, 0.1 µW.
pub const RX_POWER: U16s = U16s::new(at(186));
/// Result of the last configuration.
pub const CONFIG_STATUS: Nibbles<ConfigStatus> = Nibbles::new(at(202));
/// Active configuration of a lane (0 to 7).
pub const fn active(lane: u8) -> BitField<LaneConfig> {
    assert!(lane < 8, "eight lanes a bank");
    BitField::byte(at(206 + lane))
}
/// Data path conditions: lanes whose applied configuration has not been initialised yet. See
/// [`super::rules::init_pending`].
pub const INIT_PENDING: LaneFlags = LaneFlags::new(at(235));
