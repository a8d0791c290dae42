// SPDX-License-Identifier: Apache-2.0
//! Congestion control: limits the window and the rate of flows.
//!
//! Each module lists what it omits from its source. Schemes neither inspect the network nor exceed the transport's
//! window. All except DCTCP, which is a TCP, start at full speed like RDMA adapters.

mod credit;
mod dcqcn;
mod dctcp;
mod nscc;
mod swift;

use lightloom_units::{BitsPerSecond, Picoseconds};

pub use dcqcn::{Dcqcn, RateStep};
pub use dctcp::Dctcp;
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
    /// The receiving host grants credits at the rate of its interfaces, and the window is the initial credit. Requires
    /// switches that trim, and [`LossRecovery::SelectiveRepeat`](super::LossRecovery::SelectiveRepeat).
    ReceiverCredit,
}

impl CongestionControl {
    #[must_use]
    pub const fn least_timeout(self) -> Picoseconds {
        match self {
            // An assumption: RoCEv2 adapters use 4.096 µs times a power of two, and hosts in the DCTCP paper 10 ms.
            Self::FixedWindow | Self::Dcqcn(_) | Self::Dctcp(_) => Picoseconds::from_micros(500),
            // The values are from csg-htsim for Swift and from uet-htsim for NSCC.
            Self::Swift(_) | Self::Nscc(_) => Picoseconds::from_micros(100),
            // From csg-htsim for NDP.
            Self::ReceiverCredit => Picoseconds::from_millis(5),
        }
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
    /// When each packet was last sent, indexed by packet number modulo the length.
    sent_at: Box<[u64]>,
    largest_window: u32,
}

#[derive(Clone, Debug)]
enum SchemeState {
    Dctcp(dctcp::State),
    Dcqcn(dcqcn::State),
    Swift(swift::State),
    Nscc(nscc::State),
    Credit(credit::State),
}

impl CongestionController {
    /// `None` for a fixed window.
    pub(crate) fn new(
        control: CongestionControl,
        path: IdlePath,
        packets: u32,
    ) -> Option<Box<Self>> {
        let scheme = match control {
            CongestionControl::FixedWindow => return None,
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
            CongestionControl::ReceiverCredit => SchemeState::Credit(credit::State::new(path)),
        };
        let is_timed = !matches!(scheme, SchemeState::Credit(_));
        let timed = if is_timed { path.window.min(packets) } else { 1 };
        let sent_at = vec![0; timed.next_power_of_two() as usize].into_boxed_slice();
        Some(Box::new(Self { scheme, sent_at, largest_window: path.window }))
    }

    pub(crate) fn sent(&mut self, now: u64, sequence: u32, wire_bytes: u16) {
        let place = sequence as usize & (self.sent_at.len() - 1);
        self.sent_at[place] = now;
        match &mut self.scheme {
            SchemeState::Dcqcn(state) => state.sent(now, wire_bytes),
            SchemeState::Credit(state) => state.sent(),
            _ => {}
        }
    }

    pub(crate) fn acknowledged(&mut self, now: u64, (answered, acked): (u32, u32), came: Came) {
        let sent_at = self.sent_at[answered as usize & (self.sent_at.len() - 1)];
        let (marked, trimmed) = (came != Came::Well, came == Came::Trimmed);
        let round_trip = now.saturating_sub(sent_at);
        let feedback = Feedback { now, acked, marked, trimmed, round_trip };
        match &mut self.scheme {
            SchemeState::Dctcp(state) => state.acknowledged(feedback),
            SchemeState::Dcqcn(state) => state.acknowledged(feedback),
            SchemeState::Swift(state) => state.acknowledged(feedback),
            SchemeState::Nscc(state) => state.acknowledged(feedback),
            SchemeState::Credit(_) => {}
        }
    }

    pub(crate) fn lost(&mut self, now: u64) {
        match &mut self.scheme {
            SchemeState::Dctcp(state) => state.lost(now),
            SchemeState::Dcqcn(_) | SchemeState::Credit(_) => {}
            SchemeState::Swift(state) => state.lost(now),
            SchemeState::Nscc(state) => state.lost(now),
        }
    }

    pub(crate) fn window(&self) -> u32 {
        let window = match &self.scheme {
            SchemeState::Dctcp(state) => state.window,
            SchemeState::Credit(_) => return self.largest_window,
            SchemeState::Dcqcn(state) => f64::from(self.largest_window) * state.window_share(),
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

    /// `packets` are the numbers of packets in flight and left to send.
    pub(crate) fn settle(&mut self, now: u64, is_settled: bool, packets: (u32, u32)) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.settle(now, is_settled, packets);
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
            _ => None,
        }
    }

    pub(crate) fn next_send(&self) -> u64 {
        match &self.scheme {
            SchemeState::Dcqcn(state) => state.next_send,
            _ => 0,
        }
    }
}
