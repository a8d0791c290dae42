// SPDX-License-Identifier: Apache-2.0
//! Compares a host's view of each fault with the actual state of an emulated transceiver.

use lightloom_devices::{
    DeviceFault, EmulatedDevice, Faulty, Line, Output, Port, Transceiver, TransceiverSpec,
};
use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
use lightloom_firmware_api::host::{Host, Sequence};
use lightloom_firmware_api::message::{
    Arm, FireReport, Reply, Request, StatusReport, TransactionId,
};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

const LINE: Line = Line(0);

struct Rig {
    device: Faulty<Transceiver>,
    host: Host,
    now: SimTime,
    noise: u32,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Armed(GroupOutcome),
    Fired(FireReport),
    Status(StatusReport),
    Other,
}

impl Rig {
    fn new(fault: &str) -> Self {
        let transceiver = Transceiver::new(&TransceiverSpec::default(), Seed(7), 3);
        let mut device = Faulty::new(transceiver, Seed(7), 3);
        let mut out = Vec::new();
        device.open(SimTime::START, LINE, Port::Frames, &mut out);
        if !fault.is_empty() {
            device.apply(SimTime::START, fault.parse().unwrap(), &mut out);
        }
        Self { device, host: Host::new(), now: SimTime::START, noise: 0 }
    }

    fn ask(&mut self, request: &Request<'_>) -> Option<Answer> {
        let mut line = [0; ENCODED_BYTES_MAX];
        let (sequence, length) = self.host.request(request, &mut line);
        let mut out = Vec::new();
        self.device.on_bytes(self.now, LINE, &line[..length], &mut out);
        let deadline = self.now + Picoseconds::from_millis(100);
        loop {
            if let Some(answer) = self.hear(sequence, &out) {
                return Some(answer);
            }
            out.clear();
            match self.device.next_wakeup().filter(|&at| at <= deadline) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = deadline;
                    return None;
                }
            }
            self.device.on_time(self.now, &mut out);
        }
    }

    fn hear(&mut self, sequence: Sequence, out: &[Output]) -> Option<Answer> {
        let mut heard = None;
        for output in out {
            let Output::Bytes(_, bytes) = output else { continue };
            self.host.receive(bytes, |answer| match answer {
                Ok(answer) if answer.sequence == sequence => {
                    heard = Some(match answer.reply {
                        Reply::Armed(report) => Answer::Armed(report.outcomes[0]),
                        Reply::Fired(report) => Answer::Fired(report),
                        Reply::Status(report) => Answer::Status(report),
                        _ => Answer::Other,
                    });
                }
                Ok(_) => {}
                Err(_) => self.noise += 1,
            });
        }
        heard
    }

    fn arm(&mut self, transaction: u32, path: Path) -> Option<Answer> {
        let mut paths = [Path::DARK; 8];
        paths[0] = path;
        let arm =
            Arm { transaction: TransactionId(transaction), policy: DataPathPolicy::Hot, paths };
        self.ask(&Request::Arm(arm))
    }

    fn fire(&mut self, transaction: u32) -> Option<FireReport> {
        let request = Request::Fire { transaction: TransactionId(transaction), groups: Groups(1) };
        match self.ask(&request)? {
            Answer::Fired(report) => Some(report),
            other => panic!("not a fire report: {other:?}"),
        }
    }

    fn switch_to(&mut self, path: Path) -> Option<FireReport> {
        assert_eq!(self.arm(1, path), Some(Answer::Armed(GroupOutcome::Success)));
        self.fire(1)
    }

    fn status(&mut self) -> StatusReport {
        for _ in 0..20 {
            if let Some(Answer::Status(report)) = self.ask(&Request::Status) {
                return report;
            }
        }
        panic!("no status in twenty tries");
    }

    fn truth(&self) -> Option<Path> {
        self.device.device().true_path(self.now, 0)
    }
}

fn external(number: u8) -> Path {
    Path::external(number).expect("1 to 8")
}

