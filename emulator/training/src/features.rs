// SPDX-License-Identifier: Apache-2.0
//! Features of training software that change kernel launches, communicated data and overlap.
//!
//! `features.csv` lists what a software version uses by default for a class of models, with the source. The name of a
//! model has no effect.

mod arguments;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use lightloom_collective::rows;
use serde::{Deserialize, Deserializer, Serialize};

use super::calibration::Precision;
use super::mapping::Recompute;
use super::model::Model;

pub use arguments::NoArguments;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// CUDA graphs: layers do not wait for kernel launches.
    Graphs,
    GroupedExperts,
    FusedExperts,
    /// A token is sent only once to each rank and domain that contains its experts (DeepEP).
    DeepEp,
    /// Like `DeepEp`, but the host does not wait for the routing (HybridEP).
    HybridEp,
    /// Experts drop all but a fixed number of tokens, so the host does not wait for the routing.
    TokenDrop,
    OverlappedDispatch,
    /// Micro-batches enter at both ends of the pipeline, which requires two copies of the weights.
    DualPipe,
    /// A token is sent to at most four domains.
    NodeLimited,
}

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFeature {
    #[error("unknown feature `{word}`: use `none` or some of {}", words().join(", "))]
    Word { word: String },
    #[error("`none` cannot be combined with other features: omit one or the other")]
    NoneAndOthers,
}

fn words() -> Vec<&'static str> {
    FEATURES.iter().map(|(_, word)| *word).collect()
}

impl Features {
    pub const NONE: Self = Self(0);

    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u16)
    }

    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u16) != 0
    }

    pub fn has_any(self, features: &[Feature]) -> bool {
        features.iter().any(|feature| self.has(*feature))
    }

    pub(crate) fn of_experts(self) -> Option<&'static str> {
        let others = [Feature::Graphs, Feature::DualPipe];
        let mut all = FEATURES.iter().filter(|(feature, _)| self.has(*feature));
        all.find(|(feature, _)| !others.contains(feature)).map(|(_, word)| *word)
    }

    pub fn words(self) -> impl Iterator<Item = &'static str> {
        FEATURES.iter().filter(move |(feature, _)| self.has(*feature)).map(|(_, word)| *word)
    }
}

impl FromStr for Features {
    type Err = UnknownFeature;

    /// Names are separated by commas or blanks; `none` means no features.
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

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Features {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.words())
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Recipe {
    software: String,
    /// Separated by blanks, like `formats`; `*` means all.
    chips: String,
    class: ModelClass,
    /// Upper limit of a model's weights, in billions.
    most_billions: Option<f64>,
    formats: String,
    pub features: Features,
    pub recompute: Option<Recompute>,
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModelClass {
    Dense,
    Mixture,
    Hybrid,
}

impl ModelClass {
    fn of(model: &Model) -> Self {
        match (&model.feed_forward.experts, &model.state_space) {
            (Some(_), _) => Self::Mixture,
            (None, Some(_)) => Self::Hybrid,
            (None, None) => Self::Dense,
        }
    }
}

static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| rows(include_str!("features.csv")));

/// Whether `words`, separated by blanks, contain `word`; `*` contains all.
pub(crate) fn lists(words: &str, word: &str) -> bool {
    words == "*" || words.split(' ').any(|one| one == word)
}

pub fn recipe(
    software: &str,
    chip: &str,
    model: &Model,
    precision: Precision,
) -> Option<&'static Recipe> {
    let billions = model.parameters() / 1e9;
    RECIPES.iter().find(|recipe| {
        recipe.software == software
            && lists(&recipe.chips, chip)
            && recipe.class == ModelClass::of(model)
            && recipe.most_billions.is_none_or(|most| billions <= most)
            && lists(&recipe.formats, &precision.to_string())
    })
}
