// SPDX-License-Identifier: Apache-2.0
//! Collectives compared with closed forms, and invariants of every run.
use lightloom_collective::{
    AllToAll, CollectiveError, CollectiveKind, Directions, Exchange, HalvingDoubling, Hierarchical,
    Ring, Schedule, Shift, TorusAllReduce, Tree, TreeOperation,
};
use lightloom_engine::collective::{Placement, StartedCollective, start_bag};
use lightloom_engine::topology::{self, LeafSpine, RingShape, Torus};
use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, Event, FlowSpec, LinkSpec, NetworkBuilder, Plane, Route, Switching,
    VertexId, VertexRole, message_time,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use proptest::prelude::*;

const LIMIT: SimTime = SimTime(1_000_000_000_000);
const DCN: Plane = Plane(1);

fn gbps(rate: u64, delay_ns: u64) -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(rate), Picoseconds::from_nanos(delay_ns))
}

fn link() -> LinkSpec {
    gbps(400, 1_000)
}

fn ring_engine(ranks: usize, edge: impl Fn(usize) -> LinkSpec) -> (Engine, Vec<VertexId>) {
    let mut builder = NetworkBuilder::new();
    let members: Vec<_> = (0..ranks).map(|_| builder.add(VertexRole::Host)).collect();
    topology::Ring::build_into(&mut builder, &members, RingShape::Ring, edge);
    (Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap(), members)
}

fn collective(
    kind: CollectiveKind,
    members: &[VertexId],
    size: Bytes,
    directions: Directions,
) -> (Placement, Schedule) {
    let ring = Ring { kind, ranks: members.len(), size, directions };
    (Placement::new(members.to_vec(), Route::Shortest), ring.schedule().unwrap())
}

fn start(schedule: &Schedule, members: Vec<VertexId>, engine: &mut Engine) -> StartedCollective {
    Placement::new(members, Route::Shortest).start(schedule, engine).unwrap()
}

fn took(collective: &StartedCollective, engine: &Engine) -> Picoseconds {
    collective.end(engine).unwrap().since(collective.start)
}

/// `2(N-1)` or `N-1` times a piece over one link, written independently of the implementation.
fn textbook(kind: CollectiveKind, ranks: u64, size: Bytes, link: LinkSpec) -> Picoseconds {
    let steps = if kind == CollectiveKind::AllReduce { 2 * (ranks - 1) } else { ranks - 1 };
    let piece = Bytes(size.0.div_ceil(ranks));
    let packets = piece.0.div_ceil(4_032);
    let on_wire = Bytes(piece.0 + 64 * packets);
    (link.rate.time_for(on_wire) + link.delay) * steps
}

#[test]
fn one_directional_ring_matches_the_textbook_time() {
    for kind in
        [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather]
    {
        for (ranks, size) in [(3u64, Bytes(1)), (8, Bytes(8 * 4_032)), (32, Bytes(40 << 20))] {
            let link = gbps(400, 500);
            let (mut engine, members) = ring_engine(ranks as usize, |_| link);
            let (on, ring) = collective(kind, &members, size, Directions::One);
            let running = on.start(&ring, &mut engine).unwrap();
            engine.run(LIMIT);
            let expected = textbook(kind, ranks, size, link);
            assert_eq!(took(&running, &engine), expected, "{kind:?} {ranks} {size}");
            assert_eq!(running.ideal, expected);
        }
    }
}

#[test]
fn bidirectional_ring_halves_the_time_plus_acknowledgements() {
    let link = gbps(400, 500);
    let (mut engine, members) = ring_engine(32, |_| link);
    let size = Bytes(1 << 30);
    let (on, ring) = collective(CollectiveKind::AllReduce, &members, size, Directions::Both);
    let running = on.start(&ring, &mut engine).unwrap();
    engine.run(LIMIT);
    let took = took(&running, &engine).as_secs_f64();
    let ideal = running.ideal.as_secs_f64();
    let half = textbook(CollectiveKind::AllReduce, 32, Bytes(size.0 / 2), link).as_secs_f64();
    assert!((ideal / half - 1.0).abs() < 1e-9, "{ideal} {half}");
    // Every 4,096-byte packet is accompanied by one 64-byte acknowledgement of the other direction.
    assert!(took >= ideal && took <= ideal * (1.0 + 64.0 / 4_096.0), "{}", took / ideal);
    let bandwidth = size.0 as f64 / took * CollectiveKind::AllReduce.bus_factor(32);
    let line_rate = 2.0 * link.rate.bytes_per_second();
    assert!(bandwidth < line_rate && bandwidth > 0.96 * line_rate, "{}", bandwidth / line_rate);
}

