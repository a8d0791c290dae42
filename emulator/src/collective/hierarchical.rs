//! All-reduce over several groups: reduce-scatter inside each group, all-reduce of each share between
//! the groups, all-gather inside.
//!
//! ```text
//!   group 0:  r0 r1 r2 r3   ── reduce-scatter ──▶ share 0..3 ┐         ┌─ all-gather ──▶ everything
//!   group 1:  r0 r1 r2 r3   ── reduce-scatter ──▶ share 0..3 ┴ rings of ┴─ all-gather ──▶ everything
//!             (fast domain)                                   equal rank
//!                                                             (data-centre network)
//! ```
//! A rank goes on as soon as it has what it needs; nobody waits for a whole phase of all.

use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::ring::{Directions, RingCollective};
use super::{Collective, CollectiveError, Kind, part_of};
use lightloom_engine::{Engine, FlowId, Probe, Route, VertexId};

/// An all-reduce over groups of equal size.
#[derive(Clone, Debug)]
pub struct Hierarchical {
    /// The ranks of each group in ring order.
    pub groups: Vec<Vec<VertexId>>,
    /// What each rank has before and after.
    pub size: Bytes,
    /// How flows find their way inside a group.
    pub inside: Route,
    /// How flows find their way between groups.
    pub between: Route,
    /// The priority of all flows at switches with real queues.
    pub priority: u8,
    /// Not before this.
    pub start: SimTime,
}

impl Hierarchical {
    /// Adds the collective's flows to `engine`.
    ///
    /// # Errors
    /// Fewer than two groups or two ranks in a group, groups of different size, or flows that the
    /// engine refuses.
    pub fn start<P: Probe>(&self, engine: &mut Engine<P>) -> Result<Collective, CollectiveError> {
        let ranks = self.check()?;
        let batch = engine.add_batch();
        let mut flows = Vec::new();
        let nobody = vec![Vec::new(); ranks];
        let mut ideal = [Picoseconds::ZERO; 3];
        // By group and rank: the flows that bring it what the next phase needs.
        let mut done: Vec<Vec<Vec<FlowId>>> = Vec::new();
        for members in &self.groups {
            let ring = self.inner(Kind::ReduceScatter, members);
            let laid = ring.lay_out(engine, batch, &nobody)?;
            ideal[0] = ideal[0].max(laid.ideal);
            flows.extend(laid.flows);
            done.push(laid.into);
        }
        for rank in 0..ranks {
            let ring = RingCollective {
                kind: Kind::AllReduce,
                members: self.groups.iter().map(|members| members[rank]).collect(),
                size: part_of(self.size, ranks as u64),
                directions: Directions::One,
                route: self.between.clone(),
                priority: self.priority,
                start: self.start,
            };
            let waits: Vec<_> = done.iter().map(|group| group[rank].clone()).collect();
            let laid = ring.lay_out(engine, batch, &waits)?;
            ideal[1] = ideal[1].max(laid.ideal);
            flows.extend(laid.flows);
            for (group, into) in laid.into.into_iter().enumerate() {
                done[group][rank] = into;
            }
        }
        for (members, waits) in self.groups.iter().zip(&done) {
            let laid = self.inner(Kind::AllGather, members).lay_out(engine, batch, waits)?;
            ideal[2] = ideal[2].max(laid.ideal);
            flows.extend(laid.flows);
        }
        Ok(Collective {
            kind: Kind::AllReduce,
            ranks: ranks * self.groups.len(),
            size: self.size,
            start: self.start,
            ideal: ideal.into_iter().sum(),
            batch,
            flows,
        })
    }

    fn check(&self) -> Result<usize, CollectiveError> {
        let expected = self.groups.first().map_or(0, Vec::len);
        if self.groups.len() < 2 {
            return Err(CollectiveError::TooFewRanks { ranks: self.groups.len() });
        }
        match self.groups.iter().position(|members| members.len() != expected) {
            Some(group) => {
                let ranks = self.groups[group].len();
                Err(CollectiveError::UnequalGroups { group, ranks, expected })
            }
            None => Ok(expected),
        }
    }

    fn inner(&self, kind: Kind, members: &[VertexId]) -> RingCollective {
        RingCollective {
            kind,
            members: members.to_vec(),
            size: self.size,
            directions: Directions::Both,
            route: self.inside.clone(),
            priority: self.priority,
            start: self.start,
        }
    }
}
