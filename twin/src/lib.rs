// SPDX-License-Identifier: Apache-2.0
//! The virtual twin: the controller, policy and drivers that ship, run against emulated transceivers under the clock of a
//! simulated run.
//!
//! The emulator reports a fault as light that goes; the twin carries bytes over serial lines at their rate, lets devices and
//! disk take their time, and answers with the circuits that the daemon makes. [`World`] is that side of a run; [`COST`] is
//! what the daemon's own processor is assumed to take. Times are integer picoseconds; equal seeds give equal runs.
//!
//! Not here: packets (`lightloom-engine`) and real programs (`lightloom-live`). docs/twin.md says what is real and what is
//! assumed.

mod cost;
mod daemon;
mod disk;
mod judge;
mod line;
mod setup;
mod world;

use lightloom_emulator::shipped::{ControlSide, DaemonSetup, MakeControl};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;

pub use cost::COST;
pub use world::World;

/// Makes the control side of `control: lightloomd`.
pub struct Twin;

impl MakeControl for Twin {
    fn make(
        &self,
        fabric: &Fabric,
        plan: &Plan,
        daemon: &DaemonSetup,
        seed: Seed,
    ) -> Result<Box<dyn ControlSide>, String> {
        Ok(Box::new(World::new(fabric, plan, daemon, seed)?))
    }
}
