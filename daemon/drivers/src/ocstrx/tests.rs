// SPDX-License-Identifier: Apache-2.0

use super::*;
use lightloom_control::state::Txn;
use lightloom_firmware_api::frame::{Frame, FrameKind, PAYLOAD_BYTES_MAX, VERSION};
use lightloom_firmware_api::message::{RequestRefusal, command};

#[test]
fn link_names_round_trip_to_bundles() {
    for name in ["n0/b0", "n0/b7", "n719/b3", "n16777213/b255"] {
        let bundle: BundleId = name.parse().expect(name);
        let seen = Neighbour { name: link_name(bundle), path: 2 };
        assert_eq!(neighbour(seen), Some(Port { bundle, path: 2 }), "{name}");
    }
    assert_eq!(neighbour(Neighbour::default()), None);
    assert_eq!(link_name(BundleId { node: NodeId(u32::MAX), bundle: 0 }), LinkName::NONE);
}

fn answer(dialect: &mut OcsTrx, request: &Request, command: u8, reply: &Reply<'_>) -> Progress {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let (status, length) = reply.encode(&mut payload);
    let sequence = u16::try_from(request.number).unwrap();
    let (version, kind, payload) = (VERSION, FrameKind::Reply, &payload[..length]);
    let mut line = [0; ENCODED_BYTES_MAX];
    let frame = Frame { version, kind, sequence, command, status, payload };
    let length = frame.encode(&mut line);
    let mut input = Input { bytes: line[..length].to_vec(), noise: 0 };
    dialect.reply(request, &mut input)
}

fn greeted() -> (OcsTrx, StatusReport) {
    let mut dialect = OcsTrx::new(DataPathPolicy::Hot, 0).called("n3/b1");
    let capabilities = Capabilities::TAPS.and(Capabilities::NEIGHBOURS);
    let identity = Identity { groups: 1, external_paths: 2, capabilities, ..Identity::default() };
    let mut status = StatusReport::default();
    status.active[0] = Path::external(1).unwrap();
    let (hello, seen) = (Reply::Identity(identity), Reply::Status(status));
    let requests = dialect.hello();
    assert_eq!(answer(&mut dialect, &requests[0], command::HELLO, &hello), Progress::Answered);
    assert_eq!(answer(&mut dialect, &requests[1], command::STATUS, &seen), Progress::Answered);
    (dialect, status)
}

#[test]
fn reads_a_module_that_refuses_link_names() {
    let (mut dialect, status) = greeted();
    let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
    let requests = dialect.requests(&read).unwrap();
    let (seen, refused) = (Reply::Status(status), Reply::Refused(RequestRefusal::NoSuchRegister));
    let replies = [(command::WRITE, refused), (command::STATUS, seen), (command::LINKS, refused)];
    assert_eq!(requests.len(), replies.len());
    for (request, (command, reply)) in requests.iter().zip(&replies) {
        assert_eq!(answer(&mut dialect, request, *command, reply), Progress::Answered);
    }
    let Outcome::Done(Some(seen)) = dialect.finish(&read) else { panic!("not read") };
    assert_eq!(seen.positions, Positions::from([(Slot(0), Position(1))]));
    assert!(seen.neighbours.is_empty());
}

#[test]
fn requests_neighbours_only_when_unknown_or_occasionally() {
    let (mut dialect, mut status) = greeted();
    let mut links = LinksReport::default();
    let known = Neighbour { name: link_name("n4/b0".parse().unwrap()), path: 1 };
    let mut read = |count: usize, neighbours, status: &StatusReport, links: &LinksReport| {
        let mut asked = Vec::new();
        for read in 0..count {
            let requests =
                dialect.requests(&Op::Observe { power: Vec::new(), neighbours }).unwrap();
            for request in &requests {
                let (command, reply) = match request.awaits {
                    Awaits::Positions => (command::STATUS, Reply::Status(*status)),
                    _ if request.number == requests[requests.len() - 1].number => {
                        asked.push(read);
                        (command::LINKS, Reply::Links(*links))
                    }
                    _ => (command::WRITE, Reply::Done),
                };
                assert_eq!(answer(&mut dialect, request, command, &reply), Progress::Answered);
            }
        }
        asked
    };
    let mut reads = |count, status: &_, links: &_| read(count, Neighbours::Usual, status, links);
    assert_eq!(reads(3, &status, &links), [0, 1, 2], "nobody is seen");
    links.neighbours[0] = known;
    assert_eq!(reads(6, &status, &links), [0, 4], "seen at the first, asked again at the eighth");
    status.active[0] = Path::external(2).unwrap();
    assert_eq!(reads(4, &status, &links), [1], "light has moved");
    assert_eq!(read(3, Neighbours::Always, &status, &links), [0, 1, 2], "somebody wants to know");
    links.neighbours[0] = Neighbour::default();
    assert!(
        read(9, Neighbours::Never, &status, &links).is_empty(),
        "nothing but the status is wanted"
    );
}

