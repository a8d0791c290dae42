// SPDX-License-Identifier: Apache-2.0
//! HPCC compared with the closed forms of its equilibrium and with the incast of its paper.
use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::{
    Balance, CongestionControl, Hpcc, LossRecovery, Reordering, Transport,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowId, FlowRecord, FlowSpec, LinkChange, LinkId, LinkSpec,
    NetworkBuilder, PacketCount, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const RATE: BitsPerSecond = BitsPerSecond::from_gbps(100);
const MICROSECOND: u64 = 1_000_000;
const PACKET: u64 = 1_064;

/// Hosts around one switch, with the paper's rate and packets of 1,000 bytes of data. Flows start `gap` apart and lead
/// to the first host, whose link is returned.
struct Star {
    engine: Engine,
    flows: Vec<FlowId>,
    last: LinkId,
}

impl Star {
    fn new(senders: usize, hpcc: Hpcc, delay: Picoseconds, gap: u64) -> Self {
        let link = LinkSpec::new(RATE, delay).with_queue(Bytes(32 << 20), Bytes(32 << 20));
        let mut builder = NetworkBuilder::new();
        let hosts: Vec<_> = (0..=senders).map(|_| builder.add(VertexRole::Host)).collect();
        let switch = builder.add(VertexRole::Switch);
        hosts.iter().for_each(|host| _ = builder.connect(*host, switch, link));
        let congestion = CongestionControl::Hpcc(hpcc);
        let transport = Transport { congestion, payload: Bytes(1_000), ..Transport::default() };
        let settings = EngineSettings { transport, ..EngineSettings::default() };
        let network = builder.build().unwrap();
        let last = network.outgoing(hosts[0])[0].reverse();
        let mut engine = Engine::new(network, settings).unwrap();
        let flows = (0u64..).zip(&hosts[1..]).map(|(at, host)| {
            let flow = FlowSpec::new(*host, hosts[0], Bytes(1 << 31)).at(SimTime(at * gap));
            engine.add_flow(flow).unwrap()
        });
        let flows = flows.collect();
        Self { engine, flows, last }
    }

    fn run(&mut self, micros: u64) {
        self.engine.run(SimTime(micros * MICROSECOND));
    }

    /// The shares of the last link between two times, and its mean queue in bytes.
    fn measure(&mut self, from: u64, until: u64) -> (Vec<f64>, f64) {
        let delivered = |engine: &Engine| -> Vec<u64> {
            self.flows.iter().map(|flow| engine.record(*flow).delivered.0).collect()
        };
        self.engine.run(SimTime(from * MICROSECOND));
        let before = delivered(&self.engine);
        let mut queue = 0;
        for at in from..until {
            self.engine.run(SimTime((at + 1) * MICROSECOND));
            queue += self.engine.backlog(self.last).0;
        }
        let after = delivered(&self.engine);
        let line = RATE.get() as f64 / 8e6 * (until - from) as f64 * 1_000.0 / PACKET as f64;
        let shares = before.iter().zip(after).map(|(before, after)| (after - before) as f64 / line);
        (shares.collect(), queue as f64 / (until - from) as f64)
    }
}

/// A round trip of 13 µs, as in the paper's fabric.
const FAR: Picoseconds = Picoseconds::from_nanos(3_200);
const ROUND_TRIP_BYTES: f64 = 12.98 * 12_500.0;

fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) =
        shares.iter().fold((0.0, 0.0), |(a, b), share| (a + share, b + share * share));
    sum * sum / (shares.len() as f64 * squares)
}

