//! A phase sequence on planned circuits, packet by packet: what the reconfigurable fat-tree of
//! `planner::rfabric` does when its switches move, its links train and its parts break.
//!
//! ```text
//!   rfabric file ──▶ plan ──┐                  ┌─▶ run with all faults ───┐
//!   phase scenario ─────────┴─▶ scale down ─▶ ─┼─▶ run without faults ────┼─▶ Outcome
//!                                              └─▶ run with each fault ───┘   packets | fluid | closed form
//! ```
//!
//! A step of training moves terabytes a phase. A run divides every size, and every time that the file
//! gives, by one number, its *scale*; rates stay. What does not shrink with it is a packet and
//! a round trip, so a run says its scale and its tests show how little the time depends on it.

mod expectation;
mod file;
mod network;
mod outcome;
mod story;
mod switches;
mod traffic;
mod verdict;

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_planner::rfabric::RfabricPlan;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::file::RfabricInput;
use lightloom_units::id::{LeafId, OcsId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rand::RngExt;
use serde::Serialize;

pub use file::{PhaseScenarioFile, codes, load};
use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{EngineError, NetworkError, Queueing};
pub use outcome::{FaultResult, Outcome, PhaseResult, PortTime, StepResult, Times};

use crate::scenario::{Expectation, Progress};

/// A run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseScenario {
    /// Its name in reports.
    pub name: String,
    /// The rfabric file, relative to the scenario file.
    pub rfabric: String,
    /// Seed of every random draw.
    pub seed: Seed,
    /// How many times smaller than in the fabric sizes and times are; none: as small as keeps the run
    /// within about [`PACKETS_MAX`] packets.
    pub scale: Option<u64>,
    /// How often the step is repeated.
    pub steps: u32,
    /// What becomes of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// How data is cut into packets and sent.
    pub transport: Transport,
    /// What acknowledgements wait for in switches.
    pub acknowledgements: Acknowledgements,
    /// What breaks during the run, as far as the seed lets it.
    pub faults: Vec<Fault>,
    /// What must be true in the end.
    pub expectations: Vec<Expectation>,
}

/// Data packets in a run whose scale nobody chose.
pub const PACKETS_MAX: u64 = 12_000_000;

/// Large packets, since a phase is long: 60 KiB of data, a tenth of what a circuit holds in a round trip.
const PAYLOAD: Bytes = Bytes(60 << 10);

impl PhaseScenario {
    /// One step of `rfabric` without faults.
    #[must_use]
    pub fn undisturbed(rfabric: &str) -> Self {
        Self {
            name: rfabric.to_owned(),
            rfabric: rfabric.to_owned(),
            seed: Seed(0),
            scale: None,
            steps: 1,
            in_flight: InFlight::default(),
            transport: transport(PAYLOAD),
            acknowledgements: Acknowledgements::default(),
            faults: Vec::new(),
            expectations: Vec::new(),
        }
    }
}

impl PhaseScenario {
    /// What the seed makes of the declared faults.
    fn struck(&self) -> Vec<Fault> {
        let mut struck = Vec::new();
        for (index, fault) in self.faults.iter().enumerate() {
            let mut draws = self.seed.stream("fault", index as u64);
            // Always both draws, so that changing one figure of a fault leaves the other as it was.
            let (chance, late): (f64, f64) = (draws.random(), draws.random());
            if chance < fault.probability {
                let late = Picoseconds((fault.within.get() as f64 * late) as u64);
                struck.push(Fault { after: fault.after + late, ..fault.clone() });
            }
        }
        struck
    }
}

/// A window of twice what fills the path, so that a burst of other flows at a leaf's interface leaves no
/// circuit idle; queues without bound, and so no loss but of light.
fn transport(payload: Bytes) -> Transport {
    Transport {
        payload,
        window: Window::BandwidthDelay { percent: 200 },
        timeout: Picoseconds::from_millis(1_000_000),
        ..Transport::default()
    }
}

