// SPDX-License-Identifier: Apache-2.0
//! Runs the conformance suite in virtual time against correct devices, and against devices that
//! each violate one rule. The list of violations was written before the cases.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use lightloom_devices::{
    DeviceFault, EmulatedDevice, Family, Faulty, GnmiSpec, GnmiSwitch, Line, Misbehaviour,
    OpticalSwitch, Output, Port, SwitchSpec, Transceiver, TransceiverSpec,
};
use lightloom_lab::conform;
use lightloom_lab::conform::link::{ExchangeError, Link};
use lightloom_lab::conform::report::SuiteReport;
use lightloom_lab::conform::target::{Options, Protocol};
use lightloom_testkit::cases;
use lightloom_testkit::terminal::Terminal;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

struct Emulated<D: EmulatedDevice> {
    device: Rc<RefCell<Faulty<D>>>,
    port: Port,
    /// Shared by all connections to the device.
    now: Rc<Cell<SimTime>>,
    lines: Rc<Cell<u32>>,
    line: Line,
    inbox: Vec<u8>,
    terminal: Terminal,
    is_open: bool,
    interrupt_at: Option<Duration>,
    is_shielded: bool,
}

impl<D: EmulatedDevice> Emulated<D> {
    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Bytes(line, bytes) if line == self.line => {
                    self.inbox.extend(self.terminal.after(bytes));
                }
                Output::Close(line) if line == self.line => self.is_open = false,
                _ => {}
            }
        }
    }
}

impl<D: EmulatedDevice> Drop for Emulated<D> {
    fn drop(&mut self) {
        self.device.borrow_mut().close(self.now.get(), self.line);
    }
}

impl<D: EmulatedDevice + 'static> Link for Emulated<D> {
    fn open(&mut self) -> Result<(), ExchangeError> {
        let mut out = Vec::new();
        self.device.borrow_mut().close(self.now.get(), self.line);
        self.lines.set(self.lines.get() + 1);
        self.line = Line(self.lines.get());
        (self.is_open, self.inbox) = (true, self.terminal.greeting.into());
        self.device.borrow_mut().open(self.now.get(), self.line, self.port, &mut out);
        self.take(out);
        if self.is_open { Ok(()) } else { Err(ExchangeError::Lost("refused".into())) }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        let mut out = Vec::new();
        self.inbox.extend(self.terminal.before(bytes));
        self.device.borrow_mut().on_bytes(self.now.get(), self.line, bytes, &mut out);
        self.take(out);
        Ok(())
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError> {
        let deadline = self.now.get() + Picoseconds::from_nanos(within.as_nanos() as u64);
        loop {
            if !self.is_shielded && self.interrupt_at.is_some_and(|at| self.now() >= at) {
                return Err(ExchangeError::Interrupted);
            }
            if !self.inbox.is_empty() {
                let count = if self.terminal.echoes { 1 } else { self.inbox.len() };
                return Ok(self.inbox.drain(..count).collect());
            }
            if !self.is_open {
                return Err(ExchangeError::Lost("the device closed the connection".into()));
            }
            if self.now.get() >= deadline {
                return Ok(Vec::new());
            }
            let next = self.device.borrow().next_wakeup().filter(|at| *at > self.now.get());
            self.now.set(next.map_or(deadline, |at| at.min(deadline)));
            let mut out = Vec::new();
            self.device.borrow_mut().on_time(self.now.get(), &mut out);
            self.take(out);
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.get().0 / 1_000)
    }

    fn shield(&mut self) {
        self.is_shielded = true;
    }

    fn pause(&mut self, time: Duration) {
        self.now.set(self.now.get() + Picoseconds::from_nanos(time.as_nanos() as u64));
        self.device.borrow_mut().on_time(self.now.get(), &mut Vec::new());
    }

    fn another(&self) -> Option<Box<dyn Link>> {
        Some(Box::new(Self {
            device: Rc::clone(&self.device),
            now: Rc::clone(&self.now),
            lines: Rc::clone(&self.lines),
            line: Line(u32::MAX),
            inbox: Vec::new(),
            is_open: false,
            ..*self
        }))
    }

    fn restart(&mut self, command: &str) -> Result<(), ExchangeError> {
        assert!(["power warm", "power cold"].contains(&command), "{command}");
        let mut out = Vec::new();
        self.device.borrow_mut().apply(self.now.get(), DeviceFault::Reboot, &mut out);
        self.take(out);
        Ok(())
    }
}

