//! What happened in one run.

use std::collections::BTreeSet;

use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds, SimTime};

use lightloom_engine::{FlowRecord, PacketCount, PortCount};

/// What happened in one run.
pub(in crate::phases) struct Told {
    pub(in crate::phases) phases: Vec<PhaseTold>,
    pub(in crate::phases) faults: Vec<FaultTold>,
    pub(in crate::phases) packets: PacketCount,
    pub(in crate::phases) flows: Vec<FlowRecord>,
    /// What every link carried, by its name.
    pub(in crate::phases) links: Vec<(String, PortCount)>,
    pub(in crate::phases) ended: SimTime,
    /// Ports' time in changes, and dark for faults.
    pub(in crate::phases) switching: u128,
    pub(in crate::phases) broken: u128,
}

/// What happened in one phase of one step.
#[derive(Clone, Debug, Default)]
pub(in crate::phases) struct PhaseTold {
    pub(in crate::phases) start: SimTime,
    /// From the end of the slack to the last byte and the last circuit.
    pub(in crate::phases) time: Option<Picoseconds>,
    pub(in crate::phases) transition: Picoseconds,
    pub(in crate::phases) circuits_up: usize,
    pub(in crate::phases) resent: Bytes,
    pub(in crate::phases) packets_lost: u64,
    pub(in crate::phases) held: Bytes,
    pub(in crate::phases) change_missed: bool,
}

/// What one fault did.
#[derive(Clone, Debug, Default)]
pub(in crate::phases) struct FaultTold {
    pub(in crate::phases) at: Option<SimTime>,
    pub(in crate::phases) repaired: Option<SimTime>,
    pub(in crate::phases) circuits: BTreeSet<CrossConnect>,
    pub(in crate::phases) leaves: BTreeSet<LeafId>,
    pub(in crate::phases) changes_missed: u32,
}
