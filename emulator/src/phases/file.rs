//! The phase scenario file: which reconfigurable fat-tree, how small, how often, and what breaks when.

use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_planner::rfabric::file::RfabricInput;
use lightloom_units::id::{LeafId, OcsId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Acknowledgements, Fault, FaultKind, InFlight, PAYLOAD, PhaseScenario, transport};

/// The mistakes that only a phase scenario can have.
pub mod codes {
    lightloom_fabric::document::codes! {
        /// A fault of something that is not there.
        NO_SUCH_PART = "LL0311", "a fault names a phase, switch or port that does not exist";
        /// A size that no packet can have.
        BAD_PAYLOAD = "LL0312", "packets of a phase scenario cannot have this size";
    }
}

/// A packet run of a phase sequence: a reconfigurable fat-tree, and what breaks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseScenarioFile {
    /// Its name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The file with the fabric and its phases, relative to this file.
    pub rfabric: String,
    /// Seed of every random draw; `--seed` on the command line overrides it.
    #[serde(default)]
    pub seed: u64,
    /// Divide all sizes and times of the run by this; results are given in the fabric's time. Left
    /// out: as much as keeps the run within about 12 million packets.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub scale: Option<u64>,
    /// How often the step is repeated.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 100))]
    pub steps: u32,
    /// What becomes of packets on a circuit that a change removes.
    #[serde(default)]
    pub in_flight: InFlight,
    /// Data in a full packet.
    #[serde(default = "payload")]
    pub payload: Text<Bytes>,
    /// What acknowledgements wait for in switches.
    #[serde(default)]
    pub acknowledgements: Acknowledgements,
    /// What breaks, and when.
    #[serde(default)]
    pub faults: Vec<FaultFile>,
    /// What must be true in the end: `completes within 80ms`, `goodput > 0.9`, `packets_lost == 0`.
    #[serde(default)]
    pub expect: Vec<String>,
}

fn once() -> u32 {
    1
}

fn payload() -> Text<Bytes> {
    Text(PAYLOAD)
}

fn at_once() -> Text<Picoseconds> {
    Text(Picoseconds::ZERO)
}

fn certain() -> f64 {
    1.0
}

/// Something that breaks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// What.
    pub what: FaultKindFile,
    /// In which phase.
    pub phase: String,
    /// In which step, from 0.
    #[serde(default)]
    pub step: u32,
    /// How long after the phase before it ended: changes of circuits begin there.
    pub after: Text<Picoseconds>,
    /// The seed draws the time from there to so much later.
    #[serde(default = "at_once")]
    pub within: Text<Picoseconds>,
    /// The share of seeds under which it happens.
    #[serde(default = "certain")]
    #[schemars(range(min = 0, max = 1))]
    pub probability: f64,
    /// How long until it works again; left out, it stays broken.
    #[serde(default)]
    pub repaired_after: Option<Text<Picoseconds>>,
}

/// What can break.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKindFile {
    /// A board of mirror drivers: every circuit on its ports goes dark.
    DriverBoard(BoardFile),
    /// A mirror that no longer moves: its circuit stays, and its port can take no other.
    StuckMirror(PortFile),
    /// A port whose links do not pass their test: they stay drained.
    FailsQualification(PortFile),
    /// A whole optical switch: every circuit through it goes dark.
    OpticalSwitch(SwitchFile),
    /// The controller is gone: nothing moves.
    ControllerLoss(NothingFile),
    /// The controller takes longer to command a change.
    ControllerSlow(SlowFile),
    /// The hosts below a leaf send and receive at a share of their rate, as when one of their interfaces is gone.
    SlowHosts(SlowHostsFile),
}

/// The hosts of a leaf.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowHostsFile {
    /// The leaf.
    pub leaf: LeafId,
    /// The share of their rate that is left, 1 to 99 per cent.
    #[schemars(range(min = 1, max = 99))]
    pub percent: u32,
}

/// A switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchFile {
    /// Which.
    pub ocs: OcsId,
}

/// How slow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowFile {
    /// So many times as long, 2 to 1,000,000.
    #[schemars(range(min = 2, max = 1_000_000))]
    pub times: u32,
}

/// The ports of a board.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoardFile {
    /// The switch.
    pub ocs: OcsId,
    /// The first port that the board drives.
    pub first_port: u32,
    /// The last.
    pub last_port: u32,
}

/// One port.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortFile {
    /// The switch.
    pub ocs: OcsId,
    /// The port.
    pub port: u32,
}

/// Nothing more to say: write `{}`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingFile {}

/// Reads a phase scenario: the scenario, or every mistake in it. `input` gives the fabric of the file
/// that it names, with which the faults are compared, or nothing where it cannot be read here.
pub fn load(
    file: &str,
    bytes: &[u8],
    input: &mut dyn FnMut(&str) -> Option<RfabricInput>,
) -> (Option<PhaseScenario>, Vec<Diagnostic>) {
    document::load(file, bytes, |raw: PhaseScenarioFile, check| lower(raw, input, check))
}

fn lower(
    raw: PhaseScenarioFile,
    input: &mut dyn FnMut(&str) -> Option<RfabricInput>,
    check: &mut Check<'_>,
) -> Option<PhaseScenario> {
    if !(512..=65_000).contains(&raw.payload.0.0) {
        check
            .error(
                codes::BAD_PAYLOAD,
                "/payload",
                format!("packets with {} of data", raw.payload.0),
            )
            .help("write 512B to 65000B; 60KiB makes long phases quick to run");
    }
    let input = input(&raw.rfabric);
    let may_break = raw.faults.iter().any(|fault| fault.probability > 0.0);
    let expectations = super::expectation::lower(&raw.expect, may_break, check);
    let mut faults = Vec::new();
    for (index, fault) in raw.faults.into_iter().enumerate() {
        faults.extend(lower_fault(fault, index, raw.steps, input.as_ref(), check));
    }
    (!check.has_errors()).then_some(PhaseScenario {
        name: raw.name,
        rfabric: raw.rfabric,
        seed: Seed(raw.seed),
        scale: raw.scale,
        steps: raw.steps,
        in_flight: raw.in_flight,
        transport: transport(raw.payload.0),
        acknowledgements: raw.acknowledgements,
        faults,
        expectations,
    })
}

