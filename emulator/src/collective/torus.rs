//! All-reduce on a torus along all its dimensions at once.
//!
//! ```text
//!   share 0:  ⇄x  ⇄y  ⇄z  reduce-scatter, then  ⇄z  ⇄y  ⇄x  all-gather
//!   share 1:  ⇄y  ⇄z  ⇄x                        ⇄x  ⇄z  ⇄y       every dimension is busy with
//!   share 2:  ⇄z  ⇄x  ⇄y                        ⇄y  ⇄x  ⇄z       another share all the time
//! ```
//! The data is cut into as many shares as there are dimensions; each goes through them in its own order,
//! on the rings along them, both ways (the multi-ring all-reduce of Jain, Sabharwal, "Optimal bucket
//! algorithms for large MPI collectives on torus interconnects", ICS 2010, section 4). A rank goes on as
//! soon as it has what it needs.

use lightloom_units::{Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::ring::{Directions, RingCollective};
use super::{Collective, CollectiveError, Kind, part_of};
use lightloom_engine::{BatchId, Engine, FlowId, Probe, Route, VertexId};

/// An all-reduce along the rings of a torus.
#[derive(Clone, Debug)]
pub struct TorusAllReduce {
    /// By dimension: its rings, which together hold every rank once. All rings of a dimension are
    /// equally long; dimensions of one rank are left out.
    pub rings: Vec<Vec<Vec<VertexId>>>,
    /// What each rank has before and after.
    pub size: Bytes,
    /// How flows find their way.
    pub route: Route,
    /// Their priority at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
}

/// What has been laid out so far of one share.
struct Share {
    batch: BatchId,
    /// What a rank holds of it.
    size: Bytes,
    ideal: Picoseconds,
    flows: Vec<FlowId>,
    /// By rank: the flows that bring it what its next stage needs.
    into: FxHashMap<VertexId, Vec<FlowId>>,
}

impl TorusAllReduce {
    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// No dimension, rings of one rank, or flows that the engine refuses.
    pub fn start<P: Probe>(&self, engine: &mut Engine<P>) -> Result<Collective, CollectiveError> {
        let dimensions = self.rings.len();
        let ranks = self.rings.first().map_or(0, |rings| rings.iter().map(Vec::len).sum());
        if ranks < 2 {
            return Err(CollectiveError::TooFewRanks { ranks });
        }
        let batch = engine.add_batch();
        let (mut ideal, mut flows) = (Picoseconds::ZERO, Vec::new());
        for first in 0..dimensions {
            let size = part_of(self.size, dimensions as u64);
            let mut share = Share {
                batch,
                size,
                ideal: Picoseconds::ZERO,
                flows: Vec::new(),
                into: FxHashMap::default(),
            };
            let order: Vec<usize> = (0..dimensions).map(|d| (first + d) % dimensions).collect();
            for &dimension in &order {
                self.stage(engine, &mut share, Kind::ReduceScatter, dimension)?;
            }
            for &dimension in order.iter().rev() {
                self.stage(engine, &mut share, Kind::AllGather, dimension)?;
            }
            ideal = ideal.max(share.ideal);
            flows.extend(share.flows);
        }
        let (kind, size, start) = (Kind::AllReduce, self.size, self.start);
        Ok(Collective { kind, ranks, size, start, ideal, batch, flows })
    }

    /// Every ring of a dimension scatters what its ranks hold, or gathers it again.
    fn stage<P: Probe>(
        &self,
        engine: &mut Engine<P>,
        share: &mut Share,
        kind: Kind,
        dimension: usize,
    ) -> Result<(), CollectiveError> {
        let rings = &self.rings[dimension];
        let long = rings.first().map_or(1, Vec::len) as u64;
        let size = if kind == Kind::AllGather { share.size * long } else { share.size };
        let mut slowest = Picoseconds::ZERO;
        let mut into = FxHashMap::default();
        for members in rings {
            let waits: Vec<Vec<FlowId>> = members
                .iter()
                .map(|member| share.into.get(member).cloned().unwrap_or_default())
                .collect();
            let ring = RingCollective {
                kind,
                members: members.clone(),
                size,
                // Two ranks have one cable, which carries one direction once.
                directions: if long == 2 { Directions::One } else { Directions::Both },
                route: self.route.clone(),
                priority: self.priority,
                start: self.start,
            };
            let laid = ring.lay_out(engine, share.batch, &waits)?;
            slowest = slowest.max(laid.ideal);
            share.flows.extend(laid.flows);
            into.extend(members.iter().copied().zip(laid.into));
        }
        share.into = into;
        share.ideal += slowest;
        share.size = if kind == Kind::AllGather { size } else { part_of(size, long) };
        Ok(())
    }
}