#[test]
fn converts_power_to_milli_dbm() {
    assert_eq!(mdbm(Power(1)), -40_000);
    assert_eq!(mdbm(Power(10_000)), 0);
    assert_eq!(mdbm(Power(0)), -99_000);
}

#[test]
fn distinguishes_shut_down_ports_from_failed_ports() {
    let of = |states: [u8; 8], module_state| {
        let status = StatusReport { data_paths: states, module_state, ..Default::default() };
        shut(&status, 0, 1)
    };
    assert_eq!(of([7; 8], 3), Some(Shut::TxDisabled));
    assert_eq!(of([6; 8], 3), Some(Shut::TxDisabled));
    assert_eq!(of([1; 8], 3), Some(Shut::NotActivated));
    assert_eq!(of([2; 8], 3), Some(Shut::NotActivated), "it starts");
    assert_eq!(of([4; 8], 3), None);
    assert_eq!(of([4, 7, 7, 7, 7, 7, 7, 7], 3), None, "some light goes out");
    assert_eq!(of([0; 8], 3), None, "it does not say");
    assert_eq!(of([1; 8], 5), None, "a module in fault");
    let halves = [4, 4, 4, 4, 7, 7, 7, 7];
    let status = StatusReport { data_paths: halves, module_state: 3, ..Default::default() };
    assert_eq!([0, 1].map(|group| shut(&status, group, 2)), [None, Some(Shut::TxDisabled)]);
}

#[test]
fn sends_leader_epoch_only_to_modules_that_check_it() {
    for checks in [true, false] {
        let mut dialect = OcsTrx::new(DataPathPolicy::Hot, 0).leading_in(Some(5));
        let hello = dialect.hello();
        let known =
            Reply::Identity(Identity { groups: 1, external_paths: 2, ..Identity::default() });
        let unknown = Reply::Refused(RequestRefusal::UnknownCommand);
        let said = if checks { &known } else { &unknown };
        let code = command::HELLO | command::IN_EPOCH;
        assert_eq!(answer(&mut dialect, &hello[0], code, said), Progress::Answered);
        assert_eq!(answer(&mut dialect, &hello[1], command::HELLO, &known), Progress::Answered);
        let seen = Reply::Status(StatusReport::default());
        assert_eq!(answer(&mut dialect, &hello[2], command::STATUS, &seen), Progress::Answered);
        assert_eq!(dialect.promise().map(|promise| promise.refuses_late), Some(checks));
        let want = Positions::from([(Slot(0), Position(1))]);
        for request in dialect.requests(&Op::Arm { txn: Txn(1), want }).unwrap() {
            let mut device = lightloom_firmware_api::frame::Reassembler::new();
            let frame = request.bytes.iter().find_map(|byte| {
                device.push(*byte).map(|frame| frame.unwrap().command & command::IN_EPOCH != 0)
            });
            assert_eq!(frame, Some(checks));
        }
    }
    let mut dialect = OcsTrx::new(DataPathPolicy::Hot, 0).leading_in(Some(5));
    let hello = dialect.hello();
    let refused = Reply::Refused(RequestRefusal::EarlierEpoch);
    let lost = answer(&mut dialect, &hello[0], command::HELLO | command::IN_EPOCH, &refused);
    assert!(
        matches!(lost, Progress::Lost(why) if why.contains("another daemon has since become leader"))
    );
}