fn options(may_move: &[&str]) -> Options {
    Options {
        target: "emulated".into(),
        may_move: may_move.iter().map(ToString::to_string).collect(),
        seed: 7,
        rounds: 4,
        login: Some(("root".into(), "root".into())),
        restart: Some("power".into()),
        ..Options::default()
    }
}

fn tested<D: EmulatedDevice + 'static>(
    device: D,
    (port, protocol, may_move): (Port, Protocol, &[&str]),
    faults: &[&str],
    interrupt_at: Option<Duration>,
) -> (SuiteReport, Rc<RefCell<Faulty<D>>>) {
    tested_with(device, (port, protocol), &options(may_move), faults, interrupt_at)
}

fn tested_with<D: EmulatedDevice + 'static>(
    device: D,
    (port, protocol): (Port, Protocol),
    options: &Options,
    faults: &[&str],
    interrupt_at: Option<Duration>,
) -> (SuiteReport, Rc<RefCell<Faulty<D>>>) {
    let mut device = Faulty::new(device, Seed(3), 0);
    for fault in faults {
        device.apply(SimTime::START, fault.parse().expect(fault), &mut Vec::new());
    }
    let link = emulated(device, port, interrupt_at);
    let device = Rc::clone(&link.device);
    let report = conform::run(protocol, Box::new(link), options).expect("it answers");
    (report, device)
}

fn emulated<D: EmulatedDevice>(
    device: Faulty<D>,
    port: Port,
    interrupt_at: Option<Duration>,
) -> Emulated<D> {
    Emulated {
        device: Rc::new(RefCell::new(device)),
        port,
        // The light of the operator's circuits has settled by then.
        now: Rc::new(Cell::new(SimTime::START + Picoseconds::from_millis(1_000))),
        lines: Rc::default(),
        line: Line(0),
        inbox: Vec::new(),
        terminal: Terminal::default(),
        is_open: false,
        interrupt_at,
        is_shielded: false,
    }
}

const GNMI_PORTS: &[&str] = &["in-2", "in-3", "out-2", "out-4"];
const NUMBERS: &[&str] = &["2", "3", "10", "12"];

fn gnmi_switch() -> GnmiSwitch {
    let spec = GnmiSpec { ingress: 8, egress: 8, ..GnmiSpec::default() };
    GnmiSwitch::new(spec, Seed(1), 0)
}

fn switch() -> OpticalSwitch {
    let mut switch = OpticalSwitch::new(
        SwitchSpec { ingress: 8, egress: 8, ..SwitchSpec::default() },
        Seed(1),
        0,
    );
    // The suite must not cut these circuits.
    switch.connect_by_hand(SimTime::START, 1, 9);
    switch.connect_by_hand(SimTime::START, 5, 13);
    switch
}

fn run(family: Family, faults: &[&str]) -> SuiteReport {
    match family {
        Family::Gnmi => {
            tested(gnmi_switch(), (Port::Gnmi, Protocol::Gnmi, GNMI_PORTS), faults, None).0
        }
        Family::Scpi => tested(switch(), (Port::Scpi, Protocol::Scpi, NUMBERS), faults, None).0,
        Family::Tl1 => tested(switch(), (Port::Tl1, Protocol::Tl1, NUMBERS), faults, None).0,
        Family::Module => {
            let module = Transceiver::new(&TransceiverSpec::default(), Seed(1), 0);
            tested(module, (Port::Frames, Protocol::Serial, &["0"]), faults, None).0
        }
    }
}

const FAMILIES: [Family; 4] = [Family::Gnmi, Family::Scpi, Family::Tl1, Family::Module];

#[test]
fn healthy_device_of_each_family_passes_every_case() {
    for family in FAMILIES {
        let report = run(family, &[]);
        assert!(report.is_good(), "{}", report.text());
        let idle: Vec<_> = report
            .cases
            .iter()
            .filter(|line| line.verdict == "not-tested")
            .map(|line| &line.id)
            .collect();
        let moved = report.cases.iter().any(|line| line.id.ends_with("/put-back"));
        assert!(moved && idle.len() <= 3, "{}: not tested: {idle:?}", family.word());
    }
}

