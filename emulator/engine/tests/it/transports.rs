// SPDX-License-Identifier: Apache-2.0
//! Properties stated by the sources of congestion control and load balancing, on a shared link.
use lightloom_engine::topology::{FatTree, LeafSpine};
use lightloom_engine::transport::{
    Balance, CongestionControl, Dcqcn, Dctcp, LossRecovery, Nscc, RateStep, Reordering, Swift,
    Transport, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowId, FlowSpec, LinkChange, LinkSpec, NetworkBuilder, Queueing,
    Route, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime, Text};

const PACKET: u64 = 4_096;
const MARK_FROM_PACKETS: u64 = 30;

fn millis(time: u64) -> SimTime {
    SimTime(time * 1_000_000_000)
}

/// Hosts around one switch at 100 Gb/s, 1 µs per link.
fn star(hosts: usize, congestion: CongestionControl, window: Window) -> (Engine, Vec<VertexId>) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1))
        .with_queue(Bytes(4_000 * PACKET), Bytes(MARK_FROM_PACKETS * PACKET));
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..hosts).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    for &host in &hosts {
        builder.connect(host, switch, link);
    }
    let transport = Transport { congestion, window, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    (Engine::new(builder.build().unwrap(), settings).unwrap(), hosts)
}

/// Four long flows to one host, then one packet: the number of packets queued before it.
fn standing_queue_packets(congestion: CongestionControl) -> f64 {
    let (mut engine, hosts) = star(6, congestion, Window::Packets(100));
    for &host in &hosts[2..] {
        engine.add_flow(FlowSpec::new(host, hosts[0], Bytes(1 << 30))).unwrap();
    }
    let late = FlowSpec::new(hosts[1], hosts[0], Bytes(4_032)).at(millis(10));
    let late = engine.add_flow(late).unwrap();
    engine.run(millis(12));
    let packet_time = 81_920 * 4;
    let idle = 2 * (packet_time + 1_000_000);
    let took = engine.record(late).end.unwrap().since(millis(10)).get();
    (took - idle) as f64 / packet_time as f64
}

/// Shares of the link of two flows between `from` and `until`. The second starts 1 ms after the
/// first, which a third, short flow has already slowed down.
fn shares(congestion: CongestionControl, from: SimTime, until: SimTime) -> [f64; 2] {
    let (mut engine, hosts) = star(4, congestion, Window::Packets(1_000));
    let short = FlowSpec::new(hosts[3], hosts[0], Bytes(4 << 20)).at(SimTime(200_000_000));
    engine.add_flow(short).unwrap();
    let add = |engine: &mut Engine, host: usize, start| {
        engine.add_flow(FlowSpec::new(hosts[host], hosts[0], Bytes(1 << 32)).at(start)).unwrap()
    };
    let flows: [FlowId; 2] = [add(&mut engine, 1, millis(0)), add(&mut engine, 2, millis(1))];
    let delivered = |engine: &Engine| flows.map(|flow| engine.record(flow).delivered.0 as f64);
    engine.run(from);
    let before = delivered(&engine);
    engine.run(until);
    let after = delivered(&engine);
    let line = 100e9 / 8.0 * until.since(from).as_secs_f64();
    [0, 1].map(|flow| (after[flow] - before[flow]) / line)
}

/// Jain's fairness index (1: equal shares, 1/2: one flow has everything) and the utilisation of the link.
fn assert_fair_and_full(name: &str, [a, b]: [f64; 2], least_use: f64) {
    let fairness = (a + b) * (a + b) / (2.0 * (a * a + b * b));
    assert!(fairness > 0.97, "{name}: shares {a:.3} and {b:.3}, index {fairness:.3}");
    assert!(a + b > least_use, "{name}: only {:.3} of the link is used", a + b);
}

#[test]
fn fixed_window_queues_the_excess_over_the_path() {
    let queue = standing_queue_packets(CongestionControl::FixedWindow);
    assert!((380.0..=400.0).contains(&queue), "{queue}");
}

