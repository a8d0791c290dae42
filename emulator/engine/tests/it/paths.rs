// SPDX-License-Identifier: Apache-2.0
//! Paths of flows over random networks, compared with a simple search.

use std::collections::BTreeSet;

use lightloom_engine::transport::{Balance, Transport};
use lightloom_engine::{
    Engine, EngineError, EngineSettings, FlowGate, FlowId, FlowSpec, LinkChange, LinkId, LinkSpec,
    Network, NetworkBuilder, Route, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};
use proptest::prelude::*;

/// Role of each vertex, cables, and links that are down (one direction each).
type Drawn = (Vec<u8>, Vec<(usize, usize)>, Vec<usize>);

fn drawn() -> impl Strategy<Value = Drawn> {
    (3usize..12).prop_flat_map(|vertices| {
        let cable = (0..vertices, 0..vertices).prop_filter("no loop", |(one, other)| one != other);
        let cables = prop::collection::vec(cable, 2..30);
        (prop::collection::vec(0u8..6, vertices), cables, prop::collection::vec(0usize..60, 0..6))
    })
}

fn network((kinds, cables, _): &Drawn) -> Network {
    let mut builder = NetworkBuilder::new();
    let role = |kind: &u8| match kind {
        0 | 1 => VertexRole::Host,
        2 => VertexRole::ForwardingHost,
        _ => VertexRole::Switch,
    };
    let vertices: Vec<VertexId> = kinds.iter().map(|kind| builder.add(role(kind))).collect();
    let spec = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1));
    for (one, other) in cables {
        builder.connect(vertices[*one], vertices[*other], spec);
    }
    builder.build().expect("a network")
}

fn all_shortest(
    network: &Network,
    is_up: impl Fn(LinkId) -> bool,
    (from, to): (VertexId, VertexId),
) -> BTreeSet<Vec<LinkId>> {
    let mut ways = vec![Vec::new()];
    for _ in 0..network.vertex_count() {
        let longer = ways.iter().flat_map(|way: &Vec<LinkId>| {
            let at = way.last().map_or(from, |link| network.link(*link).to);
            let on = network.outgoing(at).iter().filter(|link| {
                let next = network.link(**link).to;
                let seen = way.iter().any(|link| network.link(*link).to == next);
                let may = next == to || network.role(next).forwards();
                is_up(**link) && may && !seen && next != from
            });
            on.map(|link| [&way[..], &[*link]].concat()).collect::<Vec<_>>()
        });
        ways = longer.collect();
        let there = |way: &&Vec<LinkId>| network.link(way[way.len() - 1]).to == to;
        let arrived: BTreeSet<Vec<LinkId>> = ways.iter().filter(there).cloned().collect();
        if !arrived.is_empty() {
            return arrived;
        }
    }
    BTreeSet::new()
}

proptest! {
    #[test]
    fn flows_take_shortest_available_paths(case in drawn(), paths in 1u16..9) {
        let network = network(&case);
        let hosts: Vec<VertexId> = (0..network.vertex_count())
            .map(VertexId::from_index)
            .filter(|vertex| network.role(*vertex).is_host())
            .collect();
        let balance = if paths == 1 { Balance::PerFlow } else { Balance::Spray { paths } };
        let transport = Transport { balance, ..Transport::default() };
        let settings = EngineSettings { transport, ..EngineSettings::default() };
        let mut engine = Engine::new(network.clone(), settings).unwrap();
        for link in case.2.iter().filter(|link| **link < network.links().len()) {
            engine.change_link(engine.now(), LinkId::from_index(*link), LinkChange::Down);
        }
        engine.run(engine.now());
        for pair in hosts.windows(2).flat_map(|two| [(two[0], two[1]), (two[1], two[0])]) {
            let all = all_shortest(&network, |link| engine.is_up(link), pair);
            let flow = engine.add_flow(FlowSpec::new(pair.0, pair.1, Bytes(1)));
            prop_assert_eq!(flow.is_ok(), !all.is_empty(), "{:?}", flow);
            let Ok(flow) = flow else { continue };
            let found: Vec<Vec<LinkId>> =
                engine.paths(flow).iter().map(<[LinkId]>::to_vec).collect();
            prop_assert!(found.iter().all(|path| all.contains(path)), "{:?} of {:?}", found, all);
            let first = found[0][0];
            prop_assert!(found.iter().all(|path| path[0] == first));
            let alike: BTreeSet<_> = all.into_iter().filter(|path| path[0] == first).collect();
            if paths > 1 && alike.len() <= usize::from(paths) {
                prop_assert_eq!(found.len(), alike.len(), "each once");
                prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), alike);
            } else {
                prop_assert!(found.len() <= usize::from(paths));
            }
        }
    }
}

#[test]
fn paths_of_refused_flows_are_discarded() {
    let mut builder = NetworkBuilder::new();
    let [one, two] = [(); 2].map(|()| builder.add(VertexRole::Host));
    let spec = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1));
    for _ in 0..2 {
        builder.connect(one, two, spec);
    }
    let network = builder.build().unwrap();
    let settings = EngineSettings { threads: 2, ..EngineSettings::default() };
    for link in network.outgoing(one) {
        let mut engine = Engine::new(network.clone(), settings).unwrap();
        let mut refused = FlowSpec::new(one, two, Bytes(1));
        refused.gates.push(FlowGate { flow: FlowId(7), ahead: 0 });
        engine.find_paths_ahead(&[&refused]);
        let error = engine.add_flow(refused).unwrap_err();
        assert!(matches!(error, EngineError::GateElsewhere { .. }), "{error}");
        let route = Route::Links(vec![*link]);
        let flow = engine.add_flow(FlowSpec::new(one, two, Bytes(1)).over(route)).unwrap();
        assert_eq!(engine.paths(flow)[0], [*link]);
    }
}
