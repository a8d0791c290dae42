// SPDX-License-Identifier: Apache-2.0
//! Detects ports that pause each other in a cycle.
//!
//! A paused port waits until the switch at the far end has forwarded enough of the port's packets. If these packets
//! also wait for paused ports and the chain closes, no packet ever moves again. This is the cyclic buffer dependency
//! of Hu et al., "Deadlocks in datacenter networks: why do they form, and how to avoid them", HotNets 2016.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::Place;
use super::network::LinkId;
use super::probe::Probe;
use super::queueing::CONTROL_PRIORITY;
use super::run::Engine;
use super::switch::SwitchQueues;

type Paused = (LinkId, u8);

pub(super) fn deadlock<P: Probe>(engine: &Engine<P>) -> Option<Vec<LinkId>> {
    let resume_at = engine.settings().queueing?.pause?.resume_at.0;
    let mut stuck: BTreeMap<Paused, BTreeMap<Paused, u64>> =
        paused(engine).into_iter().map(|paused| (paused, waits_for(engine, paused))).collect();
    // Remove ports that can resume (backlog of at most `resume_at`) until only stuck ports remain.
    loop {
        let known: BTreeSet<Paused> = stuck.keys().copied().collect();
        stuck.retain(|_, waits_for| {
            waits_for.retain(|other, _| known.contains(other));
            waits_for.values().sum::<u64>() > resume_at
        });
        if stuck.len() == known.len() {
            break;
        }
    }
    let mut walk = vec![*stuck.keys().next()?];
    loop {
        let next = *stuck[walk.last()?].keys().next()?;
        if let Some(begin) = walk.iter().position(|seen| *seen == next) {
            return Some(walk[begin..].iter().map(|(link, _)| *link).collect());
        }
        walk.push(next);
    }
}

fn paused<P: Probe>(engine: &Engine<P>) -> Vec<Paused> {
    let links = (0..engine.network().links().len()).map(LinkId::from_index);
    let links = links.filter(|link| engine.port(*link).paused != 0);
    let all = links.flat_map(|link| (0..CONTROL_PRIORITY).map(move |p| (link, p)));
    all.filter(|&(link, priority)| {
        let Some((switch, place)) = switch_before(engine, link) else { return false };
        let Some((far, ingress)) = switch_before(engine, link.reverse()) else { return false };
        let paused = engine.port(link).paused & (1 << priority) != 0;
        paused && switch.has_waiting(place, priority) && far.has_asked(ingress, priority)
    })
    .collect()
}

/// Ports behind a link that hold packets received over it, with the number of bytes.
fn waits_for<P: Probe>(engine: &Engine<P>, (link, priority): Paused) -> BTreeMap<Paused, u64> {
    let Some((far, ingress)) = switch_before(engine, link.reverse()) else {
        return BTreeMap::new();
    };
    let out = engine.network().outgoing(engine.network().link(link).to);
    let held = (0u32..).zip(out).map(|(place, &next)| {
        ((next, priority), far.held(place, priority, ingress, engine.port(next)))
    });
    held.filter(|(_, bytes)| *bytes > 0).collect()
}

fn switch_before<P: Probe>(engine: &Engine<P>, link: LinkId) -> Option<(&SwitchQueues, u32)> {
    let vertex = engine.layout().vertices[engine.network().link(link).from.index()];
    let shard = &engine.shards()[vertex.shard as usize];
    let switch = shard.switches[vertex.index as usize].as_deref()?;
    let Place { index, .. } = engine.layout().ports[link.index()];
    Some((switch, index - shard.vertices[vertex.index as usize].first_port))
}
