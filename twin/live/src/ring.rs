// SPDX-License-Identifier: Apache-2.0
//! A small elastic all-reduce over a group's light, which continues with the remaining neighbours after a change.
//!
//! ```text
//!   node    n0        n4        n8        n12        light runs along a line of nodes and back,
//!   ring    r0 ─────▶ r1 ─────▶ r2 ─────▶ r3 ┐       so each node hosts two members of the ring:
//!           r7 ◀───── r6 ◀───── r5 ◀───── r4 ┘       one outward, one on the return
//! ```
//!
//! A step sums a vector over all m members by a reduce-scatter and an all-gather, in `2 (m - 1)` exchanges of 1/m of
//! the vector each. Sums are checked against their closed form. A member that loses a neighbour waits for the next
//! generation of the rank file, connects to its new neighbours, agrees with them on the next step, and continues.

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
    pub unix_us: u64,
    pub step_us: u64,
}
