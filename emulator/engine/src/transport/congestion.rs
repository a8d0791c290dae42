// SPDX-License-Identifier: Apache-2.0
//! Congestion control: how much of the window may be used, and how fast.
//!
//! One small file a scheme. Each sees every acknowledgement and keeps its own state; none looks at the
//! network. Where a scheme leaves something out that its source has, its file says so. All but
//! DCTCP, which is a TCP, start at full speed, as adapters for remote memory access do; none exceeds the transport's
//! window.

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

/// Which scheme flows use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// None: the window is always open.
    #[default]
    FixedWindow,
    /// Window by the share of marked packets.
    Dctcp(Dctcp),
    /// Rate by marks, for lossless networks.
    Dcqcn(Dcqcn),
    /// Window by delay.
    Swift(Swift),
    /// Window by marks and delay together.
    Nscc(Nscc),
    /// Credits that the receiving host gives at the pace of its interfaces; the window is what a flow begins with. Wants
    /// switches that trim and [`LossRecovery::SelectiveRepeat`](super::LossRecovery::SelectiveRepeat).
    ReceiverCredit,
}

impl CongestionControl {
    /// Minimum timeout of flows that measure round trips.
    #[must_use]
    pub const fn least_timeout(self) -> Picoseconds {
        match self {
            // An assumption: adapters for RoCEv2 come with fixed timeouts of 4.096 us times a power of two, and the hosts of
            // DCTCP's paper with 10 ms.
            Self::FixedWindow | Self::Dcqcn(_) | Self::Dctcp(_) => Picoseconds::from_micros(500),
            // As csg-htsim has it for Swift, and uet-htsim for NSCC.
            Self::Swift(_) | Self::Nscc(_) => Picoseconds::from_micros(100),
            // As csg-htsim has it for NDP.
            Self::ReceiverCredit => Picoseconds::from_millis(5),
        }
    }
}

/// How the packet came that an acknowledgement answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Well,
    Marked,
    /// Only its header.
    Trimmed,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    /// When it came, in picoseconds.
    pub(crate) now: u64,
    /// Packets that it acknowledged for the first time in order.
    pub(crate) acked: u32,
    /// Whether the packet it answers was marked, or cut to its header.
    pub(crate) marked: bool,
    /// Whether it was cut to its header.
    pub(crate) trimmed: bool,
    /// From sending that packet to now, in picoseconds.
    pub(crate) round_trip: u64,
}

/// A flow's path when it is idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePath {
    /// A packet and its acknowledgement, in picoseconds.
    pub(crate) round_trip: u64,
    /// Links one way.
    pub(crate) hops: u32,
    /// Of the first link.
    pub(crate) rate: BitsPerSecond,
    /// The most that may be in flight, in packets.
    pub(crate) window: u32,
}

/// The state of one flow's scheme.
#[derive(Clone, Debug)]
pub(crate) struct CongestionController {
    scheme: SchemeState,
    /// When each packet was last sent, by number modulo the length.
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
    /// For a flow of so many packets. `None` for a fixed window: nothing to keep.
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

    /// A packet of `wire_bytes` leaves at `now`.
    pub(crate) fn sent(&mut self, now: u64, sequence: u32, wire_bytes: u16) {
        let place = sequence as usize & (self.sent_at.len() - 1);
        self.sent_at[place] = now;
        match &mut self.scheme {
            SchemeState::Dcqcn(state) => state.sent(now, wire_bytes),
            SchemeState::Credit(state) => state.sent(),
            _ => {}
        }
    }

    /// The acknowledgement of packet `answered`.
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

    /// Packets were lost.
    pub(crate) fn lost(&mut self, now: u64) {
        match &mut self.scheme {
            SchemeState::Dctcp(state) => state.lost(now),
            SchemeState::Dcqcn(_) | SchemeState::Credit(_) => {}
            SchemeState::Swift(state) => state.lost(now),
            SchemeState::Nscc(state) => state.lost(now),
        }
    }

    /// How many packets may be in flight.
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

    /// How many packets the receiver lets go. `None` for other schemes.
    #[inline]
    pub(crate) fn credits(&self) -> Option<u32> {
        match &self.scheme {
            SchemeState::Credit(state) => Some(state.credits),
            _ => None,
        }
    }

    /// The receiver lets a packet more go, or one that is lost leaves its credit to its repair.
    pub(crate) fn credit(&mut self) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.credits += 1;
        }
    }

    /// The receiver says whether it has given all credit that was earned, while so many packets are in flight and so many
    /// are left to be sent.
    pub(crate) fn settle(&mut self, now: u64, is_settled: bool, packets: (u32, u32)) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.settle(now, is_settled, packets);
        }
    }

    /// Everything in flight counts as lost: credits begin anew.
    pub(crate) fn refill(&mut self) {
        if let SchemeState::Credit(state) = &mut self.scheme {
            state.refill();
        }
    }

    /// The rate at which packets may leave, in bits per second. `None` for schemes that set a window alone.
    pub(crate) fn pace(&self) -> Option<BitsPerSecond> {
        match &self.scheme {
            SchemeState::Dcqcn(state) => Some(BitsPerSecond(state.pace())),
            _ => None,
        }
    }

    /// No packet may be sent before this.
    pub(crate) fn next_send(&self) -> u64 {
        match &self.scheme {
            SchemeState::Dcqcn(state) => state.next_send,
            _ => 0,
        }
    }
}
