// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};
use rand::Rng;

use super::Engine;
use crate::engine::control::{Act, BitErrors, Event, LinkChange, PacketLoss};
use crate::engine::layout::Place;
use crate::engine::network::LinkId;
use crate::engine::port::Port;
use crate::engine::probe::Probe;
use crate::engine::queueing::CONTROL_PRIORITY;

impl<P: Probe> Engine<P> {
    /// Changes take effect before all packets at that instant. A time in the past means now.
    pub fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        let act = match change {
            LinkChange::Down => Act::LinkDown(link),
            LinkChange::Up => Act::LinkUp(link),
            LinkChange::Rate(rate) => Act::LinkRate(link, rate),
            LinkChange::BitErrors(errors) => Act::LinkErrors(link, errors),
            LinkChange::PacketLoss(loss) => Act::LinkLoss(link, loss),
            LinkChange::Jitter(most) => Act::LinkJitter(link, most),
            LinkChange::Healthy => Act::LinkHealthy(link),
            LinkChange::Paused(priorities) => Act::LinkPaused(link, priorities),
        };
        self.control.plan(at.max(self.now), act);
    }

    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.router.is_up(link)
    }

    pub(super) fn perform(&mut self, at: SimTime, act: Act) -> Option<Event> {
        match act {
            Act::Timer(token) => Some(Event::Timer { at, token }),
            Act::BatchDone(batch, at) => Some(Event::BatchDone { batch, at }),
            Act::LinkDown(link) => {
                self.set_link(link, false);
                None
            }
            Act::LinkUp(link) => {
                self.set_link(link, true);
                None
            }
            Act::LinkRate(link, rate) => {
                self.set_rate(link, rate);
                None
            }
            Act::LinkErrors(link, errors) => {
                self.set_errors(link, errors);
                None
            }
            Act::LinkLoss(link, loss) => {
                self.set_loss(link, loss);
                None
            }
            Act::LinkJitter(link, most) => {
                self.set_jitter(link, most);
                None
            }
            Act::LinkPaused(link, priorities) => {
                self.set_paused(link, priorities);
                None
            }
            Act::LinkNews => {
                self.hear_news();
                None
            }
            Act::LinkHealthy(link) => {
                self.set_rate(link, self.network.link(link).spec.rate);
                self.set_errors(link, BitErrors(0));
                self.set_loss(link, PacketLoss(0));
                self.set_jitter(link, Picoseconds::ZERO);
                None
            }
        }
    }

    fn port_of(&mut self, link: LinkId) -> &mut Port {
        let Place { shard, index } = self.layout.ports[link.index()];
        &mut self.shards[shard as usize].ports[index as usize]
    }

    fn set_rate(&mut self, link: LinkId, rate: BitsPerSecond) {
        let mut wanted = *self.network.link(link);
        wanted.spec.rate = rate;
        let (role, settings) = (self.network.role(wanted.from), self.settings);
        self.receive();
        let now = self.now.0;
        let change = self.port_of(link).take_rate((link, &wanted), role, &settings, now);
        let (port, wire) = (self.layout.ports[link.index()], self.layout.wires[link.index()]);
        self.shards[wire.shard as usize].wire_rates[wire.index as usize] = rate;
        let vertex = self.layout.vertices[wanted.from.index()].index;
        if self.shards[port.shard as usize].switches[vertex as usize].is_some() {
            let until = self.sends_until(link);
            return change.settle_queued(self.port_of(link), until);
        }
        let far = &mut self.shards[wire.shard as usize];
        let mut on_wire = std::mem::take(&mut far.wires[wire.index as usize].queue);
        let dropped = change.settle(self.port_of(link), &mut on_wire);
        self.shards[wire.shard as usize].put_on_wire(wire.index, on_wire, now);
        let shard = &mut self.shards[port.shard as usize];
        shard.counts[port.index as usize].dropped += dropped;
        shard.wake(vertex, now);
    }

    fn set_paused(&mut self, link: LinkId, priorities: u8) {
        if priorities != 0 {
            let Place { shard, index } = self.layout.ports[link.index()];
            let (now, shard) = (self.now.0, &mut self.shards[shard as usize]);
            let paused = &mut shard.ports[index as usize].paused;
            let before = *paused;
            *paused |= priorities & !(1 << CONTROL_PRIORITY);
            shard.counts[index as usize].note_paused((before, *paused), now);
            return;
        }
        let Place { shard, index } = self.layout.ports[link.index()];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index;
        self.receive();
        let shard = &mut self.shards[shard as usize];
        shard.forget_pauses(&self.shared, vertex, index, self.now.0);
        self.exchange();
    }

    fn receive(&mut self) {
        let now = self.now.0;
        self.shards.iter_mut().for_each(|shard| shard.receive(now));
    }

    fn set_errors(&mut self, link: LinkId, errors: BitErrors) {
        let salt = self.salt("bit errors", link);
        self.port_of(link).take_errors(errors.0, salt);
    }

    fn set_loss(&mut self, link: LinkId, loss: PacketLoss) {
        let salt = self.salt("bit errors", link);
        self.port_of(link).take_loss(loss.0, salt);
    }

    fn set_jitter(&mut self, link: LinkId, most: Picoseconds) {
        let (salt, now) = (self.salt("jitter", link), self.now.0);
        self.port_of(link).take_jitter(most.get(), salt, now);
    }

    fn salt(&self, what: &str, link: LinkId) -> u64 {
        self.settings.seed.stream(what, u64::from(link.0)).next_u64()
    }

    fn set_link(&mut self, link: LinkId, up: bool) {
        if self.router.is_up(link) == up {
            return;
        }
        self.router.set_up(link, up);
        self.plan_news();
        self.receive();
        let (port, wire) = (self.layout.ports[link.index()], self.layout.wires[link.index()]);
        let lost = if up { 0 } else { self.shards[wire.shard as usize].cut_wire(wire.index) };
        let far = self.layout.vertices[self.network.link(link).to.index()];
        let shard = &mut self.shards[port.shard as usize];
        shard.ports[port.index as usize].restart(up, self.now.0);
        shard.counts[port.index as usize].lost += lost;
        let from = self.layout.vertices[self.network.link(link).from.index()];
        shard.cut_port(&self.shared, from.index, port.index, self.now.0);
        let back = self.layout.ports[link.reverse().index()];
        self.shards[far.shard as usize].forget_pauses(
            &self.shared,
            far.index,
            back.index,
            self.now.0,
        );
        let shard = &mut self.shards[port.shard as usize];
        if up {
            shard.wake(from.index, self.now.0);
        } else {
            shard.leave_cut_port(&self.shared, from.index, port.index, self.now.0);
        }
        self.exchange();
    }
}
