// SPDX-License-Identifier: Apache-2.0
//! Congestion control: limits the window and the rate of flows.
//!
//! Each module lists what it omits from its source. Schemes neither inspect the network nor exceed the transport's
//! window. All except DCTCP, which is a TCP, start at full speed like RDMA adapters.

mod credit;
mod dcqcn;
mod dctcp;
mod hpcc;
mod nscc;
mod swift;

use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

pub use dcqcn::{Dcqcn, RateStep};
pub use dctcp::Dctcp;
pub use hpcc::Hpcc;
pub(crate) use hpcc::PortLoad;
pub use nscc::Nscc;
pub use swift::Swift;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    #[default]
    FixedWindow,
    Dctcp(Dctcp),
    Dcqcn(Dcqcn),
    Swift(Swift),
    Nscc(Nscc),
    /// Requires telemetry, so switches always have bounded queues ([`EngineSettings::queueing`](crate::EngineSettings)).
    Hpcc(Hpcc),
    /// The receiving host grants credits at the rate of its interfaces, and the window is the initial credit. Requires
    /// switches that trim, and [`LossRecovery::SelectiveRepeat`](super::LossRecovery::SelectiveRepeat).
    ReceiverCredit,
}

impl CongestionControl {
    pub const fn least_timeout(self) -> Picoseconds {
        match self {
            // An assumption: RoCEv2 adapters use 4.096 µs times a power of two, and hosts in the DCTCP paper 10 ms.
            Self::FixedWindow | Self::Dcqcn(_) | Self::Dctcp(_) | Self::Hpcc(_) => {
                Picoseconds::from_micros(500)
            }
            // The values are from csg-htsim for Swift and from uet-htsim for NSCC.
            Self::Swift(_) | Self::Nscc(_) => Picoseconds::from_micros(100),
            // From csg-htsim for NDP.
            Self::ReceiverCredit => Picoseconds::from_millis(5),
        }
    }