fn lower_fault(
    raw: FaultFile,
    index: usize,
    steps: u32,
    input: Option<&RfabricInput>,
    check: &mut Check<'_>,
) -> Option<Fault> {
    let place = format!("/faults/{index}");
    let key = key_of(&raw.what);
    let kind = lower_kind(raw.what, input);
    if raw.step >= steps {
        check
            .error(
                codes::NO_SUCH_PART,
                &format!("{place}/step"),
                format!("the run has {steps} steps, counted from 0"),
            )
            .help(format!("write a step of at most {}, or more `steps`", steps - 1));
    }
    let mut phase = 0;
    if let Some(input) = input {
        check_ports(&kind, &format!("{place}/what/{key}"), input, check);
        phase = phase_of(&raw.phase, &format!("{place}/phase"), input, check);
    }
    Some(Fault {
        kind,
        phase,
        phase_name: raw.phase,
        step: raw.step,
        after: raw.after.0,
        within: raw.within.0,
        probability: raw.probability,
        repaired_after: raw.repaired_after.map(|time| time.0),
    })
}

/// A whole optical switch is all ports of its driver boards.
fn lower_kind(raw: FaultKindFile, input: Option<&RfabricInput>) -> FaultKind {
    match raw {
        FaultKindFile::DriverBoard(BoardFile { ocs, first_port, last_port }) => {
            FaultKind::DriverBoard { ocs, first_port, last_port }
        }
        FaultKindFile::StuckMirror(PortFile { ocs, port }) => FaultKind::StuckMirror { ocs, port },
        FaultKindFile::FailsQualification(PortFile { ocs, port }) => {
            FaultKind::FailsQualification { ocs, port }
        }
        FaultKindFile::OpticalSwitch(SwitchFile { ocs }) => {
            let there = input.filter(|input| ocs.index() < input.fabric.switches());
            let ports = there.map_or(1, |input| input.fabric.bank(ocs).ports_per_switch);
            FaultKind::DriverBoard { ocs, first_port: 0, last_port: ports - 1 }
        }
        FaultKindFile::ControllerLoss(NothingFile {}) => FaultKind::ControllerLoss,
        FaultKindFile::ControllerSlow(SlowFile { times }) => FaultKind::ControllerSlow { times },
        FaultKindFile::SlowHosts(SlowHostsFile { leaf, percent }) => {
            FaultKind::SlowHosts { leaf, percent }
        }
    }
}

/// The phase of this name; the first where there is none, which is told.
fn phase_of(name: &str, place: &str, input: &RfabricInput, check: &mut Check<'_>) -> usize {
    let names: Vec<&str> = input.phases.iter().map(|phase| phase.name.as_str()).collect();
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        let message = format!("the step has no phase `{name}`");
        check
            .error(codes::NO_SUCH_PART, place, message)
            .help(format!("write one of: {}", names.join(", ")));
        0
    })
}

/// How a kind of fault is written.
const fn key_of(kind: &FaultKindFile) -> &'static str {
    match kind {
        FaultKindFile::DriverBoard(_) => "driver_board",
        FaultKindFile::StuckMirror(_) => "stuck_mirror",
        FaultKindFile::FailsQualification(_) => "fails_qualification",
        FaultKindFile::OpticalSwitch(_) => "optical_switch",
        FaultKindFile::ControllerLoss(_) => "controller_loss",
        FaultKindFile::ControllerSlow(_) => "controller_slow",
        FaultKindFile::SlowHosts(_) => "slow_hosts",
    }
}

fn check_leaf(leaf: LeafId, place: &str, input: &RfabricInput, check: &mut Check<'_>) {
    let leaves = input.fabric.leaves();
    if leaf.index() >= leaves {
        check
            .error(codes::NO_SUCH_PART, &format!("{place}/leaf"), format!("{leaf} does not exist"))
            .help(format!("leaves run from leaf0 to leaf{}", leaves - 1));
    }
}

fn check_ports(kind: &FaultKind, place: &str, input: &RfabricInput, check: &mut Check<'_>) {
    let (ocs, first, last) = match *kind {
        FaultKind::DriverBoard { ocs, first_port, last_port } => (ocs, first_port, last_port),
        FaultKind::StuckMirror { ocs, port } | FaultKind::FailsQualification { ocs, port } => {
            (ocs, port, port)
        }
        FaultKind::SlowHosts { leaf, .. } => return check_leaf(leaf, place, input, check),
        FaultKind::ControllerLoss | FaultKind::ControllerSlow { .. } => return,
    };
    let switches = input.fabric.switches();
    if ocs.index() >= switches {
        check
            .error(codes::NO_SUCH_PART, &format!("{place}/ocs"), format!("{ocs} does not exist"))
            .help(format!("switches run from ocs0 to ocs{}", switches - 1));
        return;
    }
    let ports = input.fabric.bank(ocs).ports_per_switch;
    if first > last || last >= ports {
        let message = format!("{ocs} has no ports {first} to {last}");
        check
            .error(codes::NO_SUCH_PART, place, message)
            .help(format!("its ports run from 0 to {}", ports - 1));
    }
}
