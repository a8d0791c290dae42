// SPDX-License-Identifier: Apache-2.0
//! A faulty connection between a client and a device. Each device has a seeded random stream with
//! one draw per byte and fault, so the same bytes always have the same faults.

use std::collections::VecDeque;

use lightloom_units::seed::{Seed, Stream};
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

use lightloom_firmware_api::module::NotAcknowledged;

use super::fault::{DeviceFault, PartsPerMillion};
use super::optoe::Bus;
use super::transceiver::Transceiver;
use super::{EmulatedDevice, Line, Output, Port};

const LATE_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct LineFaults {
    lose: PartsPerMillion,
    duplicate: PartsPerMillion,
    garble: PartsPerMillion,
    late: Picoseconds,
    half_open: bool,
}

#[derive(Clone, Debug)]
enum Parcel {
    ToDevice(Line, Vec<u8>),
    ToClient(Output),
}

impl Parcel {
    fn byte_count(&self) -> usize {
        match self {
            Self::ToDevice(_, bytes) | Self::ToClient(Output::Bytes(_, bytes)) => bytes.len(),
            Self::ToClient(Output::Close(_)) => 0,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Faulty<D> {
    device: D,
    faults: LineFaults,
    draws: Stream,
    late: VecDeque<(SimTime, Parcel)>,
    late_bytes: usize,
}

impl<D: EmulatedDevice> Faulty<D> {
    pub fn new(device: D, seed: Seed, index: u64) -> Self {
        Self {
            device,
            faults: LineFaults::default(),
            draws: seed.stream("device line", index),
            late: VecDeque::new(),
            late_bytes: 0,
        }
    }

    pub const fn device(&self) -> &D {
        &self.device
    }

    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn mangle(&mut self, bytes: &[u8]) -> Vec<u8> {
        let LineFaults { lose, duplicate, garble, .. } = self.faults;
        if lose.0 == 0 && duplicate.0 == 0 && garble.0 == 0 {
            return bytes.to_vec();
        }
        let mut arriving = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            let (lost, doubled) = (self.hits(lose), self.hits(duplicate));
            let flip = if self.hits(garble) { 1 << self.draws.random_range(0..8u8) } else { 0 };
            if !lost {
                arriving.push(byte ^ flip);
            }
            if doubled {
                arriving.push(byte ^ flip);
            }
        }
        arriving
    }

    fn hits(&mut self, share: PartsPerMillion) -> bool {
        share.0 > 0 && self.draws.random_range(0..PartsPerMillion::ALL.0) < share.0
    }

    fn post(&mut self, now: SimTime, parcel: Parcel) {
        let earliest = self.late.back().map_or(SimTime::START, |(at, _)| *at);
        if self.late_bytes + parcel.byte_count() <= LATE_BYTES_MAX {
            self.late_bytes += parcel.byte_count();
            self.late.push_back(((now + self.faults.late).max(earliest), parcel));
        }
    }

    fn is_prompt(&self) -> bool {
        self.faults.late == Picoseconds::ZERO && self.late.is_empty()
    }

    fn send_back(&mut self, now: SimTime, sent: Vec<Output>, out: &mut Vec<Output>) {
        for output in sent {
            let output = match output {
                Output::Bytes(..) if self.faults.half_open => continue,
                Output::Bytes(line, bytes) => Output::Bytes(line, self.mangle(&bytes)),
                close @ Output::Close(_) => close,
            };
            if self.is_prompt() {
                out.push(output);
            } else {
                self.post(now, Parcel::ToClient(output));
            }
        }
    }

    fn deliver(&mut self, now: SimTime, out: &mut Vec<Output>) {
        while self.late.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, parcel)) = self.late.pop_front() else { return };
            self.late_bytes -= parcel.byte_count();
            match parcel {
                Parcel::ToClient(output) => out.push(output),
                Parcel::ToDevice(line, bytes) => {
                    let mut sent = Vec::new();
                    self.device.on_bytes(at, line, &bytes, &mut sent);
                    self.send_back(at, sent, out);
                }
            }
        }
    }
}

impl<D> Faulty<D> {
    pub const fn bus_delay(&self) -> Picoseconds {
        self.faults.late
    }
}

impl Bus for Faulty<Transceiver> {
    fn read(&mut self, now: SimTime, offset: u8, out: &mut [u8]) -> Result<(), NotAcknowledged> {
        if self.faults.half_open {
            return Err(NotAcknowledged);
        }
        self.device.bus_read(now, offset, out)
    }

    fn write(&mut self, now: SimTime, offset: u8, bytes: &[u8]) -> Result<(), NotAcknowledged> {
        if self.faults.half_open {
            return Err(NotAcknowledged);
        }
        self.device.bus_write(now, offset, bytes)
    }
}

