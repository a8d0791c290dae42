//! The scenario file: which fabric, which collectives, what breaks when, what is expected.
//!
//! Reading it reads the fabric too, so that every part and group it names is known to exist.

use lightloom_collective::Directions;
use lightloom_engine::LinkSpec;
use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::expectation_file::{Breaks, Ground, lower_expectations};
use super::fault_file::{FaultFile, lower_faults};
use super::neighbours::{Neighbour, Neighbours, ReadNeighbour};
use super::replay_file::{ReplayFile, TraceDayFile, lower_day, lower_replay};
use super::switches::{SwitchesFile, lower_switches};
use super::transport_file::{TransportFile, lower_transport};
use super::{Collective, Control, Expectation, Fault, Kind, Scenario, Switches, Target, plan};
use crate::traffic::file::workload::{self, WorkloadFile, refuse_sentences};
use crate::traffic::{Plant, Workload};

/// The mistakes that only scenario and fault files can have.
pub mod codes {
    lightloom_fabric::document::codes! {
        /// A sentence that is no expectation.
        BAD_EXPECTATION = "LL0301", "a sentence that is no expectation";
        /// A fault without a part, or with two.
        REPAIR_BEFORE_FAULT = "LL0302", "a part is repaired before it breaks";
        /// Nothing to run.
        NOTHING_TO_RUN = "LL0303", "a scenario runs nothing";
        /// Sizes that no packet can have.
        BAD_PACKET = "LL0304", "packets cannot have this size";
        /// Two collectives of one name.
        COLLECTIVE_TWICE = "LL0305", "two collectives have the same name";
        /// A fabric, trace or fault file that cannot be read.
        BAD_NEIGHBOUR = "LL0306", "a file that is named here cannot be used";
        /// A part that the fabric does not have, or a group that the plan does not have.
        NO_SUCH_THING = "LL0307", "something is named that the fabric does not have";
        /// An effect that this part cannot suffer, or that is written wrongly.
        BAD_FAULT = "LL0308", "a fault that cannot happen to this part";
        /// An expectation that is true whatever happens.
        SAYS_NOTHING = "LL0309", "an expectation that no run could fail, or none could keep";
        /// No plan for the fabric as it is at the start.
        NO_PLAN = "LL0310", "the fabric cannot be planned as it is at the start";
        /// Queues, buffers, pauses or priorities that no switch can have.
        BAD_QUEUE = "LL0313", "switches cannot queue like this";
        /// Figures of a congestion control that is not used, or that cannot work.
        BAD_CONGESTION = "LL0314", "figures of congestion control that cannot be used";
    }
}

/// A scenario with the fabric it names.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The fabric.
    pub fabric: Fabric,
    /// The scenario.
    pub scenario: Scenario,
}

