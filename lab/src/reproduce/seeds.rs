// SPDX-License-Identifier: Apache-2.0
//! Recomputes published figures for all choices that the papers' abstracts leave open.
//!
//! - OrchestrRL (arXiv 2601.01209v2): up to 1.42 times the throughput of static baselines on 64
//!   H800. According to a reading note on version 1, it used Qwen2.5 14B and 32B, one step off, and
//!   responses of OpenR1. We chose the generating GPUs, samples per step, response lengths, the
//!   baseline's distribution and the software's overhead before the study was run. Public RL
//!   software usually generates 8 to 16 responses to each of 64 to 512 prompts (from memory).
//! - StreamRL (arXiv 2504.15930): up to 2.66 times the throughput of existing systems. According to
//!   a reading note, it used 128 H800 in 16 nodes. We chose the model, samples and lengths, and
//!   assume that existing systems alternate between generation and training on the same GPUs. Our
//!   system uses separate GPUs, with the best split and the better of two loops.
//! - Step-3 (arXiv 2507.19427): up to 4,039 tokens per second and GPU within 50 ms per token, with
//!   4K of context, FP8 and no multi-token prediction, on Hopper. Its communication library uses
//!   three micro-batches, two nodes each for attention and feed-forward parts, and 128 tokens of
//!   each attention GPU per micro-batch. We chose the number of nodes, cache bits, the meaning of
//!   4K and the software's overhead before the study was run.

use std::collections::BTreeMap;

use lightloom_study::reproduce::{
    ORCHESTRRL, PublishedRange, STEP3, STREAMRL, Why, assumption, combinations, explain,
};
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::reinforcement::{ReinforcementJob, ReinforcementReport, TrainingLoop, Way};
use lightloom_training::rollout::Lengths;
use lightloom_training::step::{AttentionFfn, Formats, Instances, Replica, Server};
use lightloom_units::seed::Seed;

const MODELS: [(&str, &str); 2] = [("qwen2.5-14b", "Qwen2.5-14B"), ("qwen2.5-32b", "Qwen2.5-32B")];
const SPLITS: [([u32; 2], &str); 3] =
    [([32, 32], "32 of 64"), ([48, 16], "48 of 64"), ([40, 24], "40 of 64")];
const SAMPLES: [(u32, &str); 3] = [(2048, "2,048"), (512, "512"), (8192, "8,192")];
const ANSWERS: [((f64, f64), &str); 3] = [
    ((4096.0, 1.0), "4,096 tokens on average, sigma 1"),
    ((2048.0, 1.0), "2,048 on average, sigma 1"),
    ((8192.0, 0.7), "8,192 on average, sigma 0.7"),
];
const HOSTS: [(f64, &str); 2] = [(0.0, "nothing"), (0.005, "5 ms per decode step")];

/// Baselines for papers that do not state how replicas are sized.
const BASELINES: [(Baseline, &str); 2] = [
    (Baseline::Even, "the best size, dealt out"),
    (Baseline::Shared, "the best size, shared queue"),
];
/// Fixed sizes that were not chosen for these samples, which would explain the published figure.
const SIZES: [(Baseline, &str); 3] = [
    (Baseline::Size(4), "TP 4 for all samples"),
    (Baseline::Size(2), "TP 2"),
    (Baseline::Size(8), "TP 8"),
];

#[derive(Clone, Copy, Debug)]
enum Baseline {
    Even,
    Shared,
    Size(u32),
}

fn why_orchestrrl() -> Vec<Why> {
    let Some(known) = reports() else { return Vec::new() };
    type Baselines = &'static [(Baseline, &'static str)];
    let claims: [(&str, Option<_>, Baselines); 2] = [
        (
            "OrchestrRL: throughput with replicas that change size ÷ with static ones, at most",
            Some(ORCHESTRRL),
            &BASELINES,
        ),
        ("the same ÷ static replicas of a size that was chosen once", None, &SIZES),
    ];
    let whys = claims.map(|(claim, sentence, baselines)| {
        let open = vec![
            assumption("the model", &MODELS),
            assumption("GPUs that generate", &SPLITS),
            assumption("samples of a step", &SAMPLES),
            assumption("answers", &ANSWERS),
            assumption("software adds", &HOSTS),
            assumption("the baseline", baselines),
        ];
        explain(claim, sentence, PublishedRange::times(1.37, 1.47), open, |choice| {
            let report = known.get(&choice[..5]).and_then(Option::as_ref);
            report.map_or(f64::NAN, |report| gain(report, baselines[choice[5]].0))
        })
    });
    whys.into()
}

