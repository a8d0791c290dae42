// SPDX-License-Identifier: Apache-2.0
//! Tests arm and fire over the serial line and through registers.

use crate::bench;
use bench::{Bench, PROFILE, activated_at, arm_to, ask, external, module, wait};
use lightloom_firmware_api::cmis::{RegisterAddress, checksum, lower, page_b0};
use lightloom_firmware_api::device::SerialModule;
use lightloom_firmware_api::frame::{ENCODED_BYTES_MAX, Frame, FrameKind};
use lightloom_firmware_api::host::{Host, Sequence, encode_in_epoch};
use lightloom_firmware_api::message::{
    Arm, Epoch, FireReport, LinkName, Neighbour, Power, Reply, Request, RequestRefusal,
    StatusReport, TransactionId,
};
use lightloom_firmware_api::module::Module;
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use lightloom_firmware_api::time::Micros;

const G0: Groups = Groups(1);

struct Rig {
    device: SerialModule<Bench>,
    host: Host,
    now: Micros,
    sequence: u16,
}

impl Rig {
    fn new() -> Self {
        Self {
            device: SerialModule::new(module()),
            host: Host::new(),
            now: activated_at(),
            sequence: 0,
        }
    }
    fn ask(&mut self, request: &Request<'_>) -> Option<Result<(), RequestRefusal>> {
        let mut seen = None;
        ask(&mut self.device, &mut self.host, self.now, request, |_, reply| {
            seen = Some(match reply {
                Reply::Refused(refusal) => Err(refusal),
                _ => Ok(()),
            });
        });
        seen
    }
    fn ask_in(&mut self, epoch: u64, request: &Request<'_>) -> Result<(), RequestRefusal> {
        self.sequence += 1;
        let (number, mut line) = (Sequence(self.sequence), [0; ENCODED_BYTES_MAX]);
        let length = encode_in_epoch(number, Epoch(epoch), request, &mut line);
        let mut sent = Vec::new();
        self.device.on_bytes(self.now, &line[..length], |bytes| sent.extend_from_slice(bytes));
        self.now = self.now + Micros(5_000);
        self.device.poll(self.now, |bytes| sent.extend_from_slice(bytes));
        let mut answered = None;
        self.host.receive(&sent, |answer| {
            let answer = answer.expect("the device sends whole frames");
            assert_eq!(answer.sequence, number);
            answered = Some(match answer.reply {
                Reply::Refused(refusal) => Err(refusal),
                _ => Ok(()),
            });
        });
        answered.expect("an answer")
    }
    fn arm(&mut self, transaction: u32, path: Path, policy: DataPathPolicy) -> GroupOutcome {
        let request = Request::Arm(arm_to(transaction, path, policy));
        let mut outcome = None;
        ask(&mut self.device, &mut self.host, self.now, &request, |_, reply| match reply {
            Reply::Armed(report) => outcome = Some(report.outcomes[0]),
            other => panic!("not an arm report: {other:?}"),
        });
        outcome.unwrap()
    }
    /// Fires, and waits up to ten milliseconds for the report.
    fn fire(&mut self, transaction: u32) -> (Micros, FireReport) {
        let request = Request::Fire { transaction: TransactionId(transaction), groups: G0 };
        let began = self.now;
        let mut report = None;
        let mut take = |_, reply: Reply<'_>| match reply {
            Reply::Fired(fired) => report = Some(fired),
            other => panic!("not a fire report: {other:?}"),
        };
        ask(&mut self.device, &mut self.host, self.now, &request, &mut take);
        while self.now.since(began) < Micros(10_000) {
            let Some(next) = self.device.next_wakeup() else { break };
            self.now = next;
            wait(&mut self.device, &mut self.host, self.now, &mut take);
        }
        (self.now.since(began), report.expect("a fire is answered"))
    }
    fn status(&mut self) -> StatusReport {
        self.device.module_mut().status(self.now)
    }
    fn optics(&mut self) -> &mut Bench {
        self.device.module_mut().hardware_mut()
    }
    fn rest(&mut self) {
        self.now = self.now + Micros(u64::from(PROFILE.timing.dwell_us));
    }
}

