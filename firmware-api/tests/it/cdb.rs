// SPDX-License-Identifier: Apache-2.0
//! Tests CDB check codes, busy time and refusals, and arm and fire through CDB.

use crate::bench;
use bench::{Bench, PROFILE, activated_at, arm_to, external, module};
use lightloom_firmware_api::cmis::cdb::{self, CdbFailure, CdbStatus, command};
use lightloom_firmware_api::cmis::{Coded, RegisterAddress, Registers, lower};
use lightloom_firmware_api::frame::PAYLOAD_BYTES_MAX;
use lightloom_firmware_api::message::{Reply, Request, TransactionId};
use lightloom_firmware_api::module::Module;
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups};
use lightloom_firmware_api::time::Micros;
use proptest::prelude::*;

const CDB_TIME: Micros = Micros(PROFILE.timing.cdb_us as u64);

/// Returns the status at completion.
fn run(module: &mut Module<Bench>, now: Micros, page: &[u8; cdb::MESSAGE_BYTES]) -> CdbStatus {
    module.write(now, RegisterAddress::page(cdb::PAGE, 130), &page[2..6]).unwrap();
    module.write(now, RegisterAddress::page(cdb::PAGE, 136), &page[8..]).unwrap();
    assert!(!status(module, now).is_busy(), "the body starts nothing");
    module.write(now, cdb::COMMAND, &page[..2]).unwrap();
    assert_eq!(status(module, now), CdbStatus::Executing);
    assert_eq!(status(module, Micros(now.0 + CDB_TIME.0 - 1)), CdbStatus::Executing);
    status(module, now + CDB_TIME)
}

fn status(module: &mut Module<Bench>, now: Micros) -> CdbStatus {
    let mut byte = [0];
    module.read(now, lower::CDB_STATUS.at, &mut byte).unwrap();
    CdbStatus::from_code(byte[0]).unwrap()
}

fn reply(module: &mut Module<Bench>, now: Micros) -> Vec<u8> {
    let mut page = [0; cdb::MESSAGE_BYTES];
    module.read(now, cdb::COMMAND, &mut page).unwrap();
    cdb::parse_reply(&page).expect("the reply checks").to_vec()
}

fn payload(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = [0; PAYLOAD_BYTES_MAX];
    let length = request.encode(&mut bytes);
    bytes[..length].to_vec()
}

#[test]
fn cdb_encoding_unchanged() {
    let page = cdb::request(0x0001, &[0, 0, 0x10, 0x11]).unwrap();
    // 0xFF − (0x00 + 0x01 + 0 + 0 + 4 + 0x10 + 0x11) = 0xFF − 0x26.
    assert_eq!(page[..12], [0x00, 0x01, 0, 0, 4, 0xd9, 0, 0, 0, 0, 0x10, 0x11]);
    for (status, code) in [
        (CdbStatus::Idle, 0x00),
        (CdbStatus::Success, 0x01),
        (CdbStatus::Captured, 0x81),
        (CdbStatus::Checking, 0x82),
        (CdbStatus::Executing, 0x83),
        (CdbStatus::Failed(CdbFailure::UnknownCommand), 0x41),
        (CdbStatus::Failed(CdbFailure::CheckCode), 0x45),
        (CdbStatus::Failed(CdbFailure::WrongState), 0x47),
    ] {
        assert_eq!((status.code(), CdbStatus::from_code(code)), (code, Some(status)));
    }
    assert!(cdb::request(0, &[0; 121]).is_none());
}

#[test]
fn rejects_every_flipped_bit_of_header_and_payload() {
    let now = activated_at();
    let page = cdb::request(command::PASSWORD, &[0, 0, 0x10, 0x11]).unwrap();
    for bit in (0..6 * 8).chain(8 * 8..12 * 8) {
        let mut flipped = page;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let status = run(&mut module(), now, &flipped);
        // A length beyond the page is a parameter error; any other flip is a check code error.
        let length_flip = flipped[4] != page[4] && usize::from(flipped[4]) > 120;
        let failure = if length_flip { CdbFailure::Parameter } else { CdbFailure::CheckCode };
        assert_eq!(status, CdbStatus::Failed(failure), "bit {bit}");
    }
    assert_eq!(run(&mut module(), now, &page), CdbStatus::Success);
}

