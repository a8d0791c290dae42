// SPDX-License-Identifier: Apache-2.0
//! Units, instants, seeds and ids: the words that every other crate of lightloom shares.
//!
//! Units and instants are types of their own at the root of this crate, names of things are in [`id`]
//! and all randomness is in [`seed`].

pub mod id;
pub mod seed;
mod units;

pub use units::{
    BitsPerSecond, Bytes, Dollars, Milliseconds, Picoseconds, Quantity, QuantityError, SimTime,
    Text, Watts,
};
