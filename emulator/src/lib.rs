//! lightloom: packet engine, collectives, faults and training-step model.

pub mod capture;
pub mod collective;
pub mod device;
pub mod engine;
pub mod phases;
pub mod scenario;
pub mod steady;
pub mod topology;
pub mod traffic;
pub mod training;
pub mod transport;
