//! Some flows without order among them: permutations, incasts, files of flows.

use lightloom_units::{Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::{Collective, Kind, StartError};
use crate::engine::{BatchId, Engine, FlowId, FlowSpec, LinkId, Probe, message_time, wire_time};

/// Adds `flows` as one batch, with the time that nobody can beat on these paths from the start of the
/// first: the longest flow alone, or the link before or after a host that has the most to carry.
///
/// # Errors
/// Flows that the engine refuses.
pub fn start_bag<P: Probe>(
    engine: &mut Engine<P>,
    specs: Vec<FlowSpec>,
) -> Result<Collective, StartError> {
    let batch: BatchId = engine.add_batch();
    let now = engine.now();
    let start = specs.iter().map(|spec| spec.start).min().unwrap_or_default().max(now);
    let ranks = specs.len();
    let size = specs.iter().map(|spec| spec.message * u64::from(spec.messages)).sum();
    let (mut longest, mut flows) = (Picoseconds::ZERO, Vec::with_capacity(ranks));
    // By link next to a host: its busy time, and the earliest start of those that use it.
    let mut busy: FxHashMap<LinkId, (Picoseconds, SimTime)> = FxHashMap::default();
    for spec in specs {
        let (message, begins) = (spec.message, spec.start.max(now));
        let flow: FlowId = engine.add_flow(spec.in_batch(batch))?;
        let path = engine.path(flow);
        let (network, settings) = (engine.network(), engine.settings());
        longest = longest.max(begins.since(start) + message_time(network, settings, path, message));
        if engine.paths(flow).len() == 1 {
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
    let ideal = longest.max(most.unwrap_or_default());
    Ok(Collective { kind: Kind::Flows, ranks, size, start, ideal, batch, flows })
}
