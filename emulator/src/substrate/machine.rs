// SPDX-License-Identifier: Apache-2.0
//! A machine for a single step: ranks in rings or under switches, with rails between them.

use lightloom_engine::topology::{Ring, RingShape};
use lightloom_engine::{
    LinkSpec, Network, NetworkBuilder, NetworkError, Plane, Route, VertexId, VertexRole,
};
use lightloom_training::graph::TaskWork;
use lightloom_training::machine::{Cable, Domain, Machine};
use lightloom_units::Picoseconds;

use super::{DCN, HBD, Substrate};

/// Domains in which the ranks of a machine communicate.
#[derive(Clone, Debug)]
pub struct Domains {
    ring_of: Vec<Option<u32>>,
    domain_of: Vec<Option<u32>>,
    pub(crate) cables: [Picoseconds; 2],
    pub(crate) are_wired: bool,
    pub(crate) imbalance: f64,
}

/// Builds a machine with ranks as hosts.
pub fn of_machine(machine: &Machine) -> Result<Substrate, NetworkError> {
    let (network, hosts) = lay_out(machine)?;
    let are_wired = machine.domain == Domain::Cables;
    let hops = if are_wired { 1 } else { 2 };
    let domains = Domains {
        cables: [machine.ring_link.delay * hops, machine.rail_link.delay * 2],
        ring_of: machine.ring_of(),
        domain_of: machine.domain_of(),
        are_wired,
        imbalance: machine.expert_imbalance,
    };
    let route = Route::Within(DCN);
    Ok(Substrate { route, domains: Some(domains), ..Substrate::plain(network, hosts) })
}

impl Domains {
    /// Applies only to domain switches, because cables between neighbours carry only ring traffic.
    pub(crate) fn is_inside(&self, ranks: &[u32]) -> bool {
        let mut domains = ranks.iter().map(|rank| self.domain_of[*rank as usize]);
        let first = domains.next().flatten();
        first.is_some() && domains.all(|domain| domain == first)
    }

    pub(crate) fn domain(&self, rank: u32) -> Option<u32> {
        self.domain_of.get(rank as usize).copied().flatten()
    }

    pub(crate) fn rings_under(&self, work: &TaskWork) -> Vec<u32> {
        if let TaskWork::Ring { ring, .. } = work {
            return vec![*ring];
        }
        let ranks = work.members(&[]);
        let rings = ranks.iter().filter(|rank: &&u32| {
            ranks.iter().any(|other| other != *rank && self.is_inside(&[**rank, *other]))
        });
        let mut rings: Vec<u32> = rings.filter_map(|rank| self.ring_of[*rank as usize]).collect();
        rings.sort_unstable();
        rings.dedup();
        rings
    }
}

fn lay_out(machine: &Machine) -> Result<(Network, Vec<VertexId>), NetworkError> {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<VertexId> = (0..machine.ranks).map(|_| builder.add(VertexRole::Host)).collect();
    let domain_link = link(machine.ring_link, HBD);
    match &machine.domain {
        Domain::Cables => {
            for ring in &machine.rings {
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
    join(&mut builder, &hosts, &machine.rails, link(machine.rail_link, DCN));
    Ok((builder.build()?, hosts))
}

fn link(cable: Cable, plane: Plane) -> LinkSpec {
    LinkSpec::new(cable.rate, cable.delay).in_plane(plane)
}

fn join(builder: &mut NetworkBuilder, hosts: &[VertexId], sets: &[Vec<u32>], link: LinkSpec) {
    for ranks in sets {
        let switch = builder.add(VertexRole::Switch);
        for rank in ranks {
            builder.connect(hosts[*rank as usize], switch, link);
        }
    }
}
