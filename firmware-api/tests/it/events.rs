// SPDX-License-Identifier: Apache-2.0
//! Tests that events are sent in order, repeated until acknowledged, and rate-limited.

use crate::bench;
use bench::{Bench, PROFILE, activated_at, arm_to, external};
use lightloom_firmware_api::device::SerialModule;
use lightloom_firmware_api::frame::{ENCODED_BYTES_MAX, PAYLOAD_BYTES_MAX};
use lightloom_firmware_api::host::{Host, Received, Sequence, acknowledge};
use lightloom_firmware_api::message::{
    Capabilities, Event, EventKind, EventsReport, FireReport, Power, Reply, Request,
    RequestRefusal, TransactionId, command,
};
use lightloom_firmware_api::module::{Module, Profile};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use lightloom_firmware_api::time::Micros;
use proptest::prelude::*;

struct Rig {
    device: SerialModule<Bench>,
    host: Host,
    now: Micros,
    events: Vec<(Micros, u16, Event)>,
    refused: Vec<RequestRefusal>,
    reports: Vec<EventsReport>,
    fired: Vec<FireReport>,
}

impl Rig {
    fn with(profile: Profile) -> Self {
        let optics = Bench { power_on: [external(1); 8], at: [external(1); 8], ..Bench::default() };
        let device = SerialModule::new(Module::new(profile, optics, Micros::ZERO));
        let (now, host) = (activated_at(), Host::new());
        let (events, refused, reports, fired) = (vec![], vec![], vec![], vec![]);
        let mut rig = Self { device, host, now, events, refused, reports, fired };
        rig.run_to(now);
        rig
    }

    fn new() -> Self {
        let mut rig = Self::with(PROFILE);
        rig.ask(&Request::Events { enabled: true, debounce_us: 0 });
        rig
    }

    fn heard(&mut self, sent: &[u8]) {
        let (now, mut host) = (self.now, std::mem::take(&mut self.host));
        host.receive_all(sent, |received| match received.expect("whole frames") {
            Received::Event(Sequence(number), event) => self.events.push((now, number, event)),
            Received::Answer(answer) => match answer.reply {
                Reply::Events(report) => self.reports.push(report),
                Reply::Fired(report) => self.fired.push(report),
                Reply::Refused(refusal) => self.refused.push(refusal),
                _ => {}
            },
        });
        self.host = host;
    }

    fn line(&mut self, bytes: &[u8]) {
        let mut sent = Vec::new();
        self.device.on_bytes(self.now, bytes, |frame| sent.extend_from_slice(frame));
        self.heard(&sent);
    }

    fn ask(&mut self, request: &Request<'_>) {
        let mut line = [0; ENCODED_BYTES_MAX];
        let (_, length) = self.host.request(request, &mut line);
        self.line(&line[..length]);
    }

    fn acknowledge(&mut self, number: u16) {
        let mut line = [0; ENCODED_BYTES_MAX];
        let length = acknowledge(Sequence(number), &mut line);
        self.line(&line[..length]);
    }

    fn run_to(&mut self, end: Micros) {
        let mut looks = 0;
        loop {
            let mut sent = Vec::new();
            self.device.poll(self.now, |frame| sent.extend_from_slice(frame));
            self.heard(&sent);
            let next = self.device.next_wakeup().filter(|at| *at <= end);
            let Some(next) = next else { break };
            assert!(next > self.now, "what is due is done: {next:?}");
            self.now = next;
            looks += 1;
            assert!(looks < 100_000);
        }
        self.now = end;
    }

    fn run_for(&mut self, micros: u64) {
        self.run_to(self.now + Micros(micros));
    }

    /// Changes the light, and calls the firmware immediately as a comparator does.
    fn light(&mut self, arrives: bool) {
        self.device.module_mut().hardware_mut().tap = Power(if arrives { 5_000 } else { 0 });
        self.run_for(0);
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.events.iter().map(|(_, _, event)| event.kind).collect()
    }
}

