// SPDX-License-Identifier: Apache-2.0
//! Counts claims as a reader would, with each published sentence once over all cases that it allows.

use std::fmt;

use serde::Serialize;

use super::claims::{Claim, Verdict};
use super::why::Why;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SentenceVerdict {
    Reproduced,
    /// Some cases agree, and the range of all cases excludes "no effect".
    InPart,
    Contradicted,
    /// The range includes "no effect", so the result depends on unstated assumptions.
    Undetermined,
    /// No verdict, because an input is missing.
    NotComputed,
}

impl SentenceVerdict {
    pub const ALL: [Self; 5] =
        [Self::Reproduced, Self::InPart, Self::Contradicted, Self::Undetermined, Self::NotComputed];

    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Reproduced => "all cases that the paper leaves open agree with the sentence",
            Self::InPart => {
                "some cases agree, and the range of all cases does not contain “no effect”"
            }
            Self::Contradicted => {
                "no case agrees, and the range of all cases contains neither the published figure \
                 nor “no effect”"
            }
            Self::Undetermined => {
                "the result depends on cases that the paper leaves open: not all agree, and their \
                 range contains “no effect” (a ratio of 1, a change of 0 %), or none agrees, but \
                 their range contains the published figure"
            }
            Self::NotComputed => {
                "no verdict: `--faults FILE` was not given, or the price file lacks a part"
            }
        }
    }
}

impl fmt::Display for SentenceVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "in part",
            Self::Contradicted => "contradicted",
            Self::Undetermined => "undetermined",
            Self::NotComputed => "not computed",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sentence {
    pub sentence: String,
    pub verdict: SentenceVerdict,
    /// Number of combinations of open parameters, or of rows.
    pub cases: usize,
    pub agree: usize,
    /// Minimum and maximum, if all cases have the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'static str>,
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sentence, verdict, cases, agree, range, unit } = self;
        let unit = unit.unwrap_or("");
        write!(f, "{verdict}: {sentence}")?;
        match (range, cases) {
            (Some([least, most]), _) => {
                write!(
                    f,
                    " ({least:.2}{unit} to {most:.2}{unit} in {cases} cases, {agree} as published)"
                )
            }
            (None, 0) => Ok(()),
            (None, 1) => f.write_str(" (1 case)"),
            (None, _) => write!(f, " ({agree} of {cases} cases)"),
        }
    }
}

/// Returns the sentences in the order of the claims and then of `whys`, which vary the open parameters.
pub fn sentences(claims: &[Claim], whys: &[Why]) -> Vec<Sentence> {
    let mut names: Vec<&'static str> = Vec::new();
    let of_claims = claims.iter().filter_map(|claim| claim.sentence);
    for sentence in of_claims.chain(whys.iter().filter_map(|why| why.sentence)) {
        if !names.contains(&sentence) {
            names.push(sentence);
        }
    }
    let sentences = names.into_iter().map(|name| {
        let why = whys.iter().find(|why| why.sentence == Some(name));
        why.map_or_else(|| of_rows(name, claims), |why| sentence_of(name, why))
    });
    sentences.collect()
}

fn of_rows(name: &'static str, claims: &[Claim]) -> Sentence {
    let rows = claims.iter().filter(|claim| claim.sentence == Some(name));
    let [agree, differ] = [Verdict::Reproduced, Verdict::Differs]
        .map(|verdict| rows.clone().filter(|claim| claim.verdict == verdict).count());
    let verdict = match (agree, differ) {
        (0, 0) => SentenceVerdict::NotComputed,
        (0, _) => SentenceVerdict::Contradicted,
        (_, 0) if agree == rows.count() => SentenceVerdict::Reproduced,
        _ => SentenceVerdict::InPart,
    };
    let sentence = name.to_owned();
    Sentence { sentence, verdict, cases: agree + differ, agree, range: None, unit: None }
}

