// SPDX-License-Identifier: Apache-2.0
//! Availability, goodput and restoration with several kinds of concurrent work, all counted in one
//! unit.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;

fn load(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let read = &mut |name: &str| {
        let path = format!("{}/../topologies/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

fn run(text: &str) -> Outcome {
    let text = format!("kind: scenario\nversion: 2\nname: mixed\n{text}");
    let (scenario, mistakes) = load(&text);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

#[test]
fn metrics_combine_groups_with_the_phases_of_a_step() {
    let groups = "on: {fabric: pod-64.yaml}\ncollectives: [{all_reduce: {name: a, bytes: 64MiB, repeat: 40}}]\n";
    let slow = "faults: [{part: n1/b0, at: 0us, effect: {rate: 100Gbps}}]\n";
    let alone = run(&format!("{groups}{slow}"));
    let calm = run(groups);
    assert_eq!(calm.metrics.goodput.to_bits(), 1.0_f64.to_bits());
    assert!(alone.metrics.goodput < 0.9, "{:?}", alone.metrics);
    // With undisturbed phases at the same time, the loss is divided by more work but does not
    // vanish.
    let beside = run(&format!("{groups}{slow}phases: {{}}\n"));
    let lost = 1.0 - beside.metrics.goodput;
    assert!(lost > 0.001 && lost < 1.0 - alone.metrics.goodput, "{:?}", beside.metrics);
    // Compute the same by hand from the times of the result, weighted by GPUs and optical ports.
    let time = |time: lightloom_units::Picoseconds| time.0 as f64;
    let at = |time: Option<lightloom_units::SimTime>| time.unwrap().0 as f64;
    let (mut part, mut whole) = (0.0, 0.0);
    for group in &beside.groups {
        part += f64::from(group.gpus) * at(group.end_without_faults);
        whole += f64::from(group.gpus) * at(group.end);
    }
    let phases: f64 = beside.phases.iter().map(|phase| time(phase.times.packets.unwrap())).sum();
    let ports = 16.0 * 4.0;
    let goodput = (part + ports * phases) / (whole + ports * phases);
    assert!((beside.metrics.goodput - goodput).abs() < 1e-6, "{goodput}: {:?}", beside.metrics);
}

#[test]
fn flow_completion_times_are_kept_per_workload() {
    let network = "seed: 0\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}\ntraffic:\n  \
        - {name: small requests, run: {shift: 3}, bytes: 4KiB}\n  \
        - {name: bulk, run: {shift: 4}, bytes: 4MiB}\n";
    let expect = "expect:\n  - workload small requests fct_p99 < 20us\n  - workload bulk fct_p50 < 20us\n  - fct_max < 1ms\n";
    let outcome = run(&format!("{network}{expect}"));
    let judged: Vec<bool> = outcome.expectations.iter().map(|one| one.passed).collect();
    assert_eq!(judged, [true, false, true], "{:?}", outcome.expectations);
    for workload in &outcome.workloads {
        // Compute it by hand from the flow records, selected by size.
        let own = outcome.flow_records.iter().filter(|flow| flow.size == workload.bytes);
        let mut took: Vec<_> =
            own.clone().map(|flow| flow.end.unwrap().since(flow.start)).collect();
        took.sort_unstable();
        let flows = workload.flows.unwrap();
        assert_eq!((flows.count, flows.fct_max), (8, took[7]), "{}", workload.name);
        assert!(own.clone().all(|flow| flow.workload.as_deref() == Some(&*workload.name)));
    }
    let text = |sentence: &str| {
        let (scenario, mistakes) =
            load(&format!("kind: scenario\nversion: 2\nname: x\n{network}expect: [{sentence}]\n"));
        assert!(scenario.is_none(), "{sentence}");
        mistakes.iter().map(ToString::to_string).collect::<String>()
    };
    assert!(text("workload bulk drops == 0").contains("not available per workload"));
    assert!(
        text("workload large fct_p99 < 1ms").contains("large"),
        "{}",
        text("workload large fct_p99 < 1ms")
    );
}

#[test]
fn groups_of_an_idle_job_do_not_count_as_work() {
    let one = run("on: {fabric: job-64.yaml}\ntrain: [{job: pretrain, steps: 1}]\n");
    assert_eq!(one.metrics.goodput.to_bits(), 1.0_f64.to_bits(), "{:?}", one.metrics);
    assert_eq!(one.metrics.availability.to_bits(), 1.0_f64.to_bits());
    let fault = "faults: [{part: n1, at: 100ms}]\n";
    let one =
        run(&format!("on: {{fabric: job-64.yaml}}\ntrain: [{{job: pretrain, steps: 1}}]\n{fault}"));
    let both = format!(
        "on: {{fabric: job-64.yaml}}\ntrain: [{{job: pretrain, steps: 1}}, {{job: finetune, steps: 1}}]\n{fault}"
    );
    assert!(one.metrics.goodput < run(&both).metrics.goodput, "the other job was not hit");
}

#[test]
fn phase_restoration_ignores_concurrent_traffic() {
    let text = "on: {fabric: pod-64.yaml}\nphases: {}\nfaults: [{part: ocs0/p0, phase: experts, at: 10us}]\n";
    let alone = run(text);
    let traffic = "traffic: [{name: x, run: permutation, bytes: 1KiB, hosts: [n14..n15]}]\n";
    let beside = run(&format!("{text}{traffic}"));
    let took = |outcome: &Outcome| {
        let fault = &outcome.faults[0];
        fault.restored.map(|restored| restored.since(fault.at.unwrap()))
    };
    assert!(took(&alone).is_some(), "its bytes go another way: {:?}", alone.faults);
    assert_eq!(took(&alone), took(&beside));
    // The interface of a leaf's GPUs is the only path.
    let only =
        text.replace("ocs0/p0", "leaf0/gpus").replace("phases: {}", "phases: {}\ntime_limit: 50ms");
    assert_eq!(took(&run(&only)), None);
}

#[test]
fn rejects_restoration_expectation_without_a_repair() {
    let text = |fault: &str| {
        format!(
            "kind: scenario\nversion: 2\nname: x\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 2}}}}\n\
             traffic: [{{name: a, run: permutation, bytes: 1MiB}}]\nfaults: [{{part: h0-s0, at: 1us, {fault}}}]\n\
             expect: [restored within 1ms]\n"
        )
    };
    let (scenario, mistakes) = load(&text("effect: {rate: 10Gbps}"));
    assert!(scenario.is_none() && mistakes[0].message.contains("never true"), "{mistakes:?}");
    assert!(load(&text("effect: {rate: 10Gbps}, lasts: 10us")).0.is_some());
}

#[test]
fn load_is_relative_to_the_network_interface() {
    let bytes = |on: &str| {
        let text =
            "traffic: [{name: a, run: {random: {sizes: web_search, load: 0.3, lasts: 300us}}}]\n";
        let outcome = run(&format!("on: {on}\n{text}"));
        outcome.workloads[0].bytes.0
    };
    let rails = bytes("{rail_optimised: {servers: 4, gpus_per_server: 4, spines: 4}}");
    let leaves = bytes("{leaf_spine: {leaves: 4, spines: 4, hosts_per_leaf: 4}}");
    assert_eq!(rails, leaves, "400 Gb/s both, though a server's inside is nine times as fast");
}
