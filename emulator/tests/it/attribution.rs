// SPDX-License-Identifier: Apache-2.0
//! Compares the groups and losses of each fault with a run of the same scenario without faults.

use std::collections::BTreeSet;

use lightloom_emulator::outcome::{FaultResult, JobLoss, Outcome};
use lightloom_emulator::run::{Progress, RunPass};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

const TWO_JOBS: &str = include_str!("../../../topologies/job-64.yaml");

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

fn ends(outcome: &Outcome) -> Vec<Vec<Option<SimTime>>> {
    outcome.groups.iter().map(|group| group.step_ends.clone()).collect()
}

fn differ(one: &Outcome, other: &Outcome) -> BTreeSet<usize> {
    let both = ends(one).into_iter().zip(ends(other)).enumerate();
    both.filter(|(_, (one, other))| one != other).map(|(group, _)| group).collect()
}

fn listed(outcome: &Outcome, fault: usize) -> BTreeSet<usize> {
    outcome.faults[fault].groups_affected.iter().map(|group| group.0 as usize).collect()
}

fn end(outcome: &Outcome, job: &str) -> i64 {
    let steps = outcome.steps.of_jobs().iter().filter(|step| step.job == job);
    steps.map(|step| step.end.unwrap().0.cast_signed()).max().unwrap()
}

fn losses(outcome: &Outcome, job: &str) -> Vec<JobLoss> {
    let of = |fault: &FaultResult| {
        let loss = fault.losses.iter().find(|loss| loss.job == job);
        loss.cloned().unwrap_or_default()
    };
    outcome.faults.iter().map(of).collect()
}

/// Compares a result with a run without faults: losses add up to the delay of each job, no part but
/// the change in contention is negative, and every changed group is listed. Returns the groups of
/// each fault.
fn judge(fabric: &str, train: &str, faults: &[String]) -> Vec<BTreeSet<usize>> {
    let (outcome, calm) = (run(fabric, train, faults), run(fabric, train, &[]));
    let jobs: BTreeSet<&str> =
        outcome.steps.of_jobs().iter().map(|step| step.job.as_str()).collect();
    for job in jobs {
        let losses = losses(&outcome, job);
        let late: i64 = losses.iter().map(|loss| loss.late).sum();
        println!("{faults:?}: {losses:?}");
        assert_eq!(late, end(&outcome, job) - end(&calm, job), "{faults:?}, {job}: {losses:?}");
        for loss in losses {
            let parts = loss.causes();
            assert_eq!(parts.iter().map(|(_, time)| time).sum::<i64>(), loss.late, "{loss:?}");
            let is_fair =
                |(cause, time): &(&str, i64)| *time >= 0 || *cause == "change in contention";
            assert!(parts.iter().all(is_fair), "{faults:?}: {loss:?}");
        }
    }
    let moved = differ(&outcome, &calm);
    let all: Vec<BTreeSet<usize>> =
        (0..faults.len()).map(|fault| listed(&outcome, fault)).collect();
    let any: BTreeSet<usize> = all.iter().flatten().copied().collect();
    assert!(any == moved, "{faults:?}: {moved:?} moved, {all:?} are listed");
    for (fault, listed) in all.iter().enumerate() {
        let free = outcome.faults[fault].groups_unaffected.as_ref().unwrap();
        let free: BTreeSet<usize> = free.iter().map(|group| group.0 as usize).collect();
        assert!(free.is_disjoint(listed), "{faults:?}, {fault}");
        assert_eq!(free.len() + listed.len(), outcome.groups.len(), "each group is one of both");
    }
    all
}

fn drawn(draws: &mut impl RngExt, parts: &[&str], nodes: u32, most_ms: u32) -> String {
    let (node, part) = (draws.random_range(0..nodes), draws.random_range(0..parts.len()));
    let part = parts[part].replace('N', &node.to_string());
    let at = draws.random_range(1..most_ms);
    match draws.random_range(0..3) {
        0 => format!("{{part: {part}, at: {at}ms, lasts: {}ms}}", draws.random_range(1..60)),
        _ => format!("{{part: {part}, at: {at}ms}}"),
    }
}

