// SPDX-License-Identifier: Apache-2.0
//! What a claim is, and when it counts as reproduced.

use std::fmt;

use serde::Serialize;

/// How sure it is that a value was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Read in a public source.
    Read,
    /// A statement in words, read in a public source; the figures that count as agreeing are ours.
    ReadBandOurs,
    /// Computed before by others from the authors' public fault trace.
    Trace,
    /// Recalled from the paper, and reproduced by an independent calculation before.
    RecalledReproduced,
    /// Not the paper's: an earlier derivation or simulation of our own, by another program.
    Derived,
}

impl Label {
    /// Every kind, the surest first.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::ReadBandOurs, Self::Trace, Self::RecalledReproduced, Self::Derived];

    /// Whether it is shown to readers: it was published, or rests on what is public. Others are targets of tests.
    #[must_use]
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Read | Self::ReadBandOurs | Self::Trace)
    }

    /// As shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadBandOurs => "read in words, range ours",
            Self::Trace => "from the public trace",
            Self::RecalledReproduced => "recalled, reproduced",
            Self::Derived => "derived, not the paper's",
        }
    }
}

/// What a figure counts, which decides how it is shown. In JSON it is the bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A fraction, shown in percent.
    Ratio,
    /// A whole number of things.
    Count,
    /// Days of servers out of service.
    ServerDays,
    /// GPUs.
    Gpus,
    /// US dollars for each GPU.
    UsdPerGpu,
    /// US dollars for each GB/s.
    UsdPerGbytesPerS,
    /// Watts for each GPU.
    WattsPerGpu,
    /// So many times as much.
    Times,
    /// Days.
    Days,
}

impl Unit {
    /// A figure with its unit.
    #[must_use]
    pub fn show(self, figure: f64) -> String {
        match self {
            Self::Ratio => format!("{:.3} %", 100.0 * figure + 0.0),
            Self::Count | Self::Gpus => format!("{}", (figure * 1e3).round() / 1e3),
            Self::ServerDays => format!("{figure:.1}"),
            Self::UsdPerGpu | Self::UsdPerGbytesPerS => format!("${figure:.2}"),
            Self::WattsPerGpu => format!("{figure:.2} W"),
            Self::Times => format!("{figure:.2}×"),
            Self::Days => format!("{figure:.2} d"),
        }
    }
}

/// What was published, and how near is near enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "relation", rename_all = "snake_case")]
pub enum Published {
    /// A value; ours may differ by the tolerance.
    Near {
        /// The value.
        value: f64,
        /// The most that ours may differ.
        tolerance: f64,
    },
    /// Ours must not be above.
    AtMost {
        /// The bound.
        value: f64,
    },
    /// Ours must not be below.
    AtLeast {
        /// The bound.
        value: f64,
    },
}

impl Published {
    /// Whether our figure agrees.
    #[must_use]
    pub fn agrees(self, ours: f64) -> bool {
        match self {
            // Half a millionth covers the rounding of binary fractions.
            Self::Near { value, tolerance } => (ours - value).abs() <= tolerance + 5e-7,
            Self::AtMost { value } => ours <= value,
            Self::AtLeast { value } => ours >= value,
        }
    }

    /// The value or bound with its unit.
    #[must_use]
    pub fn show(self, unit: Unit) -> String {
        match self {
            Self::Near { value, .. } => unit.show(value),
            Self::AtMost { value } => format!("≤ {}", unit.show(value)),
            Self::AtLeast { value } => format!("≥ {}", unit.show(value)),
        }
    }

    /// The tolerance with its unit; empty for a bound.
    #[must_use]
    pub fn show_tolerance(self, unit: Unit) -> String {
        match self {
            Self::Near { tolerance, .. } => format!("± {}", unit.show(tolerance)),
            Self::AtMost { .. } | Self::AtLeast { .. } => String::new(),
        }
    }
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ours agrees within the tolerance.
    Reproduced,
    /// Ours does not.
    Differs,
    /// It was not computed; the note says why.
    NotComputed,
    /// It was not computed because the public fault trace was not given.
    NeedsFaults,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "DIFFERS",
            Self::NotComputed | Self::NeedsFaults => "not computed",
        })
    }
}

/// A claim and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What it belongs to.
    pub section: &'static str,
    /// What is claimed.
    pub claim: String,
    /// The published sentence that it stands for, alone or with others; `None` if no sentence that was read says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<&'static str>,
    /// How sure it is that it was published.
    pub label: Label,
    /// What its figures count.
    pub unit: Unit,
    /// The published figure.
    pub published: Published,
    /// Our figure.
    pub ours: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why it was not computed, or what to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Claim {
    /// How much of the tolerance our figure takes up; `None` for a bound, and where none is allowed or nothing was
    /// computed.
    #[must_use]
    pub fn share_of_tolerance(&self) -> Option<f64> {
        match self.published {
            Published::Near { value, tolerance } if tolerance > 0.0 => {
                Some((self.ours? - value).abs() / tolerance)
            }
            _ => None,
        }
    }
}

/// Claims of one section, as they are put together.
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

    /// What follows stands for this published sentence.
    pub(super) fn stands_for(&mut self, sentence: impl Into<Option<&'static str>>) {
        self.sentence = sentence.into();
    }

    /// Adds a claim with our figure.
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

    /// Adds a claim that is not computed, and why.
    pub(super) fn not_computed(
        &mut self,
        claim: impl Into<String>,
        unit: Unit,
        published: Published,
        why: &str,
    ) {
        let claim = self.push(claim.into(), unit, published, None, Verdict::NotComputed);
        claim.note = Some(why.to_owned());
    }

    /// Adds a claim that needs the public fault trace, which was not given.
    pub(super) fn needs_faults(
        &mut self,
        claim: impl Into<String>,
        unit: Unit,
        published: Published,
    ) {
        let claim = self.push(claim.into(), unit, published, None, Verdict::NeedsFaults);
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

/// A published value with a tolerance.
pub(super) const fn near(value: f64, tolerance: f64) -> Published {
    Published::Near { value, tolerance }
}
