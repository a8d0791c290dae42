// SPDX-License-Identifier: Apache-2.0
//! The cost of a plan's network. Only the second program contains prices.

use std::convert::Infallible;
use std::path::Path;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::rfabric::phases::Phase;
use serde::Serialize;

use crate::second::Needed;

pub trait Pricing {
    type Prices;
    type Rows: Serialize;

    /// Reads the shipped prices if `path` is `None`. Records the file as an input of the result.
    fn read(&self, path: Option<&Path>, inputs: &mut Inputs) -> anyhow::Result<Self::Prices>;

    /// Dollars per GPU, or `None` if a price is missing.
    fn per_gpu(&self, network: &ReconfigurableFatTree, prices: &Self::Prices) -> Option<f64>;

    fn sensitivity(
        &self,
        network: &ReconfigurableFatTree,
        phases: &[Phase],
        prices: &Self::Prices,
    ) -> anyhow::Result<Self::Rows>;

    fn text(&self, rows: &Self::Rows) -> String;
}

/// A placeholder in the first program, because every use of prices requires the second program.
pub(crate) struct LabPrices;

impl Pricing for LabPrices {
    type Prices = Infallible;
    type Rows = ();

    fn read(&self, _: Option<&Path>, _: &mut Inputs) -> anyhow::Result<Infallible> {
        Err(Needed.into())
    }

    fn per_gpu(&self, _: &ReconfigurableFatTree, prices: &Infallible) -> Option<f64> {
        match *prices {}
    }

    fn sensitivity(
        &self,
        _: &ReconfigurableFatTree,
        _: &[Phase],
        prices: &Infallible,
    ) -> anyhow::Result<()> {
        match *prices {}
    }

    fn text(&self, (): &()) -> String {
        String::new()
    }
}
