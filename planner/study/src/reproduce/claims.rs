// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    Read,
    /// A verbal statement read in a public source, with a range of agreement that we chose.
    ReadBandOurs,
    /// Computed earlier by others from the authors' public fault trace.
    Trace,
}

impl Label {
    pub const ALL: [Self; 3] = [Self::Read, Self::ReadBandOurs, Self::Trace];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadBandOurs => "verbal statement, our range",
            Self::Trace => "from the public trace",
        }
    }
}

/// A value and its kind, which determines the text format. JSON contains only the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Ratio,
    Count,
    ServerDays,
    Times,
    Days,
    Seconds,
}

impl Unit {
    pub fn show(self, figure: f64) -> String {
        match self {
            Self::Ratio => format!("{:.3} %", 100.0 * figure + 0.0),
            Self::Count => format!("{}", (figure * 1e3).round() / 1e3),
            Self::ServerDays => format!("{figure:.1}"),
            Self::Times => format!("{figure:.2}×"),
            Self::Days => format!("{figure:.2} d"),
            Self::Seconds => format!("{figure:.3} s"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "relation", rename_all = "snake_case")]
pub enum Published {
    Near { value: f64, tolerance: f64 },
    AtMost { value: f64 },
    AtLeast { value: f64 },
}

impl Published {
    pub fn agrees(self, ours: f64) -> bool {
        match self {
            // The tolerance of 0.5e-6 absorbs floating-point rounding.
            Self::Near { value, tolerance } => (ours - value).abs() <= tolerance + 5e-7,
            Self::AtMost { value } => ours <= value,
            Self::AtLeast { value } => ours >= value,
        }
    }

    pub fn show(self, unit: Unit) -> String {
        match self {
            Self::Near { value, .. } => unit.show(value),
            Self::AtMost { value } => format!("≤ {}", unit.show(value)),
            Self::AtLeast { value } => format!("≥ {}", unit.show(value)),
        }
    }

    pub fn show_tolerance(self, unit: Unit) -> String {
        match self {
            Self::Near { tolerance, .. } => format!("± {}", unit.show(tolerance)),
            Self::AtMost { .. } | Self::AtLeast { .. } => String::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Reproduced,
    Differs,
    /// Requires the public fault trace, which was not provided.
    NeedsFaults,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "DIFFERS",
            Self::NeedsFaults => "not computed",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    pub section: &'static str,
    pub claim: String,
    /// The published sentence behind the claim, if one was read. Several claims can share one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<&'static str>,
    pub label: Label,
    pub unit: Unit,
    pub published: Published,
    pub ours: Option<f64>,
    pub verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Claim {
    /// Our value's share of the tolerance. `None` for bounds, targets without tolerance, and claims not computed.
    pub fn share_of_tolerance(&self) -> Option<f64> {
        match self.published {
            Published::Near { value, tolerance } if tolerance > 0.0 => {
                Some((self.ours? - value).abs() / tolerance)
            }
            _ => None,
        }
    }
}

pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) label: Label,
    pub(super) claims: Vec<Claim>,
    sentence: Option<&'static str>,
}

impl Section {
    pub(super) fn new(name: &'static str, label: Label) -> Self {
        Self { name, label, claims: Vec::new(), sentence: None }
    }

    pub(super) fn stands_for(&mut self, sentence: impl Into<Option<&'static str>>) {
        self.sentence = sentence.into();
    }

    pub(super) fn add(
        &mut self,
        claim: impl Into<String>,
        unit: Unit,
        published: Published,
        ours: f64,
    ) -> &mut Claim {
        let verdict = if published.agrees(ours) { Verdict::Reproduced } else { Verdict::Differs };
        self.push(claim.into(), unit, published, Some(ours), verdict)
    }

    /// Adds a claim whose value is `None` without the public fault trace.
    pub(super) fn add_from_faults(
        &mut self,
        claim: &str,
        unit: Unit,
        published: Published,
        ours: Option<f64>,
    ) {
        if let Some(ours) = ours {
            self.add(claim, unit, published, ours);
            return;
        }
        let claim = self.push(claim.to_owned(), unit, published, None, Verdict::NeedsFaults);
        claim.note = Some("needs the public fault trace: --faults FILE".to_owned());
    }

    fn push(
        &mut self,
        claim: String,
        unit: Unit,
        published: Published,
        ours: Option<f64>,
        verdict: Verdict,
    ) -> &mut Claim {
        let (section, label, sentence) = (self.name, self.label, self.sentence);
        let note = None;
        self.claims.push(Claim {
            section,
            claim,
            sentence,
            label,
            unit,
            published,
            ours,
            verdict,
            note,
        });
        self.claims.last_mut().expect("it was just added")
    }
}

pub(super) const fn near(value: f64, tolerance: f64) -> Published {
    Published::Near { value, tolerance }
}
