// SPDX-License-Identifier: Apache-2.0
//! Flows rerouted while links go dark and recover.
use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, FlowWait, LinkChange, LinkId, LinkSpec, NetworkBuilder,
    VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

fn joined(switches: usize) -> (Engine, [VertexId; 2], Vec<[LinkId; 2]>) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(1 << 24), Bytes(0));
    let mut builder = NetworkBuilder::new();
    let hosts = [builder.add(VertexRole::Host), builder.add(VertexRole::Host)];
    for _ in 0..switches {
        let switch = builder.add(VertexRole::Switch);
        hosts.iter().for_each(|host| {
            builder.connect(*host, switch, link);
        });
    }
    let network = builder.build().unwrap();
    let cable = |host: VertexId, at: usize| network.outgoing(host)[at];
    let cables = (0..switches).map(|at| [cable(hosts[0], at), cable(hosts[1], at)]).collect();
    let transport = Transport { window: Window::Packets(64), ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    (Engine::new(network, settings).unwrap(), hosts, cables)
}

fn set(engine: &mut Engine, cable: LinkId, change: LinkChange) {
    for link in [cable, cable.reverse()] {
        engine.change_link(engine.now(), link, change);
    }
}

/// Two flows share an interface. One is moved to another interface while it waits for its turn;
/// before the turn, the first interface goes dark permanently.
#[test]
fn rerouted_flow_does_not_wait_at_its_old_interface() {
    let (mut engine, [from, to], cables) = joined(2);
    let [[first, far], [second, _]] = cables[..] else { panic!("{cables:?}") };
    set(&mut engine, second, LinkChange::Down);
    engine.run(SimTime(1));
    let flow = || FlowSpec::new(from, to, Bytes(4_032 * 4_000));
    let flows = [(); 2].map(|()| engine.add_flow(flow()).unwrap());
    engine.run(SimTime(20_000_000));
    set(&mut engine, second, LinkChange::Up);
    set(&mut engine, far, LinkChange::Down);
    engine.run(SimTime(20_000_001));
    for flow in flows {
        engine.reroute_flow(flow).unwrap();
        assert_eq!(engine.path(flow)[0], second);
    }
    set(&mut engine, first, LinkChange::Down);
    engine.run(SimTime(100_000_000_000));
    for flow in flows {
        assert!(engine.record(flow).end.is_some(), "{:?}", engine.record(flow));
    }
}

/// Pauses set by hand count exactly, even if they overlap or never end.
#[test]
fn counts_paused_port_time_exactly() {
    let (mut engine, _, cables) = joined(1);
    let [port, _] = cables[0];
    let at = |engine: &mut Engine, time: u64, priorities: u8| {
        engine.change_link(SimTime(time), port, LinkChange::Paused(priorities));
    };
    at(&mut engine, 1_000, 1);
    at(&mut engine, 3_000, 4);
    at(&mut engine, 5_000, 0);
    at(&mut engine, 9_000, 2);
    engine.set_timer(SimTime(20_000), 0);
    engine.run(SimTime(8_000));
    assert_eq!(engine.port_count(port).paused_ps, 4_000);
    engine.run(SimTime(12_500));
    assert_eq!(engine.port_count(port).paused_ps, 4_000 + 3_500);
}

#[test]
fn flow_reports_its_wait_reason_and_start() {
    let (mut engine, [from, to], cables) = joined(1);
    let [near, far] = cables[0];
    let flow = engine.add_flow(FlowSpec::new(from, to, Bytes(4_032 * 4_000))).unwrap();
    let late = engine.add_flow(FlowSpec::new(from, to, Bytes(1)).at(SimTime(1 << 40))).unwrap();
    engine.run(SimTime(20_000_000));
    let (what, since) = engine.awaits(flow);
    assert_eq!(what, FlowWait::Acknowledgements);
    assert!(since.unwrap().0 > 19_900_000, "{since:?}");
    assert_eq!(engine.awaits(late).0, FlowWait::Start);
    set(&mut engine, far, LinkChange::Down);
    // The last acknowledgements are on the first link and arrive; then the timeout expires again and again.
    for until in [25_000_000, 3_000_000_000, 90_000_000_000] {
        engine.run(SimTime(until));
        let (what, since) = engine.awaits(flow);
        assert_eq!(what, FlowWait::Dark(far.reverse()));
        assert!((20_000_000..21_100_000).contains(&since.unwrap().0), "{since:?}");
    }
    let _ = near;
}