#[test]
fn dctcp_keeps_the_queue_near_its_threshold_and_shares_fairly() {
    let control = CongestionControl::Dctcp(Dctcp::default());
    let queue = standing_queue_packets(control);
    // SIGCOMM'10, section 3.3: the queue oscillates between K - O(√(C·RTT·K)) and K + N.
    assert!(queue < (MARK_FROM_PACKETS + 4 + 10) as f64, "{queue}");
    assert_fair_and_full("DCTCP", shares(control, millis(5), millis(10)), 0.95);
}

#[test]
fn swift_keeps_the_delay_near_its_target_and_shares_fairly() {
    let swift = Swift { flow_scaling: Text(Picoseconds::ZERO), ..Swift::default() };
    let control = CongestionControl::Swift(swift);
    let target = swift.queueing_target.0 + swift.per_hop.0 * 2;
    let queue = standing_queue_packets(control);
    let target_packets = target.get() as f64 / (4.0 * 81_920.0);
    assert!(queue < 2.0 * target_packets, "{queue} against {target_packets}");
    assert_fair_and_full("Swift", shares(control, millis(30), millis(40)), 0.95);
}

#[test]
fn nscc_keeps_the_delay_near_its_target_and_shares_fairly() {
    let target = Picoseconds::from_micros(6);
    let control = CongestionControl::Nscc(Nscc { queueing_target: Some(Text(target)) });
    let queue = standing_queue_packets(control);
    let target_packets = target.get() as f64 / (4.0 * 81_920.0);
    let bound = target_packets.max(MARK_FROM_PACKETS as f64);
    assert!(queue < 2.0 * bound, "{queue} against {bound}");
    assert_fair_and_full("NSCC", shares(control, millis(20), millis(30)), 0.95);
}

/// An incast of 32 on a switch that trims: retransmissions, and time relative to the last link.
fn trimming_incast() -> (u64, f64) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(64 * PACKET), Bytes(16 * PACKET));
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..33).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    for &host in &hosts {
        builder.connect(host, switch, link);
    }
    let transport = Transport {
        congestion: CongestionControl::Nscc(Nscc::default()),
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(256) },
        window: Window::BandwidthDelay { percent: 150 },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let settings = EngineSettings { transport, queueing, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for &host in &hosts[1..] {
        engine.add_flow(FlowSpec::new(host, hosts[0], Bytes(8 << 20))).unwrap();
    }
    engine.run(millis(100));
    let last = engine.records().map(|record| record.end.unwrap()).max().unwrap();
    let packets = (8_u64 << 20).div_ceil(4_032) * 32;
    (engine.packets().retransmitted, last.0 as f64 / (packets * 81_920) as f64)
}

/// Regression test: a trimmed packet was treated as an arrival past an empty queue, so the window stayed open.
#[test]
fn nscc_converges_with_trimming_switches() {
    let (again, time) = trimming_incast();
    assert!(again <= 7_000 && time <= 1.03, "{again} of 66,592 packets sent again, {time} times");
}

/// The second flow starts at three times the rate of the first, and the additive increase
/// determines how long that lasts. With a fifth of the increase, the index is 0.85 after 30 ms and
/// 0.97 after 150 ms.
#[test]
fn dcqcn_converges_to_fair_rates() {
    for (additive, from) in [(2_000_000_000, 30), (400_000_000, 150)] {
        let control = CongestionControl::Dcqcn(Dcqcn {
            additive: RateStep::Rate(BitsPerSecond(additive)),
            ..Dcqcn::default()
        });
        let queue = standing_queue_packets(control);
        assert!(queue < 200.0, "half of what a fixed window leaves: {queue}");
        let shares = shares(control, millis(from), millis(2 * from));
        println!("{additive}: {shares:?}");
        assert_fair_and_full("DCQCN", shares, 0.8);
    }
}

