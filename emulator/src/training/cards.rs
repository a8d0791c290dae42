//! The models and accelerators that come with lightloom, by name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use lightloom_fabric::document::{self, Check, Diagnostic, codes};
use lightloom_fabric::units::{BitsPerSecond, Bytes, Text};

use super::calibrated::H100_NEMO_25_02;
use super::calibration::{Calibration, Precision};
use super::model::{Attention, Experts, Model};
use super::step::Compute;

/// An accelerator, as its file writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Name as users write it: `h100`.
    pub name: String,
    /// Where the figures come from, and how sure they are.
    pub source: String,
    /// Peak dense TFLOP/s by number format: `bf16`, and `fp8` where the chip has it.
    pub peak_tflops: BTreeMap<Format, f64>,
    /// Share of peak that the best-shaped matrix product was measured at.
    pub best_gemm_efficiency: BTreeMap<Format, f64>,
    /// Size of its memory.
    pub memory: Text<Bytes>,
    /// Rate of its memory.
    pub memory_rate: Text<BitsPerSecond>,
    /// Rate into its high-bandwidth domain, one way.
    pub scale_up_rate: Text<BitsPerSecond>,
    /// Rate into the data-centre network, one way.
    pub scale_out_rate: Text<BitsPerSecond>,
    /// GPUs of the high-bandwidth domain it is sold with.
    pub domain_gpus: u32,
}

/// A number format, as files write it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Sixteen bits.
    Bf16,
    /// Eight bits.
    Fp8,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }
}

impl Accelerator {
    /// Peak operations per second, or `None` where the chip lacks the format.
    #[must_use]
    pub fn peak_flops(&self, precision: Precision) -> Option<f64> {
        let format = match precision {
            Precision::Bf16 => Format::Bf16,
            Precision::Fp8 => Format::Fp8,
        };
        self.peak_tflops.get(&format).map(|tera| tera * 1e12)
    }

    /// Constants for a step on it: those of H100 with NeMo 25.02, their shares of peak scaled by the chips'
    /// best-shape measurements. Only for H100 itself are they fitted.
    #[must_use]
    pub fn calibration(&self) -> Calibration {
        let best = |card: &Self| {
            let of = |format| card.best_gemm_efficiency.get(&format).copied();
            let bf16 = of(Format::Bf16).unwrap_or(1.0);
            [bf16, of(Format::Fp8).unwrap_or(bf16)]
        };
        let own = accelerator("h100").expect("h100 is shipped");
        H100_NEMO_25_02.adapted(best(&own), best(self))
    }

    /// What the step needs of it.
    #[must_use]
    pub fn compute(&self) -> Compute {
        let bf16 = self.peak_flops(Precision::Bf16).unwrap_or(0.0);
        Compute {
            peak_flops: bf16,
            peak_flops_fp8: self.peak_flops(Precision::Fp8).unwrap_or(bf16),
            memory_rate: self.memory_rate.0.bytes_per_second(),
            memory_bytes: self.memory.0.get() as f64,
        }
    }
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../topologies/", $folder, "/", $name, ".yaml")))),+]
    };
}

/// Name and text of every model file that comes with lightloom.
pub const MODEL_FILES: &[(&str, &str)] = files!("models":
    "deepseek-v3", "gpt-3-175b", "gpt-moe-1.1t", "grok-1", "llama-3.1-405b", "llama-3.1-70b",
    "llama-3.1-8b", "mixtral-8x22b", "mixtral-8x7b", "nemotron-340b", "qwen2.5-72b", "step-3",
);

/// Name and text of every accelerator file that comes with lightloom.
pub const ACCELERATOR_FILES: &[(&str, &str)] =
    files!("accelerators": "a100", "b200", "gb200", "h100", "h200", "h800", "tpuv4");

/// No card has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} is called `{name}`: did you mean `{nearest}`? (there are: {all})")]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    nearest: &'static str,
    all: String,
}

/// The model called `name`.
///
/// # Errors
/// If there is none, with the nearest name.
pub fn model(name: &str) -> Result<Model, UnknownName> {
    card("model", MODEL_FILES, name)
}

