// SPDX-License-Identifier: Apache-2.0
//! Matches arrived bytes to receives by source, destination and tag, in the order of sends.

use std::collections::VecDeque;
use std::ffi::c_void;

use lightloom_emulator::called::ProgramOrder;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

/// A callback of the program. [`lightloom_run`](super::lightloom_run) catches a panic that unwinds
/// out of it.
pub type Callback = unsafe extern "C-unwind" fn(*mut c_void);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramCall {
    pub(crate) callback: Callback,
    pub(crate) argument: *mut c_void,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MessageStream {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) tag: u64,
}

#[derive(Debug, Default)]
struct StreamTraffic {
    /// Stream position of the first message in `sent`.
    first: u64,
    /// Lengths of the messages after the contiguous prefix, and whether each message has arrived.
    sent: VecDeque<(u64, bool)>,
    /// Bytes that no receive has consumed yet.
    arrived: u128,
    receives: VecDeque<(u64, Option<ProgramCall>)>,
}

#[derive(Debug)]
enum OpenOrder {
    Call(Option<ProgramCall>),
    Message { stream: MessageStream, place: u64, call: Option<ProgramCall> },
}

#[derive(Debug, Default)]
pub(crate) struct OrderDesk {
    pub(crate) now: SimTime,
    pub(crate) orders: VecDeque<ProgramOrder>,
    next: u64,
    open: FxHashMap<u64, OpenOrder>,
    streams: FxHashMap<MessageStream, StreamTraffic>,
}

impl OrderDesk {
    fn enter(&mut self, open: OpenOrder) -> u64 {
        self.next += 1;
        self.open.insert(self.next, open);
        self.next
    }

    pub(crate) fn schedule(&mut self, after: Picoseconds, call: Option<ProgramCall>) {
        let number = self.enter(OpenOrder::Call(call));
        let at = SimTime(self.now.0.saturating_add(after.0));
        self.orders.push_back(ProgramOrder::Wake { number, at });
    }

    pub(crate) fn send(&mut self, stream: MessageStream, bytes: u64, call: Option<ProgramCall>) {
        let traffic = self.streams.entry(stream).or_default();
        let place = traffic.first + traffic.sent.len() as u64;
        traffic.sent.push_back((bytes, false));
        let number = self.enter(OpenOrder::Message { stream, place, call });
        let MessageStream { source: from, destination: to, .. } = stream;
        self.orders.push_back(match from == to {
            true => ProgramOrder::Wake { number, at: self.now },
            false => ProgramOrder::Send { number, from, to, bytes: Bytes(bytes) },
        });
    }

    pub(crate) fn receive(&mut self, stream: MessageStream, bytes: u64, call: Option<ProgramCall>) {
        let traffic = self.streams.entry(stream).or_default();
        traffic.receives.push_back((bytes, call));
        for call in self.served(stream) {
            self.schedule(Picoseconds::ZERO, call);
        }
    }

    pub(crate) fn is_over(&mut self, now: SimTime, number: u64) -> Vec<Option<ProgramCall>> {
        self.now = now;
        match self.open.remove(&number) {
            None => Vec::new(),
            Some(OpenOrder::Call(call)) => vec![call],
            Some(OpenOrder::Message { stream, place, call }) => {
                let traffic = self.streams.entry(stream).or_default();
                if let Some((_, arrived)) = traffic.sent.get_mut((place - traffic.first) as usize) {
                    *arrived = true;
                }
                while let Some((bytes, true)) = traffic.sent.front() {
                    traffic.arrived += u128::from(*bytes);
                    traffic.first += 1;
                    traffic.sent.pop_front();
                }
                let mut calls = vec![call];
                calls.extend(self.served(stream));
                calls
            }
        }
    }

    /// Receives complete in order and consume their bytes.
    fn served(&mut self, stream: MessageStream) -> Vec<Option<ProgramCall>> {
        let Some(traffic) = self.streams.get_mut(&stream) else { return Vec::new() };
        let mut served = Vec::new();
        while let Some((bytes, call)) = traffic.receives.front().copied() {
            let Some(left) = traffic.arrived.checked_sub(bytes.into()) else { break };
            traffic.arrived = left;
            traffic.receives.pop_front();
            served.push(call);
        }
        if traffic.arrived == 0 && traffic.sent.is_empty() && traffic.receives.is_empty() {
            self.streams.remove(&stream);
        }
        served
    }

    pub(crate) fn waiting(&self) -> Vec<(MessageStream, usize, u128)> {
        let waiting = self.streams.iter().filter_map(|(stream, traffic)| {
            let (first, _) = traffic.receives.front()?;
            let missing = u128::from(*first).saturating_sub(traffic.arrived);
            Some((*stream, traffic.receives.len(), missing))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting
    }
}