#[derive(Default)]
struct Passes(Vec<RunPass>);

impl Progress for Passes {
    fn begins(&mut self, pass: RunPass) {
        self.0.push(pass);
    }

    fn report(&mut self, _: SimTime, _: u64, _: &dyn Fn() -> f64) {}
}

/// The reported share of finished work may fall within a run; the start of each run is reported
/// separately.
#[test]
fn observer_receives_each_run_as_it_starts() {
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
    let many: Vec<&str> = [one, other].into_iter().cycle().take(10).collect();
    assert_eq!(heard(&many), [RunPass::Faults, RunPass::Calm], "two runs for any number of faults");
}

#[test]
fn losses_of_drawn_faults_add_up() {
    let train = "train: [{job: pretrain, steps: 2}, {job: finetune, steps: 2}]";
    let mut draws = Seed(7).stream("pairs", 0);
    for case in 0..cases(6, 60) {
        let parts = ["nN", "nN/nic2", "nN/b0", "nN"];
        let faults = (0..=case % 3).map(|_| drawn(&mut draws, &parts, 16, 850));
        judge(TWO_JOBS, train, &faults.collect::<Vec<String>>());
    }
}

const TWO_REPLICAS: &str = "kind: fabric
version: 2
name: replicas
hbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}
dcn: {fat_tree: {nodes_per_tor: 8, tors_per_domain: 1}}
jobs:
  - name: pretrain
    gpus: 16
    tp: 8
    step: {training: {model: llama-3.1-8b, pp: 1, dp: 2, micro_batches: 4, tokens: 8192}}
";

/// Returns fault and restart of the step, and outage and lost work of each fault, in milliseconds.
fn of_replicas(faults: [&str; 2]) -> ([u64; 2], Vec<[i64; 2]>) {
    let faults = faults.map(|fault| format!("{{part: {fault}}}"));
    let train = "train: [{job: pretrain, steps: 1}]";
    judge(TWO_REPLICAS, train, &faults);
    let text = scenario_of(TWO_REPLICAS, train, &faults);
    let control = scenario::ControlDelays {
        detection_delay: Picoseconds::from_millis(3),
        planning_delay: Picoseconds::from_millis(2),
        ..text.control
    };
    let outcome = lightloom_emulator::emulate(&Scenario { control, ..text }, 1, &mut ()).unwrap();
    let why = outcome.steps.of_jobs()[0].why.unwrap();
    let step = [why.fault, why.restart].map(|time| time.0 / 1_000_000_000);
    let losses = losses(&outcome, "pretrain");
    let losses = losses.iter().map(|loss| [loss.outage, loss.redone].map(|t| t / 1_000_000_000));
    (step, losses.collect())
}

/// Milliseconds of the first 100 ms of a step that are repeated: the 2.8 ms in which replicas gather
/// weights are not.
const REPEATED: i64 = 97;

/// The replica of n2 repeats its work of 300 ms and waits 6 ms. The step does not wait for the
/// replica of n1.
#[test]
fn outage_is_attributed_only_to_stopped_groups() {
    let (step, losses) = of_replicas(["n1, at: 100ms", "n2, at: 300ms"]);
    assert_eq!((step, losses), ([6, 297], vec![[0, 0], [6, REPEATED + 200]]));
}

#[test]
fn simultaneous_faults_cost_as_much_as_one() {
    let (step, mut losses) = of_replicas(["n1, at: 100ms", "n2, at: 100ms"]);
    losses.sort_unstable();
    assert_eq!((step, losses), ([6, 97], vec![[0, 0], [6, REPEATED]]));
}

