//! lightloom: packet engine, collectives, faults and training-step model.

pub mod device;
pub mod training;
