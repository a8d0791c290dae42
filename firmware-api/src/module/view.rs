// SPDX-License-Identifier: Apache-2.0
//! Read-only registers, refreshed from the module's state before each read.

use super::data_path::{LANES, default_config};
use super::{Hardware, Module};
use crate::cmis::duration::Duration;
use crate::cmis::{
    RegisterAddress, RegistersMut, checksum, lower, page_b0, page00, page01, page02, page10, page11,
};
use crate::message::{Arm, Power};
use crate::path::{GROUPS_MAX, GroupOutcome};
use crate::time::Micros;

/// CMIS 5.3, the first revision with a page change time.
const CMIS_REVISION: u8 = 0x53;

impl<H: Hardware> Module<H> {
    pub(super) fn write_defaults(&mut self) {
        self.write_identity();
        self.write_applications();
        self.write_advertisement();
        self.write_switch_advertisement();
        for lane in 0..LANES {
            let config = default_config(&self.profile, lane);
            page10::staged(lane as u8).set(&mut self.memory, config);
        }
        for sum in [checksum::PAGE_00, checksum::PAGE_01, checksum::PAGE_02, checksum::PAGE_B0] {
            sum.write(&mut self.memory);
        }
    }

    fn write_identity(&mut self) {
        let (memory, profile) = (&mut self.memory, &self.profile);
        lower::IDENTIFIER.set(memory, profile.identifier);
        memory.set_byte(RegisterAddress::page(0x00, 128), profile.identifier);
        lower::REVISION.set(memory, CMIS_REVISION);
        lower::STEPPED_CONFIG_ONLY.set(memory, true);
        lower::INTERRUPT_DEASSERTED.set(memory, true);
        lower::LOW_POWER_ALLOW_HARDWARE.set(memory, true);
        lower::RESTARTED.set(memory, true);
        lower::FIRMWARE[0].set(memory, profile.firmware.0);
        lower::FIRMWARE[1].set(memory, profile.firmware.1);
        page00::VENDOR.set(memory, &profile.vendor);
        page00::PART.set(memory, &profile.part);
        page00::SERIAL.set(memory, &profile.serial);
        page00::POWER_MAX.set(memory, profile.power_max_watts.saturating_mul(4));
        page00::REVISION.set(memory, &profile.revision);
        page00::DATE.set(memory, &profile.date);
        page00::POWER_CLASS.set(memory, page00::power_class(profile.power_max_watts));
        page00::CONNECTOR.set(memory, profile.connector);
        page00::TECHNOLOGY.set(memory, profile.technology);
        let limits = &profile.limits;
        page02::TEMPERATURE.set(memory, limits.temperature);
        page02::SUPPLY.set(memory, limits.supply);
        page02::TX_POWER.set(memory, limits.transmitted);
        page02::TX_BIAS.set(memory, limits.bias);
        page02::RX_POWER.set(memory, limits.received);
    }

    fn write_applications(&mut self) {
        let memory = &mut self.memory;
        lower::MEDIA_TYPE.set(memory, self.profile.media_type);
        for number in 0..8u8 {
            let at = lower::application(number);
            let Some(application) = self.profile.applications.get(usize::from(number)) else {
                memory.set_byte(at, lower::APPLICATIONS_END);
                continue;
            };
            memory.set_byte(at, application.host);
            memory.set_byte(at.plus(1), application.media);
            memory.set_byte(at.plus(2), application.host_lanes << 4 | application.media_lanes);
            memory.set_byte(at.plus(3), application.host_assignment);
            memory.set_byte(page01::media_lanes(number), application.media_assignment);
        }
    }

    fn write_advertisement(&mut self) {
        let (memory, timing) = (&mut self.memory, &self.profile.timing);
        let holding = |span_us: u32| Duration::holding(Micros(u64::from(span_us)));
        page01::DATA_PATH_INIT.set(memory, holding(timing.data_path_init_us));
        page01::DATA_PATH_DEINIT.set(memory, holding(timing.data_path_deinit_us));
        page01::MODULE_POWER_UP.set(memory, holding(timing.power_up_us));
        page01::MODULE_POWER_DOWN.set(memory, holding(timing.power_down_us));
        page01::TX_TURN_ON.set(memory, holding(timing.tx_turn_on_us));
        page01::TX_TURN_OFF.set(memory, holding(timing.tx_turn_off_us));
        for flag in [
            page01::TX_DISABLE_SUPPORTED,
            page01::RX_DISABLE_SUPPORTED,
            page01::RX_LOS_SUPPORTED,
            page01::TEMPERATURE_SUPPORTED,
            page01::SUPPLY_SUPPORTED,
            page01::TX_POWER_SUPPORTED,
            page01::RX_POWER_SUPPORTED,
        ] {
            flag.set(memory, true);
        }
        let measures_bias = self.hardware.bias(Micros::ZERO, 0).is_some();
        page01::TX_BIAS_SUPPORTED.set(memory, measures_bias);
        page01::CDB_INSTANCES.set(memory, 1);
        page01::CDB_BACKGROUND.set(memory, true);
        // Both encodings contain the actual busy time, so hosts may use either (cmis::rules::cdb_busy_bound).
        page01::CDB_BUSY_SHORT.set(memory, 0);
        page01::CDB_BUSY_LONG.set(memory, (timing.cdb_us.div_ceil(160_000)).min(31) as u8);
        let halvings = (0..15).take_while(|i| 10_000 >> (i + 1) >= timing.page_change_us).count();
        page01::PAGE_CHANGE.set(memory, halvings as u8);
    }

