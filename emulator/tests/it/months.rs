// SPDX-License-Identifier: Apache-2.0
//! Months: failures over a span, the use of every GPU-hour, and a comparison with published
//! results.

mod known;
mod policies;

use std::collections::BTreeMap;

use lightloom_emulator::months::{
    Answer, Case, Cause, Change, JobLossSample, LossSample, LossTable, Month, PartChange, Policy,
    Prepared, Replicas, TrainedJob, changes, month, months,
};
use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, FailureRate, FailureSource, Scenario, Span};
use lightloom_emulator::shipped::no_daemon;
use lightloom_emulator::substrate::AnyPart;
use lightloom_units::Milliseconds;
use lightloom_units::seed::Seed;
use rand::RngExt;

const SECOND: i128 = 1_000_000_000_000;

fn span(mtbf: u64, repair: u64) -> Span {
    let rate = FailureRate {
        part: AnyPart::Node,
        mtbf: Milliseconds(mtbf),
        repair: Milliseconds(repair),
        source: None,
    };
    let failures = FailureSource::Rates(vec![rate]);
    Span { length: Milliseconds(1_000_000), failures, samples: 2, losses: None, gpu_hour: None }
}

#[test]
fn failure_count_follows_the_rates_and_repairs_alternate() {
    let drawn = changes(&span(10_000, 1_000), &|_| 100, 4, Seed(3)).unwrap();
    let failed = drawn.iter().filter(|change| change.fails).count() as f64;
    let expected = 100.0 * 1_000_000.0 / 11_000.0;
    assert!((failed / expected - 1.0).abs() < 0.05, "{failed} of {expected}");
    for place in 0..100 {
        let own: Vec<bool> = drawn.iter().filter(|c| c.place == place).map(|c| c.fails).collect();
        assert!(own.iter().enumerate().all(|(at, fails)| *fails == (at % 2 == 0)), "{own:?}");
    }
    assert!(drawn.is_sorted_by_key(|change| change.at));
}

#[test]
fn additional_part_leaves_other_failures_unchanged() {
    let few = changes(&span(10_000, 1_000), &|_| 3, 4, Seed(3)).unwrap();
    let more = changes(&span(10_000, 1_000), &|_| 4, 4, Seed(3)).unwrap();
    let same: Vec<PartChange> = more.into_iter().filter(|change| change.place < 3).collect();
    assert_eq!(few, same);
}

fn job(name: &str, gpus: u64, policy: Policy) -> TrainedJob {
    // Two replicas on consecutive nodes of four GPUs.
    let nodes = (gpus / 4) as u32;
    let of_node = (0..nodes).map(|node| vec![node * 2 / nodes]).collect();
    let replicas = Replicas { count: 2, step_with_fewer: 7 * SECOND, of_node };
    TrainedJob {
        name: name.to_owned(),
        gpus,
        step: 8 * SECOND,
        closed_form: 8.0,
        mfu: 0.4,
        policy,
        replicas,
    }
}

fn node(at: u64, place: usize, fails: bool) -> PartChange {
    PartChange { at: Milliseconds(at), part: AnyPart::Node, place, fails }
}

fn table(jobs: Vec<TrainedJob>, gpus: u64, once: &[(Cause, i128)], slower: i128) -> LossTable {
    let mut losses = vec![Some(JobLossSample::default()); jobs.len()];
    losses[0] = Some(JobLossSample { once: once.to_vec(), slower });
    let mut table = LossTable::new(jobs, gpus, 4);
    let case = Case { part: AnyPart::Node, out: 0, number: 0 };
    table.add(&case, 0, LossSample { jobs: losses });
    table
}

fn lost(month: &Month, cause: Cause) -> f64 {
    month.lost.get(&cause).map_or(0.0, |time| *time as f64 / SECOND as f64)
}

