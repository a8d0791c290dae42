// SPDX-License-Identifier: Apache-2.0
//! Sets of flows without a collective's order: permutations, incasts and flow traces.

use lightloom_units::{Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::{CollectiveKind, CollectiveStartError, PATHS_AHEAD, StartedCollective};
use crate::engine::{BatchId, Engine, FlowGate, FlowId, FlowSpec, LinkId, Probe, wire_time};
use crate::steady::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BagWait {
    pub flow: usize,
    pub awaited: usize,
    /// If set, the flow waits until the other flow's data is acknowledged, and both flows must start at the
    /// same host. Otherwise, it waits until that data is received, and it must start where the other flow ends.
    pub acknowledged: bool,
}

/// Adds `specs` as one batch. The lower bound, counted from the first start, is the maximum of the
/// longest single flow and the busy time of the most loaded link next to a host.
pub fn start_bag<S: Stage>(
    stage: &mut S,
    specs: Vec<FlowSpec>,
) -> Result<StartedCollective, CollectiveStartError> {
    let (mut bag, alone) = add_bag(stage, specs)?;
    bag.ideal = bag.ideal.max(longest_chain(&alone, &[]));
    Ok(bag)
}

/// Flows in a dependency cycle never start. Fails if a flow's host cannot observe the event that it waits for.
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
    let mut busy: FxHashMap<LinkId, (Picoseconds, SimTime)> = FxHashMap::default();
    let mut specs = specs.into_iter();
    while !specs.as_slice().is_empty() {
        let near: Vec<FlowSpec> = specs.by_ref().take(PATHS_AHEAD).collect();
        engine.find_paths_ahead(&near.iter().collect::<Vec<_>>());
        for spec in near {
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
    }
    let most = busy.values().map(|(sum, first)| first.since(start) + *sum).max();
    let interface = most.unwrap_or_default();
    let (kind, ideal) = (CollectiveKind::Flows, interface);
    Ok((StartedCollective { kind, ranks, size, start, ideal, interface, batch, flows }, alone))
}

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
