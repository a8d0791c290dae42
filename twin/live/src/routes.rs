// SPDX-License-Identifier: Apache-2.0
//! Routes along a line of light, so that each node reaches all others in its group through the nodes in between.
//!
//! ```text
//!   n0 ── n4 ── n8 ── n12      n0: n4-light, n8-light, n12-light via n4's port
//!                              n4: n0-light via n0's port; n8-light, n12-light via n8's port
//! ```
//!
//! Routes are derived from the ranks, so a change updates only the differences between two rank
//! files. Without light, these addresses are unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::Ipv4Addr;

use nix::sched::{CloneFlags, setns};

use crate::netlink::{Kernel, RequestBatch};
use crate::nodes::inside_index;
use crate::ranks::{Group, Ranks};
use crate::record::Folder;
use crate::{Error, address, enter, link};

/// The first fibre of a route, identified by its interface and the port at its far end.
type FirstHop = (u32, Ipv4Addr);
type Ways = BTreeMap<Ipv4Addr, FirstHop>;

pub(crate) fn rewrite(folder: &Folder, old: &Ranks, new: &Ranks) -> Result<(), Error> {
    let record = folder.record()?;
    let (holder, ready) = enter::up(folder)?;
    let (old, new) = (all(old), all(new));
    let nodes: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let none = Ways::new();
    for name in nodes {
        let [old, new] = [&old, &new].map(|of| of.get(name).unwrap_or(&none).clone());
        // A node without a namespace does not forward packets.
        let Ok(node) = record.node(name) else { continue };
        let batch = difference(node, &old, &new);
        if !batch.is_empty() {
            let network = enter::network(holder, &ready, node)?;
            in_network(&network, batch)?;
        }
    }
    Ok(())
}

/// Runs a batch on a temporary thread, so that all other threads stay in their namespace.
fn in_network(network: &File, batch: RequestBatch) -> Result<(), Error> {
    let result = std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            setns(network, CloneFlags::CLONE_NEWNET)
                .map_err(Error::cannot("enter the network of a node"))?;
            Kernel::open()?.run(batch)
        });
        work.join()
    });
    result.unwrap_or_else(|_| Err(Error::Refused("a thread ended early".into())))
}

fn difference(node: u32, old: &Ways, new: &Ways) -> RequestBatch {
    let mut batch = RequestBatch::default();
    for to in old.keys().filter(|to| !new.contains_key(to)) {
        link::remove_route(&mut batch, *to);
    }
    for (to, hop) in new.iter().filter(|(to, hop)| old.get(to) != Some(hop)) {
        let (index, via) = *hop;
        link::set_route(&mut batch, *to, index, via, address::light(node));
    }
    batch
}

fn all(ranks: &Ranks) -> BTreeMap<&str, Ways> {
    let mut all = BTreeMap::new();
    for group in &ranks.groups {
        let names = group.members.iter().map(|member| member.node.as_str());
        all.extend(names.enumerate().map(|(at, name)| (name, ways(group, at))));
    }
    all
}

fn ways(group: &Group, at: usize) -> Ways {
    let members = &group.members;
    let mut ways = Ways::new();
    let outward = (at + 1..members.len()).take_while(|far| members[far - 1].next.is_some());
    let back = (0..at).rev().take_while(|far| members[far + 1].previous.is_some());
    let next = members.get(at + 1).and_then(|next| Some((next.previous?, members[at].next?)));
    let previous = at.checked_sub(1).map(|near| &members[near]);
    let previous = previous.and_then(|near| Some((near.next?, members[at].previous?)));
    let hops = outward.map(|to| (to, next)).chain(back.map(|to| (to, previous)));
    for (to, ports) in hops {
        let light = members[to].node.strip_prefix('n').and_then(|node| node.parse().ok());
        let way = ports.map(|(own, via)| (inside_index(address::bundle(own)), via));
        ways.extend(light.map(address::light).zip(way));
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::RankMember;

    fn line(nodes: &[u32]) -> Group {
        let member = |at: usize| RankMember {
            node: format!("n{}", nodes[at]),
            next: nodes.get(at + 1).map(|node| address::port(*node, 1)),
            previous: at.checked_sub(1).map(|at| address::port(nodes[at], 0)),
        };
        Group { id: "g0".into(), job: None, members: (0..nodes.len()).map(member).collect() }
    }

    #[test]
    fn each_node_reaches_all_others_through_its_nearest_neighbour() {
        let ways = ways(&line(&[2, 3, 5, 8]), 1);
        let (out, back) =
            ((inside_index(0), address::port(5, 1)), (inside_index(1), address::port(2, 0)));
        let expected = [(2, back), (5, out), (8, out)];
        assert_eq!(ways, expected.map(|(node, hop)| (address::light(node), hop)).into());
    }

    #[test]
    fn line_with_a_dark_middle_is_split_in_two() {
        let mut group = line(&[0, 1, 2, 3]);
        (group.members[1].next, group.members[2].previous) = (None, None);
        let reached = |at| ways(&group, at).into_keys().collect::<Vec<_>>();
        assert_eq!(reached(0), [address::light(1)]);
        assert_eq!(reached(3), [address::light(2)]);
    }

    #[test]
    fn bypass_rewrites_only_routes_through_the_failed_node() {
        let (old, new) = (line(&[0, 1, 2, 3]), line(&[0, 1, 3]));
        let rewritten = |at, after| difference(0, &ways(&old, at), &ways(&new, after)).len();
        assert_eq!(rewritten(0, 0), 1, "the route to the dead node is removed");
        assert_eq!(rewritten(1, 1), 2, "n3 is reached over a different port");
        assert_eq!(rewritten(3, 2), 3, "n3 reaches all nodes over a different port");
    }
}