/// The accelerator called `name`.
///
/// # Errors
/// If there is none, with the nearest name.
pub fn accelerator(name: &str) -> Result<Accelerator, UnknownName> {
    card("accelerator", ACCELERATOR_FILES, name)
}

/// Reads a model file that a user wrote; every mistake at once.
pub fn read_model(file: &str, bytes: &[u8]) -> (Option<Model>, Vec<Diagnostic>) {
    document::load(file, bytes, check_model)
}

/// Reads an accelerator file that a user wrote; every mistake at once.
pub fn read_accelerator(file: &str, bytes: &[u8]) -> (Option<Accelerator>, Vec<Diagnostic>) {
    document::load(file, bytes, check_accelerator)
}

/// What the shape of a model file cannot say: nothing is zero, and what must divide divides.
fn check_model(model: Model, check: &mut Check<'_>) -> Option<Model> {
    let mut positive = vec![
        ("/layers", model.layers),
        ("/hidden", model.hidden),
        ("/vocabulary", model.vocabulary),
        ("/feed_forward/width", model.feed_forward.width),
    ];
    match model.attention {
        Attention::Grouped { query_heads, key_value_heads, head_size, .. } => {
            positive.push(("/attention/grouped/query_heads", query_heads));
            positive.push(("/attention/grouped/key_value_heads", key_value_heads));
            positive.push(("/attention/grouped/head_size", head_size));
            check_heads(query_heads, key_value_heads, check);
        }
        Attention::Latent { heads, query_rank, key_value_rank, plain_size, value_size, .. } => {
            positive.push(("/attention/latent/heads", heads));
            positive.push(("/attention/latent/query_rank", query_rank));
            positive.push(("/attention/latent/key_value_rank", key_value_rank));
            positive.push(("/attention/latent/plain_size", plain_size));
            positive.push(("/attention/latent/value_size", value_size));
        }
    }
    if let Some(experts) = &model.feed_forward.experts {
        positive.push(("/feed_forward/experts/count", experts.count));
        positive.push(("/feed_forward/experts/top_k", experts.top_k));
        positive.push(("/feed_forward/experts/width", experts.width));
        check_experts(experts, model.layers, check);
    }
    for (path, value) in positive {
        if value == 0 {
            check.error(codes::BAD_VALUE, path, "0 makes no model").help("write at least 1");
        }
    }
    Some(model)
}

fn check_heads(query_heads: u32, key_value_heads: u32, check: &mut Check<'_>) {
    if key_value_heads > 0 && !query_heads.is_multiple_of(key_value_heads) {
        let message = format!("{query_heads} query heads do not share {key_value_heads} evenly");
        check
            .error(codes::BAD_VALUE, "/attention/grouped/key_value_heads", message)
            .help("write a divisor of the query heads");
    }
}

fn check_experts(experts: &Experts, layers: u32, check: &mut Check<'_>) {
    if experts.top_k > experts.count {
        let message = format!("a token cannot visit {} of {}", experts.top_k, experts.count);
        check
            .error(codes::BAD_VALUE, "/feed_forward/experts/top_k", message)
            .help(format!("write at most {}", experts.count));
    }
    if experts.dense_layers > layers {
        let message = format!("there are only {layers} layers");
        check.error(codes::BAD_VALUE, "/feed_forward/experts/dense_layers", message);
    }
}

/// What the shape of an accelerator file cannot say: sixteen bits are there, nothing is zero, shares are shares.
fn check_accelerator(card: Accelerator, check: &mut Check<'_>) -> Option<Accelerator> {
    if !card.peak_tflops.contains_key(&Format::Bf16) {
        check
            .error(codes::BAD_VALUE, "/peak_tflops", "there is no peak for `bf16`")
            .help("attention and output layer run in sixteen bits: write `bf16`");
    }
    for (format, peak) in &card.peak_tflops {
        if !(peak.is_finite() && *peak > 0.0) {
            let path = format!("/peak_tflops/{}", format.name());
            check.error(codes::BAD_VALUE, &path, format!("{peak} TFLOP/s compute nothing"));
        }
    }
    for (format, share) in &card.best_gemm_efficiency {
        if !(*share > 0.0 && *share <= 1.0) {
            let path = format!("/best_gemm_efficiency/{}", format.name());
            let message = format!("{share} is no share of peak");
            check
                .error(codes::BAD_VALUE, &path, message)
                .help("write a share above 0 and at most 1, such as 0.8");
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
            check.error(codes::BAD_VALUE, path, "0 makes no accelerator").help("write at least 1");
        }
    }
    Some(card)
}

