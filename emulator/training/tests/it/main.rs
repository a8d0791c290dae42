// SPDX-License-Identifier: Apache-2.0
//! What `lightloom-training` promises, in one program: a file a subject, a folder what several of them use.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod calibrate;
mod features;
mod kineto;
mod kineto_truth;
mod published_runs;
