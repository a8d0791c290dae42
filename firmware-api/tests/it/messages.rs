// SPDX-License-Identifier: Apache-2.0
//! Tests that message encodings are stable and round-trip, and that garbage is rejected.

use lightloom_firmware_api::frame::{ENCODED_BYTES_MAX, PAYLOAD_BYTES_MAX};
use lightloom_firmware_api::host::{Host, ReceiveError, Sequence, encode_request};
use lightloom_firmware_api::message::{
    Arm, ArmReport, Capabilities, FireReport, Identity, LinkName, LinksReport, Neighbour, Power,
    RegisterAddress, Reply, Request, RequestRefusal, StatusReport, TransactionId, command,
};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use proptest::prelude::*;

fn external(number: u8) -> Path {
    Path::external(number).expect("a number from 1 to 8")
}

fn request_bytes(request: &Request<'_>) -> Vec<u8> {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let length = request.encode(&mut payload);
    payload[..length].to_vec()
}

fn reply_bytes(reply: &Reply<'_>) -> (u8, Vec<u8>) {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let (status, length) = reply.encode(&mut payload);
    (status, payload[..length].to_vec())
}

fn arm() -> Arm {
    let mut paths = [Path::DARK; 8];
    paths[0] = external(2);
    paths[1] = Path::LOOPBACK;
    Arm { transaction: TransactionId(0x0102_0304), policy: DataPathPolicy::MuteTransmit, paths }
}

