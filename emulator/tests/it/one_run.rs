// SPDX-License-Identifier: Apache-2.0
//! Tests that rings, circuits and flows share one event loop. Concurrent workloads conserve
//! packets, do not depend on the number of threads and respect lower bounds. The effects of each
//! fault equal the differences between two runs.

use std::collections::BTreeSet;
use std::path::Path;

use lightloom_emulator::emulate;
use lightloom_emulator::outcome::{Outcome, PhaseResult, Waiting, WaitsFor};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds};
use rand::RngExt;

/// Eight leaves of two nodes, with little traffic between leaves.
const POD: &str = "
kind: fabric
version: 2
name: pod
hbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}
dcn:
  reconfigurable_fat_tree:
    leaves: 8
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 800Gbps, oversubscription: 4}
    banks:
      - {name: core, switches: 2, ports_per_switch: 32, ports_per_leaf: 4, insertion_loss_db: 1.5}
    timing: {control: 1us, switching: 2us}
    failure_domains: 2
transceiver: {software_delay: 20us}
jobs:
  - {name: train, gpus: 48, tp: 8}
  - name: exchange
    step:
      phases:
        - {name: near, demand: {matrix: [NEAR]}}
        - {name: far, slack: 20us, demand: {matrix: [FAR]}}
";

fn pod(bytes: u64) -> String {
    let matrix = |step: usize, bytes: u64| {
        let row = |from: usize| {
            let cell = |to: usize| match to {
                _ if to == from => 0,
                _ if to == from ^ step => bytes,
                _ => bytes / 16,
            };
            let cells: Vec<String> = (0..8).map(|to| cell(to).to_string()).collect();
            format!("[{}]", cells.join(", "))
        };
        (0..8).map(row).collect::<Vec<_>>().join(", ")
    };
    POD.replace("NEAR", &matrix(1, bytes)).replace("FAR", &matrix(4, bytes))
}

fn load(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    // The phases of the second pod are long enough to change circuits.
    let read = &mut |name: &str| match name {
        "pod.yaml" => Ok(NamedFile { name: name.into(), bytes: pod(400_000).into_bytes() }),
        "busy-pod.yaml" => Ok(NamedFile { name: name.into(), bytes: pod(4_000_000).into_bytes() }),
        _ => Err(format!("cannot read {name}")),
    };
    scenario::file::load("s.yaml", text.as_bytes(), read)
}

fn loaded(text: &str) -> Scenario {
    let (scenario, mistakes) = load(text);
    scenario.unwrap_or_else(|| panic!("{text}\n{mistakes:?}"))
}

fn require_conserved(outcome: &Outcome) {
    let packets = outcome.head.packets;
    let arrived = packets.delivered + packets.dropped + packets.lost + packets.in_flight;
    assert_eq!(packets.sent, arrived, "{}: {packets:?}", outcome.head.scenario);
}

/// Draws a scenario that mixes rings, circuits and flows, with faults of all three.
fn random(seed: u64) -> String {
    let mut draws = Seed(seed).stream("mixture", 0);
    let mut below = |count: u64| draws.random_range(0..count);
    let repeat = 1 + below(4);
    let bytes = 16 << below(4);
    let patterns = ["permutation", "{shift: 3}", "{all_to_all: at_once}", "{all_reduce: ring}"];
    let pattern = patterns[below(4) as usize];
    let steps = 1 + below(2);
    let parts =
        ["n1", "n6", "n9", "n13", "n2/g1", "n5/nic2", "n3/b0", "n7/b1.1", "leaf1/gpus", "control"];
    let mut faults = Vec::new();
    for _ in 0..below(4) {
        let part = parts[below(10) as usize];
        let (at, lasts) = (below(120), 1 + below(300));
        let lasts = if below(3) == 0 { String::new() } else { format!(", lasts: {lasts}us") };
        let slower = ["", ", effect: {rate: 50Gbps}"][below(2) as usize];
        let effect = match part {
            "leaf1/gpus" => ", effect: {rate_percent: 50}",
            "control" => "",
            _ => slower,
        };
        faults.push(format!("{{part: {part}, at: {at}us{effect}{lasts}}}"));
    }
    if below(2) == 0 {
        let first = below(24);
        let (phase, effect) =
            (["near", "far"][below(2) as usize], ["down", "stuck"][below(2) as usize]);
        faults.push(format!(
            "{{part: ocs{}/p{first}..p{}, effect: {effect}, phase: {phase}, at: {}us, lasts: 60us}}",
            below(2),
            first + below(8),
            below(40)
        ));
    }
    format!(
        "
name: mixture {seed}
on: {{fabric: pod.yaml}}
seed: {seed}
collectives: [{{all_reduce: {{name: tensor, bytes: 256KiB, repeat: {repeat}}}}}]
traffic: [{{name: flows, run: {pattern}, hosts: [n12..n15], bytes: {bytes}KiB}}]
phases: {{steps: {steps}}}
faults: [{}]
control: {{detection_delay: 10us, planning_delay: 10us}}
time_limit: 20ms
",
        faults.join(", ")
    )
}

