// SPDX-License-Identifier: Apache-2.0
//! Builds common networks.

mod domain;
mod fat_tree;
mod rail;
mod ring;
mod torus;

pub use domain::SwitchedDomain;
pub use fat_tree::{FatTree, LeafSpine};
pub use rail::{RailLinks, RailOnly, RailOptimised};
pub use ring::{Ring, RingShape};
pub use torus::{CubeTorus, Grid, Torus};
