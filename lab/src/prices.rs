// SPDX-License-Identifier: Apache-2.0
//! The price of a reconfigurable fat-tree, for `lightloom plan`.

use std::path::Path;

use anyhow::Context;
use lightloom::plan::pricing::Pricing;
use lightloom::table::TextTable;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_study::architecture::NicRate;
use lightloom_study::cost::PriceList;
use lightloom_study::rfabric::baselines::{OcsPrice, Parts};
use lightloom_study::rfabric::claims::{self, Comparison};

use crate::cost;

pub(crate) struct Prices;

impl Pricing for Prices {
    type Prices = PriceList;
    type Rows = Vec<Comparison>;

    fn read(&self, path: Option<&Path>, inputs: &mut Inputs) -> anyhow::Result<PriceList> {
        cost::prices(path, inputs)
    }

    fn per_gpu(&self, network: &ReconfigurableFatTree, prices: &PriceList) -> Option<f64> {
        cost_per_gpu(network, prices)
    }

    fn sensitivity(
        &self,
        network: &ReconfigurableFatTree,
        phases: &[Phase],
        prices: &PriceList,
    ) -> anyhow::Result<Vec<Comparison>> {
        claims::sensitivity(network, phases, prices).context(
            "the price file must contain a network card, switch port, module and `ocs-port`",
        )
    }

    fn text(&self, rows: &Vec<Comparison>) -> String {
        sensitivity_text(rows)
    }
}

/// Returns the mean cost, including the network card. `None` if a price is not known.
pub(crate) fn cost_per_gpu(network: &ReconfigurableFatTree, prices: &PriceList) -> Option<f64> {
    let gbps = network.spec().gpu_rate.0 / 1_000_000_000;
    let nic = NicRate::ALL.into_iter().find(|nic| u64::from(nic.gbps()) == gbps)?;
    Parts::of(network).dollars(prices, nic, OcsPrice::Mean)
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
        row.nic_gbps == 100 && row.ocs_price == OcsPrice::Mean && row.communication_share > 0.99
    }) {
        let cell = |gbps: u32, price: OcsPrice, share: f64| {
            rows.iter()
                .find(|row| {
                    row.baseline == first.baseline
                        && (row.core_oversubscription - first.core_oversubscription).abs() < 1e-9
                        && row.nic_gbps == gbps
                        && row.ocs_price == price
                        && (row.communication_share - share).abs() < 1e-9
                })
                .map_or("-".to_owned(), |row| format!("{:.2}", row.performance_per_cost))
        };
        let mean = OcsPrice::Mean;
        table.row([
            first.baseline.to_owned(),
            format!("{}:1", first.core_oversubscription),
            cell(100, mean, 1.0),
            cell(200, mean, 1.0),
            cell(400, mean, 1.0),
            cell(800, mean, 1.0),
            cell(400, OcsPrice::Low, 1.0),
            cell(400, OcsPrice::High, 1.0),
            cell(400, mean, 0.5),
            cell(400, mean, 0.2),
        ]);
    }
    format!(
        "\nPerformance per cost, this fabric ÷ baseline, for a step with only communication \
            (or with half or a fifth of it); `core` is the oversubscription of this fabric's packet core:\n\n{table}"
    )
}