    fn write_switch_advertisement(&mut self) {
        let (memory, profile) = (&mut self.memory, &self.profile);
        let timing = &profile.timing;
        page_b0::MAGIC.set(memory, &page_b0::MAGIC_TEXT);
        page_b0::LAYOUT.set(memory, page_b0::LAYOUT_VERSION);
        page_b0::GROUPS.set(memory, profile.groups);
        page_b0::EXTERNAL_PATHS.set(memory, profile.external_paths);
        page_b0::CAPABILITIES.set(memory, profile.capabilities);
        page_b0::SWITCH_US.set(memory, timing.switch_us);
        page_b0::SETTLE_US.set(memory, timing.settle_us);
        page_b0::DWELL_US.set(memory, timing.dwell_us);
        let commit_max = Duration::holding(Micros(u64::from(timing.commit_max_us)));
        page_b0::COMMIT_MAX.set(memory, commit_max);
    }

    pub(super) fn refresh(&mut self, now: Micros) {
        self.refresh_monitors(now);
        self.refresh_lanes();
        self.refresh_switch(now);
        self.refresh_lost_signals(now);
        self.memory.summarise_flags();
    }

    fn refresh_monitors(&mut self, now: Micros) {
        let (memory, hardware) = (&mut self.memory, &self.hardware);
        lower::MODULE_STATE.set(memory, self.power.state);
        lower::TEMPERATURE.set(memory, hardware.temperature(now));
        lower::SUPPLY.set(memory, hardware.supply(now));
        page11::TX_OUTPUT.set(memory, self.transmitters);
        let receivers_off = page10::RX_DISABLE.get(memory);
        page11::RX_OUTPUT.set(memory, self.power.transmitting() & !receivers_off);
        for lane in 0..LANES {
            page11::TX_POWER.set(memory, lane, hardware.transmitted(now, lane).0);
            page11::TX_BIAS.set(memory, lane, hardware.bias(now, lane).unwrap_or(0));
            page11::RX_POWER.set(memory, lane, hardware.received(now, lane).0);
        }
        for number in 1..=self.profile.external_paths {
            page_b0::TAPS.set(memory, usize::from(number) - 1, hardware.tap(now, number).0);
        }
    }

    fn refresh_lanes(&mut self) {
        let memory = &mut self.memory;
        let mut pending = 0;
        for (index, lane) in self.power.lanes.iter().enumerate() {
            page11::DATA_PATH_STATE.set(memory, index, lane.state);
            page11::CONFIG_STATUS.set(memory, index, lane.config);
            page11::active(index as u8).set(memory, lane.active);
            pending |= u8::from(lane.init_pending) << index;
        }
        page11::INIT_PENDING.set(memory, pending);
    }

    fn refresh_switch(&mut self, now: Micros) {
        let active = self.switch.active(&self.hardware, now);
        let strayed = self.switch.strayed(&self.hardware, now);
        let power_on = self.hardware.load_power_on_paths();
        let (memory, switch) = (&mut self.memory, &self.switch);
        for group in 0..GROUPS_MAX {
            lower::ACTIVE_PATHS.set(memory, group, active[group]);
            page_b0::fire_outcome(group).set(memory, switch.fire_outcomes[group]);
            page_b0::arm_outcome(group).set(memory, switch.arm_outcomes[group]);
            page_b0::committed(group).set(memory, switch.committed[group]);
            page_b0::power_on_path(group).set(memory, power_on[group]);
        }
        let neighbour = self.hardware.neighbour(now, 0);
        page_b0::NEIGHBOUR_NAME.set(memory, neighbour.name.0);
        page_b0::NEIGHBOUR_PATH.set(memory, neighbour.path);
        lower::BUSY_GROUPS.set(memory, switch.busy().0);
        let worst = switch.fire_outcomes.iter().copied().max_by_key(|outcome| outcome.code());
        let worst = worst.unwrap_or(GroupOutcome::None);
        lower::FIRE_OUTCOME.set(memory, page_b0::short_outcome(worst));
        lower::GENERATION.set(memory, switch.generation);
        page_b0::GENERATION.set(memory, switch.generation);
        if strayed {
            lower::CUSTOM_FLAGS.raise(memory, page_b0::flag::UNEXPECTED_PATH);
        }
    }

    /// Sets the flag of each lane that has been dark for the flag time.
    fn refresh_lost_signals(&mut self, now: Micros) {
        let flag_time = Micros(u64::from(self.profile.timing.flag_us));
        for lane in 0..LANES {
            let power: Power = self.hardware.received(now, lane);
            if power >= self.profile.los {
                self.lost_signal_since[lane] = None;
                continue;
            }
            let since = *self.lost_signal_since[lane].get_or_insert(now);
            if now.since(since) >= flag_time {
                page11::RX_LOS.raise(&mut self.memory, 1 << lane);
            }
        }
    }

    pub(super) fn show_arm(&mut self, arm: &Arm) {
        for (group, &path) in arm.paths.iter().enumerate() {
            page_b0::wanted(group).set(&mut self.memory, path);
        }
        page_b0::TRANSACTION.set(&mut self.memory, arm.transaction.0);
        page_b0::POLICY.set(&mut self.memory, arm.policy);
        page_b0::ENABLE.set(&mut self.memory, true);
    }
}
