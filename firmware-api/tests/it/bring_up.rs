// SPDX-License-Identifier: Apache-2.0
//! Tests the transitions and durations of module and data-path states.

use crate::bench;
use bench::{PROFILE, activated_at, module};
use lightloom_firmware_api::cmis::page10::LaneConfig;
use lightloom_firmware_api::cmis::state::{ConfigStatus, DataPathState, ModuleState};
use lightloom_firmware_api::cmis::{
    Coded, FlagBit, RegisterAddress, lower, page_b0, page00, page01, page10, page11,
};
use lightloom_firmware_api::message::{Power, RequestRefusal};
use lightloom_firmware_api::module::Module;
use lightloom_firmware_api::time::Micros;

const T: lightloom_firmware_api::module::Timing = PROFILE.timing;

fn read_byte(module: &mut Module<bench::Bench>, now: Micros, at: RegisterAddress) -> u8 {
    let mut byte = [0];
    module.read(now, at, &mut byte).unwrap();
    byte[0]
}

fn module_state(module: &mut Module<bench::Bench>, now: Micros) -> ModuleState {
    read_byte(module, now, RegisterAddress::lower(3));
    lower::MODULE_STATE.get(module).unwrap()
}

fn lane_state(module: &mut Module<bench::Bench>, now: Micros, lane: usize) -> DataPathState {
    read_byte(module, now, RegisterAddress::page(0x11, 128));
    page11::DATA_PATH_STATE.get(module, lane).unwrap()
}

fn write(module: &mut Module<bench::Bench>, now: Micros, at: RegisterAddress, byte: u8) {
    module.write(now, at, &[byte]).unwrap();
}

fn at(us: &[u32]) -> Micros {
    Micros(us.iter().map(|&span| u64::from(span)).sum())
}

fn before(now: Micros) -> Micros {
    Micros(now.0 - 1)
}

#[test]
fn module_does_not_answer_while_it_boots() {
    let mut module = module();
    assert!(module.bus_read(before(at(&[T.boot_us])), 0, &mut [0]).is_err());
    let mut identifier = [0];
    module.bus_read(at(&[T.boot_us]), 0, &mut identifier).unwrap();
    assert_eq!(identifier, [0x18]);
}

#[test]
fn module_starts_within_its_advertised_times() {
    let mut module = module();
    let up = at(&[T.boot_us, T.power_up_us]);
    assert_eq!(module_state(&mut module, at(&[T.boot_us])), ModuleState::PowerUp);
    assert_eq!(module_state(&mut module, before(up)), ModuleState::PowerUp);
    assert_eq!(module_state(&mut module, up), ModuleState::Ready);
    assert_eq!(lane_state(&mut module, up, 0), DataPathState::Init);
    assert_eq!(read_byte(&mut module, up, RegisterAddress::page(0x11, 235)), 0xff);
    let initialised = Micros(up.0 + u64::from(T.data_path_init_us));
    assert_eq!(lane_state(&mut module, before(initialised), 7), DataPathState::Init);
    assert_eq!(lane_state(&mut module, initialised, 7), DataPathState::TxTurnOn);
    assert_eq!(lane_state(&mut module, before(activated_at()), 7), DataPathState::TxTurnOn);
    assert_eq!(lane_state(&mut module, activated_at(), 7), DataPathState::Activated);
    assert_eq!(module.hardware().transmitters, 0xff);

    for (field, span_us) in [
        (page01::MODULE_POWER_UP, T.power_up_us),
        (page01::MODULE_POWER_DOWN, T.power_down_us),
        (page01::DATA_PATH_INIT, T.data_path_init_us),
        (page01::DATA_PATH_DEINIT, T.data_path_deinit_us),
        (page01::TX_TURN_ON, T.tx_turn_on_us),
        (page01::TX_TURN_OFF, T.tx_turn_off_us),
    ] {
        let bound = field.get(&module).unwrap().bound().unwrap();
        assert!(bound >= at(&[span_us]), "the advertised bound holds");
    }
}

