// SPDX-License-Identifier: Apache-2.0
//! Steps of reinforcement learning, packet by packet: compared with their closed form, the planned
//! bytes, and the same step without the fault.

use std::collections::BTreeMap;

use crate::fabric::{load, run, sum};
use lightloom_emulator::outcome::{JobStep, Outcome};
use lightloom_emulator::scenario::{self, On, RunStart, TrainStep};
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::Options;
use lightloom_training::graph::TaskWork;
use lightloom_training::reinforcement::PoolStep;
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::id::NodeId;

/// 32 GPUs that train and 64 that generate, in groups of 8 with one spare node each, below leaves
/// of four nodes.
fn fabric(rl: &str) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: 36, gpus_per_node: 4, k: 2, spare_per_ring: 1}}}}\n\
         dcn: {{leaf_spine: {{nodes_per_leaf: 4}}}}\n\
         jobs: [{{name: rl, gpus: 96, tp: 8, step: {{rl: {{model: llama-3.1-8b, trainer_gpus: 32, generation_gpus: 64, \
         tp: 8, pp: 2, samples: 64, tokens_per_sample: 1024, replica_gpus: 16, {rl}}}}}}}]\n"
    )
}

fn optical(rl: &str) -> String {
    fabric(rl).replace(
        "dcn: {leaf_spine: {nodes_per_leaf: 4}}",
        "dcn: {reconfigurable_fat_tree: {leaves: 9, gpus_per_leaf: 16, circuit_rate: 400Gbps, \
         electrical: {rate_per_leaf: 6.4Tbps, oversubscription: 4}, \
         banks: [{name: core, switches: 8, ports_per_switch: 18, ports_per_leaf: 2}], \
         timing: {control: 100us, switching: 1ms}}}",
    )
}

fn scenario(train: &str, more: &str) -> String {
    format!(
        "kind: scenario\nversion: 2\nname: rl\non: {{fabric: fabric.yaml}}\n\
         control: {{detection_delay: 5ms, planning_delay: 1ms}}\ntrain: [{{job: rl, {train}}}]\n{more}\n"
    )
}

fn the_step(outcome: &Outcome) -> &JobStep {
    &outcome.steps.of_jobs()[0]
}

fn seconds(step: &JobStep) -> f64 {
    step.took().unwrap().as_secs_f64()
}

fn planned(fabric: &str, text: &str) -> (RunStart, TrainStep) {
    let (loaded, mistakes) = load(fabric, text);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = scenario::plan(&scenario).unwrap();
    let (On::Fabric(on), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
        panic!("a fabric is planned")
    };
    let step = TrainStep::of(&scenario.train[0], on, plan).unwrap();
    (start, step)
}

fn node_of(start: &RunStart, rank: u32) -> NodeId {
    let (plan, _) = start.plan.as_deref().unwrap();
    let mut own = plan.ranks.iter().filter(|one| one.job == Some(0));
    own.find(|one| one.dp * 8 + one.tp == rank).unwrap().gpu.node
}

fn slowest(pool: &PoolStep) -> usize {
    let seconds = |at: &usize| pool.chunks[*at].iter().map(|one| one.seconds).sum::<f64>();
    (0..pool.chunks.len()).max_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap()
}

#[test]
fn fault_free_step_matches_its_closed_form_in_every_loop() {
    for (training_loop, method) in
        [("one_step_off", "broadcast"), ("synchronous", "shards"), ("streaming", "relay")]
    {
        let fabric = fabric(&format!("weight_sync: {{method: {method}, delta_share: 0.01}}"));
        let rollout = format!("rollout: {{loop: {training_loop}, prompt: 256, longest: 4096}}");
        let outcome = run(&fabric, &scenario(&rollout, ""));
        let step = the_step(&outcome);
        let closed = step.closed_form.as_secs_f64();
        println!(
            "{training_loop} {method}: {} s, closed form {closed} s, {:?}",
            seconds(step),
            step.why
        );
        assert_eq!(sum(step), step.took().unwrap().0, "{training_loop}: the causes add up to it");
        assert!(
            (seconds(step) / closed - 1.0).abs() < 0.02,
            "{training_loop}: {} {closed}",
            seconds(step)
        );
    }
}

