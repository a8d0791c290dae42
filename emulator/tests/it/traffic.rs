// SPDX-License-Identifier: Apache-2.0
//! Tests of traffic scenarios: every network carries traffic, faults affect only the flows that
//! they hit, cycles of pauses are reported, and errors have a location.

use std::path::{Path, PathBuf};

use lightloom_emulator::outcome::{Outcome, Stop};
use lightloom_emulator::run::Progress;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;
use lightloom_units::{Picoseconds, SimTime};

fn load(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let table = b"start,src,dst,bytes\n0,h0,h1,4032\n5us,h2,h9,4032\n".to_vec();
    let read = &mut |name: &str| match name {
        "flows.csv" => Ok(NamedFile { name: name.to_owned(), bytes: table.clone() }),
        _ => Err(format!("cannot read {name}")),
    };
    scenario::file::load("traffic.yaml", text.as_bytes(), read)
}

fn run_on(text: &str, threads: usize) -> Outcome {
    let (scenario, mistakes) = load(text);
    let scenario = scenario.unwrap_or_else(|| panic!("{text}: {mistakes:?}"));
    lightloom_emulator::emulate(&scenario, threads, &mut ()).unwrap()
}

fn run(text: &str) -> Outcome {
    run_on(text, 1)
}

struct Shares(Vec<f64>);

impl Progress for Shares {
    fn report(&mut self, _: SimTime, _: u64, done: &dyn Fn() -> f64) {
        self.0.push(done());
    }
}

/// Regression test: a single permutation was reported as 0 % until its end.
#[test]
fn progress_grows_with_delivered_bytes() {
    let text = "name: p\non: {fat_tree: {radix: 4}}\ntraffic:\n  \
                - {name: p, run: permutation, bytes: 64MiB, repeat: 2}\n";
    let mut shares = Shares(Vec::new());
    lightloom_emulator::emulate(&load(text).0.unwrap(), 1, &mut shares).unwrap();
    assert!(shares.0.is_sorted(), "{:?}", shares.0);
    for tenth in 1..10 {
        let near = shares.0.iter().any(|share| (share * 10.0 - f64::from(tenth)).abs() < 0.5);
        assert!(near, "{tenth}: {:?}", shares.0);
    }
    assert_eq!(shares.0.last(), Some(&1.0));
}

const NETWORKS: [&str; 11] = [
    "fat_tree: {radix: 4}",
    "fat_tree: {radix: 4, oversubscription: 3}",
    "leaf_spine: {leaves: 4, spines: 2, hosts_per_leaf: 4, nics: 2}",
    "rail_optimised: {servers: 4, gpus_per_server: 4, spines: 2}",
    "rail_only: {domains: 4, gpus_per_domain: 4}",
    "torus: {sides: [4, 4]}",
    "tpu_cubes: {cubes: [1, 1, 1]}",
    "switched_domain: {gpus: 16, switches: 4}",
    "ring: {hosts: 16}",
    "line: {hosts: 16}",
    "graph: {hosts: [h0, h1, h2], switches: [s], cables: [{ends: [h0, s]}, {ends: [h1, s], rate: 100Gbps}, {ends: [s, h2]}]}",
];

#[test]
fn every_network_carries_every_pattern_without_loss() {
    for network in NETWORKS {
        let outcome = run(&format!(
            "
name: all
on: {{{network}}}
seed: 3
traffic:
  - {{name: p, run: permutation, bytes: 64KiB}}
  - {{name: s, run: {{shift: 1}}, bytes: 64KiB, after: [p]}}
  - {{name: i, run: {{incast: h0}}, bytes: 16KiB, after: [s]}}
  - {{name: a, run: {{all_to_all: bruck}}, bytes: 64KiB, after: [i]}}
  - {{name: o, run: {{all_to_all: at_once}}, bytes: 64KiB, after: [a]}}
  - {{name: r, run: {{all_reduce: ring}}, bytes: 64KiB, after: [o]}}
  - {{name: w, run: {{all_reduce: ring}}, directions: one, bytes: 64KiB, after: [r]}}
  - {{name: d, run: {{all_reduce: double_tree}}, bytes: 64KiB, after: [r]}}
  - {{name: b, run: {{broadcast: 8}}, bytes: 64KiB, after: [d]}}
  - {{name: x, run: {{random: {{sizes: hadoop, load: 0.2, lasts: 20us}}}}}}
"
        ));
        assert!(outcome.stop.is_none(), "{network}: {:?}", outcome.waiting);
        assert_eq!(outcome.workloads.len(), 10, "{network}");
        for workload in &outcome.workloads {
            let took = workload.end.unwrap().since(workload.start);
            assert!(took >= workload.ideal, "{network}: {workload:?} is faster than light");
        }
        let packets = outcome.head.packets;
        assert_eq!(packets.sent, packets.delivered + packets.dropped + packets.lost, "{network}");
    }
}

