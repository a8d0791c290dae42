// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use lightloom_collective::Generation;
use lightloom_fabric::document::{self, Check, Diagnostic, codes};
use lightloom_units::{BitsPerSecond, Bytes, Text};

use super::calibrated::{CHIPS, Chip, FRAMEWORKS, Framework, compose};
use super::calibration::{Calibration, Precision, ZeroStage};
use super::hugging_face;
use super::model::Model;
use super::network::{Network, ScaleOutLeaf, Shape};
use super::operators::{OperatorTable, Operators};
use super::step::Compute;

pub use lightloom_fabric::model::MODEL_FILES;

/// An accelerator file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Name as users write it: `h100`.
    pub name: String,
    /// Source of the figures and their reliability.
    pub source: String,
    /// Peak dense TFLOP/s by number format: `bf16`, and `fp8` or `fp4` if the chip supports them.
    pub peak_tflops: BTreeMap<NumberFormat, f64>,
    /// Share of peak measured for the best-shaped matrix product, by number format.
    pub best_gemm_efficiency: BTreeMap<NumberFormat, f64>,
    /// Memory capacity.
    pub memory: Text<Bytes>,
    /// Memory bandwidth.
    pub memory_rate: Text<BitsPerSecond>,
    /// Rate into its high-bandwidth domain, per direction.
    pub scale_up_rate: Text<BitsPerSecond>,
    /// Rate into the data-centre network, per direction.
    pub scale_out_rate: Text<BitsPerSecond>,
    /// Number of GPUs in the high-bandwidth domain with which it is sold.
    pub domain_gpus: u32,
    /// Topology of that domain.
    #[serde(default)]
    pub domain_shape: DomainShape,
    /// Operators measured on this GPU or on a similar one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<Operators>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DomainShape {
    /// Any GPU reaches any other at full rate.
    #[default]
    Switch,
    Torus,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    /// 16 bits.
    Bf16,
    /// 8 bits.
    Fp8,
    /// 4 bits.
    Fp4,
}

lightloom_units::display_as_serialized!(NumberFormat);

impl NumberFormat {
    pub(crate) fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Fp4 => 0.5,
        }
    }
}

pub(crate) fn generation(name: &str) -> Option<Generation> {
    let known = [
        (Generation::Ampere, &["a100"][..]),
        (Generation::Hopper, &["h100", "h200", "h800", "h20"]),
        (Generation::Blackwell, &["b200", "b300", "gb200", "gb300"]),
    ];
    let mut known = known.into_iter();
    let found = known.find(|(_, names)| names.iter().any(|part| name.starts_with(part)));
    found.map(|(generation, _)| generation)
}

impl Accelerator {
    /// Returns the peak operations per second, or `None` if the chip lacks the format.
    pub fn peak_flops(&self, precision: Precision) -> Option<f64> {
        // Blackwell introduced block scales.
        let is_old = matches!(self.generation(), Some(Generation::Ampere | Generation::Hopper));
        if precision == Precision::Mxfp8 && is_old {
            return None;
        }
        self.peak_tflops.get(&precision.format()).map(|tera| tera * 1e12)
    }

    pub fn calibration(&self) -> Calibration {
        compose(&self.chip(), self.usual_framework())
    }

    /// `nemo-25.02` uses this card's chip, and `h100/nemo-25.02` uses another chip. `None` selects the software of most
    /// published runs on this card. Fails if the name is unknown; the message lists the known ones.
    pub fn constants(&self, name: Option<&str>) -> Result<(Chip, Framework), UnknownConstants> {
        let Some(name) = name else { return Ok((self.chip(), *self.usual_framework())) };
        let (chip, software) = match name.split_once('/') {
            Some((chip, software)) => {
                (CHIPS.iter().find(|known| known.name == chip).copied(), software)
            }
            None => (Some(self.chip()), name),
        };
        let framework = FRAMEWORKS.iter().find(|known| known.name == software);
        match (chip, framework) {
            (Some(chip), Some(framework)) => Ok((chip, *framework)),
            _ => Err(UnknownConstants { name: name.to_owned() }),
        }
    }

    fn chip(&self) -> Chip {
        self.chip_among(&CHIPS)
    }

    /// Falls back to H100, with its shares of peak scaled by the measured efficiencies of the best-shaped products.
    pub fn chip_among(&self, chips: &[Chip]) -> Chip {
        // A higher-memory A100 is no faster, and an H800 has the same compute throughput as an H100.
        let like = match &self.name[..] {
            "a100-40gb" => "a100",
            "h800" => "h100",
            name => name,
        };
        if let Some(chip) = chips.iter().find(|chip| chip.name == like) {
            return *chip;
        }
        let fitted = accelerator("h100").expect("h100 is shipped");
        let h100 = chips.iter().find(|chip| chip.name == "h100").expect("h100 is fitted");
        h100.adapted(fitted.best_efficiencies(), self.best_efficiencies())
    }

