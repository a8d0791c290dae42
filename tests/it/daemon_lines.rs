// SPDX-License-Identifier: Apache-2.0
//! S3 of docs/reliability.md: one byte on the wire is lost, duplicated, changed or swapped with the
//! next, while the production controller and drivers change circuits of emulated devices in virtual
//! time.

use std::collections::{BTreeMap, VecDeque};

use lightloom_control::controller::{Action, Apply, Controller, Event, Note, ReplyTo, Request};
use lightloom_control::inventory::{Device as Installed, Inventory};
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Asked, TxnResult};
use lightloom_control::state::{
    DeviceName, Micros, Now, Position, Positions, Sharing, Slot, SwitchState,
};
use lightloom_devices::{
    DeviceFault, EmulatedDevice, GnmiSpec, GnmiSwitch, Line, OpticalSwitch, Output, Port,
    SwitchSpec, Transceiver, TransceiverSpec,
};
use lightloom_drivers::Dialect;
use lightloom_drivers::gnmi::{Gnmi, Settings};
use lightloom_drivers::ocstrx::OcsTrx;
use lightloom_drivers::scpi::Scpi;
use lightloom_drivers::tender::{Does, Tender};
use lightloom_drivers::tl1::Tl1;
use lightloom_firmware_api::path::DataPathPolicy;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

#[derive(Clone, Copy, Debug)]
enum Damage {
    Lost,
    Doubled,
    Flipped(u8),
    Swapped,
}

fn every_damage() -> impl Iterator<Item = Damage> {
    let flips = (0..8).map(Damage::Flipped);
    [Damage::Lost, Damage::Doubled, Damage::Swapped].into_iter().chain(flips)
}

#[derive(Debug, Default)]
struct Wire {
    carried: usize,
    damage: Option<(usize, Damage)>,
}

impl Wire {
    fn carry(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let first = self.carried;
        self.carried += bytes.len();
        let Some((position, damage)) = self.damage else { return bytes };
        let Some(at) = position.checked_sub(first).filter(|at| *at < bytes.len()) else {
            return bytes;
        };
        match damage {
            Damage::Lost => drop(bytes.remove(at)),
            Damage::Doubled => bytes.insert(at, bytes[at]),
            Damage::Flipped(bit) => bytes[at] ^= 1 << bit,
            Damage::Swapped if at + 1 < bytes.len() => bytes.swap(at, at + 1),
            Damage::Swapped => {}
        }
        bytes
    }
}

#[derive(Debug)]
struct End {
    result: Option<TxnResult>,
    took: Micros,
    bytes: usize,
}

struct Bench<E> {
    controller: Controller,
    tender: Tender,
    device: E,
    truth: fn(&E, SimTime) -> Positions,
    port: Port,
    wire: Wire,
    line: Line,
    now: SimTime,
    events: VecDeque<Event>,
    ended: Vec<TxnResult>,
}

const NAME: &str = "device";

