// SPDX-License-Identifier: Apache-2.0
//! Evaluates designs by waste under faults and by cost, and checks the claims of papers.
//!
//! This crate accesses neither files nor a clock, and seeds determine all results.

pub mod architecture;
pub mod buy;
pub mod compare;
pub mod cost;
mod fabric_design;
pub mod reproduce;
pub mod results;
pub mod rfabric;

pub use fabric_design::FabricDesign;
