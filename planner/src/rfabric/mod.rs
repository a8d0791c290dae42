//! Planning a reconfigurable fat-tree: which circuits each phase gets, how the switches hold them,
//! and when changing them pays.

pub mod baselines;
pub mod check;
pub mod claims;
pub mod demand;
pub mod evaluate;
pub mod exact;
pub mod file;
mod flow;
pub mod fluid;
pub mod multi_hop;
pub mod one_hop;
pub mod phases;
pub mod plan;
pub mod realise;
pub mod rings;
pub mod templates;
#[doc(hidden)]
pub mod testing;
pub mod topology;
pub mod transition;
pub mod workload;

pub use plan::{Options, RfabricPlan, plan};
