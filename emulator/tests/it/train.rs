// SPDX-License-Identifier: Apache-2.0
//! Training jobs: their steps compared with the closed form, with a row for each dimension of the
//! mapping, and with the same steps without the fault.

use crate::fabric::{load, run, sum};
use lightloom_emulator::outcome::{JobStep, Outcome};
use lightloom_emulator::run::IslandReuse;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, On, TrainStep};
use lightloom_emulator::training::packets;
use lightloom_engine::capture::Watch;

fn one_tor(gpus: u32, tp: u32, training: &str) -> String {
    let nodes = gpus.div_ceil(4).max(8);
    format!(
        "kind: fabric
version: 2
name: one-tor
hbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}
dcn: {{fat_tree: {{nodes_per_tor: {nodes}}}}}
jobs: [{{name: job, gpus: {gpus}, tp: {tp}, step: {{training: {training}}}}}]
"
    )
}

const CALM: &str = "
kind: scenario
version: 2
name: calm
on: {fabric: fabric.yaml}
train: [{job: job}]
";

fn seconds(step: &JobStep) -> f64 {
    step.took().unwrap().as_secs_f64()
}

/// One row per dimension, and mixes: GPUs, TP, the rest of the mapping.
const MAPPINGS: [(&str, u32, u32, &str); 9] = [
    ("tp", 8, 8, "{model: llama-3.1-8b, tokens: 8192}"),
    ("tp 16", 16, 16, "{model: llama-3.1-8b, tokens: 8192, micro_batches: 2}"),
    ("cp", 8, 4, "{model: llama-3.1-8b, cp: 2, tokens: 32768}"),
    ("pp", 16, 4, "{model: llama-3.1-8b, pp: 4, micro_batches: 8, tokens: 8192}"),
    ("dp", 16, 4, "{model: llama-3.1-8b, dp: 4, tokens: 8192}"),
    ("dp sharded", 16, 4, "{model: llama-3.1-8b, dp: 4, sharding: sharded, tokens: 8192}"),
    ("ep", 16, 4, "{model: mixtral-8x7b, dp: 4, ep: 4, tokens: 8192}"),
    ("tp pp dp", 32, 4, "{model: llama-3.1-8b, pp: 4, dp: 2, micro_batches: 8, tokens: 8192}"),
    (
        "tp cp pp dp",
        64,
        4,
        "{model: llama-3.1-8b, cp: 2, pp: 4, dp: 2, micro_batches: 8, tokens: 16384}",
    ),
];

#[test]
fn fault_free_step_matches_its_closed_form_in_every_dimension() {
    let mut misses = Vec::new();
    for (name, gpus, tp, training) in MAPPINGS {
        let outcome = run(&one_tor(gpus, tp, training), CALM);
        let step = &outcome.steps.of_jobs()[0];
        let closed = step.closed_form.as_secs_f64();
        let contention = step.why.unwrap().contention.as_secs_f64();
        let off = (seconds(step) - contention) / closed - 1.0;
        println!(
            "{name:12} {:.6} s, closed form {closed:.6} s, {:+.2} % without contention; {} packet-hops",
            seconds(step),
            100.0 * off,
            outcome.head.packet_hops,
        );
        assert_eq!(sum(step), step.took().unwrap().0, "{name}: the causes add up to it");
        // Without contention the step may wait for other exchanges, so the contention on its path is at
        // least the time that it costs.
        let with = seconds(step) / closed - 1.0;
        if off > 0.01 || with < -0.01 {
            misses.push(format!("{name} {:+.2} % to {:+.2} %", 100.0 * off, 100.0 * with));
        }
    }
    assert!(misses.is_empty(), "off by more than 1 %: {misses:?}");
}

#[test]
fn excerpt_step_matches_the_job_on_its_fabric() {
    for (name, gpus, tp, training) in MAPPINGS.iter().filter(|row| !row.3.contains("dp: 4")) {
        let fabric = one_tor(*gpus, *tp, training);
        let scenario = load(&fabric, CALM).0.unwrap();
        let start = scenario::plan(&scenario).unwrap();
        let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
            panic!("a fabric is planned")
        };
        let step = TrainStep::of(&scenario.train[0], fabric, plan).unwrap();
        let alone = packets::run(&step.owned.job(), &mut ()).unwrap().step;
        assert_eq!(alone.gpus, u64::from(*gpus), "{name} is run whole");
        let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
        let there = seconds(&outcome.steps.of_jobs()[0]);
        let off = alone.packet_seconds / there - 1.0;
        println!(
            "{name:12} alone {:.6} s, {there:.6} s, {:+.2} %",
            alone.packet_seconds,
            100.0 * off
        );
        assert!(off.abs() < 0.01, "{name}: {off}");
    }
}

