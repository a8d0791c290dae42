//! The machine that a task graph runs on: ranks in rings or under switches, and rails between them.

use lightloom_engine::topology::{Ring, RingShape};
use lightloom_engine::{LinkSpec, Network, NetworkBuilder, NetworkError, Plane, Role, VertexId};

/// The plane of the high-bandwidth domain.
pub(super) const DOMAIN: Plane = Plane(0);

/// The plane of the data-centre network.
pub(super) const ACROSS: Plane = Plane(1);

/// Ranks in rings, and a switch that joins ranks.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many ranks there are.
    pub ranks: u32,
    /// The ranks of each ring of the high-bandwidth domain, in order; each rank in at most one.
    pub rings: Vec<Vec<u32>>,
    /// What the rings are made of.
    pub domain: Domain,
    /// A cable of a ring, or of a rank to the switch of its domain.
    pub ring_link: LinkSpec,
    /// Sets of ranks under one switch of the data-centre network each (rails).
    pub rails: Vec<Vec<u32>>,
    /// A cable to that switch.
    pub rail_link: LinkSpec,
    /// How much more than its share the first rank of an all-to-all gets from the others: 0.2 is 20 %.
    pub expert_imbalance: f64,
}

/// What joins the ranks of a high-bandwidth domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Cables between neighbours of a ring, half of a rank's rate each; two ranks have both cables between them.
    Cables,
    /// A switch for each of these sets of ranks, a cable of each rank to it. All-to-alls and other
    /// exchange between ranks of one set run over it, too.
    Switches {
        /// The ranks of each domain.
        groups: Vec<Vec<u32>>,
    },
}

impl Machine {
    /// Its network, and its ranks as hosts of it.
    pub(super) fn network(&self) -> Result<(Network, Vec<VertexId>), NetworkError> {
        let mut builder = NetworkBuilder::new();
        let hosts: Vec<VertexId> = (0..self.ranks).map(|_| builder.add(Role::Host)).collect();
        let domain_link = self.ring_link.in_plane(DOMAIN);
        match &self.domain {
            Domain::Cables => {
                for ring in &self.rings {
                    let members: Vec<VertexId> =
                        ring.iter().map(|rank| hosts[*rank as usize]).collect();
                    let mut link = domain_link;
                    let shape = if ring.len() > 2 { RingShape::Ring } else { RingShape::Line };
                    if ring.len() == 2 {
                        link.rate.0 *= 2;
                    }
                    Ring::build_into(&mut builder, &members, shape, |_| link);
                }
            }
            Domain::Switches { groups } => join(&mut builder, &hosts, groups, domain_link),
        }
        join(&mut builder, &hosts, &self.rails, self.rail_link.in_plane(ACROSS));
        Ok((builder.build()?, hosts))
    }

    /// By rank: its ring.
    pub(super) fn ring_of(&self) -> Vec<Option<u32>> {
        set_of(self.ranks, &self.rings)
    }

    /// By rank: the switch of its domain.
    pub(super) fn domain_of(&self) -> Vec<Option<u32>> {
        match &self.domain {
            Domain::Cables => vec![None; self.ranks as usize],
            Domain::Switches { groups } => set_of(self.ranks, groups),
        }
    }
}

/// Adds a switch for each set of ranks, and a cable of each rank to it.
fn join(builder: &mut NetworkBuilder, hosts: &[VertexId], sets: &[Vec<u32>], link: LinkSpec) {
    for ranks in sets {
        let switch = builder.add(Role::Switch);
        for rank in ranks {
            builder.connect(hosts[*rank as usize], switch, link);
        }
    }
}

/// The place of the set that each rank is in.
fn set_of(ranks: u32, sets: &[Vec<u32>]) -> Vec<Option<u32>> {
    let mut of = vec![None; ranks as usize];
    for (index, set) in sets.iter().enumerate() {
        for rank in set {
            if let Some(place) = of.get_mut(*rank as usize) {
                *place = Some(index as u32);
            }
        }
    }
    of
}
