//! Published steps, as cases that the model can be held against.
//!
//! The table of published measurements is text in, cases out; nothing of a row is used but its dimensions,
//! mapping and hardware. Half of the rows of each source, drawn by [`SPLIT_SEED`], fit constants; the other
//! half only judges them.

use rand::seq::SliceRandom;

use lightloom_units::seed::Seed;

use super::calibrated::{
    A100_MEGATRON_DEEPSPEED, A100_MEGATRON_LM_2022, H100_LLAMA_3, H100_NEMO_25_02,
};
use super::calibration::{Calibration, Precision};
use super::cards;
use super::mapping::{Batch, Mapping, Recompute};
use super::mfu::Convention;
use super::model::{Activation, Attention, Experts, FeedForward, Model};
use super::network::{Network, Shape};
use super::schedule::Schedule;
use super::step::{Compute, Job, StepTime, step_time};

/// The seed that draws the rows that constants are fitted on.
pub const SPLIT_SEED: Seed = Seed(2026);

/// A family of published rows, judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// 55 iterations on A100 in the vTrain repository.
    VTrain,
    /// Korthikanti et al. 2022, table 5.
    Korthikanti,
    /// NVIDIA DGX Cloud recipes, Llama 3 and 3.1.
    DgxCloudLlama,
    /// NVIDIA DGX Cloud recipes, Grok-1.
    DgxCloudGrok,
    /// Llama 3 paper, table 4.
    Llama3,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::VTrain, Self::Korthikanti, Self::DgxCloudLlama, Self::DgxCloudGrok, Self::Llama3];

    /// Name and citation.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::VTrain => "vTrain repository, ground_truth_multi.csv",
            Self::Korthikanti => "Korthikanti et al. 2022, table 5",
            Self::DgxCloudLlama => "NVIDIA DGX Cloud recipes v25.03, Llama 3 and 3.1",
            Self::DgxCloudGrok => "NVIDIA DGX Cloud recipes v25.03, Grok-1",
            Self::Llama3 => "Llama 3 paper (arXiv 2407.21783), table 4",
        }
    }

    /// The mean absolute error to reach.
    #[must_use]
    pub fn target(self) -> f64 {
        if self == Self::VTrain { 0.08 } else { 0.03 }
    }

    /// The constants that its rows are computed with.
    #[must_use]
    pub fn calibration(self) -> &'static Calibration {
        match self {
            Self::VTrain => &A100_MEGATRON_DEEPSPEED,
            Self::Korthikanti => &A100_MEGATRON_LM_2022,
            Self::DgxCloudLlama | Self::DgxCloudGrok => &H100_NEMO_25_02,
            Self::Llama3 => &H100_LLAMA_3,
        }
    }

    fn of(text: &str) -> Option<Self> {
        [
            ("vTrain", Self::VTrain),
            ("Korthikanti", Self::Korthikanti),
            ("llama3.1/README", Self::DgxCloudLlama),
            ("grok1/README", Self::DgxCloudGrok),
            ("Llama 3 paper", Self::Llama3),
        ]
        .into_iter()
        .find(|(part, _)| text.contains(part))
        .map(|(_, source)| source)
    }
}

/// One published step.
#[derive(Clone, Debug)]
pub struct Case {
    /// Row id in the table.
    pub id: String,
    /// Where it was published.
    pub source: Source,
    /// Dimensions of what was trained.
    pub model: Model,
    /// How it was cut.
    pub mapping: Mapping,
    /// The work of a step.
    pub batch: Batch,
    /// The GPU.
    pub compute: Compute,
    /// What joined the GPUs.
    pub network: Network,
    /// Number format.
    pub precision: Precision,
    /// What was measured. Where only a rate was published, converted with causal attention.
    pub measured_seconds: f64,
    /// Whether constants were fitted on it.
    pub is_fitted: bool,
}

impl Case {
    /// The step as the model sees it.
    #[must_use]
    pub fn predict(&self, calibration: &Calibration) -> StepTime {
        step_time(&Job {
            model: &self.model,
            mapping: self.mapping,
            batch: self.batch,
            compute: &self.compute,
            network: &self.network,
            calibration,
            precision: self.precision,
            expert_imbalance: 0.0,
        })
    }

    /// Peak operations per second in the number format of the row.
    #[must_use]
    pub fn peak_flops(&self) -> f64 {
        match self.precision {
            Precision::Bf16 => self.compute.peak_flops,
            Precision::Fp8 => self.compute.peak_flops_fp8,
        }
    }

    /// `(ours − measured) / measured`.
    #[must_use]
    pub fn error(&self, calibration: &Calibration) -> f64 {
        self.predict(calibration).step_seconds / self.measured_seconds - 1.0
    }
}

/// Mean and largest absolute error of some cases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Cases.
    pub count: usize,
    /// Mean absolute relative error.
    pub mean: f64,
    /// Largest absolute relative error.
    pub max: f64,
}

