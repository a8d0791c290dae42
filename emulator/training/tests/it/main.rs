// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-training` in one binary, with one module per subject.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod calibrate;
mod collectives;
mod exchanges;
mod features;
mod fit_again;
mod kineto;
mod kineto_truth;
mod one_gpu;
mod published_runs;
mod rl_rows;
mod serving_rows;
mod step_operators;
