// SPDX-License-Identifier: Apache-2.0
//! One seed gives one result, whatever the number of threads and the activity elsewhere.
use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::{
    Balance, CongestionControl, Dctcp, LossRecovery, Reordering, Transport, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, Event, FlowId, FlowRecord, FlowSpec, LinkChange, LinkId, LinkSpec,
    NetworkBuilder, PortCount, VertexId, VertexRole,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const LIMIT: SimTime = SimTime(20_000_000_000);

fn fat_tree(threads: usize, seed: u64, transport: Transport) -> (Engine, Vec<VertexId>) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(100 << 12), Bytes(30 << 12));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(8, link).build_into(&mut builder);
    let settings =
        EngineSettings { transport, seed: Seed(seed), threads, ..EngineSettings::default() };
    (Engine::new(builder.build().unwrap(), settings).unwrap(), hosts)
}

/// Everyone sends to the host half the network away at the same time, which is more work per window
/// than one thread keeps to itself. Returns all records and counts.
fn storm(threads: usize, seed: u64, transport: Transport) -> (Vec<FlowRecord>, Vec<PortCount>) {
    let (mut engine, hosts) = fat_tree(threads, seed, transport);
    for (place, &host) in hosts.iter().enumerate() {
        let to = hosts[(place + hosts.len() / 2) % hosts.len()];
        engine.add_flow(FlowSpec::new(host, to, Bytes(400 << 10))).unwrap();
    }
    for link in (0..engine.network().links().len()).step_by(97).map(LinkId::from_index) {
        engine.change_link(SimTime(9_000_000), link, LinkChange::Down);
        engine.change_link(SimTime(15_000_000), link, LinkChange::Up);
    }
    engine.run(LIMIT);
    let links = 0..engine.network().links().len();
    let ports = links.map(|link| engine.port_count(LinkId::from_index(link))).collect();
    (engine.records().collect(), ports)
}

#[test]
fn result_does_not_depend_on_thread_count() {
    let plain = Transport { timeout: Some(Picoseconds::from_micros(100)), ..Transport::default() };
    let spread = Transport {
        balance: Balance::Spray { paths: 8 },
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        congestion: CongestionControl::Dctcp(Dctcp::default()),
        window: Window::BandwidthDelay { percent: 200 },
        ..plain
    };
    for transport in [plain, spread] {
        for seed in 0..3 {
            let alone = storm(1, seed, transport);
            assert!(alone.0.iter().any(|record| record.retransmitted > 0), "something happens");
            for threads in [2, 3, 7] {
                assert_eq!(storm(threads, seed, transport), alone, "{threads} threads");
            }
        }
    }
}

/// Flows within two pods, with and without a third pod's traffic and faults, are identical to the
/// picosecond. Runs with and without a fault are therefore comparable.
#[test]
fn faults_elsewhere_change_no_completion_time() {
    let run = |disturbed: bool| {
        let (mut engine, hosts) = fat_tree(1, 5, Transport::default());
        let mut watched = Vec::new();
        for place in 0..32 {
            if disturbed {
                let other = FlowSpec::new(hosts[64 + place], hosts[127 - place], Bytes(1 << 20));
                engine.add_flow(other).unwrap();
            }
            let to = if place < 16 { (place + 5) % 16 } else { 16 + (place + 5) % 16 };
            let flow = FlowSpec::new(hosts[place], hosts[to], Bytes(300 << 10));
            watched.push(engine.add_flow(flow).unwrap());
        }
        if disturbed {
            let links: Vec<LinkId> = engine.path(FlowId(0)).to_vec();
            engine.change_link(SimTime(3_000_000), links[1], LinkChange::Down);
        }
        engine.run(LIMIT);
        watched.into_iter().map(|flow| engine.record(flow)).collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}

/// Regression test: the flow did not move if the other interface had already been processed.
#[test]
fn waiting_flow_continues_on_another_interface() {
    for seed in 0..8 {
        let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let mut builder = NetworkBuilder::new();
        let [from, to] = [(); 2].map(|()| builder.add(VertexRole::Host));
        for switch in [(); 2].map(|()| builder.add(VertexRole::Switch)) {
            builder.connect(from, switch, link);
            builder.connect(switch, to, link);
        }
        let transport = Transport { window: Window::Packets(1_000), ..Transport::default() };
        let settings = EngineSettings { seed: Seed(seed), transport, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let flow = engine.add_flow(FlowSpec::new(from, to, Bytes(1 << 20))).unwrap();
        let beyond = engine.path(flow)[1];
        let breaks = SimTime(10_000_000);
        engine.change_link(breaks, beyond, LinkChange::Down);
        engine.run(breaks);
        engine.reroute_flow(flow).unwrap();
        engine.run(SimTime(1_000_000_000_000));
        assert!(engine.record(flow).end.is_some(), "seed {seed}: {:?}", engine.record(flow));
    }
}

/// Batches start when another one has ended, over pods that run one after the other on one thread and in parallel on
/// several. Returns every event with its time, and the arrival times of the flows.
fn chain_of_batches(threads: usize) -> (Vec<(SimTime, Event)>, Vec<Option<SimTime>>) {
    let (mut engine, hosts) = fat_tree(threads, 5, Transport::default());
    let begin = |engine: &mut Engine, round: usize| {
        for part in 0..4 {
            let batch = engine.add_batch();
            for place in (part..hosts.len()).step_by(4) {
                let to = hosts[(place + 1 + 17 * round) % hosts.len()];
                let size = Bytes(1 + 7_001 * ((place + part + round) as u64 % 23));
                engine.add_flow(FlowSpec::new(hosts[place], to, size).in_batch(batch)).unwrap();
            }
        }
    };
    let mut events = Vec::new();
    begin(&mut engine, 0);
    while let Some(event) = engine.next_event(LIMIT) {
        events.push((engine.now(), event));
        if events.len() % 4 == 0 && events.len() < 40 {
            begin(&mut engine, events.len() / 4);
        }
    }
    (events, engine.records().map(|record| record.end).collect())
}

#[test]
fn batch_ends_are_reported_in_time_order_across_pods() {
    let alone = chain_of_batches(1);
    assert_eq!(alone.0.len(), 40);
    assert!(alone.1.iter().all(Option::is_some));
    assert!(alone.0.iter().all(|(now, event)| match event {
        Event::BatchDone { at, .. } => *now == *at + Picoseconds::from_micros(1),
        Event::Timer { .. } => false,
    }));
    for threads in [2, 5] {
        assert_eq!(chain_of_batches(threads), alone, "{threads} threads");
    }
}