/// What becomes of packets on a circuit that a change removes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// Its flows stop when the command goes out and what is on its way arrives.
    #[default]
    Drain,
    /// It is used until the mirrors move, and what is on its way then is lost and sent again.
    Lose,
}

/// What acknowledgements wait for in switches.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledgements {
    /// For nothing: they have a priority of their own.
    #[default]
    First,
    /// For their turn among data. Where a leaf sends to many over a loaded link, what it owes those that
    /// send to it stands in that queue, and their windows run dry on links that are free.
    InTurn,
}

impl Acknowledgements {
    fn queueing(self) -> Option<Queueing> {
        match self {
            Self::First => Some(Queueing::default()),
            Self::InTurn => None,
        }
    }
}

/// Something that breaks, as far as the seed lets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// In which phase, by index.
    pub phase: usize,
    /// The name of the phase.
    pub phase_name: String,
    /// In which step, from 0.
    pub step: u32,
    /// How long after the phase before it ended.
    pub after: Picoseconds,
    /// The seed draws the time from there to so much later.
    pub within: Picoseconds,
    /// The share of seeds under which it happens.
    pub probability: f64,
    /// How long until it works again, if it does.
    pub repaired_after: Option<Picoseconds>,
}

/// What can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum FaultKind {
    /// A board of mirror drivers: every circuit on its ports goes dark.
    DriverBoard {
        /// The switch.
        ocs: OcsId,
        /// The first port that the board drives.
        first_port: u32,
        /// The last.
        last_port: u32,
    },
    /// A mirror that no longer moves: its circuit stays and its port can take no other.
    StuckMirror {
        /// The switch.
        ocs: OcsId,
        /// The port.
        port: u32,
    },
    /// A port whose links do not pass their test: they stay drained.
    FailsQualification {
        /// The switch.
        ocs: OcsId,
        /// The port.
        port: u32,
    },
    /// The controller is gone: nothing moves.
    ControllerLoss,
    /// The controller takes so many times as long to command a change.
    ControllerSlow {
        /// How many times.
        times: u32,
    },
    /// The hosts below a leaf send and receive at a share of their rate, as when one of their interfaces is gone.
    SlowHosts {
        /// The leaf.
        leaf: LeafId,
        /// The share, in per cent.
        percent: u32,
    },
}

impl FaultKind {
    /// Whether a circuit ends at what this breaks.
    #[must_use]
    pub fn touches(&self, circuit: &CrossConnect) -> bool {
        let at = |ocs: OcsId, first: u32, last: u32| {
            circuit.ocs == ocs
                && [circuit.a_port, circuit.b_port].iter().any(|port| (first..=last).contains(port))
        };
        match *self {
            Self::DriverBoard { ocs, first_port, last_port } => at(ocs, first_port, last_port),
            Self::StuckMirror { ocs, port } | Self::FailsQualification { ocs, port } => {
                at(ocs, port, port)
            }
            Self::ControllerLoss | Self::ControllerSlow { .. } | Self::SlowHosts { .. } => false,
        }
    }
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DriverBoard { ocs, first_port, last_port } => {
                write!(f, "driver board of {ocs}, ports {first_port} to {last_port}")
            }
            Self::StuckMirror { ocs, port } => write!(f, "stuck mirror at {ocs} port {port}"),
            Self::FailsQualification { ocs, port } => {
                write!(f, "links that fail their test at {ocs} port {port}")
            }
            Self::ControllerLoss => write!(f, "loss of the controller"),
            Self::ControllerSlow { times } => write!(f, "controller {times} times as slow"),
            Self::SlowHosts { leaf, percent } => {
                write!(f, "hosts of {leaf} at {percent} % of their rate")
            }
        }
    }
}

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PhaseRunError {
    /// A fabric that cannot be emulated.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The engine refuses something.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A scale at which nothing is left of a circuit's round trip.
    #[error(
        "at a scale of {scale} the phase `{phase}` lasts {time}, less than twenty round trips; \
         choose a scale of at most {scale_max}"
    )]
    TooSmall {
        /// The scale.
        scale: u64,
        /// The shortest phase.
        phase: String,
        /// How long it would last.
        time: Picoseconds,
        /// The largest scale that is accepted.
        scale_max: u64,
    },
}