#[test]
fn arm_moves_nothing_and_fire_moves_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.status().active[0], Path::LOOPBACK, "the power-on path");
    let drives = rig.optics().drives;
    assert_eq!(rig.arm(1, external(2), DataPathPolicy::Hot), GroupOutcome::Success);
    assert_eq!(rig.optics().drives, drives);
    let (took, report) = rig.fire(1);
    assert_eq!(took, Micros(100), "70 µs to switch and 30 µs to settle");
    assert_eq!(report.transaction, TransactionId(1));
    assert_eq!((report.generation, report.outcomes[0]), (1, GroupOutcome::Success));
    assert_eq!(report.active[0], external(2));
    let (took, again) = rig.fire(1);
    assert_eq!((took, again), (Micros::ZERO, report));
    assert_eq!(rig.optics().drives, drives + 1);
}

#[test]
fn only_the_armed_transaction_fires() {
    let mut rig = Rig::new();
    let fire = |id| Request::Fire { transaction: TransactionId(id), groups: G0 };
    assert_eq!(rig.ask(&fire(1)), Some(Err(RequestRefusal::NotArmed)));
    rig.arm(1, external(1), DataPathPolicy::Hot);
    rig.arm(2, external(2), DataPathPolicy::Hot);
    assert_eq!(
        rig.ask(&fire(1)),
        Some(Err(RequestRefusal::NotArmed)),
        "a late fire of a former plan"
    );
    assert_eq!(rig.ask(&Request::Disarm { transaction: TransactionId(1) }), Some(Ok(())));
    assert_eq!(rig.status().armed, TransactionId(2), "disarming another one changes nothing");
    assert_eq!(rig.ask(&Request::Disarm { transaction: TransactionId(2) }), Some(Ok(())));
    assert_eq!(rig.ask(&fire(2)), Some(Err(RequestRefusal::NotArmed)));
    assert_eq!(rig.status().active[0], Path::LOOPBACK);
}

#[test]
fn rejects_other_paths_for_a_used_transaction() {
    let mut rig = Rig::new();
    rig.arm(1, external(1), DataPathPolicy::Hot);
    rig.fire(1);
    rig.rest();
    assert_eq!(
        rig.arm(1, external(1), DataPathPolicy::Hot),
        GroupOutcome::Success,
        "a repeated arm"
    );
    assert_eq!(rig.arm(1, external(2), DataPathPolicy::Hot), GroupOutcome::Rejected);
    assert_eq!(rig.status().armed, TransactionId::NONE);
}

#[test]
fn rejects_nonexistent_paths() {
    let mut rig = Rig::new();
    assert_eq!(rig.arm(1, external(3), DataPathPolicy::Hot), GroupOutcome::Invalid);
    let (_, report) = rig.fire(1);
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::Invalid, 0));
    assert_eq!(report.active[0], Path::LOOPBACK);
    let mut paths = [Path::DARK; 8];
    paths[5] = external(1);
    let arm = Arm { transaction: TransactionId(2), policy: DataPathPolicy::Hot, paths };
    let report = rig.device.module_mut().arm(rig.now, arm).unwrap();
    assert_eq!(report.outcomes[5], GroupOutcome::Invalid);
}

#[test]
fn default_policy_requires_deactivated_data_paths() {
    let mut rig = Rig::new();
    rig.arm(1, external(1), DataPathPolicy::RequireDeactivated);
    let (_, report) = rig.fire(1);
    assert_eq!(report.outcomes[0], GroupOutcome::InconsistentWithDataPath);
    let now = rig.now;
    rig.device.module_mut().write(now, RegisterAddress::page(0x10, 128), &[0xff]).unwrap();
    rig.now = now + Micros(10_000);
    let (_, report) = rig.fire(1);
    assert_eq!(report.outcomes[0], GroupOutcome::Success, "a refused fire may be sent again");
}