fn card<T: DeserializeOwned + JsonSchema>(
    kind: &'static str,
    files: &[(&'static str, &'static str)],
    name: &str,
) -> Result<T, UnknownName> {
    if let Some((file, text)) = files.iter().find(|(known, _)| *known == name) {
        let (card, _) = document::read(file, text.as_bytes());
        return Ok(card.expect("a test reads every shipped card"));
    }
    let lower = name.to_lowercase();
    let distance = |known: &str| strsim::osa_distance(known, &lower);
    let nearest = files.iter().map(|(known, _)| *known).min_by_key(|known| distance(known));
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
    fn every_shipped_card_reads_and_is_called_like_its_file() {
        for (name, _) in MODEL_FILES {
            assert_eq!(model(name).unwrap().name, *name);
        }
        for (name, _) in ACCELERATOR_FILES {
            let card = accelerator(name).unwrap();
            assert_eq!(card.name, *name);
            assert!(card.compute().peak_flops > 0.0);
        }
    }

    #[test]
    fn every_shipped_model_passes_the_checks_of_a_users_file() {
        for (name, text) in MODEL_FILES {
            let (model, mistakes) = read_model(name, text.as_bytes());
            assert!(model.is_some() && mistakes.is_empty(), "{name}: {mistakes:?}");
        }
    }

    #[test]
    fn a_model_file_shows_all_its_mistakes() {
        let text = MODEL_FILES.iter().find(|(name, _)| *name == "grok-1").unwrap().1;
        let text = text
            .replace("top_k: 2", "top_k: 9")
            .replace("key_value_heads: 8", "key_value_heads: 7");
        let (model, mistakes) = read_model("grok.yaml", text.as_bytes());
        assert!(model.is_none());
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("a token cannot visit 9 of 8")), "{lines:?}");
    }

    #[test]
    fn an_accelerator_file_shows_all_its_mistakes() {
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
        for part in ["no peak for `bf16`", "compute nothing", "71 is no share", "0 makes no acc"] {
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:?}");
        }
    }

    #[test]
    fn models_have_the_weights_they_are_known_for() {
        for (name, billions, active) in [
            ("gpt-3-175b", 175.0, 175.0),
            ("llama-3.1-8b", 8.03, 8.03),
            ("llama-3.1-70b", 70.6, 70.6),
            ("llama-3.1-405b", 405.8, 405.8),
            ("nemotron-340b", 340.0, 340.0),
            ("mixtral-8x7b", 46.7, 12.9),
            ("mixtral-8x22b", 141.0, 39.1),
            ("deepseek-v3", 671.0, 37.5),
            ("grok-1", 314.0, 86.0),
            ("qwen2.5-72b", 72.7, 72.7),
            ("gpt-moe-1.1t", 1103.0, 320.0),
            ("step-3", 316.0, 38.8),
        ] {
            let model = model(name).unwrap();
            for (ours, known) in
                [(model.parameters() / 1e9, billions), (model.active_parameters() / 1e9, active)]
            {
                assert!((ours / known - 1.0).abs() < 0.02, "{name}: {ours} against {known}");
            }
        }
    }

    #[test]
    fn an_unknown_name_points_to_the_nearest() {
        let error = model("llama-405b").unwrap_err().to_string();
        assert!(error.contains("did you mean `llama-3.1-405b`?"), "{error}");
        let error = accelerator("H100").unwrap_err().to_string();
        assert!(error.contains("`h100`"), "{error}");
    }
}
