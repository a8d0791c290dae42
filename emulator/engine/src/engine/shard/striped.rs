// SPDX-License-Identifier: Apache-2.0
//! Striped flows wait at several interfaces of their host; each takes the next packet when it is free.

use std::cmp::Reverse;

use super::Probe;
use super::interfaces::{Interface, Interfaces};
use super::stack::Stack;

impl<P: Probe, I: Interfaces> Stack<'_, P, I> {
    pub(super) fn enlist_striped(&mut self, index: u32, now: u64) {
        let sender = &mut self.senders[index as usize];
        if !sender.wants_to_send() {
            return;
        }
        let (flow, next_send) = (sender.flow, sender.next_send());
        let mut wake = u64::MAX;
        for lane in sender.lanes() {
            let rests_until = lane.rests_until().max(next_send);
            if rests_until > now {
                wake = wake.min(rests_until);
            } else if !std::mem::replace(&mut lane.enlisted, true) {
                let interface = self.interfaces.at(self.interfaces.place_of(lane.port));
                interface.ready.push_back(index);
                self.host.pull_due = self.host.pull_due.min(interface.port.free.max(now));
            }
        }
        if wake != u64::MAX && sender.plans_wake(wake) {
            self.host.starts.push(Reverse((wake, flow, index)));
        }
    }

    pub(super) fn take_striped_turn(&mut self, place: usize, turn: usize, index: u32, now: u64) {
        let sender = &mut self.senders[index as usize];
        let interfaces = &self.interfaces;
        let lane = sender.lanes().iter().position(|lane| interfaces.place_of(lane.port) == place);
        let outgoing = lane
            .filter(|lane| sender.lanes()[*lane].rests_until() <= now && sender.next_send() <= now)
            .and_then(|lane| sender.poll(now, lane));
        let next_send = sender.next_send();
        let wants = sender.wants_to_send();
        let goes_on = outgoing.is_some() && wants && next_send <= now;
        if let Some(lane) = lane {
            let lane = &mut sender.lanes()[lane];
            lane.enlisted = goes_on && lane.rests_until() <= now;
        }
        let stays = lane.is_some_and(|lane| sender.lanes()[lane].enlisted);
        let Interface { ready, .. } = self.interfaces.at(place);
        ready.remove(turn);
        if stays {
            ready.push_back(index);
        }
        if let Some(outgoing) = outgoing {
            self.send(place, index, outgoing, now);
        }
        if !stays && wants {
            self.enlist_striped(index, now);
        }
    }
}