/// Two jobs on rings of two nodes and two spare nodes, below one top-of-rack switch.
const TWO_JOBS: &str = "
kind: fabric
version: 2
name: two-jobs
hbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}
dcn: {fat_tree: {nodes_per_tor: 16}}
jobs:
  - {name: first, gpus: 32, tp: 8, step: {training: {model: llama-3.1-8b, pp: 2, dp: 2, micro_batches: 2, tokens: 8192}}}
  - {name: other, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}}
";

const BOTH: &str = "
kind: scenario
version: 2
name: both
on: {fabric: fabric.yaml}
control: {detection_delay: 5ms, planning_delay: 1ms}
";

fn both(train: &str, faults: &str) -> Outcome {
    run(TWO_JOBS, &format!("{BOTH}train:\n  - {{job: other, steps: 3}}\n  - {train}\n{faults}"))
}

fn steps<'a>(outcome: &'a Outcome, job: &str) -> Vec<&'a JobStep> {
    outcome.steps.of_jobs().iter().filter(|step| step.job == job).collect()
}

fn millis(time: lightloom_units::Picoseconds) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn node_fault_costs_the_lost_work_and_the_replacement() {
    let calm = both("{job: first, steps: 3}", "");
    let outcome = both("{job: first, steps: 3}", "faults: [{part: n1, at: 350ms}]");
    let (with, without) = (steps(&outcome, "first"), steps(&calm, "first"));
    assert_eq!(with[0].end, without[0].end, "before the fault");
    let why = with[1].why.unwrap();
    let lost = 350.0 - millis(with[1].start.since(lightloom_units::SimTime::START));
    // Weights gathered before the first pass are kept.
    let kept = lost - millis(why.restart);
    assert!((0.0..=millis(why.exposed.dp)).contains(&kept), "{why:?}: {lost} ms were done");
    let fault = millis(why.fault);
    assert!((6.0..8.5).contains(&fault), "detected, planned, switched: {fault} ms");
    let more = millis(with[1].took().unwrap()) - millis(without[1].took().unwrap());
    assert!((more - (lost - kept) - fault).abs() < 0.5, "{more} ms more for {lost} and {fault}");
    assert_eq!(with[1].restarts, 1);
    // Below one top-of-rack switch the new place is as good as the old one.
    let next = millis(with[2].took().unwrap()) / millis(without[2].took().unwrap());
    assert!((next - 1.0).abs() < 0.01, "{next}");
    assert_eq!(steps(&outcome, "other"), steps(&calm, "other"), "shares nothing with it");
    let fault = &outcome.faults[0];
    assert_eq!(fault.groups_affected.len(), 4, "the groups of the job wait for each other");
    let late = |group: usize| outcome.groups[group].delay.unwrap().0 > 0;
    let affected: Vec<usize> = (0..6).filter(|group| late(*group)).collect();
    assert_eq!(affected, [0, 1, 2, 3], "its own job's groups alone");
}

#[test]
fn restart_reads_the_checkpoint_and_repeats_later_steps() {
    let fault = "faults: [{part: n1, at: 350ms}]";
    let barrier = both("{job: first, steps: 3}", fault);
    let train = "{job: first, steps: 3, restart: {checkpoint: {every: 2, load: 100ms}}}";
    let checkpoint = both(train, fault);
    let [one, two] = [&barrier, &checkpoint].map(|run| steps(run, "first")[1].clone());
    let whole = millis(steps(&barrier, "first")[0].took().unwrap());
    let more = millis(two.took().unwrap()) - millis(one.took().unwrap());
    assert!((more - 100.0 - whole).abs() < 3.0, "{more} ms for reading and a step of {whole} ms");
    let why = two.why.unwrap();
    assert!(why.fault.0 > one.why.unwrap().fault.0 + 99_000_000_000, "{why:?}");
    assert_eq!(sum(&two), two.took().unwrap().0);
    assert_eq!(steps(&checkpoint, "other"), steps(&barrier, "other"));
}