impl<D: EmulatedDevice> EmulatedDevice for Faulty<D> {
    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>) {
        match fault {
            DeviceFault::Lose(share) => self.faults.lose = share,
            DeviceFault::Duplicate(share) => self.faults.duplicate = share,
            DeviceFault::Garble(share) => self.faults.garble = share,
            DeviceFault::Late(span) => self.faults.late = span,
            DeviceFault::HalfOpen | DeviceFault::Dead => self.faults.half_open = true,
            DeviceFault::Clear => self.faults = LineFaults::default(),
            _ => {}
        }
        let mut sent = Vec::new();
        self.device.apply(now, fault, &mut sent);
        self.send_back(now, sent, out);
    }

    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>) {
        let mut sent = Vec::new();
        self.device.open(now, line, port, &mut sent);
        self.send_back(now, sent, out);
    }

    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>) {
        self.on_time(now, out);
        if self.faults.half_open {
            return;
        }
        let arriving = self.mangle(input);
        if self.is_prompt() {
            let mut sent = Vec::new();
            self.device.on_bytes(now, line, &arriving, &mut sent);
            self.send_back(now, sent, out);
        } else {
            self.post(now, Parcel::ToDevice(line, arriving));
        }
    }

    fn close(&mut self, now: SimTime, line: Line) {
        self.late.retain(|(_, parcel)| match parcel {
            Parcel::ToDevice(of, _) => *of != line,
            Parcel::ToClient(Output::Bytes(of, _) | Output::Close(of)) => *of != line,
        });
        self.late_bytes = self.late.iter().map(|(_, parcel)| parcel.byte_count()).sum();
        self.device.close(now, line);
    }

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>) {
        self.deliver(now, out);
        let mut sent = Vec::new();
        self.device.on_time(now, &mut sent);
        self.send_back(now, sent, out);
        self.deliver(now, out);
    }

    fn next_wakeup(&self) -> Option<SimTime> {
        let late = self.late.front().map(|(at, _)| *at);
        late.into_iter().chain(self.device.next_wakeup()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Echo {
        heard: Vec<u8>,
    }

    impl EmulatedDevice for Echo {
        fn open(&mut self, _: SimTime, _: Line, _: Port, _: &mut Vec<Output>) {}
        fn on_bytes(&mut self, _: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>) {
            self.heard.extend(input);
            out.push(Output::Bytes(line, input.to_vec()));
        }
        fn close(&mut self, _: SimTime, _: Line) {}
        fn on_time(&mut self, _: SimTime, _: &mut Vec<Output>) {}
        fn next_wakeup(&self) -> Option<SimTime> {
            None
        }
        fn apply(&mut self, _: SimTime, _: DeviceFault, _: &mut Vec<Output>) {}
    }

    fn echo(faults: &[&str], seed: u64) -> Faulty<Echo> {
        let mut device = Faulty::new(Echo::default(), Seed(seed), 0);
        for fault in faults {
            device.apply(SimTime::START, fault.parse().unwrap(), &mut Vec::new());
        }
        device
    }

    fn bytes_of(out: &[Output]) -> Vec<u8> {
        out.iter()
            .flat_map(|output| match output {
                Output::Bytes(_, bytes) => bytes.clone(),
                Output::Close(_) => Vec::new(),
            })
            .collect()
    }

    fn sent_back(faults: &[&str], seed: u64, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        echo(faults, seed).on_bytes(SimTime::START, Line(0), input, &mut out);
        bytes_of(&out)
    }

    #[test]
    fn line_without_faults_passes_bytes_unchanged() {
        assert_eq!(sent_back(&[], 1, b"hello"), b"hello");
        assert_eq!(sent_back(&["lose 50%", "half-open", "clear"], 1, b"hello"), b"hello");
    }

    #[test]
    fn byte_faults_have_their_rates_and_repeat_with_the_seed() {
        let input = vec![0u8; 100_000];
        let lost = sent_back(&["lose 10%"], 1, &input).len();
        assert!((80_000..82_000).contains(&lost), "0.9² of the bytes return: {lost}");
        let doubled = sent_back(&["duplicate 10%"], 1, &input).len();
        assert!((120_000..122_000).contains(&doubled), "1.1² of the bytes: {doubled}");
        let flipped = sent_back(&["garble 10%"], 1, &input);
        let ones: u32 = flipped.iter().map(|byte| byte.count_ones()).sum();
        assert!((17_000..21_000).contains(&ones), "{ones}");
        assert_eq!(flipped, sent_back(&["garble 10%"], 1, &input));
        assert_ne!(flipped, sent_back(&["garble 10%"], 2, &input));
    }

    #[test]
    fn half_open_line_drops_both_directions() {
        let mut device = echo(&["half-open"], 1);
        let mut out = Vec::new();
        device.on_bytes(SimTime::START, Line(0), b"hello", &mut out);
        assert!(out.is_empty() && device.device().heard.is_empty());
    }

    #[test]
    fn late_bytes_stay_in_order_after_the_delay_ends() {
        let mut device = echo(&["late 5ms"], 1);
        let ms = |n| SimTime::START + Picoseconds::from_millis(n);
        let mut out = Vec::new();
        device.on_bytes(ms(0), Line(0), b"a", &mut out);
        device.apply(ms(1), DeviceFault::Clear, &mut out);
        device.on_bytes(ms(1), Line(0), b"b", &mut out);
        assert!(out.is_empty());
        while let Some(at) = device.next_wakeup() {
            assert_eq!(at, ms(5));
            device.on_time(at, &mut out);
        }
        assert_eq!(bytes_of(&out), b"ab");
    }

    #[test]
    fn late_bytes_are_bounded() {
        let mut device = echo(&["late 1h"], 1);
        for _ in 0..100 {
            device.on_bytes(SimTime::START, Line(0), &vec![0; 1 << 16], &mut Vec::new());
        }
        assert!(device.late_bytes <= LATE_BYTES_MAX);
    }
}
