// SPDX-License-Identifier: Apache-2.0
//! Settings of switches with bounded queues: priorities, shared buffer, pauses and trimming.
//!
//! Without these settings, ports have one FIFO queue, which is faster (see `port`).

use lightloom_units::Bytes;

/// 0 to 6 for data, 7 for acknowledgements and trimmed packets.
pub const PRIORITIES: usize = 8;

/// Priority of acknowledgements and trimmed packets, which precede all others and are never paused.
pub const CONTROL_PRIORITY: u8 = 7;

/// IEEE Std 802.3-2022, annex 31D: the shortest frame.
pub const PAUSE_FRAME: Bytes = Bytes(64);

/// Ports have one queue per priority. [`LinkSpec::queue`](super::LinkSpec) and [`LinkSpec::mark_from`](super::LinkSpec)
/// apply to each queue and exclude the packet in transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    pub schedule: Schedule,
    /// Shared by all ports. `None` for unlimited.
    pub buffer: Option<Buffer>,
    pub pause: Option<Pause>,
    /// Trims data packets that do not fit in the queue to their headers, which travel at the control priority, so that
    /// the receiver can request the data again (Handley et al., NDP, SIGCOMM 2017; Ultra Ethernet 1.0).
    pub trim: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    #[default]
    Strict,
    /// Deficit round robin (Shreedhar, Varghese, SIGCOMM 1995), weighted in bytes per round; 0 means 1.
    Weighted([u32; PRIORITIES]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub size: Bytes,
    /// Limit of a queue as a percentage of the free buffer (dynamic thresholds: Choudhury, Hahne, IEEE/ACM
    /// Transactions on Networking 6(2), 1998). Lossless priorities may use the whole free buffer.
    pub alpha_percent: u32,
}

/// Priority flow control (IEEE Std 802.1Q-2022, clause 36): counts buffered bytes by ingress port
/// and priority, and pauses the sender above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Lossless priorities, one bit each, excluding the control priority.
    pub priorities: u8,
    pub pause_above: Bytes,
    pub resume_at: Bytes,
    /// Room for packets that arrive before the sender stops. Packets that do not fit are dropped.
    pub headroom: Bytes,
}

impl Pause {
    /// Bytes that arrive before a pause takes effect: the packet that crosses the limit, one round trip on the wire,
    /// the packet ahead of the pause frame, the frame itself, and the sender's last packet.
    pub fn headroom_for(link: &super::LinkSpec, packet: Bytes) -> Bytes {
        let wire = u128::from(link.delay.get()) * 2 * u128::from(link.rate.0);
        let on_the_wire = wire.div_ceil(8 * 1_000_000_000_000) as u64;
        Bytes(on_the_wire) + packet * 3 + PAUSE_FRAME
    }
}
