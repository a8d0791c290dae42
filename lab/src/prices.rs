// SPDX-License-Identifier: Apache-2.0
//! Performance per cost of a reconfigurable fat-tree, for `lightloom plan --sensitivity`.

use std::path::Path;

use anyhow::Context;
use lightloom::plan::PriceComparison;
use lightloom::table::TextTable;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_study::cost::Level;
use lightloom_study::rfabric::claims::{self, Comparison};

use crate::cost;

pub(crate) fn compare(
    network: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: Option<&Path>,
    inputs: &mut Inputs,
) -> anyhow::Result<PriceComparison> {
    let prices = cost::prices(prices, inputs)?;
    let rows = claims::sensitivity(network, phases, &prices).context(
        "the price file must contain a network card, switch port, module and `ocs-port`",
    )?;
    Ok(PriceComparison { rows: serde_json::to_value(&rows)?, text: sensitivity_text(&rows) })
}

fn sensitivity_text(rows: &[Comparison]) -> String {
    let mut table = TextTable::new([
        "baseline",
        "core",
        "100G",
        "200G",
        "400G",
        "800G",
        "400G, cheap OCS",
        "400G, dear OCS",
        "400G, half",
        "400G, a fifth",
    ]);
    for first in rows.iter().filter(|row| {
        row.nic_gbps == 100 && row.ocs_price == Level::Mean && row.communication_share > 0.99
    }) {
        let mean = Level::Mean;
        let columns = [
            (100, mean, 1.0),
            (200, mean, 1.0),
            (400, mean, 1.0),
            (800, mean, 1.0),
            (400, Level::Low, 1.0),
            (400, Level::High, 1.0),
            (400, mean, 0.5),
            (400, mean, 0.2),
        ];
        let cells = columns.map(|(gbps, price, share): (u32, Level, f64)| {
            rows.iter()
                .find(|row| {
                    row.baseline == first.baseline
                        && (row.core_oversubscription - first.core_oversubscription).abs() < 1e-9
                        && row.nic_gbps == gbps
                        && row.ocs_price == price
                        && (row.communication_share - share).abs() < 1e-9
                })
                .map_or("-".to_owned(), |row| format!("{:.2}", row.performance_per_cost))
        });
        let labels = [first.baseline.to_owned(), format!("{}:1", first.core_oversubscription)];
        table.row(labels.into_iter().chain(cells));
    }
    format!(
        "\nPerformance per cost, this fabric ÷ baseline, for a step with only communication \
            (or with half or a fifth of it); `core` is the oversubscription of this fabric's packet core:\n\n{table}"
    )
}
