// SPDX-License-Identifier: Apache-2.0
//! The interface to a control plane that is executed rather than modelled: the shipped daemon,
//! which drives emulated devices in virtual time.
//!
//! ```text
//!   faults ──▶ ControlSide (daemon, serial lines, transceivers, disk) ──▶ Happened: light, stages of a bypass, plans
//!                   ▲ time                                                     │
//!                   └────────────── run/control/shipped.rs ◀───────────────────┘
//! ```
//!
//! This crate does not depend on the daemon. `lightloom-twin`, which does, implements
//! [`MakeControl`].

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{BundleId, OcsId};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use crate::daemon_result::DaemonResult;
use crate::scenario::FaultEvent;
pub use crate::scenario::{DaemonSetup, SwitchLanguage};

/// An event of the control side.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A transceiver's light has settled on another path. `None` while it is moving or the
    /// transceiver sends no light.
    Light(BundleId, Option<Path>),
    /// The port pairs (lower port first) that an optical switch connects in both directions from
    /// now on.
    Passes(OcsId, Vec<(u32, u32)>),
    /// The circuits of the requested phase begin to move.
    PhaseMoves,
    /// The requested phase is settled.
    PhaseSettled(PhaseAnswer),
    /// The daemon received the first report, reading or timeout after a fault.
    Noticed,
    /// The daemon bypasses these parts.
    Bypassing(Vec<Part>),
    /// The plan around them has been made and checked.
    Planned,
    /// The intent is durable in the journal.
    Journalled,
    /// The last command that moves light has reached its transceiver.
    Sent,
    /// A change has ended, with the new plan if it was committed.
    Ended(Option<Box<Plan>>),
}

/// A job's request for a phase of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseWish {
    /// Name of the phase in the plan.
    pub phase: String,
    /// The time until its circuits are needed.
    pub within: Picoseconds,
    /// The planned duration.
    pub lasts: Picoseconds,
}

/// The outcome of a requested phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseAnswer {
    /// Its circuits are qualified.
    Lit,
    /// The previous circuits remain because the phase is too short for a change.
    Kept,
    /// The phase was not set up, for this reason.
    Missed(String),
}

/// The daemon, its devices and its disk, under the clock of a run.
pub trait ControlSide {
    /// Returns the time of the next action.
    fn next_due(&self) -> Option<SimTime>;
    /// Advances time to `now` and appends the events, with their times, to `out`. Light changes and
    /// commands are timed at `now` or earlier; results that the daemon has still to compute may be
    /// timed later.
    fn advance(&mut self, now: SimTime, out: &mut Vec<(SimTime, Happened)>);
    /// Begins or ends a fault.
    fn fault(
        &mut self,
        now: SimTime,
        event: &FaultEvent,
        begins: bool,
        out: &mut Vec<(SimTime, Happened)>,
    );
    /// Forwards a job's request for a phase of the plan. The answer is [`Happened::PhaseSettled`].
    fn ask(&mut self, now: SimTime, wish: PhaseWish, out: &mut Vec<(SimTime, Happened)>);
    /// Returns whether a change is in progress.
    fn is_busy(&self) -> bool;
    /// Returns the results.
    fn result(&self) -> DaemonResult;
}

/// Creates a [`ControlSide`] whose daemon uses `plan` at the start of the run.
pub trait MakeControl: Sync {
    /// Creates the control side.
    ///
    /// # Errors
    /// Fails if it cannot be created, for example because the fabric has no transceivers that a
    /// daemon could drive or because the plan is rejected.
    fn make(
        &self,
        fabric: &Fabric,
        plan: &Plan,
        daemon: &DaemonSetup,
        seed: Seed,
    ) -> Result<Box<dyn ControlSide>, String>;
}

/// A [`MakeControl`] that always fails, for programs built without the daemon.
pub struct NoDaemon;

impl MakeControl for NoDaemon {
    fn make(
        &self,
        _: &Fabric,
        _: &Plan,
        _: &DaemonSetup,
        _: Seed,
    ) -> Result<Box<dyn ControlSide>, String> {
        Err("this program is built without the daemon: write `control: {assumed: …}`".to_owned())
    }
}
