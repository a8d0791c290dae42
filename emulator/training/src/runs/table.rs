// SPDX-License-Identifier: Apache-2.0
//! Parses tables of runs (CSV with a header) into requests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lightloom_units::{BitsPerSecond, Text};
use serde::Deserialize;

use super::MeasuredRun;
use crate::calibration::{Precision, ZeroStage};
use crate::cards::{self, Accelerator};
use crate::features::{Features, UnknownFeature, lists};
use crate::mapping::{Batch, Recompute};
use crate::mfu::Convention;
use crate::model::{Activation, Attention, Experts, FeedForward, Model};
use crate::request::{Changes, MOST, Request, at_least};
use crate::search::Limits;

const SOFTWARE: &[(&str, &str)] = &[
    ("Megatron-LM README", "megatron-lm-2021"),
    ("vTrain", "megatron-deepspeed"),
    ("Korthikanti", "megatron-lm-2022"),
    ("dgxc-benchmarking", "nemo-25.02"),
    ("Llama 3 paper", "llama-3"),
    ("MosaicML", "llm-foundry"),
    ("container 25.09", "megatron-bridge-25.09"),
    ("container 25.11", "megatron-bridge-25.11"),
    ("container 26.02.01", "megatron-bridge-26.02.01"),
    ("container 26.02", "megatron-bridge-26.02"),
    ("container 26.04", "megatron-bridge-26.04.01"),
    ("container 26.06", "megatron-bridge-26.06"),
    ("container 26.08", "megatron-bridge-26.06"),
    ("torchtitan", "torchtitan"),
    ("nanotron", "nanotron"),
    ("MaxText", "maxtext"),
    ("DeepSeek-V3", "hai-llm"),
];

const NAMES: &[(&str, &str)] = &[
    ("a100-80gb", "a100"),
    ("h100-sxm", "h100"),
    ("h100-96gb-500w", "h100-96gb"),
    ("llama2-70b", "llama-2-70b"),
    ("llama3-8b", "llama-3.1-8b"),
    ("llama3-70b", "llama-3.1-70b"),
    ("llama3.1-405b", "llama-3.1-405b"),
    ("deepseek-v3-671b", "deepseek-v3"),
    ("kimi_k2", "kimi-k2"),
    ("nemotron_3_nano", "nemotron-3-nano"),
    ("nemotronh-56b", "nemotron-h-56b"),
    ("nemotronh 56b", "nemotron-h-56b"),
];

/// MaxText's tables omit sequences per accelerator, TP and recomputation. These values are from its
/// configuration scripts, with half of the sequences on v5p, where the full number does not fit.
/// Columns: family of accelerators, model, sequences, TP, recomputation.
const MAXTEXT: &[(&str, &str, u64, u32, Recompute)] = &[
    ("TPUv4", "MaxText-52B", 10, 1, Recompute::Full),
    ("TPUv5e", "MaxText-16B", 6, 1, Recompute::Full),
    ("TPUv5e", "MaxText-32B", 4, 1, Recompute::Full),
    ("TPUv5e", "MaxText-64B", 2, 1, Recompute::Full),
    ("TPUv5e", "MaxText-128B", 1, 16, Recompute::Full),
    ("TPUv5p", "MaxText-32B", 4, 4, Recompute::Selective),
    ("TPUv5p", "MaxText-64B", 2, 4, Recompute::Selective),
    ("TPUv5p", "MaxText-128B", 1, 8, Recompute::Selective),
    ("TPUv5p", "MaxText-256B", 1, 8, Recompute::Selective),
    ("TPUv5p", "MaxText-512B", 1, 8, Recompute::Selective),
    ("TPUv5p", "MaxText-1024B", 1, 16, Recompute::Full),
    ("TPUv6e", "llama3-70B", 1, 1, Recompute::Full),
    ("TPUv6e", "llama3.1-405B", 1, 1, Recompute::Full),
];

const MOST_SECONDS: f64 = 1e6;

/// Features of published runs. Lists are separated by blanks; `*` means all.
#[derive(Deserialize)]
struct PublishedRecipe {
    software: String,
    chips: String,
    models: String,
    formats: String,
    features: Features,
    recompute: Option<Recompute>,
}

static RECIPES: LazyLock<Vec<PublishedRecipe>> =
    LazyLock::new(|| lightloom_collective::rows(include_str!("recipes.csv")));

/// Other names of columns, as in the tables of MLPerf results.
const COLUMNS: [(&str, &str); 8] = [
    ("gpus", "num_accel"),
    ("global_batch", "gbs_seqs"),
    ("sequence", "seq"),
    ("micro_batch", "mbs"),
    ("virtual_stages", "vpp"),
    ("constants", "software"),
    ("measured_step_s", "step_time_s"),
    ("measured_as", "notes"),
];

