// SPDX-License-Identifier: Apache-2.0
//! Incasts over a switch that trims, compared with NSCC's target and the closed form of receiver credit.

use lightloom_engine::transport::{
    CongestionControl, LossRecovery, Nscc, Reordering, Transport, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowId, FlowSpec, LinkSpec, NetworkBuilder, Queueing, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const PACKET_TIME: f64 = 81_920.0;
/// A packet and its acknowledgement over two links of 400 Gb/s and 3 us each way.
const ROUND_TRIP: f64 = 2.0 * (PACKET_TIME + 1_280.0) + 4.0 * 3e6;
const BDP: f64 = ROUND_TRIP / PACKET_TIME;

fn incast(senders: usize, congestion: CongestionControl, size: u64) -> (Engine, Vec<FlowId>) {
    let queue = Bytes(4_096 * BDP as u64);
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(3))
        .with_queue(queue, Bytes(queue.0 / 4));
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..=senders).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    hosts.iter().for_each(|host| _ = builder.connect(*host, switch, link));
    let transport = Transport {
        congestion,
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(256) },
        window: Window::BandwidthDelay { percent: 150 },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let settings = EngineSettings { transport, queueing, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let flows = hosts[1..].iter().map(|host| FlowSpec::new(*host, hosts[0], Bytes(4_032 * size)));
    let flows = flows.map(|flow| engine.add_flow(flow).unwrap()).collect();
    (engine, flows)
}

/// In steady state, the queue stays at NSCC's target, three quarters of the round trip (read in uet-htsim), or up to a tenth
/// above it.
#[test]
fn nscc_keeps_the_queue_of_an_incast_at_its_target() {
    for senders in [4, 8, 16, 32] {
        let nscc = CongestionControl::Nscc(Nscc::default());
        let (mut engine, flows) = incast(senders, nscc, 100_000);
        let last = engine.path(flows[0])[1];
        let queues = (100..200).map(|at| {
            engine.run(SimTime((f64::from(at) * ROUND_TRIP) as u64));
            engine.backlog(last).0 as f64 / 4_096.0 / BDP
        });
        let queue = queues.sum::<f64>() / 100.0;
        println!("{senders}: {queue:.3}");
        assert!((0.72..0.84).contains(&queue), "{senders}: {queue} round trips");
    }
}

/// Headers tell the sender about every trimmed packet, so it resends no other. It used to send up to a tenth of the data twice.
#[test]
fn incasts_with_trimming_deliver_no_packet_twice() {
    for senders in [4, 8, 32] {
        for congestion in
            [CongestionControl::Nscc(Nscc::default()), CongestionControl::ReceiverCredit]
        {
            let (mut engine, _) = incast(senders, congestion, 250);
            engine.run(SimTime(1_000_000_000_000));
            let count = engine.packets();
            assert!(count.trimmed > 0 && count.lost + count.dropped == 0, "{count:?}");
            assert_eq!((count.duplicates, count.retransmitted), (0, count.trimmed), "{senders}");
        }
    }
}

/// The receiver grants one packet at a time to each flow in turn, so all flows keep the differences of their first windows,
/// and together take the time of their data on the last link.
#[test]
fn receiver_credit_serves_flows_in_turns() {
    for senders in [2, 8, 32] {
        let (mut engine, flows) = incast(senders, CongestionControl::ReceiverCredit, 2_000);
        engine.run(SimTime((senders as f64 * 1_000.0 * PACKET_TIME) as u64));
        let delivered = flows.iter().map(|flow| engine.record(*flow).delivered.0 / 4_032);
        let delivered: Vec<u64> = delivered.collect();
        let apart = delivered.iter().max().unwrap() - delivered.iter().min().unwrap();
        engine.run(SimTime(1_000_000_000_000));
        let last = engine.records().map(|record| record.end.unwrap().0).max().unwrap();
        let times = last as f64 / (senders as f64 * 2_000.0 * PACKET_TIME + ROUND_TRIP / 2.0);
        println!("{senders}: {times:.4} of the bound, {apart} packets apart at half-time");
        assert!((apart as f64) < 1.5 * BDP, "{senders}: {delivered:?}");
        assert!((0.999..1.01).contains(&times), "{senders}: {times}");
    }
}
