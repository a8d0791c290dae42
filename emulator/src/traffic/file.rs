//! The traffic file: which network, what is sent, what breaks when, what is expected.

mod direct_connect;
mod graph;
mod links;
mod network;
mod replay;
pub(crate) mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

use lightloom_engine::Queueing;
use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spot::{Spot, SpotError};
use super::{Plant, TrafficScenario, Workload};
use crate::scenario::expectation_file::{Breaks, Ground, lower_expectations};
use crate::scenario::fault_file::{FaultFile, lower_fault_list, require_priorities};
use crate::scenario::file::{packet_limit, time_limit};
use crate::scenario::neighbours::Neighbours;
use crate::scenario::switches::lower_switches;
use crate::scenario::transport_file::lower_transport;
use crate::scenario::{
    Effect, Expectation, Fault, FaultListFile, Figure, Neighbour, ReadNeighbour, Switches,
    SwitchesFile, Target, TransportFile, codes as base,
};
use links::LinksFile;
use network::NetworkFile;
use replay::{NetworkReplayFile, lower_network_replay};
use workload::{WorkloadFile, refuse_sentences};

/// The mistakes that only a traffic file can have.
pub mod codes {
    lightloom_fabric::document::codes! {
        /// A shape that cannot be laid out.
        BAD_NETWORK = "LL0321", "a network that cannot be laid out";
        /// A workload that cannot be run.
        BAD_WORKLOAD = "LL0322", "a workload that cannot be run like this";
        /// A row of a table of flows.
        BAD_FLOW = "LL0323", "a row of a table of flows that says no flow";
    }
}

/// A run of workloads on a network of switches: what is sent, what breaks, and what is expected.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficFile {
    /// Its name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The shape of the network.
    pub network: NetworkFile,
    /// Its cables.
    #[serde(default)]
    pub links: LinksFile,
    /// How its switches queue.
    #[serde(default)]
    pub switches: SwitchesFile,
    /// How data is cut into packets, sent and repaired.
    #[serde(default)]
    pub transport: TransportFile,
    /// Seed of every random draw; `--seed` on the command line overrides it.
    #[serde(default)]
    pub seed: u64,
    /// What is sent: each begins when what it waits for is done.
    #[schemars(length(min = 1))]
    pub traffic: Vec<WorkloadFile>,
    /// What breaks during the run, and when.
    #[serde(default)]
    pub faults: Vec<FaultFile<PartName>>,
    /// A file with more of what breaks, relative to this file.
    #[serde(default)]
    pub faults_in: Option<String>,
    /// Some days of a fault trace, in compressed time, as more of what breaks.
    #[serde(default)]
    pub replay: Option<NetworkReplayFile>,
    /// From a fault or a repair until flows have been led around what is dark.
    #[serde(default = "reroute_delay")]
    pub reroute_delay: Text<Picoseconds>,
    /// The run ends at this simulated time. Left out, a run that comes so far is taken for one that
    /// never ends: it fails, and what was waiting for what is told.
    #[serde(default = "time_limit")]
    pub time_limit: Text<Picoseconds>,
    /// A run that puts more packets than this on a wire is stopped and fails.
    #[serde(default = "packet_limit")]
    #[schemars(range(min = 1))]
    pub packet_limit: u64,
    /// What must be true in the end: `completes within 20ms`, `no drops on priority 3`, `no deadlock`,
    /// `restored within 5ms`, `workload shuffle unaffected`, `drops == 0`.
    #[serde(default)]
    pub expect: Vec<String>,
}

fn reroute_delay() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(1))
}

/// A part of the network by name: a host `h3`, its interface `h3/nic1`, a switch `s4`, a switch with its hosts
/// `rack s4`, a cable `h3-s0`, an optical switch `ocs5`, `any host`, `any switch`, `any cable`, `control`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PartName(pub String);

impl PartName {
    /// Whether some network could have such a part.
    fn could_be(&self) -> bool {
        let plain = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
        };
        let text = self.0.as_str();
        let of_rack = text.strip_prefix("rack ").is_some_and(|switch| plain(switch.trim()));
        let of_cable = text.split_once('-').is_some_and(|(one, other)| plain(one) && plain(other));
        let of_interface = text.split_once("/nic").is_some_and(|(host, nic)| {
            plain(host) && !nic.is_empty() && nic.chars().all(|c| c.is_ascii_digit())
        });
        let drawn = ["any host", "any switch", "any cable"].contains(&text);
        plain(text) || of_rack || of_cable || of_interface || drawn
    }
}