impl<E: EmulatedDevice> Bench<E> {
    fn new<D: Dialect + Clone + 'static>(
        sharing: Sharing,
        dialect: D,
        device: E,
        port: Port,
        truth: fn(&E, SimTime) -> Positions,
    ) -> Self {
        let mut inventory = Inventory::default();
        let installed = Installed::new(sharing);
        inventory.devices.insert(NAME.into(), installed);
        let now = SimTime::START + Picoseconds::from_millis(1000);
        let (controller, _) = Controller::start(inventory, Ledger::default(), &clocks(now));
        Self {
            controller,
            tender: Tender::speaking(NAME.into(), dialect, clocks(now).mono),
            device,
            truth,
            port,
            wire: Wire::default(),
            line: Line(0),
            now,
            events: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    fn act(&mut self, does: Vec<Does>) {
        let mut does = VecDeque::from(does);
        while let Some(one) = does.pop_front() {
            let mut out = Vec::new();
            match one {
                Does::Open => {
                    self.line = Line(self.line.0 + 1);
                    self.device.open(self.now, self.line, self.port, &mut out);
                }
                Does::Close => self.device.close(self.now, self.line),
                Does::Send(bytes) => {
                    let bytes = self.wire.carry(&bytes);
                    self.device.on_bytes(self.now, self.line, &bytes, &mut out);
                }
                Does::Event(event) => self.events.push_back(*event),
                Does::Identity(_) | Does::Account(_) => {}
            }
            does.extend(self.hear(out));
        }
    }

    fn hear(&mut self, out: Vec<Output>) -> Vec<Does> {
        let (now, mut does) = (clocks(self.now).mono, Vec::new());
        for output in out {
            match output {
                Output::Bytes(line, bytes) if line == self.line => {
                    let bytes = self.wire.carry(&bytes);
                    self.tender.received(now, &bytes, &mut does);
                }
                Output::Close(line) if line == self.line => {
                    self.tender.broke(now, "closed".into(), &mut does);
                }
                Output::Bytes(..) | Output::Close(_) => {}
            }
        }
        does
    }

    fn handle(&mut self, event: Event) {
        for action in self.controller.handle(&clocks(self.now), event) {
            match action {
                Action::Send(_, ticket, op) => {
                    let mut does = Vec::new();
                    self.tender.run(clocks(self.now).mono, ticket, &op, &mut does);
                    self.act(does);
                }
                Action::Abandon(_, ticket) => {
                    let mut does = Vec::new();
                    self.tender.abandon(clocks(self.now).mono, ticket, &mut does);
                    self.act(does);
                }
                Action::Note(Note::Ended(_, result)) => self.note_end(result),
                Action::Append(_) | Action::Answer(..) | Action::Note(_) => {}
            }
        }
    }

    fn note_end(&mut self, result: TxnResult) {
        self.ended.push(result);
        if result == TxnResult::Committed {
            let owned = self.controller.ledger().owned.get(&DeviceName::from(NAME));
            let truth = (self.truth)(&self.device, self.now);
            assert_eq!(owned, Some(&truth), "committed, {:?}", self.wire);
        }
    }

    fn run_until(&mut self, end: SimTime, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            if let Some(event) = self.events.pop_front() {
                self.handle(event);
                continue;
            }
            let now = clocks(self.now);
            let deadline = self.controller.deadline(&now).map(|at| SimTime(at.0 * 1_000_000));
            let tender = self.tender.deadline().map(|at| SimTime(at.0 * 1_000_000));
            let times = [self.device.next_wakeup(), deadline, tender];
            let Some(next) = times.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.device.on_time(self.now, &mut out);
            let mut does = self.hear(out);
            self.tender.on_time(clocks(self.now).mono, &mut does);
            self.act(does);
            if deadline.is_some_and(|at| at <= self.now) {
                self.handle(Event::Tick);
            }
        }
        if !is_over(self) {
            self.now = self.now.max(end);
        }
    }

    fn ask(&mut self, request: Request) {
        let id = format!("{request:?}");
        let asked = Asked { actor: "test".into(), digest: id.clone(), request: id };
        self.handle(Event::Request { asked, request, reply_to: ReplyTo(0) });
    }

    fn change(mut self, goal: &Positions, damage: Option<(usize, Damage)>) -> End {
        self.wire.damage = damage;
        let within = |bench: &Self, ms| bench.now + Picoseconds::from_millis(ms);
        let is_read = |bench: &Self| {
            bench.controller.sightings().devices()[&DeviceName::from(NAME)].is_read()
        };
        self.run_until(within(&self, 30_000), is_read);
        assert!(is_read(&self), "never read, {:?}", self.wire);
        self.ask(Request::Adopt(vec![NAME.into()].into()));
        let target = SwitchState::from([(NAME.into(), goal.clone())]);
        let began = self.now;
        self.ask(Request::Apply(Apply { target, ..Apply::default() }));
        self.run_until(within(&self, 120_000), |bench| !bench.controller.transactions().is_busy());
        assert!(!self.controller.transactions().is_busy(), "does not end, {:?}", self.wire);
        let took = Micros((self.now.0 - began.0) / 1_000_000);
        let bytes = self.wire.carried;
        let result = self.ended.last().copied();
        self.run_until(within(&self, 25_000), |_| false);
        self.check_at_rest();
        End { result, took, bytes }
    }

    fn check_at_rest(&self) {
        let name = DeviceName::from(NAME);
        let (ledger, seen) =
            (self.controller.ledger(), &self.controller.sightings().devices()[&name]);
        let truth = (self.truth)(&self.device, self.now);
        let owned = ledger.owned.get(&name).cloned().unwrap_or_default();
        let listed = ledger.attention.contains_key(&name)
            || !seen.drift().is_empty()
            || !seen.is_reachable();
        assert!(truth == owned || listed, "{truth:?}, said {owned:?}, {:?}", self.wire);
    }
}

