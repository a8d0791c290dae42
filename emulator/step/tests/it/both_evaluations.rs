// SPDX-License-Identifier: Apache-2.0
//! Compares the closed form of a step with its tasks. Both share only the layer programs.

use lightloom_collective::{CollectiveKind, Pace};
use lightloom_step::graph::{Task, TaskWork};
use lightloom_step::longest_path::play;
use lightloom_step::mapping::Mapping;
use lightloom_step::network::Group;
use lightloom_step::program::{Exchange, LayerProgram, Overlap, PassSeconds, Stretch};
use lightloom_step::schedule::Schedule;
use lightloom_step::tasks::{SimulatedRails, TaskPurpose, step_tasks};
use lightloom_step::work::{LayerWork, Passes, StepWork};
use lightloom_units::Picoseconds;
use proptest::prelude::*;

const RATE: f64 = 1e9;

fn exchange(
    purpose: TaskPurpose,
    kind: Option<CollectiveKind>,
    group: [u32; 2],
    seconds: f64,
) -> Exchange {
    let group = Group::new(group[0].into(), group[1].into());
    let (bytes, cables) = (seconds * RATE, [0.0; 2]);
    Exchange { purpose, kind, group, bytes, seconds, pace: Pace::BARE, cables }
}

fn product(
    mapping: &Mapping,
    seconds: f64,
    (exchanged, shown): (f64, f64),
    cover: Overlap,
) -> Stretch {
    let kind = Some(CollectiveKind::AllGather);
    let tensor = exchange(TaskPurpose::Tensor, kind, [mapping.tensor, 1], exchanged);
    Stretch::compute("product", seconds).covered(tensor, shown, cover)
}

fn layer(mapping: &Mapping, scale: f64, tensor: (f64, f64), context: f64) -> LayerProgram {
    let block = exchange(TaskPurpose::Context, None, [mapping.context, mapping.tensor], context);
    let core = Stretch::compute("core", scale * 0.2 / f64::from(mapping.context));
    let passed =
        Stretch { count: mapping.context - 1, ..core.covered(block, 0.0, Overlap::Before) };
    let stretches = vec![
        product(mapping, scale * 0.4, tensor, Overlap::Before),
        passed,
        core,
        product(mapping, scale * 0.3, tensor, Overlap::After),
        Stretch::compute("norms", scale * 0.1),
    ];
    LayerProgram { stretches }
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    mapping: Mapping,
    rounds: u64,
    layers: u32,
    output: f64,
    tensor: (f64, f64),
    context: f64,
    transfer: (f64, f64),
    data: (f64, f64),
    is_sharded: bool,
}

fn work(drawn: &Drawn) -> StepWork {
    let Drawn { mapping, .. } = *drawn;
    let lanes = mapping.data * mapping.context;
    let bucket = |kind| {
        let group = [lanes, mapping.tensor];
        let one = exchange(TaskPurpose::Data, Some(kind), group, drawn.data.0);
        if lanes > 1 { vec![one] } else { Vec::new() }
    };
    let own = LayerWork {
        forward: layer(&mapping, 1.0, drawn.tensor, drawn.context),
        backward: layer(&mapping, 1.0, drawn.tensor, 2.0 * drawn.context),
        weight_gradient: 1.0,
    };
    let group = [mapping.pipeline, lanes * mapping.tensor];
    let transfer = exchange(TaskPurpose::Pipeline, None, group, drawn.transfer.0);
    StepWork {
        mapping,
        micro_batches: drawn.rounds * u64::from(mapping.pipeline),
        layers: [drawn.layers * mapping.pipeline * mapping.virtual_stages, 0],
        has_balanced_ends: false,
        layer: [own, LayerWork::default()],
        output: Passes {
            forward: PassSeconds::compute(drawn.output),
            backward: PassSeconds::compute(2.0 * drawn.output),
            weight_gradient: drawn.output,
        },
        transfer: (mapping.pipeline > 1).then_some(transfer),
        transfer_shown: drawn.transfer.1,
        gather: bucket(CollectiveKind::AllGather),
        reduce: bucket(CollectiveKind::ReduceScatter),
        is_sharded: drawn.is_sharded,
        data_shown: drawn.data.1,
        optimizer_seconds: 0.5,
        jitter: 0.01,
        is_dual_pipe: false,
    }
}

