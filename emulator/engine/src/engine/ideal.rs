// SPDX-License-Identifier: Apache-2.0
//! Closed-form message times on an idle network, as a reference for simulated times.

use lightloom_units::{Bytes, Picoseconds};

use super::network::{Link, LinkId, Network};
use super::settings::EngineSettings;
use crate::transport::Transport;

/// Time until the far host has the last byte, on an idle path with a sufficient window.
///
/// Of `k` full packets that take `f_h` on hop `h`, the last leaves hop `h` at `Σ f + (k-1)·max f + Σ delay`, with sums
/// and maximum over the hops so far, because hops are servers in series with fixed service times. A short last packet
/// follows the one before it. Cut-through ([`Switching`](crate::engine::Switching)) reduces the sum, because a packet
/// starts on a hop before it has fully arrived. Panics if the path is empty.
pub fn message_time(
    network: &Network,
    settings: &EngineSettings,
    path: &[LinkId],
    message: Bytes,
) -> Picoseconds {
    assert!(!path.is_empty(), "a path has links");
    let transport = &settings.transport;
    let full_packets = transport.packets_for(message) - 1;
    let last_size = transport.last_packet(message);
    let (mut sum, mut slowest, mut delays) = (0, 0, 0);
    let (mut last, mut before_it) = (0, None);
    for id in path {
        let Link { spec: link, .. } = *network.link(*id);
        let head_start = |size| settings.head_start(network, before_it, *id, size).get();
        let full = link.rate.time_for(transport.packet()).get();
        sum += full - head_start(transport.packet());
        slowest = slowest.max(full);
        let before = match full_packets {
            0 => 0,
            packets => sum + (packets - 1) * slowest + delays,
        };
        last = before.max(last - head_start(last_size))
            + link.rate.time_for(last_size).get()
            + link.delay.get();
        delays += link.delay.get();
        before_it = Some(*id);
    }
    Picoseconds(last) + settings.host_delay
}

/// A lower bound for a sprayed message: packets queue behind each other only on the first link, and
/// a short last packet may overtake on another path. Panics if a path is empty.
pub fn soonest<'p>(
    network: &Network,
    settings: &EngineSettings,
    paths: impl IntoIterator<Item = &'p [LinkId]>,
    message: Bytes,
) -> Picoseconds {
    let transport = &settings.transport;
    let before = transport.packets_for(message) - 1;
    let short = Bytes(message.0 - before * transport.payload.0);
    let mut unlike: Vec<&[LinkId]> = paths.into_iter().collect();
    unlike.dedup_by(|one, before| network.are_alike(one, before));
    let times = unlike.iter().map(|path| {
        let alone = |size| message_time(network, settings, path, size);
        let first = network.link(path[0]).spec.rate.time_for(transport.packet());
        let last_full = before.checked_sub(1).map(|k| first * k + alone(transport.payload));
        (first * before + alone(short)).max(last_full.unwrap_or_default())
    });
    times.min().expect("every flow has a path")
}

pub fn share_of(
    network: &Network,
    transport: &Transport,
    ways: &[&[LinkId]],
    message: Bytes,
) -> Bytes {
    if ways.len() < 2 {
        return message;
    }
    let rates = ways
        .iter()
        .filter_map(|path| path.iter().map(|link| network.link(*link).spec.rate.get()).min());
    let rates: Vec<u64> = rates.collect();
    let (own, all) =
        (u128::from(rates[0]), rates.iter().map(|rate| u128::from(*rate)).sum::<u128>());
    let packets = u128::from(transport.packets_for(message));
    let share = if rates.iter().all(|rate| u128::from(*rate) == own) {
        packets.div_ceil(rates.len() as u128)
    } else {
        packets * own / all
    };
    let last = message.0 - (transport.packets_for(message) - 1) * transport.payload.0;
    Bytes((share.max(1) as u64 - 1) * transport.payload.0 + last)
}

pub fn wire_time(
    network: &Network,
    transport: &Transport,
    path: &[LinkId],
    message: Bytes,
) -> Picoseconds {
    let times = path.iter().map(|link| {
        let rate = network.link(*link).spec.rate;
        let full = rate.time_for(transport.packet()) * (transport.packets_for(message) - 1);
        full + rate.time_for(transport.last_packet(message))
    });
    times.max().unwrap_or_default()
}
