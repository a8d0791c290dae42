// SPDX-License-Identifier: Apache-2.0
//! Flows that never arrive: no figure, expectation or text of a result may count them as success.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario;

fn run(text: &str) -> Outcome {
    let text = format!("kind: scenario\nversion: 2\n{text}");
    let read = &mut |_: &str| Err("no such file".to_owned());
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

#[test]
fn workload_with_abandoned_flows_has_not_completed() {
    let outcome = run("
name: cut
on: {fat_tree: {radix: 4}}
traffic: [{name: in, run: {incast: h0}, bytes: 1MiB}]
faults: [{part: h0/nic0, at: 5us}]
expect: [completes within 1s]
");
    assert_eq!(outcome.workloads[0].end, None);
    assert!(!outcome.expectations[0].passed);
    assert_eq!(outcome.expectations[0].value, "15 flows of `in` were abandoned");
}

/// Regression: each of these expectations held although flows had been abandoned.
#[test]
fn expectations_fail_for_abandoned_flows() {
    let sentences = [
        "restored within 2ms",
        "goodput >= 1%",
        "fct_max < 1s",
        "fct_p50 < 1s",
        "bus_bandwidth > 1Gbps",
        "completes within 1s",
    ];
    for fault in ["{part: s0, at: 0us}", "{part: s0, at: 5us}", "{part: h0, at: 5us}"] {
        let outcome = run(&format!(
            "
name: lost
on: {{leaf_spine: {{leaves: 4, spines: 4, hosts_per_leaf: 4}}}}
traffic: [{{name: in, run: {{incast: h0}}, bytes: 1MiB}}]
faults: [{fault}]
expect: [{}]
",
            sentences.join(", ")
        ));
        for expectation in &outcome.expectations {
            assert!(!expectation.passed, "{fault}: {} ({})", expectation.expect, expectation.value);
        }
        let fault = &outcome.faults[0];
        assert_eq!((fault.restored, fault.delay), (None, None), "{fault}");
        assert!(fault.traffic.as_ref().unwrap().flows_given_up > 0, "{fault}");
        assert!(fault.to_string().ends_with("unfinished work"), "{fault}");
    }
    // A flow that never arrives among 100 does not affect the median.
    let outcome = run("
name: one
on: {leaf_spine: {leaves: 4, spines: 4, hosts_per_leaf: 4}}
traffic: [{name: in, run: {shift: 1}, bytes: 1MiB}]
faults: [{part: h0, at: 5us}]
expect: [fct_p50 < 1s, fct_max < 1s, goodput >= 99%]
");
    let passed: Vec<bool> = outcome.expectations.iter().map(|one| one.passed).collect();
    assert_eq!(passed, [true, false, false], "{:?}", outcome.expectations);
}

/// A repair at the instant of rerouting, or a moment before, still saves the waiting flows.
#[test]
fn repair_at_the_reroute_instant_abandons_no_flow() {
    for lasts in ["999us", "1ms", "1001us"] {
        let outcome = run(&format!(
            "name: x\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 2}}}}\n\
             traffic: [{{name: w, run: {{shift: 1}}, bytes: 1MiB}}]\n\
             faults: [{{part: h0-s0, at: 10us, lasts: {lasts}}}]\n"
        ));
        assert_eq!((outcome.flows.count, outcome.flows.cancelled), (4, 0), "{lasts}");
    }
}

/// Regression: silently lost packets counted as in flight, and trimmed ones waited for them, so
/// that each probe released only one packet and the run took 651 us.
#[test]
fn trimmed_packets_do_not_wait_for_lost_ones() {
    let outcome = run("
name: x
on: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}
traffic: [{name: w, run: {shift: 4}, bytes: 1MiB}]
transport: {congestion: nscc, balance: adaptive}
switches: {trim: true}
faults: [{part: s0-s2, at: 0us}]
control: {reroute_delay: 20us}
");
    let end = outcome.workloads[0].end.unwrap();
    assert!(end.0 < 300_000_000, "{end:?}");
}
