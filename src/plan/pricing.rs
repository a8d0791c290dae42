// SPDX-License-Identifier: Apache-2.0
//! What the network of a plan costs: prices are in the second program.

use std::convert::Infallible;
use std::path::Path;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::rfabric::phases::Phase;
use serde::Serialize;

use crate::second::Needed;

/// What networks with optical switches cost, beside what else could be bought.
pub trait Pricing {
    /// Prices of all parts.
    type Prices;
    /// Performance per cost against every baseline.
    type Rows: Serialize;

    /// Reads prices, those that ship with the program without a `path`, and notes them among the inputs of the result.
    ///
    /// # Errors
    /// If the file cannot be read or has mistakes.
    fn read(&self, path: Option<&Path>, inputs: &mut Inputs) -> anyhow::Result<Self::Prices>;

    /// What the network costs for one GPU, in dollars; `None` where the prices lack a part.
    fn per_gpu(&self, network: &ReconfigurableFatTree, prices: &Self::Prices) -> Option<f64>;

    /// Performance per cost for the traffic of these phases.
    ///
    /// # Errors
    /// If the prices lack a part.
    fn sensitivity(
        &self,
        network: &ReconfigurableFatTree,
        phases: &[Phase],
        prices: &Self::Prices,
    ) -> anyhow::Result<Self::Rows>;

    /// The same for people.
    fn text(&self, rows: &Self::Rows) -> String;
}

/// Prices, which are in the second program.
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
