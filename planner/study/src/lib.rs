// SPDX-License-Identifier: Apache-2.0
//! From designs to figures: what they waste under faults, what they cost, how they compare, what papers claim.
//!
//! * [`architecture`] – the designs, one file each;
//! * [`buy`] – months of jobs over faults on each, and the cost of what is useful of them;
//! * [`compare`] – what they waste under the same faults, and the largest jobs they carry;
//! * [`cost`] – what their interconnect costs and draws;
//! * [`rfabric`] – the reconfigurable fat-tree beside what it is compared with;
//! * [`reproduce`] – published claims, recomputed;
//! * [`results`] – the documents that these figures are printed as.
//!
//! Like the planner it is pure: no file, no clock, one seed one figure.

pub mod architecture;
pub mod buy;
pub mod compare;
pub mod cost;
pub mod reproduce;
pub mod results;
pub mod rfabric;
