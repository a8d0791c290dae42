// SPDX-License-Identifier: Apache-2.0
//! Simulated optics, with a directly connected host.
use lightloom_firmware_api::device::SerialModule;
use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
use lightloom_firmware_api::host::{Host, Sequence};
use lightloom_firmware_api::message::{Arm, Power, Reply, Request, TransactionId};
use lightloom_firmware_api::module::{Hardware, Module, Position, Profile};
use lightloom_firmware_api::path::{DataPathPolicy, Path, Paths};
use lightloom_firmware_api::time::Micros;

/// Optics whose readings are set by tests.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) at: [Path; 8],
    pub(crate) going: [Option<(Path, Micros)>; 8],
    pub(crate) takes_us: u64,
    pub(crate) stuck: bool,
    pub(crate) arrives_at: Option<Path>,
    pub(crate) tap: Power,
    pub(crate) received: Power,
    pub(crate) transmitters: u8,
    pub(crate) transmitter_log: Vec<(Micros, u8)>,
    pub(crate) power_on: Paths,
    pub(crate) boots: u16,
    pub(crate) drives: u32,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            at: [Path::DARK; 8],
            going: [None; 8],
            takes_us: 60,
            stuck: false,
            arrives_at: None,
            tap: Power(5_000),
            received: Power(5_000),
            transmitters: 0,
            transmitter_log: Vec::new(),
            power_on: [Path::LOOPBACK; 8],
            boots: 0,
            drives: 0,
        }
    }
}

impl Hardware for Bench {
    fn drive(&mut self, now: Micros, group: usize, path: Path) {
        self.drives += 1;
        if !self.stuck {
            let target = self.arrives_at.unwrap_or(path);
            self.going[group] = Some((target, now + Micros(self.takes_us)));
        }
    }
    fn position(&self, now: Micros, group: usize) -> Position {
        match self.going[group] {
            Some((path, at)) if at <= now => Position::At(path),
            Some(_) => Position::Moving,
            None => Position::At(self.at[group]),
        }
    }
    fn tap(&self, _: Micros, _: u8) -> Power {
        self.tap
    }
    fn received(&self, _: Micros, _: usize) -> Power {
        self.received
    }
    fn set_transmitters(&mut self, now: Micros, lanes: u8) {
        self.transmitters = lanes;
        self.transmitter_log.push((now, lanes));
    }
    fn transmitted(&self, _: Micros, lane: usize) -> Power {
        Power(u16::from(self.transmitters >> lane & 1) * 10_000)
    }
    fn temperature(&self, _: Micros) -> i16 {
        40 * 256
    }
    fn supply(&self, _: Micros) -> u16 {
        33_000
    }
    fn load_power_on_paths(&self) -> Paths {
        self.power_on
    }
    fn store_power_on_paths(&mut self, paths: Paths) {
        self.power_on = paths;
    }
    fn count_boot(&mut self) -> u16 {
        self.boots += 1;
        self.boots
    }
}

pub(crate) const PROFILE: Profile = Profile::OCSTRX_800G;

pub(crate) fn module() -> Module<Bench> {
    Module::new(PROFILE, Bench::default(), Micros::ZERO)
}

/// Returns when an undisturbed module carries traffic, after boot, power-up, init and transmitter turn-on.
pub(crate) fn activated_at() -> Micros {
    let timing = PROFILE.timing;
    let spans =
        [timing.boot_us, timing.power_up_us, timing.data_path_init_us, timing.tx_turn_on_us];
    Micros(spans.iter().map(|&span| u64::from(span)).sum())
}

pub(crate) fn external(number: u8) -> Path {
    Path::external(number).expect("a number from 1 to 8")
}

pub(crate) fn arm_to(transaction: u32, path: Path, policy: DataPathPolicy) -> Arm {
    let mut paths = [Path::DARK; 8];
    paths[0] = path;
    Arm { transaction: TransactionId(transaction), policy, paths }
}

/// Sends a request as frames, and passes each answer to `on`.
pub(crate) fn ask(
    device: &mut SerialModule<Bench>,
    host: &mut Host,
    now: Micros,
    request: &Request<'_>,
    mut on: impl FnMut(Sequence, Reply<'_>),
) -> Sequence {
    let mut line = [0; ENCODED_BYTES_MAX];
    let (sequence, length) = host.request(request, &mut line);
    let mut sent = Vec::new();
    device.on_bytes(now, &line[..length], |bytes| sent.extend_from_slice(bytes));
    receive(host, &sent, &mut on);
    sequence
}

pub(crate) fn wait(
    device: &mut SerialModule<Bench>,
    host: &mut Host,
    now: Micros,
    mut on: impl FnMut(Sequence, Reply<'_>),
) {
    let mut sent = Vec::new();
    device.poll(now, |bytes| sent.extend_from_slice(bytes));
    receive(host, &sent, &mut on);
}

fn receive(host: &mut Host, sent: &[u8], on: &mut impl FnMut(Sequence, Reply<'_>)) {
    host.receive(sent, |answer| {
        let answer = answer.expect("the device sends whole frames");
        on(answer.sequence, answer.reply);
    });
}