/// Every arriving packet, whole or trimmed, earns another at the rate of the receiver's link, so
/// only each sender's first window is resent, minus the packets in the queue.
#[test]
fn receiver_credit_fills_the_last_link_and_resends_the_first_window() {
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(8, credit_link()).build_into(&mut builder);
    let mut engine = credit_engine(builder, 1);
    for host in 0..32 {
        engine.add_flow(FlowSpec::new(hosts[127 - 3 * host], hosts[0], Bytes(8 << 20))).unwrap();
    }
    engine.run(millis(100));
    let last = engine.records().map(|record| record.end.unwrap()).max().unwrap();
    let packets = (8_u64 << 20).div_ceil(4_032) * 32;
    let bound = packets * 81_920 + 5 * 81_920 + 6 * 1_000_000;
    let (again, time) = (engine.packets().retransmitted, last.0 as f64 / bound as f64);
    assert!(
        again <= 7_000 && time <= 1.02,
        "{again} of {packets} packets sent again, {time} times"
    );
    assert_conserved(&engine);
}

/// A permutation does not share links, so credit costs only the time of the acknowledgements.
#[test]
fn receiver_credit_keeps_a_sprayed_permutation_near_its_bound() {
    let run = |threads: usize| {
        let mut builder = NetworkBuilder::new();
        let hosts = FatTree::full(8, credit_link()).build_into(&mut builder);
        let mut engine = credit_engine(builder, threads);
        for (place, &host) in hosts.iter().enumerate() {
            // 37 is odd, and so is 61, so each host is chosen once, and none by itself.
            let to = hosts[(place * 37 + 61) % 128];
            engine.add_flow(FlowSpec::new(host, to, Bytes(8 << 20))).unwrap();
        }
        engine.run(millis(100));
        assert_conserved(&engine);
        engine.records().collect::<Vec<_>>()
    };
    let alone = run(1);
    let last = alone.iter().map(|record| record.end.unwrap()).max().unwrap();
    let packets = (8_u64 << 20).div_ceil(4_032);
    let bound = (packets as f64 + 5.0) * (81_920.0 + 1_280.0) + 6e6;
    assert!(last.0 as f64 / bound <= 1.15, "{} times", last.0 as f64 / bound);
    assert_eq!(run(3), alone, "3 threads");
}

fn credit_link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(256 * PACKET), Bytes(64 * PACKET))
}

fn credit_engine(builder: NetworkBuilder, threads: usize) -> Engine {
    let transport = Transport {
        congestion: CongestionControl::ReceiverCredit,
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(256) },
        balance: Balance::Spray { paths: 64 },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let settings = EngineSettings { transport, queueing, threads, ..EngineSettings::default() };
    Engine::new(builder.build().unwrap(), settings).unwrap()
}

fn assert_conserved(engine: &Engine) {
    let packets = engine.packets();
    let gone = packets.delivered + packets.dropped + packets.lost + packets.in_flight;
    assert_eq!(packets.sent, gone, "{packets:?}");
}

/// Regression test: repeated turns loaded the uplinks unevenly; random spraying loads them equally in the long run.
#[test]
fn eight_sprayed_flows_fill_eight_uplinks() {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(400 * PACKET), Bytes(0));
    let shape =
        LeafSpine { leaves: 2, spines: 8, hosts_per_leaf: 8, host_link: link, spine_link: link };
    let mut builder = NetworkBuilder::new();
    let hosts = shape.build_into(&mut builder);
    let transport = Transport {
        balance: Balance::Spray { paths: 8 },
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(1_000) },
        window: Window::BandwidthDelay { percent: 400 },
        ..Transport::default()
    };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for host in 0..8 {
        let size = Bytes(4_032 * 4_000);
        engine.add_flow(FlowSpec::new(hosts[host], hosts[host + 8], size)).unwrap();
    }
    engine.run(millis(100));
    let last = engine.records().map(|record| record.end.unwrap()).max().unwrap();
    let bound = 4_000 * 81_920;
    assert!((last.0 as f64) < 1.1 * bound as f64, "{} times", last.0 as f64 / bound as f64);
}

