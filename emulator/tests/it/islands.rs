// SPDX-License-Identifier: Apache-2.0
//! Jobs and collectives in switch domains and cubes, and without a domain. They are compared with
//! closed forms, with the same collectives packet by packet, and under faults of a node, cable or
//! domain switch.

use lightloom_emulator::outcome::{JobStep, Outcome};
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_units::Picoseconds;

fn run(fabric: &str, text: &str) -> Outcome {
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() }),
        _ => Err("no such file".to_owned()),
    };
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

fn fabric(hbd: &str, jobs: &str) -> String {
    format!(
        "kind: fabric
version: 2
name: islands
hbd: {{{hbd}}}
dcn: {{fat_tree: {{nodes_per_tor: 32}}}}
jobs: [{jobs}]
"
    )
}

fn scenario(what: &str) -> String {
    format!(
        "kind: scenario
version: 2
name: islands
on: {{fabric: fabric.yaml}}
control: {{detection_delay: 5ms, planning_delay: 1ms}}
{what}
"
    )
}

const SWITCH: &str = "switch: {nodes: 16, gpus_per_node: 4, gpus: 16}";
const JOBS: &str = "{name: first, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}}, \
     {name: other, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, pp: 2, micro_batches: 2, tokens: 8192}}}";
const BOTH: &str = "train: [{job: first, steps: 2}, {job: other, steps: 2}]";

fn steps<'a>(outcome: &'a Outcome, job: &str) -> Vec<&'a JobStep> {
    outcome.steps.of_jobs().iter().filter(|step| step.job == job).collect()
}

fn millis(time: Picoseconds) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn fault_free_step_matches_its_closed_form_in_every_domain() {
    let training = "step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}";
    let alone = "step: {training: {model: llama-3.1-8b, tokens: 8192}}";
    let pipeline =
        "step: {training: {model: llama-3.1-8b, pp: 2, dp: 2, micro_batches: 4, tokens: 8192}}";
    let rows = [
        ("switch domain of 16, TP 8", SWITCH, 16, 8, training),
        ("switch domain of 16, TP 16", SWITCH, 32, 16, training),
        ("switch domain of 16, TP 8 PP 2", SWITCH, 32, 8, pipeline),
        ("cube of 16", "torus: {nodes: 16, gpus_per_node: 4, gpus: 16}", 32, 16, training),
        // Without a domain, gradients would share cards with TP.
        ("no domain, TP 8", "none: {nodes: 16, gpus_per_node: 4}", 8, 8, alone),
    ];
    for (name, hbd, gpus, tp, step) in rows {
        let jobs = format!("{{name: job, gpus: {gpus}, tp: {tp}, {step}}}");
        let outcome = run(&fabric(hbd, &jobs), &scenario("train: [{job: job}]"));
        let step = &outcome.steps.of_jobs()[0];
        let off = step.took().unwrap().as_secs_f64() / step.closed_form.as_secs_f64() - 1.0;
        println!("{name}: {:+.2} %", 100.0 * off);
        assert!(off.abs() < 0.01, "{name}: {:+.2} %", 100.0 * off);
    }
}

#[test]
fn simulated_group_takes_the_time_of_a_reused_one() {
    // A fault without effect makes the groups on that switch run packet by packet.
    let fault = "faults: [{part: hbd0, effect: {rate: 6.4Tbps}, at: 1us}]";
    let fabric = fabric(SWITCH, JOBS);
    let outcome = run(&fabric, &scenario(&format!("{BOTH}\n{fault}")));
    let calm = run(&fabric, &scenario(BOTH));
    assert!(outcome.exchanges_reused < calm.exchanges_reused, "some ran in place");
    for (one, other) in outcome.steps.of_jobs().iter().zip(calm.steps.of_jobs()) {
        assert_eq!(one.end, other.end, "{} to the picosecond", one.job);
    }
}

#[test]
fn idle_node_of_the_same_domain_replaces_a_failed_one() {
    // Two groups of two nodes leave one of five idle in their domain.
    let hbd = "switch: {nodes: 10, gpus_per_node: 4, gpus: 20}";
    let job = "{name: job, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}}";
    let fabric = fabric(hbd, job);
    let calm = run(&fabric, &scenario("train: [{job: job, steps: 2}]"));
    let outcome =
        run(&fabric, &scenario("train: [{job: job, steps: 2}]\nfaults: [{part: n0, at: 50ms}]"));
    let fault = &outcome.faults[0];
    assert_eq!(fault.gpus_lost, 4, "its own and no other: {fault:?}");
    let (with, without) = (steps(&outcome, "job"), steps(&calm, "job"));
    let more = millis(with[0].took().unwrap()) - millis(without[0].took().unwrap());
    assert!((more - 56.0).abs() < 0.8, "50 ms lost, 6 ms until the next plan: {more} ms");
    assert_eq!(with[1].took(), without[1].took(), "no GPU that works lost any bandwidth");
}