/// In equilibrium, `W = W·η/U + a` for each flow, so `U = η + (1 - η)·n/N` with `n` flows and an increase for `N`.
/// Up to `N` flows, `U` is the utilisation and the queue is empty; beyond, the queue is `U - 1` of the data of a round trip.
#[test]
fn hpcc_meets_its_equilibrium() {
    for (target_percent, flows, senders) in
        [(95, 100, 1), (95, 4, 2), (90, 8, 4), (95, 4, 12), (90, 4, 16)]
    {
        let hpcc = Hpcc { target_percent, flows, ..Hpcc::default() };
        let (shares, queue) = Star::new(senders, hpcc, FAR, 0).measure(4_000, 6_000);
        let (sum, target) = (shares.iter().sum::<f64>(), f64::from(target_percent) / 100.0);
        let load = target + (1.0 - target) * senders as f64 / f64::from(flows);
        println!(
            "{target_percent} {senders}/{flows}: load {load:.3}, share {sum:.4}, queue {queue:.0}"
        );
        assert!((sum - load.min(1.0)).abs() < 0.01, "{senders} of {flows}: {sum} for {load}");
        let stands = (load - 1.0).max(0.0) * ROUND_TRIP_BYTES;
        let most = (senders as f64 + 2.0) * PACKET as f64;
        assert!((queue - stands).abs() < most, "{senders} of {flows}: {queue} B for {stands}");
        assert!(jain(&shares) > 0.99, "{shares:?}");
    }
}

/// A sender starts at the rate of its interface, so its first window takes the time of the empty path.
#[test]
fn hpcc_starts_at_full_rate() {
    let mut star = Star::new(1, Hpcc::default(), FAR, 0);
    let one = RATE.time_for(Bytes(PACKET)).get();
    star.engine.run(SimTime(101 * one + 2 * FAR.get()));
    assert_eq!(star.engine.record(star.flows[0]).delivered, Bytes(100_000));
}

/// Flows that join later get equal shares, as in the paper's fairness figure. Each multiplicative step leaves `η/U` of
/// the difference between two flows, so with an increase for eight flows, half remains after 27 round trips.
#[test]
fn hpcc_shares_fairly_with_flows_that_join() {
    let hpcc = Hpcc { flows: 8, ..Hpcc::default() };
    let mut star = Star::new(4, hpcc, FAR, 2_000 * MICROSECOND);
    for joined in 1..=4 {
        let until = joined * 2_000;
        let (shares, _) = star.measure(until - 500, until);
        let shares = &shares[..joined as usize];
        println!("{shares:?}");
        assert!(jain(shares) > 0.98, "{shares:?}");
    }
}

/// Figure 13 of the paper (from memory): 16 hosts of 100 Gb/s send to one over links of 1 µs. The queue of the first
/// round trip drains in a few round trips and does not return, and the link stays near its target.
#[test]
fn hpcc_drains_an_incast_and_keeps_the_link_busy() {
    let mut star = Star::new(16, Hpcc::default(), Picoseconds::from_micros(1), 0);
    let first = 16.0 * 4.3 * 12_500.0;
    let mut most = 0.0_f64;
    for micros in 1..40 {
        star.run(micros);
        most = most.max(star.engine.backlog(star.last).0 as f64);
    }
    println!("{most} of {first}");
    assert!(most > 0.5 * first && most < 1.1 * first, "{most} of {first}");
    // The first windows alone take 16 round trips at the rate of the link. 24 round trips are over after 103 us.
    let (_, drained) = star.measure(103, 123);
    let (shares, stays) = star.measure(200, 2_000);
    let sum: f64 = shares.iter().sum();
    println!("{drained} {stays} {sum}");
    assert!(drained < 8.0 * PACKET as f64 && stays < 8.0 * PACKET as f64, "{drained} {stays}");
    assert!(sum > 0.9, "{sum}");
}