#[test]
fn transmitters_are_muted_only_while_light_moves() {
    let mut rig = Rig::new();
    assert_eq!(rig.status().data_paths, [4; 8]);
    let began = rig.now;
    rig.arm(1, external(1), DataPathPolicy::MuteTransmit);
    rig.fire(1);
    let log: Vec<_> =
        rig.optics().transmitter_log.iter().copied().filter(|(at, _)| *at >= began).collect();
    assert_eq!(log, [(began, 0xff), (began, 0), (began + Micros(100), 0xff)]);
}

#[test]
fn enforces_the_dwell_time() {
    let mut rig = Rig::new();
    rig.arm(1, external(1), DataPathPolicy::Hot);
    rig.fire(1);
    rig.arm(2, external(2), DataPathPolicy::Hot);
    let (_, report) = rig.fire(2);
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::Rejected, 1));
    rig.rest();
    let (_, report) = rig.fire(2);
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::Success, 2));
}

#[test]
fn each_switching_failure_has_its_own_error() {
    type Fault = fn(&mut Bench);
    let cases: [(Fault, GroupOutcome, u64, u32); 4] = [
        (|optics| optics.stuck = true, GroupOutcome::HardwareFault, 70, 0),
        (|optics| optics.arrives_at = Path::external(2), GroupOutcome::HardwareFault, 70, 0),
        (|optics| optics.takes_us = 5_000, GroupOutcome::SettleTimeout, 1_000, 0),
        (|optics| optics.tap = Power(999), GroupOutcome::PowerLow, 100, 1),
    ];
    for (fault, outcome, takes_us, generation) in cases {
        let mut rig = Rig::new();
        fault(rig.optics());
        rig.arm(1, external(1), DataPathPolicy::Hot);
        let (took, report) = rig.fire(1);
        assert_eq!((report.outcomes[0], report.generation), (outcome, generation));
        assert_eq!(took, Micros(takes_us), "{outcome:?}");
    }
}

#[test]
fn slow_switch_within_the_bound_succeeds() {
    let mut rig = Rig::new();
    rig.optics().takes_us = 600;
    rig.arm(1, external(1), DataPathPolicy::Hot);
    let (took, report) = rig.fire(1);
    assert_eq!(report.outcomes[0], GroupOutcome::Success);
    assert!((Micros(630)..Micros(660)).contains(&took), "{took:?}");
}

#[test]
fn late_or_stray_light_raises_a_flag() {
    let mut rig = Rig::new();
    rig.optics().takes_us = 5_000;
    rig.arm(1, external(1), DataPathPolicy::Hot);
    rig.fire(1);
    rig.now = rig.now + Micros(10_000);
    let mut flags = [0];
    rig.device.module_mut().read(rig.now, RegisterAddress::lower(13), &mut flags).unwrap();
    assert_eq!(flags[0], page_b0::flag::SWITCH_FAULT | page_b0::flag::UNEXPECTED_PATH);
}

#[test]
fn rejects_an_arm_while_light_moves() {
    let mut rig = Rig::new();
    rig.arm(1, external(1), DataPathPolicy::Hot);
    let fire = Request::Fire { transaction: TransactionId(1), groups: G0 };
    assert_eq!(rig.ask(&fire), None, "answered when it has settled");
    assert_eq!(
        rig.ask(&Request::Arm(arm_to(2, external(2), DataPathPolicy::Hot))),
        Some(Err(RequestRefusal::Busy))
    );
    assert_eq!(
        rig.ask(&Request::Disarm { transaction: TransactionId(1) }),
        Some(Err(RequestRefusal::Busy))
    );
    let status = rig.status();
    assert_eq!((status.busy, status.fire_outcomes[0]), (G0, GroupOutcome::InProgress));
    assert_eq!(status.active[0], Path::DARK);
}

