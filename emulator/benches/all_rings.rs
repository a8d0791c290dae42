// SPDX-License-Identifier: Apache-2.0
//! Ring all-reduce of 1 GiB on every ring of 32 GPUs out of 131,072 GPUs concurrently, packet by
//! packet.
//!
//! The rings run in one direction, so that acknowledgements and data use different links and every
//! ring must take its closed form to the picosecond. There are four rows: a fabric without faults,
//! and one with 2 % of its nodes broken from the start (and as many more installed), each
//! undisturbed and with a node that fails half-way. The ring of the failed node is replanned after
//! 2 ms (1 ms each for detection and planning), its transceivers switch in another 60 to 80 µs, and
//! it restarts. Without spare nodes it is lost. No other ring may change by a picosecond.
//!
//! Times are simulated; the real time for plan and network is printed next to them. Memory is the
//! peak of the process so far.
//!
//! `cargo bench -p lightloom-emulator --bench all_rings -- [both] [threads] [MiB] [rings]`; with
//! `both`, the rings run in both directions, and the last column shows the cost of
//! acknowledgements. With `prove`, a single engine repeats the whole computation and must agree
//! (use few rings).
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints and times")]

use std::sync::Arc;
use std::time::Instant;

use lightloom_collective::{CollectiveKind, Directions, Ring as RingCollective};
use lightloom_emulator::substrate::{HBD, PacketSwitches, Substrate};
use lightloom_engine::collective::{Placement, StartedCollective};
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{EngineSettings, Event, LinkChange, NoProbe, Route, VertexId};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_planner::khop::{GroupChange, Layout, Method, RingGroup, Survey, plan, replan};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rand::RngExt;

const NEVER: SimTime = SimTime(u64::MAX - 1);

#[derive(Clone, Copy)]
struct Wanted {
    directions: Directions,
    threads: usize,
    bytes: Bytes,
    rings: u32,
    prove: bool,
}

fn main() {
    let texts: Vec<String> = std::env::args().collect();
    let numbers: Vec<u64> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    let has = |word: &str| texts.iter().any(|text| text == word);
    let number = |place: usize, otherwise| numbers.get(place).copied().unwrap_or(otherwise);
    let wanted = Wanted {
        directions: if has("both") { Directions::Both } else { Directions::One },
        threads: number(0, 1) as usize,
        bytes: Bytes(number(1, 1_024) << 20),
        rings: number(2, 4_096) as u32,
        prove: has("prove"),
    };
    println!(
        "{:>6} {:>7} {:>9} {:>9} {:>15} {:>8} {:>8} {:>8} {:>8} {:>12}  closed form",
        "rings",
        "broken",
        "islands",
        "simulated",
        "packet-hops",
        "setup s",
        "wall s",
        "cpu s",
        "peak MB",
        "end ms"
    );
    for spare_percent in [0, 2] {
        let case = Case::new(wanted, spare_percent);
        let half = case.measure(wanted, None) / 2;
        case.measure(wanted, Some(SimTime(half)));
    }
}

struct Case {
    fabric: Arc<Fabric>,
    faults: FaultSet,
    layout: Layout,
}

impl Case {
    /// Creates `rings` rings of 8 nodes, with this percentage of additional broken nodes.
    fn new(wanted: Wanted, broken_percent: u32) -> Self {
        let (needed, ratio) = (wanted.rings * 8, f64::from(broken_percent) / 100.0);
        // Add as many nodes as are broken, and half as many again as spares, in whole racks.
        let nodes = needed + (f64::from(needed) * ratio * 1.5) as u32 / 4 * 4;
        let text = format!(
            "kind: fabric\nversion: 2\nname: all-rings\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 3, shape: ring}}}}\n\
             dcn: {{fat_tree: {{nodes_per_tor: 4, tors_per_domain: 64}}}}\n\
             jobs: [{{name: train, gpus: {}, tp: 32}}]\n",
            wanted.rings * 32
        );
        let (fabric, mistakes) = lightloom_fabric::file::load("bench", text.as_bytes());
        let fabric = Arc::new(fabric.unwrap_or_else(|| panic!("{mistakes:?}")));
        let mut draws = Seed(1).stream("faults", 0);
        let broken = (0..nodes).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
        let faults = FaultSet { nodes: broken, ..FaultSet::none() };
        let layout = plan(&fabric, &faults, Method::Scan).expect("there are nodes enough");
        Self { fabric, faults, layout }
    }

    /// Runs all rings, with a node that fails at `dies`, and prints a row. Returns when the last
    /// ring ended.
    fn measure(&self, wanted: Wanted, dies: Option<SimTime>) -> u64 {
        let begun = Instant::now();
        let substrate = Substrate::of_fabric(
            &self.fabric,
            &PacketSwitches::default(),
            (&[], &FaultSet::none()),
        );
        let substrate = substrate.expect("it can be emulated");
        let network = substrate.network.clone();
        let settings = EngineSettings { threads: wanted.threads, ..EngineSettings::default() };
        let stage = IslandEngine::new(network, settings, NoProbe).expect("the packets have a size");
        let setup_seconds = begun.elapsed().as_secs_f64();
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let mut run = Run { case: self, wanted, substrate, stage, rings: Vec::new(), dies };
        run.run();
        let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        let reuse = run.stage.reuse().expect("rings share nothing");
        let (end, verdict) = run.verdict();
        println!(
            "{:>6} {:>7} {:>9} {:>9} {:>15} {setup_seconds:>8.2} {wall:>8.2} {cpu:>8.2} {:>8} {:>12.6}  {verdict}",
            self.rings().count(),
            self.faults.nodes.len(),
            reuse.islands,
            reuse.simulated,
            run.stage.hops(),
            peak_megabytes(),
            end as f64 / 1e9,
        );
        if wanted.prove {
            let engine = run.stage.prove().expect("one engine says the same").expect("taken apart");
            assert!(
                engine.records().eq(run.stage.records()),
                "every flow ends at one time in both"
            );
            println!("       proven: one engine for all says the same of every flow");
        }
        end
    }

