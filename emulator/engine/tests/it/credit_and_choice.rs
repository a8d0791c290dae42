// SPDX-License-Identifier: Apache-2.0
//! Lost credit, and switches that choose at random between equal queues.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use lightloom_engine::topology::{FatTree, LeafSpine};
use lightloom_engine::transport::{
    Balance, CongestionControl, LossRecovery, Nscc, Reordering, Transport, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkChange, LinkSpec, NetworkBuilder, Queueing, VertexId,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rand::Rng;

const PACKET: u64 = 4_096;

fn link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(256 * PACKET), Bytes(64 * PACKET))
}

fn settings(congestion: CongestionControl, balance: Balance) -> EngineSettings {
    let transport = Transport {
        congestion,
        balance,
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::WindowPercent(50) },
        tail_probe: Some(Picoseconds::from_micros(50)),
        window: Window::BandwidthDelay { percent: 150 },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    EngineSettings { transport, queueing, ..EngineSettings::default() }
}

/// A flow whose acknowledgements use a cable that is dark for 900 µs may lose only that time, and then continues at
/// full rate. Regression test: it continued with a packet per round trip for 137 ms.
#[test]
fn lost_credit_is_replaced_after_cable_repair() {
    let shape = LeafSpine {
        leaves: 2,
        spines: 8,
        hosts_per_leaf: 8,
        host_link: link(),
        spine_link: link(),
    };
    for spine in 0..8 {
        let mut builder = NetworkBuilder::new();
        let hosts = shape.build_into(&mut builder);
        let network = builder.build().unwrap();
        let settings = settings(CongestionControl::ReceiverCredit, Balance::Adaptive);
        let cable = *network.outgoing(VertexId(16)).iter().rev().nth(spine).unwrap();
        let mut engine = Engine::new(network, settings).unwrap();
        for link in [cable, cable.reverse()] {
            engine.change_link(SimTime(20_000_000), link, LinkChange::Down);
            engine.change_link(SimTime(920_000_000), link, LinkChange::Up);
        }
        for host in 0..8 {
            let flow = FlowSpec::new(hosts[host], hosts[host + 8], Bytes(64 << 20));
            engine.add_flow(flow).unwrap();
        }
        engine.run(SimTime(1_000_000_000_000));
        let ends: Vec<_> =
            engine.records().map(|record| record.end.unwrap().0 / 1_000_000).collect();
        println!("{spine}: {ends:?}");
        assert!(ends.iter().all(|end| *end <= 2_450), "{ends:?}");
    }
}

/// A random cycle through all hosts, so none sends to itself.
fn permutation(hosts: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hosts).collect();
    let mut draw = Seed(seed).stream("permutation", 0);
    for last in (1..hosts).rev() {
        order.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
    }
    let mut to = vec![0; hosts];
    for (place, &host) in order.iter().enumerate() {
        to[host] = order[(place + 1) % hosts];
    }
    to
}

/// Time of a random permutation over a full fat-tree with 4 MiB per flow, relative to the bound:
/// the time of a host's link, including acknowledgements of 64 B, plus the longest path.
fn times_the_bound(radix: u32, balance: Balance, seed: u64) -> f64 {
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(radix, link()).build_into(&mut builder);
    let nscc = CongestionControl::Nscc(Nscc::default());
    let settings = EngineSettings { seed: Seed(seed), ..settings(nscc, balance) };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    for (from, to) in permutation(hosts.len(), seed).into_iter().enumerate() {
        engine.add_flow(FlowSpec::new(hosts[from], hosts[to], Bytes(4 << 20))).unwrap();
    }
    engine.run(SimTime(1_000_000_000_000));
    let last = engine.records().map(|record| record.end.unwrap()).max().unwrap();
    let packets = (4_u64 << 20).div_ceil(4_032) as f64;
    last.0 as f64 / ((packets + 5.0) * (81_920.0 + 1_280.0) + 6e6)
}

/// Regression test: ties went to the port at `sequence / stride`, and the least busy port was the same for each packet
/// of a periodic flow, so flows met again and again, for 1.6 to 2.7 times the bound.
#[test]
fn adaptive_switches_carry_permutations_near_their_bound() {
    for (radix, seeds) in [(4, 20), (8, 6)] {
        let times: Vec<f64> =
            (0..seeds).map(|seed| times_the_bound(radix, Balance::Adaptive, seed)).collect();
        println!("{radix}: {times:.3?}");
        assert!(times.iter().all(|times| *times <= 1.25), "radix {radix}: {times:.3?}");
    }
}
