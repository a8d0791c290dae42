// SPDX-License-Identifier: Apache-2.0
//! The seam to a control plane that is not assumed but runs: the shipping daemon over emulated devices, in virtual time.
//!
//! ```text
//!   faults ──▶ ControlSide (daemon, serial lines, transceivers, disk) ──▶ Happened: light, stages of a bypass, plans
//!                   ▲ time                                                     │
//!                   └────────────── run/control/shipped.rs ◀───────────────────┘
//! ```
//!
//! This crate does not know the daemon. Who does (`lightloom-twin`) implements [`MakeControl`].

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

/// Something that the control side did.
#[derive(Clone, Debug)]
pub enum Happened {
    /// The light of a transceiver rests on another path. `None` while it moves or sends none.
    Light(BundleId, Option<Path>),
    /// The pairs of ports, the lower one first, between which an optical switch passes light both ways from now on.
    Passes(OcsId, Vec<(u32, u32)>),
    /// The circuits of the phase that was asked for begin to move.
    PhaseMoves,
    /// The phase that was asked for is over with.
    PhaseSettled(PhaseAnswer),
    /// A first report, reading or silence after a fault is at the daemon.
    Noticed,
    /// The daemon bypasses these parts.
    Bypassing(Vec<Part>),
    /// The plan around them is made and checked.
    Planned,
    /// The intent is durable.
    Journalled,
    /// The last command that moves light is at its transceiver.
    Sent,
    /// A change is over: the plan in force after it, if it was committed.
    Ended(Option<Box<Plan>>),
}

/// A phase of the plan that a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseWish {
    /// Its name in the plan.
    pub phase: String,
    /// Its circuits are wanted from then on.
    pub within: Picoseconds,
    /// And used for so long, as planned.
    pub lasts: Picoseconds,
}

/// What became of a phase that a job asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseAnswer {
    /// Its circuits are qualified.
    Lit,
    /// The circuits of before stay: it is too short for the way into it.
    Kept,
    /// Nothing was made of it, and why.
    Missed(String),
}

/// The daemon, its devices and its disk, under the clock of a run.
pub trait ControlSide {
    /// When it does something next.
    fn next_due(&self) -> Option<SimTime>;
    /// Time comes to `now`. `out` gets what happened, each with its time; of light and commands that is `now` at the
    /// latest, of what the daemon computes it may lie ahead.
    fn advance(&mut self, now: SimTime, out: &mut Vec<(SimTime, Happened)>);
    /// A fault begins, or ends.
    fn fault(
        &mut self,
        now: SimTime,
        event: &FaultEvent,
        begins: bool,
        out: &mut Vec<(SimTime, Happened)>,
    );
    /// A job asks for a phase of the plan. The answer is [`Happened::PhaseSettled`].
    fn ask(&mut self, now: SimTime, wish: PhaseWish, out: &mut Vec<(SimTime, Happened)>);
    /// Whether a change is under way.
    fn is_busy(&self) -> bool;
    /// What it has come to.
    fn result(&self) -> DaemonResult;
}

/// Makes a [`ControlSide`] whose daemon has `plan` in force at the start of the run.
pub trait MakeControl: Sync {
    /// # Errors
    /// Why it cannot: a fabric without transceivers that a daemon could drive, a plan that is refused.
    fn make(
        &self,
        fabric: &Fabric,
        plan: &Plan,
        daemon: &DaemonSetup,
        seed: Seed,
    ) -> Result<Box<dyn ControlSide>, String>;
}

/// For programs that are built without the daemon: refuses.
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
