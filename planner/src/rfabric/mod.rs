//! Planning a reconfigurable fat-tree: which circuits each phase gets, how the switches hold them,
//! and when changing them pays.

pub mod demand;
pub mod evaluate;
pub mod exact;
pub mod one_hop;
pub mod topology;
pub mod workload;

#[cfg(test)]
mod testing;
