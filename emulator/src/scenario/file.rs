// SPDX-License-Identifier: Apache-2.0
//! Reads scenario files, and plans their fabrics to check that referenced parts and groups exist.

pub mod codes;
mod collectives;
mod congestion;
mod control;
mod direct_connect;
pub(crate) mod expectations;
mod faults;
mod graph;
mod idle;
mod links;
mod neighbours;
mod network;
mod phases;
mod place;
mod replay;
mod restart;
mod span;
mod switches;
mod traffic;
mod train;
mod transport;

use std::collections::BTreeSet;
use std::sync::Arc;

use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{LinkSpec, Marking, Queueing, Switching};
use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Milliseconds, Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use collectives::{CollectiveFile, RingFile};
pub use congestion::*;
pub use control::{AssumedFile, ControlFile};
pub use faults::{FaultFile, FaultListFile, check as check_faults};
pub use links::LinksFile;
pub use neighbours::{NamedFile, ReadNeighbour};
pub use network::OnFile;
pub use phases::{Acknowledgements, PhasesFile};
pub use place::PlaceFile;
pub use replay::{ReplayFile, TraceDayFile};
pub use span::{FailuresFile, GpuHourFile, RateFile};
pub use switches::SwitchesFile;
pub use traffic::TrafficFile;
pub use transport::TransportFile;

use super::{Expectation, On, PhaseRun, RunStart, Scenario, ScenarioFault, Traffic, Train, plan};
use crate::substrate::{self, PacketSwitches, Substrate};
use expectations::{Breaks, Ground, lower_expectations};
use neighbours::NamedFiles;

/// A run of the emulator: network, workloads, faults and expectations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Kind of the file.
    #[serde(default)]
    pub kind: Option<KindFile>,
    /// Version of the kind: 2.
    #[serde(default)]
    #[schemars(range(min = 2, max = 2))]
    pub version: Option<u32>,
    /// Name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// A fabric file, or a network defined in this file.
    pub on: PlaceFile,
    /// Cables of a network defined in this file.
    #[serde(default)]
    pub links: LinksFile,
    /// Random seed; `--seed` on the command line overrides it.
    #[serde(default = "usual_seed")]
    pub seed: u64,
    /// Parts that have failed before the run starts: nodes `n17`, bundles `n17/b0`, fibres
    /// `n17/b0.2`, optical switches `ocs3`.
    #[serde(default)]
    pub broken: Vec<Part>,
    /// Day of a fault trace whose failed nodes are added to `broken`.
    #[serde(default)]
    pub broken_by: Option<TraceDayFile>,
    /// Collectives of every job, in order. Groups progress independently, but a collective between
    /// groups waits for all of them.
    #[serde(default)]
    pub collectives: Vec<CollectiveFile>,
    /// Additional traffic between GPUs `n4/g2`, nodes `n4` or hosts `h3`. Each workload starts
    /// after its prerequisites. Hosts that have failed before the run starts do not take part.
    #[serde(default)]
    pub traffic: Vec<TrafficFile>,
    /// Training jobs of the fabric, simulated as steps of computation and of exchanges over rings and the network.
    #[serde(default)]
    pub train: Vec<Train>,
    /// Phases of the fabric's step, over its circuits.
    #[serde(default)]
    pub phases: Option<PhasesFile>,
    /// Faults during the run.
    #[serde(default)]
    pub faults: Vec<FaultFile>,
    /// File with additional faults, relative to this file.
    #[serde(default)]
    pub faults_in: Option<String>,
    /// Days of a fault trace with additional faults, in compressed time.
    #[serde(default)]
    pub replay: Option<ReplayFile>,
    /// Time span over which the jobs of `train` run with `failures`. The result is a bill of lost
    /// GPU-hours.
    #[serde(default)]
    pub span: Option<Text<Milliseconds>>,
    /// Failures during the span: a fault trace, or rates.
    #[serde(default)]
    pub failures: Option<FailuresFile>,
    /// Number of runs that measure the loss of each kind of failure, 2 to 1,000; default 16. Only
    /// with `span`.
    #[serde(default)]
    #[schemars(range(min = 2, max = 1000))]
    pub samples: Option<u32>,
    /// Earlier result for the same jobs, relative to this file, whose losses are reused. Only with
    /// `span`.
    #[serde(default)]
    pub losses: Option<String>,
    /// Price of a GPU-hour, such as `2.5 USD`. Required for losses in dollars. Only with `span`.
    #[serde(default)]
    pub gpu_hour: Option<GpuHourFile>,
    /// The control plane: assumed delays, or `lightloomd`.
    #[serde(default, deserialize_with = "control::word_or_keys")]
    #[schemars(with = "control::ControlSchema")]
    pub control: ControlFile,
    /// Packet sizes, load balancing, congestion control and retransmission.
    #[serde(default)]
    pub transport: TransportFile,
    /// Queues of the packet switches.
    #[serde(default)]
    pub switches: SwitchesFile,
    /// Simulated time limit. By default, the run fails after 10 s and prints its wait-for graph.
    #[serde(default = "time_limit")]
    pub time_limit: Text<Picoseconds>,
    /// Maximum number of packets sent, counted once per link. A run that exceeds it is stopped and
    /// fails.
    #[serde(default = "packet_limit")]
    #[schemars(range(min = 1))]
    pub packet_limit: u64,
    /// Conditions checked at the end: `waste_ratio < 0.01`, `restored within 5ms`, `completes
    /// within 20ms`, `group g3 unaffected`, `workload shuffle unaffected`, `no drops on priority
    /// 3`, `no deadlock`.
    #[serde(default)]
    pub expect: Vec<String>,
}