#[test]
fn healthy_module_switches_in_the_published_time() {
    let mut rig = Rig::new("");
    assert_eq!(rig.arm(1, external(2)), Some(Answer::Armed(GroupOutcome::Success)));
    assert_eq!(rig.truth(), Some(Path::LOOPBACK), "arming does not switch");
    let began = rig.now;
    let report = rig.fire(1).unwrap();
    let took = rig.now.since(began);
    assert_eq!((report.outcomes[0], report.active[0]), (GroupOutcome::Success, external(2)));
    assert_eq!(rig.truth(), Some(external(2)));
    // 60 to 80 µs to switch, detected at 70 or 87 µs, and 30 µs to settle.
    assert!(took <= Picoseconds::from_micros(117), "{took}");
    assert!(took >= Picoseconds::from_micros(100), "{took}");
    assert!(rig.status().taps[1].0 > 4_000);
}

#[test]
fn stuck_module_reports_a_hardware_fault() {
    let mut rig = Rig::new("stuck");
    let report = rig.switch_to(external(1)).unwrap();
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::HardwareFault, 0));
    assert_eq!(rig.truth(), Some(Path::LOOPBACK));
}

#[test]
fn read_back_exposes_a_lying_module() {
    for (fault, truth) in [("lie", Path::LOOPBACK), ("misdirect", external(2))] {
        let mut rig = Rig::new(fault);
        let report = rig.switch_to(external(1)).unwrap();
        assert_eq!(report.outcomes[0], GroupOutcome::Success, "the module reports success");
        assert_eq!((report.active[0], report.generation), (external(1), 1));
        rig.now = rig.now + Picoseconds::from_millis(1);
        let status = rig.status();
        assert_eq!(status.generation, 0, "{fault:?}: the generation has not advanced");
        assert_eq!(status.active[0], truth, "{fault:?}");
        assert_eq!(rig.truth(), Some(truth), "{fault:?}");
    }
}

#[test]
fn slow_module_times_out_unlike_a_stuck_one() {
    let mut rig = Rig::new("slow 100");
    let report = rig.switch_to(external(1)).unwrap();
    assert_eq!(report.outcomes[0], GroupOutcome::SettleTimeout);
    rig.now = rig.now + Picoseconds::from_millis(10);
    assert_eq!(rig.truth(), Some(external(1)), "the light arrives after all");
    assert_eq!(rig.status().active[0], external(1));
}

#[test]
fn reports_weak_light_after_the_switch() {
    let mut rig = Rig::new("droop 10");
    let report = rig.switch_to(external(1)).unwrap();
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::PowerLow, 1));
    assert_eq!(rig.truth(), Some(external(1)));
}

#[test]
fn reboot_during_a_commit_restores_the_power_on_path() {
    let mut rig = Rig::new("reboot-in-commit");
    let boots = rig.status().boots;
    assert_eq!(rig.switch_to(external(1)), None, "no reply");
    let status = rig.status();
    assert_eq!(status.boots, boots + 1);
    assert_eq!((status.armed, status.fired), (TransactionId::NONE, TransactionId::NONE));
    assert_eq!((status.active[0], rig.truth()), (Path::LOOPBACK, Some(Path::LOOPBACK)));
    assert!(rig.now > SimTime::START + Picoseconds::from_millis(500), "after the boot time");
    rig.now = rig.now + Picoseconds::from_millis(500);
    assert_eq!(rig.switch_to(external(1)).unwrap().outcomes[0], GroupOutcome::Success);
}

#[test]
fn half_open_line_is_unresponsive_until_cleared() {
    let mut rig = Rig::new("half-open");
    assert_eq!(rig.ask(&Request::Status), None);
    rig.device.apply(rig.now, DeviceFault::Clear, &mut Vec::new());
    assert!(rig.ask(&Request::Status).is_some());
}