#[test]
fn single_late_poll_matches_frequent_polls() {
    let (mut often, mut once) = (module(), module());
    for step in 0..=activated_at().0 / 500 {
        often.poll(Micros(step * 500));
    }
    assert_eq!(lane_state(&mut once, activated_at(), 3), DataPathState::Activated);
    assert_eq!(lane_state(&mut often, activated_at(), 3), DataPathState::Activated);
    assert_eq!(often.status(activated_at()), once.status(activated_at()));
}

#[test]
fn tx_disable_and_deinit_step_back_through_every_state() {
    let mut module = module();
    let mut now = activated_at();
    write(&mut module, now, RegisterAddress::page(0x10, 130), 0x01);
    assert_eq!(lane_state(&mut module, now, 0), DataPathState::TxTurnOff);
    now = now + at(&[T.tx_turn_off_us]);
    assert_eq!(lane_state(&mut module, now, 0), DataPathState::Initialized);
    assert_eq!(lane_state(&mut module, now, 1), DataPathState::Activated);
    assert_eq!(module.hardware().transmitters, 0xfe);

    write(&mut module, now, RegisterAddress::page(0x10, 128), 0x03);
    assert_eq!(lane_state(&mut module, now, 0), DataPathState::Deinit);
    assert_eq!(lane_state(&mut module, now, 1), DataPathState::TxTurnOff);
    let ended = now + at(&[T.data_path_deinit_us]);
    assert_eq!(lane_state(&mut module, before(ended), 0), DataPathState::Deinit);
    assert_eq!(lane_state(&mut module, ended, 0), DataPathState::Deactivated);
    assert_eq!(
        lane_state(&mut module, before(ended + at(&[T.tx_turn_off_us])), 1),
        DataPathState::Deinit
    );
    assert_eq!(
        lane_state(&mut module, ended + at(&[T.tx_turn_off_us]), 1),
        DataPathState::Deactivated
    );
}

#[test]
fn deinit_aborts_a_start() {
    let mut module = module();
    let now = at(&[T.boot_us, T.power_up_us, 10]);
    assert_eq!(lane_state(&mut module, now, 0), DataPathState::Init);
    write(&mut module, now, RegisterAddress::page(0x10, 128), 0xff);
    assert_eq!(lane_state(&mut module, now, 0), DataPathState::Deinit);
    let ended = now + at(&[T.data_path_deinit_us]);
    assert_eq!(lane_state(&mut module, ended, 0), DataPathState::Deactivated);
}

#[test]
fn low_power_waits_for_data_paths_and_recovers() {
    let mut module = module();
    let asked = activated_at();
    write(&mut module, asked, RegisterAddress::lower(26), 0x10);
    assert_eq!(module_state(&mut module, asked), ModuleState::PowerDown);
    let stopped = asked + at(&[T.tx_turn_off_us, T.data_path_deinit_us]);
    assert_eq!(lane_state(&mut module, stopped, 0), DataPathState::Deactivated);
    let down = asked + at(&[T.power_down_us]);
    assert_eq!(module_state(&mut module, before(down)), ModuleState::PowerDown);
    assert_eq!(module_state(&mut module, down), ModuleState::LowPower);
    assert_eq!(module.next_wakeup(), None, "nothing happens by itself at low power");
    write(&mut module, down, RegisterAddress::lower(26), 0x00);
    assert_eq!(module_state(&mut module, down), ModuleState::PowerUp);
    assert_eq!(module_state(&mut module, down + at(&[T.power_up_us])), ModuleState::Ready);
}

#[test]
fn low_power_pin_acts_only_while_enabled() {
    let mut module = module();
    let now = activated_at();
    module.set_low_power_pin(now, true);
    assert_eq!(module_state(&mut module, now), ModuleState::PowerDown);
    let down = now + at(&[T.power_down_us]);
    assert_eq!(module_state(&mut module, down), ModuleState::LowPower);
    write(&mut module, down, RegisterAddress::lower(26), 0x00);
    assert_eq!(module_state(&mut module, down), ModuleState::PowerUp);
}