fn require_bounds(outcome: &Outcome) {
    for workload in outcome.workloads.iter().filter(|one| one.restarts == 0) {
        let Some(end) = workload.end else { continue };
        let took = end.since(workload.start);
        let bound = workload.lower_bound;
        assert!(took >= bound, "{}: {took} beats {bound}", workload.name);
    }
}

/// Checks that the effects attributed to faults are the differences from a separate run without
/// faults.
fn require_attribution(scenario: &Scenario, outcome: &Outcome) {
    let calm = Scenario { faults: Vec::new(), ..scenario.clone() };
    let calm = emulate(&calm, 1, &mut ()).unwrap();
    let mut differ = BTreeSet::new();
    for group in &outcome.groups {
        let mine = |result: &Outcome| -> Vec<_> {
            let workloads = result.workloads.iter().filter(|one| one.group == Some(group.group));
            workloads.map(|one| (one.name.clone(), one.end)).collect()
        };
        if mine(outcome) != mine(&calm) {
            differ.insert(group.group);
        }
    }
    let affected: BTreeSet<_> =
        outcome.faults.iter().flat_map(|fault| fault.groups_affected.iter().copied()).collect();
    assert_eq!(differ, affected, "{}", outcome.head.scenario);
    let flows = |result: &Outcome| -> Vec<_> {
        let flows = result.workloads.iter().filter(|one| one.name == "flows");
        flows.map(|one| one.end).collect()
    };
    if flows(outcome) != flows(&calm) && !outcome.faults.is_empty() {
        let moved = |fault: &lightloom_emulator::outcome::FaultResult| {
            fault.traffic.as_ref().is_some_and(|traffic| traffic.flows_moved > 0)
        };
        assert!(outcome.faults.iter().any(moved), "{}", outcome.head.scenario);
    }
}

/// Checks that everything ends, except work that waits for permanently failed hosts or a
/// permanently failed control plane, and that unfinished work is named.
fn require_ends(outcome: &Outcome) {
    let for_good = |part: &str| {
        let is_it = |fault: &&lightloom_emulator::outcome::FaultResult| {
            fault.parts.iter().any(|name| name == part) && fault.repaired.is_none()
        };
        outcome.faults.iter().filter(is_it).any(|fault| fault.at.is_some())
    };
    let is_dead = |host: &str| host.starts_with("n13/") && for_good("n13");
    // A collective waits for messages that a failed host will never send.
    let is_given_up = |one: &Waiting| matches!(one.waits_for, WaitsFor::GivenUp { .. });
    let waits_for_dead = for_good("n13") && outcome.waiting.iter().any(is_given_up);
    let open = outcome.flow_records.iter().filter(|flow| flow.end.is_none() && !flow.cancelled);
    for flow in open.filter(|flow| !is_dead(&flow.source) && !is_dead(&flow.destination)) {
        let name = &outcome.head.scenario;
        assert!(for_good("control") || waits_for_dead, "{name}: {flow:?}: {:?}", outcome.waiting);
        let is_named = outcome.waiting.iter().any(|one| one.what.starts_with("`flows`"));
        assert!(is_named, "{name}: {flow:?} is not named: {:?}", outcome.waiting);
    }
    let phases = outcome.phases.iter().all(|phase| phase.times.packets.is_some());
    assert!(
        phases && !outcome.phases.is_empty(),
        "{}: {:?}",
        outcome.head.scenario,
        outcome.phases
    );
}

