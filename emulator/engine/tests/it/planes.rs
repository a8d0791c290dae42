// SPDX-License-Identifier: Apache-2.0
//! Flows that leave over several interfaces of their host, on planes that may fail, compared with
//! the capacity of the interfaces.
use lightloom_engine::topology::{LeafSpine, SwitchedDomain};
use lightloom_engine::transport::{
    Balance, CongestionControl, FlowInterfaces, LossRecovery, Nscc, Reordering, Transport, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkChange, LinkId, LinkSpec, NetworkBuilder, Plane,
    Queueing, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const PACKET: u64 = 4_096;
const DATA: u64 = 4_032;

fn micros(time: u64) -> SimTime {
    SimTime(time * 1_000_000)
}

fn link(gbps: u64) -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(gbps), Picoseconds::from_micros(1))
        .with_queue(Bytes(256 * PACKET), Bytes(32 * PACKET))
}

fn planes(shape: LeafSpine, planes: u8) -> (NetworkBuilder, Vec<VertexId>) {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<VertexId> =
        (0..shape.leaves * shape.hosts_per_leaf).map(|_| builder.add(VertexRole::Host)).collect();
    for plane in (0..planes).map(Plane) {
        let host_link = shape.host_link.in_plane(plane);
        let spine_link = shape.spine_link.in_plane(plane);
        LeafSpine { host_link, spine_link, ..shape }.build_over(&mut builder, &hosts);
    }
    (builder, hosts)
}

fn square(size: u32, link: LinkSpec) -> LeafSpine {
    LeafSpine {
        leaves: size,
        spines: size,
        hosts_per_leaf: size,
        host_link: link,
        spine_link: link,
    }
}

fn over_all(balance: Balance) -> Transport {
    Transport {
        balance,
        interfaces: FlowInterfaces::All,
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(512) },
        ..Transport::default()
    }
}

/// Entropy values as in the description of MRC (retired by losses, probed), with NSCC and switches that trim.
fn entropy() -> Transport {
    Transport {
        congestion: CongestionControl::Nscc(Nscc::default()),
        window: Window::BandwidthDelay { percent: 150 },
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        ..over_all(Balance::Entropy {
            values: 64,
            hashed: false,
            probe: Picoseconds::from_micros(20),
        })
    }
}

fn assert_conserved(engine: &Engine) {
    let packets = engine.packets();
    let gone = packets.delivered + packets.dropped + packets.lost + packets.in_flight;
    assert_eq!(packets.sent, gone, "{packets:?}");
}

fn last_end(engine: &Engine) -> f64 {
    engine.records().map(|record| record.end.expect("all arrive").0).max().unwrap() as f64
}

