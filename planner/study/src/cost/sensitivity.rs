// SPDX-License-Identifier: Apache-2.0
//! The effect of each price on each design, and whether it changes their order (tornado chart).

use std::collections::BTreeSet;

use serde::Serialize;

use super::{CostFigures, CostOutcome, CostRow, PriceList};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    pub part: String,
    pub unit_usd: [f64; 3],
    pub designs: Vec<PriceSwing>,
    pub order_at_low: Vec<String>,
    pub order_at_high: Vec<String>,
    pub changes_order: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriceSwing {
    pub arch: String,
    pub low_usd: f64,
    pub high_usd: f64,
}

/// Prices are sorted by swing, widest first, and designs are sorted by cost per GB/s.
#[must_use]
pub fn sensitivity(rows: &[CostRow], prices: &PriceList) -> Vec<Sensitivity> {
    let priced: Vec<(&str, &CostFigures)> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            CostOutcome::Priced(figures) => Some((row.arch.as_str(), figures.as_ref())),
            CostOutcome::CannotPrice { .. } => None,
        })
        .collect();
    let parts: BTreeSet<&str> = priced
        .iter()
        .flat_map(|(_, figures)| &figures.bill)
        .map(|line| line.part.as_str())
        .collect();
    let usual = order(&priced, "", 0.0);
    let mut effects: Vec<Sensitivity> =
        parts.into_iter().filter_map(|part| effect(part, &priced, prices, &usual)).collect();
    effects.sort_by(|a, b| widest(b).total_cmp(&widest(a)).then_with(|| a.part.cmp(&b.part)));
    effects
}

fn effect(
    part: &str,
    priced: &[(&str, &CostFigures)],
    prices: &PriceList,
    usual: &[String],
) -> Option<Sensitivity> {
    let usd = &prices.quote(part)?.usd;
    let (down, up) = (usd.low - usd.mean, usd.high - usd.mean);
    let mut designs: Vec<PriceSwing> = priced
        .iter()
        .filter(|(_, figures)| figures.bill.iter().any(|line| line.part == part))
        .map(|(arch, figures)| PriceSwing {
            arch: (*arch).to_owned(),
            low_usd: per_gbytes_per_s(figures, part, down),
            high_usd: per_gbytes_per_s(figures, part, up),
        })
        .collect();
    designs.sort_by(|a, b| swing(b).total_cmp(&swing(a)));
    let (order_at_low, order_at_high) = (order(priced, part, down), order(priced, part, up));
    let changes_order = order_at_low != usual || order_at_high != usual;
    let unit_usd = [usd.low, usd.mean, usd.high];
    Some(Sensitivity {
        part: part.to_owned(),
        unit_usd,
        designs,
        order_at_low,
        order_at_high,
        changes_order,
    })
}

fn per_gbytes_per_s(figures: &CostFigures, part: &str, change_usd: f64) -> f64 {
    let count: f64 =
        figures.bill.iter().filter(|line| line.part == part).map(|line| line.count_per_gpu).sum();
    (figures.cost_per_gpu_usd + count * change_usd) / figures.gbytes_per_s_per_gpu
}

fn order(priced: &[(&str, &CostFigures)], part: &str, change_usd: f64) -> Vec<String> {
    let mut order: Vec<(f64, &str)> = priced
        .iter()
        .map(|(arch, figures)| (per_gbytes_per_s(figures, part, change_usd), *arch))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
    order.into_iter().map(|(_, arch)| arch.to_owned()).collect()
}

fn swing(of: &PriceSwing) -> f64 {
    of.high_usd - of.low_usd
}

fn widest(of: &Sensitivity) -> f64 {
    of.designs.first().map_or(0.0, swing)
}