#[test]
fn failed_domain_switch_removes_its_domain_and_a_cable_its_node() {
    let fabric = fabric(SWITCH, JOBS);
    let out = |part: &str| {
        let fault = format!("{BOTH}\nfaults: [{{part: {part}, at: 50ms}}]");
        let outcome = run(&fabric, &scenario(&fault));
        (outcome.faults[0].clone(), outcome)
    };
    let (switch, outcome) = out("hbd0");
    assert!(switch.detected.is_some() && switch.restored.is_some(), "idle domains: {switch:?}");
    assert_eq!(outcome.groups.iter().filter(|group| group.lost).count(), 0);
    // A fault of its cable or of one GPU fails the whole node.
    let ends = ["n1-cable", "n1/g2", "n1"].map(|part| {
        let part = if part == "n1-cable" { "n1/g0-hbd0" } else { part };
        let (_, outcome) = out(part);
        outcome.steps.of_jobs().iter().map(|step| step.end).collect::<Vec<_>>()
    });
    assert_eq!(ends[0], ends[2], "its cable");
    assert_eq!(ends[1], ends[2], "its GPU");
    // Every node is in use, so no replacement is available.
    let full = "{name: first, gpus: 64, tp: 16, step: {training: {model: llama-3.1-8b, dp: 4, tokens: 8192}}}";
    let full = self::fabric(SWITCH, full);
    let fault = "train: [{job: first}]\nfaults: [{part: hbd0, at: 20ms}]";
    let outcome = run(&full, &scenario(fault));
    assert!(outcome.never_ended && outcome.faults[0].restored.is_none());
    assert_eq!(outcome.waiting.len(), 1, "{:?}", outcome.waiting);
}

#[test]
fn all_reduce_on_a_domain_switch_is_bounded_by_the_gpu_cable() {
    let job = "{name: job, gpus: 64, tp: 16}";
    let what = "collectives: [{all_reduce: {name: a, bytes: 64MiB}}]";
    let outcome = run(&fabric(SWITCH, job), &scenario(what));
    // 2 (n − 1) / n of the buffer, and a header of 64 B on each 4,032 B, over 6.4 Tb/s.
    let bytes = 2.0 * 15.0 / 16.0 * f64::from(64 << 20) * (4096.0 / 4032.0);
    let least = bytes * 8.0 / 6.4e12;
    assert_eq!(outcome.workloads.len(), 4);
    for group in &outcome.workloads {
        let took = group.end.unwrap().since(group.start).as_secs_f64();
        let bound = group.lower_bound.as_secs_f64();
        assert!((bound / least - 1.0).abs() < 0.02, "{bound} s of {least} s");
        assert!((1.0..1.05).contains(&(took / bound)), "{took} s of {bound} s");
    }
}

#[test]
fn work_lost_to_two_faults_counts_as_restart_not_contention() {
    let fabric = fabric(SWITCH, JOBS);
    let faults = "faults: [{part: n0, at: 30ms}, {part: n2, at: 80ms}]";
    let outcome = run(&fabric, &scenario(&format!("train: [{{job: first}}]\n{faults}")));
    let why = steps(&outcome, "first")[0].why.unwrap();
    assert!((millis(why.restart) - 80.0).abs() < 0.5, "the group of n2 loses 80 ms: {why:?}");
    assert!((millis(why.fault) - 6.0).abs() < 0.01, "and waits 6 ms: {why:?}");
    assert!(millis(why.contention) < 1.0, "{why:?}");
}

/// A plan that switches no bundle lets the group continue at once.
#[test]
fn group_loss_in_a_switch_domain_is_attributed_to_its_fault() {
    let faults = "faults: [{part: n0, at: 30ms}, {part: n2, at: 300ms}]";
    let train = "train: [{job: first, steps: 3}]";
    let outcome = run(&fabric(SWITCH, JOBS), &scenario(&format!("{train}\n{faults}")));
    let calm = run(&fabric(SWITCH, JOBS), &scenario(train));
    let end = |outcome: &Outcome| steps(outcome, "first")[2].end.unwrap().0.cast_signed();
    let [first, second] = [0, 1].map(|fault: usize| outcome.faults[fault].losses[0].clone());
    assert_eq!(first.late + second.late, end(&outcome) - end(&calm));
    let ms = |time: i64| time as f64 / 1e9;
    assert!((ms(first.outage) - 6.0).abs() < 0.01, "{first:?}");
    // Weights gathered before the first pass are kept.
    assert!((ms(first.redone) - 30.0).abs() < 0.5, "{first:?}");
    // The group moves to another domain, so gradients cross the network instead of the switch of the domain.
    let moved = ms(first.exchange + first.contention + first.compute);
    assert!(moved > 5.0 && (ms(first.late) - 36.0 - moved).abs() < 0.5, "{first:?}");
    assert!((ms(second.outage) - 6.0).abs() < 0.01, "{second:?}");
}
