// SPDX-License-Identifier: Apache-2.0
//! Published claims, recomputed: claim, published value, ours, verdict.
//!
//! Each claim carries how sure it is that it was published at all ([`Label`]); only what was read
//! may be called a paper's. A claim that cannot be computed yet is listed as such, not left out.

mod claims;
mod infinitehbd;
mod mixnet;
mod opus;
mod rfabric;
mod seeds;
mod sentences;
mod why;

pub use claims::{Claim, Label, Published, Unit, Verdict};
pub use infinitehbd::{
    Inputs, MEAN_WASTE_PERCENT, MEAN_WASTE_TP, MFU, StudyError, infinitehbd, why as why_infinitehbd,
};
pub use mixnet::{mixnet, why as why_mixnet};
pub use opus::{opus, why as why_opus};
pub use rfabric::{rfabric, why as why_rfabric};
pub use seeds::{ORCHESTRRL, STEP3, STREAMRL, TOKENLAKE, TOKENLAKE_HITS, seeds};
pub use sentences::{Sentence, SentenceVerdict, sentence_of, sentences, summary};
pub use why::{Assumption, Departure, Outcome, PublishedRange, Why, assumption, explain};