    /// Of BF16 and FP8 products.
    fn best_efficiencies(&self) -> [f64; 2] {
        let [bf16, fp8] = [NumberFormat::Bf16, NumberFormat::Fp8]
            .map(|format| self.best_gemm_efficiency.get(&format).copied());
        let bf16 = bf16.unwrap_or(1.0);
        [bf16, fp8.unwrap_or(bf16)]
    }

    pub(crate) fn is_shipped(&self) -> bool {
        accelerator(&self.name)
            .is_ok_and(|card| Self { source: self.source.clone(), ..card } == *self)
    }

    /// Returns the generation as communication libraries define it. `None` for an unknown GPU or a switchless domain.
    pub fn generation(&self) -> Option<Generation> {
        generation(&self.name)
    }

    fn usual_framework(&self) -> &'static Framework {
        let name = self.usual_software(None);
        FRAMEWORKS.iter().find(|known| known.name == name).unwrap_or(&FRAMEWORKS[0])
    }

    pub(crate) fn usual_software(&self, sharding: Option<ZeroStage>) -> &'static str {
        let is_sharded = sharding == Some(ZeroStage::Everything);
        match &self.name[..] {
            "b200" | "b300" | "gb200" | "gb300" => "megatron-bridge-26.06",
            name if name.starts_with("tpu") => "maxtext",
            "h100-96gb" if is_sharded => "torchtitan",
            _ if is_sharded => "llm-foundry",
            name if name.starts_with("a100") => "megatron-lm-2022",
            _ => "nemo-25.02",
        }
    }

    /// The network has the name of the architecture with the same shape and size, if there is one.
    pub fn network(&self) -> Network {
        let (shape, name) = match (self.domain_shape, self.domain_gpus) {
            (DomainShape::Switch, 8) => (Shape::Switch, "dgx".to_owned()),
            (DomainShape::Switch, size @ (36 | 72 | 576)) => (Shape::Switch, format!("nvl:{size}")),
            (DomainShape::Switch, _) => (Shape::Switch, format!("{}:own", self.name)),
            (DomainShape::Torus, _) => (Shape::Torus, format!("{}:own", self.name)),
        };
        Network {
            name,
            shape,
            domain_gpus: self.domain_gpus,
            domain_rate: self.scale_up_rate.0.bytes_per_second(),
            scale_out_rate: self.scale_out_rate.0.bytes_per_second(),
            leaf: ScaleOutLeaf::NON_BLOCKING,
            cable_seconds: Network::usual_cables(shape),
        }
    }

    pub fn compute(&self) -> Compute {
        let bf16 = self.peak_flops(Precision::Bf16).unwrap_or(0.0);
        Compute {
            peak_flops: bf16,
            peak_flops_fp8: self.peak_flops(Precision::Fp8).unwrap_or(bf16),
            peak_flops_fp4: self.peak_flops(Precision::Nvfp4).unwrap_or(bf16),
            memory_rate: self.memory_rate.0.bytes_per_second(),
            memory_bytes: self.memory.0.get() as f64,
            operators: self.operators.as_ref().map(|known| Arc::new(OperatorTable::of(known))),
        }
    }
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, "/", $name, ".yaml")))),+]
    };
}

const ACCELERATOR_FILES: &[(&str, &str)] = files!(
    "accelerators": "a100", "a100-40gb", "b200", "b300", "gb200", "gb300", "h100", "h100-96gb", "h20", "h200", "h800",
    "tpuv4", "tpuv5e", "tpuv5p", "tpuv6e"
);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown {kind} `{name}`: did you mean `{nearest}`? (known: {all}; or the name of a YAML file)"
)]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    nearest: &'static str,
    all: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown constants `{name}` (known: {}; or a chip with one of them, such as `h100/{}`)",
    names(FRAMEWORKS.iter().map(|known| known.name)),
    FRAMEWORKS[0].name
)]
pub struct UnknownConstants {
    name: String,
}

fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

pub fn all_names() -> [Vec<&'static str>; 3] {
    let [models, accelerators] =
        [MODEL_FILES, ACCELERATOR_FILES].map(|files| files.iter().map(|(name, _)| *name).collect());
    [models, accelerators, FRAMEWORKS.iter().map(|known| known.name).collect()]
}

/// Reads a model file or a `config.json` of Hugging Face, and reports all errors in it.
pub fn read_model(file: &str, bytes: &[u8]) -> (Option<Model>, Vec<Diagnostic>) {
    match hugging_face::model_file(bytes) {
        Some(Ok(text)) => lightloom_fabric::model::read_model(file, text.as_bytes()),
        Some(Err(key)) => {
            let message = format!("not understood: `{key}`, which a model file cannot describe");
            (None, vec![Diagnostic::whole_file(codes::BAD_VALUE, file, message)])
        }
        None => lightloom_fabric::model::read_model(file, bytes),
    }
}

pub fn model(name: &str) -> Result<Model, UnknownName> {
    card("model", MODEL_FILES, name)
}