#[test]
fn separately_simulated_rings_take_the_same_time_as_in_place() {
    // A fault without effect makes the rings with the broken part run packet by packet.
    let fault = "faults: [{part: n1/b0, effect: {rate: 3.2Tbps}, at: 1us}]";
    let outcome = both("{job: first, steps: 1}", fault);
    for step in outcome.steps.of_jobs() {
        assert_eq!(step.end, step.end_without_faults, "{} to the picosecond", step.job);
    }
    let calm = both("{job: first, steps: 1}", "");
    assert!(outcome.exchanges_reused < calm.exchanges_reused, "some ran in place");
    // A ring whose light passes a spare node is run separately with that node.
    let spare = TWO_JOBS.replace(
        "nodes: 16, gpus_per_node: 4, k: 2",
        "nodes: 24, gpus_per_node: 4, k: 2, spare_per_ring: 1",
    );
    let both = |faults: &str| run(&spare, &format!("{BOTH}train: [{{job: first}}]\n{faults}"));
    let (outcome, calm) = (both(fault), both(""));
    for step in outcome.steps.of_jobs() {
        assert_eq!(step.end, step.end_without_faults, "{} past a spare node", step.job);
    }
    assert!(Some(0) < outcome.exchanges_reused && outcome.exchanges_reused < calm.exchanges_reused);
}

#[test]
fn interface_outage_delays_its_step_without_restart() {
    let calm = both("{job: first, steps: 1}", "");
    // A fault in the gradients just before the optimizer, too short for a new plan.
    let scenario = load(TWO_JOBS, &format!("{BOTH}train: [{{job: first}}]\n")).0.unwrap();
    let start = scenario::plan(&scenario).unwrap();
    let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
        panic!("a fabric is planned")
    };
    let step = TrainStep::of(&scenario.train[0], fabric, plan).unwrap();
    let optimizer = 1e3 * step.closed_form().optimizer_seconds;
    let at = millis(steps(&calm, "first")[0].took().unwrap()) - optimizer - 1.0;
    let fault = format!("faults: [{{part: n1/nic2, at: {:.0}us, lasts: 3ms}}]", 1e3 * at);
    let outcome = both("{job: first, steps: 2}", &fault);
    let first = steps(&outcome, "first");
    let why = first[0].why.unwrap();
    assert!(first[0].end > first[0].end_without_faults && first[0].restarts == 0, "{why:?}");
    assert!(why.fault.0 > 0 && why.restart.0 == 0, "{why:?}");
    let other = steps(&outcome, "other");
    assert!(other.iter().all(|step| step.end == step.end_without_faults));
}

#[test]
fn reports_missing_parts_of_a_training_job() {
    let bare = TWO_JOBS.replace("step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}", "");
    let bare = bare.replace("tp: 8, }", "tp: 8}");
    let cases = [
        (TWO_JOBS, "train: [{job: third}]", "job `third` does not exist in the fabric"),
        (&bare, "train: [{job: other}]", "has neither model nor mapping"),
        (
            TWO_JOBS,
            "train: [{job: first, sequence: 1000}]",
            "cannot be divided into sequences of 1000",
        ),
        (TWO_JOBS, "train: [{job: first, accelerator: h1000}]", "h1000"),
        (TWO_JOBS, "train: [{job: first}, {job: first}]", "is listed twice"),
        (TWO_JOBS, "train: [{job: first}]\nphases: {}", "cannot be combined with `train`"),
    ];
    for (fabric, train, says) in cases {
        let (scenario, mistakes) = load(fabric, &format!("{BOTH}{train}\n"));
        assert!(scenario.is_none(), "{train}");
        let messages: Vec<&str> = mistakes.iter().map(|one| one.message.as_str()).collect();
        assert!(messages.iter().any(|message| message.contains(says)), "{train}: {messages:?}");
    }
}

const CIRCUITS: &str = include_str!("../../../topologies/job-64-circuits.yaml");

fn shown(step: &JobStep) -> String {
    format!("{:.6} s of {:.6} s: {:?}", seconds(step), step.closed_form.as_secs_f64(), step.why)
}