pub(super) struct Row {
    pub(super) line: usize,
    header: std::rc::Rc<Vec<String>>,
    cells: csv::StringRecord,
}

fn records(table: &str) -> impl Iterator<Item = csv::StringRecord> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).flexible(true).from_reader(table.as_bytes());
    let records = reader.into_records().map(|record| record.expect("a text is valid UTF-8"));
    records.filter(|record| record.iter().any(|cell| !cell.trim().is_empty()))
}

pub(super) fn rows(table: &str) -> Vec<Row> {
    let mut records = records(table);
    let header = std::rc::Rc::new(records.next().map(|names| header(&names)).unwrap_or_default());
    let rows = records.map(|cells| {
        let (line, byte) = cells.position().map_or((0, 0), |at| (at.line(), at.byte() as usize));
        // The reader counts blank lines before a record as its own.
        let blank = table[byte..].bytes().take_while(|byte| b"\r\n".contains(byte));
        let line = line as usize + blank.filter(|byte| *byte == b'\n').count();
        Row { line, header: header.clone(), cells }
    });
    rows.collect()
}

const NEEDED: [&str; 4] = ["accelerator", "num_accel", "model", "precision"];
const MEASURED: [&str; 4] = ["step_time_s", "tokens_s_per_accel", "tflops_per_accel", "mfu_pct"];

pub(super) fn missing_columns(table: &str) -> Option<String> {
    let header = header(&records(table).next()?);
    let missing: Vec<&str> =
        NEEDED.into_iter().filter(|column| header.iter().all(|name| name != column)).collect();
    let (missing, header) = (missing.join(", "), header.join(", "));
    let [needed, measured] = [NEEDED.join(", "), MEASURED[..2].join(" or ")];
    let why = format!(
        "missing columns: {missing}; the header has {header}; a table needs {needed}, and {measured}"
    );
    (!missing.is_empty()).then_some(why)
}

fn header(names: &csv::StringRecord) -> Vec<String> {
    let usual = names.iter().map(|name| {
        let renamed = COLUMNS.iter().find(|(other, _)| *other == name);
        renamed.map_or(name, |(_, usual)| usual).to_owned()
    });
    usual.collect()
}

fn known(name: &str) -> String {
    let lower = name.to_lowercase();
    NAMES.iter().find(|(other, _)| *other == lower).map_or(lower, |(_, known)| (*known).to_owned())
}

fn recipe(
    software: &str,
    chip: &str,
    model: &str,
    format: Precision,
) -> Option<&'static PublishedRecipe> {
    RECIPES.iter().find(|recipe| {
        recipe.software == software
            && lists(&recipe.chips, chip)
            && lists(&recipe.models, model)
            && lists(&recipe.formats, &format.to_string())
    })
}

impl Row {
    pub(super) fn text(&self, column: &str) -> &str {
        let index = self.header.iter().position(|name| name == column);
        index.and_then(|index| self.cells.get(index)).unwrap_or_default()
    }

    fn number<T: std::str::FromStr>(&self, column: &str) -> Option<T> {
        self.text(column).parse().ok()
    }

    fn needed<T: std::str::FromStr>(&self, column: &str) -> Result<T, String> {
        self.number(column).ok_or_else(|| {
            let text = self.text(column);
            format!("column `{column}` is `{text}`: use a number")
        })
    }

    pub(super) fn run(&self) -> Result<MeasuredRun, String> {
        let mut assumed = Vec::new();
        let (model, card, gpus) = (self.model()?, self.card()?, self.needed::<u64>("num_accel")?);
        if !(1..=MOST).contains(&gpus) {
            return Err(format!("column `num_accel` is {gpus}: use 1 to {MOST}"));
        }
        let maxtext = self.maxtext();
        let batch = self.batch(gpus, maxtext.map(|(sequences, ..)| sequences), &mut assumed)?;
        let recompute = self.recompute(maxtext.map(|(.., recompute)| recompute));
        let mut limits = self.limits(gpus, batch, maxtext.map(|(_, tensor, _)| tensor), recompute);
        let software = self.software()?;
        let precision = self.precision()?;
        let recipe = recipe(&software, &card.name, &model.name, precision);
        if let (None, Some(least)) = (recompute, recipe.and_then(|recipe| recipe.recompute)) {
            limits.recompute = at_least(least);
        }
        let features = self.features()?.or(recipe.map(|recipe| recipe.features));
        let convention = self.convention();
        let peak = card.peak_flops(precision).unwrap_or_else(|| card.compute().peak_flops);
        let seconds = self.seconds(&model, batch, gpus as f64, peak, convention, recompute)?;
        if !(seconds > 0.0 && seconds <= MOST_SECONDS) {
            return Err(format!(
                "the step time is {seconds} s: use more than 0 and at most {MOST_SECONDS} s"
            ));
        }
        Ok(MeasuredRun {
            id: self.text("id").to_owned(),
            source: self.text("source").to_owned(),
            model: self.text("model").to_owned(),
            accelerator: self.text("accelerator").to_owned(),
            gpus,
            measured_seconds: seconds,
            request: Request {
                model,
                card,
                batch,
                precision,
                expert_imbalance: 0.0,
                convention,
                limits,
                constants: Some(software.clone()),
                refitted: BTreeMap::new(),
                changes: Changes { sharding: self.sharding(), features, ..Changes::default() },
            },
            software,
            assumed,
        })
    }