#[test]
fn failure_costs_its_run_plus_steps_since_the_checkpoint() {
    let policy = Policy::restart(10, 30 * SECOND, 0);
    let once = [(Cause::Outage, 2 * SECOND), (Cause::DoneAgain, 3 * SECOND)];
    let table = table(vec![job("a", 8, policy)], 16, &once, SECOND);
    // 25.5 steps are done: five whole ones since the checkpoint, at 9 s each until the repair.
    let drawn = [node(204_000, 0, true), node(604_000, 0, false)];
    let month = month(&table, &drawn, Milliseconds(1_000_000), Seed(1));
    assert_eq!((month.failures, month.hits, month.waits), (1, 1, 0));
    assert_eq!(lost(&month, Cause::Outage), 8.0 * 2.0);
    assert_eq!(lost(&month, Cause::CheckpointLoad), 8.0 * 30.0);
    assert_eq!(lost(&month, Cause::DoneAgain), 8.0 * (3.0 + 5.0 * 9.0));
    // The repair comes 400 s later; 80 s of these are the one-time loss, and a ninth of the rest is
    // the slowdown.
    let slower = lost(&month, Cause::SlowerSteps);
    assert!((slower - 8.0 * 320.0 / 9.0).abs() < 1e-6, "{slower}");
    assert_eq!(lost(&month, Cause::UnderRepair), 4.0 * 400.0);
    assert_eq!(lost(&month, Cause::IdleSpares), 8.0 * 600.0 + 4.0 * 400.0);
}

#[test]
fn job_without_nodes_waits_for_repair_then_loads_its_checkpoint() {
    let policy = Policy::restart(10, 30 * SECOND, 0);
    let table = table(vec![job("a", 8, policy)], 8, &[], 0);
    let drawn = [node(100_000, 0, true), node(500_000, 0, false)];
    let month = month(&table, &drawn, Milliseconds(1_000_000), Seed(1));
    assert_eq!(month.waits, 1);
    assert_eq!(lost(&month, Cause::WaitingForNodes), 4.0 * 400.0);
    assert_eq!(lost(&month, Cause::UnderRepair), 4.0 * 400.0);
    assert_eq!(lost(&month, Cause::CheckpointLoad), 8.0 * 30.0);
    assert_eq!(lost(&month, Cause::DoneAgain), 8.0 * 20.0);
}

#[test]
fn causes_add_up_to_the_lost_gpu_hours() {
    let policy = Policy::restart(7, 11 * SECOND + 1, SECOND / 3);
    let once = [
        (Cause::Outage, SECOND / 7),
        (Cause::DoneAgain, 3 * SECOND + 5),
        (Cause::Disturbed, -SECOND / 9),
    ];
    let jobs = vec![job("a", 32, policy), job("b", 16, Policy::restart(1, 0, 0))];
    let answers = [
        Answer::Restart,
        Answer::InMemory { every: 3, load: 5 * SECOND, write: SECOND / 11, copies: 2 },
        Answer::Migrate { takes: 7 * SECOND },
        Answer::Elastic { reform: SECOND, start: 9999 * SECOND, rejoin: 3 * SECOND, least: 1 },
    ];
    let spares = [(0, 17), (4, SECOND / 13), (12, -SECOND / 17)];
    for (answer, (spare, slower)) in
        answers.into_iter().flat_map(|answer| spares.map(|spare| (answer, spare)))
    {
        let mut jobs = jobs.clone();
        jobs[0].policy.answer = answer;
        let table = table(jobs, 48 + spare, &once, slower);
        let mut waits = 0;
        for seed in 0..50 {
            let nodes = (48 + spare as usize) / 4;
            let span = span(400_000, 30_000);
            let drawn = changes(&span, &|_| nodes, 4, Seed(seed)).unwrap();
            let month = month(&table, &drawn, span.length, Seed(seed));
            let sum: i128 = month.lost.values().sum();
            assert_eq!(sum, month.capacity - month.useful, "seed {seed}, {spare} GPUs to spare");
            for (cause, time) in &month.lost {
                let may_gain = matches!(cause, Cause::SlowerSteps | Cause::Disturbed);
                assert!(*time >= 0 || may_gain, "{cause}: {time}");
            }
            let product = month.scheduling() * month.runtime() * month.program();
            let share = 0.4 * month.useful as f64 / month.capacity as f64;
            assert!((product - share).abs() < 1e-12, "{product} and {share}");
            waits += month.waits;
        }
        assert!(waits > 0, "{answer:?}, {spare} GPUs to spare: some job waits under some seed");
    }
}

