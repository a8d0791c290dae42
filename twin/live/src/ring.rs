// SPDX-License-Identifier: Apache-2.0
//! A small all-reduce over the light of a group, elastic: it goes on with the neighbours that a change leaves it.
//!
//! ```text
//!   node    n0        n4        n8        n12        light goes along a line of nodes and back,
//!   ring    r0 ─────▶ r1 ─────▶ r2 ─────▶ r3 ┐       so each node is two members of the ring:
//!           r7 ◀───── r6 ◀───── r5 ◀───── r4 ┘       one on the way out, one on the way back
//! ```
//!
//! A step sums a vector over all members in `2 (m - 1)` exchanges of an m-th of it: reduce-scatter, then
//! all-gather. Every sum is known in closed form, and checked. A member that misses a neighbour waits for the next
//! generation of the rank file, meets its new neighbours, agrees with them on the step to do next, and goes on.

mod link;
mod member;
mod reduce;

pub use member::{Options, run};

use serde::{Deserialize, Serialize};

/// One step, a line of the program's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingStep {
    /// The node.
    pub node: String,
    /// Its group.
    pub group: String,
    /// The generation of the rank file.
    pub generation: u64,
    /// Which step.
    pub step: u64,
    /// Members of the ring: two a node.
    pub members: usize,
    /// When it was done, Unix time in microseconds.
    pub unix_us: u64,
    /// How long it took, in microseconds.
    pub step_us: u64,
}
