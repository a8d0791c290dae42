// SPDX-License-Identifier: Apache-2.0
//! Traffic alongside the rings of a fabric: it does not affect rings but delays reductions over the
//! same network, and each fault reports its effects on both.

use crate::fabric;
use fabric::FABRIC;
use lightloom_emulator::outcome::{Outcome, WorkloadResult};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::{Diagnostic, Style, render};
use lightloom_units::SimTime;

const RINGS: &str = "
name: beside
on: {fabric: fabric.yaml}
seed: 3
collectives:
  - all_reduce: {name: tensor, bytes: 1MiB, repeat: 4}
";

const REDUCTION: &str = "  - data_parallel_all_reduce: {name: gradients, bytes: 1MiB}\n";

/// The job has nodes n0 to n15. All others only send to n1, over queues that hold all the data.
const INCAST: &str = "
switches: {queue: 64MiB, mark_from: 64MiB}
traffic:
  - {name: incast, run: {incast: n1/g0}, hosts: [n1/g0, n16..n23], bytes: 1MiB}
";

fn load(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: FABRIC.as_bytes().to_vec() }),
        _ => Err("no such file".to_owned()),
    };
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

fn run(text: &str) -> Outcome {
    let (loaded, mistakes) = load(text);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

fn named<'a>(outcome: &'a Outcome, name: &str) -> Vec<&'a WorkloadResult> {
    outcome.workloads.iter().filter(|one| one.name == name).collect()
}

fn ends(outcome: &Outcome, name: &str) -> Vec<Option<SimTime>> {
    named(outcome, name).iter().map(|one| one.end).collect()
}

#[test]
fn network_traffic_delays_reductions_but_not_rings() {
    let queues = INCAST.split("traffic:").next().unwrap();
    let alone = run(&format!("{RINGS}{REDUCTION}{queues}"));
    let beside = run(&format!("{RINGS}{REDUCTION}{INCAST}"));
    assert_eq!(ends(&beside, "tensor"), ends(&alone, "tensor"), "to the picosecond");
    assert_eq!(ends(&beside, "tensor").len(), 16);
    let (late, early) = (ends(&beside, "gradients")[0].unwrap(), ends(&alone, "gradients")[0]);
    assert!(late > early.unwrap(), "{late} after {early:?}");

    // 32 GPUs send 1 MiB to one interface of 400 Gb/s, which is always busy with data and headers.
    let [incast] = named(&beside, "incast")[..] else { panic!("one incast") };
    let bits = 32.0 * 1_048_576.0 * 8.0 * 4_096.0 / 4_032.0;
    let took = incast.end.unwrap().since(incast.start).as_secs_f64();
    assert!((bits / 400e9..1.2 * bits / 400e9).contains(&took), "{took}");
    assert_eq!((incast.ranks, incast.group), (33, None));
}

#[test]
fn group_and_workload_expectations_can_each_fail() {
    let faults = "faults: [{part: n4, at: 20us}, {part: n17/nic1, at: 60us, lasts: 2ms}]\n";
    let expect = "expect: [workload incast completes within 10ms, workload incast completes within 200us, \
                  workload incast unaffected, workload apart unaffected, group g3 unaffected]\n";
    let apart =
        "  - {name: apart, run: {shift: 1}, hosts: [n18, n19], bytes: 4KiB, after: [incast]}\n";
    let early = "  - {name: early, run: permutation, hosts: [n6, n7], bytes: 4KiB}\n";
    let text = format!("{RINGS}{INCAST}{early}{apart}{faults}{expect}");
    let text = text.replace("workload apart", "workload early");
    let outcome = run(&text);
    let verdicts: Vec<bool> = outcome.expectations.iter().map(|one| one.passed).collect();
    assert_eq!(verdicts, [true, false, false, true, true], "{:?}", outcome.expectations);

    // The interface was repaired: its data waited, and so did the traffic that depends on it.
    let [node, interface] = &outcome.faults[..] else { panic!("two faults") };
    assert!(node.groups_affected.len() == 1 && node.traffic.as_ref().unwrap().flows_hit == 0);
    let traffic = interface.traffic.as_ref().unwrap();
    assert_eq!((traffic.flows_hit, traffic.flows_given_up), (1, 0), "{traffic:?}");
    assert!(traffic.flows_moved > 1, "{traffic:?}");
    assert_eq!(traffic.workloads, ["incast", "apart"]);
    assert!(traffic.hosts.contains(&"n17/g1".to_owned()));
    assert!(interface.delay.unwrap().0 > 0 && outcome.workloads.iter().all(|c| c.end.is_some()));
    assert!(interface.to_string().contains("1 flow on its links"), "{interface}");
}

