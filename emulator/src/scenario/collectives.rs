//! From the collectives of a scenario to those of the engine.

use lightloom_collective::{self as collective, Directions, Hierarchical, Ring};
use lightloom_engine::collective::{self as running, Placement, StartError};
use lightloom_engine::steady::Stage;
use lightloom_engine::{Engine, Probe, Route, VertexId};
use lightloom_units::Picoseconds;

use super::installed::{DCN, HBD};
use super::{Collective, Kind};

/// A collective under way: one for a group, or one for each rank between groups.
pub(super) struct Running {
    pub(super) parts: Vec<running::Collective>,
    /// Parts that have not ended.
    pub(super) open: usize,
    /// The closed form of the undisturbed collective.
    pub(super) ideal: Picoseconds,
}

impl Running {
    fn of(parts: Vec<running::Collective>) -> Self {
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
) -> Result<Running, StartError> {
    let ring = Ring {
        kind: collective.kind.of_group().expect("a collective of one group"),
        ranks: members.len(),
        size: collective.bytes,
        directions: collective.directions,
    };
    let placement = Placement::new(members, Route::Within(HBD))
        .at(engine.now())
        .in_priority(collective.priority);
    Ok(Running::of(vec![placement.start(&ring.schedule()?, engine)?]))
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
) -> Result<Running, StartError> {
    let (now, size) = (engine.now(), collective.bytes);
    let ranks = groups.first().map_or(0, Vec::len);
    let sets_fit = per_set > 1 && groups.len().is_multiple_of(per_set) && groups.len() > per_set;
    let mut parts = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let peers: Vec<VertexId> = groups.iter().map(|group| group[rank]).collect();
        let schedule = if sets_fit {
            Hierarchical { groups: vec![per_set; peers.len() / per_set], size }.schedule()?
        } else {
            let (kind, directions) = (collective::Kind::AllReduce, Directions::Both);
            Ring { kind, ranks: peers.len(), size, directions }.schedule()?
        };
        let placement =
            Placement::new(peers, Route::Within(DCN)).at(now).in_priority(collective.priority);
        parts.push(placement.start(&schedule, engine)?);
    }
    Ok(Running::of(parts))
}