/// Reads a traffic file and the tables it names: a scenario, or every mistake in it.
#[must_use]
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut ReadNeighbour<'_>,
) -> (Option<TrafficScenario>, Vec<Diagnostic>) {
    let mut beside = Vec::new();
    let sha256 = lightloom_fabric::file::sha256(bytes);
    let (loaded, mut mistakes) = document::load(file, bytes, |raw: TrafficFile, check| {
        lower(raw, sha256, check, &mut Neighbours { read, mistakes: &mut beside })
    });
    mistakes.extend(beside);
    (loaded, mistakes)
}

fn lower(
    raw: TrafficFile,
    sha256: String,
    check: &mut Check<'_>,
    beside: &mut Neighbours<'_, '_>,
) -> Option<TrafficScenario> {
    let transport = lower_transport(&raw.transport, check);
    let cable = raw.links.longest();
    let switches = lower_switches(&raw.switches, Some(&cable), transport.packet(), check);
    network::refuse_choice(&raw.network, transport.balance, check);
    let shape = network::lower(&raw.network, &raw.links, check, beside);
    let plant = shape.and_then(|shape| {
        Plant::build(&shape, &switches, raw.links.nic_delay.0)
            .map_err(|error| drop(check.error(codes::BAD_NETWORK, "/network", error.to_string())))
            .ok()
    });
    let named = |plant: &Plant| workload::lower(&raw.traffic, plant, check, beside);
    let workloads = plant.as_ref().map(named).unwrap_or_default();
    let mut faults = lower_faults(&raw.faults, plant.as_ref(), &switches, check);
    faults.extend(faults_beside(&raw, plant.as_ref(), &switches, check, beside));
    let replay = raw.replay.as_ref().and_then(|replay| {
        lower_network_replay(replay, (plant.as_ref(), Seed(raw.seed)), check, beside)
    });
    let breaks = breaks(&raw, &faults);
    let ground = plant.as_ref().map(|plant| Ground {
        switches: &switches,
        breaks,
        priorities: priorities(&workloads, plant),
    });
    let expectations = lower_expectations(&raw.expect, ground.as_ref(), check);
    refuse_sentences(&raw.expect, &raw.traffic, check);
    refuse_strangers(&expectations, &raw, check);
    let plant = plant?;
    (!check.has_errors() && !beside.have_errors()).then(|| TrafficScenario {
        name: raw.name,
        sha256,
        seed: Seed(raw.seed),
        plant: Arc::new(plant),
        switches: Switches { ..switches },
        transport,
        host_delay: raw.transport.host_delay.0,
        workloads,
        faults,
        replay,
        reroute_delay: raw.reroute_delay.0,
        time_limit: SimTime(raw.time_limit.0.get()),
        ends_at_limit: check.is_written("/time_limit"),
        packet_limit: raw.packet_limit,
        expectations,
    })
}

/// The faults of a file. Without a network, their parts are not looked at.
fn lower_faults(
    raw: &[FaultFile<PartName>],
    plant: Option<&Plant>,
    switches: &Switches,
    check: &mut Check<'_>,
) -> Vec<Fault<Spot>> {
    lower_fault_list(raw, check, |name, effect, path, check| {
        if plant.is_none() && !name.could_be() {
            let message = format!("`{}` can name no part of a network", name.0);
            check
                .error(base::NO_SUCH_THING, path, message)
                .help("write `h3`, `h3/nic1` or `h3-s0`");
        }
        if let Err(reason) = plant.map_or(Ok(()), |plant| plant.allows(&name.0, effect)) {
            check.error(base::BAD_FAULT, path, reason);
        }
        let absent = |error: SpotError, check: &mut Check<'_>| {
            check.error(base::NO_SUCH_THING, path, error.to_string()).depends_on("/network");
        };
        let spot = plant?.spot(&name.0).map_err(|error| absent(error, check)).ok()?;
        if let Effect::PauseStorm(_) = effect {
            require_storm(spot, switches, path, check);
        }
        Some(spot)
    })
}

/// Refuses a pause storm where nobody listens to pauses, and of what is no interface.
fn require_storm(spot: Spot, switches: &Switches, path: &str, check: &mut Check<'_>) {
    if !matches!(spot, Spot::Host(_) | Spot::Nic(..) | Spot::AnyHost) {
        let message = "pause storms come from a host or its interface";
        check.error(base::BAD_FAULT, path, message).help("write `h3` or `h3/nic0`");
    }
    require_priorities(switches, path, check);
}