/// A flow that started with one path uses all paths after rerouting.
#[test]
fn flow_started_on_one_path_spreads_to_recovered_paths() {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(400 * PACKET), Bytes(0));
    let shape =
        LeafSpine { leaves: 2, spines: 2, hosts_per_leaf: 1, host_link: link, spine_link: link };
    let mut builder = NetworkBuilder::new();
    let hosts = shape.build_into(&mut builder);
    let transport = Transport {
        balance: Balance::Spray { paths: 8 },
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        ..Transport::default()
    };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let network = builder.build().unwrap();
    let first_spine = network.outgoing(VertexId(4))[0];
    let mut engine = Engine::new(network, settings).unwrap();
    engine.change_link(SimTime(0), first_spine, LinkChange::Down);
    engine.change_link(SimTime(0), first_spine.reverse(), LinkChange::Down);
    engine.run(SimTime(1));
    let flow = engine.add_flow(FlowSpec::new(hosts[0], hosts[1], Bytes(4_032 * 2_000))).unwrap();
    assert_eq!(engine.paths(flow).len(), 1);
    engine.run(SimTime(20_000_000));
    engine.change_link(SimTime(20_000_000), first_spine, LinkChange::Up);
    engine.change_link(SimTime(20_000_000), first_spine.reverse(), LinkChange::Up);
    engine.run(SimTime(21_000_000));
    engine.reroute_flow(flow).unwrap();
    let paths = engine.paths(flow).clone();
    assert_eq!(paths.len(), 2);
    engine.run(millis(10));
    assert!(engine.record(flow).end.is_some());
    for path in paths.iter() {
        assert!(engine.port_count(path[1]).packets > 500, "{:?}", engine.port_count(path[1]));
    }
}

/// Regression test: every tier started at the same port for the same packet, so a flow used only
/// the square root of its paths. On idle paths, each is drawn equally often: 100 times here, ± 10.
#[test]
fn adaptive_flow_uses_every_core() {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(400 * PACKET), Bytes(0));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(8, link).build_into(&mut builder);
    let network = builder.build().unwrap();
    let transport = Transport { balance: Balance::Adaptive, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(network, settings).unwrap();
    let flow = FlowSpec::new(hosts[0], hosts[127], Bytes(4_032 * 1_600));
    let flow = engine.add_flow(flow).unwrap();
    engine.run(millis(10));
    // The choices that lead to cores are those of the aggregation switches of the first pod.
    let choices = engine.choices(flow)[0][0].clone();
    let loads: Vec<u64> = choices[1..5]
        .iter()
        .flat_map(|choice| &choice.links)
        .map(|link| engine.port_count(*link).packets)
        .collect();
    assert_eq!((loads.len(), loads.iter().sum()), (16, 1_600));
    assert!(loads.iter().all(|packets| (65..=140).contains(packets)), "{loads:?}");
}

/// One of eight entropy values goes dark permanently. The sender learns which one from losses, so
/// the flow takes little longer than the remaining seven eighths allow.
#[test]
fn loss_learning_flow_avoids_a_dark_path() {
    let host = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(4_000 * PACKET), Bytes(0));
    let spine = LinkSpec { rate: BitsPerSecond::from_gbps(50), ..host };
    let shape =
        LeafSpine { leaves: 2, spines: 8, hosts_per_leaf: 1, host_link: host, spine_link: spine };
    let took = |dark: bool| {
        let mut builder = NetworkBuilder::new();
        let hosts = shape.build_into(&mut builder);
        let transport = Transport {
            balance: Balance::Entropy {
                values: 8,
                hashed: false,
                probe: Picoseconds::from_micros(50),
            },
            recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(128) },
            window: Window::Packets(1_024),
            ..Transport::default()
        };
        let settings = EngineSettings { transport, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let flow = FlowSpec::new(hosts[0], hosts[1], Bytes(4_032 * 16_000));
        let flow = engine.add_flow(flow).unwrap();
        if dark {
            // Behind the spine, so that switches on the path cannot avoid it.
            let path = engine.paths(flow)[3].to_vec();
            engine.change_link(SimTime(200_000_000), path[2], LinkChange::Down);
        }
        engine.run(millis(100));
        engine.record(flow).end.unwrap().0 as f64
    };
    let (whole, dark) = (took(false), took(true));
    let bound = whole * 8.0 / 7.0;
    assert!(dark < 1.05 * bound, "{} times what seven paths need", dark / bound);
}