/// A run of the emulator: a fabric, what its jobs do, what breaks, and what is expected.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Its name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The fabric file, relative to this file.
    pub fabric: String,
    /// Seed of every random draw; `--seed` on the command line overrides it.
    #[serde(default)]
    pub seed: u64,
    /// What is broken from the start: nodes `n17`, bundles `n17/b0`, fibres `n17/b0.2`.
    #[serde(default)]
    pub broken: Vec<Part>,
    /// What is broken from the start, besides: the nodes that a fault trace has out on some day.
    #[serde(default)]
    pub broken_by: Option<TraceDayFile>,
    /// What every job does, in this order: a group goes on to the next collective when it is done
    /// with one, and a collective between groups waits for all of them.
    pub collectives: Vec<CollectiveFile>,
    /// What runs beside the rings on the data-centre network, between GPUs `n4/g2` or nodes `n4`: each begins when
    /// what it waits for is done. Hosts that are broken from the start take no part.
    #[serde(default)]
    pub traffic: Vec<WorkloadFile>,
    /// What breaks during the run, and when.
    #[serde(default)]
    pub faults: Vec<FaultFile>,
    /// A file with more of what breaks, relative to this file.
    #[serde(default)]
    pub faults_in: Option<String>,
    /// Some days of a fault trace, in compressed time, as more of what breaks.
    #[serde(default)]
    pub replay: Option<ReplayFile>,
    /// How fast the control plane is.
    #[serde(default)]
    pub control: ControlFile,
    /// How data is cut into packets, sent and repaired.
    #[serde(default)]
    pub transport: TransportFile,
    /// How the switches of the data-centre network queue.
    #[serde(default)]
    pub switches: SwitchesFile,
    /// The run ends at this simulated time. Left out, a run that comes so far is taken for one that
    /// never ends: it fails, and what was waiting for what is told.
    #[serde(default = "time_limit")]
    pub time_limit: Text<Picoseconds>,
    /// A run that puts more packets than this on a wire is stopped and fails.
    #[serde(default = "packet_limit")]
    #[schemars(range(min = 1))]
    pub packet_limit: u64,
    /// What must be true in the end: `waste_ratio < 0.01`, `restored within 5ms`,
    /// `completes within 20ms`, `group g3 unaffected`, `no drops on priority 3`, `no deadlock`.
    #[serde(default)]
    pub expect: Vec<String>,
}

pub(crate) fn time_limit() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(10_000))
}

pub(crate) fn packet_limit() -> u64 {
    10_000_000_000
}

/// A collective operation. Sizes follow NCCL's tests: the whole buffer of one rank.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CollectiveFile {
    /// Every group on its own ring, both directions: everybody ends with the sum.
    AllReduce(RingFile),
    /// Every group on its own ring, both directions: everybody ends with its part of the sum.
    ReduceScatter(RingFile),
    /// Every group on its own ring, both directions: everybody ends with all parts.
    AllGather(RingFile),
    /// Between the groups of a job, over the data-centre network: equal ranks first under their ToR,
    /// then between ToRs, then under their ToR again.
    DataParallelAllReduce(RingFile),
}

/// One collective.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingFile {
    /// Its name in reports.
    pub name: String,
    /// The buffer of one rank, at least one byte.
    pub bytes: Text<Bytes>,
    /// How often it is repeated, 1 to 1,000.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeat: u32,
    /// Its priority at switches with real queues, 0 (lowest) to 6.
    #[serde(default)]
    #[schemars(range(min = 0, max = 6))]
    pub priority: u8,
    /// Which ways round a group's ring: `both`, half of the data each way, or `one`.
    #[serde(default)]
    pub directions: Directions,
}

fn once() -> u32 {
    1
}

/// How fast the control plane is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlFile {
    /// From the fault until the control plane knows (an assumption; depends on the heartbeat).
    pub detection_delay: Text<Picoseconds>,
    /// From there until the next plan is there (an assumption on the safe side: `cargo bench -p
    /// lightloom-planner` prints what the planner takes).
    pub planning_delay: Text<Picoseconds>,
}

impl Default for ControlFile {
    fn default() -> Self {
        let Control { detection_delay, planning_delay } = Control::default();
        Self { detection_delay: Text(detection_delay), planning_delay: Text(planning_delay) }
    }
}

/// Reads a scenario file, the fabric it names and the other files it names: both, or every mistake in
/// them.
#[must_use]
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut ReadNeighbour<'_>,
) -> (Option<Loaded>, Vec<Diagnostic>) {
    let mut beside = Vec::new();
    let (loaded, mut mistakes) = document::load(file, bytes, |raw: ScenarioFile, check| {
        lower(raw, check, &mut Neighbours { read, mistakes: &mut beside })
    });
    mistakes.extend(beside);
    (loaded, mistakes)
}

