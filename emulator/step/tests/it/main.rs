// SPDX-License-Identifier: Apache-2.0
#![expect(clippy::unwrap_used, reason = "a test may fail so")]

mod both_evaluations;
