// SPDX-License-Identifier: Apache-2.0
//! A small elastic all-reduce over a group's light. It continues with whatever neighbours remain
//! after a change.
//!
//! ```text
//!   node    n0        n4        n8        n12        light runs along a line of nodes and back,
//!   ring    r0 ─────▶ r1 ─────▶ r2 ─────▶ r3 ┐       so each node hosts two members of the ring:
//!           r7 ◀───── r6 ◀───── r5 ◀───── r4 ┘       one outward, one on the return
//! ```
//!
//! A step sums a vector over all m members by reduce-scatter and then all-gather, in `2 (m - 1)`
//! exchanges that each carry 1/m of the vector. Every sum is checked against its closed form. A
//! member that loses a neighbour waits for the next generation of the rank file, connects to its
//! new neighbours, agrees with them on the next step, and continues.

mod link;
mod member;
mod reduce;

pub use member::{Options, run};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingStep {
    pub node: String,
    pub group: String,
    pub generation: u64,
    pub step: u64,
    pub members: usize,
    /// Unix time of completion, in microseconds.
    pub unix_us: u64,
    pub step_us: u64,
}
