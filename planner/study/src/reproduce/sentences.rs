// SPDX-License-Identifier: Apache-2.0
//! Claims counted as a reader of the paper would: each published sentence once, and everything else by its kind.

use std::fmt;

use serde::Serialize;

use super::claims::{Claim, Label, Verdict};

/// A sentence that was read in a public source, and what came of its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// What it says.
    pub sentence: String,
    /// Rows that stand for it.
    pub rows: usize,
    /// Rows that agree.
    pub reproduced: usize,
    /// Rows that do not.
    pub differ: usize,
}

impl Sentence {
    /// What came of it: all of its rows, some, none, or nothing computed.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match (self.reproduced, self.differ) {
            (0, 0) => "not computed",
            (_, 0) if self.reproduced == self.rows => "reproduced",
            (0, _) => "DIFFERS",
            _ => "in part",
        }
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sentence, rows, reproduced, .. } = self;
        write!(f, "{}: {sentence} ({reproduced} of {rows} rows)", self.outcome())
    }
}

/// The published sentences in the order of the claims.
#[must_use]
pub fn sentences(claims: &[Claim]) -> Vec<Sentence> {
    let mut found: Vec<Sentence> = Vec::new();
    for claim in claims {
        let Some(sentence) = claim.sentence else { continue };
        let at = found.iter().position(|known| known.sentence == sentence).unwrap_or(found.len());
        if at == found.len() {
            found.push(Sentence {
                sentence: sentence.to_owned(),
                rows: 0,
                reproduced: 0,
                differ: 0,
            });
        }
        found[at].rows += 1;
        found[at].reproduced += usize::from(claim.verdict == Verdict::Reproduced);
        found[at].differ += usize::from(claim.verdict == Verdict::Differs);
    }
    found
}

/// The line that a result leads with: published sentences, then what is none.
#[must_use]
pub fn summary(claims: &[Claim]) -> String {
    let sentences = sentences(claims);
    let with = |outcome| sentences.iter().filter(|sentence| sentence.outcome() == outcome).count();
    let mut text = format!(
        "{} published sentences: {} reproduced, {} in part, {} differ, {} not computed",
        sentences.len(),
        with("reproduced"),
        with("in part"),
        with("DIFFERS"),
        with("not computed")
    );
    let mut others = Vec::new();
    for label in Label::ALL {
        let rows =
            || claims.iter().filter(|claim| claim.sentence.is_none() && claim.label == label);
        let agree = rows().filter(|claim| claim.verdict == Verdict::Reproduced).count();
        if rows().next().is_some() {
            others.push(format!("{} {} ({agree} agree)", rows().count(), label.name()));
        }
    }
    if !others.is_empty() {
        text.push_str(&format!("; rows that are no such sentence: {}", others.join(", ")));
    }
    text
}