#[test]
fn samples_arrive_completely_and_weights_follow_the_plan() {
    for sync in [
        "weight_sync: {method: relay}",
        "weight_sync: {method: broadcast, delta_share: 0.02}",
        "weight_sync: {method: shards}, tail_replica_gpus: 8",
    ] {
        let (start, step) = planned(&optical(sync), &scenario("steps: 1", ""));
        let pool = step.pool.as_ref().unwrap();
        let tasks = step.tasks();
        let (mut sent, mut samples) = (BTreeMap::<_, u64>::new(), 0);
        for (task, purpose) in tasks.graph.tasks().iter().zip(&tasks.purposes) {
            let TaskWork::Transfer { from, to, bytes } = task.work else { continue };
            // Traffic on one ring crosses no leaf.
            if from / 8 == to / 8 {
                continue;
            }
            let [from, to] = [from, to].map(|rank| pool.leaves.get(rank as usize).copied());
            match purpose {
                TaskPurpose::Samples => samples += bytes.0,
                TaskPurpose::Weights | TaskPurpose::Reshard if from != to => {
                    let phase = match purpose {
                        TaskPurpose::Weights => "weight-sync",
                        _ => "parallelism-switch",
                    };
                    *sent.entry((phase, from.unwrap(), to.unwrap())).or_default() += bytes.0;
                }
                _ => {}
            }
        }
        assert_eq!(samples, 8 * pool.tokens.iter().sum::<u64>(), "{sync}");
        let circuits = start.circuits.as_ref().unwrap();
        let mut asked = BTreeMap::new();
        for phase in &circuits.phases {
            let name =
                ["weight-sync", "parallelism-switch"].into_iter().find(|name| phase.name == *name);
            let Some(name) = name else { continue };
            for (from, to, bytes) in phase.demand.flows().filter(|(from, to, _)| from != to) {
                asked.insert((name, from.0, to.0), bytes.0);
            }
        }
        println!("{sync}: {} pairs of leaves", asked.len());
        assert!(!asked.is_empty() && asked.keys().eq(sent.keys()), "{sync}: {asked:?} {sent:?}");
        for (pair, bytes) in &asked {
            let off = sent[pair] as f64 / *bytes as f64 - 1.0;
            assert!(off.abs() < 1e-3, "{sync}: {pair:?} {bytes} {}", sent[pair]);
        }
    }
}

/// Broadcasting weights needs other circuits than sending samples. These change before the
/// gradients are exchanged, so the gradients wait for the end of generation.
#[test]
fn step_requests_circuits_for_its_weights_and_waits() {
    let slack = "slack: {weight_sync: 10ms, gradients: 10ms, train: 10ms}";
    let fabric = optical(&format!("weight_sync: {{method: broadcast, delta_share: 0.3}}, {slack}"))
        .replace("oversubscription: 4", "oversubscription: 16");
    let outcome = run(&fabric, &scenario("rollout: {prompt: 256, longest: 1024}", ""));
    let why = the_step(&outcome).why.unwrap();
    println!("{why:?}");
    assert_eq!(why.transition.0, 1_100_000_000, "control and switching");
    assert!(why.exposed.dp.0 > 0 && why.generation.0 > 0, "{why:?}");
}

/// Groups along the line send less between leaves here than groups placed by leaf, and both
/// commands choose them.
#[test]
fn run_uses_the_same_plan_as_the_plan_command() {
    let rl = "weight_sync: {method: broadcast, delta_share: 0.05}, migrated_share: 0.02, slack: {weight_sync: 10ms, train: 10ms}";
    for fabric in [optical(rl).replace("oversubscription: 4", "oversubscription: 64"), fabric(rl)] {
        let scenario = load(&fabric, &scenario("steps: 1", "")).0.unwrap();
        let start = scenario::plan(&scenario).unwrap();
        let (On::Fabric(fabric), Some((run, _))) = (&scenario.on, start.plan.as_deref()) else {
            panic!("a fabric is planned")
        };
        let options = Options { seed: scenario.seed, ..Options::default() };
        let planned = lightloom_planner::plan(fabric, &FaultSet::none(), options).unwrap();
        assert_eq!(*run, planned);
    }
}

/// A failed replica has already passed on its finished chunks. It repeats the current chunk after a
/// pass over its caches.
#[test]
fn node_fault_during_generation_costs_its_replica_one_chunk() {
    let fabric = fabric("weight_sync: {method: shards, delta_share: 0.01}");
    let train = "rollout: {prompt: 256, longest: 4096}";
    let (start, step) = planned(&fabric, &scenario(train, ""));
    let pool = step.pool.as_ref().unwrap();
    let replica = slowest(pool);
    let [first, second] = [0, 1].map(|at| &pool.chunks[replica][at]);
    let at = first.seconds + second.seconds / 2.0;
    let rank = 32 + 16 * replica as u32;
    let node = node_of(&start, rank);
    let faults = format!("faults: [{{part: {node}, at: {}us}}]", (at * 1e6) as u64);
    let outcome = run(&fabric, &scenario(train, &faults));
    let (step, fault) = (the_step(&outcome), &outcome.faults[0]);
    println!("{node} at {at} s: {:?} {fault}", step.why);
    let later = (step.end.unwrap().0 - step.end_without_faults.unwrap().0) as f64 / 1e12;
    let outage = fault.restored.unwrap().since(fault.at.unwrap()).as_secs_f64();
    let expected = second.seconds / 2.0 + outage + second.again_seconds;
    assert!((later - expected).abs() < 2e-3, "{later} s later, {expected} expected");
    assert_eq!(step.restarts, 1);
    let why = step.why.unwrap();
    assert!((why.restart.as_secs_f64() - second.seconds / 2.0).abs() < 1e-3, "{why:?}");
    assert!((why.fault.as_secs_f64() - outage).abs() < 1e-3, "{why:?}");
}