#[test]
fn ring_and_hierarchy_match_their_closed_forms() {
    let text = |run: &str| {
        format!(
            "name: x\non: {{ring: {{hosts: 8}}}}\n\
             traffic: [{{name: a, run: {run}, bytes: 2064384B}}]\n"
        )
    };
    let [one] =
        <[_; 1]>::try_from(run(&text("{all_reduce: ring}, directions: one")).workloads).unwrap();
    assert_eq!(one.end.unwrap().since(one.start), one.ideal, "to the picosecond");
    let [both] = <[_; 1]>::try_from(run(&text("{all_reduce: ring}")).workloads).unwrap();
    assert!(both.end < one.end, "half of the data each way");
    let tree = text("{all_reduce: {hierarchical: 4}}")
        .replace("ring: {hosts", "switched_domain: {switches: 2, gpus");
    let [tree] = <[_; 1]>::try_from(run(&tree).workloads).unwrap();
    assert_eq!(tree.kind, "all-reduce");
    assert!(tree.end.is_some_and(|end| end.since(tree.start) >= tree.ideal));
    for wrong in ["{all_reduce: {hierarchical: 3}}", "{all_reduce: tree}, directions: one"] {
        let (scenario, mistakes) = load(&text(wrong));
        assert!(scenario.is_none() && mistakes.len() == 1, "{wrong}: {mistakes:?}");
    }
}

#[test]
fn equal_seeds_give_equal_results_on_any_thread_count() {
    let text = "
name: threads
on: {fat_tree: {radix: 4}}
switches: {pause: {priorities: [3], above: 32KiB}}
transport: {congestion: dcqcn}
traffic:
  - {name: i, run: {incast: h0}, bytes: 256KiB, priority: 3}
  - {name: p, run: permutation, bytes: 256KiB}
faults: [{part: any switch, at: 10us, lasts: 20us}]
control: {reroute_delay: 5us}
";
    let one = run_on(text, 1);
    for threads in [2, 3] {
        let mut more = run_on(text, threads);
        more.head.threads = 1;
        assert_eq!(more, one);
    }
}

#[test]
fn pause_cycle_ends_the_run() {
    // Every host sends two switches further in one direction, so each port waits for the next.
    let names = |kind: &str| (0..5).map(|i| format!("{kind}{i}")).collect::<Vec<_>>().join(", ");
    let mut cables = String::new();
    for i in 0..5 {
        cables += &format!("{{ends: [h{i}, s{i}]}}, {{ends: [s{i}, s{}]}}, ", (i + 1) % 5);
    }
    let text = format!(
        "
name: circle
on: {{graph: {{hosts: [{}], switches: [{}], cables: [{cables}]}}}}
switches: {{pause: {{priorities: [3], above: 16KiB}}}}
transport: {{window_packets: 400}}
traffic: [{{name: around, run: {{shift: 2}}, bytes: 64MiB, priority: 3}}]
expect: [no deadlock, no drops on priority 3]
",
        names("h"),
        names("s")
    );
    let outcome = run(&text);
    let Some(Stop::Deadlock { ports }) = &outcome.stop else { panic!("{:?}", outcome.stop) };
    assert!(ports.len() >= 3 && ports.iter().all(|port| port.contains('→')), "{ports:?}");
    assert!(outcome.never_ended && !outcome.passed());
    assert!(!outcome.expectations[0].passed);
    assert!(outcome.expectations[0].value.contains(&ports[0]), "{}", outcome.expectations[0].value);
    let calm = run(&text
        .replace("priority: 3}]", "priority: 2}]")
        .replace("on priority 3]", "on priority 2]")
        .replace("64MiB", "1MiB"));
    assert!(calm.stop.is_none() && calm.expectations.iter().all(|e| e.passed), "{:?}", calm.stop);
}