#[test]
fn application_changes_in_the_order_hosts_use() {
    let mut module = module();
    let mut now = activated_at();
    let status = |module: &mut Module<bench::Bench>, now, lane| {
        read_byte(module, now, RegisterAddress::page(0x11, 202));
        page11::CONFIG_STATUS.get(module, lane).unwrap()
    };
    // Two data paths of four lanes with application 2, from lanes 0 and 4.
    let staged: Vec<u8> = (0..8u8)
        .map(|lane| LaneConfig { application: 2, data_path: lane / 4 * 4, explicit: false }.code())
        .collect();
    module.write(now, RegisterAddress::page(0x10, 145), &staged).unwrap();
    write(&mut module, now, RegisterAddress::page(0x10, 143), 0xff);
    now = now + at(&[T.configure_us]);
    assert_eq!(status(&mut module, now, 0), ConfigStatus::LaneInUse, "still active");

    write(&mut module, now, RegisterAddress::page(0x10, 128), 0xff);
    now = now + at(&[T.tx_turn_off_us, T.data_path_deinit_us]);
    write(&mut module, now, RegisterAddress::page(0x10, 143), 0xff);
    assert_eq!(status(&mut module, now, 0), ConfigStatus::InProgress);
    now = now + at(&[T.configure_us]);
    assert_eq!(status(&mut module, before(now), 7), ConfigStatus::InProgress);
    assert_eq!(status(&mut module, now, 7), ConfigStatus::Success);
    assert_eq!(page11::active(5).get(&module).unwrap().code(), staged[5]);
    let pending = page11::INIT_PENDING;
    assert_eq!(read_byte(&mut module, now, pending.at), 0xff, "applied, but not initialised");
    assert_eq!(read_byte(&mut module, now, RegisterAddress::page(0x10, 143)), 0, "self-clearing");
    write(&mut module, now, RegisterAddress::page(0x10, 128), 0x00);
    now = now + at(&[T.data_path_init_us, T.tx_turn_on_us]);
    assert_eq!(lane_state(&mut module, now, 4), DataPathState::Activated);
    assert_eq!(read_byte(&mut module, now, pending.at), 0);
}

#[test]
fn rejects_invalid_configurations_with_a_reason() {
    let mut module = module();
    let mut now = activated_at();
    write(&mut module, now, RegisterAddress::page(0x10, 128), 0xff);
    now = now + at(&[T.tx_turn_off_us, T.data_path_deinit_us]);
    let mut verdict = |application: u8, data_path: u8, lanes: u8| {
        let config = LaneConfig { application, data_path, explicit: false }.code();
        module.write(now, RegisterAddress::page(0x10, 145), &[config; 8]).unwrap();
        write(&mut module, now, RegisterAddress::page(0x10, 143), lanes);
        now = now + at(&[T.configure_us]);
        read_byte(&mut module, now, RegisterAddress::page(0x11, 202));
        page11::CONFIG_STATUS.get(&module, 0).unwrap()
    };
    assert_eq!(verdict(9, 0, 0xff), ConfigStatus::BadAppSel);
    assert_eq!(verdict(1, 3, 0xff), ConfigStatus::BadDataPath);
    assert_eq!(verdict(1, 0, 0x0f), ConfigStatus::PartialDataPath);
    assert_eq!(verdict(0, 0, 0xff), ConfigStatus::Success);
}

#[test]
fn flags_stay_latched_until_read() {
    let mut module = module();
    let now = activated_at();
    assert_eq!(
        read_byte(&mut module, now, RegisterAddress::lower(8)) & 1,
        1,
        "module state changed"
    );
    assert_eq!(read_byte(&mut module, now, RegisterAddress::lower(8)) & 1, 0);
    assert_eq!(read_byte(&mut module, now, RegisterAddress::page(0x11, 134)), 0xff);
    assert_eq!(read_byte(&mut module, now, RegisterAddress::page(0x11, 134)), 0);
}

