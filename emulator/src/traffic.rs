//! Traffic scenarios: workloads on a network of switches, without a ring that is planned and healed.
//!
//! ```text
//!   traffic.yaml ─▶ TrafficScenario ─▶ Plant (network, names) ─┬─▶ story with faults ────┐
//!                                                              └─▶ story without faults ─┴─▶ Outcome
//! ```
//!
//! What breaks is found after a while and flows are led around it; nothing is planned anew. The result is
//! the same document as that of a scenario on a fabric.

mod circuits;
pub(crate) mod felt;
pub(crate) mod file;
mod flow_file;
mod flow_sizes;
pub(crate) mod jobs;
mod network;
mod spot;
mod story;
mod verdict;
mod workload;

use std::sync::Arc;

use lightloom_fabric::trace::NodesError;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

pub use file::{TrafficFile, check_faults, codes, load};
pub use flow_file::{ListedFlow, read_flows};
pub use flow_sizes::{FlowSizes, SizeRow};
use lightloom_engine::capture::Watch;
use lightloom_engine::collective::StartError;
use lightloom_engine::transport::Transport;
use lightloom_engine::{Engine, EngineError, NetworkError, VertexId};
pub use network::{DragonflyRoutes, Plant, Shape};
pub use spot::{Spot, SpotError};
pub use workload::{AllReduceWay, Run, Workload};

use crate::scenario::{Expectation, Fault, Outcome, Progress, Replay, Strike, Switches};

/// A run to be made.
#[derive(Clone, Debug)]
pub struct TrafficScenario {
    /// Its name in reports.
    pub name: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Seed of every random draw.
    pub seed: Seed,
    /// The network.
    pub plant: Arc<Plant>,
    /// How the switches queue.
    pub switches: Switches,
    /// How long a host takes from a packet's last bit to what it does because of it.
    pub host_delay: Picoseconds,
    /// How flows are sent.
    pub transport: Transport,
    /// What is sent.
    pub workloads: Vec<Workload>,
    /// What breaks during the run, as far as the seed lets it.
    pub faults: Vec<Fault<Spot>>,
    /// Days of a fault trace, as more of what breaks.
    pub replay: Option<TrafficReplay>,
    /// From a fault until flows are led around it.
    pub reroute_delay: Picoseconds,
    /// The run is stopped here.
    pub time_limit: SimTime,
    /// Whether the scenario asks for that, rather than nobody having said anything.
    pub ends_at_limit: bool,
    /// The run is stopped after so many packets on a wire.
    pub packet_limit: u64,
    /// What must be true in the end.
    pub expectations: Vec<Expectation>,
}

/// Days of a fault trace on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficReplay {
    /// The days.
    pub days: Replay,
    /// GPUs that a host stands for.
    pub gpus_per_host: u32,
}

impl TrafficReplay {
    /// Every outage of a host, or of all GPUs of a server at once.
    ///
    /// # Errors
    /// If the servers of the trace do not divide into such nodes, or are too few.
    pub fn strikes(&self, plant: &Plant, seed: Seed) -> Result<Vec<Strike<Spot>>, NodesError> {
        let servers: Vec<&[VertexId]> = plant.hosts.chunks(plant.hosts_per_server).collect();
        let nodes = u32::try_from(servers.len()).expect("networks are bounded");
        let gpus = plant.hosts_per_server as u32 * self.gpus_per_host;
        let outages = self.days.outages(nodes, gpus, seed)?;
        let spots = |node: NodeId| servers[node.index()].iter().map(|host| Spot::Host(*host));
        Ok(outages.into_iter().map(|outage| outage.of(spots(outage.node).collect())).collect())
    }
}

/// Why a traffic scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A network that cannot be emulated.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The engine refuses something.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A fault trace that does not fit the network.
    #[error("the fault trace does not fit this network: {0}")]
    Trace(#[from] NodesError),
    /// A collective that cannot be laid out.
    #[error("workload `{workload}`: {error}")]
    Workload {
        /// Its name.
        workload: String,
        /// What is wrong.
        error: StartError,
    },
}

/// A run that has come to its end: its result, and the engine to look into.
pub struct Finished {
    /// The result.
    pub outcome: Outcome,
    /// The engine after the run with faults.
    pub engine: Engine<Watch>,
}

/// Runs `scenario` with its faults and, if it has any, without.
///
/// # Errors
/// If the engine refuses something.
pub fn run(
    scenario: &TrafficScenario,
    threads: usize,
    watch: Watch,
    progress: &mut dyn Progress,
) -> Result<Finished, TrafficError> {
    let strikes = drawn(scenario)?;
    let told = story::tell(scenario, &strikes, threads, watch, progress)?;
    // What was broken from the start is no news of this run.
    let old: Vec<Strike<Spot>> = strikes.iter().filter(|s| s.from_start).cloned().collect();
    let calm = match strikes.len() == old.len() {
        true => None,
        false => Some(story::tell(scenario, &old, threads, Watch::default(), progress)?),
    };
    let outcome = verdict::outcome(scenario, &strikes, threads, &told, calm.as_ref());
    Ok(Finished { outcome, engine: told.engine })
}

/// What the seed makes of the declared faults, and the outages of a replay.
fn drawn(scenario: &TrafficScenario) -> Result<Vec<Strike<Spot>>, TrafficError> {
    let pick = |spot: Spot, choice: f64| scenario.plant.draw(spot, choice);
    let faults = scenario.faults.iter().enumerate();
    let drawn = faults.filter_map(|(at, fault)| fault.draw_with(scenario.seed, at as u64, pick));
    let mut strikes: Vec<Strike<Spot>> = drawn.collect();
    if let Some(replay) = &scenario.replay {
        strikes.extend(replay.strikes(&scenario.plant, scenario.seed)?);
    }
    // Results tell of the news alone, by their places: what is old comes last.
    strikes.sort_by_key(|strike| strike.from_start);
    Ok(strikes)
}
