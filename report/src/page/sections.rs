// SPDX-License-Identifier: Apache-2.0

pub(super) mod bill;
pub(super) mod buy;
pub(super) mod cost;
pub(super) mod fabric;
pub(super) mod run;
pub(super) mod steps;
pub(super) mod waste;
