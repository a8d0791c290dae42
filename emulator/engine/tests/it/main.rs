// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-engine`: one file per subject, one folder per shared helper.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod capture;
mod collectives;
mod conformance;
mod credit_and_choice;
mod dark_path;
mod dcqcn;
mod engine_validation;
mod hpcc;
mod incast;
mod ns3;
mod paths;
mod planes;
mod prompt;
mod queueing;
mod reference;
mod rerouting;
mod round_trips;
mod same_as_reference;
mod swift;
mod switching;
mod threads;
mod topologies;
mod training_collectives;
mod transports;