/// Returns the number of random scenarios; `LIGHTLOOM_MIXTURES=1000` runs a thousand.
fn mixtures() -> u64 {
    std::env::var("LIGHTLOOM_MIXTURES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn random_mixtures_conserve_packets_and_match_on_all_thread_counts() {
    let mut faults = 0;
    for seed in 0..mixtures() {
        let scenario = loaded(&random(seed));
        let outcome = emulate(&scenario, 1, &mut ()).unwrap_or_else(|e| panic!("{seed}: {e}"));
        require_conserved(&outcome);
        require_bounds(&outcome);
        require_attribution(&scenario, &outcome);
        require_ends(&outcome);
        for threads in [2, 3, 7] {
            let mut other = emulate(&scenario, threads, &mut ()).unwrap();
            other.head.threads = 1;
            assert_eq!(outcome, other, "seed {seed} on {threads} threads");
        }
        faults += outcome.faults.len();
    }
    println!("{} mixtures with {faults} faults", mixtures());
    assert!(faults > 20, "{faults}");
}

#[test]
fn rings_flows_and_circuits_run_together_with_faults() {
    let outcome = shipped("scenarios/all-at-once.yaml");
    assert!(outcome.passed(), "{:?}", outcome.expectations);
    let [ring, flow, circuit] = outcome.faults.as_slice() else { panic!("{:?}", outcome.faults) };
    assert_eq!(ring.groups_affected.len(), 1);
    assert!(ring.bundles_switched > 0, "{ring}");
    assert!(flow.traffic.as_ref().unwrap().flows_hit > 0, "{flow}");
    assert!(circuit.phases.as_ref().unwrap().circuits_lost > 0, "{circuit}");
    require_conserved(&outcome);
}

#[test]
fn circuits_change_next_to_rings_flows_and_faults() {
    let text = "name: x\non: {fabric: busy-pod.yaml}\n\
                collectives: [{all_reduce: {name: tensor, bytes: 1MiB, repeat: 20}}]\n\
                traffic: [{name: shuffle, run: {shift: 4}, hosts: [n12..n15], bytes: 256KiB}]\n\
                phases: {steps: 2, scale: 1}\n\
                faults: [{part: n3, at: 10us}, {part: ocs0/p0..p7, phase: far, at: 25us, lasts: 200us}]\n";
    let outcome = emulate(&loaded(text), 1, &mut ()).unwrap();
    assert!(outcome.stop.is_none(), "{:?}: {:?}", outcome.stop, outcome.waiting);
    assert!(
        outcome.phases.iter().any(|phase| phase.transition > Picoseconds::ZERO),
        "{:?}",
        outcome.phases
    );
    assert!(outcome.faults[0].bundles_switched > 0 && outcome.faults[1].phases.is_some());
    require_conserved(&outcome);
}

/// Regression: a phase counted the packets of every concurrent workload: 2.6 GiB "sent twice" of
/// 214 MiB.
#[test]
fn phase_counts_only_its_own_packets() {
    let phases = |more: &str| {
        let text = format!(
            "name: x\non: {{fabric: pod.yaml}}\nphases: {{steps: 2, scale: 1}}\n{more}\
             faults: [{{part: ocs0/p0..p7, phase: far, at: 25us, lasts: 200us}}]\n"
        );
        let outcome = emulate(&loaded(&text), 1, &mut ()).unwrap();
        assert!(outcome.stop.is_none(), "{:?}", outcome.stop);
        outcome.phases
    };
    let (alone, beside) = (
        phases(""),
        phases("collectives: [{all_reduce: {name: tensor, bytes: 1MiB, repeat: 20}}]\n"),
    );
    assert_eq!(alone, beside, "rings share no link with phases");
    assert!(alone.iter().any(|phase| phase.resent_bytes > Bytes::ZERO), "the fault stops flows");
    let is_less = |phase: &PhaseResult| phase.resent_bytes < phase.demand_bytes;
    assert!(alone.iter().all(is_less), "{alone:?}");
}

/// Regression: phases set timeouts of 1,000 s, so that losses of other workloads were never resent.
#[test]
fn flows_resend_losses_while_phases_run() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/scenarios/all-at-once.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let (faults, more) = ("faults:\n", "faults:\n  - {part: n13/nic2, at: 20us, lasts: 200us}\n");
    let text = text.replace(faults, more).replace("n3, at: 10us", "n3, at: 60us");
    let outcome = emulate(&at_home(path, text.as_bytes()), 1, &mut ()).unwrap();
    assert!(outcome.stop.is_none(), "{:?}: {:?}", outcome.stop, outcome.waiting);
    assert!(outcome.workloads.iter().all(|one| one.end.is_some()));
    require_conserved(&outcome);
}

