// SPDX-License-Identifier: Apache-2.0
//! Renders results: [`page`] produces one self-contained HTML page, Markdown or CSV; [`export`]
//! writes plans for other programs.
//!
//! Its input is values of the planner and the study, the JSON of the emulator and the training
//! model, and the measurements of `lightloom demo --live`. It computes nothing that a result does
//! not contain; the page names missing results.

pub mod export;
pub mod page;
