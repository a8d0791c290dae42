// SPDX-License-Identifier: Apache-2.0
//! Cost and power of a design from its bill of materials and a price file.

mod aggregate;
mod prices;
mod purchase;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::architecture::{Architecture, Bill, BillLine, Site};

pub use aggregate::{
    Aggregate, AggregatePoint, AggregateQuestion, aggregate, aggregate_of, cost_per_usable_gpu,
};
pub use prices::{Confidence, PriceFile, PriceList, PriceRecord, QuoteRecord, Spread, read_prices};
pub(crate) use purchase::parts_of;
pub use purchase::{Purchase, purchase};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Low,
    Mean,
    High,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    pub arch: String,
    #[serde(flatten)]
    pub outcome: CostOutcome,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CostOutcome {
    Priced(Box<CostFigures>),
    CannotPrice { cannot_price: String },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostFigures {
    pub basis: String,
    pub gbytes_per_s_per_gpu: f64,
    pub cost_per_gpu_usd: f64,
    pub cost_per_gpu_low_usd: f64,
    pub cost_per_gpu_high_usd: f64,
    pub cost_per_gbytes_per_s_usd: f64,
    pub power_per_gpu_w: Option<f64>,
    pub power_per_gbytes_per_s_w: Option<f64>,
    pub parts_without_watts: Vec<String>,
    pub confidence: Confidence,
    pub bill: Vec<PricedLine>,
}

/// A line of a bill. Its prices are `None` if the price file lacks the part, which is then not in the total.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PricedLine {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    pub part: String,
    pub count: f64,
    pub count_per_gpu: f64,
    pub formula: String,
    pub unit_usd: Option<f64>,
    pub unit_w: Option<f64>,
    pub usd: Option<f64>,
    pub usd_per_gpu: Option<f64>,
    pub confidence: Option<Confidence>,
    pub date: Option<String>,
    pub source: Option<String>,
}

impl PricedLine {
    fn new(line: &BillLine, gpus: f64, prices: &PriceList) -> Self {
        let quote = prices.quote(&line.part);
        // Counts of a fabric are divided by its GPUs first.
        let count = (line.count_per_gpu * gpus * 1e6).round() / 1e6;
        Self {
            place: line.place.clone(),
            part: line.part.clone(),
            count,
            count_per_gpu: line.count_per_gpu,
            formula: line.formula.clone(),
            unit_usd: quote.map(|quote| quote.usd.mean),
            unit_w: quote.and_then(|quote| quote.watts.as_ref()).map(|watts| watts.mean),
            usd: quote.map(|quote| (count * quote.usd.mean * 100.0).round() / 100.0),
            usd_per_gpu: quote.map(|quote| line.count_per_gpu * quote.usd.mean),
            confidence: quote.map(|quote| quote.usd.confidence),
            date: quote.map(|quote| quote.usd.date.clone()),
            source: quote.map(|quote| quote.usd.source.clone()),
        }
    }

    pub fn watts(&self) -> Option<f64> {
        self.unit_w.map(|watts| self.count * watts)
    }
}

fn usd_at(lines: &[PricedLine], level: Level, prices: &PriceList) -> f64 {
    let priced = lines.iter().filter_map(|line| Some((line, prices.quote(&line.part)?)));
    priced.map(|(line, quote)| line.count * quote.usd.at(level)).sum()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the price file lacks {}", self.describe())]
pub struct MissingPrices(pub BTreeMap<String, Vec<String>>);

impl MissingPrices {
    fn describe(&self) -> String {
        let parts = self.0.iter();
        parts
            .map(|(part, designs)| format!("`{part}`, needed by {}", designs.join(" and ")))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Fails with a list of all parts without a price and of the designs that need them.
pub fn cost(
    designs: &[Box<dyn Architecture>],
    site: &Site,
    prices: &PriceList,
) -> Result<Vec<CostRow>, MissingPrices> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows = Vec::with_capacity(designs.len());
    for design in designs {
        match cost_of_one(design.as_ref(), site, prices) {
            Ok(outcome) => rows.push(CostRow { arch: design.name(), outcome }),
            Err(MissingPrices(lacking)) => {
                for (part, designs) in lacking {
                    missing.entry(part).or_default().extend(designs);
                }
            }
        }
    }
    if missing.is_empty() { Ok(rows) } else { Err(MissingPrices(missing)) }
}

pub fn cost_of_one(
    design: &dyn Architecture,
    site: &Site,
    prices: &PriceList,
) -> Result<CostOutcome, MissingPrices> {
    let bill = match design.bill(site) {
        Err(reason) => return Ok(CostOutcome::CannotPrice { cannot_price: reason.to_string() }),
        Ok(bill) => bill,
    };
    let lacking = bill.lines.iter().filter(|line| prices.quote(&line.part).is_none());
    let missing: BTreeMap<String, Vec<String>> =
        lacking.map(|line| (line.part.clone(), vec![design.name()])).collect();
    match missing.is_empty() {
        true => Ok(CostOutcome::Priced(Box::new(figures(&bill, site, prices)))),
        false => Err(MissingPrices(missing)),
    }
}

fn figures(bill: &Bill, site: &Site, prices: &PriceList) -> CostFigures {
    let gpus = f64::from(site.gpus);
    let lines: Vec<PricedLine> =
        bill.lines.iter().map(|line| PricedLine::new(line, gpus, prices)).collect();
    let cost = lines.iter().filter_map(|line| line.usd_per_gpu).sum::<f64>();
    let [low, high] = [Level::Low, Level::High].map(|level| usd_at(&lines, level, prices) / gpus);
    let power: Option<f64> =
        lines.iter().map(|line| line.unit_w.map(|watts| watts * line.count_per_gpu)).sum();
    let bandwidth = bill.gbytes_per_s_per_gpu;
    CostFigures {
        basis: bill.basis.clone(),
        gbytes_per_s_per_gpu: bandwidth,
        cost_per_gpu_usd: cost,
        cost_per_gpu_low_usd: low,
        cost_per_gpu_high_usd: high,
        cost_per_gbytes_per_s_usd: cost / bandwidth,
        power_per_gpu_w: power,
        power_per_gbytes_per_s_w: power.map(|power| power / bandwidth),
        parts_without_watts: parts(lines.iter().filter(|line| line.unit_w.is_none())),
        confidence: lines
            .iter()
            .filter_map(|line| line.confidence)
            .max()
            .unwrap_or(Confidence::Read),
        bill: lines,
    }
}

fn parts<'a>(lines: impl Iterator<Item = &'a PricedLine>) -> Vec<String> {
    let parts: BTreeSet<&String> = lines.map(|line| &line.part).collect();
    parts.into_iter().cloned().collect()
}
