// SPDX-License-Identifier: Apache-2.0
//! The device side of the serial line.
//!
//! Firmware passes bytes from the UART to [`SerialModule::on_bytes`], calls [`SerialModule::poll`] at
//! [`SerialModule::next_wakeup`], and sends the frames passed to `out`. A booting module does not reply.
//! Invalid frames are counted, but not answered. This example is a main loop with simulated optics:
//!
//! ```
//! use lightloom_firmware_api::device::SerialModule;
//! use lightloom_firmware_api::message::Power;
//! use lightloom_firmware_api::module::{Hardware, Module, Position, Profile};
//! use lightloom_firmware_api::path::{Path, Paths};
//! use lightloom_firmware_api::time::Micros;
//!
//! /// On a real board, each of these is a register, a converter or a flash record.
//! struct Board {
//!     switches: Paths,
//!     power_on: Paths,
//!     boots: u16,
//! }
//!
//! impl Hardware for Board {
//!     fn drive(&mut self, _: Micros, group: usize, path: Path) { self.switches[group] = path; }
//!     fn position(&self, _: Micros, group: usize) -> Position { Position::At(self.switches[group]) }
//!     fn tap(&self, _: Micros, _path: u8) -> Power { Power(5_000) }
//!     fn received(&self, _: Micros, _lane: usize) -> Power { Power(5_000) }
//!     fn set_transmitters(&mut self, _: Micros, _lanes: u8) {}
//!     fn transmitted(&self, _: Micros, _lane: usize) -> Power { Power(10_000) }
//!     fn temperature(&self, _: Micros) -> i16 { 40 * 256 }
//!     fn supply(&self, _: Micros) -> u16 { 33_000 }
//!     fn load_power_on_paths(&self) -> Paths { self.power_on }
//!     fn store_power_on_paths(&mut self, paths: Paths) { self.power_on = paths; }
//!     fn count_boot(&mut self) -> u16 { self.boots += 1; self.boots }
//! }
//!
//! let dark = [Path::DARK; 8];
//! let board = Board { switches: dark, power_on: [Path::LOOPBACK; 8], boots: 0 };
//! let mut device = SerialModule::new(Module::new(Profile::OCSTRX_800G, board, Micros::ZERO));
//! # let mut ticks = (0..5).map(|second| Micros(second * 1_000_000));
//! # let mut uart_read = || [0u8; 0];
//! # let mut uart_send = |_frame: &[u8]| {};
//! // `ticks` is the board's microsecond timer: it fires when the UART has bytes, and at `next_wakeup()`.
//! while let Some(now) = ticks.next() {
//!     device.on_bytes(now, &uart_read(), &mut uart_send);
//!     device.poll(now, &mut uart_send);
//! }
//! assert_eq!(device.module().hardware().switches[0], Path::LOOPBACK, "its stored power-on path");
//! ```

use crate::frame::{
    ENCODED_BYTES_MAX, Frame, FrameError, FrameKind, PAYLOAD_BYTES_MAX, Reassembler, VERSION,
};
use crate::message::{Event, REGISTER_BYTES_MAX, Reply, Request, RequestRefusal, command};
use crate::module::{Hardware, Module, REPEAT};
use crate::time::Micros;

/// Line counters since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Number of requests that were answered, including refused ones.
    pub requests: u32,
    /// Number of invalid frames.
    pub errors: u32,
    /// The last frame error.
    pub last_error: Option<FrameError>,
    /// Number of valid frames other than requests and acknowledgements.
    pub not_requests: u32,
}

#[derive(Clone, Copy, Debug)]
struct PendingFire {
    sequence: u16,
    command: u8,
    boots: u16,
}

#[derive(Clone, Copy, Debug)]
struct Unacknowledged {
    number: u16,
    event: Event,
    /// Time of the next retry. The interval doubles with each retry.
    again_at: Micros,
    wait: Micros,
}

const REPEAT_MAX: Micros = Micros::from_millis(1_000);