#[test]
fn request_encoding_unchanged() {
    let address = RegisterAddress { bank: 0, page: 0xb0, offset: 136 };
    let cases: [(Request<'_>, u8, &[u8]); 9] = [
        (Request::Hello, 0x01, &[]),
        (Request::Read { address, length: 8 }, 0x02, &[0, 0xb0, 136, 8]),
        (Request::Write { address, bytes: &[2, 15] }, 0x03, &[0, 0xb0, 136, 2, 15]),
        (Request::Arm(arm()), 0x10, &[1, 2, 3, 4, 1, 2, 15, 0, 0, 0, 0, 0, 0]),
        (
            Request::Fire { transaction: TransactionId(7), groups: Groups(0b11) },
            0x11,
            &[0, 0, 0, 7, 3],
        ),
        (Request::Disarm { transaction: TransactionId(7) }, 0x12, &[0, 0, 0, 7]),
        (Request::Status, 0x13, &[]),
        (
            Request::SetDefault { password: 0x1011, paths: [Path::LOOPBACK; 8] },
            0x14,
            &[0, 0, 0x10, 0x11, 15, 15, 15, 15, 15, 15, 15, 15],
        ),
        (Request::Reset, 0x15, &[]),
    ];
    for (request, code, bytes) in cases {
        assert_eq!((request.command(), request_bytes(&request).as_slice()), (code, bytes));
        assert_eq!(Request::decode(code, bytes), Ok(request));
    }
}

#[test]
fn reply_encoding_unchanged() {
    let mut outcomes = [GroupOutcome::None; 8];
    outcomes[0] = GroupOutcome::Success;
    outcomes[1] = GroupOutcome::PowerLow;
    let armed = Reply::Armed(ArmReport { transaction: TransactionId(7), outcomes });
    assert_eq!(reply_bytes(&armed), (0, vec![0, 0, 0, 7, 1, 130, 0, 0, 0, 0, 0, 0]));
    let fired = Reply::Fired(FireReport {
        transaction: TransactionId(7),
        generation: 258,
        outcomes,
        active: arm().paths,
    });
    let bytes = vec![0, 0, 0, 7, 0, 0, 1, 2, 1, 130, 0, 0, 0, 0, 0, 0, 2, 15, 0, 0, 0, 0, 0, 0];
    assert_eq!(reply_bytes(&fired), (0, bytes));
    for (refusal, code) in [
        (RequestRefusal::UnknownCommand, 1),
        (RequestRefusal::Malformed, 2),
        (RequestRefusal::NotArmed, 3),
        (RequestRefusal::Busy, 4),
        (RequestRefusal::WrongState, 5),
        (RequestRefusal::Locked, 6),
        (RequestRefusal::Version, 7),
        (RequestRefusal::NoSuchRegister, 8),
        (RequestRefusal::NoSuchModule, 9),
        (RequestRefusal::OtherModule, 10),
        (RequestRefusal::ReadOnly, 11),
        (RequestRefusal::BusFailed, 12),
    ] {
        assert_eq!(reply_bytes(&Reply::Refused(refusal)), (code, vec![]));
        assert_eq!(Reply::decode(command::ARM, code, &[]), Some(Reply::Refused(refusal)));
    }
}

#[test]
fn agent_module_name_has_1_to_64_bytes() {
    let longest = [b'x'; 64];
    for name in [&b"n3-b0"[..], &longest] {
        assert_eq!(Request::decode(0x30, name), Ok(Request::Module { name }));
    }
    assert_eq!(Request::decode(0x30, &[]), Err(RequestRefusal::Malformed));
    assert_eq!(Request::decode(0x30, &[b'x'; 65]), Err(RequestRefusal::Malformed));
    assert_eq!(Reply::decode(command::MODULE, 0, &[]), Some(Reply::Done));
}

#[test]
fn links_encoding_unchanged() {
    assert_eq!(Request::decode(0x16, &[]), Ok(Request::Links));
    let mut links = LinksReport { name: LinkName(0x0102), ..LinksReport::default() };
    links.neighbours[0] = Neighbour { name: LinkName(0x0304), path: 2 };
    let (_, bytes) = reply_bytes(&Reply::Links(links));
    assert_eq!(bytes.len(), 44);
    assert_eq!(bytes[..10], [0, 0, 1, 2, 0, 0, 3, 4, 2, 0]);
    assert_eq!(Reply::decode(command::LINKS, 0, &bytes), Some(Reply::Links(links)));
    assert_eq!(Reply::decode(command::LINKS, 0, &bytes[..43]), None);
}

#[test]
fn identity_and_status_encoding_unchanged() {
    let identity = Identity {
        versions: (1, 1),
        vendor: *b"lightloom       ",
        part: *b"OCSTRX-800      ",
        serial: *b"S0001           ",
        firmware: (1, 2),
        layout: 0x10,
        groups: 1,
        external_paths: 2,
        capabilities: Capabilities::DARK.and(Capabilities::TAPS),
        switch_us: 70,
        settle_us: 100,
        dwell_us: 1000,
        commit_max_us: 5000,
        power_low: Power(1000),
    };
    let (_, bytes) = reply_bytes(&Reply::Identity(identity));
    assert_eq!(bytes.len(), 68);
    assert_eq!(bytes[..2], [1, 1]);
    assert_eq!(bytes[50..56], [1, 2, 0x10, 1, 2, 17]);
    assert_eq!(bytes[56..], [0, 70, 0, 100, 3, 232, 0, 0, 19, 136, 3, 232]);
    assert_eq!(Reply::decode(command::HELLO, 0, &bytes), Some(Reply::Identity(identity)));

    let mut status = StatusReport {
        boots: 3,
        uptime_ms: 1000,
        module_state: 3,
        armed: TransactionId(8),
        fired: TransactionId(7),
        generation: 9,
        busy: Groups(1),
        active: arm().paths,
        data_paths: [4; 8],
        ..StatusReport::default()
    };
    status.taps[1] = Power(6310);
    status.received[7] = Power(5012);
    let (_, bytes) = reply_bytes(&Reply::Status(status));
    assert_eq!(bytes.len(), 84);
    assert_eq!(bytes[..20], [0, 3, 0, 0, 3, 232, 3, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 9, 1]);
    assert_eq!(bytes[20..22], [2, 15]);
    assert_eq!(bytes[44..52], [4; 8]);
    assert_eq!((&bytes[54..56], &bytes[82..]), (&[24, 166][..], &[19, 148][..]));
    assert_eq!(Reply::decode(command::STATUS, 0, &bytes), Some(Reply::Status(status)));
}

#[test]
fn rejects_invalid_requests_by_kind() {
    let cases: [(u8, &[u8], RequestRefusal); 9] = [
        (0x7f, &[], RequestRefusal::UnknownCommand),
        (command::STATUS, &[0], RequestRefusal::Malformed),
        (command::FIRE, &[0, 0, 0, 0, 1], RequestRefusal::Malformed),
        (command::ARM, &[0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0], RequestRefusal::Malformed),
        (command::ARM, &[0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0], RequestRefusal::Malformed),
        (command::READ, &[0, 0, 120, 9], RequestRefusal::Malformed),
        (command::READ, &[0, 0, 200, 57], RequestRefusal::Malformed),
        (command::READ, &[0, 0, 0, 0], RequestRefusal::Malformed),
        (command::WRITE, &[0, 0, 255, 1, 2], RequestRefusal::Malformed),
    ];
    for (code, payload, refusal) in cases {
        assert_eq!(Request::decode(code, payload), Err(refusal), "{code:#x} {payload:?}");
    }
}

#[test]
fn host_distinguishes_replies_from_echoes() {
    let mut host = Host::continuing_after(Sequence(0xffff));
    let mut line = [0; ENCODED_BYTES_MAX];
    let (sequence, length) = host.request(&Request::Status, &mut line);
    assert_eq!(sequence, Sequence(0));
    let mut seen = Vec::new();
    host.receive(&line[..length], |received| seen.push(received.map(|_| ())));
    assert_eq!(seen, [Err(ReceiveError::NotAReply)]);
}

#[test]
fn repeated_request_with_the_same_number_has_the_same_bytes() {
    let mut host = Host::new();
    let (mut first, mut again) = ([0; ENCODED_BYTES_MAX], [0; ENCODED_BYTES_MAX]);
    let request = Request::Arm(arm());
    let (sequence, length) = host.request(&request, &mut first);
    assert_eq!(encode_request(sequence, &request, &mut again), length);
    assert_eq!(first, again);
}

proptest! {
    #[test]
    fn decoded_requests_encode_to_the_same_bytes(code in 0u8..0x20, payload in prop::collection::vec(any::<u8>(), 0..=136)) {
        if let Ok(request) = Request::decode(code, &payload) {
            prop_assert_eq!(request.command(), code);
            prop_assert_eq!(request_bytes(&request), payload);
        }
    }

    #[test]
    fn arm_requests_round_trip(transaction in 1u32.., policy in 0u8..3, codes in prop::array::uniform8(0u8..9)) {
        let request = Request::Arm(Arm {
            transaction: TransactionId(transaction),
            policy: DataPathPolicy::from_code(policy).unwrap(),
            paths: codes.map(|code| Path::from_code(code).unwrap()),
        });
        let bytes = request_bytes(&request);
        prop_assert_eq!(Request::decode(command::ARM, &bytes), Ok(request));
    }

    #[test]
    fn reply_decoder_never_panics(code: u8, status in 0u8..10, payload in prop::collection::vec(any::<u8>(), 0..=136)) {
        if let Some(reply) = Reply::decode(code, status, &payload) && status == 0 {
            prop_assert_eq!(reply_bytes(&reply).1, payload);
        }
    }
}
