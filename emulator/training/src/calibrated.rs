// SPDX-License-Identifier: Apache-2.0
//! The constants in use. What a chip's kernels and links reach ([`Chip`]) and what a framework's version makes of it
//! ([`Framework`]) are fitted apart, so that a pair that was never measured can be composed of the two. docs/mfu.md says on what.

use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::calibration::{Calibration, ConstantsName, Software};
use super::cards::generation;
use super::network::Efficiency;
use lightloom_collective::Generation;

/// Every chip that constants were fitted on: `chips.csv`, written by the example `fit_training`.
pub static CHIPS: LazyLock<Vec<Chip>> =
    LazyLock::new(|| rows(include_str!("calibrated/chips.csv")));

/// Every framework whose constants come with lightloom: `frameworks.csv`, written by the example `fit_training`.
pub static FRAMEWORKS: LazyLock<Vec<Framework>> =
    LazyLock::new(|| rows(include_str!("calibrated/frameworks.csv")));

/// Every class of which published runs were kept back from the fit: `bands.csv`, written by the test `published_runs`
/// with `LIGHTLOOM_BLESS=1`.
pub static BANDS: LazyLock<Vec<Band>> =
    LazyLock::new(|| rows(include_str!("calibrated/bands.csv")));

/// What the kernels and links of a chip reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    /// Name of its card.
    #[serde(deserialize_with = "word")]
    pub name: &'static str,
    /// The day of the fit.
    #[serde(deserialize_with = "word")]
    pub fitted: &'static str,
    /// Shares of peak of large matrix products in sixteen bits, eight, eight with block scales, and four.
    pub gemm: [f64; 4],
    /// Operations that a matrix product loses to its start and end.
    pub lost_flops: f64,
    /// Share of peak of the fused attention core.
    pub attention: f64,
    /// Share of the memory rate.
    pub memory: f64,
    /// How long its hosts take to launch a kernel, against those of an H100. Not fitted: 0.65 for Grace hosts, which the
    /// rows of GB200 with one sequence a micro-batch ask for.
    pub host: f64,
}

/// What the version of a framework makes of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Framework {
    /// Name and version: `nemo-25.02`.
    #[serde(deserialize_with = "word")]
    pub name: &'static str,
    /// What its constants come from.
    #[serde(deserialize_with = "word")]
    pub origin: &'static str,
    /// The day of the fit.
    #[serde(deserialize_with = "word")]
    pub fitted: &'static str,
    /// Which tricks it uses.
    pub software: Software,
    /// Matrix products against the chip's.
    pub gemm: f64,
    /// Matrix products in eight and four bits, besides.
    pub low: f64,
    /// The attention core against the chip's.
    pub attention: f64,
    /// Element-wise work against the chip's.
    pub memory: f64,
    /// Experts' products against dense ones in sixteen bits.
    pub expert: f64,
    /// The same in eight bits and fewer.
    pub expert_low: f64,
    /// Seconds to launch a dense layer's forward pass.
    pub launch: f64,
    /// Seconds to launch the forward pass of a layer with experts: where the host waits for the routing, where it does
    /// not, and where the exchange of a micro-batch hides behind another.
    pub expert_launch: [f64; 3],
    /// Exposed share of TP exchange inside a domain and through network cards.
    pub tensor_exposed: [f64; 2],
    /// Exposed share of EP exchange inside a domain and through network cards.
    pub expert_exposed: [f64; 2],
    /// Exposed share of steady pipeline transfers.
    pub pipeline_exposed: f64,
    /// Exposed share of DP exchange that is hidden.
    pub data_exposed: f64,
    /// The same with fully sharded states.
    pub gather_exposed: f64,
    /// Growth with each doubling of nodes.
    pub jitter: f64,
    /// Seconds of a step beside all else.
    pub step_seconds: f64,
}