/// A module on a serial line.
#[derive(Clone, Debug)]
pub struct SerialModule<H> {
    module: Module<H>,
    line: Reassembler,
    waiting: Option<PendingFire>,
    event: Option<Unacknowledged>,
    last_event: u16,
    counters: LineCounters,
}

impl<H: Hardware> SerialModule<H> {
    /// Creates the serial side of `module`.
    pub const fn new(module: Module<H>) -> Self {
        Self {
            module,
            line: Reassembler::new(),
            waiting: None,
            event: None,
            last_event: 0,
            counters: LineCounters { requests: 0, errors: 0, last_error: None, not_requests: 0 },
        }
    }

    /// Returns the module.
    pub const fn module(&self) -> &Module<H> {
        &self.module
    }

    /// Returns the module, for I2C access and for the optics driver.
    pub const fn module_mut(&mut self) -> &mut Module<H> {
        &mut self.module
    }

    /// Returns the line counters.
    pub const fn counters(&self) -> LineCounters {
        self.counters
    }

    /// Processes received bytes, and passes each frame to send to `out`.
    pub fn on_bytes(&mut self, now: Micros, input: &[u8], mut out: impl FnMut(&[u8])) {
        self.poll(now, &mut out);
        if !self.module.answers(now) {
            self.line.reset();
            return;
        }
        for &byte in input {
            let Some(received) = self.line.push(byte) else { continue };
            match received {
                Ok(frame) if frame.kind == FrameKind::Request => {
                    self.counters.requests = self.counters.requests.wrapping_add(1);
                    if frame.command & !command::IN_EPOCH == command::EVENTS {
                        self.event = None;
                    }
                    let waits = answer(&mut self.module, now, &frame, &mut out);
                    self.waiting = waits.or(self.waiting);
                }
                Ok(frame) if frame.kind == FrameKind::Acknowledge => {
                    let number = frame.sequence;
                    self.event.take_if(|event| event.number == number);
                }
                Ok(_) => {
                    self.counters.not_requests = self.counters.not_requests.wrapping_add(1);
                }
                Err(error) => {
                    self.counters.errors = self.counters.errors.wrapping_add(1);
                    self.counters.last_error = Some(error);
                }
            }
        }
        self.answer_fire(now, &mut out);
        self.send_event(now, &mut out);
    }

    /// Advances the time to `now`, and passes each frame to send to `out`.
    pub fn poll(&mut self, now: Micros, mut out: impl FnMut(&[u8])) {
        self.module.poll(now);
        self.answer_fire(now, &mut out);
        self.send_event(now, &mut out);
    }

    /// Returns when [`SerialModule::poll`] must be called if no bytes arrive earlier.
    pub fn next_wakeup(&self) -> Option<Micros> {
        let again = self.event.map(|event| event.again_at);
        let event = again.or_else(|| self.module.next_event());
        let event = event.map(|at| at.max(self.module.answers_from()));
        self.module.next_wakeup().into_iter().chain(event).min()
    }

    /// Restarts the firmware. Buffered bytes are lost, and a fire in progress is not answered.
    pub fn reset(&mut self, now: Micros) {
        self.module.reset(now);
        self.line.reset();
        self.waiting = None;
        self.event = None;
    }

    fn send_event(&mut self, now: Micros, out: &mut impl FnMut(&[u8])) {
        if !self.module.answers(now) {
            return;
        }
        let boots = self.module.boots();
        self.event.take_if(|event| event.event.boots != boots);
        match &mut self.event {
            Some(event) if event.again_at <= now => {
                event.wait = Micros(event.wait.0 * 2).min(REPEAT_MAX);
                event.again_at = now + event.wait;
            }
            Some(_) => return,
            None => {
                let Some(event) = self.module.take_event(now) else { return };
                self.last_event = self.last_event.wrapping_add(1);
                let (number, again_at) = (self.last_event, now + REPEAT);
                self.event = Some(Unacknowledged { number, event, again_at, wait: REPEAT });
            }
        }
        if let Some(Unacknowledged { number, event, .. }) = &self.event {
            let mut payload = [0; PAYLOAD_BYTES_MAX];
            let length = event.encode(&mut payload);
            send_frame(FrameKind::Event, *number, command::EVENT, 0, &payload[..length], out);
        }
    }

