// SPDX-License-Identifier: Apache-2.0
//! Lets an external program, such as the front end of another simulator, send traffic over an emulated network.
//!
//! A session uses the event loop of [`run`](crate::run), so faults, other traffic and the control
//! plane also apply. Time stops while the program has no pending order.

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::Stage;
use lightloom_units::{Bytes, SimTime};

use crate::emulate::{EmulateError, Making};
use crate::run::workload::Called;
pub use crate::run::{Caller, ProgramOrder};
use crate::run::{IslandReuse, Run, RunError, Stop, Waiting};
use crate::scenario::{RunStart, Scenario};

/// Inputs of a session.
pub struct PreparedProgram<'a> {
    making: Making<'a>,
    start: &'a RunStart,
}

impl<'a> PreparedProgram<'a> {
    /// Prepares a session for a scenario read by [`load_called`](crate::scenario::file::load_called).
    pub fn new(scenario: &'a Scenario, start: &'a RunStart) -> Result<Self, EmulateError> {
        let making = Making::new(scenario, start, 1, IslandReuse::Whole)?;
        Ok(Self { making, start })
    }
}

/// Diagnosis of a program that waits forever.
#[derive(Clone, Debug)]
pub struct Stalled {
    /// The limit that was reached. `None` if no events are left.
    pub stop: Option<Stop>,
    /// The unfinished work and its dependencies.
    pub waiting: Vec<Waiting>,
}

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.stop {
            Some(stop) => write!(f, "{stop}")?,
            None => f.write_str("messages will not arrive")?,
        }
        self.waiting.iter().try_for_each(|waiting| write!(f, "\n  {waiting}"))
    }
}

/// A network that carries an external program's traffic.
pub struct ProgramSession<'a> {
    run: Run<'a>,
    program: usize,
}

impl<'a> ProgramSession<'a> {
    /// Opens a session at time zero, with its faults scheduled.
    pub fn open(
        prepared: &'a PreparedProgram<'a>,
        caller: Box<dyn Caller + 'a>,
    ) -> Result<Self, RunError> {
        let PreparedProgram { making, start } = prepared;
        let mut order = making.order(&start.events, Watch::default(), None)?;
        let program = order.workloads.len();
        order.workloads.push(Box::new(Called::new(caller)));
        let mut run = Run::new(order)?;
        run.begin()?;
        Ok(Self { run, program })
    }

    /// Runs until the program has no pending order. Returns a diagnosis if the run stops before that.
    pub fn run(&mut self) -> Result<Option<Stalled>, RunError> {
        let stop = self.run.until_idle(self.program)?;
        let waiting = self.run.waiting(self.program);
        let is_stalled = stop.is_some() || !waiting.is_empty();
        Ok(is_stalled.then_some(Stalled { stop, waiting }))
    }

    /// Returns the current simulated time.
    pub fn now(&self) -> SimTime {
        self.run.context().now()
    }

    /// Returns the number of packets sent so far, counted once per link.
    pub fn packet_hops(&self) -> u64 {
        self.run.context().engine.hops()
    }

    /// Returns the total size of all messages so far, and the number of bytes delivered in order.
    pub fn moved(&self) -> [Bytes; 2] {
        let mut moved = [Bytes::ZERO; 2];
        for record in self.run.context().engine.records() {
            let size = if record.cancelled { record.delivered } else { record.size };
            moved = [moved[0] + size, moved[1] + record.delivered];
        }
        moved
    }
}
