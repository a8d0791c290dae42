// SPDX-License-Identifier: Apache-2.0

use crate::cmis::page02::Limits;
use crate::cmis::{lower, page00};
use crate::message::{Capabilities, Power};

/// A host interface and a media interface, with their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Application {
    /// Host interface id (SFF-8024).
    pub host: u8,
    /// Media interface id (SFF-8024).
    pub media: u8,
    /// Host lanes per data path: 1, 2, 4 or 8.
    pub host_lanes: u8,
    /// Media lanes per data path.
    pub media_lanes: u8,
    /// Host lanes at which a data path may begin, one bit per lane.
    pub host_assignment: u8,
    /// Media lanes at which a data path may begin, one bit per lane.
    pub media_assignment: u8,
}

/// Durations in microseconds. The module advertises CMIS duration codes that cover them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time from power-on or reset until the bus and the serial line respond.
    pub boot_us: u32,
    /// Duration of the module state PowerUp.
    pub power_up_us: u32,
    /// Duration of the module state PowerDown after all data paths have stopped.
    pub power_down_us: u32,
    /// Duration of the data-path state Init.
    pub data_path_init_us: u32,
    /// Duration of the data-path state Deinit.
    pub data_path_deinit_us: u32,
    /// Duration of the data-path state TxTurnOn.
    pub tx_turn_on_us: u32,
    /// Duration of the data-path state TxTurnOff.
    pub tx_turn_off_us: u32,
    /// Duration of the configuration status InProgress.
    pub configure_us: u32,
    /// Hold-off after a page change on the bus.
    pub page_change_us: u32,
    /// Hold-off after a write to volatile registers.
    pub write_us: u32,
    /// Hold-off after a write to non-volatile registers.
    pub non_volatile_write_us: u32,
    /// Time from the trigger of a CDB command to its result.
    pub cdb_us: u32,
    /// Time from a condition to its flag.
    pub flag_us: u32,
    /// Typical time from a fire request until the light is on its new path.
    pub switch_us: u16,
    /// Time from the arrival of light until power readings are reliable.
    pub settle_us: u16,
    /// Minimum time between two switching operations of a group.
    pub dwell_us: u16,
    /// Maximum time from a fire request to its outcome.
    pub commit_max_us: u32,
    /// Default debounce time for loss and return of light.
    pub debounce_us: u16,
    /// Maximum time to answer a status request.
    pub answer_us: u32,
}

/// Monitor thresholds for the host. Layouts 1.0 to 1.2 do not raise flags for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorLimits {
    /// Case temperature, 1/256 °C.
    pub temperature: Limits<i16>,
    /// Supply voltage, 100 µV.
    pub supply: Limits<u16>,
    /// Transmitted power, 0.1 µW.
    pub transmitted: Limits<u16>,
    /// Laser bias, 2 µA.
    pub bias: Limits<u16>,
    /// Received power, 0.1 µW.
    pub received: Limits<u16>,
}

/// A module type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// SFF-8024 identifier, one of [`crate::cmis::lower::identifier`].
    pub identifier: u8,
    /// Vendor name, padded with spaces.
    pub vendor: [u8; 16],
    /// Part number, padded with spaces.
    pub part: [u8; 16],
    /// Serial number, padded with spaces.
    pub serial: [u8; 16],
    /// Part revision, padded with spaces.
    pub revision: [u8; 2],
    /// Manufacturing date as YYMMDD, followed by two characters for the lot.
    pub date: [u8; 8],
    /// SFF-8024 media type, one of [`crate::cmis::lower::media_type`].
    pub media_type: u8,
    /// SFF-8024 connector, one of [`crate::cmis::page00::connector`].
    pub connector: u8,
    /// CMIS media technology, one of [`crate::cmis::page00::technology`].
    pub technology: u8,
    /// Monitor thresholds.
    pub limits: MonitorLimits,
    /// Firmware version, major and minor.
    pub firmware: (u8, u8),
    /// Number of switch groups, 1 to 8.
    pub groups: u8,
    /// Number of external paths per group, 1 to 8.
    pub external_paths: u8,
    /// Capabilities of the switch.
    pub capabilities: Capabilities,
    /// Tap power below which a path is treated as dark.
    pub power_low: Power,
    /// Received power below which a lane reports loss of signal.
    pub los: Power,
    /// Maximum power draw in watts.
    pub power_max_watts: u8,
    /// Durations.
    pub timing: Timing,
    /// At most eight applications, the best one first.
    pub applications: &'static [Application],
}