    pub(crate) const fn reads_telemetry(self) -> bool {
        matches!(self, Self::Hpcc(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Well,
    Marked,
    Trimmed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    pub(crate) now: u64,
    pub(crate) acked: u32,
    pub(crate) in_flight: u32,
    pub(crate) marked: bool,
    pub(crate) trimmed: bool,
    pub(crate) round_trip: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePath {
    pub(crate) round_trip: u64,
    pub(crate) hops: u32,
    pub(crate) rate: BitsPerSecond,
    pub(crate) window: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct CongestionController {
    scheme: SchemeState,
    pacer: Option<Pacer>,
    /// When each packet was last sent, indexed by packet number modulo the length.
    sent_at: Box<[u64]>,
    largest_window: u32,
}

#[derive(Clone, Debug)]
enum SchemeState {
    Fixed,
    Dctcp(dctcp::State),
    Nscc(nscc::State),
    // Schemes that act when a packet is sent follow each other, so that one comparison excludes them.
    Dcqcn(dcqcn::State),
    Swift(swift::State),
    Hpcc(hpcc::State),
    Credit(credit::State),
}

/// The rate that the flow's owner planned. Packets that had to wait follow without gaps.
#[derive(Clone, Copy, Debug)]
struct Pacer {
    rate: BitsPerSecond,
    next_send: u64,
}

impl Pacer {
    fn sent(&mut self, now: u64, wire_bytes: u16) {
        let begin = if self.next_send == 0 { now } else { self.next_send };
        self.next_send = begin + self.rate.time_for(Bytes(wire_bytes.into())).get();
    }
}

impl CongestionController {
    /// `None` for a fixed window without a pace.
    pub(crate) fn new(
        control: CongestionControl,
        path: IdlePath,
        packets: u32,
        pace: Option<BitsPerSecond>,
    ) -> Option<Box<Self>> {
        let tracked = path.window.min(packets).next_power_of_two() as usize;
        let scheme = match control {
            CongestionControl::FixedWindow if pace.is_none() => return None,
            CongestionControl::FixedWindow => SchemeState::Fixed,
            CongestionControl::Dctcp(settings) => {
                SchemeState::Dctcp(dctcp::State::new(settings, path))
            }
            CongestionControl::Dcqcn(settings) => {
                SchemeState::Dcqcn(dcqcn::State::new(settings, path))
            }
            CongestionControl::Swift(settings) => {
                SchemeState::Swift(swift::State::new(settings, path))
            }
            CongestionControl::Nscc(settings) => {
                SchemeState::Nscc(nscc::State::new(settings, path))
            }
            CongestionControl::Hpcc(settings) => {
                SchemeState::Hpcc(hpcc::State::new(settings, path, tracked))
            }
            CongestionControl::ReceiverCredit => SchemeState::Credit(credit::State::new(path)),
        };
        let is_timed = !matches!(scheme, SchemeState::Credit(_) | SchemeState::Fixed);
        let sent_at = vec![0; if is_timed { tracked } else { 1 }].into_boxed_slice();
        let pacer = pace.map(|rate| Pacer { rate, next_send: 0 });
        Some(Box::new(Self { scheme, pacer, sent_at, largest_window: path.window }))
    }

    pub(crate) fn sent(&mut self, now: u64, sequence: u32, wire_bytes: u16) {
        let place = sequence as usize & (self.sent_at.len() - 1);
        self.sent_at[place] = now;
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(now, wire_bytes);
        }
        match &mut self.scheme {
            SchemeState::Dcqcn(state) => state.sent(now, wire_bytes),
            SchemeState::Hpcc(state) => state.sent(now, sequence, wire_bytes),
            SchemeState::Swift(state) => state.sent(now),
            SchemeState::Credit(state) => state.sent(),
            _ => {}
        }
    }

    pub(crate) fn acknowledged(
        &mut self,
        now: u64,
        answered: u32,
        acked: u32,
        in_flight: u32,
        came: Came,
    ) {
        let sent_at = self.sent_at[answered as usize & (self.sent_at.len() - 1)];
        let (marked, trimmed) = (came != Came::Well, came == Came::Trimmed);
        let round_trip = now.saturating_sub(sent_at);
        let feedback = Feedback { now, acked, in_flight, marked, trimmed, round_trip };
        match &mut self.scheme {
            SchemeState::Dctcp(state) => state.acknowledged(feedback),
            SchemeState::Dcqcn(state) => state.acknowledged(feedback),
            SchemeState::Swift(state) => state.acknowledged(feedback),
            SchemeState::Nscc(state) => state.acknowledged(feedback),
            SchemeState::Hpcc(state) => state.acknowledged(feedback, answered),
            SchemeState::Fixed | SchemeState::Credit(_) => {}
        }
    }

    pub(crate) fn lost(&mut self, now: u64) {
        match &mut self.scheme {
            SchemeState::Dctcp(state) => state.lost(now),
            SchemeState::Swift(state) => state.lost(now),
            SchemeState::Nscc(state) => state.lost(),
            _ => {}
        }
    }

    pub(crate) fn met(&mut self, load: PortLoad) {
        if let SchemeState::Hpcc(state) = &mut self.scheme {
            state.met(load);
        }
    }

    /// NSCC counts trims when their headers are answered.
    pub(crate) fn trimmed(&mut self, now: u64) {
        if !matches!(self.scheme, SchemeState::Nscc(_)) {
            self.lost(now);
        }
    }

    #[inline(always)]
    pub(crate) fn window(&self) -> u32 {
        let window = match &self.scheme {
            SchemeState::Dctcp(state) => state.window,
            SchemeState::Fixed | SchemeState::Credit(_) => return self.largest_window,
            SchemeState::Dcqcn(state) => f64::from(self.largest_window) * state.window_share(),
            SchemeState::Hpcc(state) => state.window,
            SchemeState::Swift(state) => state.window,
            SchemeState::Nscc(state) => state.window,
        };
        (window as u32).clamp(1, self.largest_window)
    }

    #[inline]
    pub(crate) fn credits(&self) -> Option<u32> {
        match &self.scheme {
            SchemeState::Credit(state) => Some(state.credits),
            _ => None,
        }
    }

    pub(crate) fn credit(&mut self) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.credits += 1;
        }
    }

    /// `left` packets have not been sent.
    pub(crate) fn settle(&mut self, now: u64, is_settled: bool, in_flight: u32, left: u32) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.settle(now, is_settled, in_flight, left);
        }
    }

    pub(crate) fn refill(&mut self) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.refill();
        }
    }

    pub(crate) fn pace(&self) -> Option<BitsPerSecond> {
        match &self.scheme {
            SchemeState::Dcqcn(state) => Some(BitsPerSecond(state.pace())),
            SchemeState::Hpcc(state) => Some(BitsPerSecond(state.pace())),
            _ => self.pacer.map(|pacer| pacer.rate),
        }
    }

    #[inline(always)]
    pub(crate) fn next_send(&self) -> u64 {
        let paced = self.pacer.map_or(0, |pacer| pacer.next_send);
        match &self.scheme {
            SchemeState::Dcqcn(state) => state.next_send.max(paced),
            SchemeState::Hpcc(state) => state.next_send.max(paced),
            SchemeState::Swift(state) => state.next_send.max(paced),
            _ => paced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paced_flow_keeps_its_rate_after_a_delay() {
        let mut pacer = Pacer { rate: BitsPerSecond::from_gbps(8), next_send: 0 };
        for now in [1_000, 2_000_000, 2_000_001] {
            pacer.sent(now, 1_000);
        }
        assert_eq!(pacer.next_send, 3_001_000, "three packets of a microsecond each");
    }
}