#[test]
fn reset_during_a_move_drops_the_arm_and_stale_replies() {
    let mut rig = Rig::new();
    let before = rig.status();
    rig.arm(1, external(1), DataPathPolicy::Hot);
    let fire = Request::Fire { transaction: TransactionId(1), groups: G0 };
    assert_eq!(rig.ask(&fire), None);
    let now = rig.now + Micros(35);
    rig.device.module_mut().write(now, RegisterAddress::lower(26), &[0x08]).unwrap();
    rig.now = now + Micros(u64::from(PROFILE.timing.boot_us));
    let mut answers = 0;
    wait(&mut rig.device, &mut rig.host, rig.now, |_, _| answers += 1);
    assert_eq!(answers, 0);
    let status = rig.status();
    assert_eq!(status.boots, before.boots + 1);
    assert_eq!((status.armed, status.fired), (TransactionId::NONE, TransactionId::NONE));
    assert_eq!((status.active[0], status.generation), (Path::LOOPBACK, 0));
}

#[test]
fn power_on_paths_require_the_password_and_apply_at_reset() {
    let mut rig = Rig::new();
    let paths = [
        external(2),
        Path::DARK,
        Path::DARK,
        Path::DARK,
        Path::DARK,
        Path::DARK,
        Path::DARK,
        Path::DARK,
    ];
    let set = |password| Request::SetDefault { password, paths };
    assert_eq!(rig.ask(&set(0)), Some(Err(RequestRefusal::Locked)));
    assert_eq!(rig.ask(&set(0x1011)), Some(Ok(())));
    assert_eq!(rig.status().active[0], Path::LOOPBACK, "nothing moves now");
    assert_eq!(rig.ask(&Request::Reset), Some(Ok(())));
    rig.now = rig.now + Micros(u64::from(PROFILE.timing.boot_us));
    assert_eq!(rig.status().active[0], external(2));
}

/// Requests of a former host arrive after its successor's hello and arm with the same transaction
/// id.
#[test]
fn rejects_every_request_of_an_earlier_epoch() {
    let mut rig = Rig::new();
    let arm = |path| arm_to(7, external(path), DataPathPolicy::Hot);
    let transaction = TransactionId(7);
    let late = [
        Request::Hello,
        Request::Status,
        Request::Arm(arm(2)),
        Request::Fire { transaction, groups: G0 },
        Request::Disarm { transaction },
        Request::Go { arm: arm(2), groups: G0 },
    ];
    for epoch in [4, 9] {
        assert_eq!(rig.ask_in(epoch, &Request::Hello), Ok(()));
        assert_eq!(rig.ask_in(epoch, &Request::Arm(arm(1))), Ok(()));
        let drives = rig.device.module().hardware().drives;
        for request in &late {
            assert_eq!(rig.ask_in(epoch - 1, request), Err(RequestRefusal::EarlierEpoch));
        }
        assert_eq!(rig.device.module().hardware().drives, drives, "nothing moves");
        assert_eq!(rig.status().armed, transaction, "the arm stands");
        assert_eq!(rig.ask_in(epoch + 1, &Request::Status), Ok(()));
        assert_eq!(rig.status().armed, TransactionId::NONE, "a later host finds nothing armed");
    }
    assert_eq!(rig.ask_in(11, &Request::Go { arm: arm(2), groups: G0 }), Ok(()));
    assert_eq!(
        rig.ask(&Request::Status),
        Some(Ok(())),
        "a host without epochs is not asked for one"
    );
    rig.device.reset(rig.now);
    rig.now = rig.now + Micros(10_000_000);
    rig.device.poll(rig.now, |_| {});
    assert_eq!(rig.ask_in(1, &Request::Hello), Ok(()), "it forgets them at a restart");
}

#[test]
fn rejects_another_protocol_version_by_name() {
    let mut rig = Rig::new();
    let frame = Frame {
        version: 2,
        kind: FrameKind::Request,
        sequence: 7,
        command: 1,
        status: 0,
        payload: &[],
    };
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = frame.encode(&mut line);
    let mut sent = Vec::new();
    rig.device.on_bytes(rig.now, &line[..length], |bytes| sent.extend_from_slice(bytes));
    let mut seen = None;
    rig.host.receive(&sent, |answer| {
        seen = Some(answer.unwrap().reply == Reply::Refused(RequestRefusal::Version))
    });
    assert_eq!(seen, Some(true));
}

