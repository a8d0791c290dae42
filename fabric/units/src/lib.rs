// SPDX-License-Identifier: Apache-2.0
//! Units, instants, seeds and ids shared by all lightloom crates.
//!
//! Units and instants are types at the crate root, ids are in [`id`], and all randomness comes from
//! [`seed`].

pub mod id;
pub mod seed;
mod units;

pub use units::{
    BitsPerSecond, Bytes, Dollars, Milliseconds, Picoseconds, Quantity, QuantityError, SimTime,
    Text, Watts,
};
