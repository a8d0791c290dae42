// SPDX-License-Identifier: Apache-2.0
//! Timers follow measured round trips: without losses there are no retransmissions, whatever the
//! path length and the number of senders.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::{
    Balance, CongestionControl, Dcqcn, Dctcp, LossRecovery, Nscc, Reordering, Swift, Transport,
    Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkSpec, NetworkBuilder, PacketCount, Queueing, VertexRole,
};
use lightloom_testkit::cases;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

/// A packet of 4 KiB at 400 Gb/s, in picoseconds.
const PACKET_PS: u64 = 81_920;
const ACKNOWLEDGEMENT_PS: u64 = 1_280;
const SIZE: u64 = 64 << 20;

/// One flow over host, switch, long cable, switch and host: its end and packet counts.
fn over_cable(congestion: CongestionControl, delay: Picoseconds) -> (u64, PacketCount) {
    let near = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
    let far = LinkSpec::new(BitsPerSecond::from_gbps(400), delay);
    let mut builder = NetworkBuilder::new();
    let [a, b] = [VertexRole::Host, VertexRole::Host].map(|role| builder.add(role));
    let [s, r] = [VertexRole::Switch, VertexRole::Switch].map(|role| builder.add(role));
    builder.connect(a, s, near);
    builder.connect(s, r, far);
    builder.connect(r, b, near);
    let recovery = match congestion {
        CongestionControl::ReceiverCredit => {
            LossRecovery::SelectiveRepeat { reordering: Reordering::WindowPercent(50) }
        }
        _ => LossRecovery::GoBackN,
    };
    let transport = Transport { congestion, recovery, ..Transport::default() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let flow = engine.add_flow(FlowSpec::new(a, b, Bytes(SIZE))).unwrap();
    engine.run(SimTime(20_000_000_000_000));
    (engine.record(flow).end.unwrap().0, engine.packets())
}

/// All packets at the rate of the link, after the rounds of slow start: ten packets, doubling every round trip.
fn closed_form(slow_start: bool, delay: Picoseconds) -> u64 {
    let packets = SIZE.div_ceil(4_032);
    let wires = delay.0 + 2_000_000;
    let one_way = 2 * PACKET_PS + wires;
    let round_trip = PACKET_PS + one_way + 3 * ACKNOWLEDGEMENT_PS + wires;
    let (mut window, mut sent, mut time) = (10, 0, 0);
    while slow_start && window * PACKET_PS < round_trip && sent + window < packets {
        (sent, time, window) = (sent + window, time + round_trip, 2 * window);
    }
    time + (packets - sent) * PACKET_PS + one_way
}

/// Regression test: with a timeout of 500 µs, DCTCP took 3.1 s and NSCC 17.7 ms for a bound of 1.7 ms; 5 and 10 ms were
/// refused. DCTCP's first window was the full one and grew by a packet too many per round: 0.54 of its closed form.
#[test]
fn flow_over_a_long_cable_takes_its_closed_form() {
    let controls = [
        CongestionControl::FixedWindow,
        CongestionControl::Dctcp(Dctcp::default()),
        CongestionControl::Dcqcn(Dcqcn::default()),
        CongestionControl::Swift(Swift::default()),
        CongestionControl::Nscc(Nscc::default()),
        CongestionControl::ReceiverCredit,
    ];
    for congestion in controls {
        let slow_start = matches!(congestion, CongestionControl::Dctcp(_));
        for micros in [100, 300, 1_000, 5_000, 10_000] {
            let delay = Picoseconds::from_micros(micros);
            let (end, packets) = over_cable(congestion, delay);
            let times = end as f64 / closed_form(slow_start, delay) as f64;
            println!("{congestion:?} {micros} us: {times:.4}");
            let again = (packets.retransmitted, packets.duplicates);
            assert_eq!(again, (0, 0), "{congestion:?} {micros}");
            assert!((0.999..1.001).contains(&times), "{congestion:?}, {micros} us: {times}");
        }
    }
}

/// Time of an incast under receiver credit relative to the receiver's link.
fn incast(radix: u32, senders: usize) -> (f64, PacketCount) {
    const MESSAGE: u64 = 1 << 20;
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(1 << 20), Bytes(1 << 17));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(radix, link).build_into(&mut builder);
    let transport = Transport {
        congestion: CongestionControl::ReceiverCredit,
        balance: Balance::Spray { paths: 64 },
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::WindowPercent(50) },
        tail_probe: Some(Picoseconds::from_micros(50)),
        window: Window::BandwidthDelay { percent: 100 },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let settings = EngineSettings { transport, queueing, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for sender in 1..=senders {
        engine.add_flow(FlowSpec::new(hosts[sender], hosts[0], Bytes(MESSAGE))).unwrap();
    }
    engine.run(SimTime(1_000_000_000_000));
    let last = engine.records().map(|record| record.end.unwrap().0).max().unwrap();
    let bytes = transport.wire_bytes(Bytes(MESSAGE)).0 * senders as u64;
    let bound = BitsPerSecond::from_gbps(400).time_for(Bytes(bytes)).0 + 6_000_000;
    (last as f64 / bound as f64, engine.packets())
}

/// Regression test: from 80 senders on, flows timed out while their credit waited for its turn: 127 senders caused
/// 85,497 retransmissions of 33,147 packets, and 1,000 senders 1.75 million of 260,000, at 13 times the bound.
#[test]
fn queued_credit_is_not_treated_as_lost() {
    let counts = cases(3, 4);
    for (radix, senders) in [(8, 8), (8, 64), (8, 127), (16, 1_000)].into_iter().take(counts) {
        let (times, packets) = incast(radix, senders);
        println!(
            "{senders}: {times:.3}, {} again, {} twice",
            packets.retransmitted, packets.duplicates
        );
        assert!(times <= 1.05, "{senders}: {times}");
    }
}