const SHUFFLE: &str = "
name: shuffle
on: {leaf_spine: {leaves: 4, spines: 4, hosts_per_leaf: 4, nics: 2}}
seed: 5
traffic:
  - {name: left, run: {all_to_all: pairwise}, hosts: [h0..h7], bytes: 2MiB}
  - {name: right, run: {all_to_all: pairwise}, hosts: [h8..h15], bytes: 2MiB}
control: {reroute_delay: 20us}
";

fn with(fault: &str) -> Outcome {
    run(&format!("{SHUFFLE}faults: [{fault}]\n"))
}

#[test]
fn fault_delays_only_the_workload_it_hits() {
    for fault in [
        "{part: h3/nic1, at: 10us}",
        "{part: h3/nic1, at: 10us, lasts: 30us}",
        "{part: h3, at: 10us, lasts: 100us}",
        "{part: s0, at: 10us, lasts: 100us}",
        "{part: h3-s0, at: 10us, effect: {rate: 50Gbps}}",
        "{part: h3-s0, at: 10us, effect: {bit_errors: 1e-5}}",
        "{part: h3/nic0, at: 10us, effect: {flapping: {down: 10us, up: 10us, times: 3}}}",
        "{parts: [h3/nic0, h4/nic0], at: 10us}",
    ] {
        let outcome = with(fault);
        let [affected] = outcome.faults.as_slice() else { panic!("{fault}") };
        let traffic = affected.traffic.as_ref().unwrap();
        assert_eq!(traffic.workloads, ["left"], "{fault}: {affected}");
        assert!(traffic.flows_hit > 0 && traffic.flows_moved > 0, "{fault}: {affected}");
        assert_eq!(traffic.flows_given_up, 0, "{fault}: {affected}");
        assert!(
            traffic.hosts.iter().all(|host| host[1..].parse::<u32>().unwrap() < 8),
            "{affected}"
        );
        let [left, right] = outcome.workloads.as_slice() else { panic!("{fault}") };
        assert_eq!(right.end, right.end_without_faults, "{fault}");
        assert!(left.end > left.end_without_faults, "{fault}: {left:?}");
    }
}

#[test]
fn failed_host_ends_its_flows_and_leaves_none_waiting() {
    let outcome = with("{part: rack s1, at: 10us}");
    let [affected] = outcome.faults.as_slice() else { panic!("one fault") };
    let traffic = affected.traffic.as_ref().unwrap();
    assert_eq!(affected.gpus_lost, 4, "the hosts of a leaf");
    assert!(traffic.flows_given_up > 0, "{affected}");
    assert_eq!(outcome.stop, None, "{:?}", outcome.waiting);
    assert!(outcome.waiting[0].what.contains("`left`"), "{:?}", outcome.waiting);
    assert!(outcome.workloads[0].end.is_none() && outcome.workloads[1].end.is_some());
    // Four of sixteen hosts are out of service from 10 us on.
    let out =
        (outcome.head.simulated.0 - 10_000_000) as f64 / outcome.head.simulated.0 as f64 / 4.0;
    assert!(
        (1.0 - outcome.metrics.availability - out).abs() < 1e-6,
        "{}",
        outcome.metrics.availability
    );
}

