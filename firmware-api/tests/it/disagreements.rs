// SPDX-License-Identifier: Apache-2.0
//! One test for each disagreement of CMIS implementations in docs/firmware-api.md.

use crate::bench;
use bench::{activated_at, module};
use lightloom_firmware_api::cmis::page10::LaneConfig;
use lightloom_firmware_api::cmis::rules::{
    CUSTOM_PAGE_BANK, Revision, WriteMechanism, cdb_busy_bound, cdb_busy_short, deinit_lanes,
    is_banked, linear_offset, page_change_bound, write_mechanism,
};
use lightloom_firmware_api::cmis::state::{ConfigStatus, DataPathState};
use lightloom_firmware_api::cmis::{Coded, RegisterAddress, page_b0, page01, page11};
use lightloom_firmware_api::message::RequestRefusal;
use lightloom_firmware_api::time::Micros;

#[test]
fn disagreement_1_page_11h_flags_are_not_one_byte_higher() {
    assert_eq!(page11::TX_FAULT.at.offset, 135);
    assert_eq!(page11::TX_LOS.at.offset, 136);
    assert_eq!(page11::TX_LOL.at.offset, 137);
    assert_eq!(page11::RX_LOS.at.offset, 147);
    assert_eq!(page11::RX_LOL.at.offset, 148);
    assert_eq!(page11::RX_POWER.at.offset, 186);
}

#[test]
fn disagreement_2_longer_busy_time_applies_regardless_of_select_bit() {
    for select in [0x00, 0x80] {
        assert_eq!(cdb_busy_bound(3, select | 60), Micros::from_millis(480));
        assert_eq!(cdb_busy_bound(0, select | 60), Micros::from_millis(160));
    }
}

#[test]
fn disagreement_3_zero_means_eighty_milliseconds() {
    assert_eq!(cdb_busy_short(0), Micros::from_millis(80));
    assert_eq!(cdb_busy_short(60), Micros::from_millis(20));
    assert_eq!(cdb_busy_short(80), Micros::ZERO);
    assert_eq!(cdb_busy_short(0x80 | 100), Micros::ZERO, "the select bit is no part of X");
}

#[test]
fn disagreement_4_reads_both_codes_of_each_write_mechanism() {
    let both = Some(WriteMechanism { local: true, extended: true });
    let extended = Some(WriteMechanism { local: false, extended: true });
    assert_eq!(write_mechanism(0x01), Some(WriteMechanism { local: true, extended: false }));
    assert_eq!((write_mechanism(0x10), write_mechanism(0x02)), (extended, extended));
    assert_eq!((write_mechanism(0x11), write_mechanism(0x03)), (both, both));
    assert_eq!(write_mechanism(0x00), None);
}

#[test]
fn disagreement_5_linear_offsets_use_256_pages_per_bank() {
    let at = |bank, page, offset| linear_offset(RegisterAddress { bank, page, offset });
    assert_eq!(at(0, 0x11, 130), 0x11 * 128 + 130);
    assert_eq!(at(1, 0x11, 130), (256 + 0x11) * 128 + 130);
    assert_eq!(at(1, 0x11, 5), 5, "lower memory has neither bank nor page");
}

#[test]
fn disagreement_6_more_pages_are_banked_since_5_4() {
    let (before, since) = (Revision(0x53), Revision(0x54));
    for page in [0x10, 0x3f, 0x9f, 0xa0, 0xaf] {
        assert!(is_banked(page, before) && is_banked(page, since));
    }
    for page in [0x40, 0x5f, 0x60, 0x62, 0x6d] {
        assert!(!is_banked(page, before) && is_banked(page, since));
    }
    for page in [0x00, 0x0f, 0x63, 0x9e, 0xb0] {
        assert!(!is_banked(page, since));
    }
}

#[test]
fn disagreement_7_deinit_is_inverted_before_cmis_4() {
    assert_eq!(deinit_lanes(0b0000_1111, Revision(0x30)), 0b1111_0000);
    assert_eq!(deinit_lanes(0b0000_1111, Revision(0x40)), 0b0000_1111);
    // Our module follows CMIS 4, where zero means that the data path runs.
    let mut module = module();
    let mut byte = [0xff];
    module.read(activated_at(), RegisterAddress::page(0x10, 128), &mut byte).unwrap();
    assert_eq!(byte, [0]);
    assert_eq!(module.status(activated_at()).data_paths[0], DataPathState::Activated.code());
}

#[test]
fn disagreement_8_custom_pages_exist_only_in_bank_0() {
    let mut module = module();
    let magic = page_b0::MAGIC_TEXT;
    let mut bytes = [0; 4];
    let at = |bank| RegisterAddress { bank, page: page_b0::PAGE, offset: 192 };
    module.read(activated_at(), at(CUSTOM_PAGE_BANK), &mut bytes).unwrap();
    assert_eq!(bytes, magic);
    let refused = module.read(activated_at(), at(1), &mut bytes);
    assert_eq!(refused, Err(RequestRefusal::NoSuchRegister));
}

#[test]
fn disagreement_9_wrong_application_is_rejected_and_never_activates() {
    let mut module = module();
    let mut now = activated_at();
    module.write(now, RegisterAddress::page(0x10, 128), &[0xff]).unwrap();
    now = now + Micros(10_000);
    let wrong = LaneConfig { application: 14, data_path: 0, explicit: false }.code();
    module.write(now, RegisterAddress::page(0x10, 145), &[wrong; 8]).unwrap();
    module.write(now, RegisterAddress::page(0x10, 143), &[0xff]).unwrap();
    now = now + Micros(10_000);
    module.read(now, RegisterAddress::page(0x11, 202), &mut [0; 4]).unwrap();
    assert_eq!(page11::CONFIG_STATUS.get(&module, 0), Some(ConfigStatus::BadAppSel));
    assert_ne!(page11::active(0).get(&module).map(Coded::code), Some(wrong));
}

#[test]
fn disagreement_10_page_change_time_exists_since_5_3() {
    assert_eq!(page_change_bound(0, Revision(0x53)), Micros(10_000));
    assert_eq!(page_change_bound(3, Revision(0x53)), Micros(1_250));
    assert_eq!(page_change_bound(3, Revision(0x52)), Micros(10_000), "reserved there");
    let mut module = module();
    module.poll(activated_at());
    let advertised = page01::PAGE_CHANGE.get(&module).unwrap();
    let bound = page_change_bound(advertised, Revision(0x53));
    assert!(bound >= Micros(u64::from(bench::PROFILE.timing.page_change_us)));
}