/// Four hosts on one leaf send to four on another over four spines: last end and drops.
fn four_over_four(balance: Balance, recovery: LossRecovery) -> (f64, u64) {
    let mut engine = leaf_spine(balance, recovery);
    engine.run(millis(100));
    let last = engine.records().map(|record| record.end.unwrap()).max().unwrap();
    let alone = 2_000 * 4 * 81_920;
    (last.0 as f64 / alone as f64, engine.packets().dropped)
}

fn leaf_spine(balance: Balance, recovery: LossRecovery) -> Engine {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1))
        .with_queue(Bytes(400 * PACKET), Bytes(MARK_FROM_PACKETS * PACKET));
    let shape =
        LeafSpine { leaves: 2, spines: 4, hosts_per_leaf: 4, host_link: link, spine_link: link };
    let mut builder = NetworkBuilder::new();
    let hosts = shape.build_into(&mut builder);
    let window = Window::BandwidthDelay { percent: 300 };
    let transport = Transport { balance, recovery, window, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let size = Bytes(4_032 * 2_000);
    for host in 0..4 {
        engine.add_flow(FlowSpec::new(hosts[host], hosts[host + 4], size)).unwrap();
    }
    engine
}

#[test]
fn spraying_fills_all_paths_while_per_flow_hashing_collides() {
    let selective = LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(300) };
    let (per_flow, _) = four_over_four(Balance::PerFlow, LossRecovery::GoBackN);
    let (spray, dropped) = four_over_four(Balance::Spray { paths: 64 }, selective);
    let entropy =
        Balance::Entropy { values: 64, hashed: false, probe: Picoseconds::from_micros(50) };
    let (entropy, _) = four_over_four(entropy, selective);
    assert!(per_flow > 1.9, "the seed makes two flows share a spine: {per_flow}");
    assert!(spray < 1.4 && entropy < 1.3, "{spray} {entropy}");
    assert_eq!(dropped, 0);
}

#[test]
fn adaptive_switches_fill_all_paths_and_avoid_dark_links() {
    let selective = LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(300) };
    let (adaptive, dropped) = four_over_four(Balance::Adaptive, selective);
    assert!(adaptive < 1.1, "{adaptive}");
    assert_eq!(dropped, 0);
    let mut engine = leaf_spine(Balance::Adaptive, selective);
    let [_, uplink, ..] = engine.choices(FlowId(0))[0][0][0].links[..] else {
        panic!("four spines")
    };
    engine.change_link(SimTime(50_000_000), uplink, LinkChange::Down);
    engine.run(millis(100));
    let packets = engine.packets();
    assert!(engine.records().all(|record| record.end.is_some()));
    assert_eq!(packets.retransmitted, packets.lost);
    assert!((1..60).contains(&packets.lost), "{}", packets.lost);
}

/// Flows with fixed links, such as circuits, leave nothing to choose.
#[test]
fn flow_with_fixed_links_keeps_them_under_adaptive_switches() {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(4, link).build_into(&mut builder);
    let transport = Transport { balance: Balance::Adaptive, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let chosen = engine.add_flow(FlowSpec::new(hosts[0], hosts[15], Bytes(1 << 20))).unwrap();
    let links = engine.paths(chosen)[0].to_vec();
    let mut flow = FlowSpec::new(hosts[0], hosts[15], Bytes(1 << 20));
    flow.route = Route::Links(links.clone());
    let given = engine.add_flow(flow).unwrap();
    assert!(engine.choices(given).is_empty() && !engine.choices(chosen).is_empty());
    assert_eq!(engine.path(given), links);
    engine.run(millis(10));
    assert!(engine.records().all(|record| record.end.is_some()));
}
