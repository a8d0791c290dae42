// SPDX-License-Identifier: Apache-2.0
//! Performance per cost of a plan's network. Only the second program contains prices.

use std::path::Path;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::rfabric::phases::Phase;

pub struct PriceComparison {
    pub rows: serde_json::Value,
    pub text: String,
}

/// Reads the shipped prices without a path, and notes the file as an input.
pub type ComparePrices = fn(
    &ReconfigurableFatTree,
    &[Phase],
    Option<&Path>,
    &mut Inputs,
) -> anyhow::Result<PriceComparison>;
