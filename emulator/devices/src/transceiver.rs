// SPDX-License-Identifier: Apache-2.0
//! Firmware of `lightloom-firmware-api` on emulated optics, with a serial port.

mod misread;

use lightloom_firmware_api::device::{LineCounters, SerialModule as Firmware};
use lightloom_firmware_api::frame::{
    ENCODED_BYTES_MAX, Frame, FrameKind, PAYLOAD_BYTES_MAX, Reassembler,
};
use lightloom_firmware_api::message::{FireReport, LinkName, Reply, command};
use lightloom_firmware_api::module::{Module, NotAcknowledged, Profile};
use lightloom_firmware_api::path::{GroupOutcome, Path, Paths};
use lightloom_firmware_api::time::Micros;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use super::fault::DeviceFault;
use super::optics::Optics;
use super::{EmulatedDevice, Line, Output, Port};
use misread::Misread;

const MICROSECOND: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct TransceiverSpec {
    pub profile: Profile,
    pub power_on: Paths,
    /// Time since power-on when the run starts. A module with [`Profile::OCSTRX_800G`] is up after 0.65 s.
    pub powered_for: Picoseconds,
}

impl Default for TransceiverSpec {
    fn default() -> Self {
        Self {
            profile: Profile::OCSTRX_800G,
            power_on: [Path::LOOPBACK; 8],
            powered_for: Picoseconds::from_millis(1_000),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Transceiver {
    firmware: Firmware<Optics>,
    age: u64,
    line: Option<Line>,
    wanted: Paths,
    reboot_at: Option<SimTime>,
    misread: Misread,
}

impl Transceiver {
    pub fn new(spec: &TransceiverSpec, seed: Seed, index: u64) -> Self {
        let optics = Optics::new(seed, index, spec.power_on);
        let mut firmware = Firmware::new(Module::new(spec.profile, optics, Micros::ZERO));
        let age = spec.powered_for.get() / MICROSECOND;
        firmware.poll(Micros(age), |_| {});
        Self {
            firmware,
            age,
            line: None,
            wanted: spec.power_on,
            reboot_at: None,
            misread: Misread::default(),
        }
    }

    pub const fn optics_mut(&mut self) -> &mut Optics {
        self.firmware.module_mut().hardware_mut()
    }

    pub fn sends(&self, now: SimTime, number: u8) -> bool {
        self.firmware.module().hardware().sends(self.micros(now), number)
    }

    pub const fn link_name(&self) -> LinkName {
        self.firmware.module().hardware().link_name()
    }

    pub fn true_path(&self, now: SimTime, group: usize) -> Option<Path> {
        self.firmware.module().hardware().true_path(self.micros(now), group)
    }

    pub fn rests_at(&self, now: SimTime, group: usize) -> Option<SimTime> {
        let at = self.firmware.module().hardware().rests_at(self.micros(now), group)?;
        Some(SimTime(at.0.saturating_sub(self.age).saturating_mul(MICROSECOND)))
    }

    pub fn shines(&self) -> bool {
        self.firmware.module().hardware().shines()
    }

    pub const fn counters(&self) -> LineCounters {
        self.firmware.counters()
    }

    pub fn bus_read(
        &mut self,
        now: SimTime,
        offset: u8,
        out: &mut [u8],
    ) -> Result<(), NotAcknowledged> {
        let at = self.micros(now);
        self.firmware.module_mut().bus_read(at, offset, out)
    }

    /// See [`Module::bus_write`]. Stores armed paths, because a lying module reports them later.
    pub fn bus_write(
        &mut self,
        now: SimTime,
        offset: u8,
        bytes: &[u8],
    ) -> Result<(), NotAcknowledged> {
        let at = self.micros(now);
        self.firmware.module_mut().bus_write(at, offset, bytes)?;
        self.wanted = wanted_paths(self.firmware.module());
        Ok(())
    }

    fn micros(&self, now: SimTime) -> Micros {
        Micros(now.0 / MICROSECOND + self.age)
    }

    fn catch_up(&mut self, now: SimTime, sent: &mut Vec<Vec<u8>>) {
        if let Some(at) = self.reboot_at.filter(|&at| at <= now) {
            self.reboot_at = None;
            let at = self.micros(at);
            self.firmware.poll(at, |frame| sent.push(frame.to_vec()));
            self.firmware.reset(at);
        }
        let now = self.micros(now);
        self.firmware.poll(now, |frame| sent.push(frame.to_vec()));
    }

    fn finish(&mut self, now: SimTime, sent: Vec<Vec<u8>>, out: &mut Vec<Output>) {
        let faults = self.firmware.module().hardware().faults;
        if faults.reboots_in_commit && self.firmware.module().moving() && self.reboot_at.is_none() {
            let switch_us = u64::from(self.firmware.module().profile().timing.switch_us);
            self.reboot_at = Some(now + Picoseconds::from_micros(switch_us / 2));
            self.optics_mut().faults.reboots_in_commit = false;
        }
        let Some(line) = self.line else { return };
        for frame in sent {
            self.remember_wanted(&frame);
            let forged = (faults.lies || faults.misdirects).then(|| self.forge(&frame)).flatten();
            let said = forged.unwrap_or(frame);
            out.push(Output::Bytes(line, self.misread.reply(faults.misbehaves, said)));
        }
    }

    fn remember_wanted(&mut self, frame: &[u8]) {
        with_reply(frame, |frame, reply| {
            if matches!(reply, Reply::Armed(_)) || frame.command == command::GO {
                self.wanted = wanted_paths(self.firmware.module());
            }
        });
    }

    fn forge(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let mut forged = None;
        with_reply(frame, |original, reply| {
            let Reply::Fired(report) = reply else { return };
            let outcomes = report.outcomes.map(|outcome| match outcome {
                GroupOutcome::None => GroupOutcome::None,
                _ => GroupOutcome::Success,
            });
            let mut active = report.active;
            for (group, path) in active.iter_mut().enumerate() {
                if outcomes[group] == GroupOutcome::Success {
                    *path = self.wanted[group];
                }
            }
            let generation = report.generation + 1;
            let lie = Reply::Fired(FireReport { outcomes, active, generation, ..*report });
            let mut payload = [0; PAYLOAD_BYTES_MAX];
            let (status, length) = lie.encode(&mut payload);
            let mut line = [0; ENCODED_BYTES_MAX];
            let frame = Frame { status, payload: &payload[..length], ..*original };
            let length = frame.encode(&mut line);
            forged = Some(line[..length].to_vec());
        });
        forged
    }
}

fn wanted_paths(module: &Module<Optics>) -> Paths {
    use lightloom_firmware_api::cmis::page_b0;
    std::array::from_fn(|group| page_b0::wanted(group).get(module).unwrap_or(Path::DARK))
}

fn with_reply(frame: &[u8], mut on: impl FnMut(&Frame<'_>, &Reply<'_>)) {
    let mut reassembler = Reassembler::new();
    for &byte in frame {
        if let Some(Ok(frame)) = reassembler.push(byte)
            && frame.kind == FrameKind::Reply
            && matches!(frame.command, command::ARM | command::FIRE | command::GO)
            && let Some(reply) = Reply::decode(frame.command, frame.status, frame.payload)
        {
            on(&frame, &reply);
        }
    }
}

impl EmulatedDevice for Transceiver {
    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>) {
        self.on_time(now, out);
        if fault == DeviceFault::Reboot {
            let now = self.micros(now);
            self.firmware.reset(now);
        }
        self.optics_mut().faults.apply(fault);
    }

    fn open(&mut self, _now: SimTime, line: Line, _port: Port, _out: &mut Vec<Output>) {
        self.line = Some(line);
    }

    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>) {
        self.line = Some(line);
        let mut sent = Vec::new();
        self.catch_up(now, &mut sent);
        let at = self.micros(now);
        let misbehaves = self.firmware.module().hardware().faults.misbehaves;
        let understood = self.misread.request(misbehaves, input, &mut sent);
        self.firmware.on_bytes(at, &understood, |frame| sent.push(frame.to_vec()));
        self.finish(now, sent, out);
    }

    fn close(&mut self, _now: SimTime, line: Line) {
        if self.line == Some(line) {
            self.line = None;
        }
    }

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>) {
        let mut sent = Vec::new();
        self.catch_up(now, &mut sent);
        self.finish(now, sent, out);
    }

    fn next_wakeup(&self) -> Option<SimTime> {
        let firmware = self
            .firmware
            .next_wakeup()
            .map(|at| SimTime(at.0.saturating_sub(self.age).saturating_mul(MICROSECOND)));
        firmware.into_iter().chain(self.reboot_at).min()
    }
}
