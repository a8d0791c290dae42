// SPDX-License-Identifier: Apache-2.0
//! Switches with bounded queues: shares follow weights, pauses with headroom prevent losses,
//! trimmed packets are resent promptly, and cyclic pauses are reported.

use lightloom_engine::capture::{QueueHistograms, Watch};
use lightloom_engine::transport::{LossRecovery, Reordering, Transport, Window};
use lightloom_engine::{
    Buffer, Engine, EngineSettings, FlowId, FlowSpec, LinkSpec, Marking, Network, NetworkBuilder,
    Pause, Queueing, Route, Schedule, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const PACKET: Bytes = Bytes(4_096);
const LONG: SimTime = SimTime(1_000_000_000_000);

fn link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(PACKET * 32, PACKET * 16)
}

fn star(senders: usize, link: LinkSpec) -> (Network, Vec<VertexId>) {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..=senders).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    hosts.iter().for_each(|host| {
        builder.connect(*host, switch, link);
    });
    (builder.build().unwrap(), hosts)
}

fn engine(network: Network, queueing: Queueing) -> Engine {
    engine_with_window(network, queueing, 256)
}

fn engine_with_window(network: Network, queueing: Queueing, packets: u32) -> Engine {
    let transport = Transport {
        window: Window::Packets(packets),
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        ..Transport::default()
    };
    let settings =
        EngineSettings { transport, queueing: Some(queueing), ..EngineSettings::default() };
    Engine::new(network, settings).unwrap()
}

fn pauses(headroom: Bytes) -> Queueing {
    let pause =
        Pause { priorities: 1 << 3, pause_above: PACKET * 8, resume_at: PACKET * 4, headroom };
    Queueing { pause: Some(pause), ..Queueing::default() }
}

fn incast(queueing: Queueing, priority: u8) -> Engine {
    let (network, hosts) = star(8, link());
    let mut engine = engine(network, queueing);
    for &host in &hosts[1..] {
        let flow = FlowSpec { priority, ..FlowSpec::new(host, hosts[0], Bytes(4 << 20)) };
        engine.add_flow(flow).unwrap();
    }
    engine
}

fn all_arrive(engine: &Engine) -> bool {
    engine.records().all(|record| record.end.is_some())
}

#[test]
fn pauses_with_computed_headroom_lose_nothing() {
    let mut engine = incast(pauses(Pause::headroom_for(&link(), PACKET)), 3);
    engine.run(LONG);
    let packets = engine.packets();
    assert!(all_arrive(&engine));
    assert!(packets.pauses > 100, "{packets:?}");
    assert_eq!((packets.dropped, packets.retransmitted), (0, 0));
}

#[test]
fn insufficient_headroom_drops_packets() {
    let room = Pause::headroom_for(&link(), PACKET);
    let mut engine = incast(pauses(Bytes(room.0 / 2)), 3);
    engine.run(LONG);
    assert!(engine.packets().dropped > 0, "{:?}", engine.packets());
}

#[test]
fn does_not_pause_other_priorities() {
    let mut engine = incast(pauses(Pause::headroom_for(&link(), PACKET)), 2);
    engine.run(LONG);
    assert_eq!(engine.packets().pauses, 0);
    assert!(engine.packets().dropped > 0);
}

#[test]
fn pauses_keep_the_receiver_busy() {
    let mut engine = incast(pauses(Pause::headroom_for(&link(), PACKET)), 3);
    engine.run(LONG);
    let end = engine.records().filter_map(|record| record.end).max().unwrap();
    let wire = engine.transport().wire_bytes(Bytes(4 << 20)) * 8;
    let busy = link().rate.time_for(wire).get();
    // One packet and two links before the first byte; only pause frames in the reverse direction.
    assert!(end.0 < busy + 3_000_000, "{} ps for {busy} ps of data", end.0);
}

fn shares(schedule: Schedule) -> [u64; 2] {
    let (network, hosts) = star(2, LinkSpec { queue: None, mark_from: None, ..link() });
    let mut engine = engine(network, Queueing { schedule, ..Queueing::default() });
    let flow =
        |host, priority| FlowSpec { priority, ..FlowSpec::new(host, hosts[0], Bytes(64 << 20)) };
    let flows = [1u8, 2].map(|p| engine.add_flow(flow(hosts[usize::from(p)], p)).unwrap());
    engine.run(SimTime(500_000_000));
    flows.map(|flow: FlowId| engine.record(flow).delivered.0)
}

