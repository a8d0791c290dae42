// SPDX-License-Identifier: Apache-2.0
//! Tests of the public interface.
#![expect(clippy::unwrap_used, reason = "a test may fail so")]

mod both_evaluations;
