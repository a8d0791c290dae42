//! How long a message takes when nobody is in its way: the closed form beside every measured time.

use lightloom_fabric::units::{Bytes, Picoseconds};

use crate::engine::{LinkId, Network};
use crate::transport::Transport;

/// From the moment a message may be sent to the arrival of its last byte, over an idle path whose
/// window does not hold it up.
///
/// Packets are stored and forwarded. Of `k` full packets that take `f_h` on hop `h`, the last has left
/// hop `h` at `Σ f + (k-1)·max f + Σ delay`, sums and maximum over the hops so far: a line of servers
/// with fixed service times. The last packet may be short and follows the one before it.
///
/// # Panics
/// If the path is empty.
#[must_use]
pub fn message_time(
    network: &Network,
    transport: &Transport,
    path: &[LinkId],
    message: Bytes,
) -> Picoseconds {
    assert!(!path.is_empty(), "a path has links");
    let full_packets = transport.packets_for(message) - 1;
    let last_size = transport.last_packet(message);
    let (mut sum, mut slowest, mut delays) = (0, 0, 0);
    let mut last = 0;
    for link in path.iter().map(|link| network.link(*link).spec) {
        let full = link.rate.time_for(transport.packet()).get();
        sum += full;
        slowest = slowest.max(full);
        let before = match full_packets {
            0 => 0,
            packets => sum + (packets - 1) * slowest + delays,
        };
        last = before.max(last) + link.rate.time_for(last_size).get() + link.delay.get();
        delays += link.delay.get();
    }
    Picoseconds(last)
}

/// How long a message occupies the slowest link of a path.
#[must_use]
pub fn wire_time(
    network: &Network,
    transport: &Transport,
    path: &[LinkId],
    message: Bytes,
) -> Picoseconds {
    let occupies = |link: &LinkId| {
        let rate = network.link(*link).spec.rate;
        let full = rate.time_for(transport.packet()) * (transport.packets_for(message) - 1);
        full + rate.time_for(transport.last_packet(message))
    };
    path.iter().map(occupies).max().unwrap_or_default()
}