#[test]
fn pause_storm_spreads_only_within_its_lossless_priority() {
    // h0 pauses, so its leaf fills and pauses its uplinks. That stops flows to h1 from other
    // leaves.
    let text = |priority: u8| {
        format!(
            "
name: storm
on: {{leaf_spine: {{leaves: 2, spines: 1, hosts_per_leaf: 2}}}}
switches: {{queue: 1MiB, pause: {{priorities: [3], above: 32KiB}}}}
transport: {{timeout: 10ms}}
traffic:
  - {{name: hit, run: {{incast: h0}}, hosts: [h0, h2], bytes: 8MiB, priority: 3}}
  - {{name: victim, run: {{incast: h1}}, hosts: [h1, h3], bytes: 8MiB, priority: {priority}}}
faults: [{{part: h0, at: 50us, lasts: 300us, effect: {{pause_storm: 3}}}}]
expect: [no drops on priority 3, no deadlock]
"
        )
    };
    let late = |outcome: &Outcome, index: usize| {
        let flow = &outcome.workloads[index];
        flow.end.unwrap().since(flow.end_without_faults.unwrap()).as_secs_f64() * 1e6
    };
    let shared = run(&text(3));
    assert!(shared.passed() && shared.head.packets.pauses > 0, "{:?}", shared.expectations);
    assert!((250.0..320.0).contains(&late(&shared, 0)), "{}", late(&shared, 0));
    assert!(late(&shared, 1) > 150.0, "the victim waits too: {}", late(&shared, 1));
    let apart = run(&text(4));
    assert!(apart.passed());
    // With another priority the victim has the uplink to itself in the meantime, so it does not end
    // later.
    let victim = &apart.workloads[1];
    assert!(victim.end <= victim.end_without_faults, "{victim:?}");
}

#[test]
fn optical_switch_fault_removes_one_cable_of_every_cube() {
    let text = "
name: board
on: {tpu_cubes: {cubes: [1, 1, 2]}}
traffic: [{name: step, run: {all_reduce: torus}, bytes: 1MiB}]
faults: [{part: ocs37, at: 2us, lasts: 50us}]
control: {reroute_delay: 10us}
";
    let (scenario, _) = load(text);
    let substrate = scenario::plan(&scenario.unwrap()).unwrap().substrate;
    assert_eq!((substrate.hosts.len(), substrate.patched.len()), (128, 48));
    let links = substrate.part("ocs37").unwrap().links;
    assert_eq!(links.len(), 4, "two cables, both directions");
    let outcome = run(text);
    assert!(
        outcome.faults[0].restored.is_some() && outcome.head.packets.lost > 0,
        "{:?}",
        outcome.faults
    );
    assert!(outcome.workloads[0].end > outcome.workloads[0].end_without_faults);
}

#[test]
fn task_graph_waits_and_computes() {
    let outcome = run("
name: graph
on: {switched_domain: {gpus: 4, switches: 1}}
traffic:
  - {name: forward, run: {compute: 10us}, repeat: 3}
  - {name: table, run: {flows: flows.csv}, hosts: [h0..h3], after: [forward]}
  - {name: end, run: {compute: 1us}, after: [table, forward], delay: 2us}
"
    .replace("gpus: 4", "gpus: 16")
    .as_str());
    let ends: Vec<SimTime> = outcome.workloads.iter().map(|c| c.end.unwrap()).collect();
    assert_eq!(ends[..3], [10, 20, 30].map(|us| SimTime(us * 1_000_000)));
    // The second flow begins 5 us after the table does: a packet over two links.
    assert_eq!(ends[3], SimTime(35_000_000 + 2 * (81_920 + 1_000_000)));
    // Reported one link delay later, then 2 us, then 1 us.
    assert_eq!(ends[4], ends[3] + Picoseconds::from_micros(1 + 2 + 1));
}

