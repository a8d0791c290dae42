// SPDX-License-Identifier: Apache-2.0
//! Swift's fairness between long and short paths and between many flows (Kumar et al., SIGCOMM 2020, section 3.5).
use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::{CongestionControl, Hpcc, Swift, Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, FlowId, FlowSpec, LinkChange, LinkSpec, NetworkBuilder, VertexId,
    VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

fn link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1))
        .with_queue(Bytes(16 << 20), Bytes(16 << 20))
}

fn engine(builder: NetworkBuilder) -> Engine {
    engine_with(builder, CongestionControl::Swift(Swift::default()))
}

fn engine_with(builder: NetworkBuilder, congestion: CongestionControl) -> Engine {
    let transport = Transport {
        congestion,
        window: Window::BandwidthDelay { percent: 300 },
        ..Transport::default()
    };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    Engine::new(builder.build().unwrap(), settings).unwrap()
}

/// Shares of a link's rate between two times in milliseconds, for flows from each first host to each second.
fn shares(engine: &mut Engine, ends: &[(VertexId, VertexId)], [from, until]: [u64; 2]) -> Vec<f64> {
    let add = |engine: &mut Engine, (from, to)| {
        engine.add_flow(FlowSpec::new(from, to, Bytes(1 << 32))).unwrap()
    };
    let flows: Vec<FlowId> = ends.iter().map(|ends| add(engine, *ends)).collect();
    let delivered = |engine: &mut Engine, millis: u64| -> Vec<f64> {
        engine.run(SimTime(millis * 1_000_000_000));
        flows.iter().map(|flow| engine.record(*flow).delivered.0 as f64).collect()
    };
    let (before, after) = (delivered(engine, from), delivered(engine, until));
    let line = 12_500_000.0 * (until - from) as f64 * 4_032.0 / 4_096.0;
    before.iter().zip(after).map(|(before, after)| (after - before) / line).collect()
}

fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(a, b), one| (a + one, b + one * one));
    sum * sum / (shares.len() as f64 * squares)
}

/// Topology scaling: the flow with three times the links gets its share, even though its round trip is longer.
#[test]
fn long_and_short_path_share_a_bottleneck() {
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(4, link()).build_into(&mut builder);
    let ends = [(hosts[1], hosts[0]), (hosts[15], hosts[0])];
    let shares = shares(&mut engine(builder), &ends, [10, 30]);
    println!("{shares:?} {}", jain(&shares));
    assert!(jain(&shares) > 0.9 && shares.iter().sum::<f64>() > 0.95, "{shares:?}");
}

/// A chain of switches: one flow crosses all cables between them, and each cable has a flow of its own.
fn parking_lot(cables: usize) -> Vec<f64> {
    let mut builder = NetworkBuilder::new();
    let switches: Vec<_> = (0..=cables).map(|_| builder.add(VertexRole::Switch)).collect();
    switches.windows(2).for_each(|two| _ = builder.connect(two[0], two[1], link()));
    let host = |builder: &mut NetworkBuilder, at: usize| {
        let host = builder.add(VertexRole::Host);
        builder.connect(host, switches[at], link());
        host
    };
    let mut ends = vec![(host(&mut builder, 0), host(&mut builder, cables))];
    for at in 0..cables {
        ends.push((host(&mut builder, at), host(&mut builder, at + 1)));
    }
    shares(&mut engine(builder), &ends, [10, 30])
}

/// Increase of the target in microseconds for a window in packets: `fs_range` of 100 us between 0.1 and 100 packets.
fn scaling(window: f64) -> f64 {
    let slope = |window: f64| 1.0 / window.sqrt() - 0.1;
    100.0 * (slope(window) / slope(0.1)).clamp(0.0, 1.0)
}

/// Returns where a falling function is zero.
fn zero(falls: impl Fn(f64) -> f64, [mut low, mut high]: [f64; 2]) -> f64 {
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if falls(middle) > 0.0 { low = middle } else { high = middle }
    }
    low
}

/// A packet's time on a link and the round trip of an empty path, in microseconds.
const PACKET: f64 = 0.32768;

fn idle(links: usize) -> f64 {
    links as f64 * (PACKET + 0.00512 + 2.0)
}

/// The share of the long flow at which every flow's delay equals its target: each queue is the target of its short flow,
/// and the long flow meets `n` of them.
fn share_at_the_targets(cables: usize) -> f64 {
    let queue = |share: f64| {
        let window = |queue: f64| (1.0 - share) * (idle(3) + queue) / PACKET;
        zero(|queue| 5.5 + scaling(window(queue)) - queue, [0.0, 100.0])
    };
    let links = cables + 2;
    let spare = |share: f64| {
        let waits = cables as f64 * queue(share);
        let window = share * (idle(links) + waits) / PACKET;
        4.0 + 0.5 * links as f64 + scaling(window) - waits
    };
    zero(spare, [1e-4, 0.5])
}