/// Telemetry crosses parts of the network, and loads of several paths belong to one flow.
#[test]
fn hpcc_gives_the_same_result_on_any_number_of_threads() {
    let run = |threads| {
        let link = LinkSpec::new(RATE, Picoseconds::from_micros(1))
            .with_queue(Bytes(1 << 20), Bytes(1 << 17));
        let mut builder = NetworkBuilder::new();
        let hosts = FatTree::full(4, link).build_into(&mut builder);
        let congestion = CongestionControl::Hpcc(Hpcc::default());
        let transport = Transport { congestion, ..Transport::default() };
        let settings = EngineSettings { transport, threads, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        for at in 0..16 {
            let to = [(at + 5) % 16, 0][at % 2];
            if at != to {
                engine.add_flow(FlowSpec::new(hosts[at], hosts[to], Bytes(4 << 20))).unwrap();
            }
        }
        engine.run(SimTime(100_000 * MICROSECOND));
        assert!(engine.records().all(|record| record.end.is_some()));
        (engine.records().collect::<Vec<_>>(), engine.packets())
    };
    let alone = run(1);
    assert_eq!((alone.1.dropped, alone.1.retransmitted), (0, 0));
    assert_eq!(run(3), alone);
}

/// A shift of 128 hosts by half of them. With an outage, a core cable of the first flow is down from 100 to 200 us. Returns
/// the packets, the records and the end of the last flow, in time of a host's data at the target utilisation.
fn shifted(balance: Balance, outage: bool, threads: usize) -> (PacketCount, Vec<FlowRecord>, f64) {
    let link = LinkSpec::new(RATE, Picoseconds::from_micros(1))
        .with_queue(Bytes(32 << 20), Bytes(32 << 20));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(8, link).build_into(&mut builder);
    let recovery = LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(256) };
    let congestion = CongestionControl::Hpcc(Hpcc::default());
    let transport = Transport { congestion, balance, recovery, ..Transport::default() };
    let settings = EngineSettings { transport, threads, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let size = transport.payload * 1_000;
    let flows = (0..128).map(|at| FlowSpec::new(hosts[at], hosts[(at + 64) % 128], size));
    let flows: Vec<FlowId> = flows.map(|flow| engine.add_flow(flow).unwrap()).collect();
    let cable = engine.path(flows[0])[2];
    for (micros, change) in [(100, LinkChange::Down), (200, LinkChange::Up)] {
        for link in [cable, cable.reverse()].into_iter().filter(|_| outage) {
            engine.change_link(SimTime(micros * MICROSECOND), link, change);
        }
    }
    engine.run(SimTime(100_000 * MICROSECOND));
    let packets = engine.packets();
    assert_eq!(packets.sent, packets.delivered + packets.dropped + packets.lost, "{packets:?}");
    let records: Vec<FlowRecord> = engine.records().collect();
    let last = records.iter().map(|record| record.end.expect("every flow ends")).max();
    (packets, records, last.unwrap().0 as f64 / DATA_TIME)
}

/// Time of 1,000 packets at the target utilisation.
const DATA_TIME: f64 = 1_000.0 * 327_680.0 / 0.95;

/// The busiest of several links decides, so unequal loads of sprayed paths cost a quarter of the target, and hash
/// collisions of single paths their factor.
#[test]
fn hpcc_sprays_a_permutation_at_three_quarters_of_its_target() {
    let (packets, _, times) = shifted(Balance::Spray { paths: 16 }, false, 1);
    println!("{times:.3} {packets:?}");
    assert_eq!((packets.dropped, packets.retransmitted), (0, 0));
    assert!(times < 1.0 / 0.73, "{times}");
}

/// An outage costs at most its own time and one timeout of 500 us.
#[test]
fn hpcc_finishes_over_cables_that_fail_and_return() {
    for balance in [Balance::PerFlow, Balance::Spray { paths: 16 }] {
        let (_, _, whole) = shifted(balance, false, 1);
        let (packets, records, times) = shifted(balance, true, 1);
        println!("{balance:?}: {whole:.3} {times:.3} {packets:?}");
        assert!(packets.lost > 0 && packets.retransmitted > 0, "{packets:?}");
        assert!(times < whole + 600e6 / DATA_TIME, "{times} after {whole}");
        let parts = shifted(balance, true, 3);
        assert_eq!((parts.0, parts.1), (packets, records));
    }
}