pub fn sentence_of(name: &str, why: &Why) -> Sentence {
    let Why { published, least, most, within, combinations, .. } = *why;
    let has_no_effect = published.no_effect.is_some_and(|none| (least..=most).contains(&none));
    let spans = least <= published.high && published.low <= most;
    let verdict = match within {
        _ if combinations == 0 => SentenceVerdict::NotComputed,
        _ if within == combinations => SentenceVerdict::Reproduced,
        _ if has_no_effect => SentenceVerdict::Undetermined,
        0 if spans => SentenceVerdict::Undetermined,
        0 => SentenceVerdict::Contradicted,
        _ => SentenceVerdict::InPart,
    };
    let range = (combinations > 0).then_some([least, most]);
    let (sentence, unit) = (name.to_owned(), range.map(|_| published.unit));
    Sentence { sentence, verdict, cases: combinations, agree: within, range, unit }
}

pub fn summary(sentences: &[Sentence]) -> String {
    let mut counts = Vec::new();
    for verdict in SentenceVerdict::ALL {
        let count = sentences.iter().filter(|sentence| sentence.verdict == verdict).count();
        counts.extend((count > 0).then(|| format!("{count} {verdict}")));
    }
    let s = if sentences.len() == 1 { "" } else { "s" };
    let colon = if counts.is_empty() { "" } else { ": " };
    format!("{} published sentence{s}{colon}{}", sentences.len(), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::claims::{Label, Section, Unit, near};
    use super::super::why::{Assumption, PublishedRange, explain};
    use super::*;

    fn of_figures(figures: [f64; 3], no_effect: Option<f64>) -> Sentence {
        let choices = ["a", "b", "c"].map(str::to_owned).into();
        let open = vec![Assumption { about: "x", choices }];
        let published = PublishedRange { no_effect, ..PublishedRange::times(2.0, 3.0) };
        sentence_of("t", &explain("t", Some("t"), published, open, |at| figures[at[0]]))
    }

    /// Regression test: a range of 10.45 to 210.94 times without an agreeing case was reported as undetermined.
    #[test]
    fn verdict_follows_from_the_range_over_all_cases() {
        let verdict_of = |figures, no_effect| of_figures(figures, no_effect).verdict;
        assert_eq!(verdict_of([2.1, 2.5, 3.0], Some(1.0)), SentenceVerdict::Reproduced);
        assert_eq!(verdict_of([2.1, 4.0, 1.5], Some(1.0)), SentenceVerdict::InPart);
        assert_eq!(verdict_of([2.1, 0.9, 1.5], Some(1.0)), SentenceVerdict::Undetermined);
        assert_eq!(verdict_of([0.9, 1.9, 1.5], Some(1.0)), SentenceVerdict::Undetermined);
        assert_eq!(verdict_of([2.1, 0.9, 1.5], None), SentenceVerdict::InPart);
        assert_eq!(verdict_of([1.9, 1.5, 1.7], Some(1.0)), SentenceVerdict::Contradicted);
        assert_eq!(verdict_of([1.9, 3.5, 1.7], Some(1.0)), SentenceVerdict::Undetermined);
        assert_eq!(verdict_of([f64::NAN; 3], None), SentenceVerdict::NotComputed);
        let shown = of_figures([1.9, 1.5, 1.7], Some(1.0)).to_string();
        assert_eq!(shown, "contradicted: t (1.50× to 1.90× in 3 cases, 0 as published)");
    }

    /// Regression test: without the trace, a sentence was reported as impossible to compute.
    #[test]
    fn sentence_that_needs_the_trace_has_no_verdict_without_it() {
        let mut section = Section::new("s", Label::Read);
        section.stands_for("t");
        section.add_from_faults("c", Unit::Times, near(1.0, 0.1), None);
        let sentences = sentences(&section.claims, &[]);
        assert_eq!(sentences[0].to_string(), "not computed: t");
        let line = "1 published sentence: 1 not computed";
        assert_eq!(summary(&sentences), line);
    }
}