#[test]
fn weights_share_a_port_and_strict_priority_starves_it() {
    let mut weights = [0; 8];
    (weights[1], weights[2]) = (4_096, 3 * 4_096);
    let [low, high] = shares(Schedule::Weighted(weights));
    let ratio = high as f64 / low as f64;
    assert!((2.7..3.3).contains(&ratio), "{low} and {high} bytes: {ratio:.2} instead of 3");
    let [low, high] = shares(Schedule::Strict);
    assert!(high > 50 * low.max(1), "{low} and {high} bytes");
}

#[test]
fn trimmed_packets_are_resent_without_a_timeout() {
    let run = |trim| {
        let mut engine = incast(Queueing { trim, ..Queueing::default() }, 0);
        engine.run(LONG);
        assert!(all_arrive(&engine));
        let end = engine.records().filter_map(|record| record.end).max().unwrap();
        (engine.packets(), end)
    };
    let (with, soon) = run(true);
    let (without, late) = run(false);
    assert!(with.trimmed > 0 && with.dropped == 0, "{with:?}");
    assert!(without.dropped > 0 && without.trimmed == 0, "{without:?}");
    assert!(soon < late, "{soon:?} with trimming, {late:?} without");
}

#[test]
fn one_queue_takes_half_of_a_shared_buffer_with_alpha_one() {
    let buffer = Buffer { size: PACKET * 128, alpha_percent: 100 };
    let dropped = |window| {
        let (network, hosts) = star(8, LinkSpec { queue: None, mark_from: None, ..link() });
        let queueing = Queueing { buffer: Some(buffer), ..Queueing::default() };
        let mut engine = engine_with_window(network, queueing, window);
        for &host in &hosts[1..] {
            engine.add_flow(FlowSpec::new(host, hosts[0], Bytes(1 << 20))).unwrap();
        }
        engine.run(LONG);
        assert!(all_arrive(&engine));
        engine.packets().dropped
    };
    // A queue may hold alpha times the free buffer: 64 of 128 packets.
    assert_eq!(dropped(7), 0, "8 senders of 7 packets fit in 64");
    assert!(dropped(12) > 0, "96 packets would fit in the buffer, but not in the queue's share");
}

/// The idle path holds 51 packets (4.17 µs), so two windows of 64 leave 77 at the shared port: 18 %
/// of the range from 50 to 200, where 18 % of 60 % are marked.
#[test]
fn marking_probability_rises_between_two_thresholds() {
    let spec = LinkSpec { queue: None, ..link() }.with_queue(PACKET * 1_000, PACKET * 50);
    for queueing in [None, Some(Queueing::default())] {
        let (network, hosts) = star(2, spec);
        let transport = Transport { window: Window::Packets(64), ..Transport::default() };
        let marking = Marking::Ramp { full_at_percent: 400, most_percent: 60 };
        let settings = EngineSettings { transport, queueing, marking, ..EngineSettings::default() };
        let mut engine = Engine::new(network, settings).unwrap();
        for &host in &hosts[1..] {
            engine.add_flow(FlowSpec::new(host, hosts[0], Bytes(32 << 20))).unwrap();
        }
        engine.run(LONG);
        let packets = engine.packets();
        let share = packets.marked as f64 / packets.data_sent as f64;
        assert!((0.09..0.125).contains(&share), "{share:.3} marked: {packets:?}");
    }
}

/// Three switches in a circle with a host each, and every flow crosses two switches. Once every
/// buffer is full of packets for the next switch, no packet can move.
fn circle(pause_above: Bytes) -> Engine {
    let mut builder = NetworkBuilder::new();
    let switches: Vec<_> = (0..3).map(|_| builder.add(VertexRole::Switch)).collect();
    let slow = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1));
    let ring: Vec<_> =
        (0..3).map(|i| builder.connect(switches[i], switches[(i + 1) % 3], slow)).collect();
    let fast = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
    let hosts: Vec<_> = switches
        .iter()
        .map(|switch| {
            let host = builder.add(VertexRole::Host);
            (host, builder.connect(host, *switch, fast))
        })
        .collect();
    let pause = Pause {
        priorities: 1,
        pause_above,
        resume_at: Bytes(pause_above.0 / 2),
        headroom: Pause::headroom_for(&fast, PACKET),
    };
    let queueing = Queueing { pause: Some(pause), ..Queueing::default() };
    let mut engine = engine(builder.build().unwrap(), queueing);
    for from in 0..3 {
        let to = (from + 2) % 3;
        let way = vec![hosts[from].1, ring[from], ring[(from + 1) % 3], hosts[to].1.reverse()];
        let flow = FlowSpec::new(hosts[from].0, hosts[to].0, Bytes(16 << 20));
        engine.add_flow(flow.over(Route::Links(way))).unwrap();
    }
    engine
}