mod registers {
    use super::*;

    fn ready() -> (Module<Bench>, Micros) {
        let mut module = module();
        module.poll(activated_at());
        (module, activated_at())
    }

    fn write(module: &mut Module<Bench>, now: Micros, offset: u8, bytes: &[u8]) {
        let at = if offset < 128 {
            RegisterAddress::lower(offset)
        } else {
            RegisterAddress::page(0xb0, offset)
        };
        module.write(now, at, bytes).unwrap();
    }

    fn lower_bytes<const N: usize>(module: &mut Module<Bench>, now: Micros, first: u8) -> [u8; N] {
        let mut bytes = [0; N];
        module.read(now, RegisterAddress::lower(first), &mut bytes).unwrap();
        bytes
    }

    /// Arms with three writes: target paths, transaction and policy, enable.
    fn arm(module: &mut Module<Bench>, now: Micros, transaction: u32, path: Path) {
        write(module, now, 136, &[path.code(), 0, 0, 0, 0, 0, 0, 0]);
        let [a, b, c, d] = transaction.to_be_bytes();
        write(module, now, 212, &[a, b, c, d, DataPathPolicy::Hot.code()]);
        write(module, now, 152, &[1]);
    }

    #[test]
    fn slow_fire_follows_page_6d() {
        let (mut module, now) = ready();
        write(&mut module, now, 160, &[1]);
        module.read(now, RegisterAddress::page(0xb0, 168), &mut [0; 8]).unwrap();
        assert_eq!(page_b0::fire_outcome(0).get(&module), Some(GroupOutcome::None), "not enabled");
        arm(&mut module, now, 7, external(1));
        module.read(now, RegisterAddress::page(0xb0, 176), &mut [0; 8]).unwrap();
        assert_eq!(page_b0::arm_outcome(0).get(&module), Some(GroupOutcome::Success));
        write(&mut module, now, 160, &[1]);
        let mut commit = [9];
        module.read(now, RegisterAddress::page(0xb0, 160), &mut commit).unwrap();
        assert_eq!(commit, [0], "self-clearing");
        assert_eq!(page_b0::fire_outcome(0).get(&module), Some(GroupOutcome::InProgress));
        assert_eq!(lower_bytes::<1>(&mut module, now, 72), [1], "busy without paging");
        let done = now + Micros(100);
        module.read(done, RegisterAddress::page(0xb0, 168), &mut [0; 8]).unwrap();
        assert_eq!(page_b0::fire_outcome(0).get(&module), Some(GroupOutcome::Success));
        assert_eq!(page_b0::committed(0).get(&module), Some(external(1)));
        assert_eq!(page_b0::GENERATION.get(&module), 1);
    }

    #[test]
    fn fast_fire_is_one_write_with_immediate_effect() {
        let (mut module, now) = ready();
        arm(&mut module, now, 0xaabb_0102, external(2));
        module.bus_write(now, 64, &page_b0::fast_fire(1, 0xaabb_0102)).unwrap();
        assert!(module.moving(), "the hold-off delays the next access, not the switch");
        let done = now + Micros(u64::from(PROFILE.timing.write_us));
        let mut status = [0; 10];
        module.bus_read(done, 68, &mut status).unwrap();
        assert_eq!(status, [2, 0, 0, 0, 0, 0x80 | 1, 0, 0, 0, 1]);
        assert_eq!(lower_bytes::<1>(&mut module, done, 13)[0] & page_b0::flag::SWITCH_DONE, 1);
        let drives = module.hardware().drives;
        module.bus_write(done, 64, &page_b0::fast_fire(1, 0xaabb_0102)).unwrap();
        assert!(!module.moving());
        assert_eq!(module.hardware().drives, drives);
    }

