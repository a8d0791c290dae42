// SPDX-License-Identifier: Apache-2.0
//! Which group was affected by which fault: what a result says, against runs of scenarios that do not write that fault.

use std::collections::BTreeSet;

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::run::{Progress, RunPass};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_testkit::cases;
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use rand::RngExt;

/// Two jobs on rings of two nodes, ToRs of four nodes, two nodes to spare.
const TWO_JOBS: &str = include_str!("../../../topologies/job-64.yaml");

/// One job whose circuits follow the phases of its step.
const CIRCUITS: &str = include_str!("../../../topologies/job-64-circuits.yaml");

fn scenario_of(fabric: &str, train: &str, faults: &[String]) -> Scenario {
    let text = format!(
        "kind: scenario\nversion: 2\nname: attribution\non: {{fabric: fabric.yaml}}\nseed: 1\n\
         control: {{detection_delay: 5ms, planning_delay: 1ms}}\n{train}\nfaults: [{}]\n",
        faults.join(", ")
    );
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() }),
        _ => Err("no such file".to_owned()),
    };
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
    loaded.unwrap_or_else(|| panic!("{text}: {mistakes:?}"))
}

fn run(fabric: &str, train: &str, faults: &[String]) -> Outcome {
    let scenario = scenario_of(fabric, train, faults);
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

/// By group, the end of each step.
fn ends(outcome: &Outcome) -> Vec<Vec<Option<SimTime>>> {
    outcome.groups.iter().map(|group| group.step_ends.clone()).collect()
}

/// Groups in which two runs differ, to the picosecond.
fn differ(one: &Outcome, other: &Outcome) -> BTreeSet<usize> {
    let both = ends(one).into_iter().zip(ends(other)).enumerate();
    both.filter(|(_, (one, other))| one != other).map(|(group, _)| group).collect()
}

fn listed(outcome: &Outcome, fault: usize) -> BTreeSet<usize> {
    outcome.faults[fault].groups_affected.iter().map(|group| group.0 as usize).collect()
}

/// Holds a result against runs without each of its faults, which know nothing of how it was made.
fn judge(fabric: &str, train: &str, faults: &[String]) -> Vec<BTreeSet<usize>> {
    let outcome = run(fabric, train, faults);
    let calm = run(fabric, train, &[]);
    let moved = differ(&outcome, &calm);
    let without = |fault: usize| {
        let mut others = faults.to_vec();
        others.remove(fault);
        differ(&outcome, &run(fabric, train, &others))
    };
    let truth: Vec<BTreeSet<usize>> = (0..faults.len()).map(without).collect();
    let by_one: BTreeSet<usize> = truth.iter().flatten().copied().collect();
    println!("{faults:?}: {truth:?}, {} groups moved", moved.len());
    for (fault, truth) in truth.iter().enumerate() {
        let listed = listed(&outcome, fault);
        // What each of several faults would have done alone belongs to some of them.
        let shared = &listed - truth;
        assert!(listed.is_superset(truth), "{faults:?}, {}: {listed:?}, not {truth:?}", fault);
        assert!(
            shared.is_disjoint(&by_one) && shared.is_subset(&moved),
            "{faults:?}, {fault}: {listed:?}, not {truth:?}"
        );
        let free = outcome.faults[fault].groups_unaffected.as_ref().unwrap();
        let free: BTreeSet<usize> = free.iter().map(|group| group.0 as usize).collect();
        assert!(free.is_disjoint(&listed) && free.is_disjoint(truth), "{faults:?}, {fault}");
        assert_eq!(free.len() + listed.len(), outcome.groups.len(), "each group is one of both");
    }
    let all = (0..faults.len()).flat_map(|fault| listed(&outcome, fault)).collect();
    assert!(moved.is_subset(&all), "{faults:?}: {moved:?} moved, {all:?} are listed");
    (0..faults.len()).map(|fault| listed(&outcome, fault)).collect()
}

/// A fault of the table: a part that is drawn, when, and for how long.
fn drawn(draws: &mut impl RngExt, parts: &[&str], nodes: u32, most_ms: u32) -> String {
    let (node, part) = (draws.random_range(0..nodes), draws.random_range(0..parts.len()));
    let part = parts[part].replace('N', &node.to_string());
    let at = draws.random_range(1..most_ms);
    match draws.random_range(0..3) {
        0 => format!("{{part: {part}, at: {at}ms, lasts: {}ms}}", draws.random_range(1..60)),
        _ => format!("{{part: {part}, at: {at}ms}}"),
    }
}

/// Who watches the runs.
#[derive(Default)]
struct Passes(Vec<RunPass>);

impl Progress for Passes {
    fn begins(&mut self, pass: RunPass) {
        self.0.push(pass);
    }

    fn report(&mut self, _: SimTime, _: u64, _: f64) {}
}

/// The share that is done may fall within a run; which run is under way is said by the run itself.
#[test]
fn whoever_watches_hears_which_run_begins() {
    let train = "train: [{job: pretrain, steps: 1}]";
    let heard = |faults: &[&str]| {
        let faults: Vec<String> = faults.iter().map(|fault| (*fault).to_owned()).collect();
        let mut passes = Passes::default();
        let scenario = scenario_of(TWO_JOBS, train, &faults);
        lightloom_emulator::emulate(&scenario, 1, &mut passes).unwrap();
        passes.0
    };
    let (one, other) = ("{part: n1, at: 100ms}", "{part: n9, at: 200ms}");
    assert_eq!(heard(&[]), [RunPass::Faults]);
    assert_eq!(heard(&[one]), [RunPass::Faults, RunPass::Calm]);
    let both = heard(&[one, other]);
    assert_eq!(
        both[..4],
        [RunPass::Faults, RunPass::Calm, RunPass::Without(0), RunPass::Without(1)]
    );
}

#[test]
fn pairs_of_faults_are_attributed_as_naive_runs_attribute_them() {
    let train = "train: [{job: pretrain, steps: 2}, {job: finetune, steps: 2}]";
    let mut draws = Seed(7).stream("pairs", 0);
    for _ in 0..cases(3, 10) {
        let mut fault = || drawn(&mut draws, &["nN", "nN/nic2", "nN/b0", "nN"], 16, 850);
        judge(TWO_JOBS, train, &[fault(), fault()]);
    }
}

#[test]
fn pairs_of_faults_under_circuits_are_attributed() {
    let train = "train: [{job: pretrain, steps: 2}]";
    let mut draws = Seed(8).stream("pairs", 0);
    for part in ["ocs0", "ocs1", "nN/nic1"] {
        let one = drawn(&mut draws, &["nN"], 16, 700);
        let other = drawn(&mut draws, &[part], 16, 700);
        judge(CIRCUITS, train, &[one, other]);
    }
    let shipped = ["{part: n1, at: 400ms}", "{part: ocs1, at: 900ms}"].map(str::to_owned);
    judge(CIRCUITS, "train: [{job: pretrain, steps: 4}]", &shipped);
}

/// The ring of n9 is made again from other nodes than it would be if n1 had not taken them.
#[test]
fn a_fault_whose_replacement_takes_a_spare_affects_the_job_that_needs_one_next() {
    let train = "train: [{job: pretrain, steps: 2}, {job: finetune, steps: 2}]";
    let faults = ["{part: n1, at: 100ms}", "{part: n9, at: 150ms}"].map(str::to_owned);
    let listed = judge(TWO_JOBS, train, &faults);
    assert_eq!(listed, [BTreeSet::from([0, 1, 2, 3, 4, 5]), BTreeSet::from([4, 5])]);
}

/// Two faults of one node at one instant: without either one the other does the same.
#[test]
fn faults_each_of_which_is_enough_are_both_listed() {
    let train = "train: [{job: pretrain, steps: 1}, {job: finetune, steps: 1}]";
    let faults = ["{part: n1, at: 300ms}", "{part: n1, at: 300ms}"].map(str::to_owned);
    let listed = judge(TWO_JOBS, train, &faults);
    assert!(!listed[0].is_empty() && listed[0] == listed[1], "{listed:?}");
}

/// Two permutations of 16 hosts beside each other, one after 20 µs, on a leaf-spine network.
fn traffic(faults: &[String]) -> Outcome {
    let text = format!(
        "kind: scenario\nversion: 2\nname: traffic\nseed: 1\n\
         on: {{leaf_spine: {{leaves: 4, spines: 2, hosts_per_leaf: 4}}}}\n\
         traffic:\n  - {{name: a, run: permutation, bytes: 256KiB}}\n  \
           - {{name: b, run: permutation, bytes: 64KiB, delay: 20us}}\nfaults: [{}]\n",
        faults.join(", ")
    );
    let none = &mut |_: &str| Err("no such file".to_owned());
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), none);
    let scenario = loaded.unwrap_or_else(|| panic!("{text}: {mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

/// A flow by what it is in every run: its ends and its size; and when it ended.
fn flows(outcome: &Outcome) -> BTreeSet<(String, String, u64, Option<SimTime>)> {
    let row = |flow: &lightloom_emulator::outcome::FlowRow| {
        (flow.source.to_string(), flow.destination.to_string(), flow.size.0, flow.end)
    };
    outcome.flow_records.iter().map(row).collect()
}

/// By workload, when it ended.
fn workload_ends(outcome: &Outcome) -> Vec<(String, SimTime)> {
    outcome.workloads.iter().map(|one| (one.name.clone(), one.end.unwrap())).collect()
}

/// The judges are the runs that do not write the fault: which flows end otherwise, and by how much later each workload.
#[test]
fn flows_are_attributed_to_the_faults_without_which_they_end_otherwise() {
    let mut draws = Seed(9).stream("traffic", 0);
    let mut affected_by_one = 0;
    for _ in 0..12 {
        let mut fault = || {
            let (spine, leaf) = (draws.random_range(0..2), draws.random_range(0..4));
            let (at, rate) = (draws.random_range(1..40), draws.random_range(0..3));
            let effect = ["{bit_errors: 1e-7}", "{rate: 100Gbps}", "{rate: 10Gbps}"][rate];
            format!("{{part: s{leaf}-s{}, at: {at}us, effect: {effect}}}", 4 + spine)
        };
        let faults = [fault(), fault(), fault()];
        let (outcome, calm) = (traffic(&faults), traffic(&[]));
        let moved: BTreeSet<_> = flows(&outcome).difference(&flows(&calm)).cloned().collect();
        for (place, fault) in outcome.faults.iter().enumerate() {
            let mut others = faults.to_vec();
            others.remove(place);
            let other = traffic(&others);
            let truth: BTreeSet<_> = flows(&outcome).difference(&flows(&other)).cloned().collect();
            let said = fault.traffic.as_ref().unwrap();
            let both = truth.intersection(&moved).count() as u64;
            assert!(
                said.flows_moved >= both,
                "{faults:?}, {place}: {} of {both}",
                said.flows_moved
            );
            if both > 0 && both == said.flows_moved {
                let late = workload_ends(&outcome).into_iter().zip(workload_ends(&other));
                let late = late.filter(|(here, _)| said.workloads.contains(&here.0));
                let late = late.map(|(here, there)| here.1.0.saturating_sub(there.1.0)).max();
                assert_eq!(fault.delay.unwrap().0, late.unwrap(), "{faults:?}, {place}");
            }
            affected_by_one += both;
        }
    }
    assert!(affected_by_one > 100, "{affected_by_one} flows");
}