/// Only a repair restores data that the interface of a leaf lost in a phase.
#[test]
fn phase_losses_on_a_dark_leaf_are_resent_after_repair() {
    let calm = "name: x\non: {fabric: pod.yaml}\nphases: {}\n";
    let took = |outcome: &Outcome| outcome.steps.of_phases()[0].times.packets.unwrap();
    let run = |text: &str| {
        let outcome = emulate(&loaded(text), 1, &mut ()).unwrap();
        require_conserved(&outcome);
        assert!(outcome.stop.is_none(), "{:?}: {:?}", outcome.stop, outcome.waiting);
        outcome
    };
    let calm_time = took(&run(calm));
    for at in ["10us", "30us", "60us"] {
        let faults = format!("faults: [{{part: leaf1/gpus, at: {at}, lasts: 60us}}]\n");
        let outcome = run(&format!("{calm}{faults}"));
        let late = took(&outcome).saturating_sub(calm_time);
        assert!(late < Picoseconds::from_micros(200), "{at}: {late} late");
    }
}

/// The report names a flow that never ends, with the time of its last progress.
#[test]
fn stalled_flow_is_reported_with_its_wait_and_start() {
    let run = |more: &str| {
        let network = "name: x\non: {leaf_spine: {leaves: 2, spines: 1, hosts_per_leaf: 2}}\n";
        let send = "traffic: [{name: a, run: {shift: 2}, hosts: [h0..h3], bytes: 8MiB}]\n";
        let outcome = emulate(&loaded(&format!("{network}{send}{more}")), 1, &mut ()).unwrap();
        require_conserved(&outcome);
        outcome
    };
    let gone = "faults: [{part: control, at: 1us}, {part: h1, at: 40us}]\ntime_limit: 5ms\n";
    let outcome = run(gone);
    // The flows from h1 to h3 and from h3 to h1 remain; the others end.
    let named: Vec<&str> = outcome.waiting.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(named, ["`a`, flow h1 to h3", "`a`, flow h3 to h1"]);
    for waiting in &outcome.waiting {
        let WaitsFor::DarkLink { link, control_is_gone: true } = &waiting.waits_for else {
            panic!("{waiting}")
        };
        assert!(link.contains("h1"), "{waiting}");
        let since = waiting.since.unwrap();
        assert!((25_000_000..50_000_000).contains(&since.0), "{waiting}");
    }
    let storm = "switches: {pause: {priorities: [0], above: 32KiB}}\n\
                 faults: [{part: h2, at: 10us, effect: {pause_storm: 0}}]\ntime_limit: 5ms\n";
    let outcome = run(storm);
    assert!(!outcome.waiting.is_empty() && outcome.stop.is_some());
    // The port to h2 is paused from 10 us until the end, and packets that wait behind it pause
    // others.
    let from = lightloom_units::SimTime(10_000_000);
    assert!(outcome.queues.paused_max >= outcome.head.simulated.since(from));
    assert!(outcome.queues.paused > outcome.queues.paused_max, "{:?}", outcome.queues);
}