    fn software(&self) -> Result<String, String> {
        let given = self.text("software");
        if !given.is_empty() {
            return Ok(given.to_owned());
        }
        let source = self.text("source");
        let found = SOFTWARE.iter().find(|(part, _)| source.contains(part));
        found.map(|(_, software)| (*software).to_owned()).ok_or_else(|| {
            "column `software` is empty: use the constants closest to the software that ran"
                .to_owned()
        })
    }

    fn features(&self) -> Result<Option<Features>, String> {
        let text = self.text("features").replace('+', " ");
        let features = (!text.is_empty()).then(|| text.parse()).transpose();
        features.map_err(|why: UnknownFeature| format!("column `features`: {why}"))
    }

    fn card(&self) -> Result<Accelerator, String> {
        let name = self.text("accelerator");
        let mut card = cards::accelerator(&known(name)).map_err(|error| error.to_string())?;
        if self.text("source").contains("vTrain") {
            // The repository's configurations give each node of eight GPUs 800 Gb/s.
            card.scale_out_rate = Text(BitsPerSecond(100_000_000_000));
        }
        Ok(card)
    }

    fn precision(&self) -> Result<Precision, String> {
        let text = self.text("precision");
        let known = [
            ("bf16", Precision::Bf16),
            ("fp16", Precision::Bf16),
            ("mxfp8", Precision::Mxfp8),
            ("fp8-mx", Precision::Mxfp8),
            ("fp8", Precision::Fp8),
            ("nvfp4", Precision::Nvfp4),
        ];
        let found = known.into_iter().find(|(word, _)| text.starts_with(word));
        found
            .map(|(_, precision)| precision)
            .ok_or_else(|| format!("column `precision` is `{text}`: use bf16, fp8, mxfp8 or nvfp4"))
    }

    fn convention(&self) -> Convention {
        let text = self.text("mfu_convention");
        if text.starts_with("HFU") {
            Convention::HfuFull
        } else if text.contains("causal") && !text.contains("non-causal")
            || self.text("source").contains("Llama 3 paper")
        {
            Convention::MfuCausal
        } else {
            Convention::MfuFull
        }
    }

    fn recompute(&self, otherwise: Option<Recompute>) -> Option<Recompute> {
        let text = self.text("recompute");
        if text.starts_with("full") {
            Some(Recompute::Full)
        } else if text.starts_with("selective") {
            Some(Recompute::Selective)
        } else if text.starts_with("none") {
            Some(Recompute::None)
        } else {
            otherwise
        }
    }

    fn sharding(&self) -> Option<ZeroStage> {
        let text = self.text("fsdp");
        let shards = text.split(' ').next().and_then(|word| word.parse::<u32>().ok());
        match text {
            "ZeRO-0" => Some(ZeroStage::Replicated),
            "ZeRO-1" => Some(ZeroStage::Optimizer),
            "SHARD_GRAD_OP" => Some(ZeroStage::Gradients),
            "FULL_SHARD" => Some(ZeroStage::Everything),
            text if text.starts_with("FSDP") => Some(ZeroStage::Everything),
            _ => shards.filter(|shards| *shards > 1).map(|_| ZeroStage::Everything),
        }
    }

    fn maxtext(&self) -> Option<(u64, u32, Recompute)> {
        let found = MAXTEXT.iter().find(|(family, model, ..)| {
            self.text("accelerator") == *family && self.text("model") == *model
        });
        found.map(|(_, _, sequences, tensor, recompute)| (*sequences, *tensor, *recompute))
    }