/// A flow over `n` congested cables meets the sum of their queues, so no delay target gives it an equal share. Regression
/// test: without flow scaling, it got one 62th of the others' shares over two cables.
#[test]
fn parking_lot_settles_where_delays_equal_targets() {
    for cables in [2, 3, 5] {
        let shares = parking_lot(cables);
        let others = shares[1..].iter().sum::<f64>() / cables as f64;
        let expected = share_at_the_targets(cables);
        println!("{cables}: {shares:?}, ratio {:.1}, {expected:.3}", others / shares[0]);
        assert!((0.6..1.6).contains(&(shares[0] / expected)), "{shares:?} for {expected}");
        assert!(shares[0] + others > 0.97, "{shares:?}");
    }
}

/// Flow scaling: more flows have smaller windows and hence a larger target, which the queue follows.
#[test]
fn many_flows_share_fairly_at_their_scaled_target() {
    for senders in [8, 50, 200, 1_000] {
        let mut builder = NetworkBuilder::new();
        let hosts: Vec<_> = (0..=senders).map(|_| builder.add(VertexRole::Host)).collect();
        let switch = builder.add(VertexRole::Switch);
        hosts.iter().for_each(|host| _ = builder.connect(*host, switch, link()));
        let ends: Vec<_> = hosts[1..].iter().map(|host| (*host, hosts[0])).collect();
        let mut engine = engine(builder);
        let last = engine.network().outgoing(hosts[0])[0].reverse();
        let shares = shares(&mut engine, &ends, [20, 40]);
        let samples = 4_001..=5_000;
        let queues = samples.map(|at| {
            engine.run(SimTime(at * 10_000_000));
            engine.backlog(last).0 as f64 / 12_500.0
        });
        let queue = queues.sum::<f64>() / 1_000.0;
        let window = |queue: f64| (idle(2) + queue) / PACKET / senders as f64;
        let expected = zero(|queue| 5.0 + scaling(window(queue)) - queue, [0.0, 200.0]);
        let (sum, index) = (shares.iter().sum::<f64>(), jain(&shares));
        println!("{senders}: index {index:.3}, sum {sum:.3}, queue {queue:.1} us of {expected:.1}");
        // With 1,000 flows, each sends about sixty packets in this time.
        let least = if senders == 1_000 { 0.8 } else { 0.95 };
        assert!(index > least && sum > 0.97, "{senders}: {index} {sum}");
        assert!((queue - expected).abs() < 0.25 * expected, "{senders}: {queue} us for {expected}");
    }
}

/// Regression test: an acknowledgement allowed more packets, but the next one left at the time set when the previous one
/// was sent at a far lower rate.
#[test]
fn paced_sender_speeds_up_with_the_acknowledgement_that_allows_it() {
    let swift = CongestionControl::Swift(Swift::default());
    for congestion in [swift, CongestionControl::Hpcc(Hpcc { stages: 0, ..Hpcc::default() })] {
        let mut builder = NetworkBuilder::new();
        let switch = builder.add(VertexRole::Switch);
        let hosts = [0; 2].map(|_| builder.add(VertexRole::Host));
        hosts.iter().for_each(|host| _ = builder.connect(*host, switch, link()));
        let mut engine = engine_with(builder, congestion);
        let flow = engine.add_flow(FlowSpec::new(hosts[0], hosts[1], Bytes(1 << 32))).unwrap();
        let last = engine.network().outgoing(hosts[1])[0].reverse();
        let [slow, fast] = [200, 100_000].map(|rate| BitsPerSecond(rate * 1_000_000));
        engine.change_link(SimTime(1_000_000_000), last, LinkChange::Rate(slow));
        engine.change_link(SimTime(20_000_000_000), last, LinkChange::Rate(fast));
        let delivered = |engine: &mut Engine, micros: u64| {
            engine.run(SimTime(micros * 1_000_000));
            engine.record(flow).delivered.0
        };
        let stuck = delivered(&mut engine, 20_000);
        let first = (20_000..).find(|at| delivered(&mut engine, *at) > stuck).unwrap();
        let share = (delivered(&mut engine, first + 200) - stuck) as f64 / 2_500_000.0;
        println!("{congestion:?}: first after {} us, then {share:.3}", first - 20_000);
        assert!(share > 0.7, "{congestion:?}: {share:.3} of the line");
    }
}