#[test]
fn traffic_waits_for_collectives_and_phases_wait_for_both() {
    let text = "
name: x
on: {fabric: pod.yaml}
collectives:
  - all_reduce: {name: tensor, bytes: 256KiB, repeat: 3}
  - data_parallel_all_reduce: {name: gradients, bytes: 64KiB}
traffic:
  - {name: early, run: {shift: 3}, hosts: [n12..n15], bytes: 64KiB}
  - {name: late, run: {shift: 4}, hosts: [n12..n15], bytes: 64KiB, after: [tensor, early], delay: 5us}
phases: {steps: 1, after: [late, gradients]}
expect: [completes within 20ms]
";
    for faults in [
        "",
        "faults: [{part: n1, at: 2us}]\ncontrol: {detection_delay: 20us, planning_delay: 20us}\n",
    ] {
        let outcome = emulate(&loaded(&format!("{text}{faults}")), 1, &mut ()).unwrap();
        require_conserved(&outcome);
        assert!(outcome.passed() && outcome.stop.is_none(), "{:?}", outcome.expectations);
        let of = |name: &str| {
            let named = outcome.workloads.iter().filter(|one| one.name == name);
            named.map(|one| (one.start, one.end.unwrap())).collect::<Vec<_>>()
        };
        let end = |name: &str| of(name).into_iter().map(|(_, end)| end).max().unwrap();
        let late = of("late")[0].0;
        let before = end("tensor").max(end("early")) + Picoseconds::from_micros(5);
        // The end is reported after one link delay.
        assert!(late >= before && late.since(before) <= Picoseconds::from_micros(2), "{late}");
        let phase = outcome.phases[0].start;
        let before = end("late").max(end("gradients"));
        assert!(phase >= before && phase.since(before) <= Picoseconds::from_micros(2), "{phase}");
        for threads in [2, 3, 7] {
            let mut other = emulate(&loaded(&format!("{text}{faults}")), threads, &mut ()).unwrap();
            other.head.threads = 1;
            assert_eq!(outcome, other);
        }
    }
    let (_, mistakes) = load(&text.replace("[late, gradients]", "[late, nothing]"));
    assert!(mistakes.iter().any(|one| one.message.contains("`nothing`") && one.help.is_some()));
    let (_, mistakes) = load(&text.replace("name: early", "name: tensor"));
    assert!(mistakes.iter().any(|one| one.message.contains("both a collective and a workload")));
}

fn at_home(path: &str, bytes: &[u8]) -> Scenario {
    let folder = Path::new(path).parent().unwrap();
    let read = &mut |name: &str| {
        let bytes = std::fs::read(folder.join(name)).map_err(|error| error.to_string())?;
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    let (scenario, mistakes) = scenario::file::load(path, bytes, read);
    scenario.unwrap_or_else(|| panic!("{path}: {mistakes:?}"))
}

fn shipped(name: &str) -> Outcome {
    let path = format!("{}/../topologies/{name}", env!("CARGO_MANIFEST_DIR"));
    emulate(&at_home(&path, &std::fs::read(&path).unwrap()), 1, &mut ()).unwrap()
}

/// Scenarios run by other tests, because they take long, cover a span or need the daemon. Those
/// that need the daemon are tested in `twin`.
const ELSEWHERE: [&str; 9] = [
    "first-bill.yaml",
    "all-rings.yaml",
    "all-rings-fault.yaml",
    "months.yaml",
    "trace-348-days.yaml",
    "twin-dead-node.yaml",
    "twin-job.yaml",
    "drill.yaml",
    "months-lightloomd.yaml",
];

#[test]
fn shipped_scenarios_conserve_packets_and_beat_no_bound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/scenarios");
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let (mut run, mut bounded) = (0, 0);
    // Packets of the isolation scenarios without rings take a minute each.
    let is_long = |name: &str| name.starts_with("isolation-") && name != "isolation-khop.yaml";
    let is_left_out = |name: &str| ELSEWHERE.contains(&name) || cases(is_long(name), false);
    for name in names.filter(|name| !is_left_out(name)) {
        let outcome = shipped(&format!("scenarios/{name}"));
        require_conserved(&outcome);
        for one in &outcome.workloads {
            let Some(end) = one.end else { continue };
            let took = end.since(one.start);
            assert!(
                one.lower_bound <= took,
                "{name}: {} took {took}, {}",
                one.name,
                one.lower_bound
            );
            bounded += 1;
        }
        run += 1;
    }
    assert!(run > 20 && bounded > 1000, "{run} {bounded}");
}

