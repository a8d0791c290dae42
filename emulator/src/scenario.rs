//! Scenarios: a fabric, what its jobs do, what breaks when, and what is expected of the run.
//!
//! ```text
//!   scenario.yaml ─▶ Scenario ─┐                     ┌─▶ story with faults ────┐
//!   fabric.yaml ──▶ Fabric ────┴─▶ plan, check ─▶ run┤                         ├─▶ Outcome
//!                                                    └─▶ story without faults ─┘
//! ```
//!
//! The same scenario is run twice, once without its faults: what a fault did is what differs
//! between the two, to the picosecond.

mod collectives;
mod expectation;
mod file;
mod installed;
mod judge;
mod outcome;
mod story;
mod sweep;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultError, FaultSet, Part};
use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::{Bytes, Picoseconds, SimTime};
use lightloom_planner::check::{Violation, check};
use lightloom_planner::khop::{Layout, Method, PlanError, plan, to_document};

pub use expectation::{Comparison, Expectation, ExpectationError, Figure};
pub use file::{ScenarioFile, codes, load};
pub use installed::{DCN, HBD, Installed};
pub use outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowRow, Flows, Outcome, Packets, PlanResult,
};
pub use story::Progress;
pub use sweep::{
    MergeError, SWEEP_SCHEMA, SeedRange, SeedRangeError, SeedRun, Shard, ShardError, Subject,
    Sweep, Tally,
};

use crate::collective::CollectiveError;
use crate::engine::{EngineError, NetworkError};
use crate::transport::Transport;

/// A run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: String,
    /// The fabric file, relative to the scenario file.
    pub fabric: String,
    /// Seed of every random draw.
    pub seed: Seed,
    /// What is broken from the start.
    pub broken: Vec<Part>,
    /// Where more of what is broken from the start is to be read.
    pub broken_by: Option<TraceDay>,
    /// What every job does, in order.
    pub collectives: Vec<Collective>,
    /// What breaks during the run.
    pub faults: Vec<Fault>,
    /// How fast the control plane is.
    pub control: Control,
    /// How data is cut into packets and repaired.
    pub transport: Transport,
    /// The run is stopped here.
    pub time_limit: SimTime,
    /// What must be true in the end.
    pub expectations: Vec<Expectation>,
}

/// One moment of a fault trace. Whoever reads the trace adds the nodes it has out to
/// [`Scenario::broken`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceDay {
    /// The trace, relative to the scenario file.
    pub trace: String,
    /// The day, counted from its start.
    pub day: f64,
}

/// A collective operation that every group of every job performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its name in reports.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// The buffer of one rank.
    pub bytes: Bytes,
    /// How often, one after the other.
    pub repeat: u32,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everybody in the group ends with the sum.
    AllReduce,
    /// Everybody in the group ends with its part of the sum.
    ReduceScatter,
    /// Everybody in the group ends with all parts.
    AllGather,
    /// Equal ranks of all groups of the job end with the sum.
    DataParallelAllReduce,
}

impl Kind {
    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::DataParallelAllReduce => "data-parallel-all-reduce",
        }
    }
    /// Whether it runs between groups rather than inside one.
    #[must_use]
    pub const fn is_between_groups(self) -> bool {
        matches!(self, Self::DataParallelAllReduce)
    }
}

/// A part that breaks during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What breaks.
    pub part: Part,
    /// When.
    pub at: SimTime,
    /// When it works again, if it does.
    pub repaired_at: Option<SimTime>,
}

/// How fast the control plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// From the fault until the control plane knows.
    pub detection_delay: Picoseconds,
    /// From there until the next plan is there.
    pub planning_delay: Picoseconds,
}

impl Default for Control {
    /// One millisecond each: assumptions.
    fn default() -> Self {
        let millisecond = Picoseconds::from_millis(1);
        Self { detection_delay: millisecond, planning_delay: millisecond }
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A broken part that does not exist.
    #[error(transparent)]
    Part(#[from] FaultError),
    /// No plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan is wrong, which is a mistake of this program.
    #[error("the plan is not sound (a mistake in the planner, please report it): {}", .0[0])]
    Unsound(Vec<Violation>),
    /// A fabric that cannot be emulated.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The engine refuses something.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A collective that cannot be laid out.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// An expectation about a group that does not exist.
    #[error("the scenario expects something of {group}, but the plan has {groups} groups")]
    NoSuchGroup {
        /// The group.
        group: lightloom_fabric::id::GroupId,
        /// How many there are.
        groups: usize,
    },
    /// No job, or no group of it.
    #[error("no group of any job can be formed: give the fabric a job, or fewer faults")]
    NothingRuns,
}

/// Plans `fabric` and runs `scenario` on it, with its faults and without.
///
/// # Errors
/// If the scenario does not fit the fabric, or no plan can be made.
pub fn run(
    fabric: &Fabric,
    scenario: &Scenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, ScenarioError> {
    let faults = FaultSet::of(&fabric.hbd, scenario.broken.iter().copied())?;
    for fault in &scenario.faults {
        FaultSet::of(&fabric.hbd, [fault.part])?;
    }
    let layout = plan(fabric, &faults, Method::Scan)?;
    prove(fabric, &faults, &layout)?;
    if layout.groups.iter().all(|group| group.job.is_none()) {
        return Err(ScenarioError::NothingRuns);
    }
    judge::require_groups(scenario, &layout)?;
    let told = story::tell(fabric, scenario, faults.clone(), layout.clone(), threads, progress)?;
    let undisturbed = if scenario.faults.is_empty() {
        None
    } else {
        let calm = Scenario { faults: Vec::new(), ..scenario.clone() };
        Some(story::tell(fabric, &calm, faults, layout, threads, progress)?)
    };
    Ok(judge::outcome(fabric, scenario, threads, told, undisturbed))
}

/// Holds a layout against the independent checker.
fn prove(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> Result<(), ScenarioError> {
    let document = to_document(fabric, faults, Seed(0), layout);
    check(fabric, faults, &document).map(|_| ()).map_err(ScenarioError::Unsound)
}
