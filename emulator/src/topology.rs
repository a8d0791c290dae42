//! Networks in the shapes people build, as graphs for the engine.

mod fat_tree;
mod ring;

pub use fat_tree::{FatTree, LeafSpine};
pub use ring::{Ring, RingShape};