/// Regression test: the suite took a greeting or an echo for a reply.
#[test]
fn healthy_switch_passes_every_case_behind_every_terminal() {
    let tl1 = Terminal::tl1().into_iter().map(|one| (Port::Tl1, Protocol::Tl1, one));
    let scpi = Terminal::scpi().into_iter().map(|one| (Port::Scpi, Protocol::Scpi, one));
    for (port, protocol, terminal) in tl1.chain(scpi) {
        let mut link = emulated(Faulty::new(switch(), Seed(3), 0), port, None);
        link.terminal = terminal;
        let report = conform::run(protocol, Box::new(link), &options(NUMBERS)).expect("it answers");
        assert!(report.is_good(), "{terminal:?}: {}", report.text());
        assert!(report.identity.starts_with("Polatis"), "{terminal:?}: {}", report.identity);
    }
}

/// Greets, then does not reply.
struct Greeter {
    greeting: &'static [u8],
    now: Duration,
}

impl Link for Greeter {
    fn open(&mut self) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn send(&mut self, _: &[u8]) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError> {
        self.now += within;
        Ok(std::mem::take(&mut self.greeting).into())
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn shield(&mut self) {}
}

#[test]
fn failed_hello_reports_the_bytes_that_arrived() {
    let link = Box::new(Greeter { greeting: b"login: ", now: Duration::ZERO });
    let error = conform::run(Protocol::Scpi, link, &options(NUMBERS)).unwrap_err();
    assert_eq!(error.to_string(), "no answer to `*IDN?`; it sent `login: `");
}

fn observed(report: &SuiteReport, subject: &str) -> String {
    report.observations.get(subject).cloned().unwrap_or_default()
}

#[test]
fn reports_lists_sessions_and_restarts_of_a_switch() {
    for (family, sessions) in
        [(Family::Scpi, "1; more are refused"), (Family::Tl1, "8; more are refused")]
    {
        let report = run(family, &[]);
        assert_eq!(observed(&report, "sessions at the same time"), sessions, "{}", report.text());
        assert_ne!(observed(&report, "a list with a missing port"), "", "{}", report.text());
        for restart in ["warm", "cold"] {
            let line = format!("circuits after a {restart} restart: restored\n");
            assert!(report.text().contains(&line), "{}", report.text());
        }
    }
}

struct Peculiar {
    link: Emulated<OpticalSwitch>,
    kind: Peculiarity,
}

enum Peculiarity {
    /// A restart executes commands first, and connects these pairs some time later.
    Replays { pairs: Vec<(u16, u16)>, at: Option<Duration> },
    /// A second session is neither served nor refused.
    Ignores,
    /// A second session ends the first one.
    EndsFirst,
}

impl Link for Peculiar {
    fn open(&mut self) -> Result<(), ExchangeError> {
        self.link.open()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.link.send(bytes)
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError> {
        self.link.receive(within)
    }

    fn now(&self) -> Duration {
        self.link.now()
    }

    fn shield(&mut self) {
        self.link.shield();
    }

    fn pause(&mut self, time: Duration) {
        self.link.pause(time);
        let Peculiarity::Replays { pairs, at } = &mut self.kind else { return };
        if at.take_if(|at| self.link.now() > *at).is_some() {
            let now = self.link.now.get();
            for (input, output) in pairs.drain(..) {
                self.link.device.borrow_mut().device_mut().connect_by_hand(now, input, output);
            }
        }
    }

    fn restart(&mut self, command: &str) -> Result<(), ExchangeError> {
        if let Some(command) = command.strip_suffix(" cold") {
            self.send(format!("{command}\n").as_bytes())?;
            self.receive(Duration::from_millis(200))?;
            let later = self.now() + Duration::from_secs(4);
            if let Peculiarity::Replays { at, .. } = &mut self.kind {
                *at = Some(later);
            }
        }
        self.link.restart("power cold")
    }

    fn another(&self) -> Option<Box<dyn Link>> {
        match self.kind {
            Peculiarity::Replays { .. } => None,
            Peculiarity::Ignores => Some(Box::new(Greeter { greeting: b"", now: Duration::ZERO })),
            Peculiarity::EndsFirst => {
                self.link.device.borrow_mut().close(self.link.now.get(), self.link.line);
                self.link.another()
            }
        }
    }
}

#[test]
fn circuits_after_a_restart_are_restored_replayed_lost_or_wrong() {
    // The suite's own circuit connects one of 2 and 3 with one of 10 and 12.
    let all = ":oxc:swit:conn:sub (@1,5),(@9,13)";
    let both = [(1, 9), (5, 13)];
    for (command, replayed, expected) in [
        ("*CLS", &[][..], "restored"),
        (all, &both, "replayed"),
        (all, &[], "changed from"),
        (":oxc:swit:disc:all", &[], "lost"),
        (all, &[(7, 15)], "changed from"),
    ] {
        let device = Faulty::new(switch(), Seed(3), 0);
        let link = emulated(device, Port::Scpi, None);
        let (device, pairs) = (Rc::clone(&link.device), replayed.to_vec());
        let link = Peculiar { link, kind: Peculiarity::Replays { pairs, at: None } };
        let options = Options { restart: Some(command.into()), ..options(NUMBERS) };
        let report = conform::run(Protocol::Scpi, Box::new(link), &options).expect("it answers");
        let case = report.cases.iter().find(|line| line.id == "scpi/cold-restart").unwrap();
        let found = [observed(&report, "circuits after a cold restart"), case.detail.clone()];
        assert!(found.iter().any(|text| text.contains(expected)), "{command}: {}", report.text());
        assert_eq!(case.verdict == "passed", !expected.contains("changed"), "{}", report.text());
        let pairs = device.borrow().device().true_pairs();
        assert!(both.iter().all(|pair| pairs.contains(pair)), "{command}: {pairs:?}");
    }
}

#[test]
fn second_session_that_is_mute_or_ends_the_first_is_a_finding() {
    for (kind, expected) in [
        (Peculiarity::Ignores, "neither served nor refused"),
        (Peculiarity::EndsFirst, "the first session ended"),
    ] {
        let link = emulated(Faulty::new(switch(), Seed(3), 0), Port::Scpi, None);
        let link = Box::new(Peculiar { link, kind });
        let report = conform::run(Protocol::Scpi, link, &options(NUMBERS)).expect("it answers");
        let case = report.cases.iter().find(|line| line.id == "scpi/sessions").unwrap();
        assert!(case.detail.contains(expected), "{}", report.text());
    }
}

#[test]
fn suite_detects_every_misbehaving_device() {
    let mut table = String::from("misbehaviour,broken rule,detected by\n");
    let mut missed = Vec::new();
    for misbehaviour in Misbehaviour::ALL {
        let fault = format!("misbehave {misbehaviour}");
        let report = run(misbehaviour.family(), &[&fault]);
        let found: Vec<_> = report
            .cases
            .iter()
            .filter(|line| line.verdict == "misbehaves")
            .map(|line| line.id.as_str())
            .collect();
        if found.is_empty() {
            missed.push(format!("{misbehaviour}\n{}", report.text()));
        }
        let (promise, found) = (misbehaviour.promise(), found.join(" "));
        writeln!(table, "{misbehaviour},\"{promise}\",{found}").unwrap();
    }
    agrees(&table);
    assert!(missed.is_empty(), "{} not found:\n{}", missed.len(), missed.join("\n"));
}

/// Checks docs/conformance.csv; `LIGHTLOOM_BLESS=1` rewrites it.
fn agrees(table: &str) {
    let name = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conformance.csv");
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        std::fs::write(name, table).expect("the table can be written");
    }
    let written = std::fs::read_to_string(name).unwrap_or_default();
    assert!(table == written, "docs/conformance.csv is out of date: run with LIGHTLOOM_BLESS=1");
}

#[test]
fn failed_part_is_reported_as_fault_not_misbehaviour() {
    for (family, fault) in [
        (Family::Gnmi, "stuck 3"),
        (Family::Scpi, "stuck"),
        (Family::Tl1, "stuck"),
        (Family::Module, "stuck 0"),
        (Family::Module, "droop 20"),
    ] {
        let report = run(family, &[fault]);
        assert!(report.count("fault") > 0, "{}: {fault}\n{}", family.word(), report.text());
        assert_eq!(report.count("misbehaves"), 0, "{}: {fault}\n{}", family.word(), report.text());
        assert!(!report.is_good());
    }
}

#[test]
fn wrong_password_is_one_finding_naming_the_account() {
    let wrong = Options { login: Some(("root".into(), "toor".into())), ..options(NUMBERS) };
    let (report, _) = tested_with(switch(), (Port::Tl1, Protocol::Tl1), &wrong, &[], None);
    assert_eq!(report.count("misbehaves"), 1, "{}", report.text());
    let named = report.cases.iter().filter(|line| line.detail.contains("the account `root`"));
    assert_eq!(named.count(), report.cases.len() - 2, "{}", report.text());
    assert!(report.text().contains("the account or its password is wrong"), "{}", report.text());
}

#[test]
fn rejected_gnmi_account_is_one_finding() {
    let spec = || GnmiSpec {
        ingress: 8,
        egress: 8,
        login: Some(("me".into(), "secret".into())),
        ..GnmiSpec::default()
    };
    let account = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
    for (login, says) in [
        (None, "without an account"),
        (account("me", "sesame"), "`me`"),
        (account("me", "secret"), ""),
    ] {
        let may = Options { login, ..options(GNMI_PORTS) };
        let switch = GnmiSwitch::new(spec(), Seed(1), 0);
        let (report, _) = tested_with(switch, (Port::Gnmi, Protocol::Gnmi), &may, &[], None);
        assert_eq!(report.is_good(), says.is_empty(), "{}", report.text());
        assert!(report.is_good() || report.cases.len() == 1, "{}", report.text());
        assert!(report.text().contains(says), "{}", report.text());
    }
}

#[test]
fn detects_devices_that_lie_or_move_other_circuits() {
    for family in FAMILIES {
        for fault in ["lie", "misdirect"] {
            let report = run(family, &[fault]);
            assert!(report.count("misbehaves") > 0, "{}: {fault}", family.word());
        }
    }
}

#[test]
fn interrupted_run_restores_every_circuit() {
    let mut interrupted = 0;
    let every = cases(5, 1);
    for step in (0..60).step_by(every) {
        let at = Some(Duration::from_millis(1_003 + 17 * step));
        for (port, protocol) in [(Port::Scpi, Protocol::Scpi), (Port::Tl1, Protocol::Tl1)] {
            let (report, device) = tested(switch(), (port, protocol, NUMBERS), &[], at);
            interrupted += usize::from(report.interrupted);
            let pairs = device.borrow().device().true_pairs();
            assert_eq!(pairs, [(1, 9), (5, 13)], "{at:?}\n{}", report.text());
        }
        let (report, device) =
            tested(gnmi_switch(), (Port::Gnmi, Protocol::Gnmi, GNMI_PORTS), &[], at);
        interrupted += usize::from(report.interrupted);
        assert_eq!(device.borrow().device().true_pairs(), [], "{at:?}\n{}", report.text());
        assert_eq!(report.count("misbehaves"), 0, "{}", report.text());
    }
    assert!(interrupted > 60 / every, "{interrupted} of {} runs were interrupted", 180 / every);
}

#[test]
fn moves_no_light_without_permitted_ports() {
    let (report, device) = tested(switch(), (Port::Scpi, Protocol::Scpi, &[]), &[], None);
    assert!(report.is_good() && report.set_up.is_none(), "{}", report.text());
    assert!(report.cases.iter().any(|line| line.detail.contains("use --may-move")));
    assert_eq!(device.borrow().device().true_pairs(), [(1, 9), (5, 13)]);
}

#[test]
fn refuses_ports_that_carry_a_circuit() {
    let ports = &["1", "3", "10", "12"][..];
    let (report, device) = tested(switch(), (Port::Scpi, Protocol::Scpi, ports), &[], None);
    assert!(report.cases.iter().any(|line| line.detail.contains("port 1 is part of (1, 9)")));
    assert_eq!(device.borrow().device().true_pairs(), [(1, 9), (5, 13)]);
}

#[test]
fn equal_seeds_give_equal_reports_in_every_format() {
    let report = run(Family::Scpi, &["misbehave no-ranges"]);
    assert_eq!(report, run(Family::Scpi, &["misbehave no-ranges"]));
    let junit = report.junit();
    let document = roxmltree::Document::parse(&junit).expect("JUnit is XML");
    let failures = document.descendants().filter(|node| node.has_tag_name("failure")).count();
    assert_eq!(failures, report.count("misbehaves"));
    assert!(report.text().contains("scpi/add-range"));
}
