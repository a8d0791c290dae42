// SPDX-License-Identifier: Apache-2.0
//! Compares steps with published reinforcement-learning steps in `../shared/data`, which no constant is fitted to.

use lightloom_training::cards;
use lightloom_training::reinforcement::{ReinforcementJob, TrainingLoop, Way};
use lightloom_training::rollout::Lengths;
use lightloom_units::seed::Seed;
use serde::Deserialize;

use crate::serving_rows::rows;

#[derive(Deserialize)]
struct Row {
    model: String,
    gpus: u32,
    policy: String,
    max_tokens: u32,
    mean_tokens: f64,
    samples: u32,
    generation_tp: u32,
    step_s: f64,
}

impl Row {
    /// With `on`, the same GPUs generate and then train; otherwise half of them do each.
    fn seconds(&self) -> f64 {
        let card = cards::accelerator("h100").expect("a shipped accelerator");
        let (gpus, training_loop) = match &*self.policy {
            "on" => (self.gpus, TrainingLoop::Synchronous),
            _ => (self.gpus / 2, TrainingLoop::OneStepOff),
        };
        let job = ReinforcementJob {
            model: cards::model(&self.model).expect("a shipped model"),
            network: card.network(),
            card,
            gpus: [gpus; 2],
            replica_gpus: Some(self.generation_tp),
            samples: self.samples,
            prompt: 512,
            lengths: Lengths { mean: self.mean_tokens, sigma: 0.5, most: self.max_tokens },
            forward_passes: 2,
            training_loop,
            batch: 256,
            host_seconds: 0.0,
            change_seconds: 1.0,
            death_seconds: None,
            seed: Seed(1),
        };
        job.report_of(&[Way::Fixed]).expect("the model fits").steps[0].step_seconds
    }
}

#[test]
fn published_steps_take_as_long_as_the_output_says() {
    let Some(rows) = rows::<Row>("rl_measured.csv") else { return };
    for row in &rows {
        let times = row.step_s / row.seconds();
        println!("{} on {}, {}: {times:.2}", row.model, row.gpus, row.policy);
        assert!((1.15..2.65).contains(&times), "`lightloom rl` prints another range: {times}");
    }
}