#[test]
fn event_and_request_encodings_unchanged() {
    let event = Event {
        kind: EventKind::LightLost,
        group: 2,
        active: external(1),
        power: Power(258),
        boots: 772,
        uptime_ms: 0x0506_0708,
        skipped: 0x090a,
    };
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let length = event.encode(&mut payload);
    let bytes = [1, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    assert_eq!(payload[..length], bytes);
    assert_eq!(Event::decode(&bytes), Some(event));
    assert_eq!(Event::decode(&bytes[..12]), None);
    assert_eq!(Event::decode(&[5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "no such kind");

    let request = Request::Events { enabled: true, debounce_us: 100 };
    assert_eq!(request.encode(&mut payload), 3);
    assert_eq!((request.command(), &payload[..3]), (0x17, &[1, 0, 100][..]));
    assert_eq!(Request::decode(0x17, &[2, 0, 0]), Err(RequestRefusal::Malformed));
    let report = EventsReport { enabled: true, debounce_us: 100, repeat_ms: 10, answer_us: 300 };
    assert_eq!(Reply::Events(report).encode(&mut payload), (0, 9));
    assert_eq!(payload[..9], [1, 0, 100, 0, 10, 0, 0, 1, 44]);

    let go = Request::Go { arm: arm_to(7, external(2), DataPathPolicy::Hot), groups: Groups(1) };
    assert_eq!(go.encode(&mut payload), 14);
    assert_eq!(payload[..14], [0, 0, 0, 7, 2, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(Request::decode(command::GO, &payload[..14]), Ok(go));
    // The expected CRC-32 was computed with zlib.
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = acknowledge(Sequence(0x0102), &mut line);
    assert_eq!(line[..7], [0, 6, 1, 4, 1, 2, 0x20]);
    assert!(length <= 16);
}

#[test]
fn repeats_lost_light_event_until_acknowledged() {
    let mut rig = Rig::new();
    assert_eq!(rig.reports[0].debounce_us, 100);
    let lost = rig.now;
    rig.light(false);
    rig.run_for(80_000);
    let after: Vec<u64> = rig.events.iter().map(|(at, ..)| at.0 - lost.0).collect();
    assert_eq!(after, [100, 10_100, 30_100, 70_100], "10 ms, then twice as long each time");
    assert!(rig.events.iter().all(|(_, number, event)| *number == 1
        && event.kind == EventKind::LightLost
        && event.active == external(1)
        && event.power == Power(0)));
    rig.acknowledge(9);
    rig.run_for(90_000);
    assert_eq!(rig.events.len(), 5, "another number acknowledges nothing");
    rig.acknowledge(1);
    rig.run_for(10_000_000);
    assert_eq!(rig.events.len(), 5);
    rig.light(true);
    rig.run_for(100);
    let (_, number, back) = rig.events[5];
    assert_eq!((number, back.kind, back.power), (2, EventKind::LightBack, Power(5_000)));
}

#[test]
fn changes_shorter_than_the_debounce_send_no_event() {
    let mut rig = Rig::new();
    for _ in 0..1_000 {
        rig.light(false);
        rig.run_for(99);
        rig.light(true);
        rig.run_for(99);
    }
    assert_eq!(rig.events, []);
}

#[test]
fn sends_one_event_at_a_time_with_the_latest_state() {
    let mut rig = Rig::new();
    rig.light(false);
    rig.run_for(200);
    rig.light(true);
    rig.run_for(200);
    rig.light(false);
    rig.run_for(200);
    assert_eq!(rig.kinds(), [EventKind::LightLost]);
    rig.acknowledge(1);
    assert_eq!(rig.events.len(), 1, "it is gone as it was when that was said: nothing is new");
    rig.light(true);
    rig.run_for(200);
    assert_eq!(rig.kinds(), [EventKind::LightLost, EventKind::LightBack]);
    assert_eq!(rig.events[1].2.skipped, 1, "back and lost again meanwhile");
}

#[test]
fn flapping_light_sends_at_most_ten_events_per_second() {
    let mut rig = Rig::new();
    let end = rig.now + Micros(60_000_000);
    let mut lit = true;
    while rig.now < end {
        lit = !lit;
        rig.light(lit);
        rig.run_for(2_000);
        if let Some((_, number, _)) = rig.events.last().copied() {
            rig.acknowledge(number);
        }
    }
    let events = rig.events.len();
    assert!((590..=610).contains(&events), "{events}");
    let mut rig = Rig::new();
    for flap in 0..30_000 {
        rig.light(flap % 2 == 1);
        rig.run_for(2_000);
    }
    assert!(rig.events.len() < 70, "without acknowledgement: {} repeats", rig.events.len());
}

#[test]
fn restart_sends_an_event_but_planned_moves_do_not() {
    let mut rig = Rig::new();
    rig.ask(&Request::Arm(arm_to(7, external(2), DataPathPolicy::Hot)));
    rig.ask(&Request::Fire { transaction: TransactionId(7), groups: Groups(1) });
    rig.device.module_mut().hardware_mut().tap = Power(0);
    rig.run_for(5_000);
    rig.light(true);
    rig.run_for(50);
    assert_eq!(rig.fired[0].outcomes[0], GroupOutcome::PowerLow, "dark at its new path");
    rig.run_for(5_000);
    assert_eq!(rig.kinds(), [EventKind::LightBack]);
    rig.acknowledge(1);
    rig.ask(&Request::Reset);
    rig.run_for(600_000);
    let (_, number, restarted) = *rig.events.last().unwrap();
    assert_eq!((restarted.kind, restarted.boots), (EventKind::Restarted, 2));
    rig.acknowledge(number);
    let sent = rig.events.len();
    rig.run_for(5_000_000);
    assert_eq!(rig.events.len(), sent);
}

#[test]
fn stray_light_sends_a_moved_event() {
    let mut rig = Rig::new();
    rig.device.module_mut().hardware_mut().at = [Path::LOOPBACK; 8];
    rig.device.module_mut().hardware_mut().going = [None; 8];
    rig.run_for(0);
    let (_, _, event) = rig.events[0];
    assert_eq!((event.kind, event.active), (EventKind::Moved, Path::LOOPBACK));
}

#[test]
fn older_module_refuses_events_and_unrequested_events_are_not_sent() {
    let capabilities = Capabilities(PROFILE.capabilities.0 & 0x3f);
    let mut rig = Rig::with(Profile { capabilities, ..PROFILE });
    rig.ask(&Request::Events { enabled: true, debounce_us: 0 });
    rig.ask(&Request::Go { arm: arm_to(7, external(2), DataPathPolicy::Hot), groups: Groups(1) });
    assert_eq!(rig.refused, [RequestRefusal::UnknownCommand; 2]);
    let mut unasked = Rig::with(PROFILE);
    for rig in [&mut rig, &mut unasked] {
        rig.light(false);
        rig.run_for(5_000_000);
        assert_eq!(rig.events, []);
    }
}

#[test]
fn go_moves_once_and_a_repeat_gets_the_same_answer() {
    let mut rig = Rig::new();
    let drives = rig.device.module().hardware().drives;
    let go = Request::Go { arm: arm_to(7, external(2), DataPathPolicy::Hot), groups: Groups(1) };
    rig.ask(&go);
    rig.run_for(20);
    rig.ask(&go);
    rig.run_for(2_000);
    rig.ask(&go);
    rig.run_for(2_000);
    assert_eq!(rig.device.module().hardware().drives, drives + 1);
    assert_eq!(rig.fired.len(), 2, "two on their way at once: the later one gets the reply");
    for fired in &rig.fired {
        assert_eq!((fired.outcomes[0], fired.active[0]), (GroupOutcome::Success, external(2)));
        assert_eq!((fired.transaction, fired.generation), (TransactionId(7), 1));
    }
    // The transaction number must not be reused, even with other paths.
    rig.ask(&Request::Go {
        arm: arm_to(7, Path::LOOPBACK, DataPathPolicy::Hot),
        groups: Groups(1),
    });
    rig.run_for(2_000);
    assert_eq!(rig.device.module().hardware().drives, drives + 1);
    rig.ask(&Request::Go { arm: arm_to(8, external(5), DataPathPolicy::Hot), groups: Groups(1) });
    rig.run_for(2_000);
    assert_eq!(rig.fired.last().unwrap().outcomes[0], GroupOutcome::Invalid);
    assert_eq!(rig.device.module().hardware().drives, drives + 1);
}

proptest! {
    #[test]
    fn events_round_trip(kind in 1u8..=4, group in 0u8..8, path in 0u8..9, rest: [u8; 10]) {
        let mut bytes = vec![kind, group, path];
        bytes.extend(rest);
        let event = Event::decode(&bytes).expect("it is one");
        let mut payload = [0; PAYLOAD_BYTES_MAX];
        let length = event.encode(&mut payload);
        prop_assert_eq!(&payload[..length], &bytes[..]);
    }

    /// With random faults, event numbers ascend, events differ, and the last one matches the final
    /// state.
    #[test]
    fn last_reported_state_is_current(acts in prop::collection::vec((0u8..4, 1u64..30_000), 1..60)) {
        let mut rig = Rig::new();
        let mut lit = true;
        for (act, wait) in acts {
            match act {
                0 => { lit = !lit; rig.light(lit); }
                1 => { let last = rig.events.last().map_or(0, |(_, number, _)| *number); rig.acknowledge(last); }
                2 => rig.line(&[0x55, 0, 0x13, 0]),
                _ => {}
            }
            rig.run_for(wait);
        }
        for _ in 0..4 {
            rig.run_for(2_000_000);
            let last = rig.events.last().map_or(0, |(_, number, _)| *number);
            rig.acknowledge(last);
        }
        let mut heard = rig.events.clone();
        heard.dedup_by_key(|(_, number, _)| *number);
        prop_assert!(heard.windows(2).all(|two| two[0].1 + 1 == two[1].1 && two[0].2.kind != two[1].2.kind));
        let said_lost = heard.last().is_some_and(|(_, _, event)| event.kind == EventKind::LightLost);
        prop_assert_eq!(said_lost, !lit);
    }
}