    fn batch(
        &self,
        gpus: u64,
        each: Option<u64>,
        assumed: &mut Vec<String>,
    ) -> Result<Batch, String> {
        let is_maxtext = self.text("source").contains("MaxText");
        let tokens = match self.number("seq") {
            Some(tokens) => tokens,
            None if is_maxtext => 2048,
            None => self.needed("seq")?,
        };
        let sequences = match (self.number("gbs_seqs"), each) {
            (Some(sequences), _) => sequences,
            (None, Some(each)) => each * gpus,
            (None, None) if is_maxtext => {
                assumed.push("four sequences per accelerator".to_owned());
                4 * gpus
            }
            (None, None) => {
                let [tensor, stages, context, micro_batch] =
                    ["tp", "pp", "cp", "mbs"].map(|column| self.number::<u64>(column).unwrap_or(1));
                assumed.push("a micro-batch for each stage of each replica".to_owned());
                let cut = tensor.saturating_mul(stages).saturating_mul(context);
                let replicas = gpus / cut.max(1);
                replicas.saturating_mul(stages).saturating_mul(micro_batch)
            }
        };
        Ok(Batch { sequences, tokens })
    }

    /// Missing degrees are 1, because tables print the parallelism in use. Some other settings are searched.
    fn limits(
        &self,
        gpus: u64,
        batch: Batch,
        tensor: Option<u32>,
        recompute: Option<Recompute>,
    ) -> Limits {
        let one = |column| vec![self.number(column).unwrap_or(1)];
        let open = |column| self.number(column).into_iter().collect::<Vec<u32>>();
        let has_free_stages = ["Llama 3 paper", "Megatron-LM README", "DeepSeek-V3"]
            .iter()
            .any(|part| self.text("source").contains(part))
            || self.text("notes").starts_with("interleaved");
        let tensor = self.number("tp").or(tensor).unwrap_or(1);
        let micro_batch = if self.text("source").contains("MaxText") {
            vec![(batch.sequences * u64::from(tensor) / gpus.max(1)) as u32]
        } else {
            open("mbs")
        };
        Limits {
            tensor: vec![tensor],
            context: one("cp"),
            pipeline: one("pp"),
            expert: one("ep"),
            micro_batch,
            virtual_stages: if has_free_stages { open("vpp") } else { one("vpp") },
            recompute: recompute.into_iter().collect(),
            schedule: Vec::new(),
        }
    }

    fn seconds(
        &self,
        model: &Model,
        batch: Batch,
        gpus: f64,
        peak: f64,
        convention: Convention,
        recompute: Option<Recompute>,
    ) -> Result<f64, String> {
        let flops = convention.step_flops(model, batch, recompute.unwrap_or(Recompute::None));
        if let Some(seconds) = self.number::<f64>("step_time_s") {
            Ok(seconds)
        } else if let Some(rate) = self.number::<f64>("tokens_s_per_accel") {
            Ok(batch.total_tokens() / (rate * gpus))
        } else if let Some(rate) = self.number::<f64>("tflops_per_accel") {
            Ok(flops / (rate * 1e12 * gpus))
        } else if let Some(share) = self.number::<f64>("mfu_pct") {
            Ok(flops / (share / 100.0 * peak * gpus))
        } else {
            let written = MEASURED.into_iter().find(|column| !self.text(column).is_empty());
            Err(match written {
                Some(column) => {
                    format!(
                        "column `{column}` is `{}`: use a number, such as 5.2",
                        self.text(column)
                    )
                }
                None => "no measurement: add `step_time_s` or `tokens_s_per_accel`".to_owned(),
            })
        }
    }

    fn model(&self) -> Result<Model, String> {
        let name = self.text("model");
        if let Some(billions) = name.strip_prefix("Llama-like ") {
            return self.llama_like(billions);
        }
        if let Some(billions) = name.strip_prefix("MaxText-") {
            return self.maxtext_model(billions);
        }
        match cards::model(&known(name)) {
            Ok(mut model) => {
                model.layers = self.number("layers").unwrap_or(model.layers);
                model.vocabulary = self.number("vocab").unwrap_or(model.vocabulary);
                self.predict(&mut model);
                Ok(model)
            }
            Err(unknown) if self.number::<u32>("layers").is_none() => Err(format!(
                "{unknown}; for another model, add the columns `layers`, `hidden`, `heads` and `ffn`"
            )),
            Err(_) => self.by_dimensions(),
        }
    }

