//! All-to-all: every rank has a piece for every other.
//!
//! Pairwise exchange, as MPI libraries do it for large pieces (Thakur, Rabenseifner, Gropp, IJHPCA 2005,
//! section 4.2): in step `s` rank `r` sends to `r + s` and receives from `r - s`, and goes on when it has
//! received. Or everything at once, which leaves the order to the network.

use lightloom_fabric::units::{Bytes, SimTime};

use super::draft::Draft;
use super::{Collective, CollectiveError, Kind, part_of};
use crate::engine::{Engine, FlowId, Gate, Probe, Route, VertexId};

/// In which order the pieces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// One partner after the other.
    Pairwise,
    /// All pieces are offered to the network when the collective starts.
    AtOnce,
}

/// An all-to-all.
#[derive(Clone, Debug)]
pub struct AllToAll {
    /// The ranks.
    pub members: Vec<VertexId>,
    /// What each rank has for all ranks together, itself included.
    pub size: Bytes,
    /// The order of pieces.
    pub exchange: Exchange,
    /// How flows find their way.
    pub route: Route,
    /// Not before this.
    pub start: SimTime,
}

impl AllToAll {
    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// Fewer than two ranks, or flows that the engine refuses.
    pub fn start<P: Probe>(&self, engine: &mut Engine<P>) -> Result<Collective, CollectiveError> {
        let ranks = self.members.len();
        let mut draft = Draft::new(engine, &self.members, &self.route, self.start)?;
        let piece = part_of(self.size, ranks as u64);
        let mut incoming: Vec<Option<FlowId>> = vec![None; ranks];
        for step in 1..ranks {
            let mut next = vec![None; ranks];
            for (rank, received) in incoming.into_iter().enumerate() {
                let waits = match self.exchange {
                    Exchange::Pairwise => received,
                    Exchange::AtOnce => None,
                };
                let gates = waits.map(Gate::after).into_iter().collect();
                let to = (rank + step) % ranks;
                next[to] = Some(draft.flow((rank, to), (piece, 1), gates)?);
            }
            incoming = next;
        }
        Ok(draft.finish(Kind::AllToAll, self.size))
    }
}
