//! What happens on a fabric: packets, collectives, faults, devices and training steps.
//!
//! * [`scenario`] – a planned ring fabric with faults and healing; [`traffic`] – workloads on any network;
//!   [`phases`] – a reconfigurable fat-tree that changes its circuits;
//! * [`training`] – how long a training step takes, in closed form and packet by packet.

pub mod phases;
pub mod scenario;
pub mod traffic;
pub mod training;
