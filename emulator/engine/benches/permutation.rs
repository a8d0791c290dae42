// SPDX-License-Identifier: Apache-2.0
//! Measures the speed of the engine: every host of a full-bisection three-tier fat-tree sends to one other host.
//!
//! 400 Gb/s, 1 µs per link, 4,096-byte packets, 64-byte acknowledgements, and queues of 256 packets
//! that mark from 64. A packet-hop is one data packet or acknowledgement on one wire. Times are
//! processor times of the whole process, the best of several runs.
//!
//! `lossless`: DCQCN, with switches that pause instead of dropping. `sprayed`: NSCC-style control, 64 paths per flow,
//! selective repeat. `pausing`: a window of four round trips and queues that pause from 128 KiB and resume at 64 KiB,
//! so that switches pause continuously. Set-up is timed separately.
//!
//! The run with 65,536 hosts must be requested explicitly.
//!
//! `cargo bench -p lightloom-engine --bench permutation -- [lossless | sprayed | pausing] [threads] [hosts…]`
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints and times")]

use std::time::Instant;

use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::{
    Balance, CongestionControl, Dcqcn, LossRecovery, Nscc, Reordering, Window,
};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkSpec, NetworkBuilder, Pause, Queueing,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rand::Rng;

const REPETITIONS: usize = 3;

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let threads = numbers.first().map_or(1, |&threads| threads as usize);
    let asks_for = |name: &str| std::env::args().any(|text| text == name);
    let fabrics = [
        ("lossless", Fabric::Lossless),
        ("sprayed", Fabric::Sprayed),
        ("pausing", Fabric::Pausing),
    ];
    let asked = fabrics.into_iter().find(|(name, _)| asks_for(name));
    let fabric = asked.map_or(Fabric::Dropping, |(_, fabric)| fabric);
    println!("{fabric:?}");
    let chosen = numbers.get(1..).unwrap_or_default();
    println!(
        "{:>6} {:>8} {:>10} {:>12} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9}",
        "hosts",
        "threads",
        "flow KiB",
        "packet-hops",
        "set-up s",
        "cpu s",
        "wall s",
        "M hops/cpu",
        "M hops/wall",
        "dropped"
    );
    for (radix, kib) in [(8, 8_192), (16, 2_048), (32, 256), (64, 64)] {
        let hosts = radix * radix * radix / 4;
        if chosen.is_empty() && radix < 64 || chosen.contains(&hosts) {
            best_of(radix, kib, threads, fabric);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fabric {
    Dropping,
    Lossless,
    Sprayed,
    Pausing,
}

fn best_of(radix: u32, kib: u64, threads: usize, fabric: Fabric) {
    let mut best: Option<Measured> = None;
    for _ in 0..REPETITIONS {
        let measured = measure(radix, kib, threads, fabric);
        if best.as_ref().is_none_or(|best| measured.cpu_seconds < best.cpu_seconds) {
            best = Some(measured);
        }
    }
    let Some(best) = best else { return };
    println!(
        "{:>6} {threads:>8} {kib:>10} {:>12} {:>9.3} {:>9.3} {:>9.3} {:>11.1} {:>11.1} {:>9}",
        radix * radix * radix / 4,
        best.hops,
        best.set_up_seconds,
        best.cpu_seconds,
        best.wall_seconds,
        best.hops as f64 / best.cpu_seconds / 1e6,
        best.hops as f64 / best.wall_seconds / 1e6,
        best.dropped,
    );
}

struct Measured {
    hops: u64,
    dropped: u64,
    set_up_seconds: f64,
    cpu_seconds: f64,
    wall_seconds: f64,
}

fn measure(radix: u32, kib: u64, threads: usize, fabric: Fabric) -> Measured {
    let (packet, before) = (4_096, cpu_seconds());
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(256 * packet), Bytes(64 * packet));
    let mut builder = NetworkBuilder::new();
    let hosts = FatTree::full(radix, link).build_into(&mut builder);
    let network = builder.build().expect("a fat-tree can be emulated");
    let mut settings = EngineSettings { seed: Seed(1), threads, ..EngineSettings::default() };
    if let Fabric::Lossless = fabric {
        settings.transport.congestion = CongestionControl::Dcqcn(Dcqcn::default());
        let pause = Pause {
            priorities: 1,
            pause_above: Bytes(128 * packet),
            resume_at: Bytes(120 * packet),
            headroom: Pause::headroom_for(&link, Bytes(packet)),
        };
        settings.queueing = Some(Queueing { pause: Some(pause), ..Queueing::default() });
    }
    if let Fabric::Pausing = fabric {
        settings.transport.window = Window::BandwidthDelay { percent: 400 };
        let pause = Pause {
            priorities: 1,
            pause_above: Bytes(128 << 10),
            resume_at: Bytes(64 << 10),
            headroom: Pause::headroom_for(&link, Bytes(packet)),
        };
        settings.queueing = Some(Queueing { pause: Some(pause), ..Queueing::default() });
    }
    if let Fabric::Sprayed = fabric {
        settings.transport.congestion = CongestionControl::Nscc(Nscc::default());
        settings.transport.balance = Balance::Spray { paths: 64 };
        settings.transport.recovery =
            LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(256) };
    }
    let mut engine = Engine::new(network, settings).expect("the packets have a size");
    for (from, to) in permutation(hosts.len()).into_iter().enumerate() {
        let flow = FlowSpec::new(hosts[from], hosts[to], Bytes(kib << 10));
        engine.add_flow(flow).expect("a fat-tree is connected");
    }
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let set_up_seconds = cpu - before;
    engine.run(SimTime(1_000_000_000_000));
    let wall_seconds = wall.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu;
    assert!(engine.records().all(|record| record.end.is_some()), "every flow arrives");
    let packets = engine.packets();
    Measured {
        hops: packets.hops,
        dropped: packets.dropped,
        set_up_seconds,
        cpu_seconds,
        wall_seconds,
    }
}

/// A random cycle through all hosts, so none sends to itself.
fn permutation(hosts: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hosts).collect();
    let mut draw = Seed(1).stream("permutation", 0);
    for last in (1..hosts).rev() {
        order.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
    }
    let mut to = vec![0; hosts];
    for (place, &host) in order.iter().enumerate() {
        to[host] = order[(place + 1) % hosts];
    }
    to
}

fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanoseconds: u64 = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    nanoseconds as f64 / 1e9
}
