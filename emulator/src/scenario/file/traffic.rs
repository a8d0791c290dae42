// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_collective::{AllReduceWay, Directions, Exchange, Method};
use lightloom_engine::VertexId;
use lightloom_fabric::document::Check;
use lightloom_training::described::{self, StepGraphFile};
use lightloom_units::{Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::collectives::refuse_without_priorities;
use super::expectations::refuse_idle;
use super::neighbours::{NamedFile, NamedFiles};
use crate::scenario::{
    Collective, Expectation, FlowSizes, ListedFlow, Pattern, Prior, SizeRow, Traffic, read_flows,
};
use crate::substrate::Substrate;

/// Workload of hosts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficFile {
    /// Name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Kind of workload.
    pub run: PatternFile,
    /// Size: the whole buffer of one rank for a collective, or each flow for a flow pattern.
    #[serde(default)]
    pub bytes: Option<Text<Bytes>>,
    /// Participants in rank order: names such as `h3`, or ranges such as `h0..h7`. Defaults to all
    /// hosts.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Directions around a ring, if the workload uses one: `both` (default), each with half of the data, or `one`.
    #[serde(default)]
    pub directions: Option<Directions>,
    /// Priority at switches with priority queues, 0 (lowest) to 6.
    #[serde(default)]
    #[schemars(range(min = 0, max = 6))]
    pub priority: u8,
    /// Preceding traffic or collectives that must complete first.
    #[serde(default)]
    pub after: Vec<String>,
    /// Delay after the start of the run, or after the workloads in `after`.
    #[serde(default = "at_once")]
    pub delay: Text<Picoseconds>,
    /// Number of sequential repetitions.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeat: u32,
}

fn at_once() -> Text<Picoseconds> {
    Text(Picoseconds::ZERO)
}

fn once() -> u32 {
    1
}

/// Kind of workload.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PatternFile {
    /// Every host sends to one other host and receives from one, in a random cycle.
    Permutation,
    /// Every host sends to the host that is this many positions ahead.
    Shift(u32),
    /// All other hosts send to this host.
    Incast(String),
    /// Every host sends part of its data to every other host.
    AllToAll(Exchange),
    /// Every host receives the sum.
    AllReduce(AllReduceWay),
    /// Every host receives its part of the sum, on a ring.
    ReduceScatter,
    /// Every host receives all parts, on a ring.
    AllGather,
    /// The middle host sends to all others down a binary tree in this many chunks.
    Broadcast(u32),
    /// Flows from a table `start,src,dst,bytes[,priority]`, relative to this file.
    Flows(String),
    /// Flows with random starts.
    Random(RandomFile),
    /// A step recorded by another tool, relative to this file: PyTorch profiles (Kineto) or Chakra traces,
    /// one per rank; or one Chrome trace, SimAI text (`.txt`) or GOAL text (`.goal`). Tasks run in the
    /// recorded order; computation takes the recorded time, and communication is simulated packet by packet.
    Recorded(Vec<String>),
    /// Computation for this time, without traffic.
    Compute(Text<Picoseconds>),
}

/// Flows with random starts: a Poisson process per host, with random destinations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomFile {
    /// Flow sizes.
    pub sizes: SizesFile,
    /// Data load of a host's cable, above 0 and at most 1.
    #[schemars(range(min = 0, max = 1))]
    pub load: f64,
    /// Period in which new flows start.
    pub lasts: Text<Picoseconds>,
}

/// Flow size distribution.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SizesFile {
    /// Web search (DCTCP, SIGCOMM 2010).
    WebSearch,
    /// Hadoop cluster (Roy et al., SIGCOMM 2015).
    Hadoop,
    /// Points of a distribution with increasing sizes, up to 100 percent.
    Points(Vec<SizeRow>),
}

