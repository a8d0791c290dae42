// SPDX-License-Identifier: Apache-2.0
//! The reconfigurable fat-tree beside other designs: [`baselines`] is what it is compared with, [`claims`] what papers
//! claim of it.

pub mod baselines;
pub mod claims;
