//! The scenario file: which fabric, which collectives, what breaks when, what is expected.

use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_fabric::fault::Part;
use lightloom_fabric::seed::Seed;
use lightloom_fabric::units::{Bytes, Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Collective, Control, Fault, Kind, Scenario, TraceDay};
use crate::transport::{Recovery, Transport, Window};

/// The mistakes that only a scenario file can have.
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
    }
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
    /// What breaks during the run, and when.
    #[serde(default)]
    pub faults: Vec<FaultFile>,
    /// How fast the control plane is.
    #[serde(default)]
    pub control: ControlFile,
    /// How data is cut into packets and repaired.
    #[serde(default)]
    pub transport: TransportFile,
    /// The run is stopped at this simulated time.
    #[serde(default = "time_limit")]
    pub time_limit: Text<Picoseconds>,
    /// What must be true in the end: `waste_ratio < 0.01`, `restored within 5ms`,
    /// `completes within 20ms`, `group g3 unaffected`.
    #[serde(default)]
    pub expect: Vec<String>,
}

fn time_limit() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(10_000))
}

/// One moment of a fault trace.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceDayFile {
    /// The trace, relative to this file: see `lightloom trace`.
    pub trace: String,
    /// The day, counted from the start of the trace.
    #[schemars(range(min = 0, max = 36525))]
    pub day: f64,
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
}

fn once() -> u32 {
    1
}

/// A part that breaks during the run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// What breaks: a node `n17`, a bundle `n17/b0` or a fibre `n17/b0.2`.
    pub part: Part,
    /// When, counted from the start of the run.
    pub at: Text<Picoseconds>,
    /// When it works again; left out, it stays broken.
    #[serde(default)]
    pub repaired_at: Option<Text<Picoseconds>>,
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

/// How data is cut into packets and repaired.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportFile {
    /// Data in a full packet.
    pub payload: Text<Bytes>,
    /// What a packet occupies on a link beyond its data.
    pub header: Text<Bytes>,
    /// What an acknowledgement occupies on a link.
    pub acknowledgement: Text<Bytes>,
    /// Data in flight, in percent of what fills the path when nobody else uses it.
    #[schemars(range(min = 1, max = 1000))]
    pub window_percent: u32,
    /// Without progress for so long, everything in flight counts as lost.
    pub timeout: Text<Picoseconds>,
}

impl Default for TransportFile {
    fn default() -> Self {
        let Transport { payload, header, acknowledgement, timeout, .. } = Transport::default();
        Self {
            payload: Text(payload),
            header: Text(header),
            acknowledgement: Text(acknowledgement),
            window_percent: 100,
            timeout: Text(timeout),
        }
    }
}

/// Reads a scenario file: the scenario, or every mistake in it.
#[must_use]
pub fn load(file: &str, bytes: &[u8]) -> (Option<Scenario>, Vec<Diagnostic>) {
    document::load(file, bytes, lower)
}

fn lower(raw: ScenarioFile, check: &mut Check<'_>) -> Option<Scenario> {
    let transport = lower_transport(&raw.transport, check);
    let collectives = lower_collectives(&raw.collectives, check);
    let faults = lower_faults(&raw.faults, check);
    let mut expectations = Vec::new();
    for (index, sentence) in raw.expect.iter().enumerate() {
        match sentence.parse() {
            Ok(expectation) => expectations.push(expectation),
            Err(error) => {
                let error: super::ExpectationError = error;
                check.error(codes::BAD_EXPECTATION, &format!("/expect/{index}"), error.to_string());
            }
        }
    }
    if check.has_errors() {
        return None;
    }
    Some(Scenario {
        name: raw.name,
        fabric: raw.fabric,
        seed: Seed(raw.seed),
        broken: raw.broken,
        broken_by: raw.broken_by.map(|file| TraceDay { trace: file.trace, day: file.day }),
        collectives,
        faults,
        control: Control {
            detection_delay: raw.control.detection_delay.0,
            planning_delay: raw.control.planning_delay.0,
        },
        transport,
        time_limit: SimTime(raw.time_limit.0.get()),
        expectations,
    })
}

fn lower_transport(raw: &TransportFile, check: &mut Check<'_>) -> Transport {
    let sizes = [
        ("payload", raw.payload.0),
        ("header", raw.header.0),
        ("acknowledgement", raw.acknowledgement.0),
    ];
    for (key, size) in sizes {
        if size == Bytes::ZERO || size.0 > 65_535 {
            let path = format!("/transport/{key}");
            check
                .error(codes::BAD_PACKET, &path, format!("a packet cannot have a {key} of {size}"))
                .help("write 1B to 65535B");
        }
    }
    if raw.timeout.0 == Picoseconds::ZERO {
        check
            .error(codes::BAD_PACKET, "/transport/timeout", "a timeout of nothing resends for ever")
            .help("write 500us");
    }
    Transport {
        payload: raw.payload.0,
        header: raw.header.0,
        acknowledgement: raw.acknowledgement.0,
        window: Window::BandwidthDelay { percent: raw.window_percent },
        recovery: Recovery::GoBackN,
        timeout: raw.timeout.0,
        ..Transport::default()
    }
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
        });
    }
    collectives
}

fn lower_faults(raw: &[FaultFile], check: &mut Check<'_>) -> Vec<Fault> {
    let lower = |(index, fault): (usize, &FaultFile)| {
        let (at, repaired_at) = (fault.at.0, fault.repaired_at.map(|time| time.0));
        if repaired_at.is_some_and(|repaired| repaired <= at) {
            check
                .error(
                    codes::REPAIR_BEFORE_FAULT,
                    &format!("/faults/{index}/repaired_at"),
                    format!("{} is repaired before it breaks", fault.part),
                )
                .help(format!("write a time after {at}"));
        }
        let time = |span: Picoseconds| SimTime(span.get());
        Fault { part: fault.part, at: time(at), repaired_at: repaired_at.map(time) }
    };
    raw.iter().enumerate().map(lower).collect()
}