pub(super) fn lower(
    raw: &[TrafficFile],
    collectives: &[Collective],
    substrate: &Substrate,
    have_priorities: bool,
    check: &mut Check<'_>,
    beside: &mut NamedFiles<'_, '_>,
) -> Vec<Traffic> {
    let mut workloads: Vec<Traffic> = Vec::new();
    for (index, file) in raw.iter().enumerate() {
        let path = format!("/traffic/{index}");
        if raw[..index].iter().any(|before| before.name == file.name) {
            let message = format!("another workload is also called `{}`", file.name);
            check.error(codes::COLLECTIVE_TWICE, &format!("{path}/name"), message);
        }
        let after = lower_after(&file.after, &raw[..index], collectives, &path, check);
        if file.priority > 0 && !have_priorities {
            refuse_without_priorities(&format!("{path}/priority"), check);
        }
        let named = lower_hosts(file, &path, substrate, check);
        let hosts = named.as_ref().unwrap_or(&substrate.hosts);
        let mut lowering =
            Lowering { file, path: &path, substrate, hosts, have_priorities, check, beside };
        if let Some(run) = lowering.run() {
            let bytes = lowering.bytes(&run);
            if named.is_some() {
                lowering.require(&run);
            }
            workloads.push(Traffic {
                name: file.name.clone(),
                run,
                bytes,
                directions: file.directions.unwrap_or_default(),
                priority: file.priority,
                delay: file.delay.0,
                after,
                repeat: file.repeat,
                hosts: hosts.clone(),
            });
        }
    }
    workloads
}

pub(super) fn lower_after(
    names: &[String],
    above: &[TrafficFile],
    collectives: &[Collective],
    path: &str,
    check: &mut Check<'_>,
) -> Vec<Prior> {
    let mut after = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let traffic = above.iter().position(|before| before.name == *name).map(Prior::Traffic);
        let collective = collectives.iter().position(|one| one.name == *name);
        match (traffic, collective.map(Prior::Collective)) {
            (Some(prior), None) | (None, Some(prior)) => after.push(prior),
            (Some(_), Some(_)) => {
                let message = format!("both a collective and a workload are called `{name}`");
                check
                    .error(codes::BAD_WORKLOAD, &format!("{path}/after/{place}"), message)
                    .help("rename one of them");
            }
            (None, None) => {
                let message = format!("no workload above this one is called `{name}`");
                check
                    .error(codes::BAD_WORKLOAD, &format!("{path}/after/{place}"), message)
                    .help("a workload can wait only for collectives and for workloads above it")
                    .depends_on("/traffic")
                    .depends_on("/collectives");
            }
        }
    }
    after
}

pub(super) fn refuse_sentences(raw: &[String], workloads: &[TrafficFile], check: &mut Check<'_>) {
    for (index, sentence) in raw.iter().enumerate() {
        let Ok(expectation) = sentence.parse::<Expectation>() else { continue };
        let Some(name) = expectation.workload() else { continue };
        let path = format!("/expect/{index}");
        match workloads.iter().find(|file| file.name == name) {
            None => {
                let message = format!("workload `{name}` does not exist in this file");
                check
                    .error(codes::NO_SUCH_THING, &path, message)
                    .help("use the name of a workload under `traffic`")
                    .depends_on("/traffic");
            }
            Some(file)
                if matches!(file.run, PatternFile::Compute(_))
                    && matches!(expectation, Expectation::WorkloadUnaffected(_)) =>
            {
                let message = format!("`{name}` has no flows that could be affected");
                let help = "use a workload with flows, or leave it out";
                refuse_idle(&path, &message, help, check);
            }
            Some(_) => {}
        }
    }
}

fn lower_hosts(
    file: &TrafficFile,
    path: &str,
    substrate: &Substrate,
    check: &mut Check<'_>,
) -> Option<Vec<VertexId>> {
    if file.hosts.is_empty() {
        return Some(substrate.hosts.clone());
    }
    let mut hosts: Vec<VertexId> = Vec::new();
    let mut known = true;
    for (index, text) in file.hosts.iter().enumerate() {
        let path = format!("{path}/hosts/{index}");
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (substrate.stretch(first.trim()), substrate.stretch(last.trim())) {
            (Some(first), Some(last)) if first.start <= last.start => {
                hosts.extend(&substrate.hosts[first.start..last.end]);
            }
            (Some(_), Some(_)) => {
                known = false;
                let message = format!("the range `{text}` ends before it starts");
                check.error(codes::BAD_WORKLOAD, &path, message);
            }
            _ => {
                known = false;
                let message = format!("`{text}` does not match any host of this network");
                let last = substrate.hosts.len() - 1;
                let [first, last] = [0, last.min(7)].map(|at| substrate.name(substrate.hosts[at]));
                check.error(codes::NO_SUCH_THING, &path, message).help(format!(
                    "use a host such as `{first}` or a range such as `{first}..{last}`"
                ));
            }
        }
    }
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        check.error(codes::BAD_WORKLOAD, &format!("{path}/hosts"), "a host is listed twice");
    }
    known.then_some(hosts)
}

