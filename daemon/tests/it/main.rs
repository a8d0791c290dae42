// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-daemon`, in one program.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod bad_plans;
mod contention;
mod corpus;
mod damaged_journal;
mod durable;
mod end_to_end;
mod full_disk;
#[path = "../../../fuzz/replay.rs"]
mod fuzz_replay;
mod hostile;
mod journal_formats;
mod late_commands;
mod linearizable;
mod linux_switch;
mod monitoring;
mod openapi;
mod over_sockets;
mod parsers;
mod plan_in_force;
mod redis_server;
mod replay;
mod roles;
mod simulation;
mod sonic_agent;
mod sonic_redis;
mod status_oracle;
mod storm_with_replans;
mod systemd;
mod traces;
mod two_things_broken;
mod world;
