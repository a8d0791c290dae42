// SPDX-License-Identifier: Apache-2.0
//! Reads the explicit form, which lists nodes in line order and all fibres with their two ports.
//!
//! Each link is checked against the wiring table ([`port_for_hop`]) and must connect two ports that
//! a complete cabling would connect.

use lightloom_units::id::{BundleId, NodeId, TorId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::codes;
use super::raw::{Endpoint, LinkFile, NodeFile};
use crate::dcn::Order;
use crate::document::Check;
use crate::khop::{Fibre, Hop, KhopRing, Port, Shape, hop_for_port, port_for_hop};

const MAX_FIBRES: u64 = 1_000_000;

pub(super) fn line(
    nodes: &[(NodeId, Option<NodeFile>)],
    nodes_per_tor: u32,
    check: &mut Check<'_>,
) -> Option<Vec<NodeId>> {
    let mut listed = vec![false; nodes.len()];
    let mut stray = None;
    for (node, file) in nodes {
        match listed.get_mut(node.index()) {
            Some(slot) => *slot = true,
            None => stray = stray.or(Some(*node)),
        }
        let stated = file.as_ref().and_then(|file| file.tor);
        check_tor(*node, stated, nodes_per_tor, check);
    }
    let gap = listed.iter().position(|listed| !listed).map(NodeId::from_index);
    let Some(gap) = gap else {
        return Some(nodes.iter().map(|(node, _)| *node).collect());
    };
    let message = format!("{} nodes are listed, but {gap} is missing", nodes.len());
    let path = stray.map_or("/nodes".to_owned(), |stray| format!("/nodes/{stray}"));
    check
        .error(codes::NODE_NAMES, &path, message)
        .help(format!("number the nodes n0 to n{}, each once, in any order", nodes.len() - 1));
    None
}

fn check_tor(node: NodeId, stated: Option<TorId>, nodes_per_tor: u32, check: &mut Check<'_>) {
    let by_number = TorId(node.0 / nodes_per_tor);
    if let Some(stated) = stated.filter(|stated| *stated != by_number) {
        let message = format!("{node} is under {by_number}, not {stated}");
        let help = format!(
            "racks are filled in order, with {} nodes per ToR: use `tor: {by_number}` or rename \
                the node",
            nodes_per_tor
        );
        check
            .error(codes::WRONG_TOR, &format!("/nodes/{node}/tor"), message)
            .help(help)
            .depends_on("/dcn");
    }
}

/// A custom order is treated as a single sub-line.
pub(super) fn order_of(line: &[NodeId], nodes_per_tor: u32) -> Order {
    let count = u32::try_from(line.len()).unwrap_or(u32::MAX);
    if Order::SubLines.line(count, nodes_per_tor) == line {
        Order::SubLines
    } else {
        Order::Sequential
    }
}

pub(super) fn cable(
    ring: &mut KhopRing,
    links: &[LinkFile],
    twice: &FxHashSet<usize>,
    check: &mut Check<'_>,
) -> bool {
    let fibres = u64::from(ring.nodes()) * u64::from(ring.k());
    if fibres > MAX_FIBRES {
        let message =
            format!("{fibres} fibres exceed the limit of the explicit form, {MAX_FIBRES}");
        check
            .error(codes::TOO_MANY_FIBRES, "/hbd/khop/k", message)
            .help("use the generator form: `nodes: N` under `khop`");
        return false;
    }
    let mut listed = FxHashSet::default();
    let mut good = true;
    for (index, link) in links.iter().enumerate() {
        let exist = ends_exist(ring, index, link, check) && !twice.contains(&index);
        match exist.then(|| fibre_of(ring, index, link, check)).flatten() {
            Some(fibre) => {
                listed.insert(fibre);
            }
            None => good = false,
        }
    }
    let absent: Vec<Fibre> = ring.fibres().filter(|fibre| !listed.contains(fibre)).collect();
    for fibre in absent {
        ring.remove_fibre(fibre);
    }
    good
}

/// Returns the later link of each such port. This check runs even if nodes are wrong.
pub(super) fn cabled_twice(links: &[LinkFile], check: &mut Check<'_>) -> FxHashSet<usize> {
    let mut link_of: FxHashMap<Port, usize> = FxHashMap::default();
    let mut twice = FxHashSet::default();
    for (index, link) in links.iter().enumerate() {
        for (end, endpoint) in link.endpoints.iter().enumerate() {
            let Some(first) = link_of.insert(endpoint.0, index) else { continue };
            twice.insert(index);
            check
                .error(
                    codes::PORT_TWICE,
                    &format!("/links/{index}/endpoints/{end}"),
                    format!("the port {endpoint} is cabled twice"),
                )
                .also(&format!("/links/{first}"), "the other link is here")
                .help("a port takes one fibre: remove one of the two links");
        }
    }
    twice
}

fn ends_exist(ring: &KhopRing, index: usize, link: &LinkFile, check: &mut Check<'_>) -> bool {
    let mut exist = true;
    for (end, endpoint) in link.endpoints.iter().enumerate() {
        let BundleId { node, bundle } = endpoint.0.bundle;
        let (what, last) = if node.0 >= ring.nodes() {
            (format!("node {node} does not exist"), format!("n{}", ring.nodes() - 1))
        } else if bundle >= ring.k() {
            (format!("{node} has no bundle b{bundle}"), format!("b{}", ring.k() - 1))
        } else {
            continue;
        };
        exist = false;
        check
            .error(codes::NO_SUCH_END, &format!("/links/{index}/endpoints/{end}"), what)
            .help(format!("the last one is {last}"));
    }
    exist
}

fn fibre_of(
    ring: &KhopRing,
    index: usize,
    link: &LinkFile,
    check: &mut Check<'_>,
) -> Option<Fibre> {
    let [Endpoint(a), Endpoint(b)] = link.endpoints;
    let hop = hop_for_port(ring.k(), a.bundle.bundle, a.path)?;
    if ring.peer(a) == Some(b) {
        return ring.fibre(ring.position_of(a.bundle.node), hop);
    }
    report_mismatch(ring, index, a, b, check);
    None
}

fn report_mismatch(ring: &KhopRing, index: usize, a: Port, b: Port, check: &mut Check<'_>) {
    let (from, to) = (a.bundle.node, b.bundle.node);
    let path = format!("/links/{index}");
    let apart = places_apart(ring, from, to);
    let k = ring.k();
    if apart == 0 || apart.unsigned_abs() > u64::from(k) {
        let message = match apart {
            0 => format!("a fibre connects {from} to itself"),
            _ => format!("{from} and {to} are {} places apart", apart.unsigned_abs()),
        };
        check
            .error(codes::HOP_TOO_LONG, &path, message)
            .help(format!("a fibre spans 1 to k = {k} places"))
            .depends_on("/hbd/khop");
        return;
    }
    let hop = Hop::try_from(apart).expect("at most K, which fits in a hop");
    let endpoint = |node: NodeId, hop: Hop| {
        let (bundle, path) = port_for_hop(k, hop);
        Endpoint(Port { bundle: BundleId { node, bundle }, path })
    };
    let message = format!("{} and {} cannot be connected", Endpoint(a), Endpoint(b));
    let (right_from, right_to) = (endpoint(from, hop), endpoint(to, -hop));
    let help = format!(
        "{to} is {apart:+} places from {from}: the link is [\"{right_from}\", \"{right_to}\"]"
    );
    check.error(codes::WRONG_PORTS, &path, message).help(help).depends_on("/hbd/khop");
}

fn places_apart(ring: &KhopRing, from: NodeId, to: NodeId) -> i64 {
    let position = |node| i64::from(ring.position_of(node).0);
    let apart = position(to) - position(from);
    let nodes = i64::from(ring.nodes());
    match ring.shape() {
        Shape::Line => apart,
        Shape::Ring if 2 * apart > nodes => apart - nodes,
        Shape::Ring if -2 * apart >= nodes => apart + nodes,
        Shape::Ring => apart,
    }
}
