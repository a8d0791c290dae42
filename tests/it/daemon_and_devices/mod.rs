// SPDX-License-Identifier: Apache-2.0
//! Tests the daemon with failing emulated devices on real ptys and sockets.

mod cables;
mod dead_parts;
mod undo;

use crate::daemon_rig;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use daemon_rig::ring::{NODES, daemon, daemon_that, faults, node_in_use, plan_around, ring};
use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::change::Mode;
use lightloom_control::controller::{Adopt, Answer, Apply, Request, Rollback};
use lightloom_control::record::TxnResult;
use lightloom_control::state::{DeviceName, Micros, Position, Slot, SwitchState, Txn};
use lightloom_control::{desired, replan};
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::view;
use lightloom_daemon_api::circuit::DarkCircuits;
use lightloom_daemon_api::device::DeviceState;
use lightloom_daemon_api::status::BrokenPart;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
