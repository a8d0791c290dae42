//! lightloom: pure functions from a fabric and its faults to checked plans.

pub mod architecture;
pub mod compare;
pub mod rfabric;