#[test]
fn unknown_commands_and_wrong_passwords_have_distinct_codes() {
    let now = activated_at();
    let unknown = cdb::request(0x7777, &[]).unwrap();
    assert_eq!(run(&mut module(), now, &unknown), CdbStatus::Failed(CdbFailure::UnknownCommand));
    let wrong = cdb::request(command::PASSWORD, &[0; 4]).unwrap();
    assert_eq!(run(&mut module(), now, &wrong), CdbStatus::Failed(CdbFailure::Password));
}

#[test]
fn busy_command_ignores_a_second_trigger() {
    let (mut module, now) = (module(), activated_at());
    let page = cdb::request(command::FIRMWARE_INFO, &[]).unwrap();
    module.write(now, RegisterAddress::page(cdb::PAGE, 130), &page[2..6]).unwrap();
    module.write(now, cdb::COMMAND, &page[..2]).unwrap();
    module.write(now + Micros(1), cdb::COMMAND, &[0x77, 0x77]).unwrap();
    assert_eq!(status(&mut module, now + CDB_TIME), CdbStatus::Success);
    assert_eq!(reply(&mut module, now + CDB_TIME), [0x03, 0, 1, 0]);
    assert!(lower::CDB_COMPLETE.get(&module));
}

#[test]
fn arm_and_fire_work_through_cdb() {
    let (mut module, now) = (module(), activated_at());
    let arm = payload(&Request::Arm(arm_to(5, external(1), DataPathPolicy::Hot)));
    let page = cdb::request(command::PATH_ARM, &arm).unwrap();
    assert_eq!(run(&mut module, now, &page), CdbStatus::Success);
    let now = now + CDB_TIME;
    assert_eq!(reply(&mut module, now)[..5], [0, 0, 0, 5, GroupOutcome::Success.code()]);

    let fire = payload(&Request::Fire { transaction: TransactionId(5), groups: Groups(1) });
    let page = cdb::request(command::PATH_FIRE, &fire).unwrap();
    assert_eq!(run(&mut module, now, &page), CdbStatus::Success);
    let now = now + CDB_TIME;
    assert!(module.moving(), "accepted, not yet settled");

    let page = cdb::request(command::PATH_STATUS, &[]).unwrap();
    assert_eq!(run(&mut module, now, &page), CdbStatus::Success);
    let bytes = reply(&mut module, now + CDB_TIME);
    let Some(Reply::Status(report)) = Reply::decode(Request::Status.command(), 0, &bytes) else {
        panic!("not a status: {bytes:?}");
    };
    assert_eq!((report.generation, report.active[0]), (1, external(1)));

    let page = cdb::request(command::PATH_CAPABILITIES, &[]).unwrap();
    let now = now + CDB_TIME;
    assert_eq!(run(&mut module, now, &page), CdbStatus::Success);
    assert_eq!(reply(&mut module, now + CDB_TIME)[..5], *b"OCS1\x12");
}

#[test]
fn firing_without_an_arm_is_a_wrong_state() {
    let fire = payload(&Request::Fire { transaction: TransactionId(5), groups: Groups(1) });
    let page = cdb::request(command::PATH_FIRE, &fire).unwrap();
    assert_eq!(
        run(&mut module(), activated_at(), &page),
        CdbStatus::Failed(CdbFailure::WrongState)
    );
    let page = cdb::request(command::PATH_FIRE, &fire[1..]).unwrap();
    assert_eq!(run(&mut module(), activated_at(), &page), CdbStatus::Failed(CdbFailure::Parameter));
}

proptest! {
    #[test]
    fn cdb_requests_round_trip(id: u16, body in prop::collection::vec(any::<u8>(), 0..=120)) {
        let page = cdb::request(id, &body).unwrap();
        prop_assert_eq!(cdb::parse_request(&page), Ok((id, body.as_slice())));
    }

    #[test]
    fn cdb_replies_round_trip(body in prop::collection::vec(any::<u8>(), 0..=120)) {
        let mut page = [0; cdb::MESSAGE_BYTES];
        cdb::put_reply(&mut page, &body);
        prop_assert_eq!(cdb::parse_reply(&page), Some(body.as_slice()));
    }

    #[test]
    fn pages_of_garbage_never_panic(page in prop::collection::vec(any::<u8>(), 128)) {
        let page: [u8; 128] = page.try_into().unwrap();
        let _ = (cdb::parse_request(&page), cdb::parse_reply(&page));
        let _ = run(&mut module(), activated_at(), &page);
        prop_assert!(module().byte(RegisterAddress::lower(37)) == 0);
    }
}