fn clocks(now: SimTime) -> Now {
    Now {
        mono: Micros(now.0.div_ceil(1_000_000)),
        wall_ms: now.0 / 1_000_000_000,
        boot: "b".into(),
    }
}

/// The switch delays the first command until the daemon abandons the session. Returns the outcomes,
/// and whether the light remained consistent with the ledger.
fn late_command<D: Dialect + Clone + 'static>(
    dialect: D,
    port: Port,
    attempts: u32,
    late_within: Micros,
) -> (TxnResult, bool) {
    let device = switch();
    let mut bench = Bench::new(Sharing::Exclusive, dialect, device, port, circuits);
    let mut inventory = Inventory::default();
    let mut installed = Installed::new(Sharing::Exclusive);
    installed.limits.late_within = late_within;
    installed.limits.attempts_max = attempts;
    inventory.devices.insert(NAME.into(), installed);
    bench.controller = Controller::start(inventory, Ledger::default(), &clocks(bench.now)).0;
    let within = |bench: &Bench<OpticalSwitch>, ms| bench.now + Picoseconds::from_millis(ms);
    let name = DeviceName::from(NAME);
    let is_read =
        |bench: &Bench<OpticalSwitch>| bench.controller.sightings().devices()[&name].is_read();
    bench.run_until(within(&bench, 30_000), is_read);
    bench.ask(Request::Adopt(vec![name.clone()].into()));
    let deferred = DeviceFault::Defer(Picoseconds::from_millis(3_000));
    bench.device.apply(bench.now, deferred, &mut Vec::new());
    let target = SwitchState::from([(name.clone(), positions(&[(1, 10), (2, 9)]))]);
    bench.ask(Request::Apply(Apply { target, ..Apply::default() }));
    bench.run_until(within(&bench, 60_000), |bench| !bench.controller.transactions().is_busy());
    let result = *bench.ended.last().unwrap();
    let mut agree = true;
    for _ in 0..250 {
        let truth = circuits(&bench.device, bench.now);
        agree &= bench.controller.ledger().owned.get(&name) == Some(&truth);
        bench.run_until(within(&bench, 100), |_| false);
    }
    (result, agree)
}

#[test]
fn late_command_of_an_abandoned_session_undoes_no_change() {
    let both = |attempts, late_within: u64| {
        let late_within = Micros::from_secs(late_within);
        let tl1 = Tl1::new("root", "root", true);
        [
            late_command(Scpi::new(true), Port::Scpi, attempts, late_within),
            late_command(tl1, Port::Tl1, attempts, late_within),
        ]
    };
    assert_eq!(both(1, 2), [(TxnResult::RolledBack, true); 2]);
    assert_eq!(both(3, 2), [(TxnResult::Committed, true); 2]);
    // Without settling time, circuits would go dark after the end of the change.
    let ended = both(1, 0);
    assert!(ended.iter().all(|(_, agree)| !agree), "{ended:?}");
    let [_, tl1] = both(3, 0);
    assert_eq!(tl1, (TxnResult::Committed, false), "`DLT-PATCH` takes down what is there by then");
}

fn every_byte<E: EmulatedDevice>(name: &str, goal: &Positions, bench: impl Fn() -> Bench<E>) {
    each_of(1, name, goal, bench);
}

