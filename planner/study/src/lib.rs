// SPDX-License-Identifier: Apache-2.0
//! Evaluates designs: their waste under faults, their cost, their comparison, and the claims of
//! papers.
//!
//! * [`architecture`] contains the designs, one file each.
//! * [`buy`] simulates months of jobs over faults on each design, and computes the cost of the
//!   useful work.
//! * [`compare`] compares the waste of designs under the same faults, and the largest jobs they
//!   carry.
//! * [`cost`] computes cost and power of their interconnect.
//! * [`rfabric`] compares the reconfigurable fat-tree with other designs.
//! * [`reproduce`] recomputes published claims.
//! * [`results`] defines the documents that print these figures.
//!
//! Like the planner it is pure: it uses no files and no clock, and a seed determines every figure.

pub mod architecture;
pub mod buy;
pub mod compare;
pub mod cost;
pub mod reproduce;
pub mod results;
pub mod rfabric;