#[test]
fn late_line_delays_both_directions() {
    let mut rig = Rig::new("late 5ms");
    let began = rig.now;
    assert!(rig.ask(&Request::Status).is_some());
    assert_eq!(rig.now.since(began), Picoseconds::from_millis(10));
}

/// The purpose of arm, fire and read-back: with lost, duplicated and corrupted bytes, a host that
/// retries reaches the requested path, and the light never reaches any other path.
#[test]
fn noisy_line_never_sets_up_a_wrong_circuit() {
    let mut noisy_replies = 0;
    for fault in ["lose 1%", "duplicate 1%", "garble 1%"] {
        for round in 0..20u32 {
            let mut rig = Rig::new(fault);
            let transaction = round + 1;
            let wanted = external(1 + (round % 2) as u8);
            for attempt in 0.. {
                assert!(attempt < 200, "{fault:?}: the host succeeds");
                assert!(
                    matches!(rig.truth(), None | Some(Path::LOOPBACK))
                        || rig.truth() == Some(wanted)
                );
                let status = rig.status();
                if status.active[0] == wanted && status.generation == 1 {
                    break;
                }
                if status.armed == TransactionId(transaction) {
                    rig.fire(transaction);
                } else {
                    rig.arm(transaction, wanted);
                }
            }
            assert_eq!(rig.truth(), Some(wanted));
            noisy_replies += rig.noise + rig.device.device().counters().errors;
        }
    }
    assert!(noisy_replies > 50, "the faults had an effect: {noisy_replies}");
}

/// Each byte of an arm and a fire is lost, duplicated or corrupted in turn. The light must keep the
/// old path or reach the new one.
#[test]
fn single_damaged_byte_never_sets_up_a_wrong_circuit() {
    let mut host = Host::new();
    let mut session = Vec::new();
    let mut paths = [Path::DARK; 8];
    paths[0] = external(2);
    let arm = Arm { transaction: TransactionId(1), policy: DataPathPolicy::Hot, paths };
    let fire = Request::Fire { transaction: TransactionId(1), groups: Groups(1) };
    for request in [Request::Arm(arm), fire, Request::Status] {
        let mut line = [0; ENCODED_BYTES_MAX];
        let (_, length) = host.request(&request, &mut line);
        session.extend_from_slice(&line[..length]);
    }
    let (mut moved, mut stayed) = (0, 0);
    for position in 0..session.len() {
        for damage in 0..10 {
            let mut damaged = session.clone();
            match damage {
                0 => drop(damaged.remove(position)),
                1 => damaged.insert(position, session[position]),
                bit => damaged[position] ^= 1 << (bit - 2),
            }
            let mut rig = Rig::new("");
            rig.device.on_bytes(rig.now, LINE, &damaged, &mut Vec::new());
            rig.now = rig.now + Picoseconds::from_millis(10);
            rig.device.on_time(rig.now, &mut Vec::new());
            match rig.truth() {
                Some(Path::LOOPBACK) => stayed += 1,
                Some(path) if path == external(2) => moved += 1,
                other => panic!("byte {position}, damage {damage}: {other:?}"),
            }
        }
    }
    assert_eq!(moved + stayed, session.len() * 10);
    assert!(moved > 100 && stayed > 100, "both happen: {moved} moved, {stayed} stayed");
}

#[test]
fn equal_seeds_give_equal_histories() {
    let history = |seed: u64| {
        let transceiver = Transceiver::new(&TransceiverSpec::default(), Seed(seed), 0);
        let mut device = Faulty::new(transceiver, Seed(seed), 0);
        device.apply(SimTime::START, "garble 3%".parse().unwrap(), &mut Vec::new());
        let mut host = Host::new();
        let mut out = Vec::new();
        for step in 0..200 {
            let mut line = [0; ENCODED_BYTES_MAX];
            let (_, length) = host.request(&Request::Status, &mut line);
            let now = SimTime::START + Picoseconds::from_millis(step);
            device.on_bytes(now, LINE, &line[..length], &mut out);
        }
        out
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}