/// The second fault hits the group that the first one stopped. Until the first one is bypassed, the
/// time belongs to the first one.
#[test]
fn time_under_two_faults_is_attributed_to_the_earlier() {
    let (step, losses) = of_replicas(["n1, at: 100ms", "n0, at: 103ms"]);
    assert_eq!(step, [losses.iter().map(|loss| loss[0]).sum::<i64>().cast_unsigned(), 97]);
    assert_eq!((losses[0], losses[1][1]), ([6, REPEATED], 0));
}

/// A node fails for a second while its replica gathers weights. Its replacement gathers them, and the
/// step does not wait for the failed node.
#[test]
fn fault_while_gathering_weights_costs_only_its_bypass() {
    for at in ["1ms", "2ms"] {
        let fault = format!("n1, at: {at}, lasts: 1s");
        let (step, losses) = of_replicas([&fault, "n7, at: 3s"]);
        assert!(step[0] <= 7 && step[1] <= 2, "{at}: {step:?}");
        assert!(losses[0][0] <= 7 && losses[0][1] <= 2, "{at}: {losses:?}");
    }
}

/// Jobs that share no links each lose as much as in a run with only their own fault.
#[test]
fn jobs_without_shared_parts_lose_only_to_their_own_faults() {
    let train = "train: [{job: pretrain, steps: 2}, {job: finetune, steps: 2}]";
    let faults =
        ["{part: n1/nic2, at: 340ms, lasts: 20ms}", "{part: n9/b0, at: 100ms, lasts: 3ms}"];
    let faults = faults.map(str::to_owned);
    let both = run(TWO_JOBS, train, &faults);
    for (fault, job) in ["pretrain", "finetune"].into_iter().enumerate() {
        let only = run(TWO_JOBS, train, &faults[fault..=fault]);
        let found = losses(&both, job);
        assert_eq!(found[fault], losses(&only, job)[0], "{job}");
        assert!(found[fault].late > 0 && found[1 - fault].late == 0, "{job}: {found:?}");
    }
}

#[test]
fn attributes_fault_pairs_under_circuits() {
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

/// Two permutations of 16 hosts on a leaf-spine network, the second one 20 µs later.
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

fn flows(outcome: &Outcome) -> BTreeSet<(String, String, u64, Option<SimTime>)> {
    let row = |flow: &lightloom_emulator::outcome::FlowRow| {
        (flow.source.to_string(), flow.destination.to_string(), flow.size.0, flow.end)
    };
    outcome.flow_records.iter().map(row).collect()
}

#[test]
fn attributes_every_flow_with_a_changed_end_time() {
    let mut draws = Seed(9).stream("traffic", 0);
    let mut affected_by_one = 0;
    for case in 0..12 {
        let mut fault = || {
            let (spine, leaf) = (draws.random_range(0..2), draws.random_range(0..4));
            let (at, rate) = (draws.random_range(1..40), draws.random_range(0..3));
            let effect = ["{bit_errors: 1e-7}", "{rate: 100Gbps}", "{rate: 10Gbps}"][rate];
            format!("{{part: s{leaf}-s{}, at: {at}us, effect: {effect}}}", 4 + spine)
        };
        let faults: Vec<String> = (0..=case % 3).map(|_| fault()).collect();
        let (outcome, calm) = (traffic(&faults), traffic(&[]));
        let moved = flows(&outcome).difference(&flows(&calm)).count() as u64;
        let counted =
            outcome.faults.iter().map(|fault| fault.traffic.as_ref().unwrap().flows_moved);
        let counted: Vec<u64> = counted.collect();
        assert!(counted.iter().all(|count| *count <= moved), "{faults:?}: {counted:?} of {moved}");
        assert!(counted.iter().sum::<u64>() >= moved, "{faults:?}: {counted:?} of {moved}");
        if faults.len() == 1 {
            affected_by_one += moved;
        }
    }
    assert!(affected_by_one > 10, "{affected_by_one} flows");
}
