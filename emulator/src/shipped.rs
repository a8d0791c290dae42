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
use lightloom_units::id::BundleId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use crate::outcome::DaemonResult;
use crate::scenario::FaultEvent;

/// How the shipping daemon is configured, and what it runs on: `control: lightloomd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// How often it reads each transceiver.
    pub poll_every: Picoseconds,
    /// How long a transceiver may be silent before it counts as dead.
    pub heartbeat: Picoseconds,
    /// The rate of the serial lines.
    pub bits_per_second: u32,
    /// Whether bytes take their time on these lines; on ptys they take none.
    pub line_time: bool,
    /// Whether transceivers report lost light (firmware protocol 1.2) or are only polled (1.1).
    pub events: bool,
    /// Good power readings in a row before a path counts as established.
    pub power_samples: u32,
    /// How long light may take to settle. `None` if it follows what the transceivers promise.
    pub settle_within: Option<Picoseconds>,
    /// How long a transceiver may take to answer. `None` if it follows what the transceivers promise.
    pub reply_within: Option<Picoseconds>,
    /// How long the disk takes to make a journal record durable.
    pub flush: Picoseconds,
    /// From light at both ends of a path to a link that carries packets.
    pub relock: Picoseconds,
    /// From the end of a bypass to the first packet that a moved group tries to send.
    pub restart: Picoseconds,
}

impl Default for Daemon {
    /// As `topologies/daemon.yaml` has it. Flush, relock and restart are assumptions.
    fn default() -> Self {
        Self {
            poll_every: Picoseconds::from_millis(1_000),
            heartbeat: Picoseconds::from_millis(5_000),
            bits_per_second: 921_600,
            line_time: true,
            events: true,
            power_samples: 3,
            settle_within: None,
            reply_within: None,
            flush: Picoseconds::from_micros(500),
            relock: Picoseconds::ZERO,
            restart: Picoseconds::ZERO,
        }
    }
}

/// Something that the control side did.
#[derive(Clone, Debug)]
pub enum Happened {
    /// The light of a transceiver rests on another path. `None` while it moves or sends none.
    Light(BundleId, Option<Path>),
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
        daemon: &Daemon,
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
        _: &Daemon,
        _: Seed,
    ) -> Result<Box<dyn ControlSide>, String> {
        Err("this program is built without the daemon: write `control: {assumed: …}`".to_owned())
    }
}