#[test]
fn locates_every_mistake() {
    let good = "name: x\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 2}}\n";
    for (more, wanted) in [
        ("traffic: [{name: a, run: permutation}]", "LL0322"),
        ("traffic: [{name: a, run: {incast: h9}, bytes: 1KiB}]", "`h9` is not a host"),
        ("traffic: [{name: a, run: {shift: 4}, bytes: 1KiB}]", "maps every host to itself"),
        ("traffic: [{name: a, run: {all_reduce: torus}, bytes: 1KiB}]", "torus"),
        ("traffic: [{name: a, run: permutation, bytes: 1KiB, after: [b]}]", "`b`"),
        ("traffic: [{name: a, run: permutation, bytes: 1KiB, hosts: [h0, q]}]", "LL0307"),
        ("traffic: [{name: a, run: permutation, bytes: 1KiB, hosts: [h0, h0..h1]}]", "twice"),
        ("traffic: [{name: a, run: {flows: flows.csv}}]", "flows.csv:3:8: error[LL0323]"),
        ("traffic: [{name: a, run: {flows: none.csv}}]", "LL0306"),
        (
            "traffic: [{name: a, run: {all_reduce: halving_doubling}, bytes: 1KiB, hosts: [h0..h2]}]",
            "power of two",
        ),
        (
            "traffic: [{name: a, run: {random: {sizes: {points: [{bytes: 1KiB, percent: 50}]}, load: 0.5, lasts: 1us}}}]",
            "100 percent",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: s9, at: 1us}]",
            "`h0` to `h3`",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0-h1, at: 1us}]",
            "has cables to",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: ocs0, at: 1us}]",
            "0 optical",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0/nic1, at: 1us}]",
            "nic0 to nic0",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0, at: 1us, effect: stuck}]",
            "LL0308",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0, at: 1us}]\nexpect: [workload b unaffected]",
            "workload `b` does not exist",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nexpect: [waste_ratio < 1]",
            "`waste_ratio` requires",
        ),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0, at: 1us}]\nexpect: [group g1 unaffected]",
            "no groups",
        ),
        ("traffic: [{name: a, run: permutation, bytes: 1KiB}]\nlinks: {delay: 0ns}", "LL0321"),
        (
            "traffic: [{name: a, run: permutation, bytes: 1KiB}]\nfaults: [{part: h0, at: 1us, effect: {pause_storm: 3}}]",
            "supports pauses",
        ),
    ] {
        let (scenario, mistakes) = load(&format!("{good}{more}\n"));
        assert!(scenario.is_none(), "{more}");
        let found: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|found| found.contains(wanted)), "{more}: {found:?}");
        assert!(mistakes.iter().all(|mistake| mistake.place.is_some()), "{mistakes:?}");
    }
}

#[test]
fn every_congestion_control_parameter_has_an_effect() {
    let run = |congestion: &str, figures: &str| {
        run(&format!(
            "
name: figures
on: {{leaf_spine: {{leaves: 2, spines: 1, hosts_per_leaf: 8}}}}
links: {{rate: 40Gbps}}
switches: {{queue: 256KiB, mark_from: 20KiB}}
transport: {{congestion: {congestion}, window_percent: 400{figures}}}
traffic: [{{name: i, run: {{incast: h0}}, bytes: 1MiB}}]
"
        ))
        .head
        .simulated
    };
    for (congestion, figures) in [
        ("dctcp", ["inverse_gain: 2"].as_slice()),
        (
            "dcqcn",
            &[
                "inverse_gain: 4",
                "notification_interval: 500us",
                "timer: 2us",
                "byte_counter: 50KB",
                "timer: 5us, additive: 4Gbps",
                "timer: 5us, byte_counter: 5KB, hyper: 20Gbps",
                "decrease_interval: 4us",
                "decrease_interval: 4us, window_follows_rate: true",
                "preset: nvidia",
                "preset: simai",
                "preset: htsim, timer: 5us",
            ],
        ),
        (
            "swift",
            &[
                "queueing_target: 40us",
                "per_hop: 10us",
                "increase: 4",
                "decrease_percent: 20",
                "largest_decrease_percent: 10",
            ],
        ),
        ("nscc", &["queueing_target: 40us"]),
    ] {
        let plain = run(congestion, "");
        let defaults = run(congestion, &format!(", {congestion}: {{}}"));
        assert_eq!(plain, defaults, "{congestion}");
        for figure in figures {
            let other = run(congestion, &format!(", {congestion}: {{{figure}}}"));
            assert_ne!(other, plain, "`{figure}` of {congestion} changes nothing");
        }
    }
}

