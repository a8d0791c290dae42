// SPDX-License-Identifier: Apache-2.0
//! Units, instants, seeds and ids shared by all lightloom crates.

pub mod id;
pub mod seed;
mod units;

pub use units::{
    BitsPerSecond, Bytes, Dollars, Milliseconds, Picoseconds, Quantity, QuantityError, SimTime,
    Text, as_text, gcd, thousands,
};
