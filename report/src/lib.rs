// SPDX-License-Identifier: Apache-2.0
//! Renders results as one HTML page, Markdown or CSV ([`page`]), and exports plans to other
//! programs ([`export`]). It does not compute results.

pub mod export;
pub mod page;