fn each_of<E: EmulatedDevice>(
    step: usize,
    name: &str,
    goal: &Positions,
    bench: impl Fn() -> Bench<E>,
) {
    let usual = bench().change(goal, None);
    assert_eq!(usual.result, Some(TxnResult::Committed));
    let mut ends = BTreeMap::<String, u32>::new();
    let mut longest = Micros::default();
    for position in (0..usual.bytes).step_by(step) {
        for damage in every_damage() {
            let end = bench().change(goal, Some((position, damage)));
            longest = longest.max(end.took);
            let result = end.result.map_or("refused".into(), |result| format!("{result:?}"));
            *ends.entry(result).or_default() += 1;
        }
    }
    let cases: u32 = ends.values().sum();
    println!(
        "S3 {name}: 1 in {step} of {} bytes x 11 damages = {cases} changes: {ends:?}, longest {:.1} s, 0 wrong",
        usual.bytes,
        longest.as_secs_f64()
    );
    // A damaged byte usually has no effect, and at worst makes the change fail.
    assert!(ends["Committed"] > cases / 2, "{ends:?}");
}

fn positions(pairs: &[(u32, u32)]) -> Positions {
    pairs.iter().map(|&(slot, to)| (Slot(slot), Position(to))).collect()
}

fn switch() -> OpticalSwitch {
    let spec = SwitchSpec { ingress: 8, egress: 8, ..SwitchSpec::default() };
    let mut switch = OpticalSwitch::new(spec, Seed(1), 0);
    switch.connect_by_hand(SimTime::START, 1, 9);
    switch.connect_by_hand(SimTime::START, 2, 10);
    switch
}

fn circuits(switch: &OpticalSwitch, _: SimTime) -> Positions {
    let pairs = switch.true_pairs();
    pairs.iter().map(|&(a, b)| (Slot(a.into()), Position(b.into()))).collect()
}

#[test]
fn s3_survives_damage_to_every_byte_over_scpi() {
    let bench = || Bench::new(Sharing::Exclusive, Scpi::new(true), switch(), Port::Scpi, circuits);
    every_byte("SCPI", &positions(&[(1, 10), (2, 9)]), bench);
}

#[test]
fn s3_survives_damage_to_every_byte_over_tl1() {
    let bench = || {
        let dialect = Tl1::new("root", "root", true);
        Bench::new(Sharing::Exclusive, dialect, switch(), Port::Tl1, circuits)
    };
    every_byte("TL1", &positions(&[(1, 10), (2, 9)]), bench);
}

/// gNMI over HTTP/2 sends ten times as many bytes, so only every 61st byte is damaged.
#[test]
fn s3_survives_damage_to_sampled_bytes_over_gnmi() {
    let truth = |switch: &GnmiSwitch, _: SimTime| {
        let pairs = switch.true_pairs();
        pairs.iter().map(|&(a, b)| (Slot(a.into()), Position(b.into()))).collect()
    };
    let bench = || {
        let spec = GnmiSpec { ingress: 8, egress: 8, ..GnmiSpec::default() };
        let settings = Settings::plain("ocs0:9339");
        let switch = GnmiSwitch::new(spec, Seed(1), 0);
        Bench::new(Sharing::Exclusive, Gnmi::new(settings), switch, Port::Gnmi, truth)
    };
    each_of(61, "gNMI", &positions(&[(1, 10), (2, 9)]), bench);
}

#[test]
fn s3_survives_damage_to_every_byte_over_the_serial_line() {
    let path = |module: &Transceiver, now| {
        let path = module.true_path(now, 0).map(|path| u32::from(path.code()));
        path.map(|code| (Slot(0), Position(code))).into_iter().collect()
    };
    let bench = || {
        let module = Transceiver::new(&TransceiverSpec::default(), Seed(1), 0);
        Bench::new(
            Sharing::Independent,
            OcsTrx::new(DataPathPolicy::Hot, 7),
            module,
            Port::Frames,
            path,
        )
    };
    every_byte("serial line", &positions(&[(0, 1)]), bench);
}
