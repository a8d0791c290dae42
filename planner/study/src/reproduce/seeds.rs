// SPDX-License-Identifier: Apache-2.0
//! Numeric claims from the abstracts of systems for reinforcement learning, long contexts and
//! serving. Some can be compared with a simulated step; the others are listed with the reason why
//! not.

use super::claims::{Claim, Label, Published, Section, Unit, near};
use super::why::Why;

/// OrchestrRL (arXiv 2601.01209, second version).
pub const ORCHESTRRL: &str =
    "OrchestrRL: up to 1.42 times the throughput of static baselines on 64 H800";
/// StreamRL (arXiv 2504.15930).
pub const STREAMRL: &str = "StreamRL: up to 2.66 times the throughput of existing systems";
/// Step-3 (arXiv 2507.19427).
pub const STEP3: &str = "Step-3: 4,039 tokens a second and GPU at 50 ms a token";
/// TokenLake (arXiv 2508.17219), compared with cache-aware routing.
pub const TOKENLAKE: &str = "TokenLake: up to 2.6 times the throughput of cache-aware routing";
pub const TOKENLAKE_HITS: &str = "TokenLake: 2.0 times the hit rate of cache-aware routing";

/// Claims that are not computed: sentence, claim, published value, reason.
const NOT_COMPUTED: [(&str, &str, f64, &str); 6] = [
    (
        "StreamRL: up to 1.33 times the throughput per cost across data centres",
        "throughput per cost with generation in another data centre",
        1.33,
        "prices of both sites' cards are not in the abstract",
    ),
    (
        "RLHFuse: up to 3.7 times the throughput of existing systems",
        "throughput with stages fused by sample",
        3.7,
        "stages that share GPUs, and pipelines of two models fused into one, are not modelled",
    ),
    (
        "DSV: up to 3.02 times the throughput with full attention on 128 GPUs",
        "throughput with sparse attention whose heads differ",
        3.02,
        "the sparse heads are measured on its own models",
    ),
    (
        "DistCA: up to 1.35 times the throughput on 512 H200",
        "throughput with attention on separate servers",
        1.35,
        "samples of uneven length in one batch of training are not modelled",
    ),
    (
        "PipeWeaver: up to 97.3 % more throughput",
        "throughput with pipelines that follow each batch's modalities",
        1.973,
        "encoders and their batches are not modelled",
    ),
    (
        "TokenLake: up to 2.0 times the throughput and 2.1 times the hit rate of cache-centric disaggregation",
        "throughput against prompts that go where most of their cache is, decoded elsewhere",
        2.0,
        "a scheduler that weighs caches against load over both sides is not modelled",
    ),
];

#[must_use]
pub fn seeds(whys: &[Why]) -> Vec<Claim> {
    let mut section =
        Section::new("Reinforcement learning and serving, as in the abstracts", Label::Read);
    let computed = [
        (ORCHESTRRL, Unit::Times, near(1.42, 0.05)),
        (STREAMRL, Unit::Times, near(2.66, 0.1)),
        (STEP3, Unit::Count, near(4039.0, 202.0)),
        (TOKENLAKE, Unit::Times, near(2.6, 0.1)),
        (TOKENLAKE_HITS, Unit::Times, near(2.0, 0.1)),
    ];
    for (sentence, unit, published) in computed {
        let Some(why) = whys.iter().find(|why| why.sentence == Some(sentence)) else { continue };
        section.stands_for(sentence);
        section.add(&why.claim, unit, published, why.ours);
    }
    for (sentence, claim, value, why) in NOT_COMPUTED {
        section.stands_for(sentence);
        let unit = if value > 100.0 { Unit::Count } else { Unit::Times };
        section.not_computed(claim, unit, Published::AtMost { value }, why);
    }
    section.claims
}
