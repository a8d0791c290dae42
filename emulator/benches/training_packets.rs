// SPDX-License-Identifier: Apache-2.0
//! Measures one packet-level step: `cargo bench -p lightloom-emulator --bench training_packets`.
//!
//! Llama-3.1-405B, TP 32 on rings, eight stages, 64 micro-batches of one sequence of 8,192 tokens,
//! one pipeline replica.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a command of its own: it reads the clock and prints"
)]

use std::time::Instant;

use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_training::architecture::architecture;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::machine::Cable;
use lightloom_training::mapping::{Batch, Mapping};
use lightloom_training::step::Job;
use lightloom_training::tasks::{SimulatedRails, step_machine, step_tasks};
use lightloom_units::{BitsPerSecond, Picoseconds};

fn main() {
    let model = cards::model("llama-3.1-405b").expect("the model is shipped");
    let card = cards::accelerator("h100").expect("h100 is shipped");
    let network = architecture("khop:3").expect("khop:3 is an architecture");
    let (compute, calibration) = (card.compute(), card.calibration());
    let mapping = Mapping { tensor: 32, pipeline: 8, ..Mapping::ONE_GPU };
    let job = Job {
        model: &model,
        mapping,
        batch: Batch { sequences: 64, tokens: 8192 },
        compute: &compute,
        network: &network,
        calibration: &calibration,
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    let link = |gbps, ns| Cable {
        rate: BitsPerSecond::from_gbps(gbps),
        delay: Picoseconds::from_nanos(ns),
    };
    let start = Instant::now();
    let (graph, _) = step_tasks(&job.work(), SimulatedRails::First);
    let machine = step_machine(
        &job.work(),
        job.network,
        SimulatedRails::First,
        [link(3_200, 200), link(400, 1_000)],
        0.0,
    );
    let timeline = replay(&graph, &machine, RingReuse::IdleRings, &mut ())
        .expect("the graph fits its machine");
    println!(
        "{} tasks, {} packet-hops, {} collectives reused: a step of {:.3} s in {:.2} s",
        graph.tasks().len(),
        timeline.packet_hops,
        timeline.reused,
        timeline.end.0 as f64 * 1e-12,
        start.elapsed().as_secs_f64(),
    );
}
