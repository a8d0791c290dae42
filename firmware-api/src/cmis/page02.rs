// SPDX-License-Identifier: Apache-2.0
//! Page 02h: four thresholds per monitor.

use super::field::{Number, RegisterAddress, RegistersMut};

const fn at(offset: u8) -> RegisterAddress {
    RegisterAddress::page(0x02, offset)
}

/// The four thresholds of one monitor, in the monitor's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits<T> {
    /// Upper alarm threshold.
    pub alarm_high: T,
    /// Lower alarm threshold.
    pub alarm_low: T,
    /// Upper warning threshold.
    pub warning_high: T,
    /// Lower warning threshold.
    pub warning_low: T,
}

/// Registers of a monitor's thresholds.
#[derive(Debug)]
pub struct Thresholds<T> {
    /// Upper alarm; the other thresholds follow in this order.
    pub alarm_high: Number<T>,
    /// Lower alarm.
    pub alarm_low: Number<T>,
    /// Upper warning.
    pub warning_high: Number<T>,
    /// Lower warning.
    pub warning_low: Number<T>,
}

impl<T> Thresholds<T> {
    const fn new(first: u8) -> Self {
        Self {
            alarm_high: Number::new(at(first)),
            alarm_low: Number::new(at(first + 2)),
            warning_high: Number::new(at(first + 4)),
            warning_low: Number::new(at(first + 6)),
        }
    }
}

impl Thresholds<i16> {
    /// Sets all four thresholds.
    pub fn set(&self, registers: &mut impl RegistersMut, limits: Limits<i16>) {
        self.alarm_high.set(registers, limits.alarm_high);
        self.alarm_low.set(registers, limits.alarm_low);
        self.warning_high.set(registers, limits.warning_high);
        self.warning_low.set(registers, limits.warning_low);
    }
}

impl Thresholds<u16> {
    /// Sets all four thresholds.
    pub fn set(&self, registers: &mut impl RegistersMut, limits: Limits<u16>) {
        self.alarm_high.set(registers, limits.alarm_high);
        self.alarm_low.set(registers, limits.alarm_low);
        self.warning_high.set(registers, limits.warning_high);
        self.warning_low.set(registers, limits.warning_low);
    }
}

/// Case temperature, 1/256 °C.
pub const TEMPERATURE: Thresholds<i16> = Thresholds::new(128);
/// Supply voltage, 100 µV.
pub const SUPPLY: Thresholds<u16> = Thresholds::new(136);
/// Transmitted power, 0.1 µW.
pub const TX_POWER: Thresholds<u16> = Thresholds::new(176);
/// Laser bias, 2 µA.
pub const TX_BIAS: Thresholds<u16> = Thresholds::new(184);
/// Received power, 0.1 µW.
pub const RX_POWER: Thresholds<u16> = Thresholds::new(192);
