//! What happens on a fabric: packets, collectives, faults, devices and training steps.
//!
//! * [`engine`] – how packets move; [`transport`] – how hosts send, pace and repair them;
//! * [`topology`] – networks for the engine; [`collective`] – flows that wait for each other on them;
//! * [`steady`] – exact shortcuts: of equal parts only one is simulated;
//! * [`scenario`] – a planned ring fabric with faults and healing; [`traffic`] – workloads on any network;
//!   [`phases`] – a reconfigurable fat-tree that changes its circuits;
//! * [`capture`] – packets and timelines of a run as files;
//! * [`training`] – how long a training step takes, in closed form and packet by packet;
//! * [`device`] – emulated transceivers and optical switches that speak their protocols.

pub mod collective;
pub mod device;
pub mod phases;
pub mod scenario;
pub mod traffic;
pub mod training;
