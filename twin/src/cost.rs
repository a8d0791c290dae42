// SPDX-License-Identifier: Apache-2.0
//! Assumed CPU time of the daemon, which is not emulated.

use lightloom_emulator::outcome::CostModel;
use lightloom_units::Picoseconds;
use lightloom_units::seed::Stream;
use rand::RngExt;

/// `tests/it/cost.rs` measured these costs with 32 nodes and 64 transceivers (figures in docs/twin.md). The cost per
/// device is the slope up to 720 nodes, and the cost per node is one node's share at 32 nodes. The hand-off is half of
/// the extra time of a read over a pty. The jitter is an assumption.
pub const COST: CostModel = CostModel {
    per_input: Picoseconds::from_micros(9),
    per_input_and_device: Picoseconds::from_nanos(2),
    per_plan: Picoseconds::from_micros(5),
    per_plan_and_node: Picoseconds::from_nanos(17_500),
    per_end_and_node: Picoseconds::from_nanos(5_000),
    handoff: Picoseconds::from_micros(40),
    jitter: Picoseconds::from_micros(40),
};

pub(crate) fn of_input(devices: usize) -> Picoseconds {
    Picoseconds(COST.per_input.get() + COST.per_input_and_device.get() * devices as u64)
}

pub(crate) fn of_plan(nodes: u32) -> Picoseconds {
    Picoseconds(COST.per_plan.get() + COST.per_plan_and_node.get() * u64::from(nodes))
}

pub(crate) fn of_end(nodes: u32) -> Picoseconds {
    Picoseconds(COST.per_end_and_node.get() * u64::from(nodes))
}

pub(crate) fn late(draws: &mut Stream) -> Picoseconds {
    Picoseconds(draws.random_range(0..=COST.jitter.get()))
}
