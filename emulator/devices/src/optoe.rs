// SPDX-License-Identifier: Apache-2.0
//! Module memory as presented by the Linux `optoe` driver: one file with linear offsets.
//!
//! Lower memory is at 0 to 127; bytes 128 to 255 of page p start at 128 · (p + 1). As in the
//! driver, a transfer past byte 255 reads byte 2, selects the page, transfers at most 128 bytes
//! (one when writing), and selects page 0 again. An unacknowledged transfer is retried every
//! millisecond for 25 ms, and then the access fails with [`Failed::TimedOut`].
//!
//! Source: `optoe.c` of opencomputeproject/oom (`optoe_read_write`, `optoe_eeprom_update_client`, `optoe_regmap_rw`).

use std::collections::VecDeque;

use lightloom_firmware_api::module::NotAcknowledged;
use lightloom_units::{Picoseconds, SimTime};

pub const FILE_BYTES: u64 = 257 * HALF;
const HALF: u64 = 128;
const TIMEOUT: Picoseconds = Picoseconds::from_millis(25);
const RETRY: Picoseconds = Picoseconds::from_millis(1);
const PAGE_SELECT: u8 = 127;
/// Register and bit of a module without pages.
const FLAT: (u8, u8) = (2, 0x80);
const WAITING_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EepromAccess {
    Read { offset: u64, length: usize },
    Write { offset: u64, bytes: Vec<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    TimedOut,
    NoSuchOffset,
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDone {
    Read(Vec<u8>),
    Written(usize),
}

pub trait Bus {
    fn read(&mut self, now: SimTime, offset: u8, out: &mut [u8]) -> Result<(), NotAcknowledged>;

    fn write(&mut self, now: SimTime, offset: u8, bytes: &[u8]) -> Result<(), NotAcknowledged>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessStep {
    Pageable,
    Select,
    Transfer,
    Restore,
}

#[derive(Clone, Debug)]
struct RunningAccess {
    number: u64,
    access: EepromAccess,
    limit: usize,
    done: usize,
    read: Vec<u8>,
    step: AccessStep,
    failed: Option<Failed>,
    since: SimTime,
    next: SimTime,
}

#[derive(Clone, Debug, Default)]
pub struct Optoe {
    waiting: VecDeque<(u64, EepromAccess)>,
    running: Option<RunningAccess>,
}

impl Optoe {
    /// [`Optoe::advance`] returns the result under `number`. Fails with [`Failed::Busy`] if too many are pending.
    pub fn ask(&mut self, number: u64, access: EepromAccess) -> Result<(), Failed> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(Failed::Busy);
        }
        self.waiting.push_back((number, access));
        Ok(())
    }

    pub fn next_wakeup(&self) -> Option<SimTime> {
        let now = (!self.waiting.is_empty()).then_some(SimTime::START);
        self.running.as_ref().map(|running| running.next).or(now)
    }

    pub fn advance(
        &mut self,
        now: SimTime,
        delay: Picoseconds,
        bus: &mut dyn Bus,
        mut on: impl FnMut(u64, Result<AccessDone, Failed>),
    ) {
        loop {
            if self.running.is_none() {
                let Some((number, access)) = self.waiting.pop_front() else { return };
                self.running = Some(RunningAccess::new(number, access, now, delay));
            }
            let Some(running) = self.running.as_mut().filter(|running| running.next <= now) else {
                return;
            };
            if let Some(ended) = running.turn(now, delay, bus) {
                let number = running.number;
                self.running = None;
                on(number, ended);
            }
        }
    }
}

impl RunningAccess {
    fn new(number: u64, access: EepromAccess, now: SimTime, delay: Picoseconds) -> Self {
        let (offset, length) = match &access {
            EepromAccess::Read { offset, length } => (*offset, *length),
            EepromAccess::Write { offset, bytes } => (*offset, bytes.len()),
        };
        let end = offset.saturating_add(length as u64);
        let step = if end <= 2 * HALF { AccessStep::Select } else { AccessStep::Pageable };
        Self {
            number,
            access,
            limit: length,
            done: 0,
            read: Vec::new(),
            step,
            failed: None,
            since: now,
            next: now + delay,
        }
    }

    fn offset(&self) -> u64 {
        let (EepromAccess::Read { offset, .. } | EepromAccess::Write { offset, .. }) = &self.access;
        *offset + self.done as u64
    }

    fn page(&self) -> Option<u8> {
        let page = (self.offset() / HALF).saturating_sub(1);
        u8::try_from(page).ok().filter(|&page| page > 0)
    }

    fn in_window(&self) -> u8 {
        let upper = if self.offset() >= HALF { HALF } else { 0 };
        (upper + self.offset() % HALF) as u8
    }

    fn cut(&mut self, pages: bool) {
        let end = if pages { FILE_BYTES } else { 2 * HALF };
        let left = end.saturating_sub(self.offset());
        self.limit = self.limit.min(usize::try_from(left).unwrap_or(usize::MAX));
    }

    fn turn(
        &mut self,
        now: SimTime,
        delay: Picoseconds,
        bus: &mut dyn Bus,
    ) -> Option<Result<AccessDone, Failed>> {
        if self.offset() >= FILE_BYTES {
            self.limit = self.done;
        }
        // Selecting the same page or transferring zero bytes takes no time.
        if self.step == AccessStep::Select && (self.page().is_none() || self.done >= self.limit) {
            self.step = AccessStep::Transfer;
        }
        if self.step == AccessStep::Transfer && self.done >= self.limit {
            return Some(self.end());
        }
        match self.transfer(now, bus) {
            Ok(()) => {
                (self.since, self.next) = (now, now + delay);
                (self.step == AccessStep::Restore && self.failed.is_some()).then(|| self.end())
            }
            // Like the driver, retry as long as an attempt can start before the timeout.
            Err(NotAcknowledged) if now.0 - self.since.0 < TIMEOUT.get() => {
                self.next = now + RETRY.max(delay);
                None
            }
            Err(NotAcknowledged) => Some(self.give_up(now, delay)).flatten(),
        }
    }

    fn give_up(&mut self, now: SimTime, delay: Picoseconds) -> Option<Result<AccessDone, Failed>> {
        self.failed = Some(Failed::TimedOut);
        if self.step == AccessStep::Transfer && self.page().is_some() {
            (self.step, self.since, self.next) = (AccessStep::Restore, now, now + delay);
            return None;
        }
        Some(self.end())
    }

    fn transfer(&mut self, now: SimTime, bus: &mut dyn Bus) -> Result<(), NotAcknowledged> {
        match self.step {
            AccessStep::Pageable => {
                let mut flat = [0];
                bus.read(now, FLAT.0, &mut flat)?;
                self.cut(flat[0] & FLAT.1 == 0);
                self.step = AccessStep::Select;
            }
            AccessStep::Select => {
                bus.write(now, PAGE_SELECT, &[self.page().unwrap_or(0)])?;
                self.step = AccessStep::Transfer;
            }
            AccessStep::Transfer => {
                let (at, had_page) = (self.in_window(), self.page().is_some());
                let left = (self.limit - self.done).min(usize::from(0x80 - (at & 0x7f)));
                match &self.access {
                    EepromAccess::Read { .. } => {
                        let mut out = vec![0; left];
                        bus.read(now, at, &mut out)?;
                        self.read.extend(out);
                        self.done += left;
                    }
                    EepromAccess::Write { bytes, .. } => {
                        bus.write(now, at, &bytes[self.done..=self.done])?;
                        self.done += 1;
                    }
                }
                let half_ended = self.done >= self.limit || self.offset().is_multiple_of(HALF);
                if half_ended {
                    self.step = if had_page { AccessStep::Restore } else { AccessStep::Select };
                }
            }
            AccessStep::Restore => {
                bus.write(now, PAGE_SELECT, &[0])?;
                self.step =
                    if self.failed.is_some() { AccessStep::Restore } else { AccessStep::Select };
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<AccessDone, Failed> {
        match (&self.access, self.failed) {
            (_, Some(failed)) if self.done == 0 => Err(failed),
            (EepromAccess::Read { .. }, _) => Ok(AccessDone::Read(std::mem::take(&mut self.read))),
            (EepromAccess::Write { bytes, .. }, _) if self.done == 0 && !bytes.is_empty() => {
                Err(Failed::NoSuchOffset)
            }
            (EepromAccess::Write { .. }, _) => Ok(AccessDone::Written(self.done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain {
        lower: [u8; 128],
        upper: std::collections::BTreeMap<u8, [u8; 128]>,
        free_from: SimTime,
        transfers: Vec<(char, u8, usize)>,
    }

    fn millis(count: u64) -> SimTime {
        SimTime::START + Picoseconds::from_millis(count)
    }

    impl Plain {
        fn new() -> Self {
            let (lower, upper) = ([0; 128], std::collections::BTreeMap::new());
            Self { lower, upper, free_from: SimTime::START, transfers: Vec::new() }
        }

        fn byte(&mut self, at: u8) -> &mut u8 {
            let page = self.lower[127];
            match at {
                0..=127 => &mut self.lower[usize::from(at)],
                _ => &mut self.upper.entry(page).or_insert([page; 128])[usize::from(at) - 128],
            }
        }
    }

    impl Bus for Plain {
        fn read(&mut self, now: SimTime, at: u8, out: &mut [u8]) -> Result<(), NotAcknowledged> {
            if now < self.free_from {
                return Err(NotAcknowledged);
            }
            self.transfers.push(('r', at, out.len()));
            for (index, byte) in out.iter_mut().enumerate() {
                *byte = *self.byte(at + index as u8);
            }
            Ok(())
        }

        fn write(&mut self, now: SimTime, at: u8, bytes: &[u8]) -> Result<(), NotAcknowledged> {
            if now < self.free_from {
                return Err(NotAcknowledged);
            }
            self.transfers.push(('w', at, bytes.len()));
            self.free_from = now + Picoseconds::from_millis(if at == 127 { 5 } else { 1 });
            for (index, byte) in bytes.iter().enumerate() {
                *self.byte(at + index as u8) = *byte;
            }
            Ok(())
        }
    }

    fn run(
        bus: &mut Plain,
        from: u64,
        access: EepromAccess,
    ) -> (Result<AccessDone, Failed>, SimTime) {
        let (mut optoe, mut ended) = (Optoe::default(), None);
        optoe.ask(1, access).unwrap();
        let mut now = millis(from);
        for _ in 0..10_000 {
            optoe.advance(now, Picoseconds::ZERO, bus, |_, done| ended = Some(done));
            if let Some(done) = ended.take() {
                return (done, now);
            }
            now = now.max(optoe.next_wakeup().unwrap());
        }
        panic!("it does not end");
    }

    #[test]
    fn selects_and_restores_pages_and_writes_single_bytes() {
        let mut bus = Plain::new();
        let offset = 128 * (0xb0 + 1) + 8;
        let (done, at) = run(&mut bus, 0, EepromAccess::Write { offset, bytes: vec![7, 8] });
        assert_eq!(done, Ok(AccessDone::Written(2)));
        let order = [('r', 2, 1), ('w', 127, 1), ('w', 136, 1), ('w', 137, 1), ('w', 127, 1)];
        assert_eq!(bus.transfers, order);
        assert_eq!(
            at,
            millis(7),
            "5 ms for the page, 1 ms a byte; the last wait is the next access's"
        );
        let (done, _) = run(&mut bus, 20, EepromAccess::Read { offset, length: 3 });
        assert_eq!(done, Ok(AccessDone::Read(vec![7, 8, 0xb0])));
        assert_eq!(bus.lower[127], 0);
    }

    #[test]
    fn read_over_several_pages_stops_at_the_end_of_the_file() {
        let mut bus = Plain::new();
        let access = EepromAccess::Read { offset: FILE_BYTES - 130, length: 400 };
        let (done, _) = run(&mut bus, 0, access);
        let expected = [vec![0xfe; 2], vec![0xff; 128]].concat();
        assert_eq!(done, Ok(AccessDone::Read(expected)));
        let past = EepromAccess::Read { offset: FILE_BYTES, length: 1 };
        assert_eq!(run(&mut bus, 50, past).0, Ok(AccessDone::Read(Vec::new())));
        let past = EepromAccess::Write { offset: FILE_BYTES, bytes: vec![1] };
        assert_eq!(run(&mut bus, 60, past).0, Err(Failed::NoSuchOffset));
        bus.lower[2] = 0x80;
        let (done, _) = run(&mut bus, 70, EepromAccess::Read { offset: 250, length: 100 });
        assert_eq!(
            done,
            Ok(AccessDone::Read(vec![0; 6])),
            "a module with flat memory has 256 bytes"
        );
    }

    #[test]
    fn every_access_to_an_unresponsive_module_times_out() {
        let mut bus = Plain::new();
        bus.free_from = SimTime(u64::MAX);
        for access in [
            EepromAccess::Read { offset: 0, length: 1 },
            EepromAccess::Read { offset: 128 * 20, length: 256 },
            EepromAccess::Write { offset: 128 * 20, bytes: vec![0; 4] },
        ] {
            let (done, at) = run(&mut bus, 0, access);
            assert_eq!((done, at), (Err(Failed::TimedOut), millis(25)));
        }
    }

    #[test]
    fn pending_accesses_are_bounded_and_answered_in_order() {
        let (mut optoe, mut bus, mut order) = (Optoe::default(), Plain::new(), Vec::new());
        let one = || EepromAccess::Read { offset: 1, length: 1 };
        let taken = (0..100).filter(|number| optoe.ask(*number, one()).is_ok()).count();
        assert_eq!(taken, WAITING_MAX);
        optoe.advance(millis(1), Picoseconds::ZERO, &mut bus, |number, _| order.push(number));
        assert!(order.iter().copied().eq(0..WAITING_MAX as u64));
        assert_eq!(optoe.next_wakeup(), None);
    }
}
