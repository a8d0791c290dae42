// SPDX-License-Identifier: Apache-2.0
//! The virtual twin: the shipped controller, policies and drivers on emulated transceivers and simulated time.
//!
//! The emulator forwards a scenario's faults, and the twin applies them to the emulated devices, to
//! the light at ports of optical switches, to the daemon, or to its disk. The twin also models serial
//! lines, devices and the disk. Times are integer picoseconds, and equal seeds give equal runs.
//! docs/twin.md distinguishes measured figures from assumed figures.

mod cost;
mod daemon;
mod disk;
mod judge;
mod line;
mod setup;
mod world;

use lightloom_emulator::shipped::{ControlSide, DaemonSetup};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;

pub use cost::COST;
pub use world::World;

/// The [`MakeControl`](lightloom_emulator::shipped::MakeControl) of the twin.
pub fn make_control(
    fabric: &Fabric,
    plan: &Plan,
    daemon: &DaemonSetup,
    seed: Seed,
) -> Result<Box<dyn ControlSide>, String> {
    Ok(Box::new(World::new(fabric, plan, daemon, seed)?))
}