/// Returns the minutes until 3,000 steps of `step_seconds` are done, with a fault every 2,700 to
/// 4,500 s.
fn minutes_of(step_seconds: f64, policy: Policy, once: &[(Cause, i128)], seed: u64) -> f64 {
    let step = (step_seconds * SECOND as f64) as i128;
    let trained = TrainedJob { step, ..job("llama-4-scout", 64, policy) };
    // Each fault is repaired long before the next one, and 64 GPUs are spare.
    let table = table(vec![trained], 128, once, 0);
    let mut random = Seed(seed).stream("every 2,700 to 4,500 s", 0);
    let (mut at, mut drawn) = (0, Vec::new());
    while at < 200_000_000 {
        at += random.random_range(2_700_000..4_500_000);
        drawn.extend([node(at, 0, true), node(at + 1, 0, false)]);
    }
    let wanted = step * 3000 * 64;
    let (mut too_short, mut enough) = (0_u64, 200_000_000_u64);
    while enough - too_short > 1000 {
        let middle = u64::midpoint(too_short, enough);
        let done = month(&table, &drawn, Milliseconds(middle), Seed(seed)).useful;
        if done < wanted { too_short = middle } else { enough = middle }
    }
    enough as f64 / 60_000.0
}

/// Clockwork's benchmark as published by the vendor: 3,000 steps on 64 H200, a fault every 2,700 to
/// 4,500 s, and checkpoints every 100 steps. It takes 818 min with restart from checkpoints, 405
/// with migration, and 930 with TorchFT (not modelled). The time without faults, about 400 min, is
/// an input.
#[test]
fn fitted_restart_and_migration_match_published_minutes() {
    const STEP: f64 = 400.0 * 60.0 / 3000.0;
    let mean = |policy: Policy, once: &[(Cause, i128)]| {
        (0..10).map(|seed| minutes_of(STEP, policy, once, seed)).sum::<f64>() / 10.0
    };
    let half_a_step = (STEP / 2.0 * SECOND as f64) as i128;
    let again = [(Cause::DoneAgain, half_a_step)];
    let (mut low, mut high) = (0.0, 45.0);
    while high - low > 0.1 {
        let minutes = f64::midpoint(low, high);
        let load = (minutes * 60.0 * SECOND as f64) as i128;
        let took = mean(Policy::restart(100, load, 0), &again);
        if took < 818.0 { low = minutes } else { high = minutes }
    }
    println!("a restart of {high:.1} min fits 818 min");
    // The range that AWS publishes for restarts from checkpoints, which was not used for fitting.
    assert!((15.0..30.0).contains(&high), "{high} min");
    // Migration repeats only the current step. Its duration is not fitted. Another vendor (AWS)
    // publishes less than two minutes for recoveries without a checkpoint, which serves as the
    // maximum.
    let load = (high * 60.0 * SECOND as f64) as i128;
    for takes in [0, 120 * SECOND] {
        let policy = Policy { answer: Answer::Migrate { takes }, ..Policy::restart(100, load, 0) };
        let migrated = mean(policy, &again);
        println!("moving in {} s: {migrated:.1} min, published 405", takes / SECOND);
        assert!((migrated / 405.0 - 1.0).abs() < 0.1, "{migrated} min");
    }
}

fn load(fabric: &str, text: &str) -> Scenario {
    let read = &mut |name: &str| {
        Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() })
    };
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    scenario.unwrap_or_else(|| panic!("{mistakes:?}"))
}

