//! Flows that are given other paths while links go dark and come back.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{
    Engine, FlowSpec, LinkChange, LinkId, LinkSpec, NetworkBuilder, Role, Settings, VertexId,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

/// Two hosts joined by so many switches, each over a cable of its own.
fn joined(switches: usize) -> (Engine, [VertexId; 2], Vec<[LinkId; 2]>) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(1 << 24), Bytes(0));
    let mut builder = NetworkBuilder::new();
    let hosts = [builder.add(Role::Host), builder.add(Role::Host)];
    for _ in 0..switches {
        let switch = builder.add(Role::Switch);
        hosts.iter().for_each(|host| {
            builder.connect(*host, switch, link);
        });
    }
    let network = builder.build().unwrap();
    let cable = |host: VertexId, at: usize| network.outgoing(host)[at];
    let cables = (0..switches).map(|at| [cable(hosts[0], at), cable(hosts[1], at)]).collect();
    let transport = Transport { window: Window::Packets(64), ..Transport::default() };
    let settings = Settings { transport, ..Settings::default() };
    (Engine::new(network, settings).unwrap(), hosts, cables)
}

fn set(engine: &mut Engine, cable: LinkId, change: LinkChange) {
    for link in [cable, cable.reverse()] {
        engine.change_link(engine.now(), link, change);
    }
}

/// Two flows share an interface. One is led to another while its turn at the first is yet to come; before it comes,
/// the first goes dark for good.
#[test]
fn a_flow_led_away_from_an_interface_does_not_wait_there_when_it_goes_dark() {
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
