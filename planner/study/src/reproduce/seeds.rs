// SPDX-License-Identifier: Apache-2.0
//! Numeric claims that a simulated step can be compared with, from abstracts on reinforcement
//! learning, long contexts and serving. docs/validation-not-computed.csv lists the others.

use super::claims::{Claim, Label, Section, Unit, near};
use super::why::Why;

/// OrchestrRL (arXiv 2601.01209, second version).
pub const ORCHESTRRL: &str =
    "OrchestrRL: up to 1.42 times the throughput of static baselines on 64 H800";
/// StreamRL (arXiv 2504.15930).
pub const STREAMRL: &str = "StreamRL: up to 2.66 times the throughput of existing systems";
/// Step-3 (arXiv 2507.19427).
pub const STEP3: &str = "Step-3: 4,039 tokens per second and GPU at 50 ms per token";

pub fn seeds(whys: &[Why]) -> Vec<Claim> {
    let mut section =
        Section::new("Reinforcement learning and serving, as in the abstracts", Label::Read);
    let computed = [
        (ORCHESTRRL, Unit::Times, near(1.42, 0.05)),
        (STREAMRL, Unit::Times, near(2.66, 0.1)),
        (STEP3, Unit::Count, near(4039.0, 202.0)),
    ];
    for (sentence, unit, published) in computed {
        let Some(why) = whys.iter().find(|why| why.sentence == Some(sentence)) else { continue };
        section.stands_for(sentence);
        section.add(&why.claim, unit, published, why.ours);
    }
    section.claims
}