pub(crate) fn why_seeds() -> Vec<Why> {
    let mut all = why_orchestrrl();
    all.push(why_streamrl());
    all.extend(why_step3());
    all
}

const STREAM_MODELS: [(&str, &str); 3] = [
    ("qwen2.5-32b", "Qwen2.5-32B"),
    ("qwen2.5-14b", "Qwen2.5-14B"),
    ("qwen2.5-72b", "Qwen2.5-72B"),
];
const STREAM_SAMPLES: [(u32, &str); 2] = [(2048, "2,048"), (512, "512")];
const STREAM_SPLITS: [u32; 5] = [32, 64, 80, 96, 112];
const LOOPS: [(&[TrainingLoop], &str); 2] = [
    (&[TrainingLoop::Streaming, TrainingLoop::OneStepOff], "streaming or one step off"),
    (&[TrainingLoop::Streaming], "streaming only"),
];

/// The baseline runs generation and training one after the other on all GPUs.
fn why_streamrl() -> Why {
    let open = vec![
        assumption("the model", &STREAM_MODELS),
        assumption("samples of a step", &STREAM_SAMPLES),
        assumption("answers", &ANSWERS),
        assumption("software adds", &HOSTS),
        assumption("the loop", &LOOPS),
    ];
    let claim = "StreamRL: throughput ÷ that of alternating stages on the same GPUs, at most";
    explain(claim, Some(STREAMRL), PublishedRange::times(2.56, 2.76), open, |choice| {
        let apart = STREAM_SPLITS.iter().flat_map(|generate| {
            let gpus = [*generate, 128 - generate];
            let rates = LOOPS[choice[4]].0.iter();
            rates.filter_map(move |training_loop| stream_rate(choice, gpus, *training_loop))
        });
        let best = apart.fold(0.0, f64::max);
        let in_turn = stream_rate(choice, [128, 128], TrainingLoop::Synchronous);
        in_turn.map_or(f64::NAN, |in_turn| best / in_turn)
    })
}

fn stream_rate(choice: &[usize], gpus: [u32; 2], training_loop: TrainingLoop) -> Option<f64> {
    let shared = [0, 0, 0, choice[2], choice[3]];
    let job = ReinforcementJob {
        model: cards::model(STREAM_MODELS[choice[0]].0).ok()?,
        samples: STREAM_SAMPLES[choice[1]].0,
        gpus,
        training_loop,
        ..job(&shared)?
    };
    Some(job.report_of(&[Way::Fixed]).ok()?.steps[0].tokens_per_second)
}

/// Numbers of eight-GPU nodes for attention and for feed-forward parts.
const NODES: [([u32; 2], &str); 4] = [
    ([2, 2], "two and two"),
    ([3, 2], "three and two"),
    ([1, 1], "one and one"),
    ([2, 1], "two and one"),
];
const MICRO_BATCHES: [(u32, &str); 3] = [(3, "three"), (2, "two"), (4, "four")];
const CACHES: [(f64, &str); 2] = [(1.0, "eight bits"), (2.0, "sixteen bits")];
const CONTEXTS: [(f64, &str); 2] =
    [(4096.0, "4,096 tokens on average"), (2048.0, "4,096 at the end, half of that on average")];

const KERNELS: [(bool, &str); 1] = [(true, "read memory while they compute")];

