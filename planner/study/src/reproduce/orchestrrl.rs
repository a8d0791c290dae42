// SPDX-License-Identifier: Apache-2.0
//! OrchestrRL (arXiv 2601.01209): its compute half, replicas of generation that change while answers shrink.

use super::claims::{Claim, Label, Section, Unit, near};
use super::why::Why;

/// The sentence of the second version's abstract.
pub const ORCHESTRRL: &str =
    "OrchestrRL: up to 1.42 times the throughput of static baselines on 64 H800";

/// The sentence, with ours at the first choice of all that is open.
#[must_use]
pub fn orchestrrl(why: &Why) -> Vec<Claim> {
    let mut section = Section::new("Reinforcement learning, as the abstract has it", Label::Read);
    section.stands_for(ORCHESTRRL);
    section.add(&why.claim, Unit::Times, near(1.42, 0.05), why.ours);
    section.claims
}
