// SPDX-License-Identifier: Apache-2.0
//! Units, instants, seeds and ids shared by all lightloom crates.
//!
//! The crate root contains units and instants, [`id`] contains ids, and [`seed`] is the source of
//! all randomness.

pub mod id;
pub mod seed;
mod units;

pub use units::{
    BitsPerSecond, Bytes, Dollars, Milliseconds, Picoseconds, Quantity, QuantityError, SimTime,
    Text, Watts, thousands,
};
