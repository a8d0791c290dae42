// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-planner`: one file per subject, one folder per shared helper.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod banks_of_different_loss;
mod broken_ports;
mod common;
mod crossing_judge;
mod damaged_plans;
mod direct_networks;
mod exact_step;
mod flow_judge;
mod idle_nodes;
mod interfaces;
mod joint;
mod joint_fabric;
mod joint_replan;
mod khop;
mod least_moves;
mod limited_jobs;
mod monotone;
mod one_way;
mod placement;
mod reinforcement;
mod replan_as_cold;
mod replan_sequences;
mod replan_stages;
mod rfabric_files;
mod rfabric_mistakes;
mod rfabric_workloads;
mod several_hops;
mod several_jobs;
mod single_faults;
mod spare_crossing;
mod spare_rings;
mod start;
mod tiny_joint;
mod unchanged;
mod weight_sync;
mod why;
