// SPDX-License-Identifier: Apache-2.0
//! Some flows without order among them: permutations, incasts, files of flows.

use lightloom_units::{Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::{CollectiveKind, CollectiveStartError, StartedCollective};
use crate::engine::{BatchId, Engine, FlowGate, FlowId, FlowSpec, LinkId, Probe, wire_time};
use crate::steady::Stage;

/// What a flow of a bag waits for, by their places in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BagWait {
    /// The flow that waits.
    pub flow: usize,
    /// The flow waited for.
    pub awaited: usize,
    /// Until its data is acknowledged, at the host where both begin; otherwise until it is received, at the host
    /// where the one ends and the other begins.
    pub acknowledged: bool,
}

/// Adds `flows` as one batch, with a lower bound of its time on these paths from the start of the first:
/// the longest flow alone, or the link before or after a host that has the most to carry.
///
/// # Errors
/// Flows that the engine refuses.
pub fn start_bag<S: Stage>(
    stage: &mut S,
    specs: Vec<FlowSpec>,
) -> Result<StartedCollective, CollectiveStartError> {
    let (mut bag, alone) = add_bag(stage, specs)?;
    bag.ideal = bag.ideal.max(longest_chain(&alone, &[]));
    Ok(bag)
}

/// Adds flows of which some wait for others, as [`start_bag`] does. Those that wait for each other in a circle never
/// begin.
///
/// # Errors
/// Flows that the engine refuses, and hosts that cannot know what they wait for.
pub fn start_ordered<P: Probe>(
    engine: &mut Engine<P>,
    specs: Vec<FlowSpec>,
    waits: &[BagWait],
) -> Result<StartedCollective, CollectiveStartError> {
    let (mut bag, alone) = add_bag(engine, specs)?;
    for wait in waits {
        let (flow, awaited) = (bag.flows[wait.flow], bag.flows[wait.awaited]);
        if wait.acknowledged {
            engine.wait_for_acknowledgements(flow, awaited)?;
        } else {
            engine.add_gate(flow, FlowGate::after(awaited))?;
        }
    }
    bag.ideal = bag.ideal.max(longest_chain(&alone, waits));
    Ok(bag)
}

/// Adds flows as one batch, with what the links next to hosts take for them; by flow, when it begins and what it takes
/// alone.
fn add_bag<S: Stage>(
    engine: &mut S,
    specs: Vec<FlowSpec>,
) -> Result<(StartedCollective, Vec<(Picoseconds, Picoseconds)>), CollectiveStartError> {
    let batch: BatchId = engine.add_batch();
    let now = engine.now();
    let start = specs.iter().map(|spec| spec.start).min().unwrap_or_default().max(now);
    let ranks = specs.len();
    let size = specs.iter().map(|spec| spec.message * u64::from(spec.messages)).sum();
    let (mut alone, mut flows) = (Vec::with_capacity(ranks), Vec::with_capacity(ranks));
    // By link next to a host: its busy time, and the earliest start of those that use it.
    let mut busy: FxHashMap<LinkId, (Picoseconds, SimTime)> = FxHashMap::default();
    for spec in specs {
        let (message, begins) = (spec.message, spec.start.max(now));
        let flow: FlowId = engine.add_flow(spec.in_batch(batch))?;
        let path = engine.path(flow);
        let (network, settings) = (engine.network(), engine.settings());
        alone.push((begins.since(start), super::alone(engine, flow, message)));
        if engine.takes_one_path(flow) {
            let ends = [path[0], path[path.len() - 1]];
            for end in ends.into_iter().take(path.len()) {
                let (sum, first) = busy.entry(end).or_insert((Picoseconds::ZERO, begins));
                *sum += wire_time(network, &settings.transport, &[end], message);
                *first = begins.min(*first);
            }
        }
        flows.push(flow);
    }
    let most = busy.values().map(|(sum, first)| first.since(start) + *sum).max();
    let interface = most.unwrap_or_default();
    let (kind, ideal) = (CollectiveKind::Flows, interface);
    Ok((StartedCollective { kind, ranks, size, start, ideal, interface, batch, flows }, alone))
}

/// When the last flow ends if each is alone: flows begin when those they wait for have ended, and last so long.
fn longest_chain(alone: &[(Picoseconds, Picoseconds)], waits: &[BagWait]) -> Picoseconds {
    let mut awaited_by = vec![Vec::new(); alone.len()];
    let mut open = vec![0_usize; alone.len()];
    for wait in waits {
        awaited_by[wait.awaited].push(wait.flow);
        open[wait.flow] += 1;
    }
    let mut begins: Vec<Picoseconds> = alone.iter().map(|(begin, _)| *begin).collect();
    let mut ready: Vec<usize> = (0..alone.len()).filter(|flow| open[*flow] == 0).collect();
    let mut longest = Picoseconds::ZERO;
    while let Some(flow) = ready.pop() {
        let end = begins[flow] + alone[flow].1;
        longest = longest.max(end);
        for &waiting in &awaited_by[flow] {
            begins[waiting] = begins[waiting].max(end);
            open[waiting] -= 1;
            if open[waiting] == 0 {
                ready.push(waiting);
            }
        }
    }
    longest
}
