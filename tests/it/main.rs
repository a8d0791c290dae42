// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom` in one binary.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod agent_rig;
mod bills;
mod buildings;
mod ci;
mod ci_files;
mod command_line;
mod consumers;
mod ctl;
mod daemon_and_devices;
mod daemon_by_hand;
mod daemon_file;
mod daemon_hall;
mod daemon_lines;
mod daemon_rig;
mod daemon_speed;
mod daemon_words;
mod dead_node;
mod designs;
mod device;
mod documentation;
mod drill_kinds;
mod exports;
mod failing_disk;
mod figures;
mod first_steps;
mod gnmi_driver;
mod gnmi_switch;
mod house;
mod job_lines;
mod job_step_page;
mod joint_verbs;
mod ledger;
mod live_twin;
mod measure;
mod mfu;
mod mfu_runs;
mod mistakes;
mod own_data;
mod phases_at_scale;
mod phases_by_the_thousand;
mod phases_for_jobs;
mod phases_on_switches;
mod phases_rig;
mod programs;
mod python;
mod replan;
mod report;
mod reported_faults;
mod rl;
mod scheduler;
mod searched_mapping;
mod several_daemons;
mod site;
mod small;
mod spine;
mod sweep_of_steps;
mod through_agent;
mod two_controllers;
mod validation;
mod workload;
