// SPDX-License-Identifier: Apache-2.0
//! Renders results: [`page`] produces one self-contained HTML page, Markdown or CSV; [`export`]
//! writes plans for other programs.
//!
//! The input consists of values from the planner and the study, JSON from the emulator and the
//! training model, and the measurements of `lightloom demo --live`. This crate computes nothing
//! that a result does not already contain; the page names missing results.

pub mod export;
pub mod page;