impl Errors {
    /// Of relative errors.
    pub fn of(errors: impl Iterator<Item = f64>) -> Self {
        let mut all = Self::default();
        for error in errors.map(f64::abs) {
            all = Self { count: all.count + 1, mean: all.mean + error, max: all.max.max(error) };
        }
        all.mean /= all.count.max(1) as f64;
        all
    }
}

/// The cases of a table of published measurements; rows of other sources are passed over.
///
/// # Panics
/// If a row of a known source lacks a number that it must have: the table is data of the tests.
#[must_use]
pub fn cases(table: &str) -> Vec<Case> {
    let mut lines = table.lines();
    let header = split_line(lines.next().unwrap_or_default());
    let mut cases: Vec<Case> =
        lines.filter_map(|line| Row { header: &header, cells: split_line(line) }.case()).collect();
    for source in Source::ALL {
        let mut rows: Vec<usize> =
            (0..cases.len()).filter(|row| cases[*row].source == source).collect();
        rows.shuffle(&mut SPLIT_SEED.stream("rows to fit on", source as u64));
        rows.truncate(rows.len().div_ceil(2));
        for row in rows {
            cases[row].is_fitted = true;
        }
    }
    cases
}

/// The cells of a line of comma-separated values, quotes taken off.
fn split_line(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            _ => cells.last_mut().expect("there is always a last cell").push(character),
        }
    }
    cells
}

struct Row<'a> {
    header: &'a [String],
    cells: Vec<String>,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        let index = self.header.iter().position(|name| name == column);
        index.and_then(|index| self.cells.get(index)).map_or("", String::as_str)
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    fn count(&self, column: &str) -> u32 {
        self.text(column).parse().unwrap_or(1)
    }

    fn case(&self) -> Option<Case> {
        let source = Source::of(self.text("source"))?;
        let model = self.model();
        let batch =
            Batch { sequences: self.count("gbs_seqs").into(), tokens: self.count("seq").into() };
        let card = if self.text("accelerator").starts_with("A100") { "a100" } else { "h100" };
        let card = cards::accelerator(card).expect("the card is shipped");
        let scale_out_rate = match source {
            // The repository's configurations give 800 Gb/s to a node of eight.
            Source::VTrain => 12.5e9,
            _ => card.scale_out_rate.0.bytes_per_second(),
        };
        let network = Network {
            name: "published".into(),
            shape: Shape::Switch,
            domain_gpus: card.domain_gpus,
            domain_rate: card.scale_up_rate.0.bytes_per_second(),
            scale_out_rate,
        };
        let precision =
            if self.text("precision") == "fp8" { Precision::Fp8 } else { Precision::Bf16 };
        let measured_seconds = self.number("step_time_s").unwrap_or_else(|| {
            let flops = Convention::MfuCausal.step_flops(&model, batch, Recompute::None);
            let tera = self.number("tflops_per_accel").expect("a row has a time or a rate");
            flops / (tera * 1e12 * f64::from(self.count("num_accel")))
        });
        let mapping = self.mapping(source, &model);
        let compute = card.compute();
        Some(Case {
            id: self.text("id").to_owned(),
            source,
            model,
            mapping,
            batch,
            compute,
            network,
            precision,
            measured_seconds,
            is_fitted: false,
        })
    }

    fn mapping(&self, source: Source, model: &Model) -> Mapping {
        let recompute = match self.text("recompute") {
            "full" => Recompute::Full,
            text if text.starts_with("selective") => Recompute::Selective,
            _ => Recompute::None,
        };
        let pipeline = self.count("pp");
        // The Llama 3 paper does not print its virtual stages: one layer a piece.
        let virtual_stages = match source {
            Source::Llama3 => (model.layers + 2) / pipeline,
            _ => self.count("vpp"),
        };
        Mapping {
            tensor: self.count("tp"),
            context: self.count("cp"),
            pipeline,
            data: self.count("dp"),
            expert: self.count("ep"),
            micro_batch: self.count("mbs"),
            virtual_stages,
            recompute,
            schedule: Schedule::OneForwardOneBackward,
        }
    }

    fn model(&self) -> Model {
        let name = self.text("model").to_owned();
        let is_swiglu = name.starts_with("llama") || name.starts_with("grok");
        let heads = self.count("heads");
        let key_value_heads = self.number("kv_heads").map_or(heads, |_| self.count("kv_heads"));
        let experts = self.number("experts").map(|_| Experts {
            count: self.count("experts"),
            top_k: self.count("topk"),
            width: self.count("moe_ffn"),
            shared_width: 0,
            dense_layers: 0,
        });
        Model {
            source: self.text("source").to_owned(),
            layers: self.count("layers"),
            hidden: self.count("hidden"),
            vocabulary: self.count("vocab"),
            attention: Attention::Grouped {
                query_heads: heads,
                key_value_heads,
                head_size: self.count("hidden") / heads,
                query_rank: None,
            },
            feed_forward: FeedForward {
                width: self
                    .number("ffn")
                    .map_or_else(|| self.count("moe_ffn"), |_| self.count("ffn")),
                activation: if is_swiglu { Activation::Swiglu } else { Activation::Gelu },
                experts,
            },
            prediction_depths: 0,
            name,
        }
    }
}
