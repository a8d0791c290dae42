// SPDX-License-Identifier: Apache-2.0
//! What this crate promises to others.
#![expect(clippy::unwrap_used, reason = "a test may fail so")]

mod both_evaluations;
