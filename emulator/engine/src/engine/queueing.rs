// SPDX-License-Identifier: Apache-2.0
//! What switches with real queues are set to: priorities, one buffer for all ports, pauses, trimming.
//!
//! Without it a switch has one first-in first-out queue a port, whose departures are known on
//! arrival (see `port`), which is faster.

use lightloom_units::Bytes;

/// How many priorities there are: 0 to 6 for data, 7 for acknowledgements and trimmed packets.
pub const PRIORITIES: usize = 8;

/// The priority of acknowledgements and trimmed packets: sent before all others, never paused.
pub const CONTROL_PRIORITY: u8 = 7;

/// A pause frame on the wire (IEEE Std 802.3-2022, annex 31D: the shortest frame).
pub const PAUSE_FRAME: Bytes = Bytes(64);

/// How a switch queues.
///
/// A port has one queue a priority. [`LinkSpec::queue`](super::LinkSpec) bounds each of them, and
/// [`LinkSpec::mark_from`](super::LinkSpec) marks by each, both without the packet being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    /// Whose turn it is at a port.
    pub schedule: Schedule,
    /// One buffer for all ports; nothing: as much as the queues hold.
    pub buffer: Option<Buffer>,
    /// Priority flow control; nothing: no queue is ever paused.
    pub pause: Option<Pause>,
    /// Cuts data that finds no room to its header and sends that with the control priority, so that
    /// the receiver can ask for it (Handley et al.: "Re-architecting datacenter networks and stacks
    /// for low latency and high performance", SIGCOMM 2017; Ultra Ethernet 1.0 packet trimming).
    pub trim: bool,
}

/// Which priority sends next. The control priority always goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The highest first.
    #[default]
    Strict,
    /// Shares by weight: deficit round robin (Shreedhar, Varghese: "Efficient fair queueing using
    /// deficit round-robin", SIGCOMM 1995). A weight is what a priority may send a round, in bytes;
    /// a weight of 0 counts as 1.
    Weighted([u32; PRIORITIES]),
}

/// One buffer for all ports of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// All of it.
    pub size: Bytes,
    /// A queue may grow to so many percent of what is free (dynamic thresholds: Choudhury, Hahne,
    /// IEEE/ACM Transactions on Networking 6(2), 1998). Paused priorities may use all of it.
    pub alpha_percent: u32,
}

/// Priority flow control (IEEE Std 802.1Q-2022, clause 36): what has come in by a port and not left
/// yet is counted by priority; beyond a bound the sender is asked to pause, below it to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Bit p: priority p is lossless. The control priority is never paused.
    pub priorities: u8,
    /// Pause when more than this has come in and not left.
    pub pause_above: Bytes,
    /// Go on when it has fallen to this.
    pub resume_at: Bytes,
    /// Room beyond `pause_above` for what is under way until the sender has stopped. What finds
    /// that full is dropped: the headroom was too small.
    pub headroom: Bytes,
}

impl Pause {
    /// The room that a link needs: what its sender puts on it until a pause has come through and
    /// the packet then being sent is out. The packet that crosses the bound, a round trip of the wire,
    /// the pause frame behind the packet that holds its port, and the sender's last packet.
    #[must_use]
    pub fn headroom_for(link: &super::LinkSpec, packet: Bytes) -> Bytes {
        let wire = u128::from(link.delay.get()) * 2 * u128::from(link.rate.0);
        let on_the_wire = wire.div_ceil(8 * 1_000_000_000_000) as u64;
        Bytes(on_the_wire) + packet * 3 + PAUSE_FRAME
    }
}