const RINGS: &str = "
name: rings
on: {fabric: pod.yaml}
collectives: [{all_reduce: {name: tensor, bytes: 1MiB, repeat: 20}}]
control: {detection_delay: 20us, planning_delay: 10us}
";

#[test]
fn run_continues_to_a_repair_when_every_group_is_lost() {
    let nodes: Vec<String> = (0..16).map(|node| format!("n{node}")).collect();
    let faults = format!("faults: [{{parts: [{}], at: 50us, lasts: 3ms}}]\n", nodes.join(", "));
    let outcome = emulate(&loaded(&format!("{RINGS}{faults}")), 1, &mut ()).unwrap();
    let fault = &outcome.faults[0];
    assert!(fault.repaired.is_some() && fault.restored > fault.repaired, "{fault}");
    assert!(outcome.workloads.iter().all(|one| one.end.is_some()), "{:?}", outcome.waiting);
}

#[test]
fn run_may_end_before_a_fault_is_replanned() {
    // Detected during the last collective; its plan would be ready a second later.
    let text = RINGS.replace("planning_delay: 10us", "planning_delay: 1s");
    let faults = "faults: [{part: n15, at: 1us}]\ntime_limit: 500us\n";
    let outcome = emulate(&loaded(&format!("{text}{faults}")), 1, &mut ()).unwrap();
    let fault = &outcome.faults[0];
    assert!(fault.detected.is_some() && fault.replanned.is_none(), "{fault}");
}

#[test]
fn simultaneous_faults_are_each_restored_when_their_group_resumes() {
    let faults = "faults: [{part: n1, at: 50us}, {part: n4, at: 50us}]\n";
    let outcome = emulate(&loaded(&format!("{RINGS}{faults}")), 1, &mut ()).unwrap();
    for fault in &outcome.faults {
        let replanned = fault.replanned.unwrap();
        assert!(fault.restored.unwrap() >= replanned + Picoseconds::from_micros(20), "{fault}");
    }
}

/// Two nodes fail at the same instant, with a spare for only one of them. One group continues after
/// its plan, the other one after the repair. Apart from the restarted collective, no group ends
/// later than the restoration of its fault.
#[test]
fn simultaneous_fault_of_a_lost_group_is_restored_by_the_repair() {
    let fabric = include_str!("../../../topologies/ring-64.yaml");
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() }),
        _ => Err("no such file".to_owned()),
    };
    for (one, other) in [(0, 1), (1, 0), (0, 4), (3, 60), (12, 13)] {
        let text = format!(
            "kind: scenario\nversion: 2\nname: two\non: {{fabric: fabric.yaml}}\n\
             collectives: [all_reduce: {{name: x, bytes: 4MiB, repeat: 10}}]\n\
             faults: [{{part: n{one}, at: 10us, lasts: 3ms}}, {{part: n{other}, at: 10us, lasts: 3ms}}]\n\
             expect: [restored within 20ms]\n"
        );
        let (scenario, mistakes) = scenario::file::load("two.yaml", text.as_bytes(), read);
        let outcome = emulate(&scenario.unwrap_or_else(|| panic!("{mistakes:?}")), 1, &mut ());
        let outcome = outcome.unwrap();
        assert!(
            outcome.expectations[0].passed,
            "{one}, {other}: {}",
            outcome.expectations[0].value
        );
        for fault in &outcome.faults {
            let took = fault.restored.unwrap().since(fault.at.unwrap());
            let late = fault.delay.unwrap();
            assert!(took + Picoseconds::from_micros(50) >= late, "{one}, {other}: {fault}");
        }
    }
}