/// How far runs of one class that nothing was fitted on are from what is computed for them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The chip.
    #[serde(deserialize_with = "word")]
    pub chip: &'static str,
    /// The software.
    #[serde(deserialize_with = "word")]
    pub software: &'static str,
    /// Whether the models are mixtures of experts.
    pub is_mixture: bool,
    /// Test runs.
    pub runs: u32,
    /// Mean absolute error of them, as a share.
    pub mean_error: f64,
}

/// The constants of `framework` on `chip`.
#[must_use]
pub fn compose(chip: &Chip, framework: &Framework) -> Calibration {
    let low = framework.gemm * framework.low;
    Calibration {
        name: ConstantsName { chip: chip.name, software: framework.name },
        software: framework.software,
        gemm_efficiency: chip.gemm[0] * framework.gemm,
        gemm_efficiency_fp8: chip.gemm[1] * low,
        gemm_efficiency_mxfp8: chip.gemm[2] * low,
        gemm_efficiency_fp4: chip.gemm[3] * low,
        gemm_lost_flops: chip.lost_flops,
        expert_efficiency: framework.expert,
        expert_efficiency_fp8: framework.expert_low,
        attention_efficiency: chip.attention * framework.attention,
        memory_efficiency: chip.memory * framework.memory,
        launch_seconds: framework.launch * chip.host,
        expert_launch_seconds: framework.expert_launch.map(|seconds| seconds * chip.host),
        tensor_exposed: framework.tensor_exposed[0],
        tensor_exposed_across: framework.tensor_exposed[1],
        expert_exposed: framework.expert_exposed[0],
        expert_exposed_across: framework.expert_exposed[1],
        pipeline_exposed: framework.pipeline_exposed,
        data_exposed: framework.data_exposed,
        gather_exposed: framework.gather_exposed,
        jitter_per_doubling: framework.jitter,
        step_seconds: framework.step_seconds,
        network: Efficiency::of(generation(chip.name).unwrap_or(Generation::Hopper)),
    }
}

impl Framework {
    /// Its name without the version: the versions of Megatron-Bridge share their constants, and features tell them apart.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let bridge = "megatron-bridge";
        if self.name.starts_with(bridge) { bridge } else { self.name }
    }

    /// Whether `software` is a version of it.
    pub(crate) fn is_version(&self, software: &str) -> bool {
        software == self.name || self.family() != self.name && software.starts_with(self.family())
    }
}

impl Chip {
    /// This chip as one called `name` whose best matrix products were measured at `best` of its peaks in sixteen and
    /// eight bits, when this one's were measured at `own`: the shares of peak scale alike.
    #[must_use]
    pub fn adapted(&self, own: [f64; 2], best: [f64; 2]) -> Self {
        let [bf16, low] = [best[0] / own[0], best[1] / own[1]];
        let [a, b, c, d] = self.gemm;
        Self { gemm: [a * bf16, b * low, c * low, d * low], ..*self }
    }
}

/// The rows of a table that comes with lightloom: `a.b` is field `b` of field `a`, blanks part the values of a list.
fn rows<T: Deserialize<'static>>(table: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let columns = reader.headers().expect("a shipped table has a head").clone();
    let records = reader.records().map(|record| record.expect("a shipped table has whole rows"));
    let row = |record: csv::StringRecord| {
        let mut row = Map::new();
        for (column, cell) in columns.iter().zip(&record) {
            let (field, inner) = column.split_once('.').unwrap_or((column, ""));
            if inner.is_empty() {
                row.insert(field.to_owned(), value(cell));
            } else {
                row.entry(field).or_insert_with(|| Map::new().into())[inner] = value(cell);
            }
        }
        T::deserialize(Value::from(row)).expect("a shipped table has the columns of its type")
    };
    records.map(row).collect()
}

/// What a cell says: a number, `true`, a list of numbers, or words.
fn value(cell: &str) -> Value {
    let one = |part| serde_json::from_str::<Value>(part).ok();
    let list = || cell.split(' ').map(one).collect::<Option<Vec<_>>>().map(Value::from);
    one(cell).or_else(list).unwrap_or_else(|| cell.into())
}

/// Words of a table, which is read once and stays.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    String::deserialize(deserializer).map(|word| &*word.leak())
}
