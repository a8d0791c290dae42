// SPDX-License-Identifier: Apache-2.0
//! The training step packet by packet: reuse is exact, one rail represents all, and the analytic
//! step agrees.
use lightloom_emulator::run::RunError;
use lightloom_emulator::training::packets::{self, ExcerptRun, PacketStep};
use lightloom_emulator::training::replay::{ReuseError, RingReuse, TaskTimes, replay};
use lightloom_training::architecture::architecture;
use lightloom_training::calibration::{Calibration, ContextExchange, Precision, ZeroStage};
use lightloom_training::cards;
use lightloom_training::machine::Cable;
use lightloom_training::mapping::{Batch, Mapping};
use lightloom_training::model::Model;
use lightloom_training::network::{Efficiency, Network, ScaleOutLeaf, Shape};
use lightloom_training::schedule::Schedule;
use lightloom_training::step::{Compute, Job, step_time};
use lightloom_training::tasks::{SimulatedRails, step_machine, step_tasks};
use lightloom_units::{BitsPerSecond, Picoseconds};
use proptest::prelude::*;

const RING_DELAY_NS: u64 = 200;
const RAIL_DELAY_NS: u64 = 1_000;
const PAYLOAD: f64 = 4_032.0 / 4_096.0;

fn links() -> [Cable; 2] {
    let link = |gbps, ns| Cable {
        rate: BitsPerSecond::from_gbps(gbps),
        delay: Picoseconds::from_nanos(ns),
    };
    // A GPU sends 800 GB/s into its ring, half in each direction, and 50 GB/s into its rail.
    [link(3_200, RING_DELAY_NS), link(400, RAIL_DELAY_NS)]
}

fn network() -> Network {
    Network {
        name: "ring".into(),
        shape: Shape::Ring,
        domain_gpus: u32::MAX,
        domain_rate: 800e9,
        scale_out_rate: 50e9,
        leaf: ScaleOutLeaf::NON_BLOCKING,
        cable_seconds: [0.0; 2],
    }
}

/// Returns constants without effects that packets do not model: nothing overlapped, no stragglers,
/// wires at full rate.
fn bare() -> Calibration {
    let mut calibration = cards::accelerator("h100").unwrap().calibration();
    calibration.software.sharding = ZeroStage::Replicated;
    calibration.software.data_overlap = false;
    calibration.software.layer_buckets = false;
    Calibration {
        tensor_exposed: [1.0, calibration.tensor_exposed[1]],
        expert_exposed: [1.0; 2],
        pipeline_exposed: 0.0,
        jitter_per_doubling: 0.0,
        network: Efficiency {
            library: None,
            is_stated: false,
            domain: PAYLOAD,
            scale_out: PAYLOAD,
            domain_step_seconds: RING_DELAY_NS as f64 * 1e-9,
            scale_out_step_seconds: RAIL_DELAY_NS as f64 * 1e-9,
        },
        ..calibration
    }
}

fn small_model(layers: u32) -> Model {
    let mut model = cards::model("llama-3.1-8b").unwrap();
    model.layers = layers;
    model.vocabulary = 4_096;
    model
}

fn mapping(tensor: u32, pipeline: u32, data: u32) -> Mapping {
    Mapping { tensor, pipeline, data, ..Mapping::ONE_GPU }
}