struct Lowering<'a, 'c, 'd, 't, 'r> {
    file: &'a TrafficFile,
    path: &'a str,
    substrate: &'a Substrate,
    hosts: &'a [VertexId],
    have_priorities: bool,
    check: &'c mut Check<'d>,
    beside: &'c mut NamedFiles<'t, 'r>,
}

impl Lowering<'_, '_, '_, '_, '_> {
    fn refuse(&mut self, key: &str, message: impl Into<String>, help: &str) {
        let path = format!("{}{key}", self.path);
        self.check.error(codes::BAD_WORKLOAD, &path, message).help(help);
    }

    fn run(&mut self) -> Option<Pattern> {
        Some(match &self.file.run {
            PatternFile::Permutation => Pattern::Permutation { by: None },
            PatternFile::Shift(by) => {
                if (*by as usize).checked_rem(self.hosts.len()).is_none_or(|by| by == 0) {
                    let message = format!("a shift by {by} maps every host to itself");
                    self.refuse(
                        "/run/shift",
                        message,
                        "use a number from 1 to the number of hosts minus 1",
                    );
                    return None;
                }
                Pattern::Permutation { by: Some(*by) }
            }
            PatternFile::Incast(into) => {
                let vertex = self.substrate.vertex(into).filter(|at| self.hosts.contains(at));
                let Some(into) = vertex else {
                    let message = format!("`{into}` is not a host of this workload");
                    self.refuse("/run/incast", message, "use the name of a host");
                    return None;
                };
                Pattern::Incast { into }
            }
            PatternFile::AllToAll(exchange) => Pattern::Collective(Method::AllToAll(*exchange)),
            PatternFile::AllReduce(way) => Pattern::Collective(Method::AllReduce(*way)),
            PatternFile::ReduceScatter => Pattern::Collective(Method::ReduceScatter),
            PatternFile::AllGather => Pattern::Collective(Method::AllGather),
            PatternFile::Broadcast(pieces) => {
                if !(1..=10_000).contains(pieces) {
                    let message = format!("{pieces} is not a valid number of chunks");
                    self.refuse("/run/broadcast", message, "use 1 to 10,000");
                }
                Pattern::Collective(Method::Broadcast(*pieces))
            }
            PatternFile::Flows(table) => Pattern::Flows(self.table(table)?),
            PatternFile::Random(random) => self.random(random)?,
            PatternFile::Recorded(files) => self.recorded(files)?,
            PatternFile::Compute(takes) => Pattern::Compute(takes.0),
        })
    }

    fn table(&mut self, name: &str) -> Option<Arc<[ListedFlow]>> {
        let path = format!("{}/run/flows", self.path);
        let neighbour = self.beside.read(name, &path, self.check)?;
        let (flows, mistakes) = read_flows(&neighbour.name, &neighbour.bytes, |name: &str| {
            self.substrate.vertex(name).filter(|vertex| self.substrate.place_of(*vertex).is_some())
        });
        if !self.have_priorities
            && flows.iter().any(|flow| flow.priority.is_some_and(|above| above > 0))
        {
            refuse_without_priorities(&path, self.check);
        }
        let good = mistakes.is_empty();
        self.beside.mistakes.extend(mistakes);
        good.then(|| flows.into())
    }

    fn recorded(&mut self, names: &[String]) -> Option<Pattern> {
        let read = names.iter().enumerate().map(|(at, name)| {
            let path = format!("{}/run/recorded/{at}", self.path);
            self.beside.read(name, &path, self.check)
        });
        let read: Vec<NamedFile> = read.collect::<Vec<_>>().into_iter().collect::<Option<_>>()?;
        let files: Vec<StepGraphFile<'_>> = read
            .iter()
            .map(|file| StepGraphFile { name: &file.name, bytes: &file.bytes })
            .collect();
        let described = match described::read(&files, None) {
            Ok(described) => described,
            Err(error) => {
                let path = format!("{}/run/recorded", self.path);
                self.check.error(codes::BAD_NEIGHBOUR, &path, error.to_string());
                return None;
            }
        };
        let (ranks, hosts) = (described.ranks as usize, self.hosts.len());
        let named = !self.file.hosts.is_empty();
        if ranks > hosts || (named && ranks < hosts) {
            let message = format!("the step has {ranks} ranks, but the workload has {hosts} hosts");
            let help =
                format!("list {ranks} hosts in rank order, such as `hosts: [h0..h{}]`", ranks - 1);
            self.refuse("/run/recorded", message, &help);
            return None;
        }
        Some(Pattern::Recorded(Arc::new(described)))
    }

    fn random(&mut self, raw: &RandomFile) -> Option<Pattern> {
        let sizes = match &raw.sizes {
            SizesFile::WebSearch => Some(FlowSizes::web_search()),
            SizesFile::Hadoop => Some(FlowSizes::hadoop()),
            SizesFile::Points(points) => FlowSizes::through(points.clone()),
        };
        if sizes.is_none() {
            let message = "the points do not increase to 100 percent";
            self.refuse(
                "/run/random/sizes",
                message,
                "use increasing sizes and percentages, ending with 100",
            );
        }
        let load = raw.load;
        if !(load > 0.0 && load <= 1.0) {
            self.refuse(
                "/run/random/load",
                format!("invalid load {load}"),
                "use a number above 0 and at most 1",
            );
            return None;
        }
        Some(Pattern::Random { sizes: sizes?, load, lasts: raw.lasts.0 })
    }

    fn bytes(&mut self, run: &Pattern) -> Bytes {
        match (self.file.bytes, run.has_size()) {
            (Some(bytes), true) if bytes.0 > Bytes::ZERO => bytes.0,
            (None, false) => Bytes::ZERO,
            (Some(_), false) => {
                let message = format!("a workload of kind `{}` does not need a size", run.name());
                self.refuse("/bytes", message, "leave it out");
                Bytes::ZERO
            }
            (_, true) => {
                self.refuse("", "the workload requires a size", "add `bytes: 1MiB`");
                Bytes(1)
            }
        }
    }

    fn require(&mut self, run: &Pattern) {
        let (ranks, all) = (self.hosts.len(), self.substrate.hosts.len());
        if ranks < 2 && !matches!(run, Pattern::Compute(_)) {
            self.refuse("/hosts", "a single host has no peer", "list two or more hosts");
        }
        let method = match run {
            Pattern::Collective(method) => Some(*method),
            _ => None,
        };
        if method.is_some_and(Method::halves) && !ranks.is_power_of_two() {
            let message = format!("halving requires a power of two, but there are {ranks} hosts");
            self.refuse("/run", message, "use 2, 4, 8 … hosts");
        }
        if self.file.directions.is_some() && !method.is_some_and(Method::is_ring) {
            let message = format!("a workload of kind `{}` does not use a ring", run.name());
            self.refuse("/directions", message, "leave it out, or use `{all_reduce: ring}`");
        }
        match method {
            Some(Method::AllReduce(AllReduceWay::Hierarchical(of)))
                if of < 2 || !ranks.is_multiple_of(of as usize) || ranks < 2 * of as usize =>
            {
                let message = format!("{ranks} hosts cannot form two or more groups of {of}");
                self.refuse("/run/all_reduce", message, "use a divisor of the number of hosts");
            }
            Some(Method::AllReduce(AllReduceWay::Torus))
                if self.substrate.grid.is_none() || ranks < all =>
            {
                let help = "use `on: {torus: …}` or `{tpu_cubes: …}` and leave `hosts` out";
                self.refuse("/run", "this requires all hosts of a torus", help);
            }
            _ => {}
        }
    }
}
