// SPDX-License-Identifier: Apache-2.0
//! Adaptive routing: switches that choose the port with the least backlog.
//!
//! Backlogs depend on earlier choices, so all arrivals at a vertex are processed in chronological order.

use crate::engine::marking::mix;
use crate::engine::packet::Packet;
use crate::engine::port::Port;
use crate::engine::routes::{NextHop, Routes};

/// Draws one of the ports whose `backlog` is close to the smallest. Ports that lead nowhere are the last resort.
#[inline]
pub(super) fn step(
    routes: &Routes,
    now: u64,
    packet: Packet,
    backlog: impl Fn(u32) -> Backlog,
) -> (u32, Packet) {
    let cursor = packet.cursor();
    let count = match routes.next(cursor) {
        NextHop::Port(place) => return (place, packet.advanced()),
        NextHop::Choice(count) => count,
    };
    let stands = |number: u32| match routes.leads_on(cursor, number) {
        true => backlog(routes.option(cursor, number).0),
        false => Backlog { time: DOWN, packet: 0 },
    };
    let least = (0..count).map(|number| stands(number).time).min().unwrap_or_default();
    let equal = || (0..count).filter(|number| stands(*number).is_about(least));
    let seed = u64::from(routes.salt(cursor)) << 32 | u64::from(packet.sequence());
    let drawn = u128::from(mix(seed.wrapping_add(now))) * equal().count() as u128;
    let number = equal().nth((drawn >> 64) as usize).expect("at least one option is available");
    let (place, rest) = routes.option(cursor, number);
    (place, packet.led_to(rest))
}

/// Queues that differ by at most this many packets are treated as equal, as with quantized queue
/// lengths. Otherwise a busy switch's periodic flows would keep choosing the same port.
const ABOUT: u64 = 8;
const DOWN: u64 = u64::MAX / 2;

#[derive(Clone, Copy)]
pub(super) struct Backlog {
    time: u64,
    packet: u64,
}

impl Backlog {
    #[inline(always)]
    pub(super) fn of(port: &Port, time: impl FnOnce() -> u64) -> Self {
        Self { time: if port.up { time() } else { DOWN }, packet: port.packet_time() }
    }

    #[inline(always)]
    fn is_about(self, least: u64) -> bool {
        self.time <= least + ABOUT * self.packet
    }
}

#[inline]
pub(super) fn backlog(port: &Port, now: u64) -> Backlog {
    Backlog::of(port, || port.free.saturating_sub(now))
}
