//! What happens on a fabric: scenarios, workloads, faults and training steps.
//!
//! * [`scenario`] – a planned ring fabric with faults and healing; [`traffic`] – workloads on any network;
//!   [`phases`] – a reconfigurable fat-tree that changes its circuits;
//! * [`training`] – training steps packet by packet.

pub mod phases;
pub mod scenario;
pub mod traffic;
pub mod training;