    fn answer_fire(&mut self, now: Micros, out: &mut impl FnMut(&[u8])) {
        if self.module.moving() || !self.module.answers(now) {
            return;
        }
        if let Some(waiting) = self.waiting.take()
            && waiting.boots == self.module.boots()
        {
            let reply = Reply::Fired(self.module.fire_report(now));
            send(waiting.sequence, waiting.command, &reply, out);
        }
    }
}

fn answer<H: Hardware>(
    module: &mut Module<H>,
    now: Micros,
    frame: &Frame<'_>,
    out: &mut impl FnMut(&[u8]),
) -> Option<PendingFire> {
    let request = match frame.version {
        VERSION => Request::decode_in_epoch(frame.command, frame.payload),
        _ => Err(RequestRefusal::Version),
    };
    let request = request.and_then(|(epoch, request)| {
        epoch.map_or(Ok(()), |epoch| module.enter(now, epoch))?;
        Ok(request)
    });
    let mut registers = [0; REGISTER_BYTES_MAX];
    let started = match request {
        Ok(Request::Fire { transaction, groups }) => Some(module.fire(now, transaction, groups)),
        Ok(Request::Go { arm, groups }) => Some(module.go(now, arm, groups)),
        _ => None,
    };
    if started == Some(Ok(())) {
        let (sequence, command) = (frame.sequence, frame.command);
        return Some(PendingFire { sequence, command, boots: module.boots() });
    }
    let request = started.and_then(Result::err).map_or(request, Err);
    let reply = match request {
        Ok(request) => {
            perform(module, now, &request, &mut registers).unwrap_or_else(Reply::Refused)
        }
        Err(refusal) => Reply::Refused(refusal),
    };
    send(frame.sequence, frame.command, &reply, out);
    if request == Ok(Request::Reset) {
        module.reset(now);
    }
    None
}

fn perform<'a, H: Hardware>(
    module: &mut Module<H>,
    now: Micros,
    request: &Request<'_>,
    registers: &'a mut [u8; REGISTER_BYTES_MAX],
) -> Result<Reply<'a>, RequestRefusal> {
    Ok(match *request {
        Request::Hello => Reply::Identity(module.identity()),
        Request::Read { address, length } => {
            let registers = &mut registers[..usize::from(length)];
            module.read(now, address, registers)?;
            Reply::Registers(registers)
        }
        Request::Write { address, bytes } => {
            module.write(now, address, bytes)?;
            Reply::Done
        }
        Request::Arm(arm) => Reply::Armed(module.arm(now, arm)?),
        Request::Disarm { transaction } => {
            module.disarm(now, transaction)?;
            Reply::Done
        }
        Request::Status => Reply::Status(module.status(now)),
        Request::Links => Reply::Links(module.links(now)),
        Request::SetDefault { password, paths } => {
            module.set_power_on_paths(now, password, paths)?;
            Reply::Done
        }
        Request::Events { enabled, debounce_us } => {
            Reply::Events(module.set_events(now, enabled, debounce_us)?)
        }
        Request::Fire { .. } | Request::Go { .. } | Request::Reset => Reply::Done,
        Request::Module { .. } => return Err(RequestRefusal::UnknownCommand),
    })
}

fn send(sequence: u16, command: u8, reply: &Reply<'_>, out: &mut impl FnMut(&[u8])) {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let (status, length) = reply.encode(&mut payload);
    send_frame(FrameKind::Reply, sequence, command, status, &payload[..length], out);
}

fn send_frame(
    kind: FrameKind,
    sequence: u16,
    command: u8,
    status: u8,
    payload: &[u8],
    out: &mut impl FnMut(&[u8]),
) {
    let frame = Frame { version: VERSION, kind, sequence, command, status, payload };
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = frame.encode(&mut line);
    out(&line[..length]);
}