/// Pads text with spaces. A text of more than `N` bytes is a compile-time error.
pub const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let bytes = text.as_bytes();
    assert!(bytes.len() <= N, "the name is too long for its field");
    let mut field = [b' '; N];
    let mut index = 0;
    while index < bytes.len() {
        field[index] = bytes[index];
        index += 1;
    }
    field
}

impl Profile {
    /// An 800G module with one switch group, two external paths and a loopback.
    ///
    /// Switching takes 70 µs, in the middle of the 60 to 80 µs published for OCS transceivers. Other
    /// durations, the power of 12 W and the thresholds are design values, not measurements.
    pub const OCSTRX_800G: Self = Self {
        identifier: crate::cmis::lower::identifier::QSFP_DD,
        vendor: padded("lightloom"),
        part: padded("OCSTRX-800G-3P"),
        serial: padded("0"),
        revision: padded("01"),
        date: padded("260901"),
        media_type: lower::media_type::SINGLE_MODE,
        connector: page00::connector::MPO_2X16,
        technology: page00::technology::EML_1310_NM,
        limits: MonitorLimits {
            // Limits in °C: 75, −5, 70, 0.
            temperature: Limits {
                alarm_high: 75 * 256,
                alarm_low: -5 * 256,
                warning_high: 70 * 256,
                warning_low: 0,
            },
            // Limits around 3.3 V: ± 10 %, ± 5 %.
            supply: Limits {
                alarm_high: 36_300,
                alarm_low: 29_700,
                warning_high: 34_650,
                warning_low: 31_350,
            },
            // Limits in dBm: 5, −5, 4, −4.
            transmitted: Limits {
                alarm_high: 31_623,
                alarm_low: 3_162,
                warning_high: 25_119,
                warning_low: 3_981,
            },
            // Limits in mA: 120, 20, 110, 30.
            bias: Limits {
                alarm_high: 60_000,
                alarm_low: 10_000,
                warning_high: 55_000,
                warning_low: 15_000,
            },
            // Limits in dBm: 5, −13, 4, −10. Loss of signal is reported at the low alarm.
            received: Limits {
                alarm_high: 31_623,
                alarm_low: 500,
                warning_high: 25_119,
                warning_low: 1_000,
            },
        },
        firmware: (1, 0),
        groups: 1,
        external_paths: 2,
        capabilities: Capabilities::DARK
            .and(Capabilities::LOOPBACK)
            .and(Capabilities::HOT)
            .and(Capabilities::FAST_FIRE)
            .and(Capabilities::TAPS)
            .and(Capabilities::NEIGHBOURS)
            .and(Capabilities::EVENTS)
            .and(Capabilities::GO),
        power_low: Power(1_000),
        los: Power(500),
        power_max_watts: 12,
        timing: Timing {
            boot_us: 500_000,
            power_up_us: 100_000,
            power_down_us: 50_000,
            data_path_init_us: 40_000,
            data_path_deinit_us: 4_000,
            tx_turn_on_us: 900,
            tx_turn_off_us: 500,
            configure_us: 2_000,
            page_change_us: 5_000,
            write_us: 1_000,
            non_volatile_write_us: 60_000,
            cdb_us: 5_000,
            flag_us: 100_000,
            switch_us: 70,
            settle_us: 30,
            dwell_us: 1_000,
            commit_max_us: 1_000,
            debounce_us: 100,
            answer_us: 300,
        },
        applications: &[
            Application {
                host: 0x51,
                media: 0x56,
                host_lanes: 8,
                media_lanes: 8,
                host_assignment: 0x01,
                media_assignment: 0x01,
            },
            Application {
                host: 0x4f,
                media: 0x1c,
                host_lanes: 4,
                media_lanes: 4,
                host_assignment: 0x11,
                media_assignment: 0x11,
            },
            Application {
                host: 0x4b,
                media: 0x14,
                host_lanes: 1,
                media_lanes: 1,
                host_assignment: 0xff,
                media_assignment: 0xff,
            },
        ],
    };
}
