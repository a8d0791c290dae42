// SPDX-License-Identifier: Apache-2.0
//! Times the search for the best mapping: `cargo bench -p lightloom-training --bench
//! training_search`.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a command of its own: it reads the clock and prints"
)]

use std::time::Instant;

use lightloom_training::architecture::architecture;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::mapping::Batch;
use lightloom_training::search::{Limits, Search};

fn main() {
    let card = cards::accelerator("h100").expect("h100 is shipped");
    let (compute, calibration) = (card.compute(), card.calibration());
    let network = architecture("khop:3").expect("khop:3 is an architecture");
    for (name, gpus) in [("llama-3.1-405b", 131_072), ("deepseek-v3", 131_072)] {
        let model = cards::model(name).expect("the model is shipped");
        let search = Search {
            model: &model,
            batch: Batch { sequences: 2048, tokens: 8192 },
            gpus,
            compute: &compute,
            network: &network,
            calibration: &calibration,
            precision: Precision::Bf16,
            expert_imbalance: 0.2,
            limits: Limits::default(),
        };
        let start = Instant::now();
        let outcome = search.run();
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{name} at {gpus} GPUs: {} mappings in {seconds:.3} s on {} threads",
            outcome.tried,
            rayon::current_num_threads()
        );
    }
}