#[test]
fn slow_edge_delays_the_whole_ring_as_predicted() {
    let edge = |i: usize| if i == 3 { gbps(100, 2_000) } else { gbps(400, 500) };
    let (mut engine, members) = ring_engine(8, edge);
    let (on, ring) =
        collective(CollectiveKind::AllReduce, &members, Bytes(8 << 20), Directions::One);
    let running = on.start(&ring, &mut engine).unwrap();
    engine.run(LIMIT);
    let ratio = took(&running, &engine).as_secs_f64() / running.ideal.as_secs_f64();
    assert!((1.0..1.3).contains(&ratio), "{ratio}");
}

fn star_engine(ranks: usize) -> (Engine, Vec<VertexId>) {
    let mut builder = NetworkBuilder::new();
    let members: Vec<_> = (0..ranks).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    for &member in &members {
        builder.connect(member, switch, gbps(400, 500));
    }
    // Acknowledgements wait for the data packet in transmission, so a window that just fills the
    // idle path would run dry.
    let window = Window::BandwidthDelay { percent: 150 };
    let transport = Transport { window, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    (Engine::new(builder.build().unwrap(), settings).unwrap(), members)
}

fn two_hops(packets: u64) -> u64 {
    (packets + 1) * 81_920 + 2 * 500_000
}

#[test]
fn halving_doubling_takes_the_sum_of_all_steps() {
    let (mut engine, members) = star_engine(8);
    let size = Bytes(8 * 100 * 4_032);
    let schedule = HalvingDoubling { ranks: 8, size }.schedule().unwrap();
    let running = start(&schedule, members, &mut engine);
    engine.run(LIMIT);
    let steps: u64 = [400, 200, 100, 100, 200, 400].into_iter().map(two_hops).sum();
    assert_eq!(running.ideal, Picoseconds(steps));
    // Acknowledgements precede data, at most one per packet.
    let ratio = took(&running, &engine).as_secs_f64() / running.ideal.as_secs_f64();
    assert!((1.0..=1.0 + 64.0 / 4_096.0).contains(&ratio), "{ratio}");
    let odd = HalvingDoubling { ranks: 6, size }.schedule();
    assert_eq!(odd, Err(CollectiveError::NoPowerOfTwo { ranks: 6 }));
}

#[test]
fn pairwise_all_to_all_keeps_ports_busy_and_simultaneous_is_no_faster() {
    let run = |exchange| {
        let (mut engine, members) = star_engine(16);
        let size = Bytes(16 * 50 * 4_032);
        let all = AllToAll { ranks: members.len(), size, exchange }.schedule().unwrap();
        let running = start(&all, members, &mut engine);
        engine.run(LIMIT);
        assert_eq!(running.flows.len(), 16 * 15);
        (took(&running, &engine).get(), running.ideal.get())
    };
    let (pairwise, ideal) = run(Exchange::Pairwise);
    assert_eq!(ideal, 15 * two_hops(50));
    assert!(pairwise >= ideal && pairwise as f64 <= ideal as f64 * 1.02, "{pairwise} {ideal}");
    let (at_once, _) = run(Exchange::AtOnce);
    let every_port_busy = 15 * 50 * 81_920;
    assert!(at_once >= every_port_busy, "{at_once}");
}

#[test]
fn tree_broadcast_time_follows_depth_and_pieces() {
    let (mut engine, members) = star_engine(7);
    let pieces = 20;
    let tree = Tree {
        operation: TreeOperation::Broadcast,
        ranks: members.len(),
        size: Bytes(pieces * 10 * 4_032),
        pieces: pieces as u32,
    };
    let running = start(&tree.schedule().unwrap(), members, &mut engine);
    engine.run(LIMIT);
    assert_eq!(running.ideal, Picoseconds(3 * two_hops(10) + (pieces - 1) * 10 * 81_920));
    // An inner rank sends every piece twice.
    let twice = 2.0 * (pieces * 10 * 81_920) as f64;
    let took = took(&running, &engine).get() as f64;
    assert!(took > twice && took < 1.1 * twice + 3.0 * two_hops(10) as f64, "{}", took / twice);
}

#[test]
fn two_trees_reduce_faster_than_one() {
    let run = |operation| {
        let (mut engine, members) = star_engine(16);
        let tree = Tree { operation, ranks: members.len(), size: Bytes(32 << 20), pieces: 64 };
        let running = start(&tree.schedule().unwrap(), members, &mut engine);
        engine.run(LIMIT);
        let took = took(&running, &engine).get();
        assert!(took >= running.ideal.get());
        took
    };
    let one = run(TreeOperation::AllReduce);
    let two = run(TreeOperation::DoubleAllReduce);
    assert!(two as f64 <= 0.85 * one as f64, "{two} {one}");
}

/// Groups of GPUs in rings under one switch; no two flows share a link.
fn two_networks(groups: usize, ranks: usize) -> (Engine, Vec<Vec<VertexId>>) {
    let mut builder = NetworkBuilder::new();
    let gpus: Vec<_> = (0..groups * ranks).map(|_| builder.add(VertexRole::Host)).collect();
    let rings: Vec<Vec<_>> = gpus.chunks(ranks).map(<[VertexId]>::to_vec).collect();
    for members in &rings {
        topology::Ring::build_into(&mut builder, members, RingShape::Ring, |_| gbps(3_200, 200));
    }
    let link = gbps(400, 1_000).in_plane(DCN);
    let leaves = LeafSpine {
        leaves: 1,
        spines: 1,
        hosts_per_leaf: (groups * ranks) as u32,
        host_link: link,
        spine_link: link.with_queue(Bytes(1 << 20), Bytes(1 << 18)),
    };
    leaves.build_over(&mut builder, &gpus);
    (Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap(), rings)
}

#[test]
fn hierarchical_all_reduce_runs_three_phases() {
    let (mut engine, groups) = two_networks(4, 8);
    let size = Bytes(16 << 20);
    let hierarchical = Hierarchical { groups: vec![8; 4], size };
    let placement = Placement {
        between: Route::Within(DCN),
        ..Placement::new(groups.concat(), Route::Within(Plane(0)))
    };
    let running = placement.start(&hierarchical.schedule().unwrap(), &mut engine).unwrap();
    assert_eq!(
        engine.next_event(LIMIT).map(|event| matches!(event, Event::BatchDone { .. })),
        Some(true)
    );
    let ratio = took(&running, &engine).as_secs_f64() / running.ideal.as_secs_f64();
    assert!((1.0..1.03).contains(&ratio), "{ratio}");
    // Each rank sends 7/8 of the size twice inside, and 2·3/4 of an eighth outside.
    let data: u64 = running.flows.iter().map(|flow| engine.record(*flow).size.0).sum();
    let per_rank = size.0 / 8 * 7 * 2 + size.0 / 8 * 2 * 3 / 4;
    assert_eq!(data, per_rank * 32);

    let unequal = Hierarchical { groups: vec![8, 3], size }.schedule();
    assert!(matches!(unequal, Err(CollectiveError::UnequalGroups { group: 1, .. })));
}

#[test]
fn another_collective_replaces_a_cancelled_one() {
    let (mut engine, members) = ring_engine(8, |_| gbps(400, 500));
    let (on, ring) =
        collective(CollectiveKind::AllReduce, &members, Bytes(64 << 20), Directions::Both);
    let first = on.start(&ring, &mut engine).unwrap();
    engine.set_timer(SimTime(50_000_000), 7);
    assert!(matches!(engine.next_event(LIMIT), Some(Event::Timer { token: 7, .. })));
    first.cancel(&mut engine);
    let again = on.at(engine.now()).start(&ring, &mut engine).unwrap();
    while let Some(event) = engine.next_event(LIMIT) {
        let Event::BatchDone { batch, at } = event else { panic!("no timer is left") };
        assert!(batch == again.batch || (batch == first.batch && at == again.start));
    }
    assert_eq!(first.end(&engine), None);
    let ratio = took(&again, &engine).as_secs_f64() / again.ideal.as_secs_f64();
    assert!((1.0..1.02).contains(&ratio), "{ratio}");
    let packets = engine.packets();
    assert_eq!(packets.sent, packets.delivered + packets.in_flight);
    assert_eq!(packets.in_flight, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn single_message_takes_the_closed_form(
        hops in prop::collection::vec((prop::sample::select(vec![25u64, 33, 100, 400]), 50u64..3_000), 1..6),
        size in 0u64..60_000,
        (cut_through, host_delay) in (any::<bool>(), 0u64..2_000),
    ) {
        let mut builder = NetworkBuilder::new();
        let first = builder.add(VertexRole::Host);
        let mut at = first;
        let last = hops.len() - 1;
        for (place, &(rate, delay)) in hops.iter().enumerate() {
            let next = builder.add(if place == last { VertexRole::Host } else { VertexRole::Switch });
            builder.connect(at, next, gbps(rate, delay));
            at = next;
        }
        let network = builder.build().unwrap();
        let transport = Transport {
            window: Window::Packets(1_000),
            ..Transport::default()
        };
        let settings = EngineSettings {
            transport,
            switching: if cut_through { Switching::CutThrough } else { Switching::StoreAndForward },
            host_delay: Picoseconds::from_nanos(host_delay),
            ..EngineSettings::default()
        };
        let mut engine = Engine::new(network, settings).unwrap();
        let flow = engine.add_flow(FlowSpec::new(first, at, Bytes(size))).unwrap();
        engine.run(LIMIT);
        let expected = message_time(engine.network(), &settings, engine.path(flow), Bytes(size));
        prop_assert_eq!(engine.record(flow).end, Some(SimTime(expected.get())));
    }
}

#[test]
fn bruck_and_binary_exchanges_match_their_closed_form() {
    // With one switch, each host sends to one other per step and never waits.
    for (exchange, ranks) in [(Exchange::Bruck, 16), (Exchange::Binary, 16), (Exchange::Bruck, 12)]
    {
        let mut builder = NetworkBuilder::new();
        let members: Vec<_> = (0..ranks).map(|_| builder.add(VertexRole::Host)).collect();
        let switch = builder.add(VertexRole::Switch);
        for &member in &members {
            builder.connect(member, switch, link());
        }
        let mut engine = Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap();
        let size = Bytes(ranks as u64 * 64 * 4_032);
        let all = AllToAll { ranks: members.len(), size, exchange }.schedule().unwrap();
        let running = start(&all, members, &mut engine);
        engine.run(LIMIT);
        let packet = link().rate.time_for(Bytes(4_096));
        let step = |step: &Shift| {
            let packets = step.ways.len() as u64 * 64;
            packet * (packets + 1) + link().delay * 2
        };
        let closed: Picoseconds = exchange.steps(ranks).unwrap().iter().map(step).sum();
        assert_eq!(running.ideal, closed, "{exchange:?} over {ranks}");
        let ratio = took(&running, &engine).as_secs_f64() / closed.as_secs_f64();
        // Acknowledgements take 1/64 of both links of a host.
        assert!((1.0..1.05).contains(&ratio), "{exchange:?} over {ranks}: {ratio}");
    }
}

#[test]
fn torus_all_reduce_uses_all_dimensions_concurrently() {
    for sides in [vec![4, 4, 4], vec![4, 4], vec![3, 5, 2], vec![8]] {
        let torus = Torus { sides: sides.clone() };
        let mut builder = NetworkBuilder::new();
        let grid = torus.build_into(&mut builder, link());
        let mut engine = Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap();
        let hosts = grid.hosts.len() as u64;
        let size = Bytes(hosts * 4_032 * 2 * 3 * 16);
        let rings = (0..sides.len()).map(|dimension| grid.rings(dimension)).collect();
        let all_reduce = TorusAllReduce { rings, size }.schedule().unwrap();
        let running = start(&all_reduce, grid.hosts.clone(), &mut engine);
        engine.run(LIMIT);
        // Each rank sends 2(N-1)/N of the size, whatever the order of dimensions.
        let data: u64 = running.flows.iter().map(|flow| engine.record(*flow).size.0).sum();
        let least = size.0 * 2 * (hosts - 1);
        assert!(data >= least && (data as f64) < least as f64 * 1.001, "{sides:?}: {data}");
        let ratio = took(&running, &engine).as_secs_f64() / running.ideal.as_secs_f64();
        let most = if sides.iter().all(|side| *side == sides[0]) { 1.05 } else { 2.0 };
        assert!((1.0..most).contains(&ratio), "{sides:?}: {ratio}");
        // A cube has 2·D links per rank, all busy, so the time is 2(N-1)/N of the size over them.
        if sides == [4, 4, 4] {
            let on_wire = Bytes(least / hosts / 4_032 * 4_096);
            let bound = link().rate.time_for(on_wire).as_secs_f64() / 6.0;
            let over = took(&running, &engine).as_secs_f64() / bound;
            assert!((1.0..1.15).contains(&over), "{over} of the bound by bandwidth");
        }
    }
}

#[test]
fn incast_time_is_set_by_the_last_link() {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..9).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    for &host in &hosts {
        builder.connect(host, switch, link());
    }
    let mut engine = Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap();
    let size = Bytes(4_032 * 100);
    let specs = hosts[1..].iter().map(|host| FlowSpec::new(*host, hosts[0], size)).collect();
    let running = start_bag(&mut engine, specs).unwrap();
    engine.run(LIMIT);
    let busy = link().rate.time_for(Bytes(4_096)) * 800;
    assert_eq!(running.ideal, busy);
    let first = link().rate.time_for(Bytes(4_096)) + link().delay * 2;
    assert_eq!(took(&running, &engine), busy + first, "and the way of the first packet");
}