#[test]
fn rejects_keys_without_effect_and_suggests_others() {
    let network = "name: x\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 2}}\n";
    let send = "traffic: [{name: a, run: permutation, bytes: 1KiB}]\n";
    for (more, wanted) in [
        ("switches: {mark_from: 2MiB}\n", "the queue cannot reach this length"),
        ("transport: {balance: {spray: {paths: 8}}, recovery: go_back_n}\n", "overtake"),
        ("faults: [{part: h0, at: 1us, lasts: 0us}]\n", "a duration of 0"),
        (
            "switches: {buffer: {size: 16KiB}, pause: {priorities: [0], above: 8KiB}}\n",
            "in addition to the headroom",
        ),
        (
            "switches: {queue: 64KiB, mark_from: 8KiB, pause: {priorities: [0], above: 8KiB}}\n",
            "whose queues are unbounded",
        ),
        (
            "switches: {trim: true, pause: {priorities: [0, 3], above: 8KiB}}\n",
            "no packet is trimmed",
        ),
        ("expect: [paused_max < 1ms]\n", "no switch sends pauses"),
        ("control: {planning_delay: 1ms}\n", "has no effect in this scenario"),
        ("broken: [n3]\n", "does not have a plan"),
    ] {
        let (scenario, mistakes) = load(&format!("{network}{send}{more}"));
        assert!(scenario.is_none(), "{more}");
        let is_it =
            |mistake: &Diagnostic| mistake.message.contains(wanted) && mistake.help.is_some();
        assert!(mistakes.iter().any(is_it), "{more}: {mistakes:?}");
    }
    let torus = "name: x\non: {torus: {sides: [4]}}\nswitches: {queue: 64KiB}\n";
    let (_, mistakes) = load(&format!("{torus}{send}"));
    assert!(mistakes.iter().any(|one| one.message.contains("crosses a switch")), "{mistakes:?}");
    // If some data does not pause, `queue` bounds it; without `mark_from`, `queue` determines the
    // marking.
    for switches in [
        "switches: {queue: 64KiB, mark_from: 8KiB, pause: {priorities: [3], above: 8KiB}}\n",
        "switches: {queue: 64KiB, pause: {priorities: [0], above: 8KiB}}\n",
    ] {
        let (scenario, mistakes) = load(&format!("{network}{send}{switches}"));
        assert!(scenario.is_some(), "{mistakes:?}");
    }
    let priority = send.replace("1KiB", "1KiB, priority: 3");
    let (_, mistakes) = load(&format!("{network}{priority}"));
    assert!(mistakes.iter().any(|mistake| mistake.code.id == "LL0316"), "{mistakes:?}");
}

#[test]
fn fault_after_the_end_of_the_run_fails_its_restoration() {
    let on = |at: &str| {
        let text = format!(
            "kind: scenario\nversion: 2\nname: late\non: {{fabric: pod.yaml}}\n\
             collectives: [{{all_reduce: {{name: t, bytes: 64KiB}}}}]\nfaults: [{{part: n3, at: {at}}}]\n\
             expect: [restored within 10ms]\n"
        );
        emulate(&loaded(&text), 1, &mut ()).unwrap()
    };
    let late = on("500s");
    assert!(!late.expectations[0].passed, "{:?}", late.expectations);
    assert!(
        late.expectations[0].value.contains("n3 fails at 500 s, after the run ended"),
        "{:?}",
        late.expectations
    );
    assert!(on("1us").expectations[0].passed);
}