/// Kind of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindFile {
    /// A scenario.
    Scenario,
}

fn usual_seed() -> u64 {
    Seed::USUAL.0
}

fn time_limit() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(10_000))
}

fn packet_limit() -> u64 {
    10_000_000_000
}

/// Reads a scenario file and all files that it references. Returns all errors.
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut ReadNeighbour<'_>,
) -> (Option<Scenario>, Vec<Diagnostic>) {
    load_for(LoadPurpose::default(), file, bytes, read)
}

/// Overrides for loading a scenario.
#[derive(Clone, Debug, Default)]
pub struct LoadPurpose {
    /// Plan that overrides the plan in the file.
    pub in_force: Option<Arc<Plan>>,
    /// Seed that overrides the seed in the file.
    pub seed: Option<Seed>,
    /// Whether an external program sends traffic, so that the file needs no workloads.
    pub is_called: bool,
}

/// Reads the network for an external program. The file may contain workloads but not expectations.
pub fn load_called(
    file: &str,
    bytes: &[u8],
    read: &mut ReadNeighbour<'_>,
) -> (Option<Scenario>, Vec<Diagnostic>) {
    load_for(LoadPurpose { is_called: true, ..Default::default() }, file, bytes, read)
}

/// Like [`load`], with overrides.
pub fn load_for(
    purpose: LoadPurpose,
    file: &str,
    bytes: &[u8],
    read: &mut ReadNeighbour<'_>,
) -> (Option<Scenario>, Vec<Diagnostic>) {
    let mut beside = Vec::new();
    let sha256 = lightloom_fabric::provenance::sha256(bytes);
    let (loaded, mut mistakes) = document::load(file, bytes, |raw: ScenarioFile, check| {
        lower(raw, purpose, sha256, check, &mut NamedFiles { read, mistakes: &mut beside })
    });
    mistakes.extend(beside);
    (loaded, mistakes)
}

