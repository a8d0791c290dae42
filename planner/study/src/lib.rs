// SPDX-License-Identifier: Apache-2.0
//! Evaluates designs by their waste under faults and their cost, compares them, and checks the
//! claims of papers.
//!
//! * [`architecture`] contains the designs, one per file.
//! * [`buy`] simulates months of jobs with faults on each design, and computes the cost of useful
//!   work.
//! * [`compare`] compares designs under the same faults by their waste and the largest jobs they
//!   hold.
//! * [`cost`] computes the cost and the power of their interconnect.
//! * [`rfabric`] compares the reconfigurable fat-tree with other designs.
//! * [`reproduce`] recomputes published claims.
//! * [`results`] defines the documents that print these figures.
//!
//! Like the planner, this crate is pure: it uses neither files nor a clock, and a seed determines
//! every figure.

pub mod architecture;
pub mod buy;
pub mod compare;
pub mod cost;
pub mod reproduce;
pub mod results;
pub mod rfabric;