fn lower(
    raw: ScenarioFile,
    check: &mut Check<'_>,
    neighbours: &mut Neighbours<'_, '_>,
) -> Option<Loaded> {
    let fabric = neighbours.fabric(&raw.fabric, check);
    let transport = lower_transport(&raw.transport, check);
    let cable = fabric.as_ref().map(|f| LinkSpec::new(f.dcn.link_rate(), f.dcn.link_latency()));
    let switches = lower_switches(&raw.switches, cable.as_ref(), transport.packet(), check);
    let collectives = lower_collectives(&raw.collectives, check);
    let workloads = lower_traffic(&raw, fabric.as_ref(), &switches, check, neighbours);
    let mut faults = lower_faults(&raw.faults, fabric.as_ref(), Some(&switches), check);
    faults.extend(faults_beside(&raw, fabric.as_ref(), &switches, check, neighbours));
    let broken_by = raw.broken_by.as_ref().and_then(|day| lower_day(day, check, neighbours));
    let replay = raw.replay.as_ref().and_then(|days| lower_replay(days, check, neighbours));
    let ground = Ground {
        switches: &switches,
        breaks: breaks(&raw, &faults),
        priorities: collectives
            .iter()
            .filter(|collective| collective.kind.is_between_groups())
            .map(|collective| collective.priority)
            .chain(workloads.iter().flat_map(Workload::priorities))
            .collect(),
    };
    let expectations = lower_expectations(&raw.expect, Some(&ground), check);
    refuse_sentences(&raw.expect, &raw.traffic, check);
    let broken = fabric.as_ref().map(|fabric| existing(&raw.broken, fabric, check));
    let failed = neighbours.have_errors();
    let scenario = Scenario {
        name: raw.name,
        fabric: raw.fabric,
        seed: Seed(raw.seed),
        broken: broken.unwrap_or_default(),
        broken_by,
        collectives,
        workloads,
        faults,
        replay,
        control: Control {
            detection_delay: raw.control.detection_delay.0,
            planning_delay: raw.control.planning_delay.0,
        },
        transport,
        host_delay: raw.transport.host_delay.0,
        switches,
        time_limit: SimTime(raw.time_limit.0.get()),
        ends_at_limit: check.is_written("/time_limit"),
        packet_limit: raw.packet_limit,
        expectations,
    };
    let fabric = fabric?;
    require_plan(&fabric, &scenario, &raw.expect, check);
    (!check.has_errors() && !failed).then_some(Loaded { fabric, scenario })
}

/// What runs beside the rings.
fn lower_traffic(
    raw: &ScenarioFile,
    fabric: Option<&Fabric>,
    switches: &Switches,
    check: &mut Check<'_>,
    neighbours: &mut Neighbours<'_, '_>,
) -> Vec<Workload> {
    // To lay out a network takes a while; most scenarios send nothing over it.
    let Some(fabric) = fabric.filter(|_| !raw.traffic.is_empty()) else { return Vec::new() };
    match Plant::of_fabric(fabric, switches) {
        Ok(plant) => workload::lower(&raw.traffic, &plant, check, neighbours),
        Err(error) => {
            check.error(codes::BAD_NEIGHBOUR, "/fabric", error.to_string());
            Vec::new()
        }
    }
}

/// What may break. A file of faults that cannot be read counts for the worst, as a trace does.
fn breaks(raw: &ScenarioFile, faults: &[Fault]) -> Breaks {
    let mut breaks = Breaks::default();
    for fault in faults {
        breaks.add(fault.probability, !fault.targets.contains(&Target::Control));
    }
    let unread = raw.faults_in.is_some() && faults.len() == raw.faults.len();
    if raw.replay.is_some() || unread {
        breaks.add(1.0, true);
    }
    breaks
}

/// The parts that the fabric has; the others have been told.
fn existing(broken: &[Part], fabric: &Fabric, check: &mut Check<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (index, part) in broken.iter().enumerate() {
        match FaultSet::of(fabric, [*part]) {
            Ok(_) => parts.push(*part),
            Err(error) => {
                check.error(codes::NO_SUCH_THING, &format!("/broken/{index}"), error.to_string());
            }
        }
    }
    parts
}

