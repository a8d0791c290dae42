// SPDX-License-Identifier: Apache-2.0
//! Tests of `lightloom-emulator` in one program, with one file per subject and folders for shared
//! helpers.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod attribution;
mod bad_input;
mod beside;
mod bounds;
mod called;
mod fabric;
mod fault_table;
mod faults;
mod flow_tables;
mod islands;
mod library_plans;
mod lost_flows;
mod mixed_metrics;
mod months;
mod one_graph;
mod one_order;
mod one_run;
mod phase_times;
mod phases;
mod plan_in_force;
mod plan_times;
mod recorded;
mod reinforcement;
mod scenario;
mod scenario_switches;
mod series;
mod spare_rings;
mod steady;
mod traffic;
mod train;
mod training_packets;
mod training_recorded;
mod training_workloads;
