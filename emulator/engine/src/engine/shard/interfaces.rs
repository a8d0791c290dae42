// SPDX-License-Identifier: Apache-2.0
//! The ports of a host with their waiting flows. [`One`] is [`Many`] without lookups by port.

use std::collections::VecDeque;

use super::Probe;
use crate::engine::network::LinkId;
use crate::engine::packet::Packet;
use crate::engine::port::{Port, PortCount};
use crate::engine::routes::Routes;

pub(super) struct Interface<'s> {
    pub(super) port: &'s mut Port,
    pub(super) count: &'s mut PortCount,
    pub(super) link: LinkId,
    pub(super) ready: &'s mut VecDeque<u32>,
    pub(super) sent: &'s mut Vec<Packet>,
}

impl Interface<'_> {
    #[inline(always)]
    pub(super) fn transmit<P: Probe>(&mut self, now: u64, packet: Packet, probe: &mut P) {
        let sent = put(self.port, self.count, self.link, now, 0, packet, probe);
        if let Some(packet) = sent {
            self.sent.push(packet);
        }
    }
}

#[inline(always)]
pub(super) fn put<P: Probe>(
    port: &mut Port,
    count: &mut PortCount,
    link: LinkId,
    now: u64,
    head_start: u64,
    packet: Packet,
    probe: &mut P,
) -> Option<Packet> {
    if !port.up {
        count.lost += 1;
        return None;
    }
    if P::SEES_QUEUES {
        probe.queue_of(link)(port.backlog(now));
    }
    let mut sending = port.open(count);
    let sent = sending.send(now, head_start, packet);
    sending.close();
    sent
}

pub(super) trait Interfaces {
    fn count(&self) -> usize;
    fn at(&mut self, place: usize) -> Interface<'_>;
    fn place(&self, routes: &Routes, cursor: u32) -> usize;
    fn place_of(&self, port: u32) -> usize;
    fn port(&self, place: u32) -> &Port;
}

pub(super) struct One<'s>(pub(super) Interface<'s>);

impl Interfaces for One<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        1
    }
    #[inline(always)]
    fn place(&self, _: &Routes, _: u32) -> usize {
        0
    }
    #[inline(always)]
    fn at(&mut self, _: usize) -> Interface<'_> {
        let Interface { port, count, link, ready, sent } = &mut self.0;
        Interface { port, count, link: *link, ready, sent }
    }
    fn place_of(&self, _: u32) -> usize {
        0
    }
    fn port(&self, _: u32) -> &Port {
        self.0.port
    }
}

pub(super) struct Many<'s> {
    pub(super) first_port: u32,
    pub(super) ports: &'s mut [Port],
    pub(super) counts: &'s mut [PortCount],
    pub(super) links: &'s [LinkId],
    pub(super) ready: &'s mut [VecDeque<u32>],
    pub(super) sent: &'s mut [Vec<Packet>],
}

impl<'s> Many<'s> {
    pub(super) fn into_one(self) -> Result<One<'s>, Self> {
        match self {
            Self {
                ports: [port],
                counts: [count],
                links: [link],
                ready: [ready],
                sent: [sent],
                ..
            } => Ok(One(Interface { port, count, link: *link, ready, sent })),
            many => Err(many),
        }
    }
}

impl Interfaces for Many<'_> {
    fn count(&self) -> usize {
        self.ports.len()
    }
    #[inline(always)]
    fn place(&self, routes: &Routes, cursor: u32) -> usize {
        routes.place(cursor) as usize
    }
    #[inline(always)]
    fn at(&mut self, place: usize) -> Interface<'_> {
        Interface {
            port: &mut self.ports[place],
            count: &mut self.counts[place],
            link: self.links[place],
            ready: &mut self.ready[place],
            sent: &mut self.sent[place],
        }
    }
    fn place_of(&self, port: u32) -> usize {
        (port - self.first_port) as usize
    }
    fn port(&self, place: u32) -> &Port {
        &self.ports[place as usize]
    }
}