fn played(work: &StepWork) -> f64 {
    let (graph, _) = step_tasks(work, SimulatedRails::First);
    let took = |task: &Task| match &task.work {
        TaskWork::Compute { took, .. } => *took,
        TaskWork::Ring { bytes, .. }
        | TaskWork::Across { bytes, .. }
        | TaskWork::Transfer { bytes, .. } => Picoseconds((bytes.0 as f64 / RATE * 1e12) as u64),
        TaskWork::Pairs { .. } => unreachable!("a step has no uneven exchanges"),
    };
    let took: Vec<Picoseconds> = graph.tasks().iter().map(took).collect();
    let ends = play(&graph, &took).into_iter().map(|(_, end)| end.0);
    ends.max().unwrap() as f64 * 1e-12
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let cut = (1u32..3, 1u32..4, 1u32..5, 1u32..3, 1u32..4, prop::bool::ANY);
    let sizes = (1u64..5, 2u32..5, 0.0f64..0.5);
    let exchanges = (0.0f64..0.5, 0.0f64..1.0, 0.0f64..0.3, 0.0f64..0.05, 0.0f64..1.0);
    let replicas = (0.0f64..1.0, 0.05f64..0.6, prop::bool::ANY);
    (cut, sizes, exchanges, replicas).prop_map(|(cut, sizes, exchanges, replicas)| {
        let (tensor, context, pipeline, data, virtual_stages, is_zero_bubble) = cut;
        let is_zero_bubble = is_zero_bubble && pipeline > 1;
        let is_plain = pipeline == 1 || is_zero_bubble;
        let (schedule, none) = (Schedule::OneForwardOneBackward, Mapping::ONE_GPU);
        let mapping = Mapping {
            tensor,
            context,
            pipeline,
            data,
            virtual_stages: if is_plain { 1 } else { virtual_stages },
            schedule: if is_zero_bubble { Schedule::ZeroBubble } else { schedule },
            ..none
        };
        Drawn {
            mapping,
            rounds: sizes.0,
            layers: sizes.1,
            // The closed forms of interleaved and zero-bubble pipelines require even stages.
            output: if mapping.virtual_stages > 1 || is_zero_bubble { 0.0 } else { sizes.2 },
            tensor: (exchanges.0, exchanges.1),
            context: exchanges.2,
            transfer: (exchanges.3, exchanges.4),
            data: (replicas.0, replicas.1),
            is_sharded: replicas.2 && pipeline == 1,
        }
    })
}

fn off(drawn: &Drawn) -> f64 {
    let work = work(drawn);
    work.time().step_seconds / played(&work) - 1.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn closed_form_matches_the_tasks(drawn in drawn()) {
        let off = off(&drawn);
        prop_assert!(off.abs() < 0.01, "{:+.2} % {:?}", 100.0 * off, drawn);
    }
}

#[test]
fn overlap_of_one_product_changes_both_evaluations_equally() {
    let mapping = Mapping { tensor: 2, pipeline: 2, data: 2, ..Mapping::ONE_GPU };
    let drawn = Drawn {
        mapping,
        rounds: 3,
        layers: 3,
        output: 0.2,
        tensor: (0.2, 0.2),
        context: 0.0,
        transfer: (0.01, 0.1),
        data: (0.1, 0.1),
        is_sharded: false,
    };
    let before = work(&drawn);
    let mut after = before.clone();
    after.layer[0].forward.stretches[0].shown = 0.7;
    let moved =
        [after.time().step_seconds - before.time().step_seconds, played(&after) - played(&before)];
    // One product of each of six layers per stage and pass, 0.1 s of 0.2 s, including the last
    // round of the pipeline.
    assert!((moved[0] - moved[1]).abs() < 1e-6, "{moved:?}");
    assert!(moved[0] > 1.0, "{moved:?}");
}