/// Runs four steps with failures of these nodes, each at a time in picoseconds.
fn whole(fabric: &str, faults: &[(usize, u64)]) -> Outcome {
    let faults: Vec<String> =
        faults.iter().map(|(node, at)| format!("{{part: n{node}, at: {at}ps}}")).collect();
    let text = format!(
        "name: whole\non: {{fabric: f.yaml}}\ntrain: [{{job: job, steps: 4}}]\nfaults: [{}]\n",
        faults.join(", ")
    );
    lightloom_emulator::emulate(&load(fabric, &text), 1, &mut ()).unwrap()
}

fn length(outcome: &Outcome, step: usize) -> f64 {
    outcome.steps.of_jobs()[step].took().unwrap().as_secs_f64()
}

struct OutRuns<'a> {
    fabric: &'a str,
    made: BTreeMap<Vec<usize>, Outcome>,
}

impl OutRuns<'_> {
    fn of(&mut self, out: &[usize]) -> &Outcome {
        let mut key = out.to_vec();
        key.sort_unstable();
        let faults: Vec<(usize, u64)> = key.iter().map(|node| (*node, 0)).collect();
        self.made.entry(key).or_insert_with(|| whole(self.fabric, &faults))
    }
}

/// Returns the seconds that `changes` cost the job of `fabric`, the number of failures, and how
/// many of them hit while another node was out. Every failure is run in full, with its own node and
/// instant and with the nodes that are already out. The slowdown counts until the repair.
fn cost_of_whole_runs(
    runs: &mut OutRuns<'_>,
    drawn: &[PartChange],
    span: Milliseconds,
) -> (f64, usize, usize) {
    let (mut out, mut cost, mut failures, mut pairs) = (Vec::<usize>::new(), 0.0, 0, 0);
    let mut instants = Seed(77).stream("instants", drawn.len() as u64);
    let calm = length(runs.of(&[]), 3);
    for (at, change) in drawn.iter().enumerate() {
        if change.fails {
            failures += 1;
            pairs += usize::from(!out.is_empty());
            let before = runs.of(&out);
            let (step, before) = (&before.steps.of_jobs()[1], length(before, 3));
            let share: f64 = instants.random();
            let instant = step.start.0 + (step.took().unwrap().0 as f64 * share) as u64;
            let mut faults: Vec<(usize, u64)> = out.iter().map(|node| (*node, 0)).collect();
            faults.push((change.place, instant));
            let with = whole(runs.fabric, &faults);
            assert!(!with.never_ended, "{faults:?}");
            let losses = &with.faults.last().unwrap().losses;
            let late = losses.first().map_or(0.0, |loss| loss.late as f64 / 1e12);
            let slower = length(&with, 3) - before;
            // Steps after the restarted one take as long as the last one.
            let is_spilled = with.steps.of_jobs()[2].restarts > 0;
            cost += late - slower * if is_spilled { 1.0 } else { 2.0 };
            out.push(change.place);
        } else {
            out.retain(|node| *node != change.place);
        }
        let until = drawn.get(at + 1).map_or(span, |next| next.at);
        let lasts = (until.get() - change.at.get()) as f64 / 1e3;
        let step = length(runs.of(&out), 3);
        cost += lasts * (step - calm) / step;
    }
    (cost, failures, pairs)
}