    /// Assumes one multi-token prediction depth if that matches the printed operations better.
    fn predict(&self, model: &mut Model) {
        let (Some(tera), Some(tokens), Some(sequence)) = (
            self.number::<f64>("tflops_per_accel"),
            self.number::<f64>("tokens_s_per_accel"),
            self.number::<u64>("seq"),
        ) else {
            return;
        };
        if !model.name.starts_with("deepseek") || self.text("source").contains("DeepSeek-V3") {
            return;
        }
        let printed = tera * 1e12 / tokens;
        let [without, with] = [0, 1].map(|depths| {
            let model = Model { prediction_depths: depths, ..model.clone() };
            let flops = crate::flops::step_per_token(&model, sequence, crate::flops::Mask::Causal);
            (printed / flops - 1.0).abs()
        });
        model.prediction_depths = u32::from(with < without);
    }

    fn by_dimensions(&self) -> Result<Model, String> {
        let name = self.text("model").to_owned();
        let is_swiglu = name.starts_with("llama") || name.starts_with("grok");
        let heads: u32 = self.needed("heads")?;
        let hidden: u32 = self.needed("hidden")?;
        if heads == 0 {
            return Err("column `heads` is 0: use at least 1".to_owned());
        }
        let experts = match self.number("experts") {
            None => None,
            Some(count) => Some(Experts {
                count,
                top_k: self.needed("topk")?,
                width: self.needed("moe_ffn")?,
                shared_width: 0,
                dense_layers: 0,
            }),
        };
        Ok(Model {
            source: self.text("source").to_owned(),
            layers: self.needed("layers")?,
            hidden,
            vocabulary: self.needed("vocab")?,
            attention: grouped(heads, self.number("kv_heads").unwrap_or(heads), hidden / heads),
            feed_forward: FeedForward {
                width: self.number("ffn").or(self.number("moe_ffn")).unwrap_or(4 * hidden),
                activation: if is_swiglu { Activation::Swiglu } else { Activation::Gelu },
                experts,
            },
            state_space: None,
            window: None,
            prediction_depths: 0,
            name,
        })
    }

    /// Models of nanotron's benchmark, with dimensions that match the printed number of weights.
    fn llama_like(&self, billions: &str) -> Result<Model, String> {
        let (layers, hidden, heads, width) = match billions {
            "1.34B" => (16, 2048, 32, 8192),
            "3.57B" => (28, 3072, 24, 8192),
            "8.86B" => (32, 4096, 32, 14336),
            "80B" => (80, 8192, 64, 28672),
            _ => return Err(format!("unknown dimensions of `Llama-like {billions}`")),
        };
        let attention = grouped(heads, heads, hidden / heads);
        Ok(self.plain([layers, hidden, 131_072, width], attention, Activation::Swiglu))
    }

    /// `global_parameter_scale` of MaxText alternately doubles widths and layers of the base model.
    fn maxtext_model(&self, billions: &str) -> Result<Model, String> {
        if billions == "52B" {
            let attention = grouped(32, 32, 256);
            return Ok(self.plain([32, 12288, 32_768, 49_152], attention, Activation::Gelu));
        }
        let scale: u32 = billions.trim_end_matches('B').parse().unwrap_or(0);
        if !scale.is_power_of_two() {
            return Err(format!("unknown dimensions of `MaxText-{billions}`"));
        }
        let (base, rest) = (scale.ilog2() / 3, scale.ilog2() % 3);
        let heads = 16 << (base + u32::from(rest > 0));
        let width = 7168 << (base + u32::from(rest > 0));
        let hidden = 2048 << (base + u32::from(rest > 1));
        let attention = grouped(heads, heads, 128);
        Ok(self.plain([16 << base, hidden, 32_768, width], attention, Activation::Swiglu))
    }

    fn plain(
        &self,
        [layers, hidden, vocabulary, width]: [u32; 4],
        attention: Attention,
        activation: Activation,
    ) -> Model {
        Model {
            name: self.text("model").to_owned(),
            source: self.text("source").to_owned(),
            layers,
            hidden,
            vocabulary,
            attention,
            feed_forward: FeedForward { width, activation, experts: None },
            state_space: None,
            window: None,
            prediction_depths: 0,
        }
    }
}

fn grouped(query_heads: u32, key_value_heads: u32, head_size: u32) -> Attention {
    Attention::Grouped { query_heads, key_value_heads, head_size, query_rank: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_cells_hold_quotes_commas_and_line_breaks() {
        let table =
            "id,measured_as,virtual_stages\n\na,\"8 \"\"dense\"\"\nnodes, one rack\",2\nb,,4\n";
        let rows = rows(table);
        let read =
            rows.iter().map(|row| (row.line, ["id", "notes", "vpp"].map(|name| row.text(name))));
        let first = (3, ["a", "8 \"dense\"\nnodes, one rack", "2"]);
        assert_eq!(read.collect::<Vec<_>>(), [first, (5, ["b", "", "4"])]);
    }
}