/// A scenario with everything it needs.
struct Run<'a> {
    input: &'a RfabricInput,
    plan: &'a RfabricPlan,
    scenario: &'a PhaseScenario,
    scale: u64,
    threads: usize,
}

impl<'a> Run<'a> {
    fn fabric(&self) -> &'a ReconfigurableFatTree {
        &self.input.fabric
    }

    /// A time of the fabric in the time of the run.
    fn shorter(&self, time: Picoseconds) -> Picoseconds {
        Picoseconds(time.0 / self.scale)
    }

    /// A time of the run in the time of the fabric.
    fn longer(&self, time: Picoseconds) -> Picoseconds {
        Picoseconds(time.0.saturating_mul(self.scale))
    }

    fn moment(&self, time: SimTime) -> SimTime {
        SimTime(time.0.saturating_mul(self.scale))
    }

    /// The demands of the phases, scaled down; no pair vanishes.
    fn demands(&self) -> Vec<Demand> {
        let smaller = |demand: &Demand| {
            let mut scaled = Demand::none(demand.leaves());
            for (from, to, bytes) in demand.flows() {
                scaled.add(from, to, Bytes(bytes.0.div_ceil(self.scale)));
            }
            scaled
        };
        self.input.phases.iter().map(|phase| smaller(&phase.demand)).collect()
    }
}

/// Twenty round trips between hosts of two leaves.
const SHORTEST_PHASE: Picoseconds = Picoseconds::from_micros(80);

fn scale_of(
    input: &RfabricInput,
    plan: &RfabricPlan,
    scenario: &PhaseScenario,
) -> Result<u64, PhaseRunError> {
    let bytes: u128 =
        input.phases.iter().map(|phase| u128::from(phase.demand.total().0)).sum::<u128>()
            * u128::from(scenario.steps);
    let wanted = bytes / u128::from(scenario.transport.payload.0) / u128::from(PACKETS_MAX);
    let shortest =
        plan.phases.iter().min_by_key(|phase| phase.duration_ps).expect("a plan has phases");
    let scale_max = (shortest.duration_ps.0 / SHORTEST_PHASE.0).max(1);
    match scenario.scale {
        None => Ok(u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, scale_max)),
        Some(scale) if scale <= scale_max => Ok(scale.max(1)),
        Some(scale) => Err(PhaseRunError::TooSmall {
            scale,
            phase: shortest.name.clone(),
            time: Picoseconds(shortest.duration_ps.0 / scale),
            scale_max,
        }),
    }
}

/// Runs the phases of `input` on the circuits of `plan`, with the faults of `scenario` and without.
///
/// # Errors
/// If the fabric cannot be emulated or the scale is too large.
pub fn run(
    input: &RfabricInput,
    plan: &RfabricPlan,
    scenario: &PhaseScenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, PhaseRunError> {
    let scenario = &PhaseScenario { faults: scenario.struck(), ..scenario.clone() };
    let scale = scale_of(input, plan, scenario)?;
    let run = Run { input, plan, scenario, scale, threads };
    let demands = run.demands();
    let calm = story::tell(&run, &demands, &[], progress)?;
    if scenario.faults.is_empty() {
        return Ok(verdict::outcome(&run, &calm, &calm, &[]));
    }
    let told = story::tell(&run, &demands, &scenario.faults, progress)?;
    let mut alone = Vec::new();
    if scenario.faults.len() > 1 {
        for fault in &scenario.faults {
            alone.push(story::tell(&run, &demands, std::slice::from_ref(fault), progress)?);
        }
    }
    Ok(verdict::outcome(&run, &told, &calm, &alone))
}

/// How many times the phases are run for a scenario: for the progress bar.
#[must_use]
pub fn runs(scenario: &PhaseScenario) -> u64 {
    match scenario.struck().len() as u64 {
        0 => 1,
        1 => 2,
        many => 2 + many,
    }
}
