// SPDX-License-Identifier: Apache-2.0
//! The shipped calibration constants.
//!
//! [`Chip`] contains the efficiency of a chip's kernels and links, and [`Framework`] contains the
//! effect of a software version. They are fitted separately, so that [`compose`] can combine pairs
//! that were never measured. docs/mfu.md lists the runs used.

use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::calibration::{Calibration, ConstantsName, Software};
use super::cards::generation;
use super::network::Efficiency;
use lightloom_collective::Generation;

/// From `chips.csv`, which the test `fit_again` writes.
pub static CHIPS: LazyLock<Vec<Chip>> =
    LazyLock::new(|| rows(include_str!("calibrated/chips.csv")));

pub static FRAMEWORKS: LazyLock<Vec<Framework>> =
    LazyLock::new(|| rows(include_str!("calibrated/frameworks.csv")));

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    #[serde(deserialize_with = "word")]
    pub name: &'static str,
    #[serde(deserialize_with = "word")]
    pub fitted: &'static str,
    /// Share of peak for large matrix products: 16 bits, 8 bits, 8 bits with block scales, 4 bits.
    pub gemm: [f64; 4],
    /// Operations lost to ramp-up and tail per matrix product.
    pub lost_flops: f64,
    pub attention: f64,
    pub memory: f64,
    /// Kernel launch time relative to the host of an H100. The value of 0.65 for Grace hosts is not
    /// fitted, but taken from GB200 rows with one sequence per micro-batch.
    pub host: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Framework {
    #[serde(deserialize_with = "word")]
    pub name: &'static str,
    #[serde(deserialize_with = "word")]
    pub origin: &'static str,
    #[serde(deserialize_with = "word")]
    pub fitted: &'static str,
    pub software: Software,
    /// Efficiency of matrix products relative to the chip's value.
    pub gemm: f64,
    /// Additional factor for matrix products with eight or four bits.
    pub low: f64,
    pub attention: f64,
    pub memory: f64,
    /// Efficiency of expert products relative to dense products, with 16 bits.
    pub expert: f64,
    /// Efficiency of expert products relative to dense products, with 8 bits or fewer.
    pub expert_low: f64,
    /// Seconds to launch the forward pass of a dense layer.
    pub launch: f64,
    /// Seconds to launch the forward pass of an expert layer: if the host waits for the routing, if
    /// it does not, and if communication overlaps another micro-batch.
    pub expert_launch: [f64; 3],
    /// Exposed share of TP communication, within a domain and over network cards.
    pub tensor_exposed: [f64; 2],
    /// Exposed share of EP communication, within a domain and over network cards.
    pub expert_exposed: [f64; 2],
    pub pipeline_exposed: f64,
    pub data_exposed: f64,
    /// Exposed share of DP communication with fully sharded states.
    pub gather_exposed: f64,
    pub jitter: f64,
    /// Seconds to launch the optimizer of a layer.
    pub optimizer_launch: f64,
}

pub fn compose(chip: &Chip, framework: &Framework) -> Calibration {
    let low = framework.gemm * framework.low;
    let [bf16, fp8, mxfp8, fp4] = chip.gemm;
    Calibration {
        name: ConstantsName { chip: chip.name, software: framework.name },
        software: framework.software,
        gemm_efficiency: [bf16 * framework.gemm, fp8 * low, mxfp8 * low, fp4 * low],
        gemm_lost_flops: chip.lost_flops,
        expert_efficiency: framework.expert,
        expert_efficiency_fp8: framework.expert_low,
        attention_efficiency: chip.attention * framework.attention,
        memory_efficiency: chip.memory * framework.memory,
        launch_seconds: framework.launch * chip.host,
        expert_launch_seconds: framework.expert_launch.map(|seconds| seconds * chip.host),
        tensor_exposed: framework.tensor_exposed,
        expert_exposed: framework.expert_exposed,
        pipeline_exposed: framework.pipeline_exposed,
        data_exposed: framework.data_exposed,
        gather_exposed: framework.gather_exposed,
        jitter_per_doubling: framework.jitter,
        optimizer_launch_seconds: framework.optimizer_launch * chip.host,
        network: Efficiency::of(generation(chip.name).unwrap_or(Generation::Hopper)),
    }
}

impl Chip {
    /// Scales the shares of peak to another chip by the best measured matrix-product efficiencies
    /// with 16 and 8 bits: `own` of this chip, `best` of the other.
    pub fn adapted(&self, own: [f64; 2], best: [f64; 2]) -> Self {
        let [bf16, low] = [best[0] / own[0], best[1] / own[1]];
        let [a, b, c, d] = self.gemm;
        Self { gemm: [a * bf16, b * low, c * low, d * low], ..*self }
    }
}

/// Column `a.b` is field `b` of field `a`; list values are separated by blanks.
fn rows<T: Deserialize<'static>>(table: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let columns = reader.headers().expect("a shipped table has a header").clone();
    let records = reader.records().map(|record| record.expect("a shipped table has complete rows"));
    let rows = records.map(|record| {
        let mut row = Map::new();
        for (column, cell) in columns.iter().zip(&record) {
            let (field, inner) = column.split_once('.').unwrap_or((column, ""));
            if inner.is_empty() {
                row.insert(field.to_owned(), value(cell));
            } else {
                row.entry(field).or_insert_with(|| Map::new().into())[inner] = value(cell);
            }
        }
        T::deserialize(Value::from(row)).expect("a shipped table matches its type")
    });
    rows.collect()
}

fn value(cell: &str) -> Value {
    if let Ok(one) = serde_json::from_str(cell) {
        return one;
    }
    let list: Result<Vec<Value>, _> = cell.split(' ').map(serde_json::from_str).collect();
    list.map_or_else(|_| cell.into(), Value::from)
}

/// Leaks the text: the tables live as long as the process.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    String::deserialize(deserializer).map(|word| &*word.leak())
}