#[test]
fn step_requests_phase_circuits_and_waits_for_them() {
    let calm = run(CIRCUITS, &format!("{BOTH}train: [{{job: pretrain, steps: 2}}]\n"));
    for step in steps(&calm, "pretrain") {
        println!("{}", shown(step));
        assert_eq!(sum(step), step.took().unwrap().0);
        // The change to the micro-batches is hidden by the first pass; the change to the gradients
        // is not.
        let waited = millis(step.why.unwrap().transition);
        assert!((waited - 1.1).abs() < 0.01, "control and switching take 1.1 ms: {waited}");
        let off = seconds(step) / step.closed_form.as_secs_f64() - 1.0;
        assert!(off.abs() < 0.02, "{off}: transition included");
    }
}

#[test]
fn failed_optical_switch_slows_steps_without_restarts() {
    let fault = "faults: [{part: ocs1, at: 330ms}]";
    let outcome = run(CIRCUITS, &format!("{BOTH}train: [{{job: pretrain, steps: 3}}]\n{fault}\n"));
    let steps = steps(&outcome, "pretrain");
    steps.iter().for_each(|step| println!("{}", shown(step)));
    println!("{}", outcome.faults[0]);
    assert!(outcome.passed() && steps.len() == 3);
    assert!(
        steps[2].end > steps[2].end_without_faults && steps[2].restarts == 0,
        "slower, not lost"
    );
}

#[test]
fn survives_a_node_fault_and_then_a_switch_fault() {
    let text = include_str!("../../../topologies/scenarios/job-circuits.yaml");
    let text = text.replace("../job-64-circuits.yaml", "fabric.yaml");
    let outcome = run(CIRCUITS, &text);
    let steps = steps(&outcome, "pretrain");
    steps.iter().for_each(|step| println!("{}", shown(step)));
    outcome.faults.iter().for_each(|fault| println!("{fault}"));
    assert!(outcome.passed(), "{:?}", outcome.expectations);
    assert!(steps.iter().all(|step| sum(step) == step.took().unwrap().0));
    let restarts: Vec<u32> = steps.iter().map(|step| step.restarts).collect();
    assert_eq!(restarts, [0, 1, 0, 0]);
    let packets = &outcome.head.packets;
    let known = packets.delivered + packets.dropped + packets.lost + packets.in_flight;
    assert_eq!(packets.sent, known, "conserved");
}

fn shipped(name: &str, sharing: IslandReuse) -> Outcome {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/scenarios/");
    let text = std::fs::read(format!("{folder}{name}")).unwrap();
    let read = &mut |file: &str| {
        let bytes = std::fs::read(format!("{folder}{file}")).map_err(|error| error.to_string())?;
        Ok(NamedFile { name: file.to_owned(), bytes })
    };
    let (loaded, mistakes) = scenario::file::load(name, &text, read);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = scenario::plan(&scenario).unwrap();
    let watch = Watch::default();
    let settings = lightloom_emulator::RunSettings { threads: 1, watch, sharing, series: None };
    lightloom_emulator::emulate_from(&scenario, &start, settings, &mut ()).unwrap().outcome
}

/// A node fails, groups restart, an optical switch fails and circuits change. Collectives that
/// share no link reuse the time of an identical one. Those affected by a fault are simulated, and
/// the result is the same.
#[test]
fn reusing_island_times_does_not_change_steps() {
    for (name, simulated_most) in [("job-step.yaml", 10), ("job-circuits.yaml", 10)] {
        let [reused, proven, whole] = [IslandReuse::Reuse, IslandReuse::Proven, IslandReuse::Whole]
            .map(|how| shipped(name, how));
        let reuse = reused.reuse.unwrap();
        println!("{name}: {reuse:?}");
        assert!(reuse.simulated * simulated_most <= reuse.islands, "{reuse:?}");
        assert_eq!(proven, reused, "{name}");
        assert_eq!(Outcome { reuse: None, ..reused }, whole, "{name}");
    }
}

/// The second replica waits for the first one, because a node of the first failed long before the
/// optical switch.
#[test]
fn group_waiting_for_a_failed_node_is_affected_by_it() {
    let outcome = shipped("job-circuits.yaml", IslandReuse::Reuse);
    let groups: Vec<Vec<u32>> = outcome
        .faults
        .iter()
        .map(|fault| fault.groups_affected.iter().map(|group| group.0).collect())
        .collect();
    println!("{groups:?}");
    assert!(groups[0].contains(&1), "n1 delays g1: {groups:?}");
}