/// Keys that the first plan depends on.
const PLANNED_FROM: [&str; 4] = ["/fabric", "/broken", "/broken_by", "/replay"];

/// Plans the fabric as it is at the start, and holds the groups that are named against the plan. Faults of the
/// run itself, which may have mistakes, are left out.
fn require_plan(fabric: &Fabric, scenario: &Scenario, raw: &[String], check: &mut Check<'_>) {
    let begins = Scenario { faults: Vec::new(), ..scenario.clone() };
    let start = match plan(fabric, &begins) {
        Ok(start) => start,
        Err(error) => {
            let report = check.error(codes::NO_PLAN, "/fabric", error.to_string());
            PLANNED_FROM.iter().fold(report, |report, key| report.depends_on(key));
            return;
        }
    };
    let groups = start.groups();
    for (index, sentence) in raw.iter().enumerate() {
        if let Ok(Expectation::Unaffected(group)) = sentence.parse()
            && group.index() >= groups
        {
            let message =
                format!("{group} does not exist: the plan has groups g0 to g{}", groups - 1);
            let path = format!("/expect/{index}");
            let report = check.error(codes::NO_SUCH_THING, &path, message);
            PLANNED_FROM.iter().fold(report, |report, key| report.depends_on(key));
        }
    }
}

fn faults_beside(
    raw: &ScenarioFile,
    fabric: Option<&Fabric>,
    switches: &Switches,
    check: &mut Check<'_>,
    neighbours: &mut Neighbours<'_, '_>,
) -> Vec<Fault> {
    let Some(name) = &raw.faults_in else { return Vec::new() };
    let Some(Neighbour { name, bytes }) = neighbours.read(name, "/faults_in", check) else {
        return Vec::new();
    };
    let (faults, mistakes) = super::fault_file::load(&name, &bytes, fabric, Some(switches));
    neighbours.mistakes.extend(mistakes);
    faults.unwrap_or_default()
}

fn lower_collectives(raw: &[CollectiveFile], check: &mut Check<'_>) -> Vec<Collective> {
    if raw.is_empty() {
        check
            .error(codes::NOTHING_TO_RUN, "/collectives", "the list of collectives is empty")
            .help("write `- all_reduce: {name: step, bytes: 64MiB}`");
    }
    let mut collectives: Vec<Collective> = Vec::new();
    for (index, file) in raw.iter().enumerate() {
        let (kind, key, ring) = match file {
            CollectiveFile::AllReduce(ring) => (Kind::AllReduce, "all_reduce", ring),
            CollectiveFile::ReduceScatter(ring) => (Kind::ReduceScatter, "reduce_scatter", ring),
            CollectiveFile::AllGather(ring) => (Kind::AllGather, "all_gather", ring),
            CollectiveFile::DataParallelAllReduce(ring) => {
                (Kind::DataParallelAllReduce, "data_parallel_all_reduce", ring)
            }
        };
        let path = format!("/collectives/{index}/{key}");
        if ring.bytes.0 == Bytes::ZERO {
            check
                .error(codes::NOTHING_TO_RUN, &format!("{path}/bytes"), "a collective of no bytes")
                .help("write `64MiB`");
        }
        if kind.is_between_groups() && ring.directions == Directions::One {
            let message = "a reduction between groups uses both ways round";
            check
                .error(codes::NOTHING_TO_RUN, &format!("{path}/directions"), message)
                .help("leave it out");
        }
        if collectives.iter().any(|before| before.name == ring.name) {
            let message = format!("another collective is called `{}`", ring.name);
            check
                .error(codes::COLLECTIVE_TWICE, &format!("{path}/name"), message)
                .help("give it its own name, or use `repeat`");
        }
        collectives.push(Collective {
            name: ring.name.clone(),
            kind,
            bytes: ring.bytes.0,
            repeat: ring.repeat,
            priority: ring.priority,
            directions: ring.directions,
        });
    }
    collectives
}