/// Reads each file once, because files are checked against their schema.
pub fn accelerator(name: &str) -> Result<Accelerator, UnknownName> {
    static READ: [OnceLock<Accelerator>; ACCELERATOR_FILES.len()] =
        [const { OnceLock::new() }; ACCELERATOR_FILES.len()];
    let Some(place) = ACCELERATOR_FILES.iter().position(|(known, _)| *known == name) else {
        return card("accelerator", ACCELERATOR_FILES, name);
    };
    let read = READ[place]
        .get_or_init(|| card("accelerator", ACCELERATOR_FILES, name).expect("a known name"));
    Ok(read.clone())
}

pub fn read_accelerator(file: &str, bytes: &[u8]) -> (Option<Accelerator>, Vec<Diagnostic>) {
    document::load(file, bytes, check_accelerator)
}

/// The schema does not enforce `bf16`, positive numbers, or shares between 0 and 1.
fn check_accelerator(card: Accelerator, check: &mut Check<'_>) -> Option<Accelerator> {
    if !card.peak_tflops.contains_key(&NumberFormat::Bf16) {
        check
            .error(codes::BAD_VALUE, "/peak_tflops", "no peak for `bf16`")
            .help("attention and output layer use 16 bits: add `bf16`");
    }
    for (format, peak) in &card.peak_tflops {
        if !(peak.is_finite() && *peak > 0.0) {
            let path = format!("/peak_tflops/{format}");
            check.error(codes::BAD_VALUE, &path, format!("{peak} TFLOP/s is not a positive rate"));
        }
    }
    for (format, share) in &card.best_gemm_efficiency {
        if !(*share > 0.0 && *share <= 1.0) {
            let path = format!("/best_gemm_efficiency/{format}");
            let message = format!("{share} is not a share of peak");
            check
                .error(codes::BAD_VALUE, &path, message)
                .help("use a share above 0 and at most 1, such as 0.8");
        }
    }
    for (path, value) in [
        ("/memory", card.memory.0.get()),
        ("/memory_rate", card.memory_rate.0.get()),
        ("/scale_up_rate", card.scale_up_rate.0.get()),
        ("/scale_out_rate", card.scale_out_rate.0.get()),
        ("/domain_gpus", card.domain_gpus.into()),
    ] {
        if value == 0 {
            check.error(codes::BAD_VALUE, path, "the value must not be 0").help("use at least 1");
        }
    }
    if let Some(operators) = &card.operators {
        operators.check(check);
    }
    Some(card)
}

/// Returns the letters and digits of a name, so that `llama3` resembles `llama-3.1-8b`.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| letter.is_alphanumeric())
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

fn card<T: DeserializeOwned + JsonSchema>(
    kind: &'static str,
    files: &[(&'static str, &'static str)],
    name: &str,
) -> Result<T, UnknownName> {
    if let Some((file, text)) = files.iter().find(|(known, _)| *known == name) {
        let (card, _) = document::read(file, text.as_bytes());
        return Ok(card.expect("every shipped card is valid"));
    }
    let known = files.iter().map(|(known, _)| *known);
    let nearest = known.max_by(|a, b| {
        let [a, b] = [a, b].map(|known| strsim::jaro_winkler(&plain(known), &plain(name)));
        a.total_cmp(&b)
    });
    Err(UnknownName {
        kind,
        name: name.to_owned(),
        nearest: nearest.unwrap_or_default(),
        all: files.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_accelerator_is_named_like_its_file() {
        for (name, _) in ACCELERATOR_FILES {
            let card = accelerator(name).unwrap();
            assert_eq!(card.name, *name);
            assert!(card.compute().peak_flops > 0.0);
        }
    }

    #[test]
    fn accelerator_file_shows_all_its_mistakes() {
        for (name, text) in ACCELERATOR_FILES {
            let (card, mistakes) = read_accelerator(name, text.as_bytes());
            assert!(card.is_some() && mistakes.is_empty(), "{name}: {mistakes:?}");
        }
        let text = ACCELERATOR_FILES.iter().find(|(name, _)| *name == "h100").unwrap().1;
        let text = text
            .replace("{bf16: 989, fp8: 1979}", "{fp8: 0}")
            .replace("fp8: 0.71", "fp8: 71")
            .replace("domain_gpus: 8", "domain_gpus: 0");
        let (card, mistakes) = read_accelerator("mine.yaml", text.as_bytes());
        assert!(card.is_none());
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        for part in
            ["no peak for `bf16`", "not a positive rate", "71 is not a share", "must not be 0"]
        {
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:?}");
        }
    }

    #[test]
    fn unknown_name_error_suggests_the_nearest() {
        let error = model("llama-3.1-405").unwrap_err().to_string();
        assert!(error.contains("did you mean `llama-3.1-405b`?"), "{error}");
        let error = accelerator("H100").unwrap_err().to_string();
        assert!(error.contains("`h100`"), "{error}");
        let error = model("llama3").unwrap_err().to_string();
        assert!(error.contains("did you mean `llama-3"), "{error}");
    }
}
