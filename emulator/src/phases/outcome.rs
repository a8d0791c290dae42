//! What a packet run of a phase sequence found: the result document of `lightloom emulate` on a
//! reconfigurable fat-tree. All times are those of the fabric, not of the scaled-down run.

use lightloom_engine::PortCount;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::Serialize;

use super::{FaultKind, InFlight};
use crate::scenario::{ExpectationResult, FlowRow, Flows, Head};

/// The result of a run. Everything but the two wall-clock figures depends on the files and the
/// seed alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What was run, for how long, and what became of the packets; simulated time is the fabric's.
    #[serde(flatten)]
    pub head: Head,
    /// How many times smaller than in the fabric all sizes and times of the run were.
    pub scale: u64,
    /// Data in a full packet.
    pub payload_bytes: Bytes,
    /// What becomes of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// Every phase of every step.
    pub phases: Vec<PhaseResult>,
    /// Every step.
    pub steps: Vec<StepResult>,
    /// Where the ports' time went.
    pub ports: PortTime,
    /// Flow completion times.
    pub flows: Flows,
    /// What each fault did.
    pub faults: Vec<FaultResult>,
    /// None here: a phase has no collectives, only bytes between leaves.
    pub collectives: Vec<()>,
    /// What was expected, and whether it came true.
    pub expectations: Vec<ExpectationResult>,
    /// Every flow, for `--flows-out`.
    #[serde(skip)]
    pub flow_records: Vec<FlowRow<LeafId>>,
    /// Every link and what it carried in the run, not scaled up, for `--links-out`: `leaf3>gpus`,
    /// `leaf3>core`, or `leaf3>leaf7 ocs2:14-15` for the circuit between two ports of a switch.
    #[serde(skip)]
    pub links: Vec<(String, PortCount)>,
}

/// How long something took, and what the models say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// What packets took; nothing where some never arrived.
    #[serde(rename = "packets_ps")]
    pub packets: Option<Picoseconds>,
    /// What packets took without the scenario's faults.
    #[serde(rename = "packets_without_faults_ps")]
    pub packets_without_faults: Option<Picoseconds>,
    /// What the fluid model says of the plan without faults.
    #[serde(rename = "fluid_ps")]
    pub fluid: Option<Picoseconds>,
    /// What the planner says.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
}

/// One phase of one step. Times of a phase run from the end of its slack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseResult {
    /// Which step, from 0.
    pub step: u32,
    /// Its name.
    pub name: String,
    /// Bytes it sends.
    pub demand_bytes: Bytes,
    /// Circuits that carry traffic when it ends.
    pub circuits_up: usize,
    /// Circuits that the plan has for it.
    pub circuits_planned: usize,
    /// When the phase before it ended.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// How long it took.
    #[serde(flatten)]
    pub times: Times,
    /// From the first command of the change before it to the last circuit up.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Data sent more than once, since circuits came or went, in the fabric's bytes.
    pub resent_bytes: Bytes,
    /// Packets lost on circuits that went dark.
    pub packets_lost: u64,
    /// Bytes that never found a way.
    pub held_bytes: Bytes,
    /// Whether nobody was there to command the change before it.
    pub change_missed: bool,
}

/// One step: the sums over its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Which, from 0.
    pub step: u32,
    /// How long it took.
    #[serde(flatten)]
    pub times: Times,
}

/// Where the time of the optical ports went, as shares of all ports over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PortTime {
    /// Drained, switching or training in a planned change.
    pub switching_share: f64,
    /// Dark or drained since something broke.
    pub fault_share: f64,
}

/// What one fault did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultResult {
    /// What broke.
    #[serde(flatten)]
    pub what: FaultKind,
    /// In which phase.
    pub phase: String,
    /// In which step, from 0.
    pub step: u32,
    /// When, counted from the beginning of the run; nothing if the run never came there.
    #[serde(rename = "at_ps")]
    pub at: Option<SimTime>,
    /// When it worked again.
    #[serde(rename = "repaired_ps")]
    pub repaired: Option<SimTime>,
    /// Circuits that lost their light or their test because of it, over the whole run.
    pub circuits_lost: usize,
    /// Changes that nobody was there to command.
    pub changes_missed: u32,
    /// Leaves at the ends of these circuits.
    pub leaves_affected: Vec<LeafId>,
    /// Packets lost in the moment it struck.
    pub packets_lost: u64,
    /// Phases that took at least a thousandth longer with this fault alone than without, as
    /// `step/phase`.
    pub phases_slowed: Vec<String>,
    /// How much longer all steps took with this fault alone.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
}
