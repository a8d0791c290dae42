//! All-reduce by recursive halving and doubling.
//!
//! Thakur, Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH",
//! IJHPCA 2005, section 4.5 (Rabenseifner's algorithm): in step `s` of log₂ N each rank exchanges half of
//! what it still cares for with the rank N/2^(s+1) away, then the same backwards with doubling sizes.

use lightloom_units::{Bytes, SimTime};

use super::draft::Draft;
use super::{Collective, CollectiveError, Kind, part_of};
use lightloom_engine::{Engine, FlowId, Gate, Probe, Route, VertexId};

/// An all-reduce by recursive halving and doubling.
#[derive(Clone, Debug)]
pub struct HalvingDoubling {
    /// The ranks; their number is a power of two.
    pub members: Vec<VertexId>,
    /// What each rank has before and after.
    pub size: Bytes,
    /// How flows find their way.
    pub route: Route,
    /// Their priority at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
}

impl HalvingDoubling {
    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// A number of ranks that is no power of two or one, or flows that the engine refuses.
    pub fn start<P: Probe>(&self, engine: &mut Engine<P>) -> Result<Collective, CollectiveError> {
        let ranks = self.members.len();
        if !ranks.is_power_of_two() {
            return Err(CollectiveError::NoPowerOfTwo { ranks });
        }
        let mut draft =
            Draft::new(engine, &self.members, (&self.route, self.priority), self.start)?;
        let steps = ranks.trailing_zeros();
        let halving = (1..=steps).map(|step| (ranks >> step, 1u64 << step));
        let schedule: Vec<_> = halving.clone().chain(halving.rev()).collect();
        let mut incoming: Vec<Option<FlowId>> = vec![None; ranks];
        for (distance, share) in schedule {
            let mut next = vec![None; ranks];
            for rank in 0..ranks {
                let gates = incoming[rank].map(Gate::after).into_iter().collect();
                let ends = (rank, rank ^ distance);
                let flow = draft.flow(ends, (part_of(self.size, share), 1), gates)?;
                next[rank ^ distance] = Some(flow);
            }
            incoming = next;
        }
        Ok(draft.finish(Kind::AllReduce, self.size))
    }
}
