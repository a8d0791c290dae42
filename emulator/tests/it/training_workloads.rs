// SPDX-License-Identifier: Apache-2.0
//! Workloads of other tools: Chakra traces in both directions and SimAI text, both run packet by
//! packet.
use lightloom_collective::CollectiveKind;
use lightloom_emulator::training::once;
use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_training::chakra::{export, import};
use lightloom_training::graph::{Task, TaskGraph, TaskId, TaskWork};
use lightloom_training::machine::{Cable, Domain, Machine};
use lightloom_training::simai;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};
use proptest::prelude::*;

fn machine() -> Machine {
    let link =
        |gbps| Cable { rate: BitsPerSecond::from_gbps(gbps), delay: Picoseconds::from_nanos(500) };
    Machine {
        ranks: 8,
        rings: vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]],
        domain: Domain::Cables,
        ring_link: link(3_200),
        rails: (0..4).map(|rail| vec![rail, rail + 4]).collect(),
        rail_link: link(400),
        expert_imbalance: 0.0,
    }
}

/// Returns tasks with computing on both rings, collectives on them, and transfers and gradients
/// between them.
fn graph(micros: u64, bytes: u64) -> TaskGraph {
    let mut tasks = Vec::new();
    let mut add = |after: &[u32], work: TaskWork| {
        let after = after.iter().copied().map(TaskId).collect();
        tasks.push(Task { name: format!("task {}", tasks.len()), after, work });
    };
    let took = Picoseconds::from_micros(micros);
    let size = Bytes(bytes);
    add(&[], TaskWork::Compute { rank: 0, took });
    add(&[0], TaskWork::Ring { kind: CollectiveKind::AllGather, ring: 0, bytes: size });
    for rail in 0..4 {
        add(&[1], TaskWork::Transfer { from: rail, to: rail + 4, bytes: size });
    }
    add(&[2, 3, 4, 5], TaskWork::Compute { rank: 4, took });
    add(&[6], TaskWork::Ring { kind: CollectiveKind::ReduceScatter, ring: 1, bytes: size });
    for rail in 0..4 {
        add(
            &[1, 7],
            TaskWork::Across {
                kind: CollectiveKind::AllReduce,
                ranks: vec![rail, rail + 4],
                bytes: size,
            },
        );
    }
    TaskGraph::new(tasks).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exported_step_runs_like_the_original(micros in 1u64..200, bytes in 1u64..2_000_000) {
        let (graph, machine) = (graph(micros, bytes), machine());
        let streams = export(&graph, &machine);
        let streams: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let back = import(&streams, &machine.rings).unwrap();
        let [before, after] =
            [&graph, &back].map(|graph| replay(graph, &machine, RingReuse::IdleRings, &mut ()).unwrap());
        prop_assert_eq!(before.end, after.end);
        prop_assert_eq!(before.packet_hops, after.packet_hops);
        // Writing the imported trace again gives the same bytes.
        let again = export(&back, &machine);
        let again: Vec<&[u8]> = again.iter().map(Vec::as_slice).collect();
        let twice = import(&again, &machine.rings).unwrap();
        prop_assert_eq!(twice.tasks().len(), back.tasks().len());
    }

    #[test]
    fn chakra_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = import(&[&bytes], &[]);
    }
}

/// Written by Google's protobuf for Python from Chakra's schema: metadata, a computation of 50 µs
/// with attributes and tensors, and a dependent all-reduce of 1 MiB, as laid out by ASTRA-sim's
/// generator.
const FOREIGN: &str = "070a05302e302e342208031207636f6d707574651804383242040a025b5d520b0a076e756d5f6f707348076308051214616c6c5f7265647563655f346e7075735f314d4218072a0103520e0a0969735f6370755f6f70d80100520d0a09636f6d6d5f747970654800520f0a09636f6d6d5f73697a654880804052140a0c696e766f6c7665645f64696de201030a0101";