    #[test]
    fn fast_fire_with_any_wrong_bit_is_ignored_and_flagged() {
        for bit in 0..32 {
            let (mut module, now) = ready();
            arm(&mut module, now, 0x0102, external(2));
            lower_bytes::<1>(&mut module, now, 13);
            let mut fire = page_b0::fast_fire(1, 0x0102);
            fire[bit / 8] ^= 1 << (bit % 8);
            module.bus_write(now, 64, &fire).unwrap();
            assert!(!module.moving(), "bit {bit}");
            assert_eq!(lower_bytes::<1>(&mut module, now, 13), [page_b0::flag::FIRE_IGNORED]);
        }
    }

    #[test]
    fn fast_fire_without_an_arm_is_ignored() {
        let (mut module, now) = ready();
        module.bus_write(now, 64, &page_b0::fast_fire(1, 0)).unwrap();
        assert!(!module.moving());
        assert_eq!(lower_bytes::<1>(&mut module, now, 13)[0], page_b0::flag::FIRE_IGNORED);
    }

    #[test]
    fn clearing_enable_disarms() {
        let (mut module, now) = ready();
        arm(&mut module, now, 7, external(1));
        write(&mut module, now, 152, &[0]);
        assert_eq!(module.status(now).armed, TransactionId::NONE);
    }

    #[test]
    fn arm_written_during_a_move_applies_once_light_rests() {
        let (mut module, now) = ready();
        arm(&mut module, now, 7, external(1));
        write(&mut module, now, 160, &[1]);
        arm(&mut module, now, 8, external(2));
        assert_eq!(module.status(now).armed, TransactionId(7));
        assert_eq!(module.status(now + Micros(100)).armed, TransactionId(8));
    }

    #[test]
    fn link_name_persists_until_a_restart() {
        let (mut module, now) = ready();
        write(&mut module, now, 233, &0x0001_0203_u32.to_be_bytes());
        assert_eq!(module.links(now).name, LinkName(0x0001_0203));
        assert_eq!(module.links(now).neighbours, [Neighbour::default(); 8], "no peer sends one");
        let mut seen = [1; 5];
        module.read(now, RegisterAddress::page(0xb0, 248), &mut seen).unwrap();
        assert_eq!(seen, [0; 5]);
        module.reset(now);
        assert_eq!(module.links(now).name, LinkName::NONE);
    }

    #[test]
    fn page_identifies_itself_with_a_checksum() {
        let (mut module, now) = ready();
        let mut head = [0; 16];
        module.read(now, RegisterAddress::page(0xb0, 192), &mut head).unwrap();
        assert_eq!(&head[..8], b"OCS1\x12\x01\x02\xff");
        assert_eq!(head[8..14], [0, 70, 0, 30, 3, 232]);
        for sum in [checksum::PAGE_00, checksum::PAGE_01, checksum::PAGE_02, checksum::PAGE_B0] {
            assert!(sum.holds(&module), "{sum:?}");
        }
    }

    #[test]
    fn power_taps_and_power_on_paths_are_registers() {
        let (mut module, now) = ready();
        let mut taps = [0; 4];
        module.read(now, RegisterAddress::page(0xb0, 217), &mut taps).unwrap();
        assert_eq!(taps, [0x13, 0x88, 0x13, 0x88]);
        let at = RegisterAddress::page(0xb0, 240);
        assert_eq!(module.write(now, at, &[1]), Err(RequestRefusal::Locked));
        module.write(now, RegisterAddress::lower(122), &0x1011u32.to_be_bytes()).unwrap();
        module.write(now, at, &[1]).unwrap();
        assert_eq!(module.hardware().power_on[0], external(1));
        assert_eq!(lower_bytes::<4>(&mut module, now, 122), [0; 4], "a password reads as zero");
        assert_eq!(lower::ACTIVE_PATHS.get(&module, 0), Some(Path::LOOPBACK));
        module.write(now, RegisterAddress::lower(122), &[9; 4]).unwrap();
        assert_eq!(module.write(now, at, &[2]), Err(RequestRefusal::Locked));
    }
}
