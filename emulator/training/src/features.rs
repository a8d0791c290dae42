// SPDX-License-Identifier: Apache-2.0
//! What training software does that decides what is launched, sent and hidden: features, each on or off.
//!
//! A version's recipe for a model on a chip says which are on: `features.csv`, from the published configurations that its
//! lines name. None has a number of its own for a model.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::Serialize;

use super::calibration::Precision;
use super::mapping::Recompute;

/// One feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Layers are launched as CUDA graphs: nothing waits for launches.
    Graphs,
    /// The products of all experts of a rank are one kernel.
    GroupedExperts,
    /// So are activation and conversion between them.
    FusedExperts,
    /// A token goes to a rank, and to a domain, once for all of its experts there (DeepEP).
    DeepEp,
    /// The same without the host waiting for the routing (HybridEP).
    HybridEp,
    /// Experts get a fixed number of tokens, and what exceeds it is dropped: the host waits for no routing.
    TokenDrop,
    /// All-to-alls of a micro-batch hide behind the computing of another.
    OverlappedDispatch,
    /// Both ends of the pipeline begin, on two copies of the weights.
    DualPipe,
    /// A token goes to at most four domains.
    NodeLimited,
}

/// Every feature and its word.
pub const FEATURES: [(Feature, &str); 9] = [
    (Feature::Graphs, "graphs"),
    (Feature::GroupedExperts, "grouped-experts"),
    (Feature::FusedExperts, "fused-experts"),
    (Feature::DeepEp, "deep-ep"),
    (Feature::HybridEp, "hybrid-ep"),
    (Feature::TokenDrop, "token-drop"),
    (Feature::OverlappedDispatch, "overlapped-dispatch"),
    (Feature::DualPipe, "dual-pipe"),
    (Feature::NodeLimited, "node-limited"),
];

/// The features that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

/// Words that name no features.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFeature {
    /// A word that names none.
    #[error("no feature is called `{word}`: write `none` or some of {}", words().join(", "))]
    Word {
        /// It.
        word: String,
    },
    /// None and others.
    #[error("`none` stands beside other words: leave out one or the others")]
    NoneAndOthers,
}

fn words() -> Vec<&'static str> {
    FEATURES.iter().map(|(_, word)| *word).collect()
}

impl Features {
    /// None.
    pub const NONE: Self = Self(0);

    /// These and `feature`.
    #[must_use]
    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u16)
    }

    /// Whether `feature` is on.
    #[must_use]
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u16) != 0
    }

    /// Whether one of `features` is on.
    #[must_use]
    pub fn has_any(self, features: &[Feature]) -> bool {
        features.iter().any(|feature| self.has(*feature))
    }

    /// The word of the first that changes nothing where there are no experts.
    pub(crate) fn of_experts(self) -> Option<&'static str> {
        let others = [Feature::Graphs, Feature::DualPipe];
        let mut all = FEATURES.iter().filter(|(feature, _)| self.has(*feature));
        all.find(|(feature, _)| !others.contains(feature)).map(|(_, word)| *word)
    }

    /// The words of those that are on.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        FEATURES.iter().filter(move |(feature, _)| self.has(*feature)).map(|(_, word)| *word)
    }
}

impl FromStr for Features {
    type Err = UnknownFeature;

    /// Words parted by commas or blanks; `none` for none.
    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
        if words.contains(&"none") {
            let is_alone = words.len() == 1;
            return if is_alone { Ok(Self::NONE) } else { Err(UnknownFeature::NoneAndOthers) };
        }
        words.into_iter().try_fold(Self::default(), |all, word| {
            let known = FEATURES.iter().find(|(_, known)| *known == word);
            let (feature, _) =
                known.ok_or_else(|| UnknownFeature::Word { word: word.to_owned() })?;
            Ok(Self(all.0 | 1 << *feature as u16))
        })
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.words().collect();
        f.write_str(if words.is_empty() { "none" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

impl Serialize for Features {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.words())
    }
}

/// What a version's recipe for a model on some chips says.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    software: &'static str,
    chips: &'static str,
    models: &'static str,
    formats: &'static str,
    /// Its features.
    pub features: Features,
    /// What it computes again; `None` if it does not say.
    pub recompute: Option<Recompute>,
    /// Where it says so.
    pub source: &'static str,
}

static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let lines = include_str!("features.csv").lines().skip(1);
    let row = |line: &'static str| {
        let [software, chips, models, formats, features, recompute, source] =
            line.splitn(7, ',').collect::<Vec<_>>().try_into().expect("seven columns");
        let features = features.parse().expect("a shipped table names features");
        let recompute = match recompute {
            "none" => Some(Recompute::None),
            "selective" => Some(Recompute::Selective),
            "full" => Some(Recompute::Full),
            _ => None,
        };
        Recipe { software, chips, models, formats, features, recompute, source }
    };
    lines.map(row).collect()
});

/// The recipe of `software` for `model` on `chip`: the first whose words match; `*` matches all.
#[must_use]
pub fn recipe(
    software: &str,
    chip: &str,
    model: &str,
    precision: Precision,
) -> Option<&'static Recipe> {
    let is_one = |words: &str, word: &str| words == "*" || words.split(' ').any(|one| one == word);
    RECIPES.iter().find(|recipe| {
        recipe.software == software
            && is_one(recipe.chips, chip)
            && is_one(recipe.models, model)
            && is_one(recipe.formats, precision.label())
    })
}
