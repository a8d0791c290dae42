// SPDX-License-Identifier: Apache-2.0
//! Renders results: [`page`] is one self-contained HTML page for people, [`export`] writes plans for other programs.
//!
//! Results come in as values of the planner and the study, and as the JSON of the emulator and of the training model.
//! Nothing is computed here that a result does not hold; what is missing is named in the page.

pub mod export;
pub mod page;
