// SPDX-License-Identifier: Apache-2.0
//! Renders results as one HTML page, Markdown or CSV ([`page`]), and exports plans to other
//! programs ([`export`]). It does not compute results, which come from the planner, the emulator,
//! the training model and `lightloom demo --live`. The page lists missing results.

pub mod export;
pub mod page;
