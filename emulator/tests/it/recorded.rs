// SPDX-License-Identifier: Apache-2.0
//! Recorded and described steps alongside other traffic, compared with tables of the same flows and
//! closed forms.

use lightloom_emulator::emulate;
use lightloom_emulator::outcome::{Outcome, WorkloadResult};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_units::Picoseconds;

const GOAL: &str = "num_ranks 2
rank 0 {
  s: send 65536b to 1 tag 0
  r: recv 65536b from 1 tag 1
  r requires s
}
rank 1 {
  r: recv 65536b from 0 tag 0
  c: calc 100000
  s: send 65536b to 0 tag 1
  c requires r
  s requires c
}
";
const GROUP: &str = r#"{"traceEvents": [
{"ph": "X", "name": "gradients", "pid": 0, "ts": 0, "dur": 9, "args": {"id": "0", "after": [], "collective": "all-reduce", "group": [0, 1, 2, 3], "bytes": 1048576}},
{"ph": "X", "name": "gradients", "pid": 1, "ts": 0, "dur": 9, "args": {"id": "0", "after": [], "collective": "all-reduce", "group": [0, 1, 2, 3], "bytes": 1048576}},
{"ph": "X", "name": "gradients", "pid": 2, "ts": 0, "dur": 9, "args": {"id": "0", "after": [], "collective": "all-reduce", "group": [0, 1, 2, 3], "bytes": 1048576}},
{"ph": "X", "name": "gradients", "pid": 3, "ts": 0, "dur": 9, "args": {"id": "0", "after": [], "collective": "all-reduce", "group": [0, 1, 2, 3], "bytes": 1048576}}
]}"#;

fn loaded(traffic: &str) -> Result<Scenario, String> {
    let text = format!(
        "kind: scenario\nversion: 2\nname: recorded\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 4}}}}\n{traffic}"
    );
    let read = &mut |name: &str| {
        let bytes = match name {
            "step.goal" => GOAL.as_bytes().to_vec(),
            "group.json" => GROUP.as_bytes().to_vec(),
            "two.csv" => b"start,src,dst,bytes\n0us,h0,h5,64KiB\n".to_vec(),
            "packed.goal" => vec![0x1f, 0x8b, 0],
            _ => return Err(format!("there is no {name}")),
        };
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    scenario.ok_or_else(|| mistakes.iter().map(|one| format!("{one:?}")).collect())
}

fn run(traffic: &str, threads: usize) -> Outcome {
    emulate(&loaded(traffic).unwrap(), threads, &mut ()).unwrap()
}

fn took(one: &WorkloadResult) -> Picoseconds {
    one.end.unwrap().since(one.start)
}

#[test]
fn goal_text_takes_its_transfer_and_compute_time() {
    let step = "traffic: [{name: step, run: {recorded: [step.goal]}, hosts: [h0, h5]}]";
    let flow = "traffic: [{name: there, run: {flows: two.csv}}]";
    let (step, flow) = (run(step, 1), run(flow, 1));
    let (step, flow) = (&step.workloads[0], &flow.workloads[0]);
    // A transfer, a hundred microseconds of computing, and a transfer back. Each transfer takes as
    // long as the isolated flow in a table. A task after a transfer begins when the end is
    // reported, up to one link delay later.
    let exact = took(flow) * 2 + Picoseconds::from_micros(100);
    let most = exact + Picoseconds::from_micros(4);
    assert!((exact..=most).contains(&took(step)), "{} {exact}", took(step));
    assert!(step.lower_bound <= took(step) && step.lower_bound >= Picoseconds::from_micros(100));
    assert_eq!((step.ranks, step.bytes.0, step.kind), (2, 131_072, "recorded"));
}

#[test]
fn recorded_collective_matches_a_written_one() {
    let recorded = "traffic: [{name: step, run: {recorded: [group.json]}, hosts: [h0..h3]}]";
    let written = "traffic: [{name: ring, run: {all_reduce: ring}, directions: one, bytes: 1MiB, hosts: [h0..h3]}]";
    let (recorded, written) = (run(recorded, 1), run(written, 1));
    assert_eq!(took(&recorded.workloads[0]), took(&written.workloads[0]));
    assert_eq!(recorded.head.packets.sent, written.head.packets.sent);
}

const BESIDE: &str = "
traffic:
  - {name: step, run: {recorded: [step.goal]}, hosts: [h0, h5], repeat: 3}
  - {name: group, run: {recorded: [group.json]}, hosts: [h0..h3], after: [step]}
  - {name: noise, run: {shift: 3}, bytes: 256KiB, repeat: 4}
faults: [{part: h5-s1, at: 130us, lasts: 300us}, {part: s2, at: 20us, lasts: 100us}]
control: {reroute_delay: 20us}
expect: [workload group completes within 10ms]
";

#[test]
fn recorded_steps_with_other_traffic_match_on_all_thread_counts() {
    let one = run(BESIDE, 1);
    let packets = one.head.packets;
    assert_eq!(
        packets.sent,
        packets.delivered + packets.dropped + packets.lost + packets.in_flight
    );
    assert!(one.stop.is_none() && one.expectations.iter().all(|sentence| sentence.passed));
    assert!(one.workloads.iter().all(|each| each.lower_bound <= took(each)), "{:?}", one.workloads);
    assert_eq!(one.workloads.iter().filter(|each| each.name == "step").count(), 3);
    // A workload that waits for a step begins after its last repetition.
    let end = |name: &str| {
        one.workloads.iter().filter(|each| each.name == name).filter_map(|each| each.end).max()
    };
    let group = one.workloads.iter().find(|each| each.name == "group").unwrap();
    assert!(Some(group.start) >= end("step"));
    // A workload is attributed if and only if it ends at a different time than without faults.
    let moved =
        one.workloads.iter().any(|each| each.name == "step" && each.end != each.end_without_faults);
    let named = one
        .faults
        .iter()
        .filter_map(|fault| fault.traffic.as_ref())
        .any(|impact| impact.workloads.contains(&"step".to_owned()));
    assert_eq!(moved, named);
    for threads in [2, 3, 7] {
        let other = run(BESIDE, threads);
        assert_eq!((&other.workloads, &other.faults), (&one.workloads, &one.faults));
    }
}

#[test]
fn rejects_files_without_a_step_with_a_reason() {
    let said = |run: &str, hosts: &str| {
        loaded(&format!("traffic: [{{name: step, run: {{recorded: {run}}}{hosts}}}]")).unwrap_err()
    };
    assert!(said("[none.goal]", "").contains("there is no none.goal"));
    assert!(said("[]", "").contains("no files given"));
    assert!(said("[step.goal, step.goal]", "").contains("omit the other files"));
    assert!(said("[two.csv]", "").contains("two.csv"));
    assert!(
        said("[group.json]", ", hosts: [h0, h1]").contains("4 ranks, but the workload has 2 hosts")
    );
    assert!(
        said("[step.goal]", ", hosts: [h0..h3]").contains("2 ranks, but the workload has 4 hosts")
    );
    assert!(said("[step.goal]", ", hosts: [h0, h1], bytes: 1MiB").contains("does not need a size"));
}