fn foreign() -> Vec<u8> {
    let digits = FOREIGN.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn reads_and_runs_a_third_party_trace() {
    let stream = foreign();
    let machine = machine();
    let graph = import(&[&stream, &stream, &stream, &stream], &machine.rings).unwrap();
    let rings: Vec<&Task> =
        graph.tasks().iter().filter(|task| matches!(task.work, TaskWork::Ring { .. })).collect();
    assert_eq!(graph.tasks().len(), 5, "four computations and one collective");
    assert_eq!(rings.len(), 1);
    assert_eq!(rings[0].after.len(), 4);
    assert_eq!(rings[0].name, "all_reduce_4npus_1MB");
    let expected =
        TaskWork::Ring { kind: CollectiveKind::AllReduce, ring: 0, bytes: Bytes(1 << 20) };
    assert_eq!(rings[0].work, expected);
    let end = replay(&graph, &machine, RingReuse::Never, &mut ()).unwrap().end;
    assert!(end.0 > 50_000_000 && end.0 < 60_000_000, "{end}");
}

#[test]
fn locates_damage_in_a_trace() {
    let stream = foreign();
    let error = import(&[&stream[..stream.len() - 5]], &[]).unwrap_err().to_string();
    assert!(error.contains("rank 0") && error.contains("after 2 messages"), "{error}");
}

#[test]
fn runs_a_simai_workload() {
    // One layer of SimAI's own example: 556 µs of computing, then an all-reduce of 512 MiB over 8 ranks.
    let text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0\n                1\n                embedding_layer     -1 556000  ALLREDUCE   536870912      1       NONE 0        1      NONE   0      1 \n";
    let workload = simai::read(text).unwrap();
    let machine = Machine { rings: vec![(0..8).collect()], rails: Vec::new(), ..machine() };
    let timeline = replay(&workload.graph, &machine, RingReuse::IdleRings, &mut ()).unwrap();
    // A ring of 400 GB/s per direction with both directions in use: 2·7/8·512 MiB at 800 GB/s, and
    // headers.
    let exchange = 1.75 * 536_870_912.0 / 800e9;
    let ratio = (timeline.end.0 as f64 * 1e-12 - 556e-6) / exchange;
    assert!((1.0..1.05).contains(&ratio), "{ratio}");
}

/// A gradient exchange follows another one on the same links, next to a transfer and rings.
#[test]
fn distinct_exchanges_run_once_take_as_long_as_all_packets() {
    let header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 2 all_gpus: 16 checkpoints: 0 pp_comm 4000000";
    let step = "embedding_layer -1 90000 ALLREDUCE 3000000 1 NONE 0 90000 NONE 0 1\n\
                moe -1 50000 ALLTOALL_EP 1000000 50000 ALLTOALL_EP 1000000 50000 NONE 0 1\n\
                mlp -1 50000 ALLGATHER 2000000 50000 REDUCESCATTER 2000000 50000 NONE 0 1\n";
    let last = "norm -1 1 NONE 0 1 NONE 0 1 ALLGATHER 90000000 1\nexperts -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER_DP_EP 60000000 1\n";
    let text = format!("{header}\n8\n{}{last}", step.repeat(2));
    let graph = simai::read(&text).unwrap().graph;
    let groups = vec![(0..8).collect(), (8..16).collect()];
    let machine = Machine {
        ranks: 16,
        rings: (0..8).map(|ring| vec![2 * ring, 2 * ring + 1]).collect(),
        domain: Domain::Switches { groups },
        rails: vec![(0..16).collect()],
        ..machine()
    };
    let whole = replay(&graph, &machine, RingReuse::Never, &mut ()).unwrap();
    let once = once::run(&graph, &machine, &mut ()).unwrap();
    let ratio = once.end.0 as f64 / whole.end.0 as f64;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    assert!(once.reused > 0 && once.packet_hops < whole.packet_hops / 2);
}
