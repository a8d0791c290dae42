//! From the collectives of a scenario to those of the engine.

use lightloom_units::{Picoseconds, SimTime};

use super::installed::{DCN, HBD};
use super::{Collective, Kind};
use crate::collective::{self, CollectiveError, Directions, Hierarchical, RingCollective};
use lightloom_engine::steady::Stage;
use lightloom_engine::{Engine, Probe, Route, VertexId};

/// A collective under way: one for a group, or one for each rank between groups.
pub(super) struct Running {
    pub(super) parts: Vec<collective::Collective>,
    /// Parts that have not ended.
    pub(super) open: usize,
    /// The closed form of the undisturbed collective.
    pub(super) ideal: Picoseconds,
}

impl Running {
    fn of(parts: Vec<collective::Collective>) -> Self {
        let ideal = parts.iter().map(|part| part.ideal).max().unwrap_or_default();
        Self { open: parts.len(), parts, ideal }
    }
}

/// NCCL's factor from algorithm to bus bandwidth over so many ranks.
pub(super) fn bus_factor(kind: Kind, ranks: u32) -> f64 {
    kind.of_group().unwrap_or(collective::Kind::AllReduce).bus_factor(ranks as usize)
}

/// Begins a collective on the ring of one group, now.
pub(super) fn start_ring<S: Stage>(
    engine: &mut S,
    collective: &Collective,
    members: Vec<VertexId>,
) -> Result<Running, CollectiveError> {
    let ring = RingCollective {
        kind: collective.kind.of_group().expect("a collective of one group"),
        members,
        size: collective.bytes,
        directions: collective.directions,
        route: Route::Within(HBD),
        priority: collective.priority,
        start: engine.now(),
    };
    Ok(Running::of(vec![ring.start(engine)?]))
}

/// Begins an all-reduce between equal ranks of `groups`, now.
///
/// Groups are taken in sets of `per_set`, the nodes under a ToR: first inside each set, then between
/// sets. Where they do not fill whole sets, or there is one set only, it is one flat ring.
pub(super) fn start_between<P: Probe>(
    engine: &mut Engine<P>,
    collective: &Collective,
    groups: &[Vec<VertexId>],
    per_set: usize,
) -> Result<Running, CollectiveError> {
    let start = engine.now();
    let ranks = groups.first().map_or(0, Vec::len);
    let sets_fit = per_set > 1 && groups.len().is_multiple_of(per_set) && groups.len() > per_set;
    let mut parts = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let peers: Vec<VertexId> = groups.iter().map(|group| group[rank]).collect();
        let part = if sets_fit {
            let groups = peers.chunks(per_set).map(<[VertexId]>::to_vec).collect();
            let (inside, between) = (Route::Within(DCN), Route::Within(DCN));
            let (size, priority) = (collective.bytes, collective.priority);
            Hierarchical { groups, size, inside, between, priority, start }.start(engine)?
        } else {
            flat(collective, peers, start).start(engine)?
        };
        parts.push(part);
    }
    Ok(Running::of(parts))
}

fn flat(collective: &Collective, members: Vec<VertexId>, start: SimTime) -> RingCollective {
    RingCollective {
        kind: collective::Kind::AllReduce,
        members,
        size: collective.bytes,
        directions: Directions::Both,
        route: Route::Within(DCN),
        priority: collective.priority,
        start,
    }
}