    fn rings(&self) -> impl Iterator<Item = &RingGroup> {
        self.layout.groups.iter().filter(|group| group.job.is_some())
    }
}

struct Ring {
    group: RingGroup,
    now: Option<StartedCollective>,
    hit: bool,
}

struct Run<'a> {
    case: &'a Case,
    wanted: Wanted,
    substrate: Substrate,
    stage: IslandEngine,
    rings: Vec<Ring>,
    dies: Option<SimTime>,
}

const DIES: u64 = 0;
const REPLANNED: u64 = 1;
const LIT: u64 = 2;

impl Run<'_> {
    fn run(&mut self) {
        for group in self.case.rings() {
            self.rings.push(Ring { group: group.clone(), now: None, hit: false });
        }
        if let Some(dies) = self.dies {
            self.stage.set_timer(dies, DIES);
        }
        for ring in 0..self.rings.len() {
            self.begin(ring);
        }
        while let Some(event) = self.stage.next_event(NEVER) {
            if let Event::Timer { at, token } = event {
                self.happens(at, token);
            }
        }
    }

    fn begin(&mut self, ring: usize) {
        let members = self.members(&self.rings[ring].group);
        let collective = RingCollective {
            kind: CollectiveKind::AllReduce,
            ranks: members.len(),
            size: self.wanted.bytes,
            directions: self.wanted.directions,
        };
        let schedule = collective.schedule().expect("a ring has members");
        let placement = Placement::new(members, Route::Within(HBD)).at(self.stage.now());
        let collective = placement.start(&schedule, &mut self.stage);
        let collective = collective.expect("neighbours are joined");
        self.rings[ring].now = Some(collective);
    }

    fn members(&self, group: &RingGroup) -> Vec<VertexId> {
        let ring = self.case.layout.ring(&self.case.fabric.hbd, group);
        let rings = self.substrate.rings.as_ref().expect("a k-hop ring");
        ring.iter().map(|gpu| rings.vertex(*gpu)).collect()
    }

    fn victim(&self) -> NodeId {
        self.rings[self.rings.len() / 2].group.nodes[2]
    }

    fn happens(&mut self, at: SimTime, token: u64) {
        let fabric = &self.case.fabric;
        let victim = self.victim();
        let hit = self.rings.len() / 2;
        match token {
            DIES => {
                let part = self.substrate.part(&victim.to_string()).expect("it exists");
                for link in part.links {
                    self.stage.change_link(at, link, LinkChange::Down);
                }
                self.rings[hit].hit = true;
                self.stage.set_timer(at + Picoseconds::from_millis(2), REPLANNED);
            }
            REPLANNED => {
                let given_up = self.rings[hit].now.take().expect("it runs");
                given_up.cancel(&mut self.stage);
                let mut faults = self.case.faults.clone();
                faults.insert(fabric, Part::Node(victim)).expect("it exists");
                let mut layout = self.case.layout.clone();
                let change = replan(fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
                let lost = change.groups.iter().any(|g| matches!(g, GroupChange::Lost { .. }));
                if !lost {
                    let place =
                        layout.groups.len() - self.case.layout.groups.len() + self.place(hit);
                    self.rings[hit].group = layout.groups[place].clone();
                    let dark = Picoseconds::from_micros(80);
                    let transceiver = &fabric.transceiver;
                    self.stage.set_timer(at + transceiver.software_delay + dark, LIT);
                }
            }
            _ => self.begin(hit),
        }
    }

    fn place(&self, ring: usize) -> usize {
        let of_jobs = self.case.layout.groups.iter().enumerate();
        of_jobs
            .filter(|(_, group)| group.job.is_some())
            .map(|(place, _)| place)
            .nth(ring)
            .unwrap_or(0)
    }

    /// Returns when the last ring ended, and the comparison with the closed form.
    fn verdict(&self) -> (u64, String) {
        let (mut last, mut equal, mut lost, mut most) = (0, 0, 0, 0.0_f64);
        for ring in &self.rings {
            let Some(collective) = &ring.now else {
                lost += 1;
                continue;
            };
            let end = collective.end(&self.stage).expect("every ring ends");
            let took = end.since(collective.start);
            equal += usize::from(took == collective.ideal);
            most = most.max(took.as_secs_f64() / collective.ideal.as_secs_f64() - 1.0);
            last = last.max(end.0);
        }
        let over = most * 100.0;
        let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
        (
            last,
            format!(
                "{equal} of {} equal to the picosecond, at most {over:.3} % over{lost}",
                self.rings.len()
            ),
        )
    }
}

fn cpu_seconds() -> f64 {
    cpu_time::ProcessTime::now().as_duration().as_secs_f64()
}

fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("Linux says how much") / 1_024
}