#[test]
fn shipped_traffic_scenarios_meet_their_expectations() {
    let folder: PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/scenarios").into();
    let mut run = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if String::from_utf8_lossy(&bytes).contains("\non: {fabric") {
            continue;
        }
        let beside = |name: &str| path.parent().unwrap_or(Path::new("")).join(name);
        let read = &mut |name: &str| {
            let bytes = std::fs::read(beside(name)).map_err(|error| error.to_string())?;
            Ok(NamedFile { name: name.to_owned(), bytes })
        };
        let (scenario, mistakes) = scenario::file::load(&path.display().to_string(), &bytes, read);
        let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
        let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
        assert!(
            outcome.passed(),
            "{}: {:?} {:?}",
            path.display(),
            outcome.expectations,
            outcome.waiting
        );
        run += 1;
    }
    assert!(run >= 9, "{run}");
}

#[test]
fn host_is_out_of_service_while_its_last_cable_is_dark() {
    let run = |nics: u32, faults: &str| {
        run(&format!(
            "
name: cut
on: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 4, nics: {nics}}}}}
traffic: [{{name: a, run: {{shift: 1}}, hosts: [h0..h3], bytes: 16MiB}}]
control: {{reroute_delay: 10us}}
faults: [{faults}]
"
        ))
    };
    let lost = |outcome: &Outcome| outcome.faults.iter().map(|f| f.gpus_lost).collect::<Vec<_>>();
    let only = run(1, "{part: h3/nic0, at: 10us, lasts: 100us}");
    assert_eq!(lost(&only), [1], "its only interface");
    let share = 1.0 - 100e-6 / only.head.simulated.since(SimTime::START).as_secs_f64() / 8.0;
    assert!(
        (only.metrics.availability - share).abs() < 1e-6,
        "{} {share}",
        only.metrics.availability
    );
    let one = run(2, "{part: h3/nic0, at: 10us, lasts: 100us}");
    assert_eq!((lost(&one), one.metrics.availability), (vec![0], 1.0), "one of two");
    let both =
        run(2, "{part: h3/nic0, at: 10us, lasts: 100us}, {part: h3/nic1, at: 60us, lasts: 100us}");
    assert_eq!(lost(&both), [0, 1], "the one that took the last");
    let share = 1.0 - 50e-6 / both.head.simulated.since(SimTime::START).as_secs_f64() / 8.0;
    assert!(
        (both.metrics.availability - share).abs() < 1e-6,
        "{} {share}",
        both.metrics.availability
    );
}

#[test]
fn phase_circuits_form_a_network_and_fail_with_their_switch() {
    let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/rfabric-shapes.yaml");
    let text = |phase: &str| {
        format!(
            "
name: direct
on: {{direct_connect: {{rfabric: rfabric-shapes.yaml, phase: {phase}}}}}
traffic: [{{name: a, run: {{all_to_all: at_once}}, bytes: 16MiB}}]
faults: [{{part: ocs0, at: 20us}}]
control: {{reroute_delay: 20us}}
expect: [restored within 30us, gpus_lost == 0]
"
        )
    };
    let load = |phase: &str| {
        let mut read = |name: &str| {
            let bytes = std::fs::read(shapes).map_err(|error| error.to_string())?;
            Ok(NamedFile { name: name.to_owned(), bytes })
        };
        scenario::file::load("traffic.yaml", text(phase).as_bytes(), &mut read)
    };
    let (scenario, mistakes) = load("experts");
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    let substrate = scenario::plan(&scenario).unwrap().substrate;
    assert_eq!((substrate.hosts.len(), substrate.patched.len()), (16, 4));
    assert_eq!(substrate.patched.iter().map(Vec::len).sum::<usize>(), 64);
    assert_eq!(substrate.network.links().len(), 2 * (16 + 16 + 64));
    let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
    assert!(outcome.passed(), "{:?}", outcome.expectations);
    let affected = outcome.faults[0].traffic.as_ref().unwrap();
    assert!(affected.flows_hit > 0 && affected.flows_given_up == 0, "{affected:?}");
    let (scenario, mistakes) = load("sync");
    assert!(
        scenario.is_none() && mistakes[0].to_string().contains("does not contain phase `sync`")
    );
}
