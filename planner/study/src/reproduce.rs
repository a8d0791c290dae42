// SPDX-License-Identifier: Apache-2.0
//! Recomputes published claims and compares our values with the published ones.

mod claims;
mod infinitehbd;
mod opus;
mod rfabric;
mod seeds;
mod sentences;
mod why;

pub use claims::{Claim, Label, Published, Unit, Verdict};
pub use infinitehbd::{Inputs, MFU, StudyError, infinitehbd, why as why_infinitehbd};
pub use opus::{PublishedStep, opus};
pub use rfabric::{rfabric, why as why_rfabric};
pub use seeds::{ORCHESTRRL, STEP3, STREAMRL, seeds};
pub use sentences::{Sentence, SentenceVerdict, sentence_of, sentences, summary};
pub use why::{
    Assumption, Departure, Outcome, PublishedRange, Why, assumption, combinations, explain,
};
