// SPDX-License-Identifier: Apache-2.0
//! Compares the reconfigurable fat-tree with other designs ([`baselines`]) and with the claims of papers ([`claims`]).

pub mod baselines;
pub mod claims;
