// SPDX-License-Identifier: Apache-2.0
//! The network of the machine that a task graph runs on.

use lightloom_engine::topology::{Ring, RingShape};
use lightloom_engine::{LinkSpec, Network, NetworkBuilder, NetworkError, Plane, Role, VertexId};
use lightloom_training::machine::{Cable, Domain, Machine};

/// The plane of the high-bandwidth domain.
pub(super) const DOMAIN: Plane = Plane(0);

/// The plane of the data-centre network.
pub(super) const ACROSS: Plane = Plane(1);

/// The network of a machine, and its ranks as hosts of it.
pub(super) fn network(machine: &Machine) -> Result<(Network, Vec<VertexId>), NetworkError> {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<VertexId> = (0..machine.ranks).map(|_| builder.add(Role::Host)).collect();
    let domain_link = link(machine.ring_link, DOMAIN);
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
    join(&mut builder, &hosts, &machine.rails, link(machine.rail_link, ACROSS));
    Ok((builder.build()?, hosts))
}

fn link(cable: Cable, plane: Plane) -> LinkSpec {
    LinkSpec::new(cable.rate, cable.delay).in_plane(plane)
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