/// A node that sends or receives weights fails: data that never arrived is resent once the plan has
/// another node.
#[test]
fn resends_abandoned_weights() {
    let fabric = fabric("weight_sync: {method: shards, delta_share: 0.05}");
    let train = "rollout: {prompt: 256, longest: 1024}";
    let (start, step) = planned(&fabric, &scenario(train, ""));
    let pool = step.pool.as_ref().unwrap();
    let at = (pool.generation_seconds() * 1e6) as u64 + 1_000;
    for rank in [0, 32 + 16 * slowest(pool) as u32] {
        let faults = format!("faults: [{{part: {}, at: {at}us}}]", node_of(&start, rank));
        let outcome = run(&fabric, &scenario(train, &faults));
        let (step, fault) = (the_step(&outcome), &outcome.faults[0]);
        println!("{fault} {:?} {:?}", step.end, step.why);
        assert!(step.end > fault.restored && fault.restored.is_some(), "rank {rank}: {fault}");
        assert_eq!(sum(step), step.took().unwrap().0, "rank {rank}");
    }
}

#[test]
fn trainer_node_fault_costs_micro_batches_and_no_generation() {
    let fabric = fabric("weight_sync: {method: shards, delta_share: 0.01}");
    // Generation is short, so the step waits for training.
    let train = "rollout: {prompt: 1000, longest: 24, sigma: 0, forward_passes: 2}";
    let faults = "faults: [{part: n1, at: 300ms}]";
    let outcome = run(&fabric, &scenario(train, faults));
    let step = the_step(&outcome);
    let why = step.why.unwrap();
    println!("{why:?}");
    assert_eq!(step.restarts, 1);
    // Weights gathered before the first pass are kept.
    let kept = 0.3 - why.restart.as_secs_f64();
    assert!((0.0..=why.exposed.dp.as_secs_f64()).contains(&kept), "{why:?}");
    assert_eq!(why.generation.0, 0, "{why:?}");
}

#[test]
fn reports_missing_parts_of_a_reinforcement_learning_job() {
    let rl = fabric("migrated_share: 0.1");
    let no_places = optical("migrated_share: 0.1").replace("gpus: 96, tp: 8, step", "step");
    let training = rl.replace(
        "{rl: {model: llama-3.1-8b, trainer_gpus: 32, generation_gpus: 64, tp: 8, pp: 2, samples: 64, \
         tokens_per_sample: 1024, replica_gpus: 16, migrated_share: 0.1}}",
        "{training: {model: llama-3.1-8b, tokens: 8192}}",
    );
    let months = "span: {duration: 30d}\nfailures: {rates: {node: 1y}}";
    for (fabric, train, more, said) in [
        (&rl, "rollout: {prompt: 1024}", "", "a prompt of 1024 leaves none"),
        (&rl, "rollout: {longest: 900000}", "", ""),
        (&rl, "sequence: 128", "", "a micro-batch always contains one sample"),
        (&no_places, "steps: 1", "", "has no `tp`"),
        (&training, "rollout: {sigma: 0}", "", "does not generate samples"),
        (
            &rl.replace("replica_gpus: 16", "replica_gpus: 64")
                .replace("llama-3.1-8b", "qwen2.5-14b"),
            "steps: 1",
            "",
            "heads",
        ),
        (&rl, "restart: barrier", months, ""),
        (&rl, "restart: {checkpoint: {every: 1, load: 1s}}", "", "rather than a checkpoint"),
        (&rl.replace("samples: 64", "samples: 0"), "steps: 1", "", "0"),
    ] {
        let (loaded, mistakes) = load(fabric, &scenario(train, more));
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        println!("{train}: {all:?}");
        match said {
            "" if more.is_empty() => assert!(loaded.is_some(), "{all:?}"),
            "" => assert!(loaded.is_none(), "{all:?}"),
            said => assert!(all.iter().any(|one| one.contains(said)), "{train}: {all:?}"),
        }
    }
}
