// SPDX-License-Identifier: Apache-2.0
//! OrchestrRL's gain (arXiv 2601.01209, second version, abstract): replicas that change beside static ones, over what the abstract
//! leaves open.
//!
//! Read: 64 H800, up to 1.42 times the throughput of static baselines; in a reading note of the first version, Qwen2.5 of 14B and 32B,
//! one step off, answers of OpenR1. How many GPUs generate, how many samples a step has, how long answers are, how the baseline deals them
//! out and what software adds is ours, and was fixed before the study was run. Samples of a step are 8 to 16 answers to each of 64 to
//! 512 prompts, as examples of public RL software have them (recalled).

use lightloom_study::reproduce::{ORCHESTRRL, PublishedRange, Why, assumption, explain};
use lightloom_training::cards;
use lightloom_training::reinforcement::{ReinforcementJob, TrainingLoop, Way};
use lightloom_training::rollout::Lengths;
use lightloom_units::seed::Seed;

const MODELS: [(&str, &str); 2] = [("qwen2.5-14b", "Qwen2.5-14B"), ("qwen2.5-32b", "Qwen2.5-32B")];
const SPLITS: [([u32; 2], &str); 3] =
    [([32, 32], "32 of 64"), ([48, 16], "48 of 64"), ([40, 24], "40 of 64")];
const SAMPLES: [(u32, &str); 3] = [(2048, "2,048"), (512, "512"), (8192, "8,192")];
const ANSWERS: [((f64, f64), &str); 3] = [
    ((4096.0, 1.0), "4,096 tokens in the mean, sigma 1"),
    ((2048.0, 1.0), "2,048 in the mean, sigma 1"),
    ((8192.0, 0.7), "8,192 in the mean, sigma 0.7"),
];
const BASELINES: [(Way, &str); 2] =
    [(Way::FixedEven, "the best size, dealt out"), (Way::Fixed, "the best size, shared queue")];
const HOSTS: [(f64, &str); 2] = [(0.0, "nothing"), (0.005, "5 ms a decode step")];

/// Throughput with replicas that change ÷ that of the best of one size.
pub(crate) fn why_orchestrrl() -> Why {
    let mut known = std::collections::BTreeMap::new();
    explain(
        "OrchestrRL: throughput with replicas that change ÷ static ones, at most",
        Some(ORCHESTRRL),
        PublishedRange::times(1.37, 1.47),
        vec![
            assumption("the model", &MODELS),
            assumption("GPUs that generate", &SPLITS),
            assumption("samples of a step", &SAMPLES),
            assumption("answers", &ANSWERS),
            assumption("software adds", &HOSTS),
            assumption("the baseline", &BASELINES),
        ],
        |choice| {
            let (setting, baseline) = (choice[..5].to_vec(), BASELINES[choice[5]].0);
            let rates = known.entry(setting).or_insert_with_key(|setting| throughputs(setting));
            let [even, shared, adaptive] = rates.unwrap_or([f64::NAN; 3]);
            adaptive / if baseline == Way::FixedEven { even } else { shared }
        },
    )
}

/// Tokens a second: dealt out, shared, adaptive.
fn throughputs(choice: &[usize]) -> Option<[f64; 3]> {
    let card = cards::accelerator("h800").ok()?;
    let (mean, sigma) = ANSWERS[choice[3]].0;
    let job = ReinforcementJob {
        model: cards::model(MODELS[choice[0]].0).ok()?,
        network: card.network(),
        card,
        gpus: SPLITS[choice[1]].0,
        samples: SAMPLES[choice[2]].0,
        prompt: 512,
        lengths: Lengths { mean, sigma, most: 16_384 },
        forward_passes: 2,
        training_loop: TrainingLoop::OneStepOff,
        batch: 256,
        host_seconds: HOSTS[choice[4]].0,
        change_seconds: 1.0,
        seed: Seed::USUAL,
    };
    let report = job.report().ok()?;
    let rate = |way| report.steps.iter().find(|step| step.way == way);
    let [even, shared, adaptive] = [Way::FixedEven, Way::Fixed, Way::Adaptive].map(rate);
    Some([even?.tokens_per_second, shared?.tokens_per_second, adaptive?.tokens_per_second])
}