fn lower(
    raw: ScenarioFile,
    LoadPurpose { in_force, seed, is_called }: LoadPurpose,
    sha256: String,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<Scenario> {
    let fabric = match &raw.on.on {
        OnFile::Fabric(name) => neighbours.fabric(name, "/on/fabric", check),
        _ => None,
    };
    let plan = in_force.or_else(|| neighbours.plan(raw.on.plan.as_ref()?, check));
    let transport = lower_transport(&raw, check);
    let switches = lower_switches(&raw, fabric.as_deref(), transport.packet(), check);
    let on = match fabric.clone() {
        Some(fabric) => Some(On::Fabric(fabric)),
        None => lower_network(&raw, &switches, check, neighbours).map(On::Network),
    };
    let collectives = collectives::lower(&raw.collectives, &switches, check);
    let named = collectives.clone();
    idle::require_something(&raw, is_called, check);
    let broken_by = raw.broken_by.as_ref().and_then(|d| replay::lower_day(d, check, neighbours));
    let replay = raw.replay.as_ref().and_then(|days| replay::lower(days, check, neighbours));
    let span = span::lower(&raw, check, neighbours);
    let base = on.map(|on| Scenario {
        sha256: fabric.as_ref().map_or(sha256, |fabric| fabric.sha256.clone()),
        // With `span`, the seed selects the failures but not the measured losses.
        seed: seed.filter(|_| raw.span.is_none()).unwrap_or(Seed(raw.seed)),
        broken: fabric.as_ref().map_or_else(Vec::new, |f| existing(&raw.broken, f, check)),
        phases: raw.phases.as_ref().map(|phases| lower_phases(phases, &raw)),
        phases_after: Vec::new(),
        control: control::lower(&raw.control, check),
        host_delay: raw.transport.host_delay.0,
        time_limit: SimTime(raw.time_limit.0.get()),
        ends_at_limit: check.is_written("/time_limit"),
        packet_limit: raw.packet_limit,
        name: raw.name.clone(),
        faults: Vec::new(),
        traffic: Vec::new(),
        train: train::lower(&raw, check),
        span,
        is_called,
        expectations: Vec::new(),
        on,
        plan,
        first: None,
        broken_by,
        collectives,
        replay,
        transport,
        switches,
    });
    let start = base.as_ref().and_then(|base| require_plan(base, &raw, check));
    let names = start.as_ref().map(|start| start.substrate.as_ref());
    let priorities = switches.have_priorities();
    let traffic = names
        .map(|names| traffic::lower(&raw.traffic, &named, names, priorities, check, neighbours));
    let after = raw.phases.as_ref().map_or(&[][..], |phases| &phases.after);
    let phases_after = traffic::lower_after(after, &raw.traffic, &named, "/phases", check);
    let place = faults::FaultContext::of(start.as_ref(), &switches, raw.phases.as_ref());
    let faults = lower_faults(&raw, place.as_ref(), &transport, check, neighbours);
    let scenario = base.map(|base| Scenario {
        traffic: traffic.unwrap_or_default(),
        faults,
        phases_after,
        first: start.as_ref().and_then(|start| start.first(&base)),
        ..base
    });
    let scenario = expect(scenario, start.as_ref(), &raw, check);
    scenario.filter(|_| !check.has_errors() && !neighbours.have_errors())
}

fn lower_faults(
    raw: &ScenarioFile,
    place: Option<&faults::FaultContext<'_>>,
    transport: &Transport,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Vec<ScenarioFault> {
    let mut faults = faults::lower(&raw.faults, place, check);
    faults::warn_of_large_packets(&raw.faults, transport, check);
    faults.extend(faults_beside(raw, place, check, neighbours));
    faults
}

fn expect(
    mut scenario: Option<Scenario>,
    start: Option<&RunStart>,
    raw: &ScenarioFile,
    check: &mut Check<'_>,
) -> Option<Scenario> {
    if let Some((scenario, start)) = scenario.as_mut().zip(start) {
        train::require(raw, scenario, start, check);
        restart::require(raw, scenario, start, check);
        span::require(scenario, start, check);
        scenario.time_limit = train::time_limit(scenario, start);
        if scenario.is_called && !scenario.ends_at_limit {
            scenario.time_limit = SimTime(u64::MAX / 2);
        }
    }
    let ground = scenario.as_ref().zip(start).map(|(s, start)| ground(raw, s, start));
    idle::refuse(raw, scenario.as_ref(), ground.as_ref(), check);
    let expectations = lower_expectations(&raw.expect, ground.as_ref(), check);
    traffic::refuse_sentences(&raw.expect, &raw.traffic, check);
    if let Some(start) = start {
        require_groups(start, &raw.expect, check);
    }
    if let Some(scenario) = &mut scenario {
        scenario.expectations = expectations;
    }
    scenario
}

fn lower_network(
    raw: &ScenarioFile,
    switches: &PacketSwitches,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Option<Arc<Substrate>> {
    let on = &raw.on.on;
    if matches!(on, OnFile::Fabric(_)) {
        return None;
    }
    let shape = network::lower(on, &raw.links, check, neighbours)?;
    substrate::of_shape(&shape, switches, raw.links.nic_delay.0)
        .map(Arc::new)
        .map_err(|e| drop(check.error(codes::BAD_NETWORK, "/on", e.to_string())))
        .ok()
}

/// Phases without other workloads use large packets (a tenth of the data in flight) and twice the
/// window that fills the path, so that bursts at a leaf's interface do not starve a circuit.
fn lower_transport(raw: &ScenarioFile, check: &mut Check<'_>) -> Transport {
    if !is_long(raw) || check.is_written("/transport") {
        return transport::lower(&raw.transport, network::host_ports(raw), check);
    }
    // A long timeout is harmless because phases redistribute lost data immediately. It tolerates
    // late acknowledgements in unbounded queues.
    let timeout = is_alone(raw).then_some(Picoseconds::from_millis(20));
    Transport {
        payload: Bytes(60 << 10),
        window: Window::BandwidthDelay { percent: 200 },
        timeout,
        ..Transport::default()
    }
}

/// Queues default to unbounded for phases over circuits, so that packets are lost only when a circuit goes dark.
fn lower_switches(
    raw: &ScenarioFile,
    fabric: Option<&Fabric>,
    packet: Bytes,
    check: &mut Check<'_>,
) -> PacketSwitches {
    let phases = raw.phases.as_ref();
    match phases.map(|phases| phases.acknowledgements).unwrap_or_default() {
        order if is_long(raw) && !check.is_written("/switches") => PacketSwitches {
            queue: None,
            mark_from: packet * 16,
            marking: Marking::Threshold,
            queueing: match order {
                Acknowledgements::First => Some(Queueing::default()),
                Acknowledgements::InTurn => None,
            },
            switching: Switching::StoreAndForward,
        },
        _ => {
            if phases.is_some() && check.is_written("/phases/acknowledgements") {
                let message = "with `switches`, `phases.acknowledgements` has no effect";
                let path = "/phases/acknowledgements";
                check.error(codes::NO_EFFECT, path, message).help("leave one of them out");
            }
            let cable = match &raw.on.on {
                OnFile::Fabric(_) => {
                    fabric.map(|f| LinkSpec::new(f.dcn.link_rate(), f.dcn.link_latency()))
                }
                _ => Some(raw.links.longest()),
            };
            switches::lower(&raw.switches, cable.as_ref(), packet, check)
        }
    }
}

fn is_long(file: &ScenarioFile) -> bool {
    file.phases.is_some() || !file.train.is_empty()
}

fn is_alone(file: &ScenarioFile) -> bool {
    file.collectives.is_empty() && file.traffic.is_empty()
}

fn lower_phases(raw: &PhasesFile, file: &ScenarioFile) -> PhaseRun {
    let scale = raw.scale.or((!is_alone(file)).then_some(1));
    PhaseRun { steps: raw.steps, in_flight: raw.in_flight, scale }
}

fn ground<'a>(raw: &ScenarioFile, scenario: &'a Scenario, start: &RunStart) -> Ground<'a> {
    let between = scenario.collectives.iter().filter(|one| one.is_between_groups);
    let mut priorities: BTreeSet<u8> = between.map(|one| one.priority).collect();
    if start.substrate.has_switches() {
        priorities.extend(scenario.traffic.iter().flat_map(Traffic::priorities));
    }
    if scenario.phases.is_some() || !scenario.train.is_empty() || scenario.is_called {
        priorities.insert(0);
    }
    let mut breaks = Breaks::default();
    for fault in &scenario.faults {
        breaks.add(fault.probability, !fault.is_of_control());
        breaks.forever |=
            fault.probability >= 1.0 && fault.lasts.is_none() && fault.effect.is_grey();
    }
    // Assume the worst if the fault file cannot be read, as for a trace.
    let unread = raw.faults_in.is_some() && scenario.faults.len() == raw.faults.len();
    if raw.replay.is_some() || unread {
        breaks.add(1.0, true);
    }
    Ground {
        switches: &scenario.switches,
        breaks,
        priorities,
        has_groups: !scenario.collectives.is_empty() || !scenario.train.is_empty(),
        has_plan: start.plan.is_some(),
        has_steps: scenario.phases.is_some() || !scenario.train.is_empty(),
        has_flows: scenario.is_called
            || !scenario.traffic.is_empty()
            || scenario.phases.is_some()
            || !scenario.train.is_empty(),
    }
}

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

const PLANNED_FROM: [&str; 4] = ["/on", "/broken", "/broken_by", "/replay"];

/// Ignores faults during the run, because they may contain errors.
fn require_plan(base: &Scenario, raw: &ScenarioFile, check: &mut Check<'_>) -> Option<RunStart> {
    let key = match (&base.on, &base.replay) {
        _ if raw.on.plan.is_some() => "/on/plan",
        (On::Network(_), Some(_)) => "/replay/trace",
        _ => "/on",
    };
    match plan(base) {
        Ok(start) => {
            if raw.phases.is_some() && start.circuits.is_none() {
                check
                    .error(codes::NO_EFFECT, "/phases", "no job of this fabric has phases with host traffic")
                    .help("add a job with `step: {training: …}` to the fabric, or use `dcn: {reconfigurable_fat_tree: …}` with any `step`");
            }
            Some(start)
        }
        Err(error) => {
            let code = if key == "/replay/trace" { codes::BAD_NEIGHBOUR } else { codes::NO_PLAN };
            let report = check.error(code, key, error.to_string());
            let report = match key {
                "/on" => report,
                "/on/plan" => report.help(
                    "repair it with `lightloom replan PLAN --fabric FABRIC --fault PARTS -o FILE`, or make a new plan with `lightloom plan FABRIC \
                     --fault PARTS -o FILE`",
                ),
                _ => report.help(
                    "specify the number of GPUs per host in the trace, such as `gpus_per_host: 8`, \
                     or use a larger trace",
                ),
            };
            PLANNED_FROM.iter().fold(report, |report, key| report.depends_on(key));
            None
        }
    }
}

fn require_groups(start: &RunStart, raw: &[String], check: &mut Check<'_>) {
    let groups = start.groups();
    for (index, sentence) in raw.iter().enumerate() {
        if let Ok(Expectation::Unaffected(group)) = sentence.parse()
            && groups > 0
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
    ground: Option<&faults::FaultContext<'_>>,
    check: &mut Check<'_>,
    neighbours: &mut NamedFiles<'_, '_>,
) -> Vec<ScenarioFault> {
    let Some(name) = &raw.faults_in else { return Vec::new() };
    let Some(NamedFile { name, bytes }) = neighbours.read(name, "/faults_in", check) else {
        return Vec::new();
    };
    let (faults, mistakes) = faults::load(&name, &bytes, ground);
    neighbours.mistakes.extend(mistakes);
    faults.unwrap_or_default()
}

impl Scenario {
    /// Returns all errors of a fault file for this scenario.
    pub fn check_faults(&self, file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
        let start = plan(&Self { faults: Vec::new(), ..self.clone() }).ok();
        let phases =
            self.phases.map(|phases| PhasesFile { steps: phases.steps, ..Default::default() });
        let ground = faults::FaultContext::of(start.as_ref(), &self.switches, phases.as_ref());
        faults::load(file, bytes, ground.as_ref()).1
    }
}
