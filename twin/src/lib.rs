// SPDX-License-Identifier: Apache-2.0
//! The virtual twin: the shipping controller and policy, the shipping drivers, the bytes on serial lines, the state
//! machines of the emulated transceivers, and a journal whose disk takes its time, under the clock of the packet run.
//!
//! ```text
//!                    ┌ daemon.rs ──── Control, Journal ── disk.rs
//!   emulator ─fault─▶│ world.rs       ▲ events   │ actions
//!            ◀─light─│   line.rs ── Tender ══ serial line ══════ Rack of transceivers
//!                    └ cost.rs: what the daemon's own processor is assumed to take
//! ```
//!
//! One queue of events, integer picoseconds, one seed: equal seeds, equal runs. docs/twin.md says what is real.

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