/// Regression test: a flow used one interface, whatever their number: 47.4 GB/s with one and 48.6 with four.
#[test]
fn one_flow_fills_every_interface_of_a_host() {
    for nics in [1, 2, 4, 8] {
        let (builder, hosts) = planes(square(2, link(400)), nics);
        let transport = over_all(Balance::PerFlow);
        let settings = EngineSettings { transport, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let packets = 8_000;
        let flow = FlowSpec::new(hosts[0], hosts[3], Bytes(DATA * packets));
        engine.add_flow(flow).unwrap();
        engine.run(micros(10_000));
        let form = (packets / u64::from(nics) + 3) * 81_920 + 4 * 1_000_000;
        let took = last_end(&engine);
        assert!((took / form as f64 - 1.0).abs() < 0.001, "{nics}: {took} against {form}");
        assert_eq!(engine.packets().retransmitted, 0);
        assert_conserved(&engine);
    }
}

/// Regression test: GPUs under several switches sent each flow over one of them, and colliding flows lost packets.
#[test]
fn shift_in_a_switched_domain_uses_all_switches_without_drops() {
    let mut builder = NetworkBuilder::new();
    let gpus = SwitchedDomain { gpus: 8, switches: 18 }.build_into(&mut builder, link(400));
    let settings =
        EngineSettings { transport: over_all(Balance::PerFlow), ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for gpu in 0..8 {
        engine
            .add_flow(FlowSpec::new(gpus[gpu], gpus[(gpu + 1) % 8], Bytes(DATA * 18_000)))
            .unwrap();
    }
    engine.run(micros(10_000));
    // Acknowledgements of the incoming flow share the link: 64 bytes for each 4,096.
    let bound = (1_000.0 * 81_920.0) * (1.0 + 64.0 / 4_096.0) + 2.0 * 1_081_920.0;
    let took = last_end(&engine);
    assert!(took < 1.025 * bound, "{} times the bound", took / bound);
    assert_eq!(engine.packets().dropped, 0);
    assert_conserved(&engine);
}

fn links_of(engine: &Engine, plane: u8, chosen: impl Fn(VertexId) -> bool) -> Vec<LinkId> {
    let network = engine.network();
    let links = network.links().iter().enumerate();
    links
        .filter(|(_, link)| link.spec.plane == Plane(plane) && chosen(link.from))
        .map(|(number, _)| LinkId::from_index(number))
        .collect()
}

/// A permutation of 16 hosts with 8 planes of 50 Gb/s, with plane 3 down during `outages`. Returns the last end.
fn permutation(outages: &[(u64, u64)]) -> (f64, Engine) {
    let (builder, hosts) = planes(square(4, link(50)), 8);
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let settings = EngineSettings { transport: entropy(), queueing, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for host in 0..16 {
        let to = hosts[(host * 5 + 7) % 16];
        engine.add_flow(FlowSpec::new(hosts[host], to, Bytes(64 << 20))).unwrap();
    }
    for &(down, up) in outages {
        // The switches fail, so hosts notice on their own links.
        for link in links_of(&engine, 3, |_| true) {
            engine.change_link(micros(down), link, LinkChange::Down);
            engine.change_link(micros(up), link, LinkChange::Up);
        }
    }
    engine.run(micros(20_000));
    assert_conserved(&engine);
    (last_end(&engine), engine)
}

#[test]
fn permutation_with_a_failed_plane_takes_eight_sevenths() {
    let (whole, _) = permutation(&[]);
    // 64 MiB over 400 Gb/s with 64 bytes of header per packet, and the acknowledgements of the incoming flow.
    let bound = (64u64 << 20).div_ceil(DATA) as f64 * 81_920.0 * (1.0 + 64.0 / 4_096.0);
    assert!(whole < 1.15 * bound, "{} times the bound with eight planes", whole / bound);
    let (dead, _) = permutation(&[(0, 20_000)]);
    assert!(dead < 8.0 / 7.0 * 1.05 * whole, "{} times that with seven", dead / whole);
}

#[test]
fn flapping_plane_costs_only_its_lost_capacity() {
    let (whole, _) = permutation(&[]);
    let (flaps, _) = permutation(&[(100, 200), (300, 400), (500, 600)]);
    // 300 µs without an eighth of the rate, plus the time to detect it.
    let bound = whole + 300e6 / 8.0;
    assert!(flaps < 1.05 * bound, "{} times the bound", flaps / bound);
}

/// The far end's cable of one plane is dark. Only losses reveal that, and a probe reveals the repair.
#[test]
fn temporarily_dark_far_link_is_avoided_and_reused() {
    let run = |dark: Option<(u64, u64)>| {
        let (builder, hosts) = planes(square(2, link(50)), 8);
        let settings = EngineSettings { transport: entropy(), ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let flow = FlowSpec::new(hosts[0], hosts[3], Bytes(32 << 20));
        let flow = engine.add_flow(flow).unwrap();
        let paths = engine.paths(flow);
        let path = paths.iter().find(|path| engine.network().link(path[0]).spec.plane == Plane(5));
        let last = *path.unwrap().last().unwrap();
        if let Some((down, up)) = dark {
            engine.change_link(micros(down), last, LinkChange::Down);
            engine.change_link(micros(up), last, LinkChange::Up);
        }
        engine.run(micros(20_000));
        assert_conserved(&engine);
        (last_end(&engine), engine.port_count(last).packets, engine.packets().retransmitted)
    };
    let (whole, carried, _) = run(None);
    let (dark, carried_then, again) = run(Some((100, 300)));
    let bound = whole + 200e6 / 8.0;
    assert!(dark < 1.05 * bound, "{} times the bound", dark / bound);
    assert!(again < 400, "{again} packets sent again");
    // The plane is dark for a third of the run and carries the rest of its share.
    let share = carried_then as f64 / carried as f64;
    assert!((0.55..0.85).contains(&share), "{share}");
    let (for_ever, ..) = run(Some((100, 30_000)));
    assert!(for_ever < 8.0 / 7.0 * 1.05 * whole, "{} times", for_ever / whole);
}

#[test]
fn striped_flows_do_not_depend_on_the_number_of_threads() {
    let ends = |threads: usize| {
        let (builder, hosts) = planes(square(4, link(50)), 4);
        let settings =
            EngineSettings { transport: entropy(), threads, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        for host in 0..16 {
            let to = hosts[(host * 5 + 7) % 16];
            engine.add_flow(FlowSpec::new(hosts[host], to, Bytes(4 << 20))).unwrap();
        }
        for link in links_of(&engine, 1, |from| from.0 >= 16) {
            engine.change_link(micros(50), link, LinkChange::Down);
            engine.change_link(micros(150), link, LinkChange::Up);
        }
        engine.run(micros(20_000));
        engine.records().map(|record| (record.end, record.retransmitted)).collect::<Vec<_>>()
    };
    let one = ends(1);
    assert!(one.iter().all(|(end, _)| end.is_some()));
    assert_eq!(one, ends(2));
    assert_eq!(one, ends(3));
}

/// Regression test: with several interfaces, switches chose paths for only one. After a reroute,
/// acknowledgements went astray, and results depended on the number of threads.
#[test]
fn adaptive_switches_serve_multi_interface_flows_across_reroutes() {
    let run = |threads: usize, dark: bool| {
        let (builder, hosts) = planes(square(4, link(50)), 2);
        let transport = over_all(Balance::Adaptive);
        let settings = EngineSettings { transport, threads, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let flows: Vec<_> = (0..4)
            .map(|host| FlowSpec::new(hosts[host], hosts[12 + host], Bytes(4 << 20)))
            .map(|flow| engine.add_flow(flow).unwrap())
            .collect();
        let cable = engine.network().outgoing(hosts[0])[1];
        if dark {
            for link in [cable, cable.reverse()] {
                engine.change_link(micros(5), link, LinkChange::Down);
            }
            engine.run(micros(25));
            engine.reroute_flow(flows[0]).unwrap();
        }
        engine.run(micros(20_000));
        assert_conserved(&engine);
        let ends: Vec<_> = engine.records().map(|at| (at.end, at.retransmitted)).collect();
        assert!(ends.iter().all(|(end, _)| end.is_some()), "{ends:?}");
        let up = links_of(&engine, 0, |from| from.0 >= 16).into_iter().filter(|link| {
            engine.network().role(engine.network().link(*link).to) == VertexRole::Switch
        });
        (ends, up.filter(|link| engine.port_count(*link).packets > 100).count())
    };
    for dark in [false, true] {
        let (ends, used) = run(1, dark);
        assert!(used >= 4 + 4, "{used} links between switches of a plane carry data and answers");
        assert_eq!(ends, run(2, dark).0);
        assert_eq!(ends, run(3, dark).0);
    }
}

/// A flow is rerouted over the remaining planes, and over all planes after the repair.
#[test]
fn striped_flows_use_the_planes_that_are_up() {
    let (builder, hosts) = planes(square(2, link(50)), 4);
    let transport = over_all(Balance::Spray { paths: 16 });
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let flow = engine.add_flow(FlowSpec::new(hosts[0], hosts[3], Bytes(8 << 20))).unwrap();
    assert_eq!(engine.paths(flow).len(), 8, "two spines in each of four planes");
    for link in links_of(&engine, 2, |_| true) {
        engine.change_link(micros(20), link, LinkChange::Down);
        engine.change_link(micros(100), link, LinkChange::Up);
    }
    engine.run(micros(40));
    engine.reroute_flow(flow).unwrap();
    assert_eq!(engine.paths(flow).len(), 6);
    engine.run(micros(120));
    engine.reroute_flow(flow).unwrap();
    assert_eq!(engine.paths(flow).len(), 8);
    engine.run(micros(10_000));
    assert!(engine.record(flow).end.is_some());
    assert_conserved(&engine);
}

/// Regression test: every wake-up for a probe planned another one, so a plane that was dark at the
/// far end caused endless wake-ups.
#[test]
fn probes_of_dark_planes_do_not_accumulate() {
    let (builder, hosts) = planes(square(2, link(50)), 8);
    let settings = EngineSettings { transport: entropy(), ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let flow = engine.add_flow(FlowSpec::new(hosts[0], hosts[3], Bytes(128 << 20))).unwrap();
    let ends: Vec<LinkId> = engine.ways(flow).iter().map(|path| path[path.len() - 1]).collect();
    for &end in &ends[..4] {
        engine.change_link(micros(10), end, LinkChange::Down);
    }
    engine.run(micros(20_000));
    let packets = engine.packets();
    assert!(engine.record(flow).end.is_some());
    // 128 MiB in 33,289 packets; 8 values probed every 20 µs for about 5.5 ms, plus initial losses.
    let probes = packets.data_sent - 33_289 - packets.retransmitted;
    assert!((1_000..3_000).contains(&probes), "{probes} probes");
    assert_conserved(&engine);
}