fn with_job<T>(
    model: &Model,
    mapping: Mapping,
    batch: Batch,
    look: impl FnOnce(&Job<'_>) -> T,
) -> T {
    let compute: Compute = cards::accelerator("h100").unwrap().compute();
    look(&Job {
        model,
        mapping,
        batch,
        compute: &compute,
        network: &network(),
        calibration: &bare(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    })
}

fn run(job: &Job<'_>, rails: SimulatedRails, reuse: RingReuse) -> TaskTimes {
    let (graph, _) = step_tasks(&job.work(), rails);
    let machine = step_machine(&job.work(), job.network, rails, links(), 0.0);
    replay(&graph, &machine, reuse, &mut ()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reusing_idle_ring_times_changes_no_instant(
        tensor in prop::sample::select(vec![2u32, 4, 8]),
        pipeline in 1u32..4,
        data in 1u32..3,
        micro_batches in 1u64..5,
        tokens in prop::sample::select(vec![64u64, 192]),
    ) {
        let batch = Batch { sequences: micro_batches * u64::from(data), tokens };
        with_job(&small_model(4), mapping(tensor, pipeline, data), batch, |job| {
            let packets = run(job, SimulatedRails::First, RingReuse::Never);
            let reused = run(job, SimulatedRails::First, RingReuse::IdleRings);
            assert_eq!(packets.spans, reused.spans);
            assert_eq!(packets.end, reused.end);
            assert_eq!(packets.reused, 0);
            assert!(reused.reused > 0 && reused.packet_hops < packets.packet_hops);
        });
    }
}

#[test]
fn one_simulated_rail_matches_simulating_all() {
    let batch = Batch { sequences: 8, tokens: 128 };
    with_job(&small_model(4), mapping(4, 2, 2), batch, |job| {
        let one = run(job, SimulatedRails::First, RingReuse::IdleRings);
        let all = run(job, SimulatedRails::All, RingReuse::IdleRings);
        assert_eq!(one.end, all.end);
        assert!(all.packet_hops > one.packet_hops);
    });
}

#[test]
fn analytic_step_matches_packets_on_small_cases() {
    for (tensor, pipeline, data, micro_batches, tokens) in [
        (8, 1, 1, 4, 2048),
        (4, 2, 1, 8, 1024),
        (8, 4, 1, 8, 1024),
        (4, 2, 2, 8, 1024),
        (1, 4, 1, 8, 512),
    ] {
        let batch = Batch { sequences: micro_batches * u64::from(data), tokens };
        with_job(&small_model(8), mapping(tensor, pipeline, data), batch, |job| {
            let packets =
                run(job, SimulatedRails::First, RingReuse::IdleRings).end.0 as f64 * 1e-12;
            let analytic = step_time(job).step_seconds;
            let error = analytic / packets - 1.0;
            assert!(error.abs() < 0.01, "{}: {analytic} against {packets}", job.mapping);
        });
    }
}

#[test]
fn shared_ring_is_not_reused() {
    use lightloom_collective::CollectiveKind;
    use lightloom_training::graph::{Task, TaskGraph, TaskWork};
    use lightloom_training::machine::{Domain, Machine};
    use lightloom_units::Bytes;
    let work = TaskWork::Ring { kind: CollectiveKind::AllGather, ring: 0, bytes: Bytes(1 << 20) };
    let task = |name: &str| Task { name: name.into(), after: Vec::new(), work: work.clone() };
    let graph = TaskGraph::new(vec![task("one"), task("two")]).unwrap();
    let [ring_link, rail_link] = links();
    let machine = Machine {
        ranks: 4,
        rings: vec![vec![0, 1, 2, 3]],
        domain: Domain::Cables,
        ring_link,
        rails: Vec::new(),
        rail_link,
        expert_imbalance: 0.0,
    };
    let refused = replay(&graph, &machine, RingReuse::IdleRings, &mut ()).unwrap_err();
    assert!(matches!(refused, RunError::Reuse(ReuseError::BusyRing { ring: 0, .. })));
    let shared = replay(&graph, &machine, RingReuse::Never, &mut ()).unwrap();
    let alone = TaskGraph::new(vec![task("one")]).unwrap();
    let alone = replay(&alone, &machine, RingReuse::Never, &mut ()).unwrap();
    // Together they move twice the bytes over the same cables, and each fills the other's pauses.
    let ratio = shared.end.0 as f64 / alone.end.0 as f64;
    assert!((1.5..=2.0).contains(&ratio), "{ratio}");
}

fn both(model: &str, arch: &str, layers: u32, mapping: Mapping, batch: Batch) -> PacketStep {
    excerpt(model, arch, layers, mapping, batch).step
}

fn excerpt(model: &str, arch: &str, layers: u32, mapping: Mapping, batch: Batch) -> ExcerptRun {
    let mut model = cards::model(model).unwrap();
    model.layers = layers;
    let card = cards::accelerator("h100").unwrap();
    let job = Job {
        model: &model,
        mapping,
        batch,
        compute: &card.compute(),
        network: &architecture(arch).unwrap(),
        calibration: &card.calibration(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    packets::run(&job, &mut ()).unwrap()
}

#[test]
fn expert_and_context_parallel_packets_match_the_formula() {
    let with = |tensor, context, pipeline, data, expert| Mapping {
        context,
        expert,
        ..mapping(tensor, pipeline, data)
    };
    let sequences = |sequences| Batch { sequences, tokens: 2048 };
    for (model, arch, mapping, batch) in [
        ("mixtral-8x7b", "khop:3", with(4, 1, 2, 4, 4), sequences(32)),
        ("mixtral-8x7b", "dgx", with(4, 1, 1, 2, 2), sequences(8)),
        ("mixtral-8x7b", "dgx", with(8, 1, 2, 2, 2), sequences(16)),
        ("mixtral-8x7b", "nvl:72", with(8, 1, 2, 4, 4), sequences(32)),
        ("llama-3.1-8b", "khop:3", with(8, 2, 1, 2, 1), sequences(8)),
        ("llama-3.1-8b", "dgx", with(4, 4, 1, 1, 1), sequences(4)),
        ("llama-3.1-8b", "dgx", with(4, 2, 1, 2, 1), sequences(8)),
        ("llama-3.1-8b", "nvl:72", with(4, 2, 2, 1, 1), sequences(8)),
    ] {
        let ExcerptRun { step, graph, machine, spans } = excerpt(model, arch, 4, mapping, batch);
        assert!(step.difference.abs() < 0.02, "{model} on {arch}, {mapping}: {step:?}");
        let packets = replay(&graph, &machine, RingReuse::Never, &mut ()).unwrap();
        assert_eq!(packets.spans, spans, "reuse is exact");
        assert!(packets.packet_hops > step.packet_hops);
    }
}

#[test]
fn interleaved_and_zero_bubble_packets_match_the_formula() {
    let batch = Batch { sequences: 8, tokens: 1024 };
    let plain = mapping(4, 4, 1);
    let interleaved = Mapping { virtual_stages: 2, ..plain };
    let zero = Mapping { schedule: Schedule::ZeroBubble, ..plain };
    let [plain, interleaved, zero] = [plain, interleaved, zero].map(|mapping| {
        let step = both("llama-3.1-8b", "khop:3", 16, mapping, batch);
        assert!(step.difference.abs() < 0.05, "{mapping}: {step:?}");
        step.packet_seconds
    });
    assert!(interleaved < plain && zero < plain, "{plain} {interleaved} {zero}");
}

#[test]
fn transfers_between_virtual_stages_match_the_formula() {
    // With only as many micro-batches as stages, no other work hides a transfer between model
    // chunks.
    let many = Mapping { virtual_stages: 16, micro_batch: 2, ..mapping(4, 2, 2) };
    let few = Mapping { virtual_stages: 4, ..mapping(2, 4, 1) };
    for (mapping, sequences) in [(many, 8), (few, 4)] {
        let batch = Batch { sequences, tokens: 8192 };
        let step = both("llama-3.1-8b", "dgx", 32, mapping, batch);
        assert!(step.difference.abs() < 0.02, "{mapping}: {step:?}");
    }
}

fn contexts(exchange: ContextExchange, arch: &str, tensor: u32, tokens: u64) -> PacketStep {
    let mut model = cards::model("llama-3.1-8b").unwrap();
    model.layers = 2;
    let card = cards::accelerator("h100").unwrap();
    let mut calibration = card.calibration();
    calibration.software.context_exchange = exchange;
    // Overlapped gradients would share links with CP.
    calibration.software.data_overlap = false;
    let job = Job {
        model: &model,
        mapping: Mapping { context: 4, ..mapping(tensor, 1, 1) },
        batch: Batch { sequences: 2, tokens },
        compute: &card.compute(),
        network: &architecture(arch).unwrap(),
        calibration: &calibration,
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    packets::run(&job, &mut ()).unwrap().step
}

#[test]
fn every_context_exchange_matches_the_formula() {
    for exchange in [ContextExchange::Ring, ContextExchange::AllGather, ContextExchange::Ulysses] {
        let step = contexts(exchange, "khop:3", 2, 16_384);
        assert!(step.difference.abs() < 0.02, "{exchange:?}: {step:?}");
    }
}

#[test]
fn gathers_contexts_over_domains_with_one_ring_per_interface() {
    // Two of the four ranks of a context share a domain of eight GPUs.
    let step = contexts(ContextExchange::AllGather, "dgx", 4, 8_192);
    assert!(step.difference.abs() < 0.02, "{step:?}");
}

#[test]
fn ring_carries_only_tensor_groups() {
    // TP 1 leaves the ring unused, and EP groups that span TP groups cannot be closed in it.
    for exchange in [ContextExchange::Ring, ContextExchange::AllGather, ContextExchange::Ulysses] {
        let step = contexts(exchange, "khop:3", 1, 8_192);
        assert!(step.difference.abs() < 0.025, "{exchange:?}: {step:?}");
    }
    let spanning = Mapping { expert: 8, ..mapping(4, 1, 4) };
    let batch = Batch { sequences: 8, tokens: 2048 };
    let step = both("qwen3-30b-a3b", "khop:2", 4, spanning, batch);
    assert!(step.difference.abs() < 0.01, "{step:?}");
}

/// Exchanges on shared links take longer than on idle ones, which the formula assumes.
#[test]
fn contention_is_not_part_of_the_difference() {
    let shared = Mapping { context: 4, ..mapping(4, 1, 2) };
    let batch = Batch { sequences: 8, tokens: 4096 };
    let step = both("llama-3.1-8b", "dgx", 4, shared, batch);
    assert!(step.difference.abs() < 0.02, "{step:?}");
    assert!(step.contention_seconds > 0.005 * step.packet_seconds, "{step:?}");
    let alone = both("llama-3.1-8b", "dgx", 4, mapping(4, 1, 1), batch);
    assert!(alone.contention_seconds.abs() < 0.001 * alone.packet_seconds, "{alone:?}");
}

#[test]
fn rejects_packet_mode_for_groups_inside_a_torus() {
    let model = cards::model("llama-3.1-8b").unwrap();
    let card = cards::accelerator("h100").unwrap();
    let job = Job {
        model: &model,
        mapping: Mapping { context: 2, ..mapping(8, 1, 1) },
        batch: Batch { sequences: 1, tokens: 1024 },
        compute: &card.compute(),
        network: &architecture("tpuv4").unwrap(),
        calibration: &card.calibration(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    let refusal = packets::run(&job, &mut ()).err().unwrap().to_string();
    assert!(refusal.contains("CP 2 would use those of tpuv4"), "{refusal}");
}

#[test]
fn large_job_runs_as_an_excerpt() {
    let large = Mapping { data: 64, ..mapping(32, 8, 64) };
    let batch = Batch { sequences: 1024, tokens: 1024 };
    let step = both("llama-3.1-405b", "khop:3", 16, large, batch);
    assert_eq!((step.gpus, step.replicas, step.layers), (512, 2, 16));
    assert!(step.reused > 10, "{step:?}");
    assert!(step.difference.abs() < 0.05, "{step:?}");
}

#[test]
fn rejects_packet_mode_for_a_group_larger_than_its_domain() {
    let model = cards::model("llama-3.1-8b").unwrap();
    let card = cards::accelerator("h100").unwrap();
    let job = Job {
        model: &model,
        mapping: mapping(16, 1, 1),
        batch: Batch { sequences: 1, tokens: 1024 },
        compute: &card.compute(),
        network: &architecture("dgx").unwrap(),
        calibration: &card.calibration(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    let refusal = packets::run(&job, &mut ()).err().unwrap().to_string();
    assert!(refusal.contains("TP 16 does not fit 8 GPUs of dgx"), "{refusal}");
}
