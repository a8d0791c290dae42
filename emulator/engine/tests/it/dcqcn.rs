// SPDX-License-Identifier: Apache-2.0
//! DCQCN compared with the published fixed point of its fluid model.
use lightloom_engine::transport::{CongestionControl, Dcqcn, RateStep, Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkId, LinkSpec, Marking, NetworkBuilder, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

/// Long flows from `senders` hosts to one, and the last link.
fn incast(link: LinkSpec, senders: usize, settings: EngineSettings) -> (Engine, LinkId) {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..=senders).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    hosts.iter().for_each(|host| _ = builder.connect(*host, switch, link));
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let last = engine.network().outgoing(hosts[0])[0].reverse();
    for host in &hosts[1..] {
        engine.add_flow(FlowSpec::new(*host, hosts[0], Bytes(1 << 33))).unwrap();
    }
    (engine, last)
}

const PACKETS_PER_SECOND: f64 = 40e9 / 8_000.0;

/// The share of marked packets at the fixed point of the fluid model of DCQCN (Zhu, Ghobadi, Misra, Padhye: "ECN or
/// delay: lessons learnt from analysis of DCQCN and TIMELY", CoNEXT 2016), with the parameters of the DCQCN paper.
fn marked_at_the_fixed_point(flows: usize) -> f64 {
    let (interval, timer, byte_counter, fast_steps) = (50e-6, 55e-6, 10_000.0, 5.0);
    let increase = 40e6 / 8_000.0;
    let rate = PACKETS_PER_SECOND / flows as f64;
    let excess = |marked: f64| {
        let unmarked = |packets: f64| (1.0 - marked).powf(packets);
        let (notified, alpha) = (1.0 - unmarked(interval * rate), 1.0 - unmarked(timer * rate));
        let per_packet = |packets: f64| marked / (1.0 / unmarked(packets) - 1.0);
        let events = [byte_counter, timer * rate]
            .map(|every| (per_packet(every), unmarked(fast_steps * every) * per_packet(every)));
        let [all, additive] = [events[0].0 + events[1].0, events[0].1 + events[1].1];
        notified * notified * alpha - interval * interval * increase * rate * all * additive
    };
    let (mut low, mut high) = (1e-7, 0.5);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if excess(middle) < 0.0 { low = middle } else { high = middle }
    }
    low
}

/// From eight flows on, the queue oscillates beyond the ramp, where the model does not apply.
#[test]
fn dcqcn_marks_as_many_packets_as_at_its_fixed_point() {
    for senders in [2, 4] {
        let link = LinkSpec::new(BitsPerSecond::from_gbps(40), Picoseconds::from_micros(1))
            .with_queue(Bytes(32 << 20), Bytes(5_000));
        let dcqcn = Dcqcn {
            additive: RateStep::Rate(BitsPerSecond(40_000_000)),
            hyper: RateStep::Rate(BitsPerSecond(400_000_000)),
            ..Dcqcn::default()
        };
        let transport = Transport {
            congestion: CongestionControl::Dcqcn(dcqcn),
            payload: Bytes(936),
            window: Window::Packets(4_000),
            ..Transport::default()
        };
        let marking = Marking::Ramp { full_at_percent: 4_000, most_percent: 1 };
        let settings = EngineSettings { transport, marking, ..EngineSettings::default() };
        let (mut engine, last) = incast(link, senders, settings);
        engine.run(SimTime(50_000_000_000));
        let before = engine.port_count(last);
        engine.run(SimTime(200_000_000_000));
        let after = engine.port_count(last);
        let packets = (after.packets - before.packets) as f64;
        let marked = (after.marked - before.marked) as f64 / packets;
        let (expected, used) =
            (marked_at_the_fixed_point(senders), packets / 0.15 / PACKETS_PER_SECOND);
        println!("{senders}: {marked:.6} marked of {expected:.6}, link used {used:.4}");
        assert!((0.75..1.25).contains(&(marked / expected)), "{senders}: {marked} of {expected}");
        assert!(used > 0.98, "{senders}: {used}");
    }
}