/// The faults of the file that this one names.
fn faults_beside(
    raw: &TrafficFile,
    plant: Option<&Plant>,
    switches: &Switches,
    check: &mut Check<'_>,
    beside: &mut Neighbours<'_, '_>,
) -> Vec<Fault<Spot>> {
    let Some(name) = &raw.faults_in else { return Vec::new() };
    let Some(Neighbour { name, bytes }) = beside.read(name, "/faults_in", check) else {
        return Vec::new();
    };
    let (faults, mistakes) = read_faults(&name, &bytes, plant, switches);
    beside.mistakes.extend(mistakes);
    faults.unwrap_or_default()
}

fn read_faults(
    file: &str,
    bytes: &[u8],
    plant: Option<&Plant>,
    switches: &Switches,
) -> (Option<Vec<Fault<Spot>>>, Vec<Diagnostic>) {
    document::load(file, bytes, |list: FaultListFile<PartName>, check| {
        let faults = lower_faults(&list.faults, plant, switches, check);
        (!check.has_errors()).then_some(faults)
    })
}

impl TrafficScenario {
    /// Every mistake of a file of faults that this scenario could name.
    #[must_use]
    pub fn check_faults(&self, file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
        read_faults(file, bytes, Some(&self.plant), &self.switches).1
    }
}

/// Every mistake of a file of faults that no network is known for; nothing if it names a part of a fabric.
#[must_use]
pub fn check_faults(file: &str, bytes: &[u8]) -> Option<Vec<Diagnostic>> {
    let lossless = Switches { queueing: Some(Queueing::default()), ..Switches::default() };
    let mut is_of_fabric = false;
    let read = |list: FaultListFile<PartName>, check: &mut Check<'_>| {
        let names = list.faults.iter().flat_map(|fault| fault.part.iter().chain(&fault.parts));
        let targets = names.filter_map(|name| name.0.parse::<Target>().ok());
        is_of_fabric = targets.into_iter().any(|target| target != Target::Control);
        lower_faults(&list.faults, None, &lossless, check);
        (!check.has_errors()).then_some(())
    };
    let mistakes = document::load(file, bytes, read).1;
    (!is_of_fabric).then_some(mistakes)
}

/// What may break. A file of faults that cannot be read counts for the worst, as a trace does.
fn breaks(raw: &TrafficFile, faults: &[Fault<Spot>]) -> Breaks {
    let mut breaks = Breaks::default();
    for fault in faults {
        breaks.add(fault.probability, !fault.targets.contains(&Spot::Control));
    }
    let unread = raw.faults_in.is_some() && faults.len() == raw.faults.len();
    if raw.replay.is_some() || unread {
        breaks.add(1.0, true);
    }
    breaks
}

/// The priorities of what crosses a switch.
fn priorities(workloads: &[Workload], plant: &Plant) -> BTreeSet<u8> {
    match plant.has_switches() {
        true => workloads.iter().flat_map(Workload::priorities).collect(),
        false => BTreeSet::new(),
    }
}

/// Refuses expectations about what only a planned fabric has.
fn refuse_strangers(expectations: &[Expectation], raw: &TrafficFile, check: &mut Check<'_>) {
    for (index, sentence) in raw.expect.iter().enumerate() {
        let path = format!("/expect/{index}");
        let Ok(expectation) = sentence.parse::<Expectation>() else { continue };
        if !expectations.contains(&expectation) {
            continue;
        }
        match expectation {
            Expectation::Unaffected(_) => {
                check
                    .error(base::NO_SUCH_THING, &path, "a network without a plan has no groups")
                    .help("write `workload NAME unaffected`");
            }
            Expectation::Figure { figure, .. } if !has(figure) => {
                let message = format!("a network without a plan has no {}", figure.name());
                check.error(base::NO_SUCH_THING, &path, message).help(
                    "there are `drops`, `packets_lost`, `retransmissions`, `gpus_affected` (hosts), `gpus_lost`, \
                     `availability` and `goodput`",
                );
            }
            _ => {}
        }
    }
}

fn has(figure: Figure) -> bool {
    matches!(
        figure,
        Figure::Drops
            | Figure::Lost
            | Figure::Retransmissions
            | Figure::GpusAffected
            | Figure::GpusLost
            | Figure::Availability
            | Figure::Goodput
    )
}