#[test]
fn lost_signal_is_shown_immediately_and_flagged_later() {
    let mut module = module();
    let now = activated_at();
    read_byte(&mut module, now, RegisterAddress::page(0x11, 147));
    module.hardware_mut().received = Power(10);
    assert_eq!(
        read_byte(&mut module, now, RegisterAddress::page(0x11, 147)),
        0,
        "no proof of light"
    );
    let mut power = [0; 2];
    module.read(now, page11::RX_POWER.at, &mut power).unwrap();
    assert_eq!(power, [0, 10]);
    let flagged = now + at(&[T.flag_us]);
    assert_eq!(read_byte(&mut module, flagged, RegisterAddress::page(0x11, 147)), 0xff);
    assert!(flagged.since(now) <= Micros::from_millis(lower::FLAG_MAX_MS));
}

#[test]
fn page_selection_follows_host_practice() {
    let mut module = module();
    let mut now = activated_at();
    // One write selects bank and page, and the page changes after the hold-off.
    module.bus_write(now, 126, &[0, page_b0::PAGE]).unwrap();
    assert!(module.bus_read(now, 192, &mut [0; 4]).is_err(), "held off");
    now = now + at(&[T.page_change_us]);
    let mut magic = [0; 4];
    module.bus_read(now, 192, &mut magic).unwrap();
    assert_eq!(magic, page_b0::MAGIC_TEXT);
    module.bus_write(now, 127, &[0x77]).unwrap();
    now = now + at(&[T.page_change_us]);
    let mut select = [9; 2];
    module.bus_read(now, 126, &mut select).unwrap();
    assert_eq!(select, [0, 0]);
    let mut vendor = [0; 16];
    module.bus_read(now, 129, &mut vendor).unwrap();
    assert_eq!(vendor, page00::VENDOR.get(&module));
    let mut round = [0; 2];
    module.bus_read(now, 255, &mut round).unwrap();
    assert_eq!(round[1], 0x18, "byte 128 of page 00h repeats the identifier");
}

#[test]
fn early_write_is_rejected_without_effect() {
    let mut module = module();
    let now = activated_at();
    module.bus_write(now, 31, &[0x01]).unwrap();
    assert!(module.bus_write(now, 31, &[0x02]).is_err());
    let later = now + at(&[T.write_us]);
    let mut mask = [0];
    module.bus_read(later, 31, &mut mask).unwrap();
    assert_eq!(mask, [0x01]);
}

#[test]
fn apply_accepts_only_single_byte_writes() {
    let mut module = module();
    let mut now = activated_at();
    module.bus_write(now, 127, &[0x10]).unwrap();
    now = now + at(&[T.page_change_us]);
    assert!(module.bus_write(now, 142, &[0, 0xff]).is_err());
    assert!(module.bus_write(now, 143, &[0xff]).is_ok());
}

#[test]
fn software_reset_restarts_the_module() {
    let mut module = module();
    let now = activated_at();
    let mut byte = [0];
    module.read(now, RegisterAddress::lower(73), &mut byte).unwrap();
    assert!(byte[0] & 0x80 != 0, "first read after power-on");
    module.read(now, RegisterAddress::lower(73), &mut byte).unwrap();
    assert!(byte[0] & 0x80 == 0);
    write(&mut module, now, FlagBit::new(RegisterAddress::lower(26), 3).at, 0x08);
    assert!(!module.answers(now));
    let up = now + at(&[T.boot_us]);
    module.read(up, RegisterAddress::lower(73), &mut byte).unwrap();
    assert!(byte[0] & 0x80 != 0);
    assert_eq!(module.boots(), 2);
}

#[test]
fn unwritable_registers_are_rejected_on_the_line_and_ignored_on_the_bus() {
    let mut module = module();
    let now = activated_at();
    assert_eq!(
        module.write(now, RegisterAddress::lower(0), &[1]),
        Err(RequestRefusal::NoSuchRegister)
    );
    assert_eq!(
        module.write(now, RegisterAddress::page(0x20, 128), &[1]),
        Err(RequestRefusal::NoSuchRegister)
    );
    assert_eq!(
        module.write(now, RegisterAddress::page(0xb0, 240), &[1]),
        Err(RequestRefusal::Locked)
    );
    module.bus_write(now, 0, &[1]).unwrap();
    assert_eq!(read_byte(&mut module, now, RegisterAddress::lower(0)), 0x18);
    assert_eq!(page10::DATA_PATH_DEINIT.get(&module), 0);
}