/// Compares months drawn from the table of losses with the same months in which every failure is
/// run in full. The table has runs with up to `most_out` nodes out. Returns the number of failures
/// with another node out.
fn agree(
    fabric: &str,
    samples: u32,
    (seeds, most_out): (std::ops::Range<u64>, usize),
    rates: &str,
) -> usize {
    let text = format!(
        "name: months\non: {{fabric: f.yaml}}\nspan: 30d\nsamples: {samples}\nfailures: {{node: {rates}}}\n\
         train: [{{job: job}}]\n"
    );
    let prepared = Prepared::of(&load(fabric, &text), &no_daemon).unwrap().unwrap();
    let mut table = prepared.table();
    for case in prepared.cases().into_iter().filter(|case| case.out <= most_out) {
        let run = prepared.run(&case, &no_daemon).unwrap();
        table.add(&case, run.run.place, run.sample);
    }
    let (span, gpus) = (prepared.span().length, table.gpus_of_jobs() as f64);
    let (mut drawn, mut run, mut failures, mut pairs) = (0.0, 0.0, 0, 0);
    let mut runs = OutRuns { fabric, made: BTreeMap::new() };
    for seed in seeds {
        let changes = prepared.changes(Seed(seed)).unwrap();
        let month = month(&table, &changes, span, Seed(seed));
        assert_eq!(month.waits, 0, "seed {seed}: no job waits for nodes, which no run covers");
        let of_runs = |cause: &Cause| !matches!(cause, Cause::UnderRepair | Cause::IdleSpares);
        let sum: i128 = month.lost.iter().filter(|(cause, _)| of_runs(cause)).map(|(_, t)| t).sum();
        drawn += sum as f64 / 1e12 / gpus;
        let (cost, count, beside) = cost_of_whole_runs(&mut runs, &changes, span);
        run += cost;
        failures += count;
        pairs += beside;
    }
    let off = drawn / run - 1.0;
    println!(
        "{failures} failures, {pairs} with another node out: {drawn:.3} s by the table, {run:.3} s run whole, {:+.2} %",
        off * 100.0
    );
    assert!(failures > 10 && run != 0.0);
    assert!(off.abs() < 0.03, "{drawn} s by the table, {run} s run whole");
    pairs
}

/// Two racks, so that a moved group uses other paths than before.
const SMALL: &str = "
kind: fabric
version: 2
name: small
hbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}
dcn: {fat_tree: {nodes_per_tor: 4}}
jobs: [{name: job, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, dp: 2, tokens: 8192}}}]
";