#[test]
fn abandons_flows_of_a_permanently_failed_node_and_ends() {
    let faults = "faults: [{part: n17, at: 50us}]\ncontrol: {detection_delay: 100us}\n";
    let expect = "expect: [workload incast completes within 10ms, completes within 10ms]\n";
    let outcome = run(&format!("{RINGS}{INCAST}{faults}{expect}"));
    assert!(!outcome.never_ended && outcome.stop.is_none(), "{:?}", outcome.waiting);
    let traffic = outcome.faults[0].traffic.as_ref().unwrap();
    assert_eq!((traffic.flows_hit, traffic.flows_given_up), (4, 4), "{traffic:?}");
    for expectation in &outcome.expectations {
        let found = "4 flows of `incast` were abandoned";
        assert_eq!((expectation.passed, expectation.value.as_str()), (false, found));
    }
    // A node that is broken from the start takes no part, whether or not a workload names it.
    let broken = "broken: [n17]\nexpect: [workload incast completes within 10ms]\n";
    let outcome = run(&format!("{RINGS}{INCAST}{broken}"));
    assert!(outcome.passed(), "{:?}", outcome.expectations);
    assert_eq!(named(&outcome, "incast")[0].ranks, 29);
    let lone = "
broken: [n17]
traffic: [{name: lone, run: {random: {sizes: hadoop, load: 0.1, lasts: 1us}}, hosts: [n17/g0, n17/g1]}]
expect: [workload lone completes within 10ms]
";
    let outcome = run(&format!("{RINGS}{lone}"));
    assert_eq!(outcome.expectations[0].value, "`lone` never ended");
}

#[test]
fn equal_seeds_give_equal_results_on_any_thread_count() {
    let random = "
traffic:
  - {name: random, run: {random: {sizes: web_search, load: 0.3, lasts: 100us}}}
  - {name: later, run: {all_to_all: pairwise}, hosts: [n16..n19], bytes: 64KiB, delay: 30us, repeat: 2}
faults: [{part: any node, at: 20us, within: 50us}, {part: t9, at: 30us, lasts: 50us}]
";
    let (loaded, mistakes) = load(&format!("{RINGS}{REDUCTION}{random}"));
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let on = |threads| lightloom_emulator::emulate(&scenario, threads, &mut ()).unwrap();
    let mut two = on(2);
    two.head.threads = 1;
    assert_eq!(two, on(1));
}

#[test]
fn locates_mistakes_in_traffic() {
    let refused = |text: &str| {
        let (loaded, mistakes) = load(text);
        assert!(loaded.is_none(), "{text}");
        render(&mistakes, Style::Plain)
    };
    let traffic = |one: &str| format!("{RINGS}traffic: [{one}]\n");
    let shown = refused(&traffic("{name: a, run: permutation, hosts: [n0, n99], bytes: 1KiB}"));
    assert!(
        shown.contains("`n99` does not match any host") && shown.contains("scenario.yaml:7"),
        "{shown}"
    );
    assert!(shown.contains("`n0/g0..n1/g3`"), "{shown}");
    let shown = refused(&traffic("{name: a, run: {all_reduce: torus}, bytes: 1KiB}"));
    assert!(shown.contains("this requires all hosts of a torus"), "{shown}");
    let shown = refused(&format!("{RINGS}expect: [workload a completes within 1ms]\n"));
    assert!(shown.contains("workload `a` does not exist in this file"), "{shown}");
    let idle = "{name: a, run: {compute: 1us}}]\nfaults: [{part: n1, at: 1us}]\nexpect: [workload a unaffected";
    assert!(refused(&traffic(idle)).contains("has no flows"));
}
