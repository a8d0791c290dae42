// SPDX-License-Identifier: Apache-2.0
//! Compares the engine with ns-3 packet by packet: same network, paths, flows and fixed window.
//!
//! Both workloads run on three-tier fat-trees of 400 Gb/s with 1 µs per link, 4,096-byte packets, 64-byte
//! acknowledgements and unbounded queues: a permutation over 1,024 hosts, and a ring all-reduce over 128 hosts. Nothing
//! is lost, so both programs put the same packets on the same wires; each such transmission is a packet-hop. Prints the
//! completion times, their difference, and the packet-hops per second of processor time, without set-up.
//!
//! Requires the ns-3 library (Debian: `libns3-dev`) and a C++ compiler; reports if they are missing.
//!
//! `LIGHTLOOM_NIGHT=1 cargo test --release -p lightloom-engine --test it ns3:: -- --nocapture`

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cpu_time::ProcessTime;
use lightloom_engine::topology::FatTree;
use lightloom_engine::transport::Window;
use lightloom_engine::{
    Engine, EngineSettings, FlowGate, FlowId, FlowSpec, LinkId, LinkSpec, NetworkBuilder,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rand::Rng;

const PACKET: u64 = 4_096;
const ACKNOWLEDGEMENT: u64 = 64;
const PAYLOAD: u64 = 4_032;
/// Slightly more than the longest path holds: 6 hops, 13.0 µs round trip.
const WINDOW: u32 = 160;
const REPETITIONS: usize = 3;

#[test]
fn permutation_ends_as_in_ns3() {
    let apart = compare(|| BenchWork::permutation(1_024, 256));
    assert!(apart.is_none_or(|per_cent| per_cent.abs() < 2.0), "{apart:?} %");
}

#[test]
fn ring_sends_the_packets_of_ns3() {
    compare(|| BenchWork::ring(128, 32));
}

struct BenchWork {
    name: &'static str,
    radix: u32,
    flows: Vec<Asked>,
}

struct Asked {
    from: usize,
    to: usize,
    messages: u32,
    packets_per_message: u64,
    waits_for: Option<usize>,
}

impl BenchWork {
    fn permutation(hosts: usize, packets: u64) -> Self {
        let mut order: Vec<usize> = (0..hosts).collect();
        let mut draw = Seed(1).stream("permutation", 0);
        for last in (1..hosts).rev() {
            order.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
        }
        let flows = (0..hosts).map(|place| Asked {
            from: order[place],
            to: order[(place + 1) % hosts],
            messages: 1,
            packets_per_message: packets,
            waits_for: None,
        });
        Self { name: "permutation", radix: 16, flows: flows.collect() }
    }

    fn ring(hosts: usize, packets: u64) -> Self {
        let flows = (0..hosts).map(|rank| Asked {
            from: rank,
            to: (rank + 1) % hosts,
            messages: 2 * (hosts as u32 - 1),
            packets_per_message: packets,
            waits_for: Some((rank + hosts - 1) % hosts),
        });
        Self { name: "ring", radix: 8, flows: flows.collect() }
    }

    fn engine(&self) -> Engine {
        let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        let mut builder = NetworkBuilder::new();
        let hosts = FatTree::full(self.radix, link).build_into(&mut builder);
        let mut settings = EngineSettings { seed: Seed(1), ..EngineSettings::default() };
        settings.transport.window = Window::Packets(WINDOW);
        let network = builder.build().expect("a fat-tree can be emulated");
        let mut engine = Engine::new(network, settings).expect("the packets have a size");
        let ids: Vec<FlowId> = self
            .flows
            .iter()
            .map(|flow| {
                let message = Bytes(flow.packets_per_message * PAYLOAD);
                let spec = FlowSpec {
                    messages: flow.messages,
                    ..FlowSpec::new(hosts[flow.from], hosts[flow.to], message)
                };
                engine.add_flow(spec).expect("a fat-tree is connected")
            })
            .collect();
        for (flow, id) in self.flows.iter().zip(&ids) {
            if let Some(behind) = flow.waits_for {
                let gate = FlowGate { flow: ids[behind], ahead: 1 };
                engine.add_gate(*id, gate).expect("it ends where this one begins");
            }
        }
        engine
    }

    fn described(&self, engine: &Engine) -> String {
        let network = engine.network();
        let links = network.links();
        let spec = links[0].spec;
        let mut text = format!(
            "network {} {} {} {} {PACKET} {ACKNOWLEDGEMENT} {WINDOW}\n",
            network.vertex_count(),
            links.len() / 2,
            spec.rate.0,
            spec.delay.0,
        );
        for cable in links.chunks(2) {
            let _ = writeln!(text, "cable {} {}", cable[0].from.index(), cable[0].to.index());
        }
        for (number, flow) in self.flows.iter().enumerate() {
            let path = engine.path(FlowId::from_index(number));
            let ends = [path.first(), path.last()].map(|link| link.expect("a path has links"));
            let waits_for = flow.waits_for.map_or(-1, |flow| flow as i64);
            let _ = write!(
                text,
                "flow {} {} {} {} {waits_for}",
                network.link(*ends[0]).from.index(),
                network.link(*ends[1]).to.index(),
                flow.messages,
                flow.packets_per_message,
            );
            let words: String =
                path.iter().map(|link: &LinkId| format!(" {}", link.index())).collect();
            let _ = writeln!(text, "{words}");
        }
        text
    }
}

struct Outcome {
    times: Vec<u64>,
    hops: u64,
    cpu_seconds: f64,
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64 / self.times.len() as f64 / 1e6
    }
    fn p99(&self) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() * 99).div_ceil(100) - 1] as f64 / 1e6
    }
    fn rate(&self) -> f64 {
        self.hops as f64 / self.cpu_seconds / 1e6
    }
}

