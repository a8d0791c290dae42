// SPDX-License-Identifier: Apache-2.0
//! Interface to the shipped daemon, which drives emulated devices in virtual time.
//!
//! `lightloom-twin` provides a [`MakeControl`], so this crate does not depend on the daemon.

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

/// An event from the control side.
#[derive(Clone, Debug)]
pub enum Happened {
    /// Path on which a transceiver's light has settled. `None` while the transceiver is switching or dark.
    Light(BundleId, Option<Path>),
    /// Port pairs (lower port first) that an optical switch now connects in both directions.
    Passes(OcsId, Vec<(u32, u32)>),
    /// The circuits of the requested phase start to change.
    PhaseMoves,
    /// Outcome of the requested phase.
    PhaseSettled(PhaseAnswer),
    /// First report, reading or timeout that the daemon received after a fault.
    Noticed,
    /// Parts that the daemon bypasses.
    Bypassing(Vec<Part>),
    /// The new plan has been computed and checked.
    Planned,
    /// The intended change is durable in the journal.
    Journalled,
    /// The last switching command has reached its transceiver.
    Sent,
    /// End of a change, with the new plan if it was committed.
    Ended(Option<Box<Plan>>),
}

/// A job's request for a phase of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseWish {
    /// Name of the phase in the plan.
    pub phase: String,
    /// Time until its circuits are needed.
    pub within: Picoseconds,
    /// Planned duration.
    pub lasts: Picoseconds,
}

/// Outcome of a requested phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseAnswer {
    /// The circuits passed qualification.
    Lit,
    /// The phase is too short for a change and uses the previous circuits.
    Kept,
    /// Reason why the phase was not set up.
    Missed(String),
}

/// The daemon with its devices and disk, driven by the clock of a run.
pub trait ControlSide {
    /// Returns the time of the next action.
    fn next_due(&self) -> Option<SimTime>;
    /// Advances time to `now`, and appends events with their times to `out`. Only results that the
    /// daemon is still computing may have later times.
    fn advance(&mut self, now: SimTime, out: &mut Vec<(SimTime, Happened)>);
    /// Starts or ends a fault.
    fn fault(
        &mut self,
        now: SimTime,
        event: &FaultEvent,
        begins: bool,
        out: &mut Vec<(SimTime, Happened)>,
    );
    /// Forwards a job's request for a phase. The response is [`Happened::PhaseSettled`].
    fn ask(&mut self, now: SimTime, wish: PhaseWish, out: &mut Vec<(SimTime, Happened)>);
    /// Returns whether a change is in progress.
    fn is_busy(&self) -> bool;
    /// Returns the results of the run.
    fn result(&self) -> DaemonResult;
}

/// Creates a [`ControlSide`] whose daemon uses `plan` at the start of the run. Fails if the fabric has no transceivers
/// that a daemon could drive or the plan is rejected.
pub type MakeControl =
    dyn Fn(&Fabric, &Plan, &DaemonSetup, Seed) -> Result<Box<dyn ControlSide>, String> + Sync;

/// A [`MakeControl`] for programs built without the daemon. Always fails.
///
/// # Errors
/// Always.
pub fn no_daemon(
    _: &Fabric,
    _: &Plan,
    _: &DaemonSetup,
    _: Seed,
) -> Result<Box<dyn ControlSide>, String> {
    Err("this program was built without the daemon; help: use `control: {assumed: …}`".to_owned())
}