#[test]
fn detects_and_names_a_cycle_of_pauses() {
    let mut engine = circle(PACKET * 4);
    engine.run(SimTime(20_000_000_000));
    let links = engine.deadlock().expect("each switch waits for the next one");
    assert_eq!(links.len(), 3, "{links:?}");
    assert!(!all_arrive(&engine));
    for pair in links.windows(2) {
        assert_eq!(engine.network().link(pair[0]).to, engine.network().link(pair[1]).from);
    }
}

#[test]
fn temporary_pauses_are_not_a_deadlock() {
    let mut engine = incast(pauses(Pause::headroom_for(&link(), PACKET)), 3);
    for step in 1..60 {
        engine.run(SimTime(step * 10_000_000));
        assert_eq!(engine.deadlock(), None);
    }
    let mut engine = circle(PACKET * 100_000);
    engine.run(LONG);
    assert!(all_arrive(&engine), "buffers that never fill never pause");
    assert_eq!(engine.deadlock(), None);
}

/// P50, P99, maximum and number of the backlogs met before the link to the receiver.
fn backlogs(queueing: Option<Queueing>, threads: usize) -> [u64; 4] {
    let link = link().with_queue(PACKET * 4_096, PACKET * 4_096);
    let (network, hosts) = star(7, link);
    let to_receiver = network.outgoing(VertexId(8))[0];
    assert_eq!(network.link(to_receiver).to, hosts[0]);
    let classes = (0..network.links().len()).map(|link| u8::from(link == to_receiver.index()));
    let watch = Watch::default().over(classes.collect());
    let transport = Transport {
        window: Window::Packets(64),
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        ..Transport::default()
    };
    let settings = EngineSettings { transport, queueing, threads, ..EngineSettings::default() };
    let mut engine = Engine::with_probe(network, settings, watch).unwrap();
    for &host in &hosts[1..] {
        engine.add_flow(FlowSpec::new(host, hosts[0], Bytes(1 << 20))).unwrap();
    }
    engine.run(LONG);
    assert!(engine.records().all(|record| record.end.is_some()));
    let seen = QueueHistograms::merge(engine.probes().map(Watch::queues)).of_class(1).unwrap();
    [seen.value_at_quantile(0.5), seen.value_at_quantile(0.99), seen.max(), seen.len()]
}

/// Regression test: switches with bounded queues reported empty queues. Without pauses, trimming
/// and drops, they must match a switch with one queue per port.
#[test]
fn configured_queues_show_the_same_backlog_as_plain_ones() {
    let plain = backlogs(None, 1);
    // Seven windows of 64 packets, minus the packets in transit.
    let [middle, _, longest, packets] = plain;
    assert!(middle > 1_000_000 && longest < 7 * 64 * 4_160 && packets == 7 * 261, "{plain:?}");
    let buffer = Buffer { size: PACKET * 4_096, alpha_percent: 1_600 };
    let wide = Pause {
        priorities: 1 << 3,
        pause_above: PACKET * 2_000,
        resume_at: PACKET * 1_000,
        headroom: PACKET * 200,
    };
    let strict = Queueing::default();
    let ways = [
        strict,
        Queueing { buffer: Some(buffer), ..strict },
        Queueing { pause: Some(wide), ..strict },
        Queueing { trim: true, ..strict },
        Queueing { schedule: Schedule::Weighted([PACKET.get() as u32; 8]), ..strict },
    ];
    for queueing in ways {
        for threads in [1, 2] {
            let seen = backlogs(Some(queueing), threads);
            let near = seen.iter().zip(&plain).all(|(a, b)| a.abs_diff(*b) <= b / 500);
            assert!(near, "{queueing:?}: {seen:?}, not {plain:?}");
        }
    }
}