/// Returns by how many per cent the flow furthest apart differs. `None` by day, or without ns-3.
fn compare(work: impl FnOnce() -> BenchWork) -> Option<f64> {
    std::env::var_os("LIGHTLOOM_NIGHT")?;
    let ns3 = build_ns3().map_err(|reason| println!("skipped: {reason}")).ok()?;
    let work = work();
    let (ours, theirs) = (run_ours(&work), run_ns3(&work, &ns3));
    assert_eq!(ours.hops, theirs.hops, "both put the same packets on the same wires");
    println!("\n{} over {} hosts, {} packet-hops", work.name, work.flows.len(), ours.hops);
    println!(
        "{:<10} {:>12} {:>12} {:>10} {:>12}",
        "", "mean µs", "p99 µs", "cpu s", "M hops/cpu s"
    );
    for (name, outcome) in [("lightloom", &ours), ("ns-3", &theirs)] {
        println!(
            "{name:<10} {:>12.3} {:>12.3} {:>10.3} {:>12.3}",
            outcome.mean(),
            outcome.p99(),
            outcome.cpu_seconds,
            outcome.rate(),
        );
    }
    let apart = |ours: f64, theirs: f64| (ours / theirs - 1.0) * 100.0;
    let worst = ours.times.iter().zip(&theirs.times);
    let worst =
        worst.map(|(a, b)| apart(*a as f64, *b as f64)).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    println!(
        "lightloom against ns-3: mean {:+.2} %, p99 {:+.2} %, the flow furthest apart {:+.2} %; {:.0} times the packet-hops",
        apart(ours.mean(), theirs.mean()),
        apart(ours.p99(), theirs.p99()),
        worst.unwrap_or_default(),
        ours.rate() / theirs.rate(),
    );
    worst
}

fn run_ours(work: &BenchWork) -> Outcome {
    let mut seconds = Vec::new();
    let mut last = None;
    for _ in 0..REPETITIONS {
        let mut engine = work.engine();
        let begin = ProcessTime::now();
        engine.run(SimTime(1_000_000_000_000));
        seconds.push(begin.elapsed().as_secs_f64());
        last = Some(engine);
    }
    seconds.sort_by(f64::total_cmp);
    let engine = last.expect("it ran");
    assert_eq!(engine.packets().retransmitted, 0, "nothing is lost or thought lost");
    let end = |record: lightloom_engine::FlowRecord| record.end.expect("every flow ends").0;
    Outcome {
        times: engine.records().map(end).collect(),
        hops: engine.packets().hops,
        cpu_seconds: seconds[REPETITIONS / 2],
    }
}

fn build_ns3() -> Result<PathBuf, String> {
    if !Path::new("/usr/include/ns3").is_dir() {
        return Err("ns-3 is not here (Debian: apt-get install libns3-dev)".into());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/ns3/fixed_window.cc");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixed_window");
    let libraries = ["point-to-point", "internet", "traffic-control", "network", "core"];
    let status = Command::new("c++")
        .args(["-O2", "-std=c++17", "-o"])
        .arg(&built)
        .arg(source)
        .args(libraries.map(|name| format!("-lns3-{name}")))
        .status();
    match status {
        Ok(status) if status.success() => Ok(built),
        Ok(_) => Err("the ns-3 side does not compile against this ns-3".into()),
        Err(error) => Err(format!("no C++ compiler: {error}")),
    }
}

fn run_ns3(work: &BenchWork, program: &Path) -> Outcome {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was just built");
    let text = work.described(&work.engine());
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads all");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "ns-3 ended with {}", output.status);
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let all = |name: &str| -> Vec<&str> {
        let of_name = text.lines().filter_map(|line| line.strip_prefix(name));
        of_name.filter_map(|rest| rest.split(' ').next_back()).collect()
    };
    let number = |text: &&str| text.parse::<u64>().expect("a number");
    Outcome {
        times: all("time ").iter().map(number).collect(),
        hops: number(&all("hops ")[0]),
        cpu_seconds: all("cpu ")[0].parse().expect("a number"),
    }
}