/// Each attention GPU is a separate instance; the batch is the largest within 50 ms per token.
fn why_step3() -> [Why; 2] {
    let open = vec![
        assumption("attention and feed-forward nodes", &NODES),
        assumption("micro-batches", &MICRO_BATCHES),
        assumption("caches", &CACHES),
        assumption("context", &CONTEXTS),
        assumption("software adds", &HOSTS),
    ];
    let tolerated =
        PublishedRange { low: 3837.0, high: 4241.0, no_effect: None, unit: " tokens/s" };
    let claim = "Step-3: tokens per second and GPU within 50 ms per token, at most";
    let kernels = [open.as_slice(), &[assumption("kernels", &KERNELS)]].concat();
    let ours = explain(claim, Some(STEP3), tolerated, open, |choice| {
        step3(choice, false).unwrap_or(f64::NAN)
    });
    let claim = "the same with kernels that read memory while they compute";
    let other =
        explain(claim, None, tolerated, kernels, |choice| step3(choice, true).unwrap_or(f64::NAN));
    [ours, other]
}

fn step3(choice: &[usize], reads_while_computing: bool) -> Option<f64> {
    let card = cards::accelerator("h800").ok()?;
    let model = cards::model("step-3").ok()?;
    let (compute, network, calibration) = (card.compute(), card.network(), card.calibration());
    let replica = Replica {
        model: &model,
        compute: &compute,
        network: &network,
        calibration: &calibration,
        gpus: 1,
        host_seconds: HOSTS[choice[4]].0,
    };
    let cache_value_bytes = CACHES[choice[2]].0;
    let formats = Formats { weights: Precision::Fp8, cache_value_bytes };
    let [attends, feeds] = NODES[choice[0]].0;
    let group = AttentionFfn {
        server: Server { replica, formats },
        attention: Instances { count: 8 * attends, gpus: 1 },
        feed_forward: Instances { count: feeds, gpus: 8 },
        micro_batches: MICRO_BATCHES[choice[1]].0,
        reads_while_computing,
    };
    group.most_tokens(0.05, CONTEXTS[choice[3]].0, 65_536).map(|(_, rate)| rate)
}

fn gain(report: &ReinforcementReport, baseline: Baseline) -> f64 {
    let against = match baseline {
        Baseline::Even => rate(report, Way::FixedEven),
        Baseline::Shared => rate(report, Way::Fixed),
        Baseline::Size(gpus) => {
            let at = report.replica_gpus.iter().position(|size| *size == gpus);
            let rate = at.map(|at| report.tokens_per_second_by_size[at]);
            rate.filter(|rate| *rate > 0.0).unwrap_or(f64::NAN)
        }
    };
    rate(report, Way::Adaptive) / against
}

fn rate(report: &ReinforcementReport, way: Way) -> f64 {
    let step = report.steps.iter().find(|step| step.way == way);
    step.map_or(f64::NAN, |step| step.tokens_per_second)
}

fn reports() -> Option<BTreeMap<Vec<usize>, Option<ReinforcementReport>>> {
    let sizes = [MODELS.len(), SPLITS.len(), SAMPLES.len(), ANSWERS.len(), HOSTS.len()];
    let all = combinations(&sizes);
    let jobs: Option<Vec<ReinforcementJob>> = all.iter().map(|choice| job(choice)).collect();
    let reports = lightloom_training::reinforcement::reports(&jobs?);
    Some(all.into_iter().zip(reports).collect())
}

fn job(choice: &[usize]) -> Option<ReinforcementJob> {
    let card = cards::accelerator("h800").ok()?;
    let (mean, sigma) = ANSWERS[choice[3]].0;
    Some(ReinforcementJob {
        model: cards::model(MODELS[choice[0]].0).ok()?,
        network: card.network(),
        card,
        gpus: SPLITS[choice[1]].0,
        replica_gpus: None,
        samples: SAMPLES[choice[2]].0,
        prompt: 512,
        lengths: Lengths { mean, sigma, most: 16_384 },
        forward_passes: 2,
        training_loop: TrainingLoop::OneStepOff,
        batch: 256,
        host_seconds: HOSTS[choice[4]].0,
        change_seconds: 1.0,
        death_seconds: None,
        seed: Seed::USUAL,
    })
}
