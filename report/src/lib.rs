// SPDX-License-Identifier: Apache-2.0
//! Renders results and computes none: [`page`] for people, [`export`] for other programs.

pub mod export;
pub mod page;
