// SPDX-License-Identifier: Apache-2.0
//! Claims counted as a reader of a paper would: each published sentence once, over all cases that its wording allows.

use std::fmt;

use serde::Serialize;

use super::claims::{Claim, Verdict};
use super::why::Why;

/// What came of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SentenceVerdict {
    /// Every case comes out as published.
    Reproduced,
    /// Some cases do.
    InPart,
    /// None does, and all lie on one side of what was published.
    Contradicted,
    /// The cases reach from more than was published, or no effect at all, to less: what the paper leaves open decides.
    Undetermined,
    /// Nothing here can compute it; the note of its row says why.
    NotByOurMeans,
}

impl SentenceVerdict {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Reproduced,
        Self::InPart,
        Self::Contradicted,
        Self::Undetermined,
        Self::NotByOurMeans,
    ];
}

impl fmt::Display for SentenceVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "in part",
            Self::Contradicted => "contradicted",
            Self::Undetermined => "undetermined",
            Self::NotByOurMeans => "not by our means",
        })
    }
}

/// A sentence that was read in a public source, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sentence {
    /// What it says.
    pub sentence: String,
    /// What came of it.
    pub verdict: SentenceVerdict,
    /// Cases that were computed: combinations of what the paper leaves open, or else rows.
    pub cases: usize,
    /// Those that come out as published.
    pub agree: usize,
    /// The figures of the cases, where they are of one kind: the least and the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sentence, verdict, cases, agree, range } = self;
        write!(f, "{verdict}: {sentence}")?;
        match (range, cases) {
            (Some([least, most]), _) => {
                write!(f, " ({least:.2} to {most:.2} in {cases} cases, {agree} as published)")
            }
            (None, 0) => Ok(()),
            (None, 1) => f.write_str(" (1 case)"),
            (None, _) => write!(f, " ({agree} of {cases} cases)"),
        }
    }
}

/// The published sentences in the order of the claims; `whys` vary what their papers leave open.
#[must_use]
pub fn sentences(claims: &[Claim], whys: &[Why]) -> Vec<Sentence> {
    let mut names: Vec<&'static str> = Vec::new();
    for sentence in claims.iter().filter_map(|claim| claim.sentence) {
        if !names.contains(&sentence) {
            names.push(sentence);
        }
    }
    let of = |name: &&'static str| {
        let why = whys.iter().find(|why| why.sentence == Some(*name));
        why.map_or_else(|| of_rows(name, claims), |why| of_cases(name, why))
    };
    names.iter().map(of).collect()
}

/// A sentence without open parameters: its rows are its cases.
fn of_rows(name: &'static str, claims: &[Claim]) -> Sentence {
    let rows = || claims.iter().filter(|claim| claim.sentence == Some(name));
    let with = |verdict| rows().filter(|claim| claim.verdict == verdict).count();
    let (agree, differ) = (with(Verdict::Reproduced), with(Verdict::Differs));
    let verdict = match (agree, differ) {
        (0, 0) => SentenceVerdict::NotByOurMeans,
        (0, _) => SentenceVerdict::Contradicted,
        (_, 0) if agree == rows().count() => SentenceVerdict::Reproduced,
        _ => SentenceVerdict::InPart,
    };
    let sentence = name.to_owned();
    Sentence { sentence, verdict, cases: agree + differ, agree, range: None }
}

fn of_cases(name: &str, why: &Why) -> Sentence {
    let Why { low, high, least, most, within, combinations, no_effect, .. } = *why;
    let has_no_effect = no_effect.is_some_and(|none| (least..=most).contains(&none));
    let verdict = if combinations == 0 {
        SentenceVerdict::NotByOurMeans
    } else if within == combinations {
        SentenceVerdict::Reproduced
    } else if most < low || least > high {
        SentenceVerdict::Contradicted
    } else if has_no_effect || within == 0 {
        SentenceVerdict::Undetermined
    } else {
        SentenceVerdict::InPart
    };
    let range = (combinations > 0).then_some([least, most]);
    Sentence { sentence: name.to_owned(), verdict, cases: combinations, agree: within, range }
}

/// The line that a result leads with.
#[must_use]
pub fn summary(sentences: &[Sentence]) -> String {
    let with = |verdict| sentences.iter().filter(|sentence| sentence.verdict == verdict).count();
    let counts = SentenceVerdict::ALL.map(|verdict| (with(verdict), verdict));
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = some.map(|(count, verdict)| format!("{count} {verdict}")).collect();
    let s = if sentences.len() == 1 { "" } else { "s" };
    format!("{} published sentence{s}: {}", sentences.len(), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::why::{Assumption, explain};
    use super::*;

    fn verdict_of(figures: [f64; 3], no_effect: Option<f64>) -> SentenceVerdict {
        let choices = ["a", "b", "c"].map(str::to_owned).into();
        let open = vec![Assumption { about: "x", choices }];
        let why = explain("t", Some("t"), ((2.0, 3.0), no_effect), open, |at| figures[at[0]]);
        of_cases("t", &why).verdict
    }

    #[test]
    fn a_verdict_is_over_all_cases_and_one_operating_point_is_not_enough() {
        assert_eq!(verdict_of([2.1, 2.5, 3.0], Some(1.0)), SentenceVerdict::Reproduced);
        assert_eq!(verdict_of([2.1, 4.0, 1.5], Some(1.0)), SentenceVerdict::InPart);
        assert_eq!(verdict_of([2.1, 0.9, 1.5], Some(1.0)), SentenceVerdict::Undetermined);
        assert_eq!(verdict_of([2.1, 0.9, 1.5], None), SentenceVerdict::InPart);
        assert_eq!(verdict_of([1.9, 1.5, 1.7], None), SentenceVerdict::Contradicted);
        assert_eq!(verdict_of([1.9, 3.5, 1.7], None), SentenceVerdict::Undetermined);
        assert_eq!(verdict_of([f64::NAN; 3], None), SentenceVerdict::NotByOurMeans);
    }
}