fn mistakes(more: &str) -> Vec<String> {
    let read = &mut |name: &str| match name {
        "f.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: SMALL.as_bytes().to_vec() }),
        "trace.json" => {
            let bytes = include_bytes!("../../../topologies/traces/synthetic.json").to_vec();
            Ok(NamedFile { name: name.to_owned(), bytes })
        }
        _ => Err("no such file".to_owned()),
    };
    let text = format!("name: months\non: {{fabric: f.yaml}}\n{more}");
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    assert!(mistakes.iter().all(|mistake| mistake.place.is_some()), "{mistakes:?}");
    assert!(scenario.is_none() != mistakes.is_empty(), "{mistakes:?}");
    mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn rejects_impossible_spans_with_their_location() {
    const RATES: &str = "failures: {node: {mtbf: 1000h, repair: 6h}}\n";
    const TRAIN: &str = "train: [{job: job}]\n";
    assert_eq!(mistakes(&format!("span: 90d\n{RATES}{TRAIN}")), Vec::<String>::new());
    let ring = "collectives: [{all_reduce: {name: tensor, bytes: 1MiB}}]\n";
    let writes = "train: [{job: job, restart: {checkpoint: {every: 10, load: 1s, write: 1s}}}]\n";
    for (more, wanted) in [
        (format!("span: 90d\n{RATES}{ring}"), "no training job"),
        (format!("span: 90d\n{TRAIN}"), "this span requires `failures`"),
        (format!("span: 90\n{RATES}{TRAIN}"), "expected a long duration"),
        (format!("span: 0d\n{RATES}{TRAIN}"), "a length of 0"),
        (format!("span: 90d\n{TRAIN}failures: {{}}\n"), "a trace or a rate is required"),
        (
            format!("span: 999d\n{TRAIN}failures: {{trace: trace.json}}\n"),
            "exceeds the length of the trace",
        ),
        (
            format!("span: 9d\n{TRAIN}failures: {{optical_switch: {{mtbf: 1h, repair: 1h}}}}\n"),
            "the fabric does not have any optical switch",
        ),
        (format!("span: 9d\n{TRAIN}{RATES}gpu_hour: 3 EUR\n"), "is not the cost of a GPU-hour"),
        (format!("span: 9d\n{TRAIN}{RATES}expect: [gpus_lost == 0]\n"), "no effect together"),
        (format!("span: 9d\n{TRAIN}{RATES}faults: [{{part: n1, at: 1s}}]\n"), "no effect together"),
        (format!("span: 9d\n{RATES}train: [{{job: job, steps: 3}}]\n"), "no effect together"),
        (format!("{TRAIN}{RATES}"), "this requires `span`"),
        (writes.to_owned(), "this requires `span`"),
    ] {
        let found = mistakes(&more);
        assert!(found.iter().any(|mistake| mistake.contains(wanted)), "{more}{found:?}");
    }
}

#[test]
fn bill_adds_up_and_names_the_most_valuable_change() {
    let text = "name: months\non: {fabric: f.yaml}\nspan: 90d\nsamples: 3\ngpu_hour: 2.5 USD\n\
                failures: {node: {mtbf: 1000h, repair: 6h, source: ours}}\n\
                train: [{job: job, restart: {checkpoint: {every: 1000, load: 30s, write: 2s}}}]\n";
    let prepared = Prepared::of(&load(SMALL, text), &no_daemon).unwrap().unwrap();
    let run_cases = |prepared: &Prepared| {
        prepared.cases().iter().map(|case| prepared.run(case, &no_daemon)).collect()
    };
    let seeds = "0..9".parse().unwrap();
    let result = months(&prepared, seeds, &no_daemon, &run_cases).unwrap();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b.abs().max(1.0);
    let sum: f64 = result.bill.iter().map(|row| row.gpu_hours.mean).sum();
    assert!(near(sum, result.lost_gpu_hours.mean), "{sum} {:?}", result.lost_gpu_hours);
    assert!(near(result.lost_usd.unwrap(), 2.5 * sum));
    assert_eq!(result.capacity_gpu_hours, 32.0 * 90.0 * 24.0);
    assert_eq!(result.failures[0].source, "ours");
    let changes: Vec<Change> = result.alternatives.iter().map(|one| one.change).collect();
    for wanted in [
        Change::DetectionHalved,
        Change::OneSpareMore,
        Change::OneSpareFewer,
        Change::CheckpointAtOptimum,
        Change::LoadHalved,
        Change::RepairHalved,
    ] {
        assert!(changes.contains(&wanted), "{wanted:?}: {changes:?}");
    }
    // One node of four is nearly always idle.
    assert_eq!(result.saves_most, Some(Change::OneSpareFewer));
    let saved = result.alternatives.iter().map(|one| one.saves_gpu_hours);
    assert!(saved.rev().is_sorted(), "{:?}", result.alternatives);
    let again = months(&prepared, seeds, &no_daemon, &run_cases).unwrap();
    assert_eq!(result, again, "one seed, one result");
}

#[test]
fn sampled_months_agree_with_full_runs() {
    agree(SMALL, 16, (0..6, 1), "{mtbf: 1000h, repair: 6h}");
}

#[test]
#[ignore = "runs 150 steps of 64 GPUs: nightly"]
fn twenty_months_of_64_gpus_agree_with_full_runs() {
    let fabric = include_str!("../../../topologies/job-64-circuits.yaml");
    let fabric = fabric.replace("name: pretrain", "name: job");
    agree(&fabric, 36, (0..20, 1), "{mtbf: 10000h, repair: 24h}");
}

#[test]
#[ignore = "runs 250 failures of 64 nodes whole: nightly"]
fn fifty_months_of_64_nodes_agree_with_full_runs() {
    let fabric =
        SMALL.replace("nodes: 8", "nodes: 68").replace("nodes_per_tor: 4", "nodes_per_tor: 17");
    let fabric = fabric.replace("gpus: 16, tp: 8", "gpus: 256, tp: 16");
    let fabric = fabric.replace("dp: 2", "pp: 2, dp: 8, micro_batches: 2");
    let pairs = agree(&fabric, 68, (0..50, 1), "{mtbf: 10000h, repair: 24h}");
    assert!(pairs > 20, "{pairs} failures with another node out");
}
