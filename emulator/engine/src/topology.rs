// SPDX-License-Identifier: Apache-2.0
//! Builds common networks.

mod domain;
mod fat_tree;
mod measure;
mod rail;
mod ring;
mod torus;

pub use domain::SwitchedDomain;
pub use fat_tree::{FatTree, LeafSpine};
pub use measure::diameter;
pub use rail::{RailOnly, RailOptimised};
pub use ring::{Ring, RingShape};
pub use torus::{CubeTorus, Grid, Torus};
